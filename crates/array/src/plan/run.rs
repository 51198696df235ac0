//! Plans under way, whoever carries out what is in them.

use std::ops::Range;

use super::{MemberIo, MemberPlace, Plan};
use crate::MemberId;
use crate::action::{Checked, Compute, IoOp, Outcome};

/// A plan that is being carried out, and how far that has come.
///
/// ```text
///  Reading ─► Computing ─► Writing ─► Rereading, where that is asked for
/// ```
/// A run knows no executor: [`advance`](Self::advance) says what to do next. Its caller does that,
/// tells each answer by [`answered`](Self::answered) or [`unreadable`](Self::unreadable), and asks
/// again.
#[derive(Debug, Default)]
pub struct Run {
    plan: Plan,
    stage: PlanStage,
    /// Reads that were begun with.
    begun: usize,
    /// I/O and computations that are not answered.
    pending: usize,
    checked: Vec<Checked>,
    unread: Vec<MemberPlace>,
}

/// The part of a plan that is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanStage {
    /// Reads of what is computed with.
    #[default]
    Reading,
    /// One computation after the other.
    Computing,
    /// Writes of what was computed.
    Writing,
    /// Reads of what was written.
    Rereading,
}

/// The next step of a plan.
#[derive(Debug, PartialEq, Eq)]
pub enum PlanNext {
    /// Nothing before something is answered.
    Wait,
    /// Issue these of its reads, side by side.
    Read(Range<usize>),
    /// Carry out this computation.
    Compute(Compute),
    /// Issue all its writes, side by side. Writes that are not needed count as answered.
    Write,
    /// The plan is done.
    Done,
    /// All that was begun is answered, and [`unread`](Run::unread) could not be read.
    Failed,
}

