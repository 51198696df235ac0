//! This node's end of one pipeline: the slice-sets that are open, and the tasks of each.
//!
//! ```text
//! position:  Idle ── Open ──► running ── all but stores over, Staged sent ──► staged
//!            staged ── Go ──► stores ── all over, Closed sent ──► Idle
//!            staged ── Drop ──► Closed sent, nothing stored ──► Idle
//! task:      waits for others ──► started ──► over, well or not
//! ```
//!
//! A task that cannot be done ends badly, and so do those that wait for it; the node that misses
//! something because of that is told by `Missing`. So every slice-set comes to its stores at every
//! living node, and nothing in the store has changed until then: the client decides whether the
//! new content takes the place of the old, everywhere or nowhere.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use braid_array::action::Compute;
use braid_array::fabric::PeerId;
use braid_array::{Buf, IoOp, MemberId, SECTOR_BYTES};

use super::ids::{ClientId, Violation};
use super::journal::Journal;
use super::out::{Flight, Out};
use super::part::{Part, Place, Work};
use super::slot::ReadSlot;
use crate::pipeline::Pipeline;
use crate::schedule::{Endpoint, Planner};
use crate::set::{Imm, Mode, Roles, Set};
use crate::wire::{Item, Message};

/// So many parts are kept: what the largest array needs while nobody is missing.
const KEPT_PARTS: usize = 1 << 12;

/// A connection to another node of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// Not yet.
    Absent,
    /// We are connecting.
    Dialing(PeerId),
    /// It stands.
    Up(PeerId),
    /// It is over.
    Lost,
}

/// Another node of the array.
#[derive(Clone, Debug)]
pub(super) struct Neighbour {
    pub(super) link: Link,
    /// Its ring in its arena, and its address, once the client has told.
    pub(super) told: Option<(u64, String)>,
}

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Started,
    Over,
}

/// A task of an open slice-set.
#[derive(Clone, Copy, Debug)]
struct State {
    /// How many others it still waits for.
    needs: u16,
    /// One of them ended badly.
    spoiled: bool,
    phase: Phase,
}

/// An open slice-set.
#[derive(Debug)]
struct Live {
    set: Set,
    part: Arc<Part>,
    /// Tasks before the stores that are not over.
    before: usize,
    /// Stores that are not over.
    stores: usize,
    stage: Stage,
    fine: bool,
    /// What cannot be done here is the fault of this node's store.
    own_fault: bool,
    /// Nodes to which no connection stands that is needed.
    cut_off: Roles,
}

/// How far a slice-set is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its new content is being made.
    Running,
    /// It is being recorded.
    Recording,
    /// It is there, or cannot be had; the client decides.
    Staged,
    /// It is being recorded that it is void.
    Dropped,
    /// It is being stored.
    Going,
}

/// What came for a slice-set that is not open yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Early {
    imm: Imm,
    from: Endpoint,
    /// It came; otherwise it will not come.
    placed: bool,
}

/// A place for one slice-set.
#[derive(Debug, Default)]
struct Position {
    /// Of the latest slice-set.
    turn: Option<u32>,
    running: Option<Live>,
    /// The version of the latest slice-set that went, and whether all of it is stored.
    stored: Option<(u64, bool)>,
    /// By task; kept for its memory.
    states: Vec<State>,
    early: Vec<Early>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) client: ClientId,
    /// The connection to the client.
    pub(super) peer: PeerId,
    pub(super) role: u16,
    pub(super) member: MemberId,
    /// Whether slice-sets may be opened.
    pub(super) write: bool,
    /// First sector of the data on the member.
    pub(super) data_sector: u64,
    /// Where the ring begins in the arena.
    pub(super) ring: u64,
    pub(super) pipeline: Pipeline,
    /// The other nodes, by role.
    pub(super) neighbours: Vec<Neighbour>,
    /// The tag of a `Connect` that is not answered yet.
    pub(super) connecting: Option<u32>,
    pub(super) reads: Vec<ReadSlot>,
    positions: Vec<Position>,
    /// Positions with a slice-set.
    open: usize,
    /// Of slice-sets that are common, by what they depend on.
    parts: BTreeMap<(Roles, u16, Planner, Mode), Arc<Part>>,
    pub(super) journal: Option<Box<Journal>>,
}

