//! Slice-sets on their way to a position: from what was gathered.
//!
//! ```text
//!  gathered ─► job ─► first in line: told to the keeper, buffers, a position ─► open
//! ```

use braid_array::code::StripeCode;

use super::gather::{Fragment, Patience, Stretch};
use super::work::Task;
use super::{
    Area, BTreeMap, BTreeSet, Buf, Client, Gather, Key, Planner, RequestError, WriteStrategy,
};
use crate::pipeline::PlacedSchedule;
use crate::pipeline::{brought_back, lost_blocks, way};
use crate::set::{Roles, Set, Touched};

/// A slice-set that waits for a position.
#[derive(Debug)]
pub(super) struct PendingSet {
    pub(super) key: Key,
    /// The client makes the parities; undecided until the job is first in line.
    by_client: Option<bool>,
    pub(super) range: Stretch,
    /// It changes no data: the superblocks say already what it is for.
    pub(super) background: bool,
    /// Otherwise they say that data may change once this is told.
    pub(super) ticket: Option<u64>,
    /// Roles that get their blocks from the others, one slice-set for each.
    pub(super) restores: Roles,
    /// How often it was dropped.
    pub(super) tries: u32,
}

impl PendingSet {
    /// The keeper knows of it.
    pub(super) fn is_announced(&self) -> bool {
        !self.background && self.ticket.is_some()
    }
}

impl Client {
    /// Adds a write to what is gathered for its slice.
    pub(super) fn gather(&mut self, stripe: u64, fragment: Fragment, patience: Patience) {
        let key = (stripe, fragment.at / self.slice_bytes());
        let area = self.areas.entry(key).or_default();
        match area.gathers.back_mut() {
            Some(last) if !last.overlaps(&fragment) => last.add(fragment, patience),
            _ => {
                let mut gather = Gather::new(patience);
                gather.add(fragment, patience);
                area.gathers.push_back(gather);
            }
        }
        self.list(key);
    }

    /// Puts an area on the list of those to look at.
    pub(super) fn list(&mut self, key: Key) {
        if let Some(area) = self.areas.get_mut(&key)
            && !area.listed
        {
            area.listed = true;
            self.listed.push_back(key);
        }
    }

    /// Turns what was gathered into jobs, where it is complete or has waited long enough.
    pub(super) fn start_gathers(&mut self) {
        let hurry = self.keeper.is_stopping();
        if self.listed.is_empty() {
            return;
        }
        // Nothing is gained by sending more than the link or the positions take.
        let lost = self.lost().into_iter().collect();
        let saturated = self.unsent > 0 || !self.has_position(0, lost);
        for _ in 0..self.listed.len() {
            let Some(key) = self.listed.pop_front() else { break };
            let whole = u64::from(self.pipeline.data_blocks()) * u64::from(self.slice_len(key.1));
            let (alone, now) = (self.all_answered(), self.keeper.now());
            let Some(area) = self.areas.get_mut(&key) else { continue };
            area.listed = false;
            let Some(first) = area.gathers.front() else {
                self.tidy(key);
                continue;
            };
            if area.sets > 0 || area.readers > 0 {
                // Listed again when they are over.
                continue;
            }
            let complete = first.bytes() == whole || area.gathers.len() > 1;
            let patience = match first.patience {
                patience if alone => patience.alone,
                patience if saturated => patience.full,
                patience => patience.busy,
            };
            let waited = patience <= now && !self.is_next(key);
            let area = self.areas.get_mut(&key).expect("it was there");
            if (complete || waited || hurry)
                && let Some(gather) = area.gathers.pop_front()
            {
                self.start(key, &gather);
            }
            self.list(key);
        }
    }

    /// Whether the stripe before it is being written as a whole: then the writer goes on in this
    /// one as soon as that is answered.
    fn is_next(&self, (stripe, slice): Key) -> bool {
        let before = stripe.checked_sub(1).and_then(|before| self.areas.get(&(before, slice)));
        before.is_some_and(|area| area.whole)
    }

