//! Common parts of the commands that write to members of stopped arrays.

use std::time::{SystemTime, UNIX_EPOCH};

use braid_array::SECTOR_BYTES;
use braid_array::format::superblock::time_code;
use braid_host::member::MemberFile;

use crate::failure::{Failure, system_error};

/// The time, as superblocks have it.
pub(super) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    time_code(now.as_secs(), now.subsec_micros())
}

/// Rewrites the existing bytes at all places to be written (sector and length).
pub(super) fn prove_writable(
    operation: &str,
    device: &MemberFile,
    mut places: impl Iterator<Item = (u64, usize)>,
) -> Result<(), Failure> {
    let rewrite = |(sector, bytes): (u64, usize)| {
        let offset = sector * SECTOR_BYTES;
        device.write_at(offset, &device.read_at(offset, bytes)?)
    };
    places.try_for_each(rewrite).and_then(|()| device.sync()).map_err(|error| {
        let reason = format!("cannot be written to: {}", system_error(&error));
        let next = "use another device; nothing was changed on any";
        Failure::refused(operation, device.path.display(), reason, next)
    })
}