impl Pipe {
    pub(super) fn new(
        (client, peer): (ClientId, PeerId),
        role: u16,
        (member, data_sector, write): (MemberId, u64, bool),
        ring: u64,
        pipeline: Pipeline,
    ) -> Self {
        let neighbour = Neighbour { link: Link::Absent, told: None };
        let positions = (0..pipeline.positions()).map(|_| Position::default()).collect();
        Self {
            client,
            peer,
            role,
            member,
            write,
            data_sector,
            ring,
            neighbours: vec![neighbour; usize::from(pipeline.params().nodes)],
            connecting: None,
            reads: vec![ReadSlot::Free; usize::from(pipeline.params().reads.count)],
            positions,
            open: 0,
            parts: BTreeMap::new(),
            journal: None,
            pipeline,
        }
    }

    /// What is not as it has to be between two events.
    pub(super) fn check(&self, out: &Out) -> Result<(), String> {
        let running = || self.positions.iter().filter_map(|p| Some((p, p.running.as_ref()?)));
        if running().count() != self.open {
            return Err(format!("{} sets, counted {}", running().count(), self.open));
        }
        let mut started = 0;
        for (position, set) in running() {
            let phases = || position.states.iter().map(|state| state.phase);
            let left = phases().filter(|phase| *phase != Phase::Over).count();
            let (before, stores) = (set.before, set.stores);
            if left != before + stores || (before > 0) != (set.stage == Stage::Running) {
                return Err(format!("{left} tasks left of a set, counted {before} + {stores}"));
            }
            started += phases().filter(|phase| *phase == Phase::Started).count();
        }
        let tasks = out.tasks(self.client);
        if started != tasks { Err(format!("{started} tasks, {tasks} under way")) } else { Ok(()) }
    }

    /// Slice-sets whose new content is here whole, whatever of it is stored.
    fn held(&self) -> impl Iterator<Item = &Live> {
        let running = self.positions.iter().filter_map(|position| position.running.as_ref());
        running.filter(|live| match live.stage {
            Stage::Running | Stage::Recording | Stage::Dropped => false,
            Stage::Staged => live.fine,
            Stage::Going => true,
        })
    }

    /// A client that comes next has to say what becomes of something.
    pub(super) fn holds(&self) -> bool {
        self.write && self.held().next().is_some()
    }

    /// What a client that comes next is told of.
    pub(super) fn stock(&self) -> Vec<Item> {
        let epoch = self.epoch();
        let stored = self.positions.iter().filter_map(|position| position.stored);
        let stored = stored.map(|(version, fine)| (version, None, fine));
        let staged = self.held().map(|live| (live.set.version, Some(live.set.clone()), true));
        let item = |(version, staged, fine)| Item { version: (epoch, version), staged, fine };
        staged.chain(stored).map(item).collect()
    }

    /// Stores what goes of what a client left; how many operations that takes.
    pub(super) fn store_left(&self, go: &[(u32, u64)], out: &mut Out) -> usize {
        let mut count = 0;
        for Live { set, part, .. } in self.held() {
            if !go.contains(&(self.epoch(), set.version)) {
                continue;
            }
            for task in &part.tasks {
                let Some(op) = self.store(set, &task.work, part, false) else { continue };
                out.io(Flight::Settle { orphan: self.client }, self.member, op);
                count += 1;
            }
        }
        count
    }

    /// All that goes is stored, and the rest is dropped.
    pub(super) fn left_is_over(&mut self, go: &[(u32, u64)]) {
        let epoch = self.epoch();
        for position in &mut self.positions {
            if let Some(live) = position.running.take() {
                self.open -= 1;
                if go.contains(&(epoch, live.set.version)) {
                    position.stored = Some((live.set.version, true));
                }
            }
        }
    }

