//! The engine: requests, slice-sets, reads and background work over the given members.
//!
//! Each state machine is a file, gets a [`Cx`] with each call, and calls only those below it. A
//! [`Note`] carries a message to a machine that is not below; [`Engine`] delivers it before it
//! returns.
//!
//! ```text
//! writes ─► areas, gathered by slice ─► queue ─► position, lease, journals ─► sets ─► nodes
//! reads of requests, decode, compare, copies, read_back ─► reads ─► nodes
//! work: units that the keeper asks for, as slice-sets, comparisons and copies;  flush
//! ```

mod areas;
mod compare;
mod context;
mod copies;
mod decode;
mod extent;
mod flush;
mod gather;
mod invariants;
mod journals;
mod known;
mod lease;
mod mix;
mod opening;
mod partial;
mod pending;
mod position;
#[cfg(test)]
mod probe;
mod queue;
mod quiet;
mod read_back;
mod reading;
mod reads;
mod requests;
mod sets;
mod space;
mod staging;
mod stripe;
mod work;
mod writes;

use braid_array::format::Superblock;
use braid_array::keeper::{Done, Fix, LaneReport, Tried, Unit, Work as What};
use braid_array::{IoError, IoId, Op, Outcome, Request, Role};

use compare::Compares;
use context::Note;
pub(super) use context::{Cx, Shared};
use copies::Copies;
use decode::Decodes;
use extent::Whose;
#[cfg(test)]
pub(super) use extent::{WantedBlock, Whom};
use flush::Flushes;
use journals::Journals;
use lease::RingsLease;
pub(super) use mix::Mix;
use opening::Below;
use queue::Queue;
use read_back::ReadBack;
pub(super) use read_back::Verdict;
use reading::take_read;
pub(super) use sets::{Prepared, Sets, StoreFault};
pub(super) use space::Space;
use work::{BackgroundWork, Follows, WorkTask};
use writes::Writes;

use super::out::{IoPurpose, RequestKind};
use super::session_key::SessionKey;
use crate::ids::{Generation, Position, Slot};
use crate::pipeline::Pipeline;
use crate::set::Roles;

/// The machines that carry out requests and background work. The client calls the engine with a
/// [`Cx`]: `submit` for requests, `io_done`, `placed`, `copied`, `read_failed` and `answered` for
/// results, `without` for a lost node. Each turn has these calls, in this order:
///
/// - `begin`, once; then the following ones, until none of them achieves anything:
/// - `start_gathers`: writes that were gathered by slice wait for a position,
/// - `start_work`: units of the keeper's background work wait for one, too,
/// - `open_sets`: slice-sets whose writes the members have recorded get their positions,
/// - `losses_told`: slice-sets that waited for the record of a loss are committed,
/// - `trim` of journals, and `start_decodes` of lost blocks;
/// - in the end `send_commits` and `send_reads`, which send messages to the nodes.
#[derive(Debug)]
pub(super) struct Engine {
    writes: Writes,
    queue: Queue,
    pub(super) sets: Sets,
    lease: RingsLease,
    pub(super) journals: Journals,
    decodes: Decodes,
    work: BackgroundWork,
    compares: Compares,
    flushes: Flushes,
    pub(super) copies: Copies,
    pub(super) read_back: ReadBack,
}

impl Engine {
    /// `long_bytes`: length from which a write counts as long.
    pub(super) fn new(
        pipeline: &Pipeline,
        mix: Mix,
        superblock: &Superblock,
        long_bytes: u64,
    ) -> Self {
        Self {
            writes: Writes::default(),
            queue: Queue::default(),
            sets: Sets::new(pipeline, mix, long_bytes),
            lease: RingsLease::default(),
            journals: Journals::new(superblock),
            decodes: Decodes::default(),
            work: BackgroundWork::default(),
            compares: Compares::default(),
            flushes: Flushes::default(),
            copies: Copies::default(),
            read_back: ReadBack::default(),
        }
    }

    /// Takes a request that may be served.
    pub(super) fn submit(&mut self, cx: &mut Cx<'_>, request: &Request) {
        cx.report(LaneReport::RequestCame(request.op));
        cx.shared.requests.begin(request);
        match request.op {
            Op::Read => self.read(cx, request),
            Op::Write { fua } => self.writes.write(cx, request, fua),
            Op::WriteZeroes { .. } | Op::Discard => self.writes.zero(cx, request),
            Op::Flush => {
                cx.shared.requests.add_part(request.id);
                self.flushes.begin(cx, &self.sets, &mut self.journals, request.id);
            }
        }
        cx.part_over(request.id, Ok(()));
        self.pass_on(cx);
    }

