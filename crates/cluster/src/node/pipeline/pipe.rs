//! This node's end of one pipeline: the stages of slice-sets that are open.

use braid_array::Role;
use std::ops::Range;

use braid_array::fabric::PeerId;

use super::lease::{Returning, RingLease};
use super::neighbours::{Dialed, Neighbours};
use super::open_set::{Context, OpenSet, OpenSetStage};
use super::part::TaskWork;
use super::reads::PipelineReads;
use super::resolving::Resolving;
use super::seat::Seat;
use super::sets::{Early, PipelineSets};
use super::slot::{ReadRequest, StoreCopied};
use crate::ids::{Generation, Position, Slot};
use crate::journal::{Kind, Record};
use crate::node::ids::{ArrayId, Violation};
use crate::node::journal::{BatchEntry, Journal};
use crate::node::out::{Flight, NodeOut};
use crate::schedule::Endpoint;
use crate::set::{Imm, Set};
use crate::wire::{Message, PeerAddress};

/// A pipeline at this node, from `OpenPipeline` until its client is gone and the leftovers are
/// resolved. The pipe owns the open slice-sets, the slots for reads, the connections to the other
/// nodes, the lease of its ring and the journal; these know nothing of one another. The ring is a
/// part of the node's arena.
///
/// ```text
/// position:  Idle ── BeginSet ──► preparing ── all but stores over, Prepared sent ──► prepared
///            prepared ── Commit ──► stores ── all over, Finished sent ──► Idle
///            prepared ── Abort ──► Finished sent, nothing stored ──► Idle
/// ```
/// A slice-set that is to be recorded is durable in the journal before `Prepared` is sent. The
/// client decides whether the new content replaces the old, everywhere or nowhere. Where the store
/// has no room for what is committed, the slice-set stays in its position, whole, and a later
/// client commits it again: this one may have answered it.
///
/// [`connect`](Self::connect) comes first, then messages of the client and the other nodes, and
/// answers of the executor, in any order. Each call does everything that is possible then.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(super) seat: Seat,
    pub(super) neighbours: Neighbours,
    pub(super) lease: RingLease,
    pub(super) sets: PipelineSets,
    reads: PipelineReads,
    pub(super) journal: Option<Box<Journal>>,
    /// The store had no room.
    no_room: bool,
    /// The volume has another length than the pipeline knows: nothing is stored any more.
    pub(super) at_rest: bool,
    pub(super) resolving: Option<Resolving>,
}

impl Pipe {
    pub(super) fn new(seat: Seat, whole: bool) -> Self {
        let params = seat.pipeline.params();
        Self {
            neighbours: Neighbours::new(params.nodes, seat.role),
            lease: RingLease { whole, returning: None, left_bytes: None },
            sets: PipelineSets::new(seat.pipeline.positions()),
            reads: PipelineReads::new(params.reads.count),
            journal: None,
            no_room: false,
            at_rest: false,
            resolving: None,
            seat,
        }
    }

    /// Checks the invariants that hold between two events.
    pub(super) fn check(&self, out: &NodeOut) -> Result<(), String> {
        let started = self.sets.check()?;
        let tasks = out.tasks(self.seat.client);
        if started != tasks { Err(format!("{started} tasks, {tasks} under way")) } else { Ok(()) }
    }

    /// Returns the usable part of the ring, as a range of the arena: client and neighbours may put
    /// there.
    pub(super) fn window(&self) -> Range<u64> {
        self.seat.ring..self.seat.ring + self.lease.bytes(&self.seat)
    }

    /// Notes that the store has no room.
    pub(crate) const fn store_is_full(&mut self) {
        self.no_room = true;
    }

    /// Connects to the nodes that the client names. Returns the connections that this node makes.
    pub(crate) fn connect(
        &mut self,
        tag: u32,
        peers: Vec<PeerAddress>,
        out: &mut NodeOut,
    ) -> Result<Vec<Dialed>, Violation> {
        self.neighbours.connect(tag, peers, &self.seat, out)
    }

    /// Handles a connection that this node asked for and that now stands.
    pub(crate) fn established(&mut self, neighbour: Role, peer: PeerId, out: &mut NodeOut) {
        let window = self.window();
        self.neighbours.established(neighbour, peer, window, &self.seat, out);
    }

    /// Accepts a connection from the node of a role. Returns the neighbour, if the pipeline waits
    /// for it.
    pub(super) fn join(
        &mut self,
        array: ArrayId,
        role: Role,
        peer: PeerId,
        out: &mut NodeOut,
    ) -> Option<Role> {
        if self.seat.array != Some(array) {
            return None;
        }
        let window = self.window();
        self.neighbours.join(role, peer, window, &self.seat, out)
    }

