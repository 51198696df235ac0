//! Reading of md's metadata on a device: superblock, bad-block log, bitmap.

use braid_array::SECTOR_BYTES;
use braid_array::assemble::Candidate;

use super::MemberFile;
use crate::system::describe;

/// Reads md's metadata on a device. Unreadable parts are errors in the answer.
#[must_use]
pub fn probe(member: &MemberFile) -> Candidate {
    let device = member.path.display().to_string();
    Candidate::read(device, member.sectors, reader(member))
}

/// Does the same, with the content of the log on the device, if it holds one. All of a journal is
/// read, so this is meant for starting the array.
#[must_use]
pub fn probe_with_log(member: &MemberFile) -> Candidate {
    probe(member).with_log(reader(member))
}

/// Reads sectors of a member.
fn reader(member: &MemberFile) -> impl FnMut(u64, u32) -> Result<Vec<u8>, String> + '_ {
    |sector, len| {
        member
            .read_at(sector.saturating_mul(SECTOR_BYTES), len as usize)
            .map_err(|error| describe(&error))
    }
}
