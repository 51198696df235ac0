//! Members that answer nothing, or have no room: how long they are waited for.

use super::members::State;
use super::{Keeper, LaneCommand, Traffic};
use crate::action::CommandId;
use crate::events::{ArrayEvent, Fault};
use crate::{Instant, MemberId};

/// How long a removal waits for what is in flight on a member.
const REMOVAL_MS: u64 = 5_000;
/// After so long without room for what must be written, that counts as a write error.
const FULL_MS: u64 = 60_000;

/// A removal that waits until nothing means the member any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Removal {
    id: CommandId,
    member: MemberId,
    /// Then what is in flight on it is left to itself.
    until: Instant,
}

impl Keeper {
    /// Begins a removal: once the id is free another device may get it, so nothing may mean the
    /// old one.
    pub(super) fn begin_removal(&mut self, id: CommandId, member: MemberId) {
        let until = self.now.plus_millis(REMOVAL_MS);
        self.removals.push(Removal { id, member, until });
    }

    /// Out of use, but for I/O in flight and plans made before.
    pub(super) fn is_busy(&self, id: MemberId, traffic: Traffic<'_>) -> bool {
        let Some(member) = self.members.get(id) else { return false };
        let unused = matches!(member.state, State::Faulty { .. } | State::Spare);
        unused && (member.in_flight > 0 || traffic.is_meant(id))
    }

    /// Removes the members that have become quiet, or have had their time.
    pub fn drive_removals(&mut self, traffic: Traffic<'_>) {
        for removal in std::mem::take(&mut self.removals) {
            let id = removal.member;
            if self.is_busy(id, traffic) {
                let in_time = self.now < removal.until;
                let spare = self.members.get(id).is_some_and(|m| m.state == State::Spare);
                if !in_time && spare {
                    self.fail_member(id, "does not answer", Fault::default());
                }
                if in_time || spare || (traffic.plans)(id) {
                    self.removals.push(removal);
                    continue;
                }
                self.out.push_back(LaneCommand::Disown(id));
            }
            let before = self.meta.ticket();
            let answer = self.remove_command(id);
            self.reply(removal.id, before, answer);
        }
    }

    /// When a removal has waited long enough.
    pub(super) fn removal_deadline(&self) -> Option<Instant> {
        self.removals.iter().map(|removal| removal.until).filter(|at| *at > self.now).min()
    }

    /// The members that live and owe an answer, and since when they have been silent.
    pub fn owing(&self) -> impl Iterator<Item = (MemberId, Instant)> {
        let owing = self.members.iter_live().filter(|(_, member)| member.in_flight > 0);
        owing.map(|(id, member)| (id, member.silent_since))
    }

    /// When a member that a stop waits for has been silent for too long.
    pub(super) fn stop_deadline(&self) -> Option<Instant> {
        let (begun, patience_ms) = (self.stop.impatient_since?, self.rules.stop_patience_ms);
        self.owing().map(|(_, since)| since.max(begun).plus_millis(patience_ms)).min()
    }

    /// The array ends soon: from now on members that answer nothing are given up after a while.
    pub const fn lose_patience(&mut self, now: Instant) {
        if self.stop.impatient_since.is_none() && !self.stop.over_arrays {
            self.stop.impatient_since = Some(now);
        }
    }

    /// Its members are arrays, which give up those who do not answer themselves.
    pub const fn set_over_arrays(&mut self) {
        self.stop.over_arrays = true;
    }

    /// Gives up the members that keep a stop waiting.
    pub(super) fn tick_stop(&mut self) {
        let Some(begun) = self.stop.impatient_since else { return };
        let patience_ms = self.rules.stop_patience_ms;
        let over = |since: Instant| since.max(begun).plus_millis(patience_ms) <= self.now;
        let silent: Vec<(MemberId, Instant)> = self.owing().filter(|&(_, at)| over(at)).collect();
        for (id, _) in silent {
            self.fail_member(id, "does not answer", Fault::default());
        }
    }

    /// A member has no room for what must be written. Is it worth trying again?
    pub fn is_full(&mut self, id: MemberId, fault: Fault) -> bool {
        let now = self.now;
        let live = self.members.get_mut(id).filter(|member| member.state.is_live());
        let Some(member) = live else { return false };
        let again = now < member.full_since.get_or_insert(now).plus_millis(FULL_MS);
        if again {
            self.notify(ArrayEvent::MemberFull { member: id, fault });
        }
        again
    }
}
