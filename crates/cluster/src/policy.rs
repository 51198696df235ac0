//! The consistency policy of an array over nodes that is stopped, changed. Nothing is written here.
//!
//! The bitmap is that of any array: [`braid_array::policy`] plans it. Journals lie at the end of
//! volumes, behind the data, where `create` has left room. Their headers determine whether there
//! are any, and for which writes. So headers come last: until all have one the nodes record
//! nothing, and an array that was stopped cleanly needs no journals. After any part of the writes
//! the array starts, with the old policy, the new one, or `bitmap` on the way from none to a
//! journal. The same change, planned again, is the rest of it.
//! same change, planned again, is the rest of it.

use braid_array::format::superblock::feature;
use braid_array::format::{DevRole, Superblock, Version};
use braid_array::policy::{self as local, PolicyChange, Write};
use braid_array::{Refusal, Role, SECTOR_BYTES};

use crate::assemble::{Candidate, SUPERBLOCK_SECTOR};
use crate::client::Voter;
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
    /// Journals of writes to parts of stripes; levels with parity.
    PartialParity,
    /// Journals of all writes.
    Journal,
}

impl Policy {
    /// Returns `None` without journals; otherwise whether they are for parts of stripes alone.
    const fn journals(self) -> Option<bool> {
        match self {
            Self::Resync | Self::Bitmap => None,
            Self::PartialParity => Some(true),
            Self::Journal => Some(false),
        }
    }
}

/// A volume of the array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Metadata that was found on it.
    pub candidate: Candidate,
    /// Bytes at the place of a journal's [headers](headers_byte): [`HEADERS_BYTES`].
    pub headers: Vec<u8>,
    /// Vote of its node on the array; `None` where there is no superblock to trust.
    pub voter: Option<Voter>,
}

/// Steps of a change of policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The array.
    pub array: [u8; 16],
    /// The epoch that every node has to grant before the first write, so that no earlier client
    /// goes on; none of them has granted it before.
    pub epoch: Epoch,
    /// The writes, in this order, each durable before the next. Empty where the policy is the same.
    pub writes: Vec<Write>,
}

impl Volume {
    /// Returns its journal's header, if it has a journal that nodes would use.
    fn header(&self, superblock: &Superblock) -> Option<Header> {
        let header = Header::newest(&superblock.set_uuid, &self.headers)?;
        (header.log_bytes <= self.room(superblock)?).then_some(header)
    }

    /// Returns the bytes between data and headers.
    fn room(&self, superblock: &Superblock) -> Option<u64> {
        let used = match superblock.size_sectors {
            0 => superblock.data_size,
            size => size,
        };
        let end = superblock.data_offset.checked_add(used)?.checked_mul(SECTOR_BYTES)?;
        headers_byte(self.candidate.bytes)?.checked_sub(end.checked_next_multiple_of(PAGE_BYTES)?)
    }
}

/// Plans the change for the array of these volumes, which must be all of its members, with a policy
/// or a change to it that was cut off. `utime`: the time, coded as in a superblock.
///
/// # Errors A [`Refusal`] when the array, as it is, cannot be given the policy.
pub fn plan(volumes: &[Volume], policy: Policy, utime: u64) -> Result<Plan, Refusal> {
    let lie: Vec<_> = volumes.iter().map(|volume| volume.candidate.as_it_lies()).collect();
    let superblocks =
        || volumes.iter().filter_map(|volume| volume.candidate.superblock.as_ref().ok());
    let newest = superblocks().max_by_key(|superblock| superblock.events);
    let beside = beside(volumes, newest, policy);
    let change = match PolicyChange::rest(&lie, beside)? {
        None => PolicyChange::plan(&lie, beside, utime)?,
        rest => rest,
    };
    let Some(newest) = newest else {
        return Err(Refusal::new("the members have no superblocks", "name the members"));
    };
    let family = Family::decode(newest.level, newest.layout, newest.raid_disks)?;
    if policy == Policy::PartialParity && !family.has_parities() {
        let reason = "policy ppl is for levels with parity";
        return Err(Refusal::new(reason, "use journal or bitmap"));
    }
    check_view(volumes, newest.raid_disks)?;
    let mut writes = change.map_or_else(Vec::new, |change| change.writes);
    writes.iter_mut().for_each(|write| restore_level(write, family));
    let granted = volumes.iter().filter_map(|volume| Some(volume.voter.as_ref()?.granted)).max();
    let epoch = granted.unwrap_or(Epoch::BEFORE_ANY).next();
    for (index, volume) in volumes.iter().enumerate() {
        let Ok(superblock) = &volume.candidate.superblock else { continue };
        for (sector, bytes) in headers(volume, superblock, policy, epoch)? {
            writes.push(Write { index, sector, bytes });
        }
    }
    Ok(Plan { array: newest.set_uuid, epoch, writes })
}

/// Returns the bitmap policy of the superblocks that goes with this policy.
fn beside(volumes: &[Volume], newest: Option<&Superblock>, policy: Policy) -> local::Policy {
    let has = |volume: &Volume| match &volume.candidate.superblock {
        Ok(superblock) if holds_role(superblock) => volume.header(superblock).is_some(),
        _ => true,
    };
    let marked = newest.is_some_and(|superblock| superblock.has(feature::BITMAP_OFFSET));
    let size_bytes = newest.map_or(0, |superblock| superblock.size_sectors * SECTOR_BYTES);
    match policy {
        Policy::Resync => local::Policy::Resync,
        // An array that was made with journals and without a bitmap is to have none.
        Policy::PartialParity | Policy::Journal if volumes.iter().all(has) && !marked => {
            local::Policy::Resync
        }
        _ => local::Policy::Bitmap { chunk_bytes: chunk_of_bitmap(size_bytes) },
    }
}

/// Refuses if the newest view lacks a member: a client went on without it. Superblocks need not
/// record that if the client died just then.
fn check_view(volumes: &[Volume], members: u32) -> Result<(), Refusal> {
    let views = volumes.iter().filter_map(|volume| volume.voter.as_ref()?.view.as_ref());
    let Some(newest) = views.max_by_key(|view| view.order()) else { return Ok(()) };
    match Role::all(members as u16).find(|role| !newest.has(*role)) {
        None => Ok(()),
        Some(role) => {
            let reason = format!("its nodes know that a client went on without member {role}");
            let next = "assemble it, wait until that has what it missed, and stop it";
            Err(Refusal::new(reason, next))
        }
    }
}

fn holds_role(superblock: &Superblock) -> bool {
    matches!(superblock.role(), DevRole::Active(_))
}

/// Restores the array's code in a superblock, where [`Candidate::as_it_lies`] has another for it.
fn restore_level(write: &mut Write, family: Family) {
    if write.sector != SUPERBLOCK_SECTOR {
        return;
    }
    let superblock = Superblock::decode(Version::V1_2, SUPERBLOCK_SECTOR, &write.bytes);
    let superblock = superblock.expect("the superblock of a change");
    let (level, layout) = family.encode();
    write.bytes = Superblock { level, layout, ..superblock }.blocks(4096);
}

/// Returns the writes at the end of a volume, by sector.
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
