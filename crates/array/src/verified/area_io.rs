//! What is asked for beside what a machine asks for: I/O on areas, which takes pages of memory, and
//! computations.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use slab::Slab;

use super::confirmed::ConfirmedBlocks;
use super::guard::CourseKind;
use crate::action::{Action, Compute};
use crate::array::Scratch;
use crate::integrity::IntegrityWrite;
use crate::{Buf, Instant, IoId, IoOp, MemberId};

/// Bytes of a page of memory, in which all metadata of an area are read and written.
pub(super) const PAGE_BYTES: u32 = 4096;
/// Pages of memory.
const PAGES: u64 = 64;
/// Position of the tag in the ids of what is asked for here. No machine has ids like that.
const TAG_SHIFT: u32 = 56;
const TAG: u64 = 0xff << TAG_SHIFT;

/// Something that takes a page of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Errand {
    /// A write of a course.
    Write { member: MemberId, kind: CourseKind, write: IntegrityWrite },
    /// A page of the table is read.
    Load { member: MemberId, page: u64 },
    /// A whole block is read of which an operation has asked for a part.
    Block { op: usize, member: MemberId, block: u64 },
}

/// Something that was asked for and is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Flight {
    /// An operation, on its member.
    Op(usize),
    /// Checksums of blocks of an operation.
    Sums { op: usize, blocks: Range<u64> },
    /// A write of a course from this page of memory.
    Write { member: MemberId, kind: CourseKind, write: IntegrityWrite, buf: Buf },
    /// Of the member, or of its store.
    Flush { member: MemberId, kind: CourseKind, stored: bool },
    /// A page of the table is read into this page of memory.
    Load { member: MemberId, page: u64, buf: Buf },
    /// It was read, and is looked at.
    Loaded { member: MemberId, page: u64, buf: Buf },
    /// A whole block is read, ...
    Block { op: usize, member: MemberId, block: u64, buf: Buf },
    /// ... its checksum formed, ...
    BlockSum { op: usize, block: u64, buf: Buf },
    /// ... and what was asked for of it copied, ...
    BlockCopy { op: usize, buf: Buf },
    /// ... or what is written to it laid over it, ...
    BlockLaid { op: usize, block: u64, buf: Buf },
    /// ... and summed.
    LaidSum { op: usize, block: u64, buf: Buf },
    /// Checksums of blocks that a comparison of the machine has confirmed.
    Confirmed { comparison: IoId, sums: ConfirmedBlocks },
    /// Given up: its member is gone. The memory is set aside until it is answered.
    Nobody { buf: Option<Buf> },
}

impl Errand {
    /// The member that it is about.
    pub(super) const fn member(&self) -> MemberId {
        match self {
            Self::Write { member, .. } | Self::Load { member, .. } | Self::Block { member, .. } => {
                *member
            }
        }
    }
}

impl Flight {
    /// The memory of something that was asked of a member for its area, or to verify a read; `None`
    /// in that for a flush. `None` if it is none of these.
    fn on_area_of(&self, asked: MemberId) -> Option<Option<Buf>> {
        match self {
            Self::Write { member, buf, .. }
            | Self::Load { member, buf, .. }
            | Self::Block { member, buf, .. } => (*member == asked).then_some(Some(*buf)),
            Self::Flush { member, .. } => (*member == asked).then_some(None),
            _ => None,
        }
    }

    /// Returns whether it was asked of what holds the area, of a member with a store.
    const fn is_metadata(&self) -> bool {
        match self {
            Self::Write { .. } | Self::Load { .. } => true,
            Self::Flush { stored, .. } => *stored,
            _ => false,
        }
    }

    /// Returns whether it is a computation in the memory of an operation.
    fn computes_for(&self, index: usize) -> bool {
        match self {
            Self::Sums { op, .. } | Self::BlockCopy { op, .. } | Self::BlockLaid { op, .. } => {
                *op == index
            }
            _ => false,
        }
    }
}

/// The stores that owe answers.
#[derive(Debug, Default)]
pub(super) struct Stores {
    pub(super) now: Instant,
    /// Answers owed, and the time since which the store has been silent.
    owing: BTreeMap<MemberId, (usize, Instant)>,
}

