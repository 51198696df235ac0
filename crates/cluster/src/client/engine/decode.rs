//! Reads of blocks whose node is gone, or cannot read them: the other nodes' blocks are read, and
//! the sums formed that give the lost ones back.
//!
//! ```text
//!  Waiting ─► Working ─► over        Working ⇄ Kept ─► over
//! ```
//! While a node is lost, all that is read of one range of a stripe is read once: a decoding takes
//! in what else is wanted of its range, and is kept until its buffers are needed or its range is
//! written.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use braid_array::code::{Cell, Recovery, Step, StripeCode};
use braid_array::keeper::{Redundancy, SyncSpace};
use braid_array::{Buf, RequestError};

use super::context::{Cx, Note, Shared};
use super::extent::{Extent, Piece, Range, Want, Whom, Whose};
use crate::client::out::IoPurpose;
use crate::ids::{Position, StripeNo};

/// Blocks of one range of a stripe, read and formed.
#[derive(Debug)]
pub(super) struct Decode {
    range: Extent,
    /// Takes in what others want of the range.
    shared: bool,
    /// For a slice-set, which has the range to itself.
    for_set: bool,
    state: State,
    /// Nodes that could not read their block.
    without: BTreeSet<u16>,
    /// What it has not begun with.
    wanted: Vec<Want>,
    /// What is where, or will be.
    blocks: BTreeMap<Cell, Buf>,
    /// Reads that are not answered.
    reads: u32,
    failed: bool,
    /// What is done when all reads are answered, in order.
    work: VecDeque<Work>,
    /// A part of it is being done.
    busy: Option<Work>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// For the slice to be free, and for buffers.
    Waiting,
    Working,
    /// It has no more to do, for now.
    Kept,
}

#[derive(Clone, Debug)]
enum Work {
    /// A block is formed.
    Form(Step),
    /// A request gets its block.
    Answer(Cell, Want),
}

/// Why a decoding does not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unfit {
    /// The slice is being written.
    Busy,
    /// There are no buffers.
    NoRoom,
    /// The blocks cannot be had.
    Never,
}

/// Decodings, by number.
#[derive(Debug, Default)]
pub(super) struct Decodes {
    jobs: BTreeMap<u32, Decode>,
    /// What waits to begin.
    waiting: VecDeque<u32>,
    /// Those that take in what else is wanted of a range.
    shared: BTreeMap<Range, u32>,
    /// Those with nothing to do, the oldest first.
    kept: VecDeque<u32>,
    next: u32,
}

impl Decode {
    fn new(range: Extent, wanted: Vec<Want>) -> Self {
        Self {
            range,
            shared: false,
            for_set: false,
            state: State::Waiting,
            without: BTreeSet::new(),
            wanted,
            blocks: BTreeMap::new(),
            reads: 0,
            failed: false,
            work: VecDeque::new(),
            busy: None,
        }
    }
}

impl Decodes {
    /// Wants blocks of a range while nodes are lost.
    pub(super) fn decode(&mut self, cx: &mut Cx<'_>, range: Extent, wanted: Vec<Want>) {
        if let Some(&job) = self.shared.get(&range.range())
            && self.join(cx, job, &wanted)
        {
            return;
        }
        let job = self.add(Decode { shared: true, ..Decode::new(range, wanted) });
        self.shared.insert(range.range(), job);
    }

    /// Wants blocks of a range back that this node cannot read.
    pub(super) fn decode_without(&mut self, range: Extent, wanted: Vec<Want>, node: u16) {
        self.add(Decode { without: BTreeSet::from([node]), ..Decode::new(range, wanted) });
    }

    /// Wants lost blocks of a range that a slice-set changes. It goes first, as it holds buffers.
    pub(super) fn decode_for_set(&mut self, range: Extent, wanted: Vec<Want>) {
        self.add(Decode { for_set: true, ..Decode::new(range, wanted) });
        self.waiting.rotate_right(1);
    }

