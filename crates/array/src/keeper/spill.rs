//! The device beside the members that a move in place saves to, in the form of mdadm's backup files.

use super::core::Core;
use crate::MemberId;
use crate::format::backup::{BackupHeader, HEADER_SECTORS};
use crate::format::superblock::time_parts;
use crate::status::SpillStatus;

/// The device. It is no member, and has no superblock; its number is none of theirs.
#[derive(Clone, Debug)]
pub(super) struct Spill {
    pub(super) member: MemberId,
    pub(super) device: String,
    sectors: u64,
    /// Nothing is saved to it any more.
    pub(super) is_over: bool,
}

impl Spill {
    pub(super) const fn new(member: MemberId, device: String, sectors: u64) -> Self {
        Self { member, device, sectors, is_over: false }
    }

    /// The sectors of the array that it has room for.
    pub(super) const fn room(&self) -> u64 {
        self.sectors.saturating_sub(HEADER_SECTORS)
    }

    pub(super) fn status(&self) -> SpillStatus {
        let Self { member, device, sectors, is_over } = self;
        SpillStatus {
            member: *member,
            device: device.clone(),
            sectors: *sectors,
            is_over: *is_over,
        }
    }
}

impl Core {
    /// The header that tells of so many sectors of the array from this one on.
    pub(super) fn backup_header(&self, start: u64, length: u64) -> Vec<u8> {
        let (mtime, _) = time_parts(self.metadata.wall_clock(self.now));
        let set_uuid = self.metadata.superblock.set_uuid;
        BackupHeader { set_uuid, mtime, start, length }.encode()
    }
}
