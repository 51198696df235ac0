//! Slice-sets on their way: from what was gathered, through a position, to the answer.
//!
//! ```text
//!  gathered ─► job ─► open: pieces put together ─► parities formed, slices sent ─► closed by all
//! ```

use std::sync::Arc;

use braid_array::Refusal;
use braid_array::code::{Part, Way};

use super::gather::{Fragment, Patience, Stretch};
use super::{
    Action, Area, BTreeMap, BTreeSet, Buf, Cell, Client, FabricOp, Gather, Key, Message, Mode,
    Planner, RequestError, RequestId, Use,
};
use crate::pipeline::Course;
use crate::schedule::Endpoint;
use crate::set::{Imm, Roles, Set, Touched};

/// A slice-set that waits for a position.
#[derive(Debug)]
pub(super) struct PendingSet {
    pub(super) key: Key,
    mode: Mode,
    /// The client makes the parities; undecided until the job is first in line.
    by_client: Option<bool>,
    range: Stretch,
    /// It changes no data: the superblocks say already what it is for.
    background: bool,
    /// Otherwise they say that data may change once this is told.
    ticket: Option<u64>,
}

/// A slice-set that has a position.
#[derive(Debug)]
pub(super) struct OpenSet {
    pub(super) key: Key,
    set: Set,
    plan: Arc<Course>,
    requests: BTreeSet<RequestId>,
    /// The new content, by data index.
    sources: BTreeMap<u32, Buf>,
    /// Buffers to give back.
    pub(super) staged: Vec<Buf>,
    /// Copies and sums that have to be done before anything is sent of them.
    pub(super) computing: u32,
    /// Puts that are not answered.
    pub(super) puts: u32,
    /// Nodes that have not closed their part.
    pub(super) parts: BTreeSet<u16>,
    fine: bool,
    pub(super) background: bool,
}

impl PendingSet {
    /// The keeper knows of it.
    pub(super) fn is_announced(&self) -> bool {
        !self.background && self.ticket.is_some()
    }
}

impl OpenSet {
    /// Nothing of it is under way any more.
    pub(super) fn is_over(&self) -> bool {
        self.puts == 0 && self.computing == 0 && (self.parts.is_empty() || !self.fine)
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
        for _ in 0..self.listed.len() {
            let Some(key) = self.listed.pop_front() else { break };
            let whole = u64::from(self.pipeline.data_blocks()) * u64::from(self.slice_len(key.1));
            let (alone, now) = (self.no_sets(), self.keeper.now());
            // Nothing is gained by sending more than the link or the positions take.
            let saturated = self.unsent > 0 || self.free[0].is_empty();
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
            let Some(mode) = self.mode(key.0, &range.touched) else { continue };
            let (by_client, background, ticket) = (None, false, None);
            self.add_job(PendingSet { key, mode, by_client, range, background, ticket });
        }
        for id in gather.requests() {
            self.piece_over(id, Ok(()));
        }
    }

    fn add_job(&mut self, job: PendingSet) {
        if let Some(area) = self.areas.get_mut(&job.key) {
            area.sets += 1;
            area.whole = job.mode == Mode::Full && job.range.touched.is_all();
        }
        let short = job.range.len <= self.params().narrow.bytes && !job.range.touched.is_all();
        self.jobs[usize::from(short)].push_back(job);
    }

    /// A slice-set that makes the parities of a slice right, whatever they are now. Data blocks get
    /// the content of these buffers, which are whole slices.
    pub(super) fn add_background_job(&mut self, key: Key, contents: BTreeMap<u32, Buf>) {
        self.areas.entry(key).or_default();
        let mut touched = Touched::none(self.pipeline.data_blocks());
        contents.keys().for_each(|&index| touched.insert(index));
        let mode = if touched.is_all() { Mode::Full } else { Mode::Reconstruct };
        let range = Stretch {
            offset: key.1 * self.slice_bytes(),
            len: self.slice_len(key.1),
            touched,
            pieces: contents.into_iter().map(|(index, buf)| (index, vec![buf])).collect(),
            requests: BTreeSet::new(),
            fua: false,
        };
        let (by_client, background) = (Some(false), true);
        self.add_job(PendingSet { key, mode, by_client, range, background, ticket: Some(0) });
    }