    /// What is kept of a range is not what is there any more.
    pub(super) fn forget_kept(&mut self, cx: &mut Cx<'_>, stripe: StripeNo, offset: u32, len: u32) {
        let ranges = self.shared.range((stripe, 0, 0)..(stripe.next(), 0, 0));
        let hit = |at: u32, other: u32| at < offset + len && offset < at + other;
        let old = ranges.filter(|&(&(_, at, other), _)| hit(at, other)).map(|(_, &job)| job);
        let old: Vec<u32> = old.filter(|job| self.kept.contains(job)).collect();
        for job in old {
            self.kept.retain(|&kept| kept != job);
            self.forget(cx.shared, job);
        }
    }

    fn add(&mut self, decode: Decode) -> u32 {
        let job = self.next;
        self.next = self.next.wrapping_add(1);
        self.jobs.insert(job, decode);
        self.waiting.push_back(job);
        job
    }

    /// Has a decoding do this, too; false when it cannot.
    fn join(&mut self, cx: &mut Cx<'_>, job: u32, wanted: &[Want]) -> bool {
        let Some(decode) = self.jobs.get_mut(&job) else { return false };
        match decode.state {
            State::Waiting => {
                decode.wanted.extend(wanted);
                true
            }
            State::Working => self.begin_with(cx, job, wanted).is_ok(),
            State::Kept => {
                self.kept.retain(|&kept| kept != job);
                let begun = self.begin_with(cx, job, wanted).is_ok();
                if begun {
                    self.step(cx, job);
                } else {
                    self.forget(cx.shared, job);
                }
                begun
            }
        }
    }

    /// Begins with what waits, in order, as far as slices and buffers are free. Did any fail, so
    /// that others may have what it had?
    pub(super) fn start(&mut self, cx: &mut Cx<'_>) -> bool {
        let mut later = VecDeque::new();
        let mut any_failed = false;
        while let Some(job) = self.waiting.pop_front() {
            let Some(decode) = self.jobs.get_mut(&job) else { continue };
            let wanted = std::mem::take(&mut decode.wanted);
            let begun = self.begin_with(cx, job, &wanted);
            let Some(decode) = self.jobs.get_mut(&job) else { continue };
            match begun {
                Ok(()) => self.step(cx, job),
                Err(Unfit::Never) if decode.shared => self.dissolve(cx, job, wanted),
                Err(Unfit::Never) => {
                    any_failed = true;
                    self.forget(cx.shared, job);
                    let failed = cx.keeper.has_failed();
                    let error = if failed { RequestError::Failed } else { RequestError::Medium };
                    wanted.iter().for_each(|want| want_over(cx, want.whom, Err(error)));
                }
                Err(unfit) => {
                    decode.wanted = wanted;
                    later.push_back(job);
                    if unfit == Unfit::NoRoom {
                        break;
                    }
                }
            }
        }
        later.append(&mut self.waiting);
        self.waiting = later;
        any_failed
    }