impl Stores {
    /// Time in which a store has to say something, as long as Linux gives a disk by default.
    const PATIENCE_MS: u64 = 30_000;

    fn asked(&mut self, member: MemberId) {
        self.owing.entry(member).or_insert((0, self.now)).0 += 1;
    }

    pub(super) fn answered(&mut self, member: MemberId) {
        let Some((owed, since)) = self.owing.get_mut(&member) else { return };
        (*owed, *since) = (*owed - 1, self.now);
        if *owed == 0 {
            self.owing.remove(&member);
        }
    }

    fn forget(&mut self, member: MemberId) {
        self.owing.remove(&member);
    }

    /// Returns when a store has been silent for too long.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let since = self.owing.values().map(|(_, since)| *since).min()?;
        Some(since.plus_millis(Self::PATIENCE_MS))
    }

    /// Returns the stores that have been.
    pub(super) fn silent(&self) -> Vec<MemberId> {
        let until = |since: Instant| since.plus_millis(Self::PATIENCE_MS);
        let silent = self.owing.iter().filter(|(_, (_, since))| until(*since) <= self.now);
        silent.map(|(member, _)| *member).collect()
    }
}

/// Actions for the executor, names of those that are asked for here, and memory for them.
#[derive(Debug)]
pub(super) struct AreaIo {
    flights: Slab<(u64, Flight)>,
    generation: u64,
    free_pages: Vec<Buf>,
    /// A page of zeroes, as the memory was given.
    pub(super) zeroes: Buf,
    /// These wait for a page of memory.
    pub(super) errands: VecDeque<Errand>,
    pub(super) actions: VecDeque<Action>,
    pub(super) stores: Stores,
}

impl AreaIo {
    /// Bytes of memory that it takes.
    pub(super) const SCRATCH_BYTES: u64 = PAGES * PAGE_BYTES as u64;

    pub(super) fn new(scratch: Scratch) -> Self {
        let page = |number| Buf {
            offset: scratch.offset + number * u64::from(PAGE_BYTES),
            len: PAGE_BYTES,
        };
        Self {
            flights: Slab::new(),
            generation: 0,
            free_pages: (1..PAGES).map(page).collect(),
            zeroes: page(0),
            errands: VecDeque::new(),
            actions: VecDeque::new(),
            stores: Stores::default(),
        }
    }

    /// Returns whether the answer with this id is for something that was asked for here.
    pub(super) const fn is_own(io: IoId) -> bool {
        io.0 >> TAG_SHIFT == TAG >> TAG_SHIFT
    }

    fn name(&mut self, flight: Flight) -> IoId {
        self.generation = (self.generation + 1) & 0xff_ffff;
        let slot = self.flights.insert((self.generation, flight));
        id(slot, self.generation)
    }

    /// Asks a member for something.
    pub(super) fn ask(&mut self, member: MemberId, op: IoOp, flight: Flight) {
        let io = self.name(flight);
        self.actions.push_back(Action::Io { io, member, op });
    }

    /// Asks what holds the area of a member for something: its store, or itself.
    pub(super) fn ask_area(&mut self, stored: bool, member: MemberId, op: IoOp, flight: Flight) {
        if !stored {
            return self.ask(member, op, flight);
        }
        self.stores.asked(member);
        let io = self.name(flight);
        self.actions.push_back(Action::IoBeside { io, member, op });
    }

    pub(super) fn compute(&mut self, compute: Compute, flight: Flight) {
        let io = self.name(flight);
        self.actions.push_back(Action::Compute { io, compute });
    }

    /// Asks for the bytes of a page of memory.
    pub(super) fn load(&mut self, buf: Buf, flight: Flight) {
        let io = self.name(flight);
        self.actions.push_back(Action::Load { io, buf });
    }

    /// Takes what this answer is for.
    ///
    /// # Panics
    /// When it was answered before.
    pub(super) fn landed(&mut self, io: IoId) -> Flight {
        let slot = (io.0 & 0xffff_ffff) as usize;
        let (generation, flight) = self.flights.remove(slot);
        assert_eq!(id(slot, generation), io, "an answer for an I/O that is over");
        flight
    }

