//! Sectors that cannot be read are rewritten from the rest of their stripe or another copy, and
//! read again: only then are they called corrected.

use super::Array;
use super::job::{Job, Kind};
use crate::action::{Action, IoError};
use crate::events::{ArrayEvent, Fault};
use crate::keeper::Unit;
use crate::{IoOp, MemberId, RequestError, SECTOR_BYTES};

/// A member that could not read a part of what a job asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unread {
    pub(crate) member: MemberId,
    pub(crate) fault: Fault,
}

impl Array {
    /// Members whose medium failed under this job get the unit rewritten.
    pub(crate) fn start_mending(&mut self, job: &Job, start: u64, end: u64) {
        if self.keeper.is_read_only() || self.keeper.is_stopping() || !self.is_redundant() {
            return;
        }
        if self.has_parity() && !self.keeper.in_step(start, end) {
            // Where parity may not fit, it does not tell what a strip held.
            return;
        }
        let unit = Unit { start, sectors: (end - start) as u32 };
        for Unread { member: id, fault } in job.unread.iter().copied() {
            let known = |(other, held): &(MemberId, Unit)| {
                *other == id && held.start < end && start < held.end()
            };
            // Who asked for the same meanwhile did not find another error.
            if self.mending.iter().any(known) || !self.is_worth_mending(id, fault) {
                continue;
            }
            let mut mend = Job::new(Kind::Mend { unit, target: id, fault }, false);
            mend.avoid.push(id);
            self.mending.push((id, unit));
            self.start_job(mend);
        }
    }

    /// What a mended unit is read again with: the strips it was written from.
    pub(crate) fn rereads(&self, job: &Job) -> Vec<(MemberId, IoOp)> {
        if !matches!(job.kind, Kind::Mend { .. }) {
            return Vec::new();
        }
        let written = job.plan.writes.iter().filter(|io| self.keeper.members().live(io.member));
        let reread = |io: &crate::plan::MemberIo| match io.op {
            IoOp::Write { sector, buf, .. } => Some((io.member, IoOp::Read { sector, buf })),
            _ => None,
        };
        written.filter_map(reread).collect()
    }

    fn is_worth_mending(&mut self, id: MemberId, fault: Fault) -> bool {
        let worth = self.keeper.worth_mending(id, fault);
        self.carry_out();
        worth
    }

    /// A planned read failed on the medium.
    pub(crate) fn note_unreadable(&mut self, id: MemberId, op: IoOp) {
        if let IoOp::Read { sector, buf } = op {
            self.keeper.note_unreadable(id, sector, u64::from(buf.len) / SECTOR_BYTES);
        }
    }

    /// What was rewritten cannot be read all the same.
    pub(crate) fn not_correctable(&mut self, id: MemberId, op: IoOp, error: IoError) {
        self.keeper.not_correctable(id, Fault { sector: op.sector(), errno: error.errno });
        self.carry_out();
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
        self.keeper.mended(id, fault, result.is_ok());
        self.carry_out();
    }

    /// Tells of what a job could not read, and nobody could make up for.
    pub(crate) fn tell_unread(&mut self, job: &Job) {
        for Unread { member, fault } in job.unread.iter().copied() {
            self.actions.push_back(Action::Notify(ArrayEvent::ReadFailed { member, fault }));
        }
    }
}
