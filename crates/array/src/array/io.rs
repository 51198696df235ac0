//! I/O in flight: who asked for it, on which member.

use std::collections::VecDeque;

use slab::Slab;

use super::Array;
use crate::action::{Action, IoError, Outcome};
use crate::keeper::Tried;
use crate::{Buf, IoId, IoOp, MemberId};

/// Who gets the answer.
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
    /// It was given up; what was in flight for is told already.
    Nobody,
}

/// A piece of a read, as needed to try it again elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainRead {
    pub(crate) request: usize,
    pub(crate) sector: u64,
    pub(crate) buf: Buf,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    owner: Owner,
    /// `None`: a computation.
    member: Option<(MemberId, IoOp)>,
}

/// The table of I/O in flight; ids carry a generation so that a stray answer is noticed. The top
/// byte of an id is left to [`crate::stack`].
#[derive(Debug, Default)]
pub(crate) struct Ios {
    entries: Slab<(u64, Entry)>,
    generation: u64,
    /// Those that somebody waits for.
    pub(crate) in_flight: usize,
    /// To be given up: their members have failed.
    pub(crate) abandoning: VecDeque<IoId>,
}

impl Ios {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { entries: Slab::with_capacity(capacity), ..Self::default() }
    }

    fn insert(&mut self, entry: Entry) -> IoId {
        self.generation = (self.generation + 1) & 0xff_ffff;
        let index = self.entries.insert((self.generation, entry));
        self.in_flight += 1;
        IoId(self.generation << 32 | index as u64)
    }

    fn remove(&mut self, io: IoId) -> Entry {
        let index = (io.0 & 0xffff_ffff) as usize;
        let (generation, entry) =
            self.entries.try_remove(index).expect("an answer for an I/O in flight");
        assert_eq!(generation, io.0 >> 32, "an answer for an I/O that is over");
        self.in_flight -= usize::from(entry.owner != Owner::Nobody);
        entry
    }

    /// What is in flight on this member is to be given up.
    pub(crate) fn give_up(&mut self, id: MemberId) {
        let waiting: Vec<IoId> = self.waiting_on(id).collect();
        self.abandoning.extend(waiting);
    }

    /// What somebody waits for on this member.
    fn waiting_on(&self, id: MemberId) -> impl Iterator<Item = IoId> + '_ {
        let waiting = move |entry: &Entry| {
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

    /// Whom the answers are for, and on which member.
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
        Some((std::mem::replace(&mut entry.owner, Owner::Nobody), id, op))
    }

    /// Is anything on this member not answered that was given up?
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

impl Array {
    /// Sends one I/O to a member.
    pub(crate) fn issue(&mut self, member: MemberId, op: IoOp, owner: Owner) {
        let io = self.ios.insert(Entry { owner, member: Some((member, op)) });
        self.keeper.asked(member);
        if let IoOp::Read { sector, buf } = op {
            let end = sector + u64::from(buf.len) / crate::SECTOR_BYTES;
            self.keeper.note_read_up_to(member, end);
        }
        self.actions.push_back(Action::Io { io, member, op });
    }

    /// Hands one computation to the executor.
    pub(crate) fn issue_compute(&mut self, compute: crate::Compute, job: usize) {
        let io = self.ios.insert(Entry { owner: Owner::Job(job), member: None });
        self.actions.push_back(Action::Compute { io, compute });
    }

    /// An answer came.
    pub(crate) fn io_done(&mut self, io: IoId, result: Result<Outcome, IoError>) {
        let entry = self.ios.remove(io);
        if entry.owner == Owner::Nobody {
            self.unlend(io);
            return;
        }
        let mut failed = None;
        if let Some((id, op)) = entry.member {
            self.keeper.answered(id);
            match (result, op) {
                (Err(error), _) if self.put_off(id, op, entry.owner, error) => return,
                (Err(error), _) => {
                    failed = Some((id, op, error));
                    self.note_error(id, op, entry.owner, error);
                }
                (Ok(_), IoOp::Read { sector, buf }) => {
                    let sectors = u64::from(buf.len) / crate::SECTOR_BYTES;
                    self.keeper.note_readable(id, sector, sectors);
                }
                (Ok(_), IoOp::Write { .. }) => self.keeper.note_room(id),
                _ => {}
            }
        }
        self.tell_owner(entry.owner, failed, result.ok());
    }

    /// Tells who asked for an I/O how it went.
    pub(crate) fn tell_owner(
        &mut self,
        owner: Owner,
        failed: Option<(MemberId, IoOp, IoError)>,
        outcome: Option<Outcome>,
    ) {
        match owner {
            Owner::PlainRead(read) => self.plain_read_done(read, failed.map(|f| (f.0, f.2))),
            Owner::Plain { request } => {
                let error = failed.and_then(|(id, op, error)| self.plain_error(id, op, error));
                self.piece_done(request, error.map_or(Ok(()), Err));
            }
            Owner::Job(job) => self.job_io_done(job, failed, outcome),
            Owner::Meta { page } => self.meta_io_done(page),
            Owner::Nobody => {}
        }
    }

    /// Tells the keeper of an I/O that failed.
    fn note_error(&mut self, id: MemberId, op: IoOp, owner: Owner, error: IoError) {
        if matches!(op, IoOp::Discard { .. }) {
            return;
        }
        let changes = matches!(op, IoOp::Write { .. } | IoOp::WriteZeroes { .. } | IoOp::Flush);
        let must_land = self.must_land(owner);
        self.keeper.failed_io(id, Tried { sector: op.sector(), changes, must_land }, error);
        self.carry_out();
    }
}
