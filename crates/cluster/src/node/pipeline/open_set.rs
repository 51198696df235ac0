//! An open slice-set: its tasks, their starts and their failures.

use std::sync::Arc;

use braid_array::action::Compute;
use braid_array::fabric::PeerId;
use braid_array::{IoOp, Role};
use smallvec::smallvec;

use super::neighbours::Neighbours;
use super::part::{Part, TaskWork};
use super::seat::Seat;
use crate::node::ids::Violation;
use crate::node::out::{Flight, NodeOut};
use crate::schedule::Endpoint;
use crate::set::{Imm, Roles, Set};
use crate::wire::Message;

/// The longest ranges that are compared.
const MAX_COMPARED_BYTES: u32 = 256 << 10;

/// Phase of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskPhase {
    Waiting,
    Started,
    Over,
}

/// A task of an open slice-set.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskState {
    /// Number of other tasks that it still waits for.
    needs: u16,
    /// One of them ended badly.
    spoiled: bool,
    phase: TaskPhase,
}

/// Stage of a slice-set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenSetStage {
    /// The new content is being made.
    Preparing,
    /// The slice-set is being recorded.
    Recording,
    /// The new content is there, or cannot be had; the client decides.
    Prepared,
    /// The record that makes the slice-set void is being written.
    Aborting,
    /// The new content is being stored.
    Committing,
    /// The store had no room for the new content, which is kept for a later client to store.
    Starved,
}

/// Context of a task: the parts of the pipeline that it needs.
pub(super) struct Context<'a> {
    pub(super) seat: &'a Seat,
    pub(super) neighbours: &'a Neighbours,
    pub(super) out: &'a mut NodeOut,
}

/// An open slice-set. [`begin`](Self::begin) starts the tasks that make its new content; slices
/// that come and answers of the executor go to the methods named after them. When
/// [`is_made`](Self::is_made) the pipeline has it recorded and tells the client; when that commits,
/// [`store`](Self::store) starts the stores, and the set is over when it
/// [`is_stored`](Self::is_stored).
///
/// ```text
/// task:      waits for others ──► started ──► over, well or not
/// ```
/// A task that cannot be done fails, and so do the tasks that wait for it. `Missing` tells the node
/// that lacks a slice because of that. So every slice-set comes to its stores at every living node,
/// and nothing in the store has changed until then.
#[derive(Debug)]
pub(super) struct OpenSet {
    pub(super) set: Set,
    pub(super) part: Arc<Part>,
    /// By task.
    states: Vec<TaskState>,
    /// Tasks before the stores that are not over.
    before: usize,
    /// Stores that are not over.
    stores: usize,
    pub(super) stage: OpenSetStage,
    /// All finished tasks succeeded.
    pub(super) ok: bool,
    /// A failure is the fault of this node's store.
    pub(super) own_fault: bool,
    /// All stores that failed found no room.
    pub(super) no_room: bool,
    /// Nodes to which a connection is needed and missing.
    pub(super) cut_off: Roles,
    /// Nodes that this one has told of the slice-set.
    told: Roles,
}

impl OpenSet {
    /// Creates an open slice-set; `states` is memory for reuse.
    pub(super) fn new(set: Set, part: Arc<Part>, mut states: Vec<TaskState>) -> Self {
        states.clear();
        let waiting = |needs| TaskState { needs, spoiled: false, phase: TaskPhase::Waiting };
        states.extend(part.tasks.iter().map(|task| waiting(task.needs)));
        let stores = part.tasks.iter().filter(|task| task.work.is_store()).count();
        let before = part.tasks.len() - stores;
        Self {
            set,
            part,
            states,
            before,
            stores,
            stage: OpenSetStage::Preparing,
            ok: true,
            own_fault: false,
            no_room: false,
            cut_off: Roles::default(),
            told: Roles::default(),
        }
    }

    /// Returns whether all tasks but the stores are over.
    pub(super) const fn is_made(&self) -> bool {
        self.before == 0
    }

    pub(super) const fn is_stored(&self) -> bool {
        self.stores == 0
    }

    /// Returns the memory for reuse.
    pub(super) fn into_states(self) -> Vec<TaskState> {
        self.states
    }