    /// Forgets an area in which nothing goes on.
    fn tidy(&mut self, key: Key) {
        let over = |area: &Area| area.sets == 0 && area.readers == 0 && area.gathers.is_empty();
        if self.areas.get(&key).is_some_and(over) {
            self.areas.remove(&key);
        }
    }

    fn start(&mut self, key: Key, gather: &Gather) {
        let ranges = gather.cut(self.pipeline.data_blocks());
        for range in ranges {
            for &id in &range.requests {
                self.add_parts(id, 1);
            }
            let (by_client, background, ticket) = (None, false, None);
            let (restores, tries) = (Roles::NONE, 0);
            let job = PendingSet { key, by_client, range, background, ticket, restores, tries };
            self.add_job(job);
        }
        for id in gather.requests() {
            self.piece_over(id, Ok(()));
        }
    }

    fn add_job(&mut self, job: PendingSet) {
        if let Some(area) = self.areas.get_mut(&job.key) {
            area.sets += 1;
            area.whole = job.range.touched.is_all();
        }
        let short = job.range.len <= self.params().narrow.bytes && !job.range.touched.is_all();
        self.jobs[usize::from(short)].push_back(job);
    }

    /// A slice-set that makes the parities of a slice right, whatever they are now. Data blocks get
    /// the content of these buffers, which are whole slices. Or one that gives roles what they are
    /// to hold, for each of them.
    pub(super) fn add_background_job(
        &mut self,
        key: Key,
        contents: BTreeMap<u32, Buf>,
        restores: Roles,
    ) {
        self.areas.entry(key).or_default();
        let mut touched = Touched::none(self.pipeline.data_blocks());
        contents.keys().for_each(|&index| touched.insert(index));
        let range = Stretch {
            offset: key.1 * self.slice_bytes(),
            len: self.slice_len(key.1),
            touched,
            pieces: contents.into_iter().map(|(index, buf)| (index, vec![buf])).collect(),
            requests: BTreeSet::new(),
            fua: false,
            blank: false,
        };
        let (by_client, background, ticket, tries) = (Some(false), true, Some(0), 0);
        self.add_job(PendingSet { key, by_client, range, background, ticket, restores, tries });
    }

    /// The roles that have no part in a slice-set there: their nodes are lost, or do not hold what
    /// belongs there yet. Background work is there to give it to them.
    fn missing(&self, key: Key, background: bool) -> Roles {
        let (start, end) = self.space.range(key);
        let waiting = self.waiting_work.iter().filter(|task| task.is_at(start));
        let tasks: Vec<&Task> = waiting.chain(self.working.get(&key)).collect();
        let is_given = |role| tasks.iter().any(|task| task.rebuilds(self.member_id(role)));
        let has = |role| {
            self.keeper.is_in_sync(role)
                || background
                || !is_given(role) && self.keeper.is_rebuilt(role, start, end)
        };
        (0..self.params().nodes).filter(|&role| !self.alive(role) || !has(role)).collect()
    }

    /// The way to write a part of a stripe with the fewest reads and writes of members, and all
    /// blocks that are put then; background work makes the parities right, whatever they are, and
    /// gives nodes what they lack.
    fn way(
        &self,
        code: &StripeCode,
        touched: &Touched,
        missing: Roles,
        background: bool,
    ) -> (WriteStrategy, Touched) {
        if !background {
            return way(code, touched, missing);
        }
        let mut put = touched.clone();
        lost_blocks(code, self.lost().into_iter().collect()).for_each(|index| put.insert(index));
        (if put.is_all() { WriteStrategy::FullStripe } else { WriteStrategy::Reconstruct }, put)
    }

    /// Gives positions to jobs, first come first served among those of a kind. Both may need the
    /// same positions, so they take turns.
    pub(super) fn open_sets(&mut self) {
        let mut stuck = 0;
        while stuck < 2 {
            let kind = self.first_kind;
            self.first_kind = 1 - kind;
            stuck = if self.open_next(kind) { 0 } else { stuck + 1 };
        }
    }