    /// Handles a lost connection to another node. `limited`: the client is not to learn why.
    pub(crate) fn neighbour_lost(
        &mut self,
        neighbour: Role,
        reason: &str,
        limited: bool,
        out: &mut NodeOut,
    ) {
        let stood = self.neighbours.connected(neighbour).is_some();
        self.cut(neighbour, out);
        self.neighbours.lost(neighbour, reason, limited, &self.seat, out);
        self.beside_lost(neighbour, out);
        if stood && self.seat.write && !self.is_beside(neighbour) {
            self.seat.tell(&Message::NeighbourLost { role: neighbour }, out);
        }
    }

    /// Drops another node that has left the array: nothing of it may land here. Returns its
    /// connection.
    pub(crate) fn without(
        &mut self,
        role: Role,
        out: &mut NodeOut,
    ) -> Result<Option<PeerId>, Violation> {
        let (neighbour, peer) = self.neighbours.remove(role, out)?;
        self.cut(neighbour, out);
        self.beside_lost(neighbour, out);
        self.neighbours.answer_connect(&self.seat, out);
        Ok(peer)
    }

    /// Gives up everything that a neighbour has not sent.
    fn cut(&mut self, neighbour: Role, out: &mut NodeOut) {
        self.neighbours.cut(neighbour);
        for position in self.sets.all() {
            self.with_set(position, out, |set, context| set.lost(neighbour, context));
        }
    }

    fn beside_lost(&mut self, neighbour: Role, out: &mut NodeOut) {
        if self.is_beside(neighbour) {
            self.reads.beside_lost(&self.seat, out);
        }
    }

    /// Reads a part of the volume for the client.
    pub(crate) fn read(
        &mut self,
        slot: Slot,
        request: ReadRequest,
        out: &mut NodeOut,
    ) -> Result<(), Violation> {
        if !self.lease.may_read_at(slot, &self.seat) {
            return Err(Violation("a read that does not fit its slot"));
        }
        self.reads.read(slot, request, &self.seat, out)
    }

    /// Handles a slot that the store has filled, or whose digest is formed; or a failure of either.
    pub(crate) fn read_done(&mut self, slot: Slot, ok: bool, out: &mut NodeOut) {
        let beside = self.neighbours.ring_of(self.neighbours.beside());
        self.reads.read_done(slot, ok, beside, &self.seat, out);
    }

    /// Frees a slot whose bytes have left.
    pub(super) fn read_put(&mut self, slot: Slot, out: &mut NodeOut) {
        self.reads.read_put(slot, &self.seat, out);
    }

    /// Takes the client's order to store a copy that comes into a slot.
    pub(crate) fn store_copied(
        &mut self,
        request: StoreCopied,
        out: &mut NodeOut,
    ) -> Result<(), Violation> {
        if self.at_rest || !self.lease.may_read_at(request.slot, &self.seat) {
            return Err(Violation("a copy that does not fit its slot"));
        }
        let connected = self.neighbours.connected(self.neighbours.beside()).is_some();
        self.reads.store_copied(request, connected, &self.seat, out)
    }

    /// Handles a copy that is stored, or cannot be.
    pub(crate) fn copy_stored(&mut self, slot: Slot, tag: u32, ok: bool, out: &mut NodeOut) {
        self.reads.copy_stored(slot, tag, ok, &self.seat, out);
    }

    /// Begins a return of the whole lease, or of the part beyond the base.
    pub(super) fn begin_return(&mut self, tag: u32, all: bool) -> Result<(), Violation> {
        let base = self.seat.pipeline.base();
        let gone = |position: Position| all || !base.contains(&position);
        let may = self.lease.returning.is_none()
            && !self.sets.busy().any(gone)
            && self.reads.may_return(self.first_returned(all));
        if !may {
            return Err(Violation("what is given back is in use"));
        }
        self.lease.returning = Some(Returning { tag, all });
        Ok(())
    }

    /// Returns the client's return of memory, once all content that was read there has left.
    pub(super) fn take_returned(&mut self) -> Option<Returning> {
        let Returning { all, .. } = self.lease.returning?;
        if !self.reads.are_free(self.first_returned(all)) {
            return None;
        }
        self.lease.returning.take()
    }

    /// Returns the first slot for reads that is given back.
    fn first_returned(&self, all: bool) -> Slot {
        Slot(if all { 0 } else { self.seat.pipeline.base_reads() })
    }

    /// Opens a slice-set that another node relays. The client may have opened it directly by now.
    pub(crate) fn relayed(&mut self, set: Set, out: &mut NodeOut) -> Result<(), Violation> {
        if self.sets.knows(&set) { Ok(()) } else { self.open(set, out) }
    }

