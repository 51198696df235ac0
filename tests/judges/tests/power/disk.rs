//! A disk with a volatile cache, as its data sheet has it: what was written counts as long as the
//! power is on, and for good once a flush was answered. A power cut leaves of each sector what was
//! durable or any version that the cache had of it; a sector is never torn.

use std::collections::BTreeMap;
use std::ops::Range;

use super::dice::Dice;

pub(super) const SECTOR_BYTES: usize = 512;

/// One disk.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    /// What reads give.
    content: Vec<u8>,
    /// By sector: what lies below the versions in the cache, and these with the numbers of the
    /// writes that they came with.
    cached: BTreeMap<usize, Cached>,
    writes: u64,
}

#[derive(Clone, Debug)]
struct Cached {
    durable: Vec<u8>,
    versions: Vec<(u64, Vec<u8>)>,
}

/// What a cache has of use when the power goes off.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// Nothing is written any more.
    Lost,
    /// All of it still is.
    Kept,
    /// Some writes are, whole.
    Writes,
    /// Some sectors of each write are.
    Sectors,
}

impl Disk {
    /// Full of zeroes.
    pub(super) fn new(bytes: usize) -> Self {
        assert!(bytes.is_multiple_of(SECTOR_BYTES), "{bytes} bytes are not whole sectors");
        Self { content: vec![0; bytes], cached: BTreeMap::new(), writes: 0 }
    }

    pub(super) const fn bytes(&self) -> usize {
        self.content.len()
    }

    /// As much of a range as the disk has.
    pub(super) fn read(&self, range: Range<usize>) -> &[u8] {
        let end = range.end.min(self.content.len());
        &self.content[range.start.min(end)..end]
    }

    /// Whole sectors into the cache; `None` if they are not, or not of this disk.
    pub(super) fn write(&mut self, offset: usize, data: &[u8]) -> Option<()> {
        let end = offset.checked_add(data.len())?;
        let whole = offset.is_multiple_of(SECTOR_BYTES) && data.len().is_multiple_of(SECTOR_BYTES);
        if !whole || end > self.content.len() {
            return None;
        }
        self.writes += 1;
        for (index, sector) in data.chunks(SECTOR_BYTES).enumerate() {
            let number = offset / SECTOR_BYTES + index;
            let place = &mut self.content[number * SECTOR_BYTES..][..SECTOR_BYTES];
            let cached = self.cached.entry(number);
            let cached =
                cached.or_insert_with(|| Cached { durable: place.to_vec(), versions: Vec::new() });
            cached.versions.push((self.writes, sector.to_vec()));
            place.copy_from_slice(sector);
        }
        Some(())
    }

    /// These sectors are durable, as after a write with FUA; what else is cached is not.
    pub(super) fn force(&mut self, offset: usize, bytes: usize) {
        for number in offset / SECTOR_BYTES..(offset + bytes) / SECTOR_BYTES {
            self.cached.remove(&number);
        }
    }

    /// All that was written is durable.
    pub(super) fn flush(&mut self) {
        self.cached.clear();
    }

    /// The power goes off.
    pub(super) fn lose_power(&mut self, dice: &mut Dice) {
        let fate = dice.one_of(&[Fate::Lost, Fate::Kept, Fate::Writes, Fate::Sectors]);
        let percent = dice.one_of(&[10, 50, 90]);
        let seed = dice.next();
        for (number, cached) in std::mem::take(&mut self.cached) {
            let kept = |write: u64| match fate {
                Fate::Lost => false,
                Fate::Kept => true,
                Fate::Writes => Dice::new(seed ^ write).percent(percent),
                Fate::Sectors => {
                    let sector = (number as u64) << 32;
                    Dice::new(seed ^ write ^ sector).percent(percent)
                }
            };
            let version = cached.versions.iter().rev().find(|(write, _)| kept(*write));
            let left = version.map_or(&cached.durable, |(_, version)| version);
            self.content[number * SECTOR_BYTES..][..SECTOR_BYTES].copy_from_slice(left);
        }
    }
}

#[test]
fn what_was_flushed_stays_and_what_was_not_is_any_version() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let mut disk = Disk::new(4 * SECTOR_BYTES);
        disk.write(0, &[1; 4 * SECTOR_BYTES]).unwrap();
        disk.flush();
        disk.write(SECTOR_BYTES, &[2; SECTOR_BYTES]).unwrap();
        disk.write(SECTOR_BYTES, &[3; 2 * SECTOR_BYTES]).unwrap();
        disk.write(3 * SECTOR_BYTES, &[4; SECTOR_BYTES]).unwrap();
        disk.force(3 * SECTOR_BYTES, SECTOR_BYTES);
        let first = |disk: &Disk, sector| disk.read(sector * SECTOR_BYTES..4 * SECTOR_BYTES)[0];
        assert_eq!([0, 1, 2, 3].map(|sector| first(&disk, sector)), [1, 3, 3, 4]);
        disk.lose_power(&mut Dice::new(seed));
        let left = [0, 1, 2, 3].map(|sector| first(&disk, sector));
        assert!(left[0] == 1 && left[3] == 4, "seed {seed}: {left:?}");
        let sectors = disk.content.chunks(SECTOR_BYTES);
        assert!(sectors.into_iter().all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        seen.insert((left[1], left[2]));
    }
    let any = [1, 2, 3].iter().flat_map(|one| [1, 3].map(|other| (*one, other)));
    assert_eq!(seen, any.collect());
}

#[test]
fn parts_of_sectors_and_what_lies_behind_the_end_are_refused() {
    let mut disk = Disk::new(2 * SECTOR_BYTES);
    assert_eq!(disk.write(256, &[1; SECTOR_BYTES]), None);
    assert_eq!(disk.write(0, &[1; 100]), None);
    assert_eq!(disk.write(SECTOR_BYTES, &[1; 2 * SECTOR_BYTES]), None);
    assert!(disk.read(0..4 * SECTOR_BYTES) == [0; 2 * SECTOR_BYTES]);
}
