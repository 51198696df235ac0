//! Reads of blocks whose node is gone, or cannot read them: the other nodes' blocks are read, and
//! the sums formed that give the lost ones back.
//!
//! ```text
//!  Waiting ─► Working ─► over        Working ⇄ Kept ─► over
//! ```
//! While a node is lost, all that is read of one range of a stripe is read once: a decoding takes
//! in what else is wanted of its range, and is kept until its buffers are needed or its range is
//! written.

use super::extent::{Extent, Piece, Spot, Want, Whom, Whose};
use super::{BTreeMap, BTreeSet, Buf, Cell, Client, IoPurpose, Key, RequestError, VecDeque};
use braid_array::code::{Recovery, Step, StripeCode};
use braid_array::keeper::{Redundancy, SyncSpace};

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
    pub(super) jobs: BTreeMap<u32, Decode>,
    /// What waits to begin.
    waiting: VecDeque<u32>,
    /// Those that take in what else is wanted of a range.
    pub(super) shared: BTreeMap<Spot, u32>,
    /// Those with nothing to do, the oldest first.
    pub(super) kept: VecDeque<u32>,
    next: u32,
}

impl Decode {
    /// Where it reads, while it does.
    pub(super) fn reads(&self) -> Option<&Extent> {
        (self.state == State::Working).then_some(&self.range)
    }

    /// Buffers it has.
    pub(super) fn buffers(&self) -> usize {
        self.blocks.len()
    }
}

impl Client {
    /// Wants blocks of a range while nodes are lost.
    pub(super) fn decode(&mut self, range: Extent, wanted: Vec<Want>) {
        let place = range.place();
        if let Some(&job) = self.decodes.shared.get(&place)
            && self.join(job, &wanted)
        {
            return;
        }
        let job = self.new_decode(range, wanted, true, BTreeSet::new());
        self.decodes.shared.insert(place, job);
    }

    /// Wants blocks of a range back that this node cannot read.
    pub(super) fn decode_without(&mut self, range: Extent, wanted: Vec<Want>, node: u16) {
        self.new_decode(range, wanted, false, BTreeSet::from([node]));
    }

    /// Wants lost blocks of a range that a slice-set changes. It goes first, as it holds buffers.
    pub(super) fn decode_for_set(&mut self, range: Extent, wanted: Vec<Want>) {
        let job = self.new_decode(range, wanted, false, BTreeSet::new());
        if let Some(decode) = self.decodes.jobs.get_mut(&job) {
            decode.for_set = true;
        }
        self.decodes.waiting.rotate_right(1);
    }

    /// What is kept of a range is not what is there any more.
    pub(super) fn forget_kept(&mut self, stripe: u64, offset: u32, len: u32) {
        let spots = self.decodes.shared.range((stripe, 0, 0)..(stripe + 1, 0, 0));
        let hit = |at: u32, other: u32| at < offset + len && offset < at + other;
        let old = spots.filter(|&(&(_, at, other), _)| hit(at, other)).map(|(_, &job)| job);
        let old: Vec<u32> = old.filter(|job| self.decodes.kept.contains(job)).collect();
        for job in old {
            self.decodes.kept.retain(|&kept| kept != job);
            self.forget(job);
        }
    }

    fn new_decode(
        &mut self,
        range: Extent,
        wanted: Vec<Want>,
        shared: bool,
        without: BTreeSet<u16>,
    ) -> u32 {
        let job = self.decodes.next;
        self.decodes.next = self.decodes.next.wrapping_add(1);
        let decode = Decode {
            range,
            shared,
            for_set: false,
            state: State::Waiting,
            without,
            wanted,
            blocks: BTreeMap::new(),
            reads: 0,
            failed: false,
            work: VecDeque::new(),
            busy: None,
        };
        self.decodes.jobs.insert(job, decode);
        self.decodes.waiting.push_back(job);
        job
    }

    /// Has a decoding do this, too; false when it cannot.
    fn join(&mut self, job: u32, wanted: &[Want]) -> bool {
        let Some(decode) = self.decodes.jobs.get_mut(&job) else { return false };
        match decode.state {
            State::Waiting => {
                decode.wanted.extend(wanted);
                true
            }
            State::Working => self.begin_with(job, wanted).is_ok(),
            State::Kept => {
                self.decodes.kept.retain(|&kept| kept != job);
                let begun = self.begin_with(job, wanted).is_ok();
                if begun {
                    self.decode_step(job);
                } else {
                    self.forget(job);
                }
                begun
            }
        }
    }

    pub(super) fn key_of(&self, range: &Extent) -> Key {
        (range.stripe, range.at / self.slice_bytes())
    }