    fn open_next(&mut self, kind: usize) -> bool {
        if self.writes_over() {
            let job = self.jobs[kind].pop_front();
            return job.map(|job| self.fail_job(job)).is_some();
        }
        !self.jobs[kind].is_empty() && self.may_write(kind) && self.open_first(kind)
    }

    /// Makes the first job as short as the positions are that it gets.
    fn cut_first(&mut self, kind: usize, most: u32) {
        let job = &mut self.jobs[kind][0];
        if job.range.len <= most {
            return;
        }
        let range = job.range.cut_off(most);
        let PendingSet { key, by_client, background, ticket, restores, tries, .. } = *job;
        if !background {
            // The keeper hears of both.
            job.ticket = None;
        }
        let front = PendingSet { key, by_client, range, background, ticket, restores, tries };
        for &id in &front.range.requests {
            self.add_parts(id, 1);
        }
        self.jobs[kind].push_front(front);
        if let Some(area) = self.areas.get_mut(&key) {
            area.sets += 1;
        }
        if let Some(task) = self.working.get_mut(&key).filter(|_| background) {
            task.sets += 1;
        }
    }

    /// Whether the first job may be opened; if not, it is seen to.
    fn may_write(&mut self, kind: usize) -> bool {
        if self.journals.hold_old_records() {
            return false;
        }
        let Some(job) = self.jobs[kind].front_mut() else { return false };
        let (start, end) = self.space.range(job.key);
        let ticket = *job.ticket.get_or_insert_with(|| self.keeper.begin_write(start, end));
        self.keeper.is_told(ticket)
    }

    /// Opens the first job, if there are a position and buffers for what it needs.
    fn open_first(&mut self, kind: usize) -> bool {
        let job = &self.jobs[kind][0];
        let missing = self.missing(job.key, job.background);
        let of = self.positions_for(kind, missing);
        if !self.has_position(of, missing) {
            self.share.is_short();
            return false;
        }
        self.cut_first(kind, self.longest(of));
        let job = &self.jobs[kind][0];
        if let Some(role) = job.restores.iter().next() {
            return self.open_restore(kind, of, role);
        }
        let (range, background) = (job.range.touched.clone(), job.background);
        let redundant = self.redundant();
        let job = &mut self.jobs[kind][0];
        let whole = job.range.touched.is_all();
        let blank = whole && job.range.blank;
        let by_client = *job
            .by_client
            .get_or_insert_with(|| whole && redundant && !blank && self.mix.client_makes_next());
        let (len, stripe) = (job.range.len, job.key.0);
        let scattered = job.range.pieces.values().filter(|pieces| pieces.len() > 1).count();
        let planner = self.pipeline.planner(0);
        let Some(plan) = self.pipeline.plan(stripe, planner) else { return false };
        let (strategy, touched) = match blank {
            true => (WriteStrategy::Zero, range.clone()),
            false => self.way(&plan.code, &range, missing, background),
        };
        let sums = if by_client { plan.code.equations().len() } else { 0 };
        let fetched = brought_back(&plan.code, (strategy, &touched), &range, missing).len();
        if fetched > 0 && !self.room_to_fetch(&plan.code, scattered + fetched) {
            return false;
        }
        let key = self.jobs[kind][0].key;
        let log = !whole || background || self.is_whole_recorded(key);
        if !self.may_open(log, len) {
            return false;
        }
        let Some(at) = self.position(of, &plan, &touched, missing, by_client) else {
            return false;
        };
        let Some(staged) = self.stage(scattered + sums + fetched, len) else { return false };
        let Some(job) = self.jobs[kind].pop_front() else { return false };
        let Some(position) = self.free[of].remove(at) else { return false };
        let encoder = self.pipeline.planner_without(position, missing);
        let planner = if by_client { Some(Planner::Client) } else { encoder };
        let Some(planner) = planner else { return false };
        self.version += 1;
        let set = Set {
            position,
            generation: self.generations[usize::from(position)],
            version: self.version,
            stripe,
            offset: job.range.offset,
            len,
            strategy,
            planner,
            fua: job.range.fua && !(log && self.journals.are_used()),
            touched,
            missing,
            log,
        };
        self.miss_home(&set, &plan);
        self.note_opened(&set);
        self.generations[usize::from(position)] = set.generation.wrapping_add(1);
        self.open_set(job, set, staged);
        true
    }

