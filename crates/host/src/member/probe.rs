//! What md left on a device: superblock, bad-block log, bitmap.

use std::io;

use braid_array::SECTOR_BYTES;
use braid_array::format::{Superblock, SuperblockError, locations};

use super::MemberFile;

/// What was found on a device.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The superblock, or why there is none to trust.
    pub superblock: Result<Superblock, SuperblockError>,
}

/// Reads what md left on a device.
///
/// # Errors
/// When the device cannot be read.
pub fn probe(member: &MemberFile) -> io::Result<Probe> {
    Ok(Probe { superblock: superblock(member)? })
}

/// The superblock. Where there are several (an old one of another version was never wiped), the
/// one of the array created last, as mdadm chooses.
fn superblock(member: &MemberFile) -> io::Result<Result<Superblock, SuperblockError>> {
    let mut best: Result<Superblock, SuperblockError> = Err(SuperblockError::NoMagic);
    for (version, sector, len) in locations(member.sectors) {
        let bytes = member.read_at(sector * SECTOR_BYTES, len as usize)?;
        let found = Superblock::decode(version, sector, &bytes);
        let better = match (&best, &found) {
            (Ok(best), Ok(found)) => seconds(found) > seconds(best),
            (Err(_), Ok(_)) => true,
            (Err(SuperblockError::NoMagic), Err(_)) => true,
            _ => false,
        };
        if better {
            best = found;
        }
    }
    Ok(best)
}

fn seconds(superblock: &Superblock) -> u64 {
    braid_array::format::superblock::time_parts(superblock.ctime).0
}