    /// Handles a finished operation of the executor.
    pub(super) fn io_done(&mut self, cx: &mut Cx<'_>, io: IoId, result: Result<Outcome, IoError>) {
        match cx.out.ios.remove(&io) {
            Some(IoPurpose::Put { position }) => self.sets.put_done(cx, position),
            Some(IoPurpose::Copy { position }) => self.sets.copy_done(cx, position),
            Some(IoPurpose::Sum { position, equation }) => {
                self.sets.parity_done(cx, position, equation);
            }
            Some(IoPurpose::Decode { job }) => self.decodes.step_done(cx, job),
            Some(IoPurpose::Compare { key }) => self.compares.step_done(cx, key, result),
            Some(IoPurpose::ReadBack) => self.read_back.compared(cx, result),
            None => {}
        }
        self.pass_on(cx);
    }

    /// Handles a block or digest that a node has put.
    pub(super) fn placed(&mut self, cx: &mut Cx<'_>, from: SessionKey, imm: u32) {
        let slot = u16::try_from(imm).map(Slot);
        let Some(piece) = slot.ok().and_then(|slot| take_read(cx, from, slot, true)) else {
            return cx.out.violates(from, "it sends what was not asked for");
        };
        match piece.whose {
            Whose::Request(id) => cx.part_over(id, Ok(())),
            Whose::Decode(job) => self.decodes.read_done(cx, job),
            Whose::Compare(key) | Whose::Digest(key) => {
                self.compares.read_done(cx, key, piece.cell, true);
            }
            Whose::ReadBack => {
                let new = from == SessionKey::CopyTarget;
                self.read_back.came(cx, new, true);
            }
            Whose::Copy { .. } => cx.out.violates(from, "it sends what belongs elsewhere"),
        }
        self.pass_on(cx);
    }

    /// Notes that a copied member's node has put a block to the target.
    pub(super) fn copied(&mut self, cx: &mut Cx<'_>, from: SessionKey, slot: Slot) {
        match take_read(cx, from, slot, true).map(|piece| piece.whose) {
            Some(Whose::Copy { number, .. }) => self.copies.sent(cx, number),
            _ => cx.out.violates(from, "it copies what was not asked for"),
        }
        self.pass_on(cx);
    }

    pub(super) fn read_failed(&mut self, cx: &mut Cx<'_>, from: SessionKey, slot: Slot) {
        let Some(piece) = take_read(cx, from, slot, false) else {
            return cx.out.violates(from, "it answers what was not asked");
        };
        if from == SessionKey::CopyTarget {
            // It is no member yet.
            self.read_back.came(cx, true, false);
        } else {
            let tried = Tried { sector: None, changes: false, must_land: false };
            cx.report_of(from, |member| LaneReport::Failed(member, tried, IoError::MEDIUM));
            self.read_elsewhere(cx, piece);
        }
        self.pass_on(cx);
    }

    pub(super) fn prepared(&mut self, cx: &mut Cx<'_>, prepared: Prepared) {
        self.sets.prepared(cx, prepared);
        self.pass_on(cx);
    }

    pub(super) fn finished(
        &mut self,
        cx: &mut Cx<'_>,
        role: Role,
        position: Position,
        generation: Generation,
        result: Result<(), StoreFault>,
    ) {
        self.sets.finished(cx, role, position, generation, result);
        self.pass_on(cx);
    }

    /// Handles a lost connection between two nodes.
    pub(super) fn neighbour_lost(&mut self, cx: &mut Cx<'_>, pair: [Option<Role>; 2]) {
        self.sets.neighbour_lost(cx, pair);
    }

    /// Handles a node's answer to a message of the engine, or the loss of the node before it
    /// answers.
    pub(super) fn answered(
        &mut self,
        cx: &mut Cx<'_>,
        key: SessionKey,
        kind: RequestKind,
        ok: bool,
    ) {
        match (kind, key) {
            (RequestKind::Flush(number), _) => {
                self.flushes.answered(cx, &mut self.journals, number);
            }
            (RequestKind::LeaseRing, SessionKey::Member(role)) => {
                self.lease.answered(role, ok, cx.now())
            }
            (RequestKind::ReturnRing, SessionKey::Member(role)) => self.lease.returned(role),
            (RequestKind::StoreCopied(number), _) => self.copies.stored(cx, number),
            _ => {}
        }
        self.pass_on(cx);
    }