impl Run {
    /// Nothing of it has begun.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self { plan, ..Self::default() }
    }

    /// The plan; computations that have begun are taken out.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Gives the plan back.
    #[must_use]
    pub fn into_plan(self) -> Plan {
        self.plan
    }

    /// Returns the part of the plan that is under way.
    #[must_use]
    pub const fn stage(&self) -> PlanStage {
        self.stage
    }

    /// Returns the number of I/O and computations that are not answered.
    #[must_use]
    pub const fn pending(&self) -> usize {
        self.pending
    }

    /// Returns the findings of comparisons, in order.
    #[must_use]
    pub fn checked(&self) -> &[Checked] {
        &self.checked
    }

    /// Returns the places that could not be read.
    #[must_use]
    pub fn unread(&self) -> &[MemberPlace] {
        &self.unread
    }

    /// Goes on with another plan when one is done; what comparisons found stays known.
    pub fn then(&mut self, plan: Plan) {
        let checked = std::mem::take(&mut self.checked);
        *self = Self { plan, checked, ..Self::default() };
    }

    /// Takes in more that is read and computed: what is computed follows what is planned already.
    pub fn extend(&mut self, more: Plan) {
        self.plan.reads.extend(more.reads);
        self.plan.computes.extend(more.computes);
    }

    /// Computes this before all else that is planned.
    pub fn compute_first(&mut self, compute: Compute) {
        self.plan.computes.push_front(compute);
    }

    /// Returns whether the plan began with reads.
    #[must_use]
    pub const fn has_read(&self) -> bool {
        self.begun > 0
    }

    /// Counts one more I/O of this stage, which is to be answered.
    pub const fn one_more(&mut self) {
        self.pending += 1;
    }

    /// Returns what is to be done next.
    pub fn advance(&mut self) -> PlanNext {
        let reads = self.plan.reads.len();
        if self.begun < reads {
            self.stage = PlanStage::Reading;
            self.pending += reads - self.begun;
            return PlanNext::Read(std::mem::replace(&mut self.begun, reads)..reads);
        }
        if self.pending > 0 {
            return PlanNext::Wait;
        }
        if !self.unread.is_empty() {
            return PlanNext::Failed;
        }
        if matches!(self.stage, PlanStage::Writing | PlanStage::Rereading) {
            return PlanNext::Done;
        }
        self.stage = PlanStage::Computing;
        if let Some(compute) = self.plan.computes.pop_front() {
            self.pending = 1;
            return PlanNext::Compute(compute);
        }
        if self.plan.writes.is_empty() {
            return PlanNext::Done;
        }
        self.stage = PlanStage::Writing;
        self.pending = self.plan.writes.len();
        PlanNext::Write
    }

    /// Returns the reads, when the plan is done, of what was written to members that are `live`.
    /// These are then to be issued.
    pub fn reread(&mut self, live: impl Fn(MemberId) -> bool) -> Vec<MemberIo> {
        let reread = |io: &MemberIo| match io.op {
            IoOp::Write { sector, buf, .. } if live(io.member) => {
                Some(MemberIo { member: io.member, op: IoOp::Read { sector, buf } })
            }
            _ => None,
        };
        let reads: Vec<MemberIo> = self.plan.writes.iter().filter_map(reread).collect();
        self.stage = PlanStage::Rereading;
        self.pending = reads.len();
        reads
    }

    /// Something is done, or will not be and need not.
    pub fn answered(&mut self, outcome: Outcome) {
        self.pending -= 1;
        if let Outcome::Checked(checked) = outcome {
            self.checked.push(checked);
        }
    }

    /// A read failed.
    pub fn unreadable(&mut self, place: MemberPlace) {
        self.pending -= 1;
        self.unread.push(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buf;

    const BUF: Buf = Buf { offset: 0, len: 4096 };
    const PLACE: MemberPlace = MemberPlace { member: MemberId(0), sector: 8 };

    fn read(member: u16) -> MemberIo {
        MemberIo { member: MemberId(member), op: IoOp::Read { sector: 8, buf: BUF } }
    }

    fn compare() -> Compute {
        Compute::Compare { a: BUF, b: BUF }
    }

    fn plan(reads: u16, computes: usize, writes: u16) -> Plan {
        let op = IoOp::Write { sector: 16, buf: BUF, fua: false, fill: false };
        Plan {
            reads: (0..reads).map(read).collect(),
            computes: (0..computes).map(|_| compare()).collect(),
            writes: (0..writes).map(|member| MemberIo { member: MemberId(member), op }).collect(),
            sums: Vec::new(),
        }
    }

    #[test]
    fn each_stage_waits_for_the_one_before() {
        let mut run = Run::new(plan(2, 2, 2));
        assert_eq!(run.advance(), PlanNext::Read(0..2));
        run.answered(Outcome::Done);
        assert_eq!(run.advance(), PlanNext::Wait);
        run.answered(Outcome::Done);
        for differs in [0, 4] {
            assert_eq!(run.advance(), PlanNext::Compute(compare()));
            assert_eq!(run.advance(), PlanNext::Wait);
            run.answered(Outcome::Checked(Checked { p_differs: differs, ..Checked::default() }));
        }
        assert_eq!(run.checked().iter().map(|found| found.differs()).collect::<Vec<_>>(), [0, 4]);
        assert_eq!((run.advance(), run.pending()), (PlanNext::Write, 2));
        run.answered(Outcome::Done);
        run.answered(Outcome::Done);
        assert_eq!(run.advance(), PlanNext::Done);
        assert_eq!(run.reread(|member| member == MemberId(1)).len(), 1);
        assert_eq!(run.advance(), PlanNext::Wait);
        run.unreadable(PLACE);
        assert_eq!((run.advance(), run.unread()), (PlanNext::Failed, &[PLACE][..]));
    }

    #[test]
    fn nothing_is_computed_of_what_was_not_read() {
        let mut run = Run::new(plan(2, 1, 0));
        assert_eq!(run.advance(), PlanNext::Read(0..2));
        run.unreadable(PLACE);
        assert_eq!(run.advance(), PlanNext::Wait, "what is on its way lands in buffers");
        run.answered(Outcome::Done);
        assert_eq!(run.advance(), PlanNext::Failed);
    }

    #[test]
    fn what_is_added_is_read_at_once_and_computed_last() {
        let mut run = Run::new(plan(0, 2, 0));
        assert_eq!(run.advance(), PlanNext::Compute(compare()));
        run.extend(plan(1, 1, 0));
        assert_eq!(run.advance(), PlanNext::Read(0..1));
        run.answered(Outcome::Done);
        assert_eq!(run.advance(), PlanNext::Wait);
        run.answered(Outcome::Done);
        for _ in 0..2 {
            assert_eq!(run.advance(), PlanNext::Compute(compare()));
            run.answered(Outcome::Done);
        }
        assert_eq!(run.advance(), PlanNext::Done);
        run.then(plan(0, 0, 1));
        assert_eq!((run.advance(), run.stage()), (PlanNext::Write, PlanStage::Writing));
    }
}
