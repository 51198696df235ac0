//! The consistency policy of an array over nodes that is stopped, changed. Nothing is written here.
//!
//! The bitmap is that of any array: [`braid_array::policy`] plans it. Journals lie at the end of
//! volumes, behind the data, where `create` has left room; whether there are any, and what for, is
//! what their headers say. So headers come last: until all have one the nodes record nothing, and
//! of an array that was stopped well they need not have. Whichever writes were done, the array
//! starts, with the old policy, the new one, or `bitmap` on the way from none to a journal.

use braid_array::format::superblock::feature;
use braid_array::format::{DevRole, Superblock, Version};
use braid_array::policy::{self as local, PolicyChange, Write};
use braid_array::{Refusal, SECTOR_BYTES};

use crate::assemble::{Candidate, SUPERBLOCK_SECTOR};
use crate::create::chunk_of_bitmap;
use crate::family::Family;
use crate::ids::{Epoch, SetVersion};
use crate::journal::{HEADERS_BYTES, Header, LEAST_BYTES, PAGE_BYTES, headers_byte};

#[cfg(test)]
mod tests;

/// A policy that an array over nodes can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Neither a bitmap nor journals.
    Resync,
    /// A bitmap.
    Bitmap,
    /// Journals of what is written to parts of stripes; levels with parity.
    PartialParity,
    /// Journals of all that is written.
    Journal,
}

impl Policy {
    /// Are there journals, and are they for parts of stripes alone?
    const fn journals(self) -> Option<bool> {
        match self {
            Self::Resync | Self::Bitmap => None,
            Self::PartialParity => Some(true),
            Self::Journal => Some(false),
        }
    }
}

/// A volume of the array, held so that nobody else writes to it.
#[derive(Clone, Debug)]
pub struct Volume {
    /// What was found on it.
    pub candidate: Candidate,
    /// What lies where [headers](headers_byte) of a journal would: [`HEADERS_BYTES`].
    pub headers: Vec<u8>,
    /// The highest epoch that its node has granted.
    pub granted: Epoch,
}

impl Volume {
    /// Its journal, if it has one that nodes would use.
    fn header(&self, superblock: &Superblock) -> Option<Header> {
        let header = Header::newest(&superblock.set_uuid, &self.headers)?;
        (header.log_bytes <= self.room(superblock)?).then_some(header)
    }

    /// What lies between data and headers, in bytes.
    fn room(&self, superblock: &Superblock) -> Option<u64> {
        let used = match superblock.size_sectors {
            0 => superblock.data_size,
            size => size,
        };
        let end = superblock.data_offset.checked_add(used)?.checked_mul(SECTOR_BYTES)?;
        headers_byte(self.candidate.bytes)?.checked_sub(end.checked_next_multiple_of(PAGE_BYTES)?)
    }
}

/// Plans the change for the array of these volumes, which must be all of its members: what is to be
/// written, in this order, each durably before the next. `utime`: the time, coded as in a
/// superblock. Nothing where it has the policy already.
///
/// Before the first write every node has to have granted the array anew, so that no client from
/// before goes on.
///
/// # Errors
/// Why the array, as it is, cannot be given the policy.
pub fn plan(volumes: &[Volume], policy: Policy, utime: u64) -> Result<Vec<Write>, Refusal> {
    let lie: Vec<_> = volumes.iter().map(|volume| volume.candidate.as_it_lies()).collect();
    let of = |volume: &Volume| volume.candidate.superblock.clone().ok();
    let superblocks: Vec<Option<Superblock>> = volumes.iter().map(of).collect();
    let newest = superblocks.iter().flatten().max_by_key(|superblock| superblock.events);
    let journals = || volumes.iter().zip(&superblocks).filter(|(_, sb)| holds_role(sb.as_ref()));
    let had = |(volume, sb): (&Volume, &Option<Superblock>)| volume.header(sb.as_ref()?);
    let all_had = journals().all(|one| had(one).is_some());
    let marked = newest.is_some_and(|superblock| superblock.has(feature::BITMAP_OFFSET));
    let size_bytes = newest.map_or(0, |superblock| superblock.size_sectors * SECTOR_BYTES);
    let bitmap = local::Policy::Bitmap { chunk_bytes: chunk_of_bitmap(size_bytes) };
    let beside = match policy {
        Policy::Resync => local::Policy::Resync,
        Policy::Bitmap => bitmap,
        // One that was made without a bitmap is to have none.
        Policy::PartialParity | Policy::Journal if all_had && !marked => local::Policy::Resync,
        Policy::PartialParity | Policy::Journal => bitmap,
    };
    let change = PolicyChange::plan(&lie, beside, utime)?;
    let Some(newest) = newest else { return Ok(Vec::new()) };
    let family = Family::decode(newest.level, newest.layout, newest.raid_disks)?;
    if policy == Policy::PartialParity && !family.has_parities() {
        let reason = "policy ppl is for levels with parity";
        return Err(Refusal::new(reason, "use journal or bitmap"));
    }
    let mut writes = change.map_or_else(Vec::new, |change| change.writes);
    writes.iter_mut().for_each(|write| restore_level(write, family));
    let granted = volumes.iter().map(|volume| volume.granted).max();
    let epoch = granted.unwrap_or(Epoch::BEFORE_ANY).next();
    for (index, (volume, superblock)) in volumes.iter().zip(&superblocks).enumerate() {
        let Some(superblock) = superblock else { continue };
        for (sector, bytes) in headers(volume, superblock, policy, epoch)? {
            writes.push(Write { index, sector, bytes });
        }
    }
    Ok(writes)
}

