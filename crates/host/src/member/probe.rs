//! What md left on a device: superblock, bad-block log, bitmap.

use braid_array::SECTOR_BYTES;
use braid_array::assemble::Candidate;

use super::MemberFile;
use crate::system::describe;

/// Reads what md left on a device. What cannot be read is an error in the answer.
#[must_use]
pub fn probe(member: &MemberFile) -> Candidate {
    let device = member.path.display().to_string();
    Candidate::read(device, member.sectors, |sector, len| {
        member
            .read_at(sector.saturating_mul(SECTOR_BYTES), len as usize)
            .map_err(|error| describe(&error))
    })
}
