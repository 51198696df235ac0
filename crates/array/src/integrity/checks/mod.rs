//! Verification of what a machine reads from members, and notes of what it writes there.
//!
//! Every action of the machine passes here. What is about the data of a member with an integrity
//! area, or about its superblock, is taken over: it is done when all that the rules ask for is done
//! too, and answered then. All else goes on as it is.

mod errands;
mod reads;
mod writes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use slab::Slab;

use super::course::CourseNext;
use super::found::FoundArea;
use super::guard::{CourseKind, Guard};
use super::op::{Answer, GuardedOp, OpKind, ReadStage};
use super::step::IntegrityWrite;
use crate::action::{Action, IoError, IoOp, Outcome};
use crate::array::Scratch;
use crate::format::SUPERBLOCK_MAGIC;
use crate::{Buf, Instant, IoId, MemberId, SECTOR_BYTES};
use errands::{Errand, Flight};

/// Bytes of a page of memory, in which all metadata of an area are read and written.
const PAGE_BYTES: u32 = 4096;
/// Pages of memory.
const PAGES: u64 = 64;
/// Position of the tag in the ids of what is asked for here. No machine has ids like that.
const TAG_SHIFT: u32 = 56;
const TAG: u64 = 0xff << TAG_SHIFT;

/// The members with areas, and all that is under way on them.
#[derive(Debug)]
pub(super) struct Checks {
    now: Instant,
    guards: BTreeMap<MemberId, Guard>,
    ops: Slab<GuardedOp>,
    /// Operations by the machine's name for them.
    named: BTreeMap<IoId, usize>,
    flights: Slab<(u64, Flight)>,
    generation: u64,
    free_pages: Vec<Buf>,
    /// A page of zeroes, as the memory was given.
    zeroes: Buf,
    /// These wait for a page of memory.
    errands: VecDeque<Errand>,
    /// Superblocks that were put into memory, and are to be written from there.
    stored: BTreeMap<u64, Vec<u8>>,
    actions: VecDeque<Action>,
    answers: VecDeque<Answer>,
    /// Members of which something may go on.
    due: BTreeSet<MemberId>,
    /// The machine has stopped: marks are cleared at once.
    closing: bool,
}

impl Checks {
    /// Bytes of memory that it takes.
    pub(super) const SCRATCH_BYTES: u64 = PAGES * PAGE_BYTES as u64;

    pub(super) fn new(
        found: Vec<(MemberId, FoundArea)>,
        read_only: bool,
        scratch: Scratch,
    ) -> Self {
        let guards: BTreeMap<MemberId, Guard> = found
            .into_iter()
            .filter_map(|(id, area)| Some((id, Guard::new(area, read_only)?)))
            .collect();
        let page = |number| Buf {
            offset: scratch.offset + number * u64::from(PAGE_BYTES),
            len: PAGE_BYTES,
        };
        Self {
            now: Instant::default(),
            due: guards.keys().copied().collect(),
            guards,
            ops: Slab::new(),
            named: BTreeMap::new(),
            flights: Slab::new(),
            generation: 0,
            free_pages: (1..PAGES).map(page).collect(),
            zeroes: page(0),
            errands: VecDeque::new(),
            stored: BTreeMap::new(),
            actions: VecDeque::new(),
            answers: VecDeque::new(),
            closing: false,
        }
    }

