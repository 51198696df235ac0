//! Verification of what a machine reads from members, and notes of what it writes there.
//!
//! Every action of the machine passes here. What is about the data of a member with an integrity
//! area, or about its superblock, is taken over: it is done when all that the rules ask for is done
//! too, and answered then. All else goes on as it is.

mod compared;
mod courses;
mod cut;
mod errands;
mod reads;
mod state;
mod superblocks;
mod writes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use slab::Slab;

use super::area_io::AreaIo;
use super::confirmed::Comparisons;
use super::guard::Guard;
use super::op::{GuardedAnswer, GuardedOp, OpKind, ReadStage};
use crate::action::{Action, IoError, IoOp};
use crate::array::Scratch;
use crate::format::SUPERBLOCK_MAGIC;
use crate::integrity::FoundArea;
use crate::status::IntegrityStatus;
use crate::{Instant, IoId, MemberId, SECTOR_BYTES};

/// The members with areas, and all that is under way on them.
#[derive(Debug)]
pub(super) struct Checks {
    pub(super) now: Instant,
    guards: BTreeMap<MemberId, Guard>,
    ops: Slab<GuardedOp>,
    /// Operations by the machine's name for them.
    named: BTreeMap<IoId, usize>,
    pub(super) io: AreaIo,
    /// Comparisons of the machine, by which more becomes known.
    comparisons: Comparisons,
    read_only: bool,
    /// Superblocks that were put into memory, and are to be written from there.
    stored: BTreeMap<u64, Vec<u8>>,
    /// Answers for the machine.
    pub(super) answers: VecDeque<GuardedAnswer>,
    /// Members of which anything may go on.
    due: BTreeSet<MemberId>,
    /// Operations that may go on.
    woken: VecDeque<usize>,
    /// The machine has stopped: marks are cleared at once.
    closing: bool,
    /// Members that are to have another superblock, whatever that says.
    pub(super) renewals: Vec<MemberId>,
}

impl Checks {
    pub(super) fn new(
        found: Vec<(MemberId, FoundArea)>,
        read_only: bool,
        scratch: Scratch,
    ) -> Self {
        let guards: BTreeMap<MemberId, Guard> = found
            .into_iter()
            .filter_map(|(id, area)| Some((id, Guard::new(area, read_only)?)))
            .collect();
        Self {
            now: Instant::default(),
            due: guards.keys().copied().collect(),
            woken: VecDeque::new(),
            guards,
            ops: Slab::new(),
            named: BTreeMap::new(),
            io: AreaIo::new(scratch),
            comparisons: Comparisons::default(),
            read_only,
            stored: BTreeMap::new(),
            answers: VecDeque::new(),
            closing: false,
            renewals: Vec::new(),
        }
    }

    /// Tells the time.
    pub(super) fn at(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.io.stores.now = self.now;
    }

    /// Looks at all members: some of their marks may be due.
    pub(super) fn tick(&mut self) {
        for member in self.io.stores.silent() {
            self.give_up_store(member, None);
        }
        self.due.extend(self.guards.keys());
    }

    /// Takes an action of the machine.
    pub(super) fn take(&mut self, action: Action) {
        self.comparisons.take_note(&action, self.read_only);
        match action {
            Action::Io { io, member, op } if self.guards.contains_key(&member) => {
                self.take_io(io, member, op);
            }
            Action::Abandon { io, .. } if self.named.contains_key(&io) => self.abandon(io),
            Action::Store { buf, bytes } => {
                if bytes.starts_with(&SUPERBLOCK_BEGINS) {
                    self.stored.insert(buf.offset, bytes.clone());
                }
                self.io.actions.push_back(Action::Store { buf, bytes });
            }
            action => self.io.actions.push_back(action),
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
            IoOp::Flush => return self.io.actions.push_back(Action::Io { io, member, op }),
        };
        let is_superblock = matches!(op, IoOp::Write { .. }) && sector == guard.place.superblock;
        match guard.data(sector, sectors) {
            _ if guard.is_over() => self.io.actions.push_back(Action::Io { io, member, op }),
            _ if is_superblock => self.take_superblock(io, member, op),
            None => self.io.actions.push_back(Action::Io { io, member, op }),
            Some(data) if matches!(op, IoOp::Read { .. }) => self.take_read(io, member, op, data),
            Some(data) => self.take_write(io, member, op, data),
        }
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
            OpKind::Superblock { issued, .. } => *issued,
        };
        let buf = op.op.buf();
        let member = op.member;
        let is_asked = self.io.abandon_op(index, buf);
        if !is_asked && !is_issued {
            self.due.insert(member);
        }
    }

    /// Takes all members as far as they go without waiting.
    pub(super) fn advance(&mut self) {
        loop {
            if let Some(index) = self.woken.pop_front() {
                if let Some(member) = self.ops.get(index).map(|op| op.member) {
                    self.advance_courses(member);
                    self.advance_op(index);
                }
            } else if let Some(member) = self.due.pop_first() {
                self.advance_member(member);
            } else {
                return;
            }
            self.run_errands();
        }
    }

    fn advance_member(&mut self, member: MemberId) {
        self.advance_courses(member);
        let ops = self.guards.get(&member).map_or_else(Vec::new, |guard| guard.ops.clone());
        for index in ops {
            self.advance_op(index);
        }
        if let Some(guard) = self.guards.get_mut(&member) {
            guard.have_failed();
        }
        self.advance_superblocks(member);
        self.advance_courses(member);
    }

    fn advance_op(&mut self, index: usize) {
        match self.ops.get(index).map(|op| &op.kind) {
            Some(OpKind::Read(_)) => self.advance_read(index),
            Some(OpKind::Write(_)) => self.advance_write(index),
            Some(OpKind::Superblock { .. }) | None => {}
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
        !self.ops.iter().any(|(_, op)| waits(op))
            && self.io.is_idle(|index| waits(&self.ops[index]))
            && self.answers.is_empty()
            && self.guards.values().all(Guard::is_at_rest)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let marks = self.guards.values().filter_map(Guard::due_at);
        marks.chain(self.io.stores.deadline()).min()
    }

    /// A member is gone, and may never answer: what was asked of it here is given up. What the
    /// machine has asked for it gives up itself.
    pub(super) fn lose(&mut self, member: MemberId) {
        let Some(guard) = self.guards.get_mut(&member) else { return };
        guard.leave();
        let cut_off = self.io.abandon_area(member);
        for op in cut_off {
            self.block_fails(op, IoError::ABANDONED);
        }
        self.due.insert(member);
    }

    /// A member is to leave: no more is begun for its area.
    pub(super) fn retire(&mut self, member: MemberId) {
        if let Some(guard) = self.guards.get_mut(&member) {
            guard.retire();
            self.due.insert(member);
        }
    }

    /// Returns whether nothing is under way for the area of a member.
    pub(super) fn rests(&self, member: MemberId) -> bool {
        self.guards.get(&member).is_none_or(Guard::is_at_rest) && self.io.rests(member)
    }

    /// Returns what is known of the members.
    pub(super) fn status(&self) -> IntegrityStatus {
        let members = self.guards.iter().map(|(id, guard)| guard.status(*id));
        IntegrityStatus { members: members.collect() }
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

/// The beginning of a superblock.
const SUPERBLOCK_BEGINS: [u8; 4] = SUPERBLOCK_MAGIC.to_le_bytes();
