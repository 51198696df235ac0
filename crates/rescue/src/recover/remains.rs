//! Remains of md on members beside their superblocks: bitmaps, headers of partial parity logs,
//! blocks of journals. Remains tell of which array a member was, and never where in it.

use std::collections::BTreeMap;

use braid_array::SECTOR_BYTES;
use braid_array::format::journal::{JournalError, MetaBlock};
use braid_array::format::{BitmapSuperblock, ppl};

use super::hypothesis::Hypothesis;

/// Headers and blocks begin at multiples of this.
const UNIT_SECTORS: u64 = 8;

/// Something that is left. An array is known by the CRC-32C of its UUID, as partial parity logs
/// have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remain {
    /// A bitmap, over so many sectors.
    Bitmap {
        array: u32,
        sectors: u64,
    },
    PartialParity {
        array: u32,
    },
    Journal,
}

impl Remain {
    pub(super) fn look(bytes: &[u8], sector: u64) -> Option<Self> {
        let bytes = bytes.get(..(UNIT_SECTORS * SECTOR_BYTES) as usize)?;
        match bytes[0] {
            _ if !sector.is_multiple_of(UNIT_SECTORS) => None,
            b'b' => {
                let bitmap = BitmapSuperblock::decode(bytes).ok()?;
                let array = crc32c::crc32c(&bitmap.uuid);
                Some(Self::Bitmap { array, sectors: bitmap.sync_size_sectors })
            }
            0xff => ppl::signature(bytes).map(|array| Self::PartialParity { array }),
            _ => {
                let is_none = matches!(
                    MetaBlock::decode(bytes, [0; 16]),
                    Err(JournalError::Magic | JournalError::Short)
                );
                (!is_none).then_some(Self::Journal)
            }
        }
    }

    /// As numbers, and from them.
    pub(super) fn to_line(self) -> String {
        match self {
            Self::Bitmap { array, sectors } => format!("0 {array} {sectors}"),
            Self::PartialParity { array } => format!("1 {array}"),
            Self::Journal => "2".to_owned(),
        }
    }

    pub(super) fn of_line(numbers: &[u64]) -> Option<Self> {
        let array = |array: u64| u32::try_from(array).ok();
        match *numbers {
            [0, one, sectors] => Some(Self::Bitmap { array: array(one)?, sectors }),
            [1, one] => Some(Self::PartialParity { array: array(one)? }),
            [2] => Some(Self::Journal),
            _ => None,
        }
    }
}

/// Remains on all members, by member and sector.
#[derive(Clone, Debug, Default)]
pub(super) struct Remains(Vec<Vec<(u64, Remain)>>);

impl Remains {
    pub(super) fn of(each: impl Iterator<Item = Vec<(u64, Remain)>>) -> Self {
        Self(each.collect())
    }

    /// Remains before the data of a member: inside, an array may hold members of another one.
    fn before(&self, member: usize, data_offset: u64) -> impl Iterator<Item = Remain> {
        let all = self.0.get(member).into_iter().flatten();
        all.filter(move |(sector, _)| *sector < data_offset).map(|(_, remain)| *remain)
    }

    /// The array of a member, if something says so.
    fn array(&self, member: usize, data_offset: u64) -> Option<u32> {
        self.before(member, data_offset).find_map(|remain| match remain {
            Remain::Bitmap { array, .. } | Remain::PartialParity { array } => Some(array),
            Remain::Journal => None,
        })
    }

    fn has_journal(&self, member: usize, data_offset: u64) -> bool {
        self.before(member, data_offset).any(|remain| remain == Remain::Journal)
    }

    /// The array of most of these members, where it is that of at least two.
    fn most(&self, members: &[(usize, u64)]) -> Option<u32> {
        let mut count: BTreeMap<u32, usize> = BTreeMap::new();
        for (member, data_offset) in members {
            if let Some(array) = self.array(*member, *data_offset) {
                *count.entry(array).or_default() += 1;
            }
        }
        let most = count.into_iter().max_by_key(|(_, members)| *members);
        most.filter(|(_, members)| *members > 1).map(|(array, _)| array)
    }