    /// Takes something that waits for memory, and the memory.
    pub(super) fn next_errand(&mut self) -> Option<(Errand, Buf)> {
        let errand = self.errands.pop_front()?;
        if let Some(buf) = self.free_pages.pop() {
            return Some((errand, buf));
        }
        self.errands.push_front(errand);
        None
    }

    /// Gives back a page of memory, of which a part may be meant.
    pub(super) fn give(&mut self, buf: Buf) {
        self.free_pages.push(Buf { len: PAGE_BYTES, ..buf });
    }

    /// Gives up what was asked of a member for an operation, or computations in its memory. Returns
    /// whether the member was asked.
    pub(super) fn abandon_op(&mut self, index: usize, buf: Option<Buf>) -> bool {
        let asked = |flight: &Flight| *flight == Flight::Op(index);
        let is_asked = self.flights.iter().any(|(_, (_, flight))| asked(flight));
        for (slot, (generation, flight)) in &self.flights {
            if asked(flight) || !is_asked && flight.computes_for(index) {
                let io = id(slot, *generation);
                self.actions.push_back(Action::Abandon { io, buf });
            }
        }
        is_asked
    }

    /// Gives up all that was asked of the store of a member.
    pub(super) fn abandon_store(&mut self, member: MemberId) {
        let stays = |errand: &Errand| matches!(errand, Errand::Block { .. });
        self.errands.retain(|errand| errand.member() != member || stays(errand));
        self.abandon_flights(member, Flight::is_metadata);
    }

    /// Gives up all that was asked of a member for its area, which may never answer. Returns the
    /// operations that waited for a block of it.
    pub(super) fn abandon_area(&mut self, member: MemberId) -> Vec<usize> {
        let mut cut_off = Vec::new();
        self.errands.retain(|errand| {
            if let Errand::Block { op, .. } = errand
                && errand.member() == member
            {
                cut_off.push(*op);
            }
            errand.member() != member
        });
        cut_off.extend(self.abandon_flights(member, |_| true));
        cut_off
    }

    /// Gives up what is meant of all that was asked of a member for its area. Returns the
    /// operations that waited for a block of it.
    fn abandon_flights(
        &mut self,
        member: MemberId,
        is_meant: impl Fn(&Flight) -> bool,
    ) -> Vec<usize> {
        self.stores.forget(member);
        let mut cut_off = Vec::new();
        for (slot, (generation, flight)) in &mut self.flights {
            let Some(buf) = flight.on_area_of(member) else { continue };
            if !is_meant(flight) {
                continue;
            }
            if let Flight::Block { op, .. } = flight {
                cut_off.push(*op);
            }
            *flight = Flight::Nobody { buf };
            self.actions.push_back(Action::Abandon { io: id(slot, *generation), buf });
        }
        cut_off
    }

    /// Returns whether nothing is under way for the area of a member.
    pub(super) fn rests(&self, member: MemberId) -> bool {
        let on_area = |flight: &Flight| flight.on_area_of(member).is_some();
        !self.flights.iter().any(|(_, (_, flight))| on_area(flight))
            && !self.errands.iter().any(|errand| errand.member() == member)
    }

    /// Returns whether nothing is under way, but for operations that nobody `waits` for.
    pub(super) fn is_idle(&self, waits: impl Fn(usize) -> bool) -> bool {
        let of_nobody = |flight: &Flight| match flight {
            Flight::Op(index) => !waits(*index),
            Flight::Nobody { .. } => true,
            _ => false,
        };
        self.flights.iter().all(|(_, (_, flight))| of_nobody(flight))
            && self.errands.is_empty()
            && self.actions.is_empty()
    }

    pub(super) fn each_unused(&self, found: &mut dyn FnMut(Buf)) {
        self.free_pages.iter().for_each(|page| found(*page));
    }
}

const fn id(slot: usize, generation: u64) -> IoId {
    IoId(TAG | generation << 32 | slot as u64)
}