    /// Continues without a lost node: stops waiting for it.
    pub(super) fn without(&mut self, cx: &mut Cx<'_>, role: Role) {
        self.lease.forget(role);
        self.sets.without(cx, role);
        self.pass_on(cx);
    }

    /// Continues slice-sets after all losses are carried out. Returns whether any waited for that:
    /// further losses may follow.
    pub(super) fn losses_carried_out(&mut self, cx: &mut Cx<'_>) -> bool {
        let went_on = self.sets.losses_carried_out(cx);
        self.pass_on(cx);
        self.sets.lose_cut_off(cx);
        went_on || cx.out.has_losses()
    }

    /// Redirects the reads that waited for a lost node.
    pub(super) fn reads_without(&mut self, cx: &mut Cx<'_>, role: Role) {
        for piece in cx.shared.reads.drain(role) {
            self.read_elsewhere(cx, piece);
        }
        self.pass_on(cx);
    }

    /// Ends the copy of a member prematurely.
    pub(super) fn end_copy(&mut self, cx: &mut Cx<'_>, role: Role) {
        self.read_back.end(cx, role);
        self.copies.end(cx);
        self.pass_on(cx);
    }

    /// Delivers the notes of the machines to each other.
    fn pass_on(&mut self, cx: &mut Cx<'_>) {
        while let Some(note) = cx.shared.notes.pop_front() {
            match note {
                Note::Fetched { position, result } => self.sets.fetched(cx, position, result),
                Note::Read(piece) if cx.members.alive(piece.cell.node) => {
                    cx.shared.reads.queue(piece);
                }
                Note::Read(piece) => self.read_elsewhere(cx, piece),
                Note::Flush(id) => self.flushes.begin(cx, &self.sets, &mut self.journals, id),
                Note::Stored { key, position } => self.stored(cx, key, position),
                Note::Again { job, wide } => self.queue.again(cx, job, wide),
                Note::WorkSetOver { key, ok } => match self.work.set_over(cx, key, ok) {
                    Follows::Nothing => {}
                    Follows::Sets => self.make_sets(cx, key),
                    Follows::Over(done) => {
                        self.compares.forget(cx, key);
                        self.end_part(cx, key, done);
                    }
                },
                Note::TaskOver { key, done } => self.end_part(cx, key, done),
                Note::Repair { key, contents } => {
                    let slice = cx.shared.whole_slice(key);
                    self.queue.add_background(cx, slice, contents, Roles::NONE);
                }
            }
        }
    }

    /// Releases the reads and flushes that waited for a slice-set to be stored.
    fn stored(&mut self, cx: &mut Cx<'_>, key: super::Key, position: Position) {
        let wide = position.0 < cx.shared.params().wide.count;
        self.sets.mix.credit(cx.now(), self.queue.waits(wide));
        if let Some(area) = cx.shared.areas.get_mut(key) {
            area.committing -= 1;
            if area.committing == 0 {
                let late = std::mem::take(&mut area.late_reads);
                late.into_iter().for_each(|piece| cx.note(Note::Read(piece)));
            }
        }
        self.flushes.stored(cx, &self.sets, &mut self.journals, position);
    }

    /// Adds a unit of background work that the keeper asks for.
    pub(super) fn add_work(&mut self, place: u64, unit: Unit, what: What) {
        self.work.add(place, unit, what);
    }

    /// Begins with the units whose slices are free.
    pub(super) fn start_work(&mut self, cx: &mut Cx<'_>) {
        for _ in 0..self.work.waiting() {
            let Some(task) = self.work.next() else { break };
            self.start_task(cx, task);
        }
        self.pass_on(cx);
    }

    fn start_task(&mut self, cx: &mut Cx<'_>, task: WorkTask) {
        let key = cx.shared.space.key(task.unit.start);
        if cx.writes_over() {
            return task.end(cx, Done::Failed);
        }
        if cx.shared.areas.is_used(key) {
            return self.work.wait(task);
        }
        match &task.what {
            What::Copy if self.copies.copy(cx, key) => self.work.begin(key, task),
            // Spares are no members here before they hold a role: they are copied to.
            What::Copy | What::Verify(_) | What::Save | What::Move => task.end(cx, Done::Failed),
            What::Rebuild(_) => {
                self.work.begin(key, task);
                self.make_sets(cx, key);
            }
            // Nothing can be compared with what is not there.
            What::Compare(Fix::Nothing | Fix::Repair) if !cx.lost().is_empty() => {
                task.end(cx, Done::Failed);
            }
            What::Compare(Fix::Nothing) if task.is_in_part_unknown(cx) => {
                let part = task.part(cx);
                let unread = work::unread_of(cx, &part);
                task.end(cx, Done::Unread(unread));
            }
            // Sums are made anew of what is there.
            What::Compare(fix) if *fix == Fix::Resync || task.is_in_part_unknown(cx) => {
                self.work.begin(key, task);
                self.make_sets(cx, key);
            }
            What::Compare(fix) if self.compares.begin(cx, &mut self.decodes, key, *fix) => {
                self.work.begin(key, task);
            }
            What::Compare(_) => self.work.wait(task),
        }
    }