    /// The way to write a part of a stripe with the fewest reads and writes of members.
    fn mode(&mut self, stripe: u64, touched: &Touched) -> Option<Mode> {
        let planner = self.pipeline.planner(0);
        let plan = self.pipeline.plan(stripe, planner)?;
        let part = Part {
            code: &plan.code,
            covered: &|index| touched.contains(index as u32),
            readable: &|_| true,
            held: &|_| true,
            in_step: true,
        };
        Some(match part.way() {
            Way::Whole => Mode::Full,
            Way::Delta => Mode::Delta,
            Way::Reconstruct | Way::Recover => Mode::Reconstruct,
        })
    }

    /// Gives positions to jobs, first come first served among those of a kind.
    pub(super) fn open_sets(&mut self) {
        for kind in 0..2 {
            while !self.jobs[kind].is_empty() {
                if self.keeper.writes_over() {
                    let Some(job) = self.jobs[kind].pop_front() else { break };
                    self.fail_job(job);
                    continue;
                }
                if !self.may_write(kind) || self.free[kind].is_empty() || !self.open_first(kind) {
                    break;
                }
            }
        }
    }

    /// Whether the first job may be opened; if not, it is seen to.
    fn may_write(&mut self, kind: usize) -> bool {
        let Some(job) = self.jobs[kind].front_mut() else { return false };
        let (start, end) = self.space.range(job.key);
        let ticket = *job.ticket.get_or_insert_with(|| self.keeper.begin_write(start, end));
        self.keeper.is_told(ticket)
    }

    /// Opens the first job, if there are buffers for what it needs.
    fn open_first(&mut self, kind: usize) -> bool {
        let sums_of = |code: &braid_array::code::StripeCode| code.equations().len();
        let job = &mut self.jobs[kind][0];
        let whole = job.mode == Mode::Full && job.range.touched.is_all();
        let by_client = *job
            .by_client
            .get_or_insert_with(|| whole && self.redundant && self.mix.client_makes_next());
        let (len, stripe) = (job.range.len, job.key.0);
        let scattered = job.range.pieces.values().filter(|pieces| pieces.len() > 1).count();
        let planner = if by_client { Planner::Client } else { self.pipeline.planner(0) };
        let Some(plan) = self.pipeline.plan(stripe, planner) else { return false };
        let sums = if by_client { sums_of(&plan.code) } else { 0 };
        let Some(staged) = self.staging.take(scattered + sums, len) else { return false };
        let Some(job) = self.jobs[kind].pop_front() else { return false };
        let position = self.position(kind, &plan, &job.range.touched);
        let planner = if by_client { planner } else { self.pipeline.planner(position) };
        self.version += 1;
        let set = Set {
            position,
            turn: self.turns[usize::from(position)],
            version: self.version,
            stripe,
            offset: job.range.offset,
            len,
            mode: job.mode,
            planner,
            fua: job.range.fua,
            touched: job.range.touched.clone(),
            missing: Roles::NONE,
        };
        self.turns[usize::from(position)] = set.turn.wrapping_add(1);
        self.open_set(job, set, staged);
        true
    }

