//! Doubts about a member: what it could not read. No other member that makes up for it is failed
//! then; a member with too many read errors is failed itself.

use super::{BLOCK_SECTORS, UNIT_SECTORS};
use crate::Instant;
use crate::format::BadBlocks;

/// More errors of late than this, and a member is no longer worth its rewriting (md's
/// `max_read_errors`).
const MAX_READ_ERRORS: u32 = 20;
const HOUR_NANOS: u64 = 3_600_000_000_000;
const TOGETHER_NANOS: u64 = 1_000_000_000;

/// Reasons not to read from a member.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doubts {
    /// Errors of late: halved for each hour without one, as md does.
    errors: u32,
    last_error: Instant,
    last_sector: u64,
    /// Sectors that could not be read, and have not been written since.
    pub(super) unreadable: BadBlocks,
    /// More than can be told one by one.
    pub(super) everywhere: bool,
}

impl Doubts {
    pub(crate) fn any(&self) -> bool {
        self.everywhere || !self.unreadable.is_empty()
    }

    /// Counts an error. Returns whether the member has had more of them than it is worth rewriting
    /// for.
    pub(super) fn too_many(&mut self, now: Instant, sector: u64) -> bool {
        self.count(now, sector) > MAX_READ_ERRORS
    }

    /// The member is not to be relied on, wherever it is read.
    pub(super) const fn doubt_everywhere(&mut self) {
        self.everywhere = true;
    }

    /// Counts one more error. Returns how many there have been of late. Blocks side by side in a
    /// unit that fail together count once.
    fn count(&mut self, now: Instant, sector: u64) -> u32 {
        let unit = |sector: u64| sector / u64::from(UNIT_SECTORS);
        let nanos = now.0 - self.last_error.0;
        let beside = sector.abs_diff(self.last_sector) <= BLOCK_SECTORS
            && unit(sector) == unit(self.last_sector);
        self.last_sector = sector;
        if self.errors > 0 && beside && nanos < TOGETHER_NANOS {
            return self.errors;
        }
        let hours = nanos / HOUR_NANOS;
        let left = u32::try_from(hours).ok().and_then(|hours| self.errors.checked_shr(hours));
        self.errors = left.unwrap_or(0) + 1;
        self.last_error = now;
        self.errors
    }

    pub(super) fn add(&mut self, sector: u64, sectors: u64) {
        self.everywhere |= !self.unreadable.insert(sector, sectors);
    }

    /// Takes note that these sectors were read, or written.
    pub(crate) fn remove(&mut self, sector: u64, sectors: u64) {
        if self.unreadable.overlaps(sector, sectors) {
            self.everywhere |= !self.unreadable.remove(sector, sectors);
        }
    }
}