    /// Makes the slice-sets for the part of a slice that background work covers now.
    fn make_sets(&mut self, cx: &mut Cx<'_>, key: super::Key) {
        let Some((part, what)) = self.work.part_of(cx, key) else { return };
        let restores = match &what {
            What::Rebuild(targets) => work::restorable(cx, &part, targets),
            _ => Roles::NONE,
        };
        self.queue.add_background(cx, part, Vec::new(), restores);
    }

    /// Ends background work on a part of a slice, and continues with the next part.
    fn end_part(&mut self, cx: &mut Cx<'_>, key: super::Key, done: Done) {
        if self.work.over(cx, key, done) {
            self.make_sets(cx, key);
        }
    }

    /// Begins ranges of zeroes.
    pub(super) fn begin(&mut self, cx: &mut Cx<'_>) {
        self.writes.advance_zeroes(cx);
        self.pass_on(cx);
    }

    /// Turns gathered writes into slice-sets where their time has come.
    pub(super) fn start_gathers(&mut self, cx: &mut Cx<'_>) {
        self.queue.start_gathers(cx, &self.sets, &self.lease);
        self.pass_on(cx);
    }

    /// Opens the slice-sets that may be opened.
    pub(super) fn open_sets(&mut self, cx: &mut Cx<'_>) {
        let mut below = Below {
            sets: &mut self.sets,
            lease: &mut self.lease,
            journals: &mut self.journals,
            decodes: &mut self.decodes,
            work: &mut self.work,
        };
        self.queue.open_sets(cx, &mut below);
        self.pass_on(cx);
    }

    /// Continues slice-sets and flushes once superblocks record the losses. Returns whether any
    /// waited.
    pub(super) fn losses_told(&mut self, cx: &mut Cx<'_>) -> bool {
        let waits = self.sets.wait_until_told() || !self.flushes.is_empty();
        if !waits || !cx.losses_told() {
            return false;
        }
        let sets = self.sets.losses_told(cx);
        self.pass_on(cx);
        let flushes = self.flushes.losses_told(cx, &mut self.journals);
        self.pass_on(cx);
        sets || flushes
    }

    /// Trims journals. Returns whether there is room again.
    pub(super) fn trim(&mut self, cx: &mut Cx<'_>) -> bool {
        // Which slice-set is the oldest takes a look at all that are open.
        if !self.journals.are_used() {
            return false;
        }
        self.journals.trim(cx, self.sets.stored_up_to(), self.sets.version())
    }

    /// Begins decodings. Returns whether one failed, so that its buffers may serve others.
    pub(super) fn start_decodes(&mut self, cx: &mut Cx<'_>) -> bool {
        let failed = self.decodes.start(cx);
        self.pass_on(cx);
        failed
    }

    /// Advances the copy of a member and its verification.
    pub(super) fn advance_copy(&mut self, cx: &mut Cx<'_>) {
        self.read_back.advance(cx, &mut self.decodes);
        self.copies.advance(cx);
        self.pass_on(cx);
    }

    /// Tells the nodes of commits, at once if they are waited for.
    pub(super) fn send_commits(&mut self, cx: &mut Cx<'_>) {
        let may_wait = self.commits_may_wait(cx);
        self.sets.send_commits(cx, may_wait);
    }

    /// Sends reads that find a slot, and adjusts the lease of the rings.
    pub(super) fn send_reads(&mut self, cx: &mut Cx<'_>) {
        let end = self.lease.slots_end(cx);
        let now = cx.now();
        let Shared { reads, pipeline, .. } = &mut *cx.shared;
        if reads.send(end, pipeline, cx.members, now, cx.out) {
            self.lease.is_short();
        }
        let idle = self.is_idle(cx.shared);
        self.lease.advance(cx, &self.sets, idle);
    }
}