    /// Opens a slice-set of the client, which another node may have relayed already.
    pub(crate) fn open(&mut self, set: Set, out: &mut NodeOut) -> Result<(), Violation> {
        let position = set.position;
        let told = |open: &OpenSet| open.set.generation == set.generation && !open.set.relay;
        if self.sets.get(position).is_some_and(told) {
            return Ok(());
        }
        let violation = Violation("a slice-set that may not be opened");
        if !self.seat.write || self.at_rest || !self.lease.may_use(position, &self.seat) {
            return Err(violation);
        }
        let plan = self.seat.pipeline.plan_of(&set).ok_or(violation)?;
        let early = self.sets.open(set, plan, &self.seat)?;
        self.advance(position, out);
        for Early { imm, from, placed } in early {
            self.slice_arrived(imm, from, placed, out)?;
        }
        self.with_set(position, out, OpenSet::begin);
        Ok(())
    }

    /// Returns whether this neighbour is the other node of the same role, which sends copies and no
    /// slices.
    pub(crate) const fn is_beside(&self, neighbour: Role) -> bool {
        self.neighbours.beside().0 == neighbour.0
    }

    /// Handles a copy that the node beside has put into a slot here.
    pub(crate) fn copy_placed(&mut self, imm: u32, out: &mut NodeOut) -> Result<(), Violation> {
        self.reads.copy_placed(imm, &self.seat, out)
    }

    /// Takes a slice that has come (`placed`), or will not.
    pub(crate) fn arrived(
        &mut self,
        imm: u32,
        from: Endpoint,
        placed: bool,
        out: &mut NodeOut,
    ) -> Result<(), Violation> {
        let imm = Imm::decode(imm);
        if self.sets.get(imm.position).is_some() {
            return self.slice_arrived(imm, from, placed, out);
        }
        let may = self.seat.write && self.lease.covers(imm.position, &self.seat);
        self.sets.keep(Early { imm, from, placed }, may, &self.seat)
    }

    /// Takes the same for a slice-set that is open.
    fn slice_arrived(
        &mut self,
        imm: Imm,
        from: Endpoint,
        placed: bool,
        out: &mut NodeOut,
    ) -> Result<(), Violation> {
        let result = self
            .with_set(imm.position, out, |set, context| set.arrived(imm, from, placed, context));
        result.unwrap_or(Err(Violation("more slices than the slice-set has")))
    }

    /// Handles a finished task.
    pub(crate) fn done(&mut self, position: Position, task: u16, ok: bool, out: &mut NodeOut) {
        self.with_set(position, out, |set, context| set.done(task, ok, context));
    }

    /// Handles the comparison of new with stored content.
    pub(crate) fn compared(
        &mut self,
        position: Position,
        task: u16,
        same: bool,
        out: &mut NodeOut,
    ) {
        self.with_set(position, out, |set, context| set.compared(task, same, context));
    }

    /// Commits a slice-set: the new content replaces the stored one.
    pub(crate) fn commit(
        &mut self,
        position: Position,
        generation: Generation,
        out: &mut NodeOut,
    ) -> Result<(), Violation> {
        if !self.decided(position, generation)?.ok {
            return Err(Violation("a Commit of a slice-set that is not whole"));
        }
        self.with_set(position, out, OpenSet::store);
        Ok(())
    }

    /// Aborts a slice-set: the new content is not stored.
    pub(crate) fn abort(
        &mut self,
        position: Position,
        generation: Generation,
        out: &mut NodeOut,
    ) -> Result<(), Violation> {
        let used = self.is_journal_used();
        let open = self.decided(position, generation)?;
        // What is recorded of it must not come back after what is written there next.
        if open.ok && open.set.log && used {
            open.stage = OpenSetStage::Aborting;
            self.record(position, out);
        } else {
            self.close(position, out);
        }
        Ok(())
    }

    /// Returns the slice-set that a client decides about.
    fn decided(
        &mut self,
        position: Position,
        generation: Generation,
    ) -> Result<&mut OpenSet, Violation> {
        let waits = |open: &&mut OpenSet| {
            open.set.generation == generation && open.stage == OpenSetStage::Prepared
        };
        let open = self.sets.get_mut(position).filter(waits);
        open.ok_or(Violation("a decision on what is not prepared"))
    }

