//! Slice-sets on their way from gathered writes to a position.
//!
//! ```text
//!  gathered ─► pending: told to the keeper ─► first in line: buffers, a position ─► open
//! ```

use std::collections::{BTreeSet, VecDeque};

use braid_array::keeper::{Done, LaneReport};
use braid_array::{Buf, RequestError, Role};

use super::context::{Cx, Note};
use super::extent::Extent;
use super::gather::{Gather, Stretch};
use super::journals::Journals;
use super::lease::RingsLease;
use super::opening::{Below, choose, open};
use super::pending::PendingSet;
use super::sets::{MAX_TRIES, NewSet, Sets};
use super::work::BackgroundWork;
use crate::client::Key;
use crate::ids::Position;
use crate::schedule::Planner;
use crate::set::{Roles, Set, Touched, WriteStrategy};

/// Slice-sets that wait for a position: whole slices, and short ranges. First come first served
/// among those of a kind.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pending: [VecDeque<PendingSet>; 2],
    /// The kind that is tried first.
    first_kind: usize,
    /// The number of the next write.
    next_write: u64,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.pending.iter().all(VecDeque::is_empty)
    }

    /// Returns whether a slice-set waits: a whole slice, or with `wide` false a short range.
    pub(super) fn waits(&self, wide: bool) -> bool {
        !self.pending[usize::from(!wide)].is_empty()
    }

    /// Turns gathered writes into slice-sets where they are complete or have waited long enough.
    pub(super) fn start_gathers(&mut self, cx: &mut Cx<'_>, sets: &Sets, lease: &RingsLease) {
        let hurry = cx.keeper.is_stopping();
        let listed = cx.shared.areas.listed().len();
        if listed == 0 {
            return;
        }
        // Nothing is gained by sending more than the link or the positions take.
        let lost = cx.lost();
        let lone_at = cx.shared.requests.lone_at();
        let saturated = sets.is_sending() || !lease.has_position(cx, sets.free(0), lost);
        for _ in 0..listed {
            let Some(key) = cx.shared.areas.next_listed() else { break };
            let blocks = u64::from(cx.shared.pipeline.data_blocks());
            let whole = blocks * u64::from(cx.shared.slice_len(key.slice));
            let alone = sets.all_answered() && self.is_empty();
            let now = cx.now();
            let Some(area) = cx.shared.areas.get(key) else { continue };
            let Some(first) = area.gathers.front() else {
                cx.shared.areas.tidy(key);
                continue;
            };
            if area.is_used() {
                // Listed again when they are over.
                continue;
            }
            let complete = first.bytes() == whole || area.gathers.len() > 1;
            let patience = match first.patience {
                patience if alone => patience.alone,
                patience if saturated => patience.full,
                patience => patience.busy,
            };
            let alone = lone_at.is_some_and(|at| at.max(first.patience.lone) <= now);
            let waited = alone || patience <= now && !cx.shared.areas.is_next(key);
            if (complete || waited || hurry)
                && let Some(gather) = cx.shared.areas.entry(key).gathers.pop_front()
            {
                self.start(cx, key, &gather);
            }
            cx.shared.areas.list(key);
        }
    }

    fn start(&mut self, cx: &mut Cx<'_>, key: Key, gather: &Gather) {
        for range in gather.cut(cx.shared.pipeline.data_blocks()) {
            range.requests.iter().for_each(|&id| cx.shared.requests.add_part(id));
            self.add(cx, PendingSet::new(key, range));
        }
        gather.requests().for_each(|id| cx.part_over(id, Ok(())));
    }

    fn add(&mut self, cx: &mut Cx<'_>, mut pending: PendingSet) {
        if !pending.background {
            pending.write = Some(self.begin_write(cx, pending.key));
        }
        let whole = pending.range.touched.is_all();
        if let Some(area) = cx.shared.areas.get_mut(pending.key) {
            area.sets += 1;
            area.whole = whole;
        }
        let short = pending.range.len <= cx.shared.params().narrow.bytes && !whole;
        self.pending[usize::from(short)].push_back(pending);
    }

    /// Tells the keeper of a write, which members then record; returns its number.
    fn begin_write(&mut self, cx: &mut Cx<'_>, key: Key) -> u64 {
        let (start, end) = cx.shared.space.range(key);
        let number = self.next_write;
        self.next_write += 1;
        cx.report(LaneReport::BeginWrite { number, start, end });
        number
    }

    /// Queues a slice-set that makes the parities of a part of a slice right, whatever they are
    /// now. Data blocks get the content of these buffers, which have the same length. With
    /// `restores`, queues the slice-sets that give each of these roles its content.
    pub(super) fn add_background(
        &mut self,
        cx: &mut Cx<'_>,
        part: Extent,
        contents: Vec<(u32, Buf)>,
        restores: Roles,
    ) {
        let key = cx.shared.key_of(&part);
        cx.shared.areas.entry(key);
        let mut touched = Touched::none(cx.shared.pipeline.data_blocks());
        contents.iter().for_each(|&(index, _)| touched.insert(index));
        let range = Stretch {
            offset: part.at,
            len: part.len,
            touched,
            pieces: contents.into_iter().map(|(index, buf)| (index, vec![buf])).collect(),
            requests: BTreeSet::new(),
            fua: false,
            blank: false,
        };
        let pending = PendingSet {
            by_client: Some(false),
            background: true,
            restores,
            ..PendingSet::new(key, range)
        };
        self.add(cx, pending);
    }

    /// Queues a slice-set again, first in line: after an abort, or with another role to restore.
    pub(super) fn again(&mut self, cx: &mut Cx<'_>, pending: PendingSet, wide: bool) {
        if cx.writes_over() || pending.tries > MAX_TRIES {
            return fail(cx, pending);
        }
        self.pending[usize::from(!wide)].push_front(pending);
    }

    /// Gives positions to slice-sets. Both kinds may need the same positions, so they take turns.
    pub(super) fn open_sets(&mut self, cx: &mut Cx<'_>, below: &mut Below<'_>) {
        let mut stuck = 0;
        while stuck < 2 {
            let kind = self.first_kind;
            self.first_kind = 1 - kind;
            stuck = if self.open_next(cx, below, kind) { 0 } else { stuck + 1 };
        }
    }

    fn open_next(&mut self, cx: &mut Cx<'_>, below: &mut Below<'_>, kind: usize) -> bool {
        if cx.writes_over() {
            let pending = self.pending[kind].pop_front();
            return pending.map(|pending| fail(cx, pending)).is_some();
        }
        self.may_write(cx, below.journals, kind) && self.open_first(cx, below, kind)
    }

    /// Returns whether the first slice-set may be opened now.
    fn may_write(&mut self, cx: &mut Cx<'_>, journals: &Journals, kind: usize) -> bool {
        if journals.hold_old_records() {
            return false;
        }
        let Some(pending) = self.pending[kind].front() else { return false };
        pending.write.is_none_or(|number| cx.keeper.may_start(number))
    }

    /// Cuts the first slice-set to this length.
    fn cut_first(&mut self, cx: &mut Cx<'_>, work: &mut BackgroundWork, kind: usize, most: u32) {
        let first = &mut self.pending[kind][0];
        if first.range.len <= most {
            return;
        }
        let mut front = first.cut_off(most);
        if !front.background {
            // The keeper hears of both, and they may start together.
            front.write = Some(self.begin_write(cx, front.key));
        }
        if !(cx.shared.requests.is_lone() && braid_array::broken("all-parts")) {
            front.range.requests.iter().for_each(|&id| cx.shared.requests.add_part(id));
        }
        if let Some(area) = cx.shared.areas.get_mut(front.key) {
            area.sets += 1;
        }
        if front.background {
            work.has_one_set_more(front.key);
        }
        self.pending[kind].push_front(front);
    }

    /// Cuts the first slice-set, where it writes a part of a stripe, so that each block of its
    /// range is known or unknown as a whole.
    fn cut_first_alike(&mut self, cx: &mut Cx<'_>, work: &mut BackgroundWork, kind: usize) {
        let first = &self.pending[kind][0];
        let by_others = !first.restores.is_empty();
        if by_others || first.range.touched.is_all() || !cx.keeper.has_bad_blocks() {
            return;
        }
        let part = first.extent();
        let planner = cx.shared.pipeline.planner(Position(0));
        let Some(plan) = cx.shared.pipeline.plan(part.stripe, planner) else { return };
        let alike = cx.alike(&part, &plan.code);
        self.cut_first(cx, work, kind, alike);
    }

    /// Opens the first slice-set, if there are a position and enough buffers.
    fn open_first(&mut self, cx: &mut Cx<'_>, below: &mut Below<'_>, kind: usize) -> bool {
        let first = &self.pending[kind][0];
        let missing = below.work.missing(cx, first.key, first.background);
        let of = below.lease.positions_for(cx, kind, missing);
        if !below.lease.has_position(cx, below.sets.free(of), missing) {
            below.lease.is_short();
            return false;
        }
        let longest = longest(cx, below.sets, first, of);
        self.cut_first(cx, below.work, kind, longest);
        self.cut_first_alike(cx, below.work, kind);
        if let Some(role) = self.pending[kind][0].restores.iter().next() {
            return self.open_restore(cx, below, (kind, of), role);
        }
        let Some(opening) = choose(cx, below, &mut self.pending[kind][0], (of, missing)) else {
            return false;
        };
        open(cx, below, self.take_first(kind), opening);
        true
    }

    fn take_first(&mut self, kind: usize) -> PendingSet {
        self.pending[kind].pop_front().expect("a slice-set that was looked at")
    }

    /// Opens the first slice-set, which gives this role its blocks, if there is a position. Returns
    /// false when it has to wait.
    fn open_restore(
        &mut self,
        cx: &mut Cx<'_>,
        below: &mut Below<'_>,
        (kind, of): (usize, usize),
        role: Role,
    ) -> bool {
        if !cx.members.alive(role) {
            // It is lost again: nothing of the slice is wrong.
            let pending = self.take_first(kind);
            cx.note(Note::TaskOver { key: pending.key, done: Done::Failed });
            let now = cx.now();
            cx.shared.areas.set_over(pending.key, now);
            return true;
        }
        let mut missing = cx.lost();
        missing.remove(role);
        let usable = below.lease.usable(cx);
        let Some(at) = below.sets.free(of).position(usable) else { return false };
        let (position, generation, number) = below.sets.use_position(of, at);
        let pending = self.take_first(kind);
        let set = Set {
            position,
            generation,
            number,
            stripe: pending.key.stripe,
            offset: pending.range.offset,
            len: pending.range.len,
            strategy: WriteStrategy::Restore(role),
            planner: Planner::Chain,
            fua: false,
            touched: Touched::none(cx.shared.pipeline.data_blocks()),
            missing,
            log: false,
            relay: false,
        };
        let new = NewSet {
            job: pending,
            set,
            staged: Vec::new(),
            fetched: Vec::new(),
            unknown: Vec::new(),
        };
        below.sets.open(cx, below.decodes, new);
        true
    }

    /// The slices of slice-sets that wait, and whether the keeper knows of them as writes.
    pub(super) fn keys(&self) -> impl Iterator<Item = (Key, bool)> {
        let all = self.pending.iter().flatten();
        all.map(|pending| (pending.key, pending.write.is_some()))
    }
}

/// Returns the greatest length of a slice-set at positions of a kind.
fn longest(cx: &Cx<'_>, sets: &Sets, pending: &PendingSet, of: usize) -> u32 {
    let params = cx.shared.params();
    match of {
        0 if !pending.background && cx.shared.requests.is_lone() => sets.part(params.wide.bytes),
        0 => params.wide.bytes,
        _ => params.narrow.bytes,
    }
}

/// Fails a slice-set of which nothing was sent: the slice is unchanged.
fn fail(cx: &mut Cx<'_>, pending: PendingSet) {
    let key = pending.key;
    if pending.background {
        cx.note(Note::WorkSetOver { key, ok: false });
    } else {
        let (start, end) = cx.shared.space.range(key);
        cx.report(LaneReport::EndWrite { start, end, failed: false });
    }
    let now = cx.now();
    cx.shared.areas.set_over(key, now);
    for id in pending.range.requests {
        cx.part_over(id, Err(RequestError::Failed));
    }
}