    /// The position whose encoder has least to send; otherwise the one that is free longest.
    fn position(&mut self, kind: usize, plan: &Course, touched: &Touched) -> u16 {
        let nodes = self.params().nodes;
        let mut best = 0;
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
            let most = self.free[kind].iter().map(|&p| worth(p)).max().unwrap_or(0);
            best = self.free[kind].iter().position(|&p| worth(p) == most).unwrap_or(0);
        }
        self.free[kind].remove(best).expect("there is a free position")
    }

    fn open_set(&mut self, job: PendingSet, set: Set, mut staged: Vec<Buf>) {
        let position = set.position;
        let Some(plan) = self.pipeline.plan_of(&set) else {
            unreachable!("the client opens what it may: {set:?}")
        };
        let parts: BTreeSet<u16> = plan.involved(set.mode, &set.touched).into_iter().collect();
        for &role in &parts {
            self.send(role, &Message::Open { set: set.clone() });
            self.keeper.asked(self.member_id(role));
        }
        let mut open = OpenSet {
            key: job.key,
            plan,
            requests: job.range.requests,
            sources: BTreeMap::new(),
            staged: staged.clone(),
            computing: 0,
            puts: 0,
            parts,
            fine: true,
            background: job.background,
            set,
        };
        for (index, pieces) in job.range.pieces {
            if let [only] = pieces[..] {
                open.sources.insert(index, only);
                continue;
            }
            let whole = staged.pop().expect("a buffer for every scattered slice");
            let mut at = 0;
            for piece in pieces {
                self.sum(Use::Copy { position }, vec![piece], vec![1], whole.slice(at, piece.len));
                at += piece.len;
                open.computing += 1;
            }
            open.sources.insert(index, whole);
        }
        let ready = open.computing == 0;
        self.open.insert(position, open);
        if ready {
            self.flow(position);
        }
    }

    pub(super) fn copy_done(&mut self, position: u16) {
        let Some(open) = self.open.get_mut(&position) else { return };
        open.computing -= 1;
        match (open.computing, open.fine) {
            (0, true) => self.flow(position),
            _ => self.try_end(position),
        }
    }

    /// All new content is in one piece: data go out, and parities of ours are formed.
    fn flow(&mut self, position: u16) {
        let Some(open) = self.open.get(&position) else { return };
        let slices: Vec<(usize, Buf)> =
            open.sources.iter().map(|(&index, &buf)| (index as usize, buf)).collect();
        for (transfer, buf) in slices {
            self.put(position, transfer, buf);
        }
        let Some(open) = self.open.get_mut(&position) else { return };
        if open.set.planner != Planner::Client {
            return;
        }
        let equations = open.plan.code.equations();
        let sums = (0..equations.len()).map(|equation| {
            let terms = &equations[equation].terms;
            let index = |cell: Cell| match open.plan.code.content(cell) {
                braid_array::code::Content::Data(index) => index,
                braid_array::code::Content::Sum(_) => unreachable!("terms are data"),
            };
            let inputs = terms.iter().map(|term| open.sources[&index(term.cell)]).collect();
            (equation, inputs, terms.iter().map(|term| term.coef).collect())
        });
        let sums: Vec<(usize, Vec<Buf>, Vec<u8>)> = sums.collect();
        open.computing = sums.len() as u32;
        let outputs = open.staged[..sums.len()].to_vec();
        for ((equation, inputs, coefs), output) in sums.into_iter().zip(outputs) {
            self.sum(Use::Sum { position, equation }, inputs, coefs, output);
        }
    }

    pub(super) fn parity_done(&mut self, position: u16, equation: usize) {
        let Some(open) = self.open.get_mut(&position) else { return };
        open.computing -= 1;
        let (buf, transfer) =
            (open.staged[equation], open.plan.schedule.sums()[equation][0].transfer);
        if open.fine {
            self.put(position, transfer, buf);
        }
        self.try_end(position);
    }

    fn put(&mut self, position: u16, transfer: usize, from: Buf) {
        let io = self.io(Use::Put { position });
        let Some(open) = self.open.get_mut(&position) else { return };
        debug_assert_eq!(open.plan.schedule.transfers()[transfer].from, Endpoint::Client);
        let role = open.plan.schedule.transfers()[transfer].to;
        let link = &self.links[usize::from(role)];
        let to = link.ring + self.pipeline.arrival(&open.plan, &open.set, transfer).offset;
        let imm = Imm::of(&open.set, transfer).encode();
        open.puts += 1;
        self.unsent += 1;
        self.mix.sent(from.len);
        self.actions.push_back(Action::Fabric(FabricOp::Put {
            io,
            peer: link.peer,
            from,
            to,
            imm,
        }));
    }

    pub(super) fn put_done(&mut self, position: u16, fine: bool) {
        self.unsent -= 1;
        let Some(open) = self.open.get_mut(&position) else { return };
        open.puts -= 1;
        open.fine &= fine;
        self.try_end(position);
    }

    /// A node has closed its part.
    pub(super) fn closed(&mut self, role: u16, position: u16, turn: u32, fine: bool) {
        if self.keeper.writes_over() {
            // Slice-sets that have failed were not waited for.
            if let Some(open) = self.open.get_mut(&position)
                && open.parts.remove(&role)
            {
                self.keeper.answered(self.member_id(role));
            }
            return self.try_end(position);
        }
        let known = |open: &&mut OpenSet| open.set.turn == turn && open.parts.contains(&role);
        let Some(open) = self.open.get_mut(&position).filter(known) else {
            return self.part_with(role, "it closes what is not open");
        };
        open.parts.remove(&role);
        open.fine &= fine;
        self.keeper.answered(self.member_id(role));
        if !fine {
            let why = Refusal::new("what was written cannot be stored", "look at its storage");
            self.fail_writes(role, why);
        }
        self.try_end(position);
    }

    /// No slice-set can be relied on any more: what is open ends as failed.
    pub(super) fn end_sets(&mut self) {
        let positions: Vec<u16> = self.open.keys().copied().collect();
        for position in positions {
            if let Some(open) = self.open.get_mut(&position) {
                open.fine &= open.parts.is_empty();
            }
            self.try_end(position);
        }
    }

    /// Ends a slice-set when nothing of it is under way any more. One that has failed ends when
    /// the client's buffers are its own again; its position is not used any more.
    fn try_end(&mut self, position: u16) {
        if self.open.get(&position).filter(|open| open.is_over()).is_none() {
            return;
        }
        let Some(open) = self.open.remove(&position) else { return };
        let kind = usize::from(position >= self.params().wide.count);
        if open.fine {
            self.mix.credit(self.keeper.now(), !self.jobs[kind].is_empty());
            self.free[kind].push_back(position);
        }
        for role in open.parts {
            // It is not waited for any longer.
            self.keeper.answered(self.member_id(role));
        }
        self.staging.give(open.staged);
        if open.background {
            self.work_set_over(open.key, open.fine);
        } else {
            self.write_over(open.key, open.fine);
        }
        self.set_over(open.key, &open.requests, open.fine);
    }

    fn fail_job(&mut self, job: PendingSet) {
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
    fn write_over(&mut self, key: Key, fine: bool) {
        let (start, end) = self.space.range(key);
        self.keeper.end_write(start, end, !fine);
    }

    fn set_over(&mut self, key: Key, requests: &BTreeSet<RequestId>, fine: bool) {
        if !fine {
            self.torn.insert(key);
        }
        self.area_free(key);
        let result = if fine { Ok(()) } else { Err(RequestError::Failed) };
        for &id in requests {
            self.piece_over(id, result);
        }
    }

    fn area_free(&mut self, key: Key) {
        let Some(area) = self.areas.get_mut(&key) else { return };
        area.sets -= 1;
        if area.sets > 0 {
            return;
        }
        let whole = std::mem::take(&mut area.whole);
        self.list(key);
        let next = self.areas.get_mut(&(key.0 + 1, key.1)).filter(|_| whole);
        if let Some(gather) = next.and_then(|area| area.gathers.front_mut()) {
            // Who hears now that this one is written has a moment to send more.
            gather.patience.extend(Patience::some(self.keeper.now()));
        }
    }
}