    /// Tells the time.
    pub(super) fn at(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    pub(super) const fn now(&self) -> Instant {
        self.now
    }

    /// Looks at all members: some of their marks may be due.
    pub(super) fn tick(&mut self) {
        self.due.extend(self.guards.keys());
    }

    /// Returns whether the answer with this id is for something that was asked for here.
    pub(super) const fn is_own(io: IoId) -> bool {
        io.0 >> TAG_SHIFT == TAG >> TAG_SHIFT
    }

    pub(super) fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    pub(super) fn next_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    /// Takes an action of the machine.
    pub(super) fn take(&mut self, action: Action) {
        match action {
            Action::Io { io, member, op } if self.guards.contains_key(&member) => {
                self.take_io(io, member, op);
            }
            Action::Abandon { io, .. } if self.named.contains_key(&io) => self.abandon(io),
            Action::Store { buf, bytes } => {
                if bytes.starts_with(&SUPERBLOCK_BEGINS) {
                    self.stored.insert(buf.offset, bytes.clone());
                }
                self.actions.push_back(Action::Store { buf, bytes });
            }
            action => self.actions.push_back(action),
        }
    }

    fn take_io(&mut self, io: IoId, member: MemberId, op: IoOp) {
        let guard = &self.guards[&member];
        let (sector, sectors) = match op {
            IoOp::Read { sector, buf } | IoOp::Write { sector, buf, .. } => {
                (sector, u64::from(buf.len) / SECTOR_BYTES)
            }
            IoOp::WriteZeroes { sector, sectors, .. } | IoOp::Discard { sector, sectors } => {
                (sector, sectors)
            }
            IoOp::Flush => return self.actions.push_back(Action::Io { io, member, op }),
        };
        let is_superblock = matches!(op, IoOp::Write { .. }) && sector == guard.place.superblock;
        match guard.data(sector, sectors) {
            _ if guard.is_retired() => self.actions.push_back(Action::Io { io, member, op }),
            _ if is_superblock => self.take_superblock(io, member, op),
            None => self.actions.push_back(Action::Io { io, member, op }),
            Some(data) if matches!(op, IoOp::Read { .. }) => self.take_read(io, member, op, data),
            Some(data) => self.take_write(io, member, op, data),
        }
    }

    fn insert_op(&mut self, op: GuardedOp) -> usize {
        let (io, member) = (op.io, op.member);
        let index = self.ops.insert(op);
        self.named.insert(io, index);
        if let Some(guard) = self.guards.get_mut(&member) {
            guard.ops.push(index);
        }
        self.due.insert(member);
        index
    }

    /// Ends an operation, and answers it.
    fn end_op(&mut self, index: usize, result: Result<Outcome, IoError>) {
        let op = self.ops.remove(index);
        self.named.remove(&op.io);
        if let Some(guard) = self.guards.get_mut(&op.member) {
            guard.ops.retain(|other| *other != index);
        }
        self.due.insert(op.member);
        self.answers.push_back((op.io, result));
    }

    /// Hands an operation to the member.
    fn issue(&mut self, index: usize) {
        let GuardedOp { member, op, .. } = self.ops[index];
        let io = self.flight(Flight::Op(index));
        self.actions.push_back(Action::Io { io, member, op });
    }

    /// The machine gives an operation up. What the member has been asked for may be answered late
    /// or never; nothing else is begun for it.
    fn abandon(&mut self, io: IoId) {
        let index = self.named[&io];
        let op = &mut self.ops[index];
        op.abandoned = true;
        let is_issued = match &op.kind {
            OpKind::Read(read) => read.stage != ReadStage::Waiting,
            OpKind::Write(write) => write.issued,
            OpKind::Superblock { issued } => *issued,
        };
        let asked = |(_, (_, flight)): &(usize, &(u64, Flight))| *flight == Flight::Op(index);
        if let Some((slot, (generation, _))) = self.flights.iter().find(asked) {
            let io = id(slot, *generation);
            let buf = self.ops[index].op.buf();
            self.actions.push_back(Action::Abandon { io, buf });
            return;
        }
        let buf = self.ops[index].op.buf();
        for (slot, (generation, flight)) in &self.flights {
            let computes = match flight {
                Flight::Sums { op, .. }
                | Flight::BlockCopy { op, .. }
                | Flight::BlockLaid { op, .. } => *op == index,
                _ => false,
            };
            if computes {
                let io = id(slot, *generation);
                self.actions.push_back(Action::Abandon { io, buf });
            }
        }
        if !is_issued {
            self.due.insert(self.ops[index].member);
        }
    }

    /// Takes all members as far as they go without waiting.
    pub(super) fn advance(&mut self) {
        while let Some(member) = self.due.pop_first() {
            self.advance_courses(member);
            let ops = self.guards.get(&member).map_or_else(Vec::new, |guard| guard.ops.clone());
            for index in ops {
                match self.ops.get(index).map(|op| &op.kind) {
                    Some(OpKind::Read(_)) => self.advance_read(index),
                    Some(OpKind::Write(_)) => self.advance_write(index),
                    Some(OpKind::Superblock { .. }) | None => {}
                }
            }
            if let Some(guard) = self.guards.get_mut(&member) {
                guard.have_failed();
            }
            self.advance_superblocks(member);
            self.advance_courses(member);
            self.run_errands();
        }
    }

    fn advance_courses(&mut self, member: MemberId) {
        let (now, closing) = (self.now, self.closing);
        loop {
            let Some(guard) = self.guards.get_mut(&member) else { return };
            guard.begin_courses(now, closing);
            let mut went_on = false;
            for kind in CourseKind::ALL {
                went_on |= self.advance_course(member, kind);
            }
            if !went_on {
                return;
            }
        }
    }

    /// Takes a course as far as it goes. Returns whether it has ended.
    fn advance_course(&mut self, member: MemberId, kind: CourseKind) -> bool {
        let closing = self.closing;
        loop {
            let Some(guard) = self.guards.get_mut(&member) else { return false };
            let Some(course) = guard.course(kind) else { return false };
            match course.next() {
                CourseNext::Write(IntegrityWrite::Superblock) => self.write_superblock(member),
                CourseNext::Write(write) => {
                    self.errands.push_back(Errand::Write { member, kind, write });
                }
                CourseNext::Flush => {
                    let io = self.flight(Flight::Flush { member, kind });
                    self.actions.push_back(Action::Io { io, member, op: IoOp::Flush });
                }
                CourseNext::Wait => return false,
                CourseNext::Over => {
                    if kind == CourseKind::Superblock {
                        self.superblock_over(member);
                    }
                    if let Some(guard) = self.guards.get_mut(&member) {
                        guard.end_course(kind, self.now, closing);
                    }
                    self.due.insert(member);
                    return true;
                }
            }
        }
    }

    /// Something of a course is answered.
    fn course_answered(&mut self, member: MemberId, kind: CourseKind, result: Result<(), IoError>) {
        self.due.insert(member);
        let guard = self.guards.get_mut(&member);
        if let Some(course) = guard.and_then(|guard| guard.course(kind)) {
            course.answered(result);
        }
    }

    /// The machine has stopped: brings the tables onto the members.
    pub(super) fn close(&mut self) {
        self.closing = true;
        self.tick();
    }

    /// Returns whether that is done, as far as it can be.
    pub(super) fn is_closed(&self) -> bool {
        self.is_idle() && self.guards.values().all(Guard::is_clean)
    }

    /// Returns whether nothing is under way that somebody waits for.
    pub(super) fn is_idle(&self) -> bool {
        let waits = |op: &GuardedOp| !op.abandoned;
        let of_abandoned = |flight: &Flight| match flight {
            Flight::Op(index) => !waits(&self.ops[*index]),
            Flight::Nobody { .. } => true,
            _ => false,
        };
        !self.ops.iter().any(|(_, op)| waits(op))
            && self.flights.iter().all(|(_, (_, flight))| of_abandoned(flight))
            && self.errands.is_empty()
            && self.actions.is_empty()
            && self.answers.is_empty()
            && self.guards.values().all(Guard::is_at_rest)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.guards.values().filter_map(Guard::due_at).min()
    }

    pub(super) fn each_unused(&self, found: &mut dyn FnMut(Buf)) {
        self.free_pages.iter().for_each(|page| found(*page));
    }

    /// A member is gone, and may never answer: what was asked of it here is given up. What the
    /// machine has asked for it gives up itself.
    pub(super) fn lose(&mut self, member: MemberId) {
        let Some(guard) = self.guards.get_mut(&member) else { return };
        guard.leave();
        let mut cut_off = Vec::new();
        self.errands.retain(|errand| {
            if let Errand::Block { op, .. } = errand {
                cut_off.push(*op);
            }
            errand.member(&self.ops) != member
        });
        cut_off.retain(|op| self.ops[*op].member == member);
        for (slot, (generation, flight)) in &mut self.flights {
            let Some(buf) = flight.on_area_of(member, &self.ops) else { continue };
            if let Flight::Block { op, .. } = flight {
                cut_off.push(*op);
            }
            *flight = Flight::Nobody { buf };
            self.actions.push_back(Action::Abandon { io: id(slot, *generation), buf });
        }
        for op in cut_off {
            self.block_fails(op, IoError::ABANDONED);
        }
        self.due.insert(member);
    }

    /// A member is to leave: no more is begun for its area.
    pub(super) fn retire(&mut self, member: MemberId) {
        if let Some(guard) = self.guards.get_mut(&member) {
            guard.retire();
        }
    }

    /// Returns whether nothing is under way for the area of a member.
    pub(super) fn rests(&self, member: MemberId) -> bool {
        let on_area = |flight: &Flight| flight.on_area_of(member, &self.ops).is_some();
        self.guards.get(&member).is_none_or(Guard::is_at_rest)
            && !self.flights.iter().any(|(_, (_, flight))| on_area(flight))
            && !self.errands.iter().any(|errand| errand.member(&self.ops) == member)
    }

    pub(super) fn mismatches(&self) -> impl Iterator<Item = (MemberId, u64)> + '_ {
        self.guards.iter().map(|(id, guard)| (*id, guard.mismatches))
    }

    /// Checks that writes under way are marked, and counted.
    pub(super) fn check(&self) -> Result<(), String> {
        for (member, guard) in &self.guards {
            let writes = guard.ops.iter().filter_map(|index| match &self.ops[*index].kind {
                OpKind::Write(write) => Some(write.range.start..write.range.end),
                _ => None,
            });
            let writes: Vec<_> = writes.collect();
            guard.marks.check(&writes).map_err(|what| format!("member {}: {what}", member.0))?;
        }
        Ok(())
    }
}

const fn id(slot: usize, generation: u64) -> IoId {
    IoId(TAG | generation << 32 | slot as u64)
}

/// The beginning of a superblock.
const SUPERBLOCK_BEGINS: [u8; 4] = SUPERBLOCK_MAGIC.to_le_bytes();