    /// All that is open waits for the client to decide.
    pub(super) fn is_idle(&self) -> bool {
        let mut running = self.positions.iter().filter_map(|position| position.running.as_ref());
        self.open == 0 || running.all(|live| live.stage == Stage::Staged)
    }

    /// The ring, as part of the arena: where client and neighbours may put.
    pub(super) fn window(&self) -> Range<u64> {
        self.ring..self.ring + self.pipeline.ring_bytes(self.role)
    }

    pub(super) const fn epoch(&self) -> u32 {
        self.pipeline.params().epoch
    }

    /// The client opens a slice-set.
    pub(super) fn open(&mut self, set: Set, out: &mut Out) -> Result<(), Violation> {
        let plan = self.pipeline.plan_of(&set).filter(|_| self.write);
        let plan = plan.ok_or(Violation("a slice-set that may not be opened"))?;
        let part = if set.is_common() {
            let params = self.pipeline.params();
            let variant = set.stripe % u64::from(params.family.period(params.nodes));
            let new = || Arc::new(Part::new(plan, self.role, set.mode, &set.touched));
            if self.parts.len() >= KEPT_PARTS {
                self.parts.clear();
            }
            let key = (set.missing, variant as u16, set.planner, set.mode);
            Arc::clone(self.parts.entry(key).or_insert_with(new))
        } else {
            Arc::new(Part::new(plan, self.role, set.mode, &set.touched))
        };
        let number = set.position;
        let position = &mut self.positions[usize::from(number)];
        if position.running.is_some() || position.turn.is_some_and(|turn| turn >= set.turn) {
            return Err(Violation("a slice-set at a position that is not free"));
        }
        position.turn = Some(set.turn);
        let early = std::mem::take(&mut position.early);
        if early.iter().any(|early| early.imm.turn != Imm::turn(set.turn)) {
            return Err(Violation("a slice of another turn"));
        }
        position.states.clear();
        let waiting = |needs| State { needs, spoiled: false, phase: Phase::Waiting };
        position.states.extend(part.tasks.iter().map(|task| waiting(task.needs)));
        let stores = part.tasks.iter().filter(|task| task.work.is_store()).count();
        let before = part.tasks.len() - stores;
        self.open += 1;
        position.running = Some(Live {
            set,
            part: Arc::clone(&part),
            before,
            stores,
            stage: Stage::Running,
            fine: true,
            own_fault: false,
            cut_off: Roles::default(),
        });
        if before == 0 {
            self.staged(number, out);
        }
        for early in early {
            self.resolve(early.imm, early.from, early.placed, out)?;
        }
        self.begin(number, &part, out);
        Ok(())
    }

    /// Starts the tasks that wait for nothing, and ends those that wait in vain.
    fn begin(&mut self, number: u16, part: &Part, out: &mut Out) {
        for (task, what) in part.tasks.iter().enumerate() {
            let task = task as u16;
            match what.work {
                Work::Arrive { from: Endpoint::Node(node), .. } if !self.stands(node) => {
                    self.give_up(number, task, node, out);
                }
                Work::Arrive { .. } | Work::Store { .. } | Work::Blank { .. } => {}
                _ if what.needs == 0 => self.start(number, task, out),
                _ => {}
            }
        }
    }

    fn stands(&self, node: u16) -> bool {
        let neighbour = &self.neighbours[usize::from(node)];
        matches!(neighbour.link, Link::Up(_)) && neighbour.told.is_some()
    }

    /// An arrival that will never come.
    fn give_up(&mut self, number: u16, task: u16, node: u16, out: &mut Out) {
        let position = &mut self.positions[usize::from(number)];
        if position.states[usize::from(task)].phase == Phase::Waiting {
            self.cut_off(number, node);
            self.over(number, task, false, out);
        }
    }