    /// Applies `act` to an open slice-set, and advances it.
    fn with_set<T>(
        &mut self,
        position: Position,
        out: &mut NodeOut,
        act: impl FnOnce(&mut OpenSet, &mut Context<'_>) -> T,
    ) -> Option<T> {
        let mut context = Context { seat: &self.seat, neighbours: &self.neighbours, out };
        let result = act(self.sets.get_mut(position)?, &mut context);
        self.advance(position, out);
        Some(result)
    }

    /// Advances a slice-set whose tasks may be over.
    fn advance(&mut self, position: Position, out: &mut NodeOut) {
        let used = self.is_journal_used();
        let Some(open) = self.sets.get_mut(position) else { return };
        match open.stage {
            OpenSetStage::Preparing if open.is_made() && open.ok && open.set.log && used => {
                open.stage = OpenSetStage::Recording;
                self.record(position, out);
            }
            OpenSetStage::Preparing if open.is_made() => self.tell_prepared(position, out),
            OpenSetStage::Committing if open.is_stored() => self.close(position, out),
            _ => {}
        }
    }

    fn is_journal_used(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.is_used())
    }

    /// Queues a slice-set that is recorded when nothing else is to be done, and earlier records are
    /// durable.
    fn record(&mut self, position: Position, out: &mut NodeOut) {
        if let Some(open) = self.sets.get(position)
            && let Some(journal) = &mut self.journal
        {
            journal.push(entry(open, &self.seat));
            out.record_later(self.seat.client);
        }
    }

    /// Advances the journal, and the slice-sets that it has recorded.
    pub(super) fn drive_journal(&mut self, out: &mut NodeOut) {
        while let Some(recorded) = self.journal.as_mut().and_then(|journal| journal.advance(out)) {
            for (position, ok) in recorded {
                self.recorded(position, ok, out);
            }
        }
    }

    /// Handles a slice-set that is recorded, or cannot be.
    fn recorded(&mut self, position: Position, ok: bool, out: &mut NodeOut) {
        let Some(open) = self.sets.get_mut(position) else { return };
        open.ok &= ok;
        open.own_fault |= !ok;
        if open.stage == OpenSetStage::Aborting {
            self.close(position, out);
        } else {
            self.tell_prepared(position, out);
        }
    }

    /// Tells the client whether a slice-set is prepared.
    fn tell_prepared(&mut self, position: Position, out: &mut NodeOut) {
        let Some(open) = self.sets.get_mut(position) else { return };
        open.stage = OpenSetStage::Prepared;
        let prepared = Message::Prepared {
            position,
            generation: open.set.generation,
            ok: open.ok,
            own_fault: open.own_fault,
            no_room: open.own_fault && self.no_room,
            cut_off: open.cut_off,
            received_bytes: out.received_bytes,
        };
        self.seat.tell(&prepared, out);
        if open.ok && braid_array::broken("barrier") {
            for task in &open.part.tasks {
                let Some(op) = self.seat.store(&open.set, &task.work, &open.part, false) else {
                    continue;
                };
                out.io(Flight::Resolve { orphan: self.seat.client }, self.seat.member, op);
            }
        }
    }

    /// Closes a slice-set, unless it was committed and there is no room for it.
    fn close(&mut self, position: Position, out: &mut NodeOut) {
        let Some(open) = self.sets.get_mut(position) else { return };
        let ok = open.ok;
        let generation = open.set.generation;
        let committed = open.stage == OpenSetStage::Committing;
        let no_room = committed && !ok && open.no_room;
        if no_room && !braid_array::broken("kept-for-room") {
            open.stage = OpenSetStage::Starved;
        } else {
            self.sets.close(position, committed.then_some(ok));
        }
        self.seat.tell(&Message::Finished { position, generation, ok, no_room }, out);
    }
}

/// Returns the record of a slice-set, with the location of its content.
fn entry(OpenSet { set, part, stage, .. }: &OpenSet, seat: &Seat) -> BatchEntry {
    let mut rows = Vec::new();
    let mut contents = Vec::new();
    let mut kind = Kind::Content;
    let byte = |row| seat.pipeline.member_byte(set.stripe, row, set.offset);
    for task in &part.tasks {
        match task.work {
            TaskWork::Store { row, from, .. } => {
                rows.push(byte(row));
                contents.push(seat.slot(part, set, from));
            }
            TaskWork::Zeroes { row } => {
                rows.push(byte(row));
                kind = Kind::Zeroes;
            }
            _ => {}
        }
    }
    if *stage == OpenSetStage::Aborting {
        kind = Kind::Void;
        rows.clear();
        contents.clear();
    }
    // A node that is left out, and holds the array all the same, lacks it: then the write was not
    // answered.
    let involved = part.plan.involved(set.strategy, &set.touched).into_iter();
    let holders = involved.chain(set.missing.iter()).collect();
    let version = seat.version(set);
    let record = Record { version, sequence: 0, kind, holders, len: set.len, rows, crc: 0 };
    BatchEntry { position: set.position, record, contents }
}
