//! Slice-sets that have a position, to their end.
//!
//! ```text
//!  pieces put together ─► parities formed, slices sent ─► staged by all ─► going ─► closed
//!                                                              │
//!                                     content is missing: dropped ─► tried again, or failed
//! ```
//! Nothing in the stores changes before every node that has a part in a slice-set has its new
//! content, and the superblocks tell of the nodes that have been lost. So a stripe is old or new,
//! whoever is lost, and as a whole.

use std::sync::Arc;

use braid_array::Refusal;
use braid_array::code::Content;

use super::extent::{Extent, Want, Whom};
use super::write::PendingSet;
use super::{
    Action, BTreeMap, BTreeSet, Buf, Cell, Client, FabricOp, IoPurpose, Key, Message, RequestError,
    TimedOperation, WriteStrategy,
};
use crate::member;
use crate::pipeline::{PlacedSchedule, brought_back};
use crate::schedule::Endpoint;
use crate::set::{Imm, Roles, Set};

/// A slice-set that lacks content without anybody's being lost is tried so often.
const MAX_TRIES: u32 = 8;

const SEE_ITS_LOG: &str = "see the log of its node";

/// A node's store fails what a slice-set needs of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreFault {
    /// It has no room.
    pub(super) no_room: bool,
}

/// How far a slice-set is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nodes get its slices and make its new content.
    Open,
    /// All have it, and it will go once superblocks tell of those who were lost.
    Held,
    /// It is being stored; its requests are answered, save those that want it durable.
    Going,
    /// Nobody stores it.
    Dropped,
}

/// A slice-set that has a position.
#[derive(Debug)]
pub(super) struct OpenSet {
    pub(super) set: Set,
    plan: Arc<PlacedSchedule>,
    pub(super) job: PendingSet,
    /// The new content, by data index; or what is put in place of it.
    sources: BTreeMap<u32, Buf>,
    /// Lost blocks of which the node that adds up is put what they differ by: their old content.
    olds: BTreeMap<u32, Buf>,
    /// Buffers to give back.
    pub(super) staged: Vec<Buf>,
    /// Copies and sums that have to be done before anything is sent of them.
    pub(super) computing: u32,
    /// Lost blocks that are being brought back, before anything is sent.
    pub(super) fetching: u32,
    /// Puts that are not answered.
    pub(super) puts: u32,
    /// Nodes that have a part in it.
    parts: BTreeSet<u16>,
    /// Those of them that have not said what is waited for.
    pub(super) waits: BTreeSet<u16>,
    stage: Stage,
    ok: bool,
}

impl OpenSet {
    pub(super) const fn key(&self) -> Key {
        self.job.key
    }

    /// Its requests are not answered yet.
    pub(super) fn is_unanswered(&self) -> bool {
        self.stage != Stage::Going
    }

    /// It may be on its way into the stores.
    pub(super) fn is_going(&self) -> bool {
        self.stage == Stage::Going
    }

    /// Nothing that it waits for is under way any more.
    pub(super) fn is_due(&self) -> bool {
        self.puts == 0 && self.computing == 0 && self.fetching == 0 && self.waits.is_empty()
    }
}

