//! Invariants of a keeper whose lane has taken all commands. The simulator checks them after every
//! event: a broken one shows long before a wrong byte does.

use super::members::State;
use super::{KeeperView, Redundancy};
use crate::events::SyncAction;
use crate::format::superblock::MAX_SECTOR;
use crate::{MemberId, Role};

/// Work that the lane has under way, as the keeper must have it in its books.
#[derive(Clone, Copy)]
pub struct Carried<'a> {
    /// Requests that change data.
    pub writers: usize,
    /// The ranges of sync space in which writes have begun, and whether they write already.
    pub writes: &'a [(u64, u64, bool)],
    /// Units of background work, and parts of such.
    pub work: usize,
    /// Flushes and writes of the running update.
    pub updates: usize,
    /// I/O that is waited for on a member; `None` when nobody counts.
    pub on: &'a dyn Fn(MemberId) -> Option<usize>,
}

impl KeeperView<'_> {
    /// Checks the invariants.
    ///
    /// # Errors
    /// The first broken invariant, as text for people.
    pub fn invariants(self, lane: Carried<'_>) -> Result<(), String> {
        if !self.keeper.core.out.0.is_empty() {
            return Err("what the keeper asks for was not taken".to_owned());
        }
        self.roles_are_held_once()?;
        self.members_are_sound(lane.on)?;
        self.tickets_are_filed()?;
        let resynced = self.keeper.core.metadata.clean.resynced;
        let at = self.keeper.sync.first_at(SyncAction::Resync);
        if resynced != MAX_SECTOR && at.is_some_and(|at| at < resynced) {
            return Err(format!("in sync up to {resynced}, with {at:?} under way"));
        }
        let counts = [
            ("writers", lane.writers, self.keeper.core.metadata.clean.writers),
            ("units of work", lane.work, self.keeper.sync.in_flight()),
            (
                "parts of an update",
                lane.updates,
                self.keeper.core.metadata.running.as_ref().map_or(0, |update| update.pending),
            ),
        ];
        if let Some((what, real, counted)) = counts.iter().find(|(_, a, b)| a != b) {
            return Err(format!("{real} {what}, counted {counted}"));
        }
        self.writes_are_announced(lane.writes)
    }

    fn roles_are_held_once(self) -> Result<(), String> {
        for (id, member) in self.keeper.core.members.iter() {
            if !member.state.is_live() {
                continue;
            }
            let Some(role) = member.state.role() else { continue };
            let entry = self.keeper.core.members.role(role);
            let beside = match member.state {
                State::Rebuilding { replacement, .. } => replacement,
                state => matches!(state, State::Retiring { .. }),
            };
            let listed = if beside { entry.beside } else { entry.holder };
            if listed != Some(id) {
                return Err(format!("role {role} is {:?}'s and {id:?}'s", listed));
            }
            let held = entry.holder.is_some_and(|holder| self.keeper.core.members.live(holder));
            if beside && !held {
                return Err(format!("{id:?} is beside nobody in role {role}"));
            }
        }
        let lost = |role: Role| !self.keeper.core.members.in_sync(role);
        if !self.keeper.core.service.failed
            && !self.keeper.core.service.read_only
            && !self.keeper.core.space.survives(&lost)
        {
            return Err("too many members are gone, and the array has not failed".to_owned());
        }
        Ok(())
    }

    fn members_are_sound(self, on: &dyn Fn(MemberId) -> Option<usize>) -> Result<(), String> {
        let mut numbers = Vec::new();
        for (id, member) in self.keeper.core.members.iter() {
            let number = member.superblock.dev_number;
            if numbers.contains(&number) {
                return Err(format!("{id:?} has the number {number} of another member"));
            }
            numbers.push(number);
            let counted = member.in_flight as usize;
            if let Some(real) = on(id).filter(|real| *real != counted) {
                return Err(format!("{real} I/Os on {id:?}, counted {counted}"));
            }
            if let State::Rebuilding { offset, .. } = member.state {
                let durable = member.superblock.recovery_offset;
                if offset > self.keeper.core.space.member_sectors() {
                    return Err(format!("{id:?} is rebuilt up to {offset}, beyond its end"));
                }
                let at = self.keeper.sync.first_at(SyncAction::Recovery);
                if self.keeper.sync.rebuilds_only(id) && at.is_some_and(|at| at < offset) {
                    return Err(format!("{id:?} is rebuilt to {offset}, with {at:?} under way"));
                }
                // While superblocks say that writes are under way, a resync goes over it anyway.
                if durable > offset && self.keeper.core.metadata.clean.on_disk {
                    return Err(format!("{id:?} is rebuilt to {offset}, and says {durable}"));
                }
            }
        }
        Ok(())
    }

    fn tickets_are_filed(self) -> Result<(), String> {
        // A failure takes two updates, and the second is filed when the first is done.
        let last =
            self.keeper.core.metadata.ticket() + u64::from(self.keeper.failures.first.is_some());
        let replies = self.keeper.replies.iter().map(|(ticket, _)| *ticket);
        let tickets = [self.keeper.failures.ticket, self.keeper.core.metadata.clean.ticket]
            .into_iter()
            .chain(replies.clone());
        if let Some(ticket) = tickets.max().filter(|ticket| *ticket > last) {
            return Err(format!("update {ticket} is waited for, and {last} is the last"));
        }
        if replies.min().is_some_and(|ticket| self.keeper.core.metadata.is_done(ticket)) {
            return Err("a command that is done was not answered".to_owned());
        }
        let waiting = !self.keeper.replies.is_empty() || !self.failures_told();
        if waiting && self.keeper.core.metadata.is_idle() && self.keeper.failures.first.is_none() {
            return Err("an update is waited for, and none is due".to_owned());
        }
        Ok(())
    }

    fn writes_are_announced(self, writes: &[(u64, u64, bool)]) -> Result<(), String> {
        if self.keeper.core.space.redundancy() == Redundancy::None
            || self.keeper.core.service.failed
        {
            return Ok(());
        }
        if let Some(intent) = &self.keeper.core.metadata.intent {
            intent.check(writes)?;
        }
        for (start, end, writing) in writes {
            if !self.keeper.core.metadata.clean.active {
                return Err(format!("a write of {start}..{end} has begun in an idle array"));
            }
            if *writing
                && (self.keeper.core.metadata.clean.on_disk
                    || !self.keeper.core.metadata.is_done(self.keeper.core.metadata.clean.ticket))
            {
                return Err(format!("a write of {start}..{end} while superblocks say clean"));
            }
        }
        Ok(())
    }
}