    /// Has blocks read and formed that a decoding does not have yet, and handed to those who want
    /// them.
    fn begin_with(&mut self, cx: &mut Cx<'_>, job: u32, wanted: &[Want]) -> Result<(), Unfit> {
        let Some(decode) = self.jobs.get(&job) else { return Err(Unfit::Never) };
        let range = decode.range;
        let key = cx.shared.key_of(&range);
        if !decode.for_set && cx.shared.areas.is_written(key) {
            return Err(Unfit::Busy);
        }
        let planner = cx.shared.pipeline.planner(Position(0));
        let plan = cx.shared.pipeline.plan(range.stripe, planner).ok_or(Unfit::Never)?;
        let cell = |want: &Want| plan.code.data()[want.index as usize];
        let mut lost: BTreeSet<u16> = cx.lost().iter().collect();
        lost.extend(&decode.without);
        let there = |cell: &Cell| decode.blocks.contains_key(cell);
        let missing = wanted.iter().map(cell).filter(|cell| !there(cell));
        let (gone, mut reads): (BTreeSet<Cell>, BTreeSet<Cell>) =
            missing.partition(|cell| lost.contains(&cell.node));
        let (start, end) = cx.shared.space.range(key);
        let sums = cx.shared.space.redundancy() != Redundancy::Copies && !cx.shared.forced;
        if !gone.is_empty() && sums && !cx.keeper.in_step(start, end) {
            // They may be of other content.
            return Err(Unfit::Never);
        }
        let known = |cell: &Cell| there(cell) || reads.contains(cell);
        let load = |role| cx.shared.reads.load(role);
        let recovery = recovery(&plan.code, &lost, &gone, &known, load).ok_or(Unfit::Never)?;
        let more: Vec<Cell> = recovery.reads().into_iter().filter(|cell| !there(cell)).collect();
        reads.extend(more);
        let formed = recovery.steps().iter().map(|step| step.cell);
        let new: Vec<Cell> = reads.iter().copied().chain(formed).collect();
        let staged = self.stage(cx.shared, new.len(), range.len).ok_or(Unfit::NoRoom)?;
        let Some(decode) = self.jobs.get_mut(&job) else { return Err(Unfit::Never) };
        decode.blocks.extend(new.into_iter().zip(staged));
        decode.reads += reads.len() as u32;
        decode.work.extend(recovery.steps().iter().cloned().map(Work::Form));
        decode.work.extend(wanted.iter().map(|want| Work::Answer(cell(want), *want)));
        if decode.state != State::Working {
            decode.state = State::Working;
            cx.shared.areas.reader_begins(key);
        }
        for cell in reads {
            let into = decode.blocks[&cell];
            cx.shared.reads.queue(Piece { cell, extent: range, into, whose: Whose::Decode(job) });
        }
        Ok(())
    }

    /// Buffers; what is kept goes for them, the oldest first.
    pub(super) fn stage(
        &mut self,
        shared: &mut Shared,
        count: usize,
        len: u32,
    ) -> Option<Vec<Buf>> {
        loop {
            if let Some(bufs) = shared.staging.take(count, len) {
                return Some(bufs);
            }
            let oldest = self.kept.pop_front()?;
            self.forget(shared, oldest);
        }
    }

    pub(super) fn read_done(&mut self, cx: &mut Cx<'_>, job: u32, ok: bool) {
        let Some(decode) = self.jobs.get_mut(&job) else { return };
        decode.reads -= 1;
        decode.failed |= !ok;
        self.step(cx, job);
    }

    /// A node could not read a block for a decoding.
    pub(super) fn read_failed(&mut self, cx: &mut Cx<'_>, job: u32, node: u16) {
        if let Some(decode) = self.jobs.get_mut(&job) {
            decode.without.insert(node);
        }
        self.read_done(cx, job, false);
    }

    /// Does the next thing; after the last, the decoding is over.
    fn step(&mut self, cx: &mut Cx<'_>, job: u32) {
        let Some(decode) = self.jobs.get_mut(&job) else { return };
        if decode.reads > 0 || decode.busy.is_some() {
            return;
        }
        if decode.failed {
            return self.begin_again(cx, job);
        }
        decode.busy = decode.work.pop_front();
        let (inputs, coefs, output) = match &decode.busy {
            Some(Work::Form(Step { cell, inputs })) => {
                let bufs = inputs.iter().map(|term| decode.blocks[&term.cell]).collect();
                (bufs, inputs.iter().map(|term| term.coef).collect(), decode.blocks[cell])
            }
            Some(Work::Answer(cell, want)) => (vec![decode.blocks[cell]], vec![1], want.into),
            None => return self.end(cx, job),
        };
        cx.out.sum(IoPurpose::Decode { job }, inputs, coefs, output);
    }

    pub(super) fn step_done(&mut self, cx: &mut Cx<'_>, job: u32) {
        let Some(decode) = self.jobs.get_mut(&job) else { return };
        if let Some(Work::Answer(_, want)) = decode.busy.take() {
            want_over(cx, want.whom, Ok(()));
        }
        self.step(cx, job);
    }

