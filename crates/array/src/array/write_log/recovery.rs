//! Brings in place what the log tells, when an array starts, before it serves anything.
//!
//! ```text
//!  InPlace ──────────► Flushing ─────► Renewing ────────► Over
//!  parity made anew,   all members     the log tells of
//!  pages written                       nothing any more
//! ```
//! The log stays as it is until all that it tells is durable: after a crash on the way, all of it
//! is done again. A read-only array writes nothing; what would be written is
//! [laid over](super::overlay) what members hold.

use slab::Slab;
use smallvec::smallvec;

use super::super::io::{Owner, RecoveryIo};
use super::super::lane::Lane;
use super::overlay::{Overlay, Patch};
use crate::action::{Action, Compute, Inputs, Outcome};
use crate::assemble::StartLog;
use crate::format::journal::BLOCK_SECTORS;
use crate::keeper::{LaneReport, UNIT_SECTORS};
use crate::log::journal::JournalPage;
use crate::log::ppl::PplFix;
use crate::plan::{MemberIo, Plan, PlanNext, Rows, Run, ScratchStrips};
use crate::{Buf, IoOp, MemberId, Role};

/// Steps under way at most.
const MOST_STEPS: usize = 8;

/// A piece of work.
#[derive(Debug)]
enum RecoveryWork {
    /// Parity of some rows.
    Fix(PplFix),
    /// Pages that lie behind one another, in the journal and on a member.
    Copy { journal: MemberId, sector: u64, role: Role, row: u64, sectors: u32 },
}

/// A piece of work under way.
#[derive(Debug)]
struct RecoveryStep {
    run: Run,
    strips: ScratchStrips,
    /// Where a read-only array is to find what is not written.
    patch: Option<(MemberId, u64, Buf)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecoveryStage {
    InPlace,
    Flushing(usize),
    Done,
}

/// The work that is left and what is under way. [`advance`](Self::advance) takes it further,
/// [`answered`](Self::answered) takes in answers, until it [is done](Self::is_done).
#[derive(Debug)]
pub(in super::super) struct LogRecovery {
    stage: RecoveryStage,
    /// The next one is last.
    work: Vec<RecoveryWork>,
    steps: Slab<RecoveryStep>,
    /// All parity fits when this is done, and nothing has failed.
    closes: bool,
    /// Set when data that the journal has recorded cannot be read.
    pub(in super::super) broken: bool,
}

impl LogRecovery {
    /// Lists the work that this log asks for.
    pub(in super::super) fn new(log: &StartLog, lane: &Lane) -> Self {
        let (work, closes) = match log {
            StartLog::None | StartLog::JournalOff { .. } => (Vec::new(), false),
            StartLog::PartialParity { fixes, closed, .. } => {
                (fixes.iter().cloned().map(RecoveryWork::Fix).collect(), *closed)
            }
            StartLog::Journal { member, scan } => {
                let start = lane.keeper().members().get(*member);
                let start = start.map_or(0, |member| member.absolute(0));
                (copies(&scan.pages, *member, start), false)
            }
        };
        let work = if crate::broken("replay-before-serving") { Vec::new() } else { work };
        Self { stage: RecoveryStage::InPlace, work, steps: Slab::new(), closes, broken: false }
    }

    pub(in super::super) fn is_done(&self) -> bool {
        self.stage == RecoveryStage::Done
    }

    /// Scratch of the steps under way.
    pub(in super::super) fn held_bytes(&self) -> u64 {
        let strips = self.steps.iter().flat_map(|(_, step)| &step.strips);
        strips.map(|strip| u64::from(strip.len)).sum()
    }

    /// Begins what can be begun.
    pub(in super::super) fn advance(&mut self, lane: &mut Lane, overlay: &mut Overlay) {
        while self.stage == RecoveryStage::InPlace && self.steps.len() < MOST_STEPS {
            let Some(work) = self.work.last() else { break };
            let strips = match work {
                RecoveryWork::Fix(fix) => fix.data.len() + 1,
                RecoveryWork::Copy { .. } => 1,
            };
            let Some(strips) = lane.pool.take(strips) else { break };
            let Some(work) = self.work.pop() else { break };
            self.begin(lane, overlay, work, strips);
        }
        if self.stage == RecoveryStage::InPlace && self.work.is_empty() && self.steps.is_empty() {
            self.flush(lane);
        }
    }