    /// A slice-set needs a connection that does not stand.
    fn cut_off(&mut self, number: u16, node: u16) {
        if let Some(running) = &mut self.positions[usize::from(number)].running {
            running.cut_off.insert(node);
        }
    }

    /// A slice has come (`placed`), or its sender says that it will not.
    pub(super) fn arrived(
        &mut self,
        imm: u32,
        from: Endpoint,
        placed: bool,
        out: &mut Out,
    ) -> Result<(), Violation> {
        let imm = Imm::decode(imm);
        let position = self.positions.get_mut(usize::from(imm.position));
        let position = position.ok_or(Violation("a slice for no position"))?;
        if position.running.is_some() {
            return self.resolve(imm, from, placed, out);
        }
        let most = self.pipeline.arrivals(imm.position, self.role) as usize;
        let known = position.early.iter().any(|early| early.imm == imm);
        if !self.write || known || position.early.len() >= most {
            return Err(Violation("a slice that nobody waits for"));
        }
        position.early.push(Early { imm, from, placed });
        Ok(())
    }

    /// The same, for a slice-set that is open.
    fn resolve(
        &mut self,
        imm: Imm,
        from: Endpoint,
        placed: bool,
        out: &mut Out,
    ) -> Result<(), Violation> {
        let position = &self.positions[usize::from(imm.position)];
        let Some(running) = &position.running else {
            return Err(Violation("more slices than the slice-set has"));
        };
        let task = running.part.arrival(usize::from(imm.transfer));
        let task = task.filter(|_| imm.turn == Imm::turn(running.set.turn));
        let task = task.ok_or(Violation("a slice that the slice-set has not"))?;
        let sender = match running.part.tasks[usize::from(task)].work {
            Work::Arrive { from, .. } => Some(from),
            _ => None,
        };
        if sender != Some(from) || position.states[usize::from(task)].phase != Phase::Waiting {
            return Err(Violation("a slice twice or from a stranger"));
        }
        if placed {
            out.received_bytes += u64::from(running.set.len);
        }
        self.over(imm.position, task, placed, out);
        Ok(())
    }

    /// The executor has carried a task out.
    pub(super) fn done(&mut self, number: u16, task: u16, fine: bool, out: &mut Out) {
        let fine = fine || self.peeked_in_vain(number, task);
        if let Some(running) = &mut self.positions[usize::from(number)].running
            && !fine
        {
            match running.part.tasks[usize::from(task)].work {
                Work::Put { node, .. } => running.cut_off.insert(node),
                _ => running.own_fault = true,
            }
        }
        self.over(number, task, fine, out);
    }

    /// A connection to another node is over: what it did not send will not come.
    pub(super) fn lost(&mut self, role: u16, out: &mut Out) {
        self.neighbours[usize::from(role)].link = Link::Lost;
        for number in 0..self.positions.len() as u16 {
            let Some(running) = &self.positions[usize::from(number)].running else { continue };
            let part = Arc::clone(&running.part);
            for task in part.arrivals() {
                let work = &part.tasks[usize::from(task)].work;
                let theirs = Endpoint::Node(role);
                if matches!(work, Work::Arrive { from, .. } if *from == theirs) {
                    self.give_up(number, task, role, out);
                }
            }
        }
    }

    fn over(&mut self, number: u16, task: u16, fine: bool, out: &mut Out) {
        let position = &mut self.positions[usize::from(number)];
        let Some(running) = &mut position.running else { return };
        position.states[usize::from(task)].phase = Phase::Over;
        running.fine &= fine;
        let part = Arc::clone(&running.part);
        if part.tasks[usize::from(task)].work.is_store() {
            running.stores -= 1;
            if running.stores == 0 {
                self.close(number, out);
            }
            return;
        }
        running.before -= 1;
        if running.before == 0 {
            return self.staged(number, out);
        }
        for &next in &part.tasks[usize::from(task)].next {
            let state = &mut self.positions[usize::from(number)].states[usize::from(next)];
            state.needs -= 1;
            state.spoiled |= !fine;
            match (state.needs, state.spoiled) {
                _ if part.tasks[usize::from(next)].work.is_store() => {}
                (0, false) => self.start(number, next, out),
                (0, true) => self.skip(number, next, out),
                _ => {}
            }
        }
    }

