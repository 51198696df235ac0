//! What md left on a device: superblock, bad-block log, bitmap.

use braid_array::SECTOR_BYTES;
use braid_array::assemble::Candidate;

use super::MemberFile;
use crate::system::describe;

/// Reads what md left on a device. What cannot be read is an error in the answer.
#[must_use]
pub fn probe(member: &MemberFile) -> Candidate {
    let device = member.path.display().to_string();
    Candidate::read(device, member.sectors, reader(member))
}

/// The same, with what the log on the device tells, if it holds one. That is for who starts the
/// array: all of a journal is read.
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