    fn begin(
        &mut self,
        lane: &mut Lane,
        overlay: &mut Overlay,
        work: RecoveryWork,
        strips: ScratchStrips,
    ) {
        let read_only = lane.keeper().is_read_only();
        let planned = match work {
            RecoveryWork::Fix(fix) => plan_fix(lane, &fix, &strips),
            RecoveryWork::Copy { journal, sector, role, row, sectors } if read_only => {
                let view = lane.keeper().members().view(role, row, sectors.into(), &[]);
                if let Some(place) = view.writers[0] {
                    let patch = Patch::Journal { member: journal, sector };
                    overlay.add(place, sectors, patch);
                }
                None
            }
            RecoveryWork::Copy { journal, sector, role, row, sectors } => {
                plan_copy(lane, journal, sector, role, row, sectors, strips[0])
            }
        };
        let Some(mut plan) = planned else { return lane.pool.give(strips.into_iter()) };
        let mut patch = None;
        if read_only {
            patch = plan.writes.first().and_then(|io| match io.op {
                IoOp::Write { sector, buf, .. } => Some((io.member, sector, buf)),
                _ => None,
            });
            plan.writes.clear();
        }
        let step = self.steps.insert(RecoveryStep { run: Run::new(plan), strips, patch });
        self.go_on(lane, step);
    }

    /// An answer for a step; `outcome`: `None` when it failed, `op`: what failed or did not.
    pub(in super::super) fn answered(
        &mut self,
        lane: &mut Lane,
        io: RecoveryIo,
        op: Option<IoOp>,
        outcome: Option<Outcome>,
    ) {
        match (io, &mut self.stage) {
            (RecoveryIo::Step(step), _) => {
                if outcome.is_none() && matches!(op, Some(IoOp::Read { .. })) {
                    // Parity is not made anew, or something that was acknowledged is lost.
                    self.closes = false;
                    self.broken = true;
                }
                self.steps[step].run.answered(outcome.unwrap_or(Outcome::Done));
                self.go_on(lane, step);
            }
            (RecoveryIo::Flush, RecoveryStage::Flushing(left)) => {
                *left -= 1;
                if *left == 0 {
                    self.finish(lane);
                }
            }
            _ => {}
        }
    }

    /// The bytes of a step that a read-only array has asked for.
    pub(in super::super) fn loaded(
        &mut self,
        lane: &mut Lane,
        overlay: &mut Overlay,
        step: usize,
        bytes: Vec<u8>,
    ) {
        let step = self.steps.remove(step);
        if let Some((member, sector, _)) = step.patch {
            overlay.add_bytes(member, sector, bytes);
        }
        lane.pool.give(step.strips.into_iter());
    }

    fn go_on(&mut self, lane: &mut Lane, index: usize) {
        loop {
            let step = &mut self.steps[index];
            match step.run.advance() {
                PlanNext::Wait => return,
                PlanNext::Read(which) => {
                    for MemberIo { member, op } in step.run.plan().reads[which].iter().copied() {
                        lane.issue(member, op, Owner::Recovery(RecoveryIo::Step(index)));
                    }
                }
                // The memory of a read that was given up may still be written.
                PlanNext::Compute(_) if self.broken => step.run.answered(Outcome::Done),
                PlanNext::Compute(compute) => {
                    lane.issue_compute(compute, Owner::Recovery(RecoveryIo::Step(index)));
                }
                PlanNext::Write => {
                    for MemberIo { member, op } in step.run.plan().writes.clone() {
                        if self.broken || !lane.keeper().members().live(member) {
                            step.run.answered(Outcome::Done);
                        } else {
                            lane.issue(member, op, Owner::Recovery(RecoveryIo::Step(index)));
                        }
                    }
                }
                PlanNext::Done | PlanNext::Failed => return self.end_step(lane, index),
            }
        }
    }

