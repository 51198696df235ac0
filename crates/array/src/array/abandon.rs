//! I/O that nobody waits for any more. A member that has failed may never answer, and holds up no
//! request, job, update, removal or stop. What is in flight on it counts as failed at once. Until
//! it is really answered, the kernel may still read or write its memory: scratch is set aside so
//! long, and a read into a request's own buffer is asked for again with another buffer.

use super::Array;
use super::members::{Member, State};
use crate::action::{Action, CommandId, IoError};
use crate::events::Fault;
use crate::{Buf, Instant, IoId, IoOp, MemberId};

/// How long a removal waits for what is in flight on a member.
const REMOVAL_MS: u64 = 5_000;
/// How long a member may answer nothing while a stop waits for it.
const STOP_MS: u64 = 60_000;

/// A removal that waits until nothing means the member any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Removal {
    id: CommandId,
    member: MemberId,
    /// Then what is in flight on it is left to itself.
    until: Instant,
}

impl Array {
    /// What is in flight on this member is not waited for any longer.
    pub(crate) fn abandon_member(&mut self, id: MemberId) {
        self.abandoning.extend(self.ios.waiting_on(id));
    }

    /// Answers what was given up, as failed.
    pub(crate) fn drive_abandoned(&mut self) {
        while let Some(io) = self.abandoning.pop_front() {
            let Some((owner, id, op)) = self.ios.abandon(io) else { continue };
            let buf = op.buf();
            self.lend(io, buf);
            self.actions.push_back(Action::Abandon { io, buf });
            if let Some(member) = self.members.get_mut(id) {
                member.in_flight -= 1;
            }
            self.tell_owner(owner, Some((id, op, IoError::ABANDONED)), None);
        }
    }

    /// The memory of an I/O that is not waited for: nobody may use it until the I/O is answered.
    pub(crate) fn lend(&mut self, io: IoId, buf: Option<Buf>) {
        if let Some(buf) = buf {
            self.pool.lend(io, buf);
        }
    }

    /// An I/O that nobody waited for is answered.
    pub(crate) fn unlend(&mut self, io: IoId) {
        if self.pool.unlend(io) {
            self.ready.extend(self.scratch_waiters.drain(..));
            self.pump_pages();
        }
    }

    /// Begins a removal: once the id is free another device may get it, so nothing may mean the
    /// old one.
    pub(crate) fn begin_removal(&mut self, id: CommandId, member: MemberId) {
        let until = self.now.plus_millis(REMOVAL_MS);
        self.removals.push(Removal { id, member, until });
    }

    /// Out of use, but for I/O in flight and plans made before.
    pub(crate) fn is_busy(&self, id: MemberId) -> bool {
        let Some(member) = self.members.get(id) else { return false };
        matches!(member.state, State::Faulty { .. } | State::Spare)
            && (member.in_flight > 0 || self.jobs.mention(id) || self.ios.abandoned_on(id))
    }

    /// Removes the members that have become quiet, or have had their time.
    pub(crate) fn drive_removals(&mut self) {
        for removal in std::mem::take(&mut self.removals) {
            let id = removal.member;
            if self.is_busy(id) {
                let in_time = self.now < removal.until;
                let spare = self.members.get(id).is_some_and(|m| m.state == State::Spare);
                if !in_time && spare {
                    self.fail_member(id, "does not answer", Fault::default());
                }
                if in_time || spare || self.jobs.mention(id) {
                    self.removals.push(removal);
                    continue;
                }
                self.ios.disown(id);
            }
            let before = self.meta.ticket();
            let answer = self.remove_command(id);
            self.reply(removal.id, before, answer);
        }
    }

    /// When a removal has waited long enough.
    pub(crate) fn removal_deadline(&self) -> Option<Instant> {
        self.removals.iter().map(|removal| removal.until).filter(|at| *at > self.now).min()
    }

    /// When a member that a stop waits for has been silent for too long.
    pub(crate) fn stop_deadline(&self) -> Option<Instant> {
        let (begun, live) = (self.impatient_since?, self.members.iter_live());
        let owing = live.filter(|(_, member)| member.in_flight > 0);
        let at = |(_, member): (_, &Member)| member.silent_since.max(begun).plus_millis(STOP_MS);
        owing.map(at).min()
    }

    /// The array ends soon: from now on members that answer nothing are given up after a while.
    pub(crate) const fn lose_patience(&mut self, now: Instant) {
        if self.impatient_since.is_none() && !self.over_arrays {
            self.impatient_since = Some(now);
        }
    }

    /// Its members are arrays, which give up those who do not answer themselves.
    pub(crate) const fn set_over_arrays(&mut self) {
        self.over_arrays = true;
    }

    /// Gives up the members that keep a stop waiting.
    pub(crate) fn tick_stop(&mut self) {
        let Some(begun) = self.impatient_since else { return };
        let silent = |(id, member): (MemberId, &Member)| {
            let since = member.silent_since.max(begun);
            let over = member.in_flight > 0 && since.plus_millis(STOP_MS) <= self.now;
            over.then_some(id)
        };
        let members: Vec<MemberId> = self.members.iter_live().filter_map(silent).collect();
        for id in members {
            self.fail_member(id, "does not answer", Fault::default());
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
