//! Spares: nodes that replace a member that is gone for good. A member that may return by itself is
//! waited for first. A spare is connected only when it is needed.

use braid_array::action::{Command, CommandId, NewMember};
use braid_array::{Instant, Refusal, Role};

use super::KeeperSide;
use super::recovery::Origin;
use crate::client::parts::Parts;
use crate::client::retry::pause_millis;
use crate::client::sessions::session::SessionState;

/// Attempts to use one.
#[derive(Debug)]
pub(super) struct Spares {
    /// Time to wait for a member that may return by itself, in milliseconds.
    patience_ms: u64,
    /// Failed attempts, and the time of the next one.
    tries: u32,
    due: Instant,
}

impl Spares {
    pub(super) const fn new(patience_ms: u64) -> Self {
        Self { patience_ms, tries: 0, due: Instant(0) }
    }

    /// Notes that a spare did not get the role.
    pub(super) fn failed(&mut self, now: Instant) {
        self.due = now.plus_millis(pause_millis(self.tries));
        self.tries = self.tries.wrapping_add(1);
    }
}

/// Adds a node as a spare: all members are there.
pub(super) fn add(
    parts: &mut Parts,
    command: CommandId,
    mut new: NewMember,
) -> Result<(), Refusal> {
    let full = || Refusal::new("it has too many members", "remove one first");
    new.member = parts.keeper.view().free_id().ok_or_else(full)?;
    new.device_sectors = parts.engine.journals.sectors_before(new.device_sectors);
    let add = Command::Add(Box::new(new));
    parts.with_traffic(|keeper, traffic| keeper.command(command, add, traffic));
    Ok(())
}

impl KeeperSide {
    /// Returns the time from which a spare may have this role; `None` while the role is taken.
    fn role_due(&self, parts: &Parts, role: Role) -> Option<Instant> {
        if !parts.keeper.view().is_vacant(role) || parts.alive(role) {
            return None;
        }
        let session = parts.session(role);
        let waited_for = match session.state {
            SessionState::Missing => !self.absents.are_none(),
            SessionState::Negotiating(_) => true,
            SessionState::Ready | SessionState::Lost => session.due.is_some(),
        };
        let gone_at = session.gone_at.unwrap_or_default();
        let due = if waited_for { gone_at.plus_millis(self.spares.patience_ms) } else { gone_at };
        // Who is just coming back is not sent away, but that takes only so long.
        let attempt = if session.is_coming() { session.due } else { None };
        Some(attempt.map_or(due, |until| due.max(until)))
    }

    /// Returns the next role for a spare, and its time.
    fn next_for_spare(&self, parts: &Parts) -> Option<(Instant, Role)> {
        parts.keeper.view().spares().next()?;
        if !parts.may_return() || self.is_taking_in() {
            return None;
        }
        let due = |role| Some((self.role_due(parts, role)?.max(self.spares.due), role));
        parts.sessions.list.roles().filter_map(due).min()
    }

    pub(super) fn spare_deadline(&self, parts: &Parts) -> Option<Instant> {
        self.next_for_spare(parts).map(|(due, _)| due)
    }

    /// Gives a spare the role of a member that stays away.
    pub(super) fn use_spares(&mut self, parts: &mut Parts) {
        let now = parts.keeper.view().now();
        let next = self.next_for_spare(parts).filter(|&(due, _)| due <= now);
        let Some((_, role)) = next else { return };
        // If one cannot be reached another one may.
        let count = parts.keeper.view().spares().count().max(1);
        let next = parts.keeper.view().spares().nth(self.spares.tries as usize % count);
        let Some(new) = next else { return };
        if self.begin_recovery(parts, Origin::Spare, new, role).is_err() {
            self.spares.failed(now);
        }
    }
}