    fn end_step(&mut self, lane: &mut Lane, index: usize) {
        if let Some((_, _, buf)) = self.steps[index].patch {
            let io = lane.ios.insert(Owner::Recovery(RecoveryIo::Step(index)), None);
            lane.actions.push_back(Action::Load { io, buf });
            return;
        }
        let step = self.steps.remove(index);
        lane.pool.give(step.strips.into_iter());
    }

    fn flush(&mut self, lane: &mut Lane) {
        if lane.keeper().is_read_only() || crate::broken("replay-durable") {
            return self.finish(lane);
        }
        let members: Vec<MemberId> = lane.keeper().members().holders().collect();
        self.stage = RecoveryStage::Flushing(members.len());
        for member in members {
            lane.issue(member, IoOp::Flush, Owner::Recovery(RecoveryIo::Flush));
        }
    }

    /// All that the log tells is in place and durable.
    fn finish(&mut self, lane: &mut Lane) {
        self.stage = RecoveryStage::Done;
        if self.closes {
            lane.report(LaneReport::NothingToResync);
        }
    }
}

/// Parity from partial parity and the strips that changed, as they are now. `None` where no member
/// holds it.
fn plan_fix(lane: &mut Lane, fix: &PplFix, strips: &[Buf]) -> Option<Plan> {
    let rows = Rows::new(0, fix.sectors);
    let members = lane.keeper().members();
    let view = |role| members.view(role, fix.row, fix.sectors.into(), &[]);
    let parity = view(fix.parity);
    parity.writers[0]?;
    let mut plan = Plan::default();
    let mut inputs = Inputs::new();
    for (role, strip) in fix.data.iter().zip(&strips[1..]) {
        plan.read(view(*role).reader?, rows, *strip);
        inputs.push(rows.of(*strip));
    }
    // The sum is made where the partial parity is.
    let output = rows.of(strips[0]);
    let coefs = smallvec![1; inputs.len()];
    let outputs = smallvec![output];
    let accumulate = !fix.partial_parity.is_empty();
    plan.computes.push_back(Compute::Sum { inputs, coefs, outputs, accumulate });
    plan.write(&parity, rows, output, false);
    if accumulate {
        let bytes = fix.partial_parity.clone();
        lane.actions.push_back(Action::Store { buf: output, bytes });
    }
    Some(plan)
}

/// Pages of the journal to where they belong. `None` where no member holds that.
fn plan_copy(
    lane: &Lane,
    journal: MemberId,
    sector: u64,
    role: Role,
    row: u64,
    sectors: u32,
    strip: Buf,
) -> Option<Plan> {
    let rows = Rows::new(0, sectors);
    let view = lane.keeper().members().view(role, row, sectors.into(), &[]);
    view.writers[0]?;
    let mut plan = Plan::default();
    let from = crate::plan::MemberPlace { member: journal, sector };
    plan.read(from, rows, strip);
    plan.write(&view, rows, rows.of(strip), false);
    Some(plan)
}

/// Pages that lie behind one another are copied together. `start`: of the journal on its device.
fn copies(pages: &[JournalPage], journal: MemberId, start: u64) -> Vec<RecoveryWork> {
    let mut pages = pages.to_vec();
    pages.sort_unstable_by_key(|page| (page.role, page.row));
    let mut copies: Vec<RecoveryWork> = Vec::new();
    for JournalPage { role, row, position } in pages {
        let from = start + position;
        if let Some(RecoveryWork::Copy { sector, role: last, row: first, sectors, .. }) =
            copies.last_mut()
        {
            let behind = u64::from(*sectors);
            let fits = *last == role && *first + behind == row && *sector + behind == from;
            if fits && *sectors < UNIT_SECTORS {
                *sectors += BLOCK_SECTORS as u32;
                continue;
            }
        }
        let sectors = BLOCK_SECTORS as u32;
        copies.push(RecoveryWork::Copy { journal, sector: from, role, row, sectors });
    }
    copies
}