    /// Begins with what waits, in order, as far as slices and buffers are free. Did any fail, so
    /// that others may have what it had?
    pub(super) fn start_decodes(&mut self) -> bool {
        let (mut later, mut any_failed) = (VecDeque::new(), false);
        while let Some(job) = self.decodes.waiting.pop_front() {
            let Some(decode) = self.decodes.jobs.get_mut(&job) else { continue };
            let wanted = std::mem::take(&mut decode.wanted);
            let begun = self.begin_with(job, &wanted);
            let Some(decode) = self.decodes.jobs.get_mut(&job) else { continue };
            match begun {
                Ok(()) => self.decode_step(job),
                Err(Unfit::Never) if decode.shared => self.dissolve(job, wanted),
                Err(Unfit::Never) => {
                    any_failed = true;
                    self.forget(job);
                    let error = if self.keeper.has_failed() {
                        RequestError::Failed
                    } else {
                        RequestError::Medium
                    };
                    wanted.iter().for_each(|want| self.want_over(want.whom, Err(error)));
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
        later.append(&mut self.decodes.waiting);
        self.decodes.waiting = later;
        any_failed
    }

    /// Has blocks read and formed that a decoding does not have yet, and handed to those who want
    /// them.
    fn begin_with(&mut self, job: u32, wanted: &[Want]) -> Result<(), Unfit> {
        let Some(decode) = self.decodes.jobs.get(&job) else { return Err(Unfit::Never) };
        let range = decode.range;
        let key = self.key_of(&range);
        if !decode.for_set && self.areas.get(&key).is_some_and(|area| area.sets > 0) {
            return Err(Unfit::Busy);
        }
        let planner = self.pipeline.planner(0);
        let plan = self.pipeline.plan(range.stripe, planner).ok_or(Unfit::Never)?;
        let cell = |want: &Want| plan.code.data()[want.index as usize];
        let mut lost: BTreeSet<u16> = self.lost().into_iter().collect();
        lost.extend(&decode.without);
        let there = |cell: &Cell| decode.blocks.contains_key(cell);
        let missing = wanted.iter().map(cell).filter(|cell| !there(cell));
        let (gone, mut reads): (BTreeSet<Cell>, BTreeSet<Cell>) =
            missing.partition(|cell| lost.contains(&cell.node));
        let (start, end) = self.space.range(key);
        let sums = self.space.redundancy() != Redundancy::Copies && !self.forced;
        if !gone.is_empty() && sums && !self.keeper.in_step(start, end) {
            // They may be of other content.
            return Err(Unfit::Never);
        }
        let known = |cell: &Cell| there(cell) || reads.contains(cell);
        let recovery = self.recovery(&plan.code, &lost, &gone, &known).ok_or(Unfit::Never)?;
        let more: Vec<Cell> = recovery.reads().into_iter().filter(|cell| !there(cell)).collect();
        reads.extend(more);
        let formed = recovery.steps().iter().map(|step| step.cell);
        let new: Vec<Cell> = reads.iter().copied().chain(formed).collect();
        let staged = self.stage(new.len(), range.len).ok_or(Unfit::NoRoom)?;
        let Some(decode) = self.decodes.jobs.get_mut(&job) else { return Err(Unfit::Never) };
        decode.blocks.extend(new.into_iter().zip(staged));
        decode.reads += reads.len() as u32;
        decode.work.extend(recovery.steps().iter().cloned().map(Work::Form));
        decode.work.extend(wanted.iter().map(|want| Work::Answer(cell(want), *want)));
        let begins = decode.state != State::Working;
        decode.state = State::Working;
        let into: Vec<(Cell, Buf)> =
            reads.iter().map(|&cell| (cell, decode.blocks[&cell])).collect();
        for (cell, into) in into {
            self.queue(Piece { cell, extent: range, into, whose: Whose::Decode(job) });
        }
        if begins {
            self.areas.entry(key).or_default().readers += 1;
        }
        Ok(())
    }

    /// Buffers; what is kept goes for them, the oldest first.
    pub(super) fn stage(&mut self, count: usize, len: u32) -> Option<Vec<Buf>> {
        loop {
            if let Some(bufs) = self.staging.take(count, len) {
                return Some(bufs);
            }
            let oldest = self.decodes.kept.pop_front()?;
            self.forget(oldest);
        }
    }

    /// How to get these blocks back. With a choice of sums, those for which least has to be read
    /// beyond what is known, from the nodes that have less to do.
    fn recovery(
        &self,
        code: &StripeCode,
        lost: &BTreeSet<u16>,
        gone: &BTreeSet<Cell>,
        known: &impl Fn(&Cell) -> bool,
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
                let load = |cell: &Cell| self.links[usize::from(cell.node)].load();
                (new.len(), new.iter().map(load).sum::<usize>())
            };
            let number = code.involved(cell).iter().copied().min_by_key(work)?;
            let new = new(number);
            read.extend(new);
            sums.push((cell, number));
        }
        Some(Recovery::by_equations(code, &sums))
    }

    pub(super) fn decode_read_done(&mut self, job: u32, ok: bool) {
        let Some(decode) = self.decodes.jobs.get_mut(&job) else { return };
        decode.reads -= 1;
        decode.failed |= !ok;
        self.decode_step(job);
    }

    /// A node could not read a block for a decoding.
    pub(super) fn decode_read_failed(&mut self, job: u32, node: u16) {
        if let Some(decode) = self.decodes.jobs.get_mut(&job) {
            decode.without.insert(node);
        }
        self.decode_read_done(job, false);
    }

    /// Does the next thing; after the last, the decoding is over.
    fn decode_step(&mut self, job: u32) {
        let Some(decode) = self.decodes.jobs.get_mut(&job) else { return };
        if decode.reads > 0 || decode.busy.is_some() {
            return;
        }
        if decode.failed {
            return self.decode_again(job);
        }
        decode.busy = decode.work.pop_front();
        let (inputs, coefs, output) = match &decode.busy {
            Some(Work::Form(Step { cell, inputs })) => {
                let bufs = inputs.iter().map(|term| decode.blocks[&term.cell]).collect();
                (bufs, inputs.iter().map(|term| term.coef).collect(), decode.blocks[cell])
            }
            Some(Work::Answer(cell, want)) => (vec![decode.blocks[cell]], vec![1], want.into),
            None => return self.decode_over(job),
        };
        self.sum(IoPurpose::Decode { job }, inputs, coefs, output);
    }

    pub(super) fn decode_step_done(&mut self, job: u32) {
        let Some(decode) = self.decodes.jobs.get_mut(&job) else { return };
        if let Some(Work::Answer(_, want)) = decode.busy.take() {
            self.want_over(want.whom, Ok(()));
        }
        self.decode_step(job);
    }

    /// From the beginning, without one more node; each request on its own, as the others may do
    /// without what could not be read.
    fn decode_again(&mut self, job: u32) {
        let Some(decode) = self.decodes.jobs.get_mut(&job) else { return };
        let answer = |work| match work {
            Work::Answer(_, want) => Some(want),
            Work::Form(_) => None,
        };
        let wanted: Vec<Want> = decode.work.drain(..).filter_map(answer).collect();
        let (range, shared) = (decode.range, decode.shared);
        if shared {
            self.dissolve(job, wanted);
        } else {
            (decode.state, decode.wanted, decode.failed) = (State::Waiting, wanted, false);
            let blocks = std::mem::take(&mut decode.blocks);
            self.staging.give(blocks.into_values());
            self.decodes.waiting.push_back(job);
        }
        self.reader_gone(&range);
    }

    /// Every request goes on with a decoding of its own.
    fn dissolve(&mut self, job: u32, wanted: Vec<Want>) {
        let Some(Decode { range, .. }) = self.forget(job) else { return };
        let mut each: BTreeMap<Whom, Vec<Want>> = BTreeMap::new();
        for want in wanted {
            each.entry(want.whom).or_default().push(want);
        }
        for wanted in each.into_values() {
            self.new_decode(range, wanted, false, BTreeSet::new());
        }
    }

    fn decode_over(&mut self, job: u32) {
        let Some(Decode { range, shared, .. }) = self.decodes.jobs.get(&job) else { return };
        let (range, keeps) = (*range, *shared);
        match self.decodes.jobs.get_mut(&job).filter(|_| keeps) {
            Some(decode) => {
                decode.state = State::Kept;
                self.decodes.kept.push_back(job);
            }
            None => drop(self.forget(job)),
        }
        self.reader_gone(&range);
    }

    fn want_over(&mut self, whom: Whom, result: Result<(), RequestError>) {
        match whom {
            Whom::Request(id) => self.piece_over(id, result),
            Whom::Set(position) => self.fetched(position, result),
        }
    }

    pub(super) fn forget(&mut self, job: u32) -> Option<Decode> {
        let mut decode = self.decodes.jobs.remove(&job)?;
        self.staging.give(std::mem::take(&mut decode.blocks).into_values());
        let place = decode.range.place();
        if self.decodes.shared.get(&place) == Some(&job) {
            self.decodes.shared.remove(&place);
        }
        Some(decode)
    }

    pub(super) fn reader_gone(&mut self, range: &Extent) {
        let key = self.key_of(range);
        if let Some(area) = self.areas.get_mut(&key) {
            area.readers -= 1;
        }
        self.list(key);
    }
}
