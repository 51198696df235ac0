//! Spares: nodes that take the place of a member that is gone for good. Who may come back by itself
//! is waited for first. Until it is needed nobody is connected to a spare.

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
    /// How long a member is waited for that may come back by itself, in milliseconds.
    patience_ms: u64,
    /// Attempts that failed, and when there may be another.
    tries: u32,
    due: Instant,
}

impl Spares {
    pub(super) const fn new(patience_ms: u64) -> Self {
        Self { patience_ms, tries: 0, due: Instant(0) }
    }

    /// One did not get the role this time.
    pub(super) fn failed(&mut self, now: Instant) {
        self.due = now.plus_millis(pause_millis(self.tries));
        self.tries = self.tries.wrapping_add(1);
    }
}

/// All members are there: a node that is added is a spare.
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
    /// When a spare may have this role; `None` while somebody has it.
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

    /// The role that is next to be given to a spare, and when.
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