impl Client {
    pub(super) fn open_set(&mut self, job: PendingSet, set: Set, mut staged: Vec<Buf>) {
        let position = set.position;
        let Some(plan) = self.pipeline.plan_of(&set) else {
            unreachable!("the client opens what it may: {set:?}")
        };
        let mut sources = BTreeMap::new();
        let kept = staged.clone();
        let mut computing = 0;
        for (&index, pieces) in &job.range.pieces {
            if let [only] = pieces[..] {
                sources.insert(index, only);
                continue;
            }
            let whole = staged.pop().expect("a buffer for every scattered slice");
            let mut at = 0;
            for &piece in pieces {
                self.sum(
                    IoPurpose::Copy { position },
                    vec![piece],
                    vec![1],
                    whole.slice(at, piece.len),
                );
                at += piece.len;
                computing += 1;
            }
            sources.insert(index, whole);
        }
        let put = (set.strategy, &set.touched);
        let (mut wanted, mut olds) = (Vec::new(), BTreeMap::new());
        for index in brought_back(&plan.code, put, &job.range.touched, set.missing) {
            let into = staged.pop().expect("a buffer for every block that is brought back");
            wanted.push(Want { index, into, whom: Whom::Set(position) });
            let contents = if set.strategy == WriteStrategy::ReadModifyWrite {
                &mut olds
            } else {
                &mut sources
            };
            contents.insert(index, into);
        }
        let (stripe, at, len) = (set.stripe, set.offset, set.len);
        self.forget_kept(stripe, at, len);
        let open = OpenSet {
            plan,
            job,
            sources,
            olds,
            staged: kept,
            computing,
            puts: 0,
            fetching: wanted.len() as u32,
            waits: BTreeSet::new(),
            parts: BTreeSet::new(),
            stage: Stage::Open,
            ok: true,
            set,
        };
        self.open.insert(position, open);
        if wanted.is_empty() {
            self.flow(position);
        } else {
            self.decode_for_set(Extent { stripe, index: 0, at, len }, wanted);
        }
    }

    /// A lost block is back, or cannot be had.
    pub(super) fn fetched(&mut self, position: u16, result: Result<(), RequestError>) {
        let Some(open) = self.open.get_mut(&position) else { return };
        open.fetching -= 1;
        open.ok &= result.is_ok();
        if open.ok {
            return self.flow(position);
        }
        open.job.tries = MAX_TRIES;
        self.advance(position);
    }

    pub(super) fn copy_done(&mut self, position: u16) {
        let Some(open) = self.open.get_mut(&position) else { return };
        open.computing -= 1;
        if open.ok {
            self.flow(position);
        } else {
            self.advance(position);
        }
    }

    /// When all new content is in one piece, data go out, and parities of ours are formed.
    fn flow(&mut self, position: u16) {
        let here = self.links.iter().map(super::Link::alive).collect::<Vec<bool>>();
        let Some(open) = self.open.get_mut(&position) else { return };
        if open.computing > 0 || open.fetching > 0 {
            return;
        }
        if !open.olds.is_empty() {
            return self.differ(position);
        }
        let (set, plan) = (open.set.clone(), Arc::clone(&open.plan));
        let involved = plan.involved(set.strategy, &set.touched);
        open.parts = involved.into_iter().filter(|&role| here[usize::from(role)]).collect();
        open.waits = open.parts.clone();
        let parts: Vec<u16> = open.parts.iter().copied().collect();
        let sources = open.sources.clone();
        for role in parts {
            self.send(role, &Message::BeginSet { set: set.clone() });
            self.keeper.asked(self.member_id(role));
        }
        let mut sums = Vec::new();
        for (transfer, content) in plan.sent_by_client(set.strategy, &set.touched) {
            match content {
                Content::Data(index) => self.put(position, transfer, sources[&index]),
                Content::Sum(equation) => sums.push(equation),
            }
        }
        self.form(position, &sums);
        self.advance(position);
    }

    /// Forms what lost blocks differ by, which goes into sums in place of what they are to hold.
    fn differ(&mut self, position: u16) {
        let Some(open) = self.open.get_mut(&position) else { return };
        let olds = std::mem::take(&mut open.olds);
        open.computing = olds.len() as u32;
        let changes: Vec<(Buf, Buf)> = olds
            .into_iter()
            .filter_map(|(index, old)| Some((open.sources.insert(index, old)?, old)))
            .collect();
        for (new, old) in changes {
            self.sum_into(IoPurpose::Copy { position }, new, old);
        }
    }

    /// Forms the parities that the client makes.
    fn form(&mut self, position: u16, sums: &[usize]) {
        let Some(open) = self.open.get_mut(&position) else { return };
        let equations = open.plan.code.equations();
        let sums = sums.iter().map(|&equation| {
            let terms = &equations[equation].terms;
            let index = |cell: Cell| match open.plan.code.content(cell) {
                Content::Data(index) => index,
                Content::Sum(_) => unreachable!("terms are data"),
            };
            let inputs = terms.iter().map(|term| open.sources[&index(term.cell)]).collect();
            (equation, inputs, terms.iter().map(|term| term.coef).collect())
        });
        let sums: Vec<(usize, Vec<Buf>, Vec<u8>)> = sums.collect();
        open.computing = sums.len() as u32;
        let outputs: Vec<Buf> = sums.iter().map(|(equation, ..)| open.staged[*equation]).collect();
        for ((equation, inputs, coefs), output) in sums.into_iter().zip(outputs) {
            self.sum(IoPurpose::Sum { position, equation }, inputs, coefs, output);
        }
    }