    /// From the beginning, without one more node; each request on its own, as the others may do
    /// without what could not be read.
    fn begin_again(&mut self, cx: &mut Cx<'_>, job: u32) {
        let Some(decode) = self.jobs.get_mut(&job) else { return };
        let answer = |work| match work {
            Work::Answer(_, want) => Some(want),
            Work::Form(_) => None,
        };
        let wanted: Vec<Want> = decode.work.drain(..).filter_map(answer).collect();
        let range = decode.range;
        if decode.shared {
            self.dissolve(cx, job, wanted);
        } else {
            decode.state = State::Waiting;
            decode.wanted = wanted;
            decode.failed = false;
            let blocks = std::mem::take(&mut decode.blocks);
            cx.shared.staging.give(blocks.into_values());
            self.waiting.push_back(job);
        }
        cx.reader_gone(&range);
    }

    /// Every request goes on with a decoding of its own.
    fn dissolve(&mut self, cx: &mut Cx<'_>, job: u32, wanted: Vec<Want>) {
        let Some(Decode { range, .. }) = self.forget(cx.shared, job) else { return };
        let mut each: BTreeMap<Whom, Vec<Want>> = BTreeMap::new();
        for want in wanted {
            each.entry(want.whom).or_default().push(want);
        }
        for wanted in each.into_values() {
            self.add(Decode::new(range, wanted));
        }
    }

    fn end(&mut self, cx: &mut Cx<'_>, job: u32) {
        let Some(decode) = self.jobs.get_mut(&job) else { return };
        let range = decode.range;
        if decode.shared {
            decode.state = State::Kept;
            self.kept.push_back(job);
        } else {
            self.forget(cx.shared, job);
        }
        cx.reader_gone(&range);
    }

    fn forget(&mut self, shared: &mut Shared, job: u32) -> Option<Decode> {
        let mut decode = self.jobs.remove(&job)?;
        shared.staging.give(std::mem::take(&mut decode.blocks).into_values());
        let range = decode.range.range();
        if self.shared.get(&range) == Some(&job) {
            self.shared.remove(&range);
        }
        Some(decode)
    }

    /// Forgets all that are kept.
    #[cfg(test)]
    pub(super) fn forget_all_kept(&mut self, shared: &mut Shared) {
        while let Some(job) = self.kept.pop_front() {
            self.forget(shared, job);
        }
    }

    /// How many decodings are kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.kept.len()
    }

    /// How many buffers decodings hold.
    pub(super) fn buffers(&self) -> usize {
        self.jobs.values().map(|decode| decode.blocks.len()).sum()
    }

    /// The ranges that are being read.
    pub(super) fn ranges(&self) -> impl Iterator<Item = &Extent> {
        let working = self.jobs.values().filter(|decode| decode.state == State::Working);
        working.map(|decode| &decode.range)
    }
}

fn want_over(cx: &mut Cx<'_>, whom: Whom, result: Result<(), RequestError>) {
    match whom {
        Whom::Request(id) => cx.part_over(id, result),
        Whom::Set(position) => cx.note(Note::Fetched { position, result }),
    }
}

/// How to get these blocks back. With a choice of sums, those for which least has to be read beyond
/// what is known, from the nodes that have less to do.
fn recovery(
    code: &StripeCode,
    lost: &BTreeSet<u16>,
    gone: &BTreeSet<Cell>,
    known: &impl Fn(&Cell) -> bool,
    load: impl Fn(u16) -> usize,
) -> Option<Recovery> {
    if lost.len() > 1 && !gone.is_empty() {
        let lost: Vec<u16> = lost.iter().copied().collect();
        return Recovery::plan(code, &lost).map(|all| all.only(gone, known));
    }
    let mut read = BTreeSet::new();
    let mut sums = Vec::new();
    for &cell in gone {
        let new = |number: usize| {
            let others = code.equations()[number].cells().filter(move |&other| other != cell);
            others.filter(|other| !known(other) && !read.contains(other)).collect::<Vec<_>>()
        };
        let work = |&number: &usize| {
            let new = new(number);
            (new.len(), new.iter().map(|cell| load(cell.node)).sum::<usize>())
        };
        let number = code.involved(cell).iter().copied().min_by_key(work)?;
        let new = new(number);
        read.extend(new);
        sums.push((cell, number));
    }
    Some(Recovery::by_equations(code, &sums))
}
