//! I/O in flight: who asked for it, on which member.

use std::collections::VecDeque;

use slab::Slab;

use super::elders::{Born, Elders};
use crate::{Buf, IoId, IoOp, MemberId};

/// The part of the array that gets the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A read that needs no plan.
    PlainRead(PlainRead),
    /// A write, zeroing, discard or flush of a request that needs no plan.
    Plain { request: usize },
    /// A planned operation.
    Job(usize),
    /// The keeper's running update; the page it was written from.
    Meta { page: Option<u64> },
    /// The partial parity logs.
    PartialParity(PartialParityIo),
    /// The journal.
    Journal(JournalIo),
    /// The recovery, which brings in place what a log told when the array starts.
    Recovery(RecoveryIo),
    /// A header of what is saved beside the members, from this page; or the flush before it.
    Spill { page: Option<u64> },
    /// A page that is read from the journal into the memory for dirty pages, by its number.
    Loading(usize),
    /// A part of a read of a read-only array, by the number of the read.
    Overlay(usize),
    /// Abandoned: its owner was already informed.
    Nobody,
}

impl Owner {
    /// Returns whether this is the log of writes, or brings in place or lays over what a log told.
    pub(crate) const fn is_log(self) -> bool {
        match self {
            Self::PartialParity(_)
            | Self::Journal(_)
            | Self::Recovery(_)
            | Self::Loading(_)
            | Self::Overlay(_) => true,
            Self::PlainRead(_)
            | Self::Plain { .. }
            | Self::Job(_)
            | Self::Meta { .. }
            | Self::Spill { .. }
            | Self::Nobody => false,
        }
    }
}

/// I/O and computations of the partial parity logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartialParityIo {
    /// The writing of a unit, or the clearing of its area, on this member.
    Unit(MemberId),
    /// A sum or checksum of an entry of that unit, by its number.
    Entry(MemberId, u16),
    /// A flush of one member.
    Flush,
}

/// I/O and computations of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalIo {
    /// A page that was recorded without parity is read, to be recorded anew.
    Read,
    /// Blocks or pages are written.
    Write,
    /// The checksum of a page of the batch, by its number.
    Sum(u16),
    /// A flush of the journal's device.
    Flush,
}

/// I/O and computations of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecoveryIo {
    /// I/O or a computation of a step, by its number.
    Step(usize),
    /// A flush of one member.
    Flush,
}

/// A piece of a read, as needed to try it again elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainRead {
    pub(crate) request: usize,
    pub(crate) sector: u64,
    pub(crate) buf: Buf,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct IoEntry {
    pub(super) owner: Owner,
    /// `None`: a computation.
    pub(super) member: Option<(MemberId, IoOp)>,
    born: Born,
}

/// The table of I/O in flight; ids carry a generation so that a stray answer is noticed. The top
/// byte of an id is left to [`crate::stack`].
#[derive(Debug, Default)]
pub(crate) struct Ios {
    entries: Slab<(u64, IoEntry)>,
    generation: u64,
    /// The number of those that somebody waits for.
    pub(crate) in_flight: usize,
    /// To be given up: their members have failed.
    pub(crate) abandoning: VecDeque<IoId>,
    pub(super) elders: Elders,
}

impl Ios {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { entries: Slab::with_capacity(capacity), ..Self::default() }
    }

    /// `member`: `None` for a computation.
    pub(super) fn insert(&mut self, owner: Owner, member: Option<(MemberId, IoOp)>) -> IoId {
        self.generation = (self.generation + 1) & 0xff_ffff;
        let born = self.elders.begin();
        let index = self.entries.insert((self.generation, IoEntry { owner, member, born }));
        self.in_flight += 1;
        IoId(self.generation << 32 | index as u64)
    }

    pub(super) fn remove(&mut self, io: IoId) -> IoEntry {
        let index = (io.0 & 0xffff_ffff) as usize;
        let (generation, entry) =
            self.entries.try_remove(index).expect("an answer for an I/O in flight");
        assert_eq!(generation, io.0 >> 32, "an answer for an I/O that is over");
        if entry.owner != Owner::Nobody {
            self.in_flight -= 1;
            self.elders.end(entry.born);
        }
        entry
    }

    /// Puts all I/O in flight on this member up for abandoning.
    pub(crate) fn give_up(&mut self, id: MemberId) {
        let waiting: Vec<IoId> = self.waiting_on(id).collect();
        self.abandoning.extend(waiting);
    }

    /// Lists the I/O on this member that somebody waits for.
    fn waiting_on(&self, id: MemberId) -> impl Iterator<Item = IoId> + '_ {
        let waiting = move |entry: &IoEntry| {
            entry.owner != Owner::Nobody && entry.member.is_some_and(|(member, _)| member == id)
        };
        self.entries
            .iter()
            .filter(move |(_, (_, entry))| waiting(entry))
            .map(|(index, (generation, _))| IoId(generation << 32 | index as u64))
    }

    /// On members, also those that nobody waits for.
    pub(crate) fn on_members(&self) -> usize {
        self.entries.iter().filter(|(_, (_, entry))| entry.member.is_some()).count()
    }

    /// Lists the owners of all answers that are due, each with the member.
    pub(crate) fn owners(&self) -> impl Iterator<Item = (Owner, Option<MemberId>)> + '_ {
        self.entries.iter().map(|(_, (_, entry))| (entry.owner, entry.member.map(|(id, _)| id)))
    }

    /// Takes an I/O on a member from its owner; `None` when it has been answered meanwhile.
    pub(crate) fn abandon(&mut self, io: IoId) -> Option<(Owner, MemberId, IoOp)> {
        let (generation, entry) = self.entries.get_mut((io.0 & 0xffff_ffff) as usize)?;
        if *generation != io.0 >> 32 {
            return None;
        }
        let (id, op) = entry.member?;
        self.in_flight -= 1;
        self.elders.end(entry.born);
        Some((std::mem::replace(&mut entry.owner, Owner::Nobody), id, op))
    }

    /// Returns whether I/O on this member was given up and is not answered.
    pub(crate) fn abandoned_on(&self, id: MemberId) -> bool {
        self.entries.iter().any(|(_, (_, entry))| {
            entry.owner == Owner::Nobody && entry.member.is_some_and(|(member, _)| member == id)
        })
    }

    /// The id will mean another member: what was given up belongs to none.
    pub(crate) fn disown(&mut self, id: MemberId) {
        for (_, (_, entry)) in &mut self.entries {
            if entry.member.is_some_and(|(member, _)| member == id) {
                entry.member = None;
            }
        }
    }
}

impl IoOp {
    /// The memory it works on.
    pub(crate) const fn buf(self) -> Option<Buf> {
        match self {
            Self::Read { buf, .. } | Self::Write { buf, .. } => Some(buf),
            Self::WriteZeroes { .. } | Self::Discard { .. } | Self::Flush => None,
        }
    }
}