    /// All but the stores is over: it is recorded first, if that is to be.
    fn staged(&mut self, number: u16, out: &mut Out) {
        let Some((set, _)) = self.running(number) else { return };
        let recorded = self.is_recorded(set);
        let Some(running) = &mut self.positions[usize::from(number)].running else { return };
        if recorded && running.fine {
            running.stage = Stage::Recording;
            return self.record(number, out);
        }
        self.tell_staged(number, out);
    }

    /// It is recorded, or cannot be.
    pub(super) fn recorded(&mut self, number: u16, fine: bool, out: &mut Out) {
        let Some(running) = &mut self.positions[usize::from(number)].running else { return };
        running.fine &= fine;
        running.own_fault |= !fine;
        match running.stage {
            Stage::Dropped => self.close(number, out),
            _ => self.tell_staged(number, out),
        }
    }

    pub(super) fn is_dropped(&self, number: u16) -> bool {
        let running = self.positions[usize::from(number)].running.as_ref();
        running.is_some_and(|running| running.stage == Stage::Dropped)
    }

    /// The client hears how it went.
    fn tell_staged(&mut self, number: u16, out: &mut Out) {
        let Some(running) = &mut self.positions[usize::from(number)].running else { return };
        running.stage = Stage::Staged;
        let staged = Message::Staged {
            position: number,
            turn: running.set.turn,
            fine: running.fine,
            own_fault: running.own_fault,
            cut_off: running.cut_off,
            received_bytes: out.received_bytes,
        };
        out.send(self.peer, self.epoch(), &staged);
    }

    /// The client says that a slice-set takes the place of what is stored.
    pub(super) fn go(&mut self, number: u16, turn: u32, out: &mut Out) -> Result<(), Violation> {
        let running = self.decided(number, turn)?;
        if !running.fine {
            return Err(Violation("a slice-set goes that is not whole"));
        }
        running.stage = Stage::Going;
        let part = Arc::clone(&running.part);
        if running.stores == 0 {
            self.close(number, out);
            return Ok(());
        }
        for (task, what) in (0..).zip(&part.tasks) {
            if what.work.is_store() {
                self.start(number, task, out);
            }
        }
        Ok(())
    }

    /// The client says that a slice-set is not to be stored.
    pub(super) fn drop_set(
        &mut self,
        number: u16,
        turn: u32,
        out: &mut Out,
    ) -> Result<(), Violation> {
        let running = self.decided(number, turn)?;
        let fine = running.fine;
        // What is recorded of it must not come back after what is written there next.
        if fine && self.running(number).is_some_and(|(set, _)| self.is_recorded(set)) {
            if let Some(running) = &mut self.positions[usize::from(number)].running {
                running.stage = Stage::Dropped;
            }
            self.record(number, out);
        } else {
            self.close(number, out);
        }
        Ok(())
    }

    /// The slice-set that a client decides about.
    fn decided(&mut self, number: u16, turn: u32) -> Result<&mut Live, Violation> {
        let position = self.positions.get_mut(usize::from(number));
        let running = position.and_then(|position| position.running.as_mut());
        let waits = |live: &&mut Live| live.set.turn == turn && live.stage == Stage::Staged;
        running.filter(waits).ok_or(Violation("a decision on what is not staged"))
    }

    /// A task that lacks what it needs.
    fn skip(&mut self, number: u16, task: u16, out: &mut Out) {
        let Some(running) = &self.positions[usize::from(number)].running else { return };
        if let Work::Put { node, transfer, .. } = running.part.tasks[usize::from(task)].work
            && let Link::Up(peer) = self.neighbours[usize::from(node)].link
        {
            let imm = Imm::of(&running.set, transfer).encode();
            out.send(peer, self.epoch(), &Message::Missing { imm });
        }
        self.over(number, task, false, out);
    }

