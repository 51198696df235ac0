//! Reads of blocks whose node is gone, or cannot read them: the other nodes' blocks are read, and
//! the lost ones are restored by sums.
//!
//! ```text
//!  Waiting ─► Working ─► over        Working ⇄ Kept ─► over
//! ```
//! While a node is lost, each range of a stripe is read once: a decoding accepts further wants for
//! its range, and is kept until its buffers are needed or its range is written.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use braid_array::code::Cell;
use braid_array::plan::{Fetch, Held, PlanNext, Run, Unrecoverable};
use braid_array::{Buf, Compute, MemberId, Outcome, RequestError, Role};

use super::context::{Cx, Note, Shared};
use super::extent::{Extent, Range, WantedBlock, Whom, Whose};
use super::stripe;
use crate::client::out::IoPurpose;
use crate::ids::StripeNo;

/// Blocks of one range of a stripe, read and formed.
#[derive(Debug)]
pub(super) struct Decode {
    range: Extent,
    /// Accepts further wants for the range.
    shared: bool,
    /// For a slice-set, which has the range to itself.
    for_set: bool,
    state: DecodeState,
    /// Nodes that could not read their block.
    without: BTreeSet<Role>,
    /// Blocks that are not handed out yet.
    wanted: Vec<WantedBlock>,
    /// The block that is being handed out.
    answering: Option<WantedBlock>,
    held: Held,
    run: Run,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecodeState {
    /// For the slice to be free, and for buffers.
    Waiting,
    Working,
    /// Idle for now; its buffers are kept.
    Kept,
}

/// Reason why a decoding does not begin.
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
    /// Decodings that wait to begin.
    waiting: VecDeque<u32>,
    /// Decodings that accept more wants for their range.
    shared: BTreeMap<Range, u32>,
    /// Idle decodings, the oldest first.
    kept: VecDeque<u32>,
    next: u32,
}

impl Decode {
    fn new(range: Extent, wanted: Vec<WantedBlock>) -> Self {
        Self {
            range,
            shared: false,
            for_set: false,
            state: DecodeState::Waiting,
            without: BTreeSet::new(),
            wanted,
            answering: None,
            held: Held::new(),
            run: Run::default(),
        }
    }

    /// Removes and returns the want that this computation fulfils.
    fn answered_by(&mut self, compute: &Compute) -> Option<WantedBlock> {
        let Compute::Sum { outputs, .. } = compute else { return None };
        let at = self.wanted.iter().position(|want| outputs.contains(&want.into))?;
        Some(self.wanted.remove(at))
    }
}

impl Decodes {
    /// Queues the decoding of blocks of a range while nodes are lost.
    pub(super) fn decode(&mut self, cx: &mut Cx<'_>, range: Extent, wanted: Vec<WantedBlock>) {
        if let Some(&job) = self.shared.get(&range.range())
            && self.join(cx, job, &wanted)
        {
            return;
        }
        let job = self.add(Decode { shared: true, ..Decode::new(range, wanted) });
        self.shared.insert(range.range(), job);
    }

    /// Queues the decoding of blocks of a range that this node cannot read.
    pub(super) fn decode_without(&mut self, range: Extent, wanted: Vec<WantedBlock>, node: Role) {
        self.add(Decode { without: BTreeSet::from([node]), ..Decode::new(range, wanted) });
    }

    /// Queues the decoding of lost blocks that a slice-set changes, before others: the slice-set
    /// holds buffers.
    /// buffers.
    pub(super) fn decode_for_set(&mut self, range: Extent, wanted: Vec<WantedBlock>) {
        self.add(Decode { for_set: true, ..Decode::new(range, wanted) });
        self.waiting.rotate_right(1);
    }

    /// Forgets kept decodings of a range whose content has changed.
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

    /// Adds wants to a decoding; returns false when it cannot take them.
    fn join(&mut self, cx: &mut Cx<'_>, job: u32, wanted: &[WantedBlock]) -> bool {
        let Some(decode) = self.jobs.get_mut(&job) else { return false };
        let state = decode.state;
        if state == DecodeState::Waiting {
            decode.wanted.extend(wanted);
            return true;
        }
        self.kept.retain(|&kept| kept != job);
        let begun = self.begin_with(cx, job, wanted).is_ok();
        if begun {
            self.step(cx, job);
        } else if state == DecodeState::Kept {
            self.forget(cx.shared, job);
        }
        begun
    }

    /// Begins waiting decodings in order, as far as slices and buffers are free. Returns whether
    /// any failed: its buffers may then serve others.
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

