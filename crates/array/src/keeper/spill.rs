//! The device beside the members that a move in place saves to.

use crate::MemberId;
use crate::format::backup::HEADER_SECTORS;
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

    /// The move is over, or did not begin.
    pub(super) const fn end(&mut self) {
        self.is_over = true;
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
