//! Sectors that cannot be read are rewritten from the rest of their stripe or another copy, and
//! read again: only then are they called corrected. What is known not to be readable is kept in
//! mind, so that nobody else is let go who makes up for it.

use super::Array;
use super::job::{Job, Kind, Unit};
use super::members::State;
use super::requests::BLOCK_SECTORS;
use super::scratch::UNIT_SECTORS;
use crate::action::IoError;
use crate::events::{ArrayEvent, Fault};
use crate::format::BadBlocks;
use crate::{Instant, IoOp, MemberId, RequestError, SECTOR_BYTES};

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

/// A member that could not read a part of what a job asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unread {
    pub(crate) member: MemberId,
    pub(crate) fault: Fault,
}

impl Array {
    /// A planned read failed on the medium.
    pub(crate) fn note_unreadable(&mut self, id: MemberId, op: IoOp) {
        if let (Some(member), IoOp::Read { sector, buf }) = (self.members.get_mut(id), op) {
            member.doubts.add(sector, u64::from(buf.len) / SECTOR_BYTES);
        }
    }

    /// Members whose medium failed under this job get the unit rewritten.
    pub(crate) fn start_mending(&mut self, job: &Job, start: u64, end: u64) {
        if self.read_only || self.stopping.is_some() || !self.is_redundant() {
            return;
        }
        if self.has_parity() && !self.in_step(start, end) {
            // Where parity may not fit, it does not tell what a strip held.
            return;
        }
        let unit = Unit { start, sectors: (end - start) as u32 };
        for Unread { member: id, fault } in job.unread.iter().copied() {
            let known = |(other, held): &(MemberId, Unit)| {
                *other == id && held.start < end && start < held.end()
            };
            // Who asked for the same meanwhile did not find another error.
            if self.mending.iter().any(known) || !self.worth_mending(id, fault) {
                continue;
            }
            let mut mend = Job::new(Kind::Mend { unit, target: id, fault }, false);
            mend.avoid.push(id);
            self.mending.push((id, unit));
            self.start_job(mend);
        }
    }

    /// Counts an error of a member that holds a role; one with too many is made faulty.
    fn worth_mending(&mut self, id: MemberId, fault: Fault) -> bool {
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

    /// What a mended unit is read again with: the strips it was written from.
    pub(crate) fn rereads(&self, job: &Job) -> Vec<(MemberId, IoOp)> {
        if !matches!(job.kind, Kind::Mend { .. }) {
            return Vec::new();
        }
        let written = job.plan.writes.iter().filter(|io| self.members.live(io.member));
        let reread = |io: &crate::plan::MemberIo| match io.op {
            IoOp::Write { sector, buf, .. } => Some((io.member, IoOp::Read { sector, buf })),
            _ => None,
        };
        written.filter_map(reread).collect()
    }

    /// What was rewritten cannot be read all the same.
    pub(crate) fn not_correctable(&mut self, id: MemberId, op: IoOp, error: IoError) {
        let fault = Fault { sector: op.sector(), errno: error.errno };
        self.distrust(id, "read error not correctable", fault);
    }

    /// A unit that could not be read was rewritten and read, or could not be.
    pub(crate) fn mended(
        &mut self,
        id: MemberId,
        unit: Unit,
        fault: Fault,
        result: Result<(), RequestError>,
    ) {
        self.mending.retain(|held| *held != (id, unit));
        if result.is_err() {
            self.notify(ArrayEvent::ReadFailed { member: id, fault });
        } else if self.members.live(id) {
            if let Some(member) = self.members.get_mut(id) {
                member.superblock.corrected_reads += 1;
            }
            self.notify(ArrayEvent::ReadCorrected { member: id, fault });
        }
    }

    /// Tells of what a job could not read, and nobody could make up for.
    pub(crate) fn tell_unread(&mut self, job: &Job) {
        for Unread { member, fault } in job.unread.iter().copied() {
            self.notify(ArrayEvent::ReadFailed { member, fault });
        }
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