    pub(super) fn parity_done(&mut self, position: u16, equation: usize) {
        let Some(open) = self.open.get_mut(&position) else { return };
        open.computing -= 1;
        let (buf, transfer) =
            (open.staged[equation], open.plan.schedule.sums()[equation][0].transfer);
        self.put(position, transfer, buf);
        self.advance(position);
    }

    /// Sends a slice, if the node that gets it is there.
    fn put(&mut self, position: u16, transfer: usize, from: Buf) {
        let Some(open) = self.open.get(&position) else { return };
        debug_assert_eq!(open.plan.schedule.transfers()[transfer].from, Endpoint::Client);
        let role = open.plan.schedule.transfers()[transfer].to;
        // One that was lost since has no part in it any more, even when it is back.
        if !open.parts.contains(&role) {
            return;
        }
        let link = &self.links[usize::from(role)];
        let to = link.ring + self.pipeline.arrival(&open.plan, &open.set, transfer).offset;
        let imm = Imm::of(&open.set, transfer).encode();
        let peer = link.peer;
        let io = self.io(IoPurpose::Put { position });
        let Some(open) = self.open.get_mut(&position) else { return };
        open.puts += 1;
        self.unsent += 1;
        self.mix.sent(from.len);
        self.actions.push_back(Action::Fabric(FabricOp::Put { io, peer, from, to, imm }));
    }

    /// What did not arrive is told by the node, or by its loss.
    pub(super) fn put_done(&mut self, position: u16) {
        self.unsent -= 1;
        let Some(open) = self.open.get_mut(&position) else { return };
        open.puts -= 1;
        self.advance(position);
    }

    /// A node has the new content of its part of a slice-set, or cannot have it.
    pub(super) fn staged(
        &mut self,
        role: u16,
        (position, generation): (u16, u32),
        ok: bool,
        fault: Option<StoreFault>,
        cut_off: Roles,
    ) {
        if !self.said(role, position, generation, Stage::Open) {
            return self.part_with(role, "it has staged what is not open");
        }
        if let Some(open) = self.open.get_mut(&position) {
            open.ok &= ok;
        }
        if let Some(fault) = fault {
            self.has_a_fault(role, position, fault);
        }
        let nodes = self.params().nodes;
        for other in cut_off.iter().filter(|&other| other < nodes) {
            self.cut_off.insert((role.min(other), role.max(other)));
        }
        self.advance(position);
    }

    /// A node's store fails what a slice-set needs of it. The node goes. If the array could not do
    /// without it, that is so where it has no room alone: then the array waits for that, as for a
    /// node that is away. What cannot be read stays so, and that write alone fails.
    fn has_a_fault(&mut self, role: u16, position: u16, fault: StoreFault) {
        if self.keeper.needs(self.member_id(role)) && !fault.no_room {
            if let Some(open) = self.open.get_mut(&position) {
                open.job.tries = MAX_TRIES;
            }
            return;
        }
        let why = match fault.no_room {
            true => Refusal::new("its store has no room", "make room there"),
            false => Refusal::new("its store fails what is to be changed", SEE_ITS_LOG),
        };
        self.store_fails(role, why);
    }

    /// The array goes on without a node whose store fails; or waits for it, if it could not.
    fn store_fails(&mut self, role: u16, why: Refusal) {
        let member = &self.links[usize::from(role)].member;
        if self.keeper.needs(self.member_id(role))
            && let Some(member) = member
        {
            let name = member::member_name(&member.address, &member.volume);
            let reason = format!("{name}: {}", why.reason);
            self.takeover.refused = Some(Refusal::new(reason, why.next.clone()));
        }
        self.do_without(role, why);
    }