    /// Checks the invariants. Returns the number of tasks that are started and not over.
    pub(super) fn check(&self) -> Result<usize, String> {
        let phases = || self.states.iter().map(|state| state.phase);
        let left = phases().filter(|phase| *phase != TaskPhase::Over).count();
        let Self { before, stores, stage, .. } = *self;
        if left != before + stores || (before > 0) != (stage == OpenSetStage::Preparing) {
            return Err(format!("{left} tasks left of a set, counted {before} + {stores}"));
        }
        Ok(phases().filter(|phase| *phase == TaskPhase::Started).count())
    }

    /// Starts the tasks that wait for nothing, and fails those whose slice cannot arrive.
    pub(super) fn begin(&mut self, context: &mut Context<'_>) {
        let part = Arc::clone(&self.part);
        for (task, what) in (0..).zip(&part.tasks) {
            match what.work {
                TaskWork::Arrive { from: Endpoint::Node(node), .. }
                    if context.neighbours.ring_of(node).is_none() =>
                {
                    self.give_up(task, node, context);
                }
                TaskWork::Arrive { .. } | TaskWork::Store { .. } | TaskWork::Zeroes { .. } => {}
                _ if what.needs == 0 => self.start(task, context),
                _ => {}
            }
        }
    }

    /// Takes a slice that has come (`placed`), or will not.
    pub(super) fn arrived(
        &mut self,
        imm: Imm,
        from: Endpoint,
        placed: bool,
        context: &mut Context<'_>,
    ) -> Result<(), Violation> {
        let violation = Violation("a slice that the slice-set has not");
        let task = self.part.arrival(usize::from(imm.transfer)).ok_or(violation)?;
        if imm.generation != Imm::generation(self.set.generation) {
            return Err(violation);
        }
        let sender = match self.part.tasks[usize::from(task)].work {
            TaskWork::Arrive { from, .. } => Some(from),
            _ => None,
        };
        if sender != Some(from) || self.states[usize::from(task)].phase != TaskPhase::Waiting {
            return Err(Violation("a slice twice or from a stranger"));
        }
        if placed {
            context.out.received_bytes += u64::from(self.set.len);
        }
        self.over(task, placed, context);
        Ok(())
    }

    /// Gives up the slices of another node whose connection is over.
    pub(super) fn lost(&mut self, node: Role, context: &mut Context<'_>) {
        let part = Arc::clone(&self.part);
        for task in part.arrivals() {
            let work = &part.tasks[usize::from(task)].work;
            if matches!(work, TaskWork::Arrive { from, .. } if *from == Endpoint::Node(node)) {
                self.give_up(task, node, context);
            }
        }
    }

    /// Handles a finished task.
    pub(super) fn done(&mut self, task: u16, ok: bool, context: &mut Context<'_>) {
        let ok = ok || self.peeked_in_vain(task);
        if !ok {
            match self.part.tasks[usize::from(task)].work {
                TaskWork::Put { node, .. } => self.cut_off.insert(node),
                TaskWork::Store { .. } | TaskWork::Zeroes { .. } => {
                    self.own_fault = true;
                    self.no_room = context.out.no_room && (self.ok || self.no_room);
                }
                _ => self.own_fault = true,
            }
        }
        self.over(task, ok, context);
    }

    /// Handles the comparison of new with stored content; writes the content if it differs.
    pub(super) fn compared(&mut self, task: u16, same: bool, context: &mut Context<'_>) {
        if same {
            self.done(task, true, context);
        } else {
            self.write(task, context);
        }
    }

    /// Starts the stores, after the client has committed.
    pub(super) fn store(&mut self, context: &mut Context<'_>) {
        self.stage = OpenSetStage::Committing;
        let part = Arc::clone(&self.part);
        for (task, what) in (0..).zip(&part.tasks) {
            if what.work.is_store() {
                self.start(task, context);
            }
        }
    }

    /// Ends an arrival that will never come.
    fn give_up(&mut self, task: u16, node: Role, context: &mut Context<'_>) {
        if self.states[usize::from(task)].phase == TaskPhase::Waiting {
            self.cut_off.insert(node);
            self.over(task, false, context);
        }
    }

    fn over(&mut self, task: u16, ok: bool, context: &mut Context<'_>) {
        self.states[usize::from(task)].phase = TaskPhase::Over;
        self.ok &= ok;
        let part = Arc::clone(&self.part);
        if part.tasks[usize::from(task)].work.is_store() {
            self.stores -= 1;
            return;
        }
        self.before -= 1;
        for &next in &part.tasks[usize::from(task)].next {
            let state = &mut self.states[usize::from(next)];
            state.needs -= 1;
            state.spoiled |= !ok;
            let ready = state.needs == 0 && !part.tasks[usize::from(next)].work.is_store();
            if ready && state.spoiled {
                self.skip(next, context);
            } else if ready {
                self.start(next, context);
            }
        }
    }