    /// Begins to read and form the missing blocks of a decoding, and to hand them to their
    /// requesters.
    fn begin_with(
        &mut self,
        cx: &mut Cx<'_>,
        job: u32,
        wanted: &[WantedBlock],
    ) -> Result<(), Unfit> {
        let Some(decode) = self.jobs.get(&job) else { return Err(Unfit::Never) };
        let range = decode.range;
        let key = cx.shared.key_of(&range);
        if !decode.for_set && cx.shared.areas.is_written(key) {
            return Err(Unfit::Busy);
        }
        let view = stripe::view(cx, &range, &decode.without).ok_or(Unfit::Never)?;
        let strips = wanted.iter().map(|want| want.index as usize);
        let load = |member: MemberId| cx.shared.reads.load(stripe::node(member));
        let fetch = Fetch::new(&view, &decode.held, strips, load);
        let fetch = fetch.map_err(|Unrecoverable| Unfit::Never)?;
        let staged = self.stage(cx.shared, fetch.strips(), range.len).ok_or(Unfit::NoRoom)?;
        let Some(decode) = self.jobs.get_mut(&job) else { return Err(Unfit::Never) };
        let mut more = fetch.plan(&view, stripe::rows(range.len), &mut decode.held, staged);
        for want in wanted {
            more.copy(decode.held[&view.code.data()[want.index as usize]], want.into);
        }
        decode.run.extend(more);
        decode.wanted.extend(wanted);
        if decode.state != DecodeState::Working {
            decode.state = DecodeState::Working;
            cx.shared.areas.reader_begins(key);
        }
        Ok(())
    }

    /// Takes buffers. Kept decodings are dropped to free them, the oldest first.
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

    pub(super) fn read_done(&mut self, cx: &mut Cx<'_>, job: u32) {
        let Some(decode) = self.jobs.get_mut(&job) else { return };
        decode.run.answered(Outcome::Done);
        self.step(cx, job);
    }

    /// A node could not read a block for a decoding.
    pub(super) fn read_failed(&mut self, cx: &mut Cx<'_>, job: u32, cell: Cell) {
        let Some(decode) = self.jobs.get_mut(&job) else { return };
        decode.run.unreadable(stripe::place(cell));
        self.step(cx, job);
    }

    /// Executes the next steps of a decoding; after the last one the decoding ends.
    fn step(&mut self, cx: &mut Cx<'_>, job: u32) {
        loop {
            let Some(decode) = self.jobs.get_mut(&job) else { return };
            match decode.run.advance() {
                PlanNext::Wait => return,
                PlanNext::Read(which) => {
                    let reads = &decode.run.plan().reads[which];
                    stripe::read(&mut cx.shared.reads, reads, decode.range, Whose::Decode(job));
                }
                PlanNext::Compute(compute) => {
                    decode.answering = decode.answered_by(&compute);
                    cx.out.compute(IoPurpose::Decode { job }, compute);
                }
                PlanNext::Failed => return self.begin_again(cx, job),
                PlanNext::Write | PlanNext::Done => return self.end(cx, job),
            }
        }
    }

    pub(super) fn step_done(&mut self, cx: &mut Cx<'_>, job: u32) {
        let Some(decode) = self.jobs.get_mut(&job) else { return };
        decode.run.answered(Outcome::Done);
        if let Some(want) = decode.answering.take() {
            want_over(cx, want.whom, Ok(()));
        }
        self.step(cx, job);
    }

    /// Begins again, without the nodes that could not read. A shared decoding is split into one for
    /// each request, as other requests may not need the unreadable block.
    fn begin_again(&mut self, cx: &mut Cx<'_>, job: u32) {
        let Some(decode) = self.jobs.get_mut(&job) else { return };
        let range = decode.range;
        if decode.shared {
            let wanted = std::mem::take(&mut decode.wanted);
            self.dissolve(cx, job, wanted);
        } else {
            let run = std::mem::take(&mut decode.run);
            decode.without.extend(run.unread().iter().map(|place| stripe::node(place.member)));
            decode.state = DecodeState::Waiting;
            let held = std::mem::take(&mut decode.held);
            cx.shared.staging.give(held.into_values());
            self.waiting.push_back(job);
        }
        cx.reader_gone(&range);
    }

    /// Replaces a shared decoding by one for each request.
    fn dissolve(&mut self, cx: &mut Cx<'_>, job: u32, wanted: Vec<WantedBlock>) {
        let Some(Decode { range, .. }) = self.forget(cx.shared, job) else { return };
        let mut each: BTreeMap<Whom, Vec<WantedBlock>> = BTreeMap::new();
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
            decode.state = DecodeState::Kept;
            self.kept.push_back(job);
        } else {
            self.forget(cx.shared, job);
        }
        cx.reader_gone(&range);
    }

    fn forget(&mut self, shared: &mut Shared, job: u32) -> Option<Decode> {
        let mut decode = self.jobs.remove(&job)?;
        shared.staging.give(std::mem::take(&mut decode.held).into_values());
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

    /// Returns the number of kept decodings.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Returns the number of buffers that decodings hold.
    pub(super) fn buffers(&self) -> usize {
        self.jobs.values().map(|decode| decode.held.len()).sum()
    }

    /// The ranges that are being read.
    pub(super) fn ranges(&self) -> impl Iterator<Item = &Extent> {
        let working = self.jobs.values().filter(|decode| decode.state == DecodeState::Working);
        working.map(|decode| &decode.range)
    }
}

fn want_over(cx: &mut Cx<'_>, whom: Whom, result: Result<(), RequestError>) {
    match whom {
        Whom::Request(id) => cx.part_over(id, result),
        Whom::Set(position) => cx.note(Note::Fetched { position, result }),
    }
}