    /// Some nodes that are there are not connected to each other. The one goes that most others do
    /// not see, so that the rest all see each other, and of two rather one that is being rebuilt;
    /// unless the array could not do without it.
    fn part_the_cut_off(&mut self) {
        loop {
            let there = |&(a, b): &(u16, u16)| self.alive(a) && self.alive(b);
            let pairs: Vec<(u16, u16)> = self.cut_off.iter().copied().filter(there).collect();
            let ends = || pairs.iter().flat_map(|&(a, b)| [a, b]);
            let complaints = |role: u16| ends().filter(|&other| other == role).count();
            self.cut_off = pairs.iter().copied().collect();
            let spared = |role: u16| !self.keeper.needs(self.member_id(role));
            let worst = ends().filter(|&role| spared(role));
            let lacks = |role: u16| !self.keeper.is_in_sync(role);
            let worst = worst.max_by_key(|&role| (complaints(role), lacks(role), role));
            let Some(worst) = worst else { return };
            let reason = "it is not connected to another node";
            self.do_without(worst, Refusal::new(reason, "look at the network between the nodes"));
            if !self.alive(worst) {
                self.await_return(worst);
            }
        }
    }

    /// A node has closed its part.
    pub(super) fn closed(&mut self, role: u16, position: u16, generation: u32, ok: bool) {
        let known = self.said(role, position, generation, Stage::Going)
            || self.said(role, position, generation, Stage::Dropped);
        if !known {
            return self.part_with(role, "it closes what is not open");
        }
        self.pace.answered(role, TimedOperation::Store(position), self.keeper.now());
        let going = self.open.get(&position).is_some_and(OpenSet::is_going);
        if !ok && going {
            let why = Refusal::new("what was written cannot be stored", SEE_ITS_LOG);
            self.store_fails(role, why);
        }
        self.advance(position);
    }

    /// Takes note that a node has said what was waited for at this stage; was it?
    fn said(&mut self, role: u16, position: u16, generation: u32, stage: Stage) -> bool {
        let Some(open) = self.open.get_mut(&position) else { return false };
        let said =
            open.set.generation == generation && open.stage == stage && open.waits.remove(&role);
        if said {
            self.keeper.answered(self.member_id(role));
        }
        said
    }

    /// Nothing is waited for any more from a node that is lost.
    pub(super) fn sets_without(&mut self, role: u16) {
        let positions: Vec<u16> = self.open.keys().copied().collect();
        for position in positions {
            if let Some(open) = self.open.get_mut(&position) {
                open.parts.remove(&role);
                if open.waits.remove(&role) {
                    self.keeper.answered(self.member_id(role));
                }
            }
            self.advance(position);
        }
    }

    /// What waited for the superblocks goes, now that they tell of those who were lost.
    pub(super) fn advance_held(&mut self) -> bool {
        let waits = |open: &OpenSet| matches!(open.stage, Stage::Held | Stage::Going);
        let held = self.open.iter().filter(|(_, open)| waits(open) && open.is_due());
        let held: Vec<u16> = held.map(|(&position, _)| position).collect();
        held.iter().for_each(|&position| self.advance(position));
        !held.is_empty()
    }

    /// Does the next thing with a slice-set when nothing is under way that has to be over before.
    fn advance(&mut self, position: u16) {
        let (over, told) = (self.writes_over(), self.losses_told());
        let Some(open) = self.open.get_mut(&position).filter(|open| open.is_due()) else { return };
        match open.stage {
            Stage::Open | Stage::Held if !open.ok || open.parts.is_empty() || over => {
                self.drop_set(position);
            }
            Stage::Open | Stage::Held => {
                open.stage = Stage::Held;
                if told || braid_array::broken("go-needs-view") {
                    self.go(position, told);
                } else if braid_array::broken("view-before-ack") && !open.set.fua {
                    let answered = std::mem::take(&mut open.job.range.requests);
                    answered.into_iter().for_each(|id| self.piece_over(id, Ok(())));
                }
            }
            // Who was lost meanwhile may lack it.
            Stage::Going if !told => {}
            Stage::Going | Stage::Dropped => self.end_set(position),
        }
    }