    /// Ends a task that lacks its input, and tells the node that waits for its result.
    fn skip(&mut self, task: u16, context: &mut Context<'_>) {
        if let TaskWork::Put { node, transfer, .. } = self.part.tasks[usize::from(task)].work
            && let Some(peer) = context.neighbours.connected(node)
        {
            self.tell(node, peer, context);
            let imm = Imm::of(&self.set, transfer).encode();
            context.out.send(peer, context.seat.epoch(), &Message::Missing { imm });
        }
        self.over(task, false, context);
    }

    /// Tells a node of a slice-set that is relayed, before it is put or denied anything of it.
    fn tell(&mut self, node: Role, peer: PeerId, Context { seat, out, .. }: &mut Context<'_>) {
        if self.set.relay && !self.told.contains(node) {
            self.told.insert(node);
            let set = Set { relay: false, ..self.set.clone() };
            out.send(peer, seat.epoch(), &Message::BeginSet { set });
        }
    }

    fn start(&mut self, task: u16, context: &mut Context<'_>) {
        self.states[usize::from(task)].phase = TaskPhase::Started;
        let Context { seat, neighbours, out } = context;
        let part = Arc::clone(&self.part);
        let set = &self.set;
        let flight = Flight::Task { client: seat.client, position: set.position, task };
        let slot = |slot| seat.slot(&part, set, slot);
        match &part.tasks[usize::from(task)].work {
            TaskWork::Arrive { .. } => unreachable!("nothing comes before it"),
            &TaskWork::Read { row, into } | &TaskWork::Peek { row, into } => {
                let op = IoOp::Read { sector: seat.sector(set, row), buf: slot(into) };
                out.io(flight, seat.member, op);
            }
            TaskWork::Store { .. } | TaskWork::Zeroes { .. } => self.start_store(task, context),
            TaskWork::Sum { inputs, output, accumulate } => {
                let compute = Compute::Sum {
                    inputs: inputs.iter().map(|&(input, _)| slot(input)).collect(),
                    coefs: inputs.iter().map(|&(_, coef)| coef).collect(),
                    outputs: smallvec![slot(*output)],
                    accumulate: *accumulate,
                };
                out.compute(flight, compute);
            }
            &TaskWork::Put { node, transfer, from } => {
                let Some((peer, ring)) = neighbours.ring_of(node) else {
                    self.cut_off.insert(node);
                    return self.over(task, false, context);
                };
                let from = slot(from);
                let to = seat.pipeline.arrival(&part.plan, set, transfer).offset;
                let imm = Imm::of(set, transfer).encode();
                self.tell(node, peer, context);
                context.out.put(flight, peer, from, ring.wrapping_add(to), imm);
            }
        }
    }

    /// Begins to store. Content equal to the stored content is not written, if the latter could be
    /// read: right parities stay unwritten.
    fn start_store(&self, task: u16, context: &mut Context<'_>) {
        let unread = self.states[usize::from(task)].spoiled;
        if let TaskWork::Store { from, unless: Some(old), .. } =
            self.part.tasks[usize::from(task)].work
            && !unread
            && self.set.len <= MAX_COMPARED_BYTES
        {
            let Context { seat, out, .. } = context;
            let a = seat.slot(&self.part, &self.set, from);
            let b = seat.slot(&self.part, &self.set, old);
            let position = self.set.position;
            let flight = Flight::Same { client: seat.client, position, task };
            return out.compute(flight, Compute::Compare { a, b });
        }
        self.write(task, context);
    }

    fn write(&self, task: u16, Context { seat, out, .. }: &mut Context<'_>) {
        let flight = Flight::Task { client: seat.client, position: self.set.position, task };
        let work = &self.part.tasks[usize::from(task)].work;
        if let Some(op) = seat.store(&self.set, work, &self.part, self.set.fua) {
            out.io(flight, seat.member, op);
        }
    }

    /// Handles a failed read of content that is useful but not needed: the tasks that follow do
    /// without. Returns whether the task was such a read.
    fn peeked_in_vain(&mut self, task: u16) -> bool {
        let task = &self.part.tasks[usize::from(task)];
        let peek = matches!(task.work, TaskWork::Peek { .. });
        if peek {
            for &next in &task.next {
                self.states[usize::from(next)].spoiled = true;
            }
        }
        peek
    }
}