fn holds_role(superblock: Option<&Superblock>) -> bool {
    superblock.is_some_and(|superblock| matches!(superblock.role(), DevRole::Active(_)))
}

/// The code that the array has, where [`Candidate::as_it_lies`] has another for it.
fn restore_level(write: &mut Write, family: Family) {
    if write.sector != SUPERBLOCK_SECTOR {
        return;
    }
    let superblock = Superblock::decode(Version::V1_2, SUPERBLOCK_SECTOR, &write.bytes);
    let superblock = superblock.expect("the superblock of a change");
    let (level, layout) = family.encode();
    let len = write.bytes.len();
    write.bytes = Superblock { level, layout, ..superblock }.encode();
    write.bytes.resize(len, 0);
}

/// What the end of a volume is given, by sector.
fn headers(
    volume: &Volume,
    superblock: &Superblock,
    policy: Policy,
    epoch: Epoch,
) -> Result<Vec<(u64, Vec<u8>)>, Refusal> {
    let had = volume.header(superblock);
    let place = headers_byte(volume.candidate.bytes).unwrap_or(0);
    let at = |byte: u64| (place + byte) / SECTOR_BYTES;
    let blank = vec![0; PAGE_BYTES as usize];
    let uuid = &superblock.set_uuid;
    Ok(match (policy.journals(), had) {
        (None, None) => Vec::new(),
        // The one that counts goes last: without it the other one would.
        (None, Some(header)) => {
            let other = HEADERS_BYTES - PAGE_BYTES - header.byte();
            vec![(at(other), blank.clone()), (at(header.byte()), blank)]
        }
        (Some(parts_only), Some(header)) if header.parts_only == parts_only => Vec::new(),
        (Some(parts_only), Some(header)) => {
            let header = Header { sequence: header.sequence + 1, parts_only, ..header };
            vec![(at(header.byte()), header.encode(uuid))]
        }
        (Some(parts_only), None) => {
            let room = volume.room(superblock).map_or(0, |room| room + HEADERS_BYTES);
            if room < LEAST_BYTES {
                return Err(no_room(volume));
            }
            let header = Header::new(room, parts_only).ok_or_else(|| no_room(volume))?;
            // What lies there may be records of a journal that was taken away.
            let header = Header { mark: SetVersion::new(epoch, 0), ..header };
            vec![(at(PAGE_BYTES), blank), (at(header.byte()), header.encode(uuid))]
        }
    })
}

fn no_room(volume: &Volume) -> Refusal {
    let reason = format!(
        "{} ends with its data, and a journal takes {} MiB behind them, which a volume is made \
         with",
        volume.candidate.name(),
        LEAST_BYTES >> 20
    );
    let next = "copy what the array holds to one that is created with --consistency-policy ppl or \
                journal";
    Refusal::new(reason, next)
}