    /// All have the new content: it takes the place of the old.
    fn go(&mut self, position: u16, told: bool) {
        let Some(open) = self.open.get_mut(&position) else { return };
        open.stage = Stage::Going;
        open.waits = open.parts.clone();
        let (generation, key, fua) = (open.set.generation, open.key(), open.set.fua);
        let lasts = open.job.range.fua
            && !fua
            && !self.journals.cover_all()
            && !braid_array::broken("flush-waits");
        let parts: Vec<u16> = open.parts.iter().copied().collect();
        let requests = &mut open.job.range.requests;
        let answered = if fua || !told { BTreeSet::new() } else { std::mem::take(requests) };
        for role in parts {
            self.links[usize::from(role)].goes.push((position, generation));
            self.keeper.asked(self.member_id(role));
            self.pace.asked(role, TimedOperation::Store(position), self.keeper.now());
        }
        if let Some(area) = self.areas.get_mut(&key) {
            area.going += 1;
        }
        if !fua {
            self.follow(key);
        }
        for id in answered {
            match lasts {
                // It is recorded, and what it lies upon may be neither that nor durable.
                true => self.flush_nodes(id),
                false => self.piece_over(id, Ok(())),
            }
        }
    }

    /// Tells the nodes which slice-sets go.
    pub(super) fn send_goes(&mut self) {
        for role in 0..self.params().nodes {
            let sets = std::mem::take(&mut self.links[usize::from(role)].goes);
            if !sets.is_empty() && self.alive(role) {
                self.send(role, &Message::Commit { sets });
            }
        }
    }

    fn drop_set(&mut self, position: u16) {
        let Some(open) = self.open.get_mut(&position) else { return };
        open.stage = Stage::Dropped;
        open.waits = open.parts.clone();
        let generation = open.set.generation;
        let parts: Vec<u16> = open.parts.iter().copied().collect();
        for &role in &parts {
            // One that is just being given up is taken out of it next.
            if self.alive(role) {
                self.send(role, &Message::Abort { position, generation });
            }
            self.keeper.asked(self.member_id(role));
        }
        if parts.is_empty() {
            self.end_set(position);
        }
    }

    /// Ends a slice-set that all have closed.
    fn end_set(&mut self, position: u16) {
        let Some(open) = self.open.remove(&position) else { return };
        let kind = usize::from(position >= self.params().wide.count);
        let more = !self.jobs[kind].is_empty();
        self.free[kind].push_back(position);
        let OpenSet { set, mut job, staged, stage, .. } = open;
        self.staging.give(staged);
        if stage == Stage::Dropped {
            job.tries += 1;
            self.part_the_cut_off();
            if self.writes_over() || job.tries > MAX_TRIES {
                return self.fail_job(job);
            }
            return self.jobs[kind].push_front(job);
        }
        self.mix.credit(self.keeper.now(), more);
        let (key, ok) = (job.key, !self.keeper.has_failed());
        if ok && job.goes_on_after(set.strategy) {
            self.set_closed(key, position);
            return self.jobs[kind].push_front(job);
        }
        if job.background {
            self.work_set_over(key, ok);
        } else {
            self.write_over(key, !ok);
        }
        self.set_closed(key, position);
        self.area_free(key);
        let result = if ok { Ok(()) } else { Err(RequestError::Failed) };
        for id in job.range.requests {
            self.piece_over(id, result);
        }
    }

    /// What waited for a slice-set to be stored need not wait for it any more.
    fn set_closed(&mut self, key: Key, position: u16) {
        if let Some(area) = self.areas.get_mut(&key) {
            area.going -= 1;
            if area.going == 0 {
                let late = std::mem::take(&mut area.late_reads);
                late.into_iter().for_each(|piece| self.queue_or_decode(piece));
            }
        }
        let numbers: Vec<u32> = self.flushes.keys().copied().collect();
        for number in numbers {
            let waited = self.flushes.get_mut(&number).is_some_and(|f| f.after.remove(&position));
            if waited {
                self.send_flush(number);
            }
        }
    }
}
