//! What members could not read is kept in mind, so that nobody else is let go who makes up for it;
//! a member that cannot read too often goes itself.

use super::members::State;
use super::{BLOCK_SECTORS, Keeper, UNIT_SECTORS};
use crate::events::{ArrayEvent, Fault};
use crate::format::BadBlocks;
use crate::{Instant, MemberId};

/// More errors of late than this, and a member is no longer worth its rewriting (md's
/// `max_read_errors`).
const MAX_READ_ERRORS: u32 = 20;
const HOUR_NANOS: u64 = 3_600_000_000_000;
const TOGETHER_NANOS: u64 = 1_000_000_000;

/// What stands against reading from a member.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doubts {
    /// Errors of late: halved for each hour without one, as md does.
    errors: u32,
    last_error: Instant,
    last_sector: u64,
    /// Could not be read, and has not been written since.
    unreadable: BadBlocks,
    /// More than can be told one by one.
    everywhere: bool,
}

impl Doubts {
    pub(crate) fn any(&self) -> bool {
        self.everywhere || !self.unreadable.is_empty()
    }

    /// One more; how many there have been of late. Blocks side by side
    /// in a unit that fail together count once.
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

    fn add(&mut self, sector: u64, sectors: u64) {
        self.everywhere |= !self.unreadable.insert(sector, sectors);
    }

    /// These sectors were read, or written.
    pub(crate) fn remove(&mut self, sector: u64, sectors: u64) {
        if self.unreadable.overlaps(sector, sectors) {
            self.everywhere |= !self.unreadable.remove(sector, sectors);
        }
    }
}

impl Keeper {
    /// A member that lives could not read these sectors.
    pub fn note_unreadable(&mut self, id: MemberId, sector: u64, sectors: u64) {
        if let Some(member) = self.members.get_mut(id) {
            member.doubts.add(sector, sectors);
        }
    }

    /// Counts an error of a member that holds a role; one with too many is made faulty.
    pub fn worth_mending(&mut self, id: MemberId, fault: Fault) -> bool {
        let now = self.now;
        let Some(member) = self.members.get_mut(id) else { return false };
        if !member.state.is_live() || member.state.role().is_none() {
            return false;
        }
        if member.doubts.count(now, fault.sector.unwrap_or(0)) > MAX_READ_ERRORS {
            self.distrust(id, "too many read errors", fault);
        }
        self.members.live(id)
    }

    /// A member does not read what it was given: it goes, unless data would go with it.
    fn distrust(&mut self, id: MemberId, reason: &'static str, fault: Fault) {
        if !self.needs(id) && self.made_up_for(id).is_none() {
            self.fail_member(id, reason, fault);
        } else if let Some(member) = self.members.get_mut(id) {
            member.doubts.everywhere = true;
        }
    }

    /// What was rewritten cannot be read all the same.
    pub fn not_correctable(&mut self, id: MemberId, fault: Fault) {
        self.distrust(id, "read error not correctable", fault);
    }

    /// What a member could not read was rewritten and read, or could not be.
    pub fn mended(&mut self, id: MemberId, fault: Fault, ok: bool) {
        if !ok {
            self.notify(ArrayEvent::ReadFailed { member: id, fault });
        } else if self.members.live(id) {
            if let Some(member) = self.members.get_mut(id) {
                member.superblock.corrected_reads += 1;
            }
            self.notify(ArrayEvent::ReadCorrected { member: id, fault });
        }
    }

    /// What lies there was written anew: it is no longer bad.
    pub fn note_rewritten(&mut self, id: MemberId, sector: u64, sectors: u64) {
        let Some(member) = self.members.get_mut(id) else { return };
        member.doubts.remove(sector, sectors);
        if member.state.is_live()
            && member.bad_blocks.overlaps(sector, sectors)
            && member.bad_blocks.remove(sector, sectors)
        {
            self.wish_bad_blocks(id);
        }
    }

    /// Is anything on any member known or thought to be unreadable?
    #[must_use]
    pub fn doubts_any(&self) -> bool {
        self.members.iter().any(|(_, m)| !m.bad_blocks.is_empty() || m.doubts.any())
    }

    /// A member with sectors known not to be readable, which could not be made up for without
    /// this one.
    pub(crate) fn made_up_for(&self, id: MemberId) -> Option<MemberId> {
        let State::InSync { role } = self.members.get(id)?.state else { return None };
        let others = || self.members.iter_live().filter(|(other, _)| *other != id);
        others()
            .find(|(other, member)| {
                let State::InSync { role: doubtful } = member.state else { return false };
                let ranges =
                    || member.bad_blocks.ranges().iter().chain(member.doubts.unreadable.ranges());
                let survives = |start: u64, sectors: u64| {
                    let mut lost = vec![role, doubtful];
                    let row = start.saturating_sub(member.superblock.data_offset);
                    for (_, third) in others().filter(|(third, _)| third != other) {
                        let at = third.absolute(row);
                        let bad = third.bad_blocks.overlaps(at, sectors)
                            || third.doubts.unreadable.overlaps(at, sectors);
                        lost.extend(third.state.role().filter(|_| bad));
                    }
                    self.enough_without(&lost)
                };
                member.doubts.everywhere && !self.enough_without(&[role, doubtful])
                    || ranges().any(|(start, sectors)| !survives(*start, *sectors))
            })
            .map(|(other, _)| other)
    }
}