    /// The ones of these members, whose data begin there, that are of another array than most of
    /// them.
    pub(super) fn strangers(&self, members: &[(usize, u64)]) -> Vec<usize> {
        let Some(most) = self.most(members) else { return Vec::new() };
        let is_other = |(member, data_offset): &&(usize, u64)| {
            let other = self.array(*member, *data_offset).is_some_and(|array| array != most);
            other || self.has_journal(*member, *data_offset)
        };
        members.iter().filter(is_other).map(|(member, _)| *member).collect()
    }

    /// Evidence about the members of a hypothesis and those that it leaves out.
    pub(super) fn evidence(&self, one: &Hypothesis, names: &[String]) -> Vec<String> {
        let used: Vec<(usize, u64)> =
            one.roles.iter().flatten().map(|place| (place.member, place.data_offset)).collect();
        let usual = used.first().map_or(0, |(_, data_offset)| *data_offset);
        let out = one.left_out(names.len()).into_iter().map(|member| (member, usual));
        let mut all: Vec<(usize, u64)> = used.iter().copied().chain(out).collect();
        all.sort_unstable();
        let Some(most) = self.most(&used) else { return Vec::new() };
        let own: Vec<&(usize, u64)> = all
            .iter()
            .filter(|(member, data_offset)| self.array(*member, *data_offset) == Some(most))
            .collect();
        let list: Vec<&str> = own.iter().map(|(member, _)| names[*member].as_str()).collect();
        let mut said = format!("what md left on {} is of one array", list.join(", "));
        let sectors = own.iter().find_map(|(member, data_offset)| {
            self.before(*member, *data_offset).find_map(|remain| match remain {
                Remain::Bitmap { array, sectors } if array == most => Some(sectors),
                _ => None,
            })
        });
        if let Some(sectors) = sectors {
            said += &format!(", whose bitmap is of {} bytes", u128::from(sectors) * 512);
        }
        let mut evidence = vec![said];
        for member in self.strangers(&all) {
            let what = if self.has_journal(member, usual) { "journal" } else { "member" };
            let name = &names[member];
            evidence.push(format!("what md left on {name} is of another array's {what}"));
        }
        evidence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remains(all: &[&[(u64, Remain)]]) -> Remains {
        Remains(all.iter().map(|one| one.to_vec()).collect())
    }

    #[test]
    fn most_members_tell_who_is_a_stranger() {
        let bitmap = |array| (16, Remain::Bitmap { array, sectors: 2048 });
        let found = remains(&[
            &[bitmap(7)],
            &[bitmap(8)],
            &[(24, Remain::PartialParity { array: 7 })],
            &[],
            &[(16, Remain::Journal)],
            // Inside of what the array holds.
            &[(4096, Remain::PartialParity { array: 9 })],
        ]);
        let members = |numbers: &[usize]| -> Vec<(usize, u64)> {
            numbers.iter().map(|member| (*member, 2048)).collect()
        };
        assert_eq!(found.strangers(&members(&[0, 1, 2, 3, 4, 5])), [1, 4]);
        assert!(found.strangers(&members(&[0, 1, 3])).is_empty(), "one against one");
    }

    #[test]
    fn lines_are_read_as_they_were_written() {
        for one in [
            Remain::Bitmap { array: u32::MAX, sectors: 5 },
            Remain::PartialParity { array: 3 },
            Remain::Journal,
        ] {
            let line = one.to_line();
            let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
            assert_eq!(Remain::of_line(&numbers), Some(one));
        }
        assert_eq!(Remain::of_line(&[1, 1 << 32]), None);
        assert_eq!(Remain::of_line(&[3]), None);
    }

    #[test]
    fn remains_are_known_by_their_magic_and_their_sums() {
        let mut page = vec![0xff; 4096];
        assert_eq!(Remain::look(&page, 8), None);
        let header = ppl::PplHeader { generation: 1, entries: Vec::new() };
        page = header.encode([5; 16]);
        let array = crc32c::crc32c(&[5; 16]);
        assert_eq!(Remain::look(&page, 8), Some(Remain::PartialParity { array }));
        assert_eq!(Remain::look(&page, 9), None);
        assert_eq!(Remain::look(&page[..4095], 8), None);
        let block = MetaBlock { seq: 1, position: 0, payloads: Vec::new() }.encode([5; 16]);
        assert_eq!(Remain::look(&block, 8), Some(Remain::Journal));
    }
}
