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

use super::write::PendingSet;
use super::{
    Action, BTreeMap, BTreeSet, Buf, Cell, Client, FabricOp, Key, Message, Planner, RequestError,
    Use,
};
use crate::pipeline::Course;
use crate::schedule::Endpoint;
use crate::set::{Imm, Roles, Set};

/// A slice-set that lacks content without anybody's being lost is tried so often.
const MAX_TRIES: u32 = 8;

/// Whether writes are answered when they are staged: not before a client that comes next stores
/// what its predecessor had answered.
const ANSWER_STAGED: bool = false;

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
    plan: Arc<Course>,
    pub(super) job: PendingSet,
    /// The new content, by data index.
    sources: BTreeMap<u32, Buf>,
    /// Buffers to give back.
    pub(super) staged: Vec<Buf>,
    /// Copies and sums that have to be done before anything is sent of them.
    pub(super) computing: u32,
    /// Puts that are not answered.
    pub(super) puts: u32,
    /// Nodes that have a part in it.
    parts: BTreeSet<u16>,
    /// Those of them that have not said what is waited for.
    pub(super) waits: BTreeSet<u16>,
    stage: Stage,
    fine: bool,
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
        self.puts == 0 && self.computing == 0 && self.waits.is_empty()
    }
}

impl Client {
    pub(super) fn open_set(&mut self, job: PendingSet, set: Set, mut staged: Vec<Buf>) {
        let position = set.position;
        let Some(plan) = self.pipeline.plan_of(&set) else {
            unreachable!("the client opens what it may: {set:?}")
        };
        let parts: BTreeSet<u16> = plan.involved(set.mode, &set.touched).into_iter().collect();
        for &role in &parts {
            self.send(role, &Message::Open { set: set.clone() });
            self.keeper.asked(self.member_id(role));
        }
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
                self.sum(Use::Copy { position }, vec![piece], vec![1], whole.slice(at, piece.len));
                at += piece.len;
                computing += 1;
            }
            sources.insert(index, whole);
        }
        let open = OpenSet {
            plan,
            job,
            sources,
            staged: kept,
            computing,
            puts: 0,
            waits: parts.clone(),
            parts,
            stage: Stage::Open,
            fine: true,
            set,
        };
        self.open.insert(position, open);
        if computing == 0 {
            self.flow(position);
        }
    }

    pub(super) fn copy_done(&mut self, position: u16) {
        let Some(open) = self.open.get_mut(&position) else { return };
        open.computing -= 1;
        if open.computing == 0 {
            self.flow(position);
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
            return self.advance(position);
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
        self.put(position, transfer, buf);
        self.advance(position);
    }

    /// Sends a slice, if the node that gets it is there.
    fn put(&mut self, position: u16, transfer: usize, from: Buf) {
        let Some(open) = self.open.get(&position) else { return };
        debug_assert_eq!(open.plan.schedule.transfers()[transfer].from, Endpoint::Client);
        let role = open.plan.schedule.transfers()[transfer].to;
        if !self.alive(role) {
            return;
        }
        let link = &self.links[usize::from(role)];
        let to = link.ring + self.pipeline.arrival(&open.plan, &open.set, transfer).offset;
        let imm = Imm::of(&open.set, transfer).encode();
        let peer = link.peer;
        let io = self.io(Use::Put { position });
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
        (position, turn): (u16, u32),
        fine: bool,
        own_fault: bool,
        cut_off: Roles,
    ) {
        if !self.said(role, position, turn, Stage::Open) {
            return self.part_with(role, "it has staged what is not open");
        }
        if let Some(open) = self.open.get_mut(&position) {
            open.fine &= fine;
        }
        if own_fault {
            let why = Refusal::new("what is to be changed cannot be read", "look at its storage");
            self.fail_writes(role, why);
        }
        let nodes = self.params().nodes;
        for other in cut_off.iter().filter(|&other| other < nodes) {
            if self.alive(other) {
                let reason = "a node is not connected to another";
                self.fail_writes(role, Refusal::new(reason, "look at the network between them"));
            }
        }
        self.advance(position);
    }

    /// A node has closed its part.
    pub(super) fn closed(&mut self, role: u16, position: u16, turn: u32, fine: bool) {
        let known = self.said(role, position, turn, Stage::Going)
            || self.said(role, position, turn, Stage::Dropped);
        if !known {
            return self.part_with(role, "it closes what is not open");
        }
        let going = self.open.get(&position).is_some_and(OpenSet::is_going);
        if !fine && going {
            if let Some(open) = self.open.get_mut(&position) {
                open.fine = false;
            }
            let why = Refusal::new("what was written cannot be stored", "look at its storage");
            self.fail_writes(role, why);
        }
        self.advance(position);
    }

    /// Takes note that a node has said what was waited for at this stage; was it?
    fn said(&mut self, role: u16, position: u16, turn: u32, stage: Stage) -> bool {
        let Some(open) = self.open.get_mut(&position) else { return false };
        let said = open.set.turn == turn && open.stage == stage && open.waits.remove(&role);
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
                    // It may return without what it was storing, and nobody says so.
                    open.fine &= !(open.is_going() && self.keeper.writes_over());
                    self.keeper.answered(self.member_id(role));
                }
            }
            self.advance(position);
        }
    }

    /// What waited for the superblocks goes, now that they tell of those who were lost.
    pub(super) fn advance_held(&mut self) {
        let held = self.open.iter().filter(|(_, open)| open.stage == Stage::Held);
        let held: Vec<u16> = held.map(|(&position, _)| position).collect();
        held.into_iter().for_each(|position| self.advance(position));
    }

    /// Does the next thing with a slice-set when nothing is under way that has to be over before.
    fn advance(&mut self, position: u16) {
        let Some(open) = self.open.get_mut(&position).filter(|open| open.is_due()) else { return };
        match open.stage {
            Stage::Open | Stage::Held
                if !open.fine || open.parts.is_empty() || self.keeper.writes_over() =>
            {
                self.drop_set(position);
            }
            Stage::Open | Stage::Held => {
                open.stage = Stage::Held;
                if self.keeper.failures_told() {
                    self.go(position);
                }
            }
            Stage::Going | Stage::Dropped => self.end_set(position),
        }
    }

    /// All have the new content: it takes the place of the old.
    fn go(&mut self, position: u16) {
        let Some(open) = self.open.get_mut(&position) else { return };
        open.stage = Stage::Going;
        open.waits = open.parts.clone();
        let (turn, key, fua) = (open.set.turn, open.key(), open.set.fua);
        let parts: Vec<u16> = open.parts.iter().copied().collect();
        let late = fua || !ANSWER_STAGED;
        let requests = &mut open.job.range.requests;
        let answered = if late { BTreeSet::new() } else { std::mem::take(requests) };
        for role in parts {
            self.links[usize::from(role)].goes.push((position, turn));
            self.keeper.asked(self.member_id(role));
        }
        if let Some(area) = self.areas.get_mut(&key) {
            area.going += 1;
        }
        if !late {
            self.follow(key);
        }
        for id in answered {
            self.piece_over(id, Ok(()));
        }
    }

    /// Tells the nodes which slice-sets go.
    pub(super) fn send_goes(&mut self) {
        for role in 0..self.params().nodes {
            let sets = std::mem::take(&mut self.links[usize::from(role)].goes);
            if !sets.is_empty() && self.alive(role) {
                self.send(role, &Message::Go { sets });
            }
        }
    }

    fn drop_set(&mut self, position: u16) {
        let Some(open) = self.open.get_mut(&position) else { return };
        open.stage = Stage::Dropped;
        open.waits = open.parts.clone();
        let turn = open.set.turn;
        let parts: Vec<u16> = open.parts.iter().copied().collect();
        for &role in &parts {
            self.send(role, &Message::Drop { position, turn });
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
        let OpenSet { mut job, staged, stage, fine, .. } = open;
        self.staging.give(staged);
        if stage == Stage::Dropped {
            job.tries += 1;
            if self.keeper.writes_over() || job.tries > MAX_TRIES {
                return self.fail_job(job);
            }
            return self.jobs[kind].push_front(job);
        }
        self.mix.credit(self.keeper.now(), more);
        let key = job.key;
        if !fine {
            self.torn.insert(key);
        }
        if job.background {
            self.work_set_over(key, fine);
        } else {
            self.write_over(key, !fine);
        }
        self.set_closed(key, position);
        self.area_free(key);
        let result = if fine { Ok(()) } else { Err(RequestError::Failed) };
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