    /// Whether lost blocks of a stripe can be brought back while slice-sets hold buffers that wait
    /// for that: so that none waits for buffers that others hold for the same reason.
    fn room_to_fetch(&mut self, code: &StripeCode, own: usize) -> bool {
        let fetching = self.open.values().filter(|open| open.fetching > 0).count();
        let stripe = code.data().len() + code.equations().len();
        let needed = own + stripe * (fetching + 1);
        let Some(taken) = self.stage(needed, 512) else { return false };
        self.staging.give(taken);
        true
    }

    /// Which free position: the one whose encoder has least to send; otherwise the one that is free
    /// longest. Those whose encoder is missing rest, unless the client makes the parities.
    fn position(
        &self,
        kind: usize,
        plan: &PlacedSchedule,
        touched: &Touched,
        missing: Roles,
        by_client: bool,
    ) -> Option<usize> {
        let (nodes, usable) = (self.params().nodes, self.usable());
        let free = || {
            let free = self.free[kind].iter().enumerate();
            free.filter(|&(_, &p)| {
                let encoded = by_client || self.pipeline.planner_without(p, missing).is_some();
                encoded && usable(p)
            })
        };
        if !touched.is_all() && touched.count() > 0 {
            // What a node keeps for itself does not travel.
            let mut kept = vec![0u32; usize::from(nodes)];
            for index in touched.iter() {
                let cell = plan.code.data()[index as usize];
                kept[usize::from(cell.node)] += 1;
                let sums = plan.code.involved(cell).iter();
                let parities = sums.map(|&sum| plan.code.equations()[sum].parity.node);
                parities.for_each(|node| kept[usize::from(node)] += 1);
            }
            // The home of a lone block, else whoever keeps most.
            let lone = touched.count() == 1;
            let home = touched.iter().next().map(|i| plan.code.data()[i as usize].node);
            let worth = |position: u16| {
                let node = position % nodes;
                if lone { u32::from(Some(node) == home) } else { kept[usize::from(node)] }
            };
            let most = free().map(|(_, &p)| worth(p)).max()?;
            return free().find(|&(_, &p)| worth(p) == most).map(|(at, _)| at);
        }
        free().next().map(|(at, _)| at)
    }

    pub(super) fn fail_job(&mut self, job: PendingSet) {
        // Nothing of it was sent: the slice is as it was.
        if job.background {
            self.work_set_over(job.key, false);
        } else if job.ticket.is_some() {
            self.write_over(job.key, false);
        }
        self.area_free(job.key);
        for id in job.range.requests {
            self.piece_over(id, Err(RequestError::Failed));
        }
    }

    /// What the superblocks were told of is over.
    pub(super) fn write_over(&mut self, key: Key, failed: bool) {
        let (start, end) = self.space.range(key);
        self.keeper.end_write(start, end, failed);
    }

    pub(super) fn area_free(&mut self, key: Key) {
        let Some(area) = self.areas.get_mut(&key) else { return };
        area.sets -= 1;
        if area.sets > 0 {
            return;
        }
        self.list(key);
        self.follow(key);
    }

    /// A stripe is answered. Who hears that it is written as a whole has a moment to send more.
    pub(super) fn follow(&mut self, key: Key) {
        let whole = self.areas.get_mut(&key).is_some_and(|area| std::mem::take(&mut area.whole));
        let next = self.areas.get_mut(&(key.0 + 1, key.1)).filter(|_| whole);
        if let Some(gather) = next.and_then(|area| area.gathers.front_mut()) {
            gather.patience.extend(Patience::some(self.keeper.now()));
        }
    }
}