    fn start(&mut self, number: u16, task: u16, out: &mut Out) {
        let position = &mut self.positions[usize::from(number)];
        position.states[usize::from(task)].phase = Phase::Started;
        let spoiled = position.states[usize::from(task)].spoiled;
        let Some(running) = &self.positions[usize::from(number)].running else { return };
        let flight = Flight::Task { client: self.client, position: number, task };
        let (part, set) = (&running.part, &running.set);
        let slot = |place| self.slot(part, set, place);
        let sector = |row| {
            let byte = self.pipeline.member_byte(set.stripe, row, set.offset);
            self.data_sector + byte / SECTOR_BYTES
        };
        match &part.tasks[usize::from(task)].work {
            Work::Arrive { .. } => unreachable!("nothing comes before it"),
            &Work::Read { row, into } | &Work::Peek { row, into } => {
                out.io(flight, self.member, IoOp::Read { sector: sector(row), buf: slot(into) });
            }
            Work::Store { .. } | Work::Blank { .. } => {
                self.start_store((number, task), spoiled, out);
            }
            Work::Sum { inputs, output, accumulate } => {
                let compute = Compute::Sum {
                    inputs: inputs.iter().map(|&(place, _)| slot(place)).collect(),
                    coefs: inputs.iter().map(|&(_, coef)| coef).collect(),
                    outputs: vec![slot(*output)],
                    accumulate: *accumulate,
                };
                out.compute(flight, compute);
            }
            &Work::Put { node, transfer, from } => {
                let neighbour = &self.neighbours[usize::from(node)];
                if let (Link::Up(peer), Some((ring, _))) = (neighbour.link, &neighbour.told) {
                    let to = self.pipeline.arrival(&part.plan, set, transfer).offset;
                    let imm = Imm::of(set, transfer).encode();
                    out.put(flight, peer, slot(from), ring.wrapping_add(to), imm);
                } else {
                    self.cut_off(number, node);
                    self.over(number, task, false, out);
                }
            }
        }
    }

    /// A task could not read what would only have been of use: what it was for hears of it.
    fn peeked_in_vain(&mut self, number: u16, task: u16) -> bool {
        let position = &mut self.positions[usize::from(number)];
        let Some(running) = &position.running else { return false };
        let task = &running.part.tasks[usize::from(task)];
        let peek = matches!(task.work, Work::Peek { .. });
        for &next in task.next.iter().filter(|_| peek) {
            position.states[usize::from(next)].spoiled = true;
        }
        peek
    }

    pub(super) fn running(&self, number: u16) -> Option<(&Set, &Part)> {
        let running = self.positions[usize::from(number)].running.as_ref()?;
        Some((&running.set, &running.part))
    }

    /// In the arena.
    pub(super) fn slot(&self, part: &Part, set: &Set, place: Place) -> Buf {
        let buf = match place {
            Place::Arrival(transfer) => self.pipeline.arrival(&part.plan, set, transfer),
            Place::Idle(rank) => self.pipeline.idle(set, self.role, rank),
            Place::Fresh(fresh) => self.pipeline.fresh(set, self.role, fresh),
            Place::Old(row) => self.pipeline.old(set, self.role, row),
        };
        Buf { offset: self.ring + buf.offset, ..buf }
    }

    fn close(&mut self, number: u16, out: &mut Out) {
        let Some(running) = self.positions[usize::from(number)].running.take() else { return };
        self.open -= 1;
        if running.stage == Stage::Going {
            self.positions[usize::from(number)].stored = Some((running.set.version, running.fine));
        }
        let closed =
            Message::Closed { position: number, turn: running.set.turn, fine: running.fine };
        out.send(self.peer, self.epoch(), &closed);
    }
}
