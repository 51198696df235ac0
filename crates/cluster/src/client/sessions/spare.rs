//! Spares: nodes that take the place of a member that is gone for good. Who may come back by itself
//! is waited for first. Until it is needed nobody is connected to a spare.

use braid_array::action::{Command, CommandId, NewMember};
use braid_array::{Instant, Refusal};

use super::recovery::Origin;
use super::setup::SessionState;
use crate::client::Client;
use crate::client::retry::pause_millis;

/// Attempts to use one.
#[derive(Debug)]
pub(in crate::client) struct Spares {
    /// How long a member is waited for that may come back by itself, in milliseconds.
    patience_ms: u64,
    /// Attempts that failed, and when there may be another.
    tries: u32,
    due: Instant,
}

impl Spares {
    pub(in crate::client) const fn new(patience_ms: u64) -> Self {
        Self { patience_ms, tries: 0, due: Instant(0) }
    }
}

impl Client {
    /// All members are there: a node that is added is a spare.
    pub(in crate::client) fn add_spare(
        &mut self,
        command: CommandId,
        mut new: NewMember,
    ) -> Result<(), Refusal> {
        let full = || Refusal::new("it has too many members", "remove one first");
        new.member = self.keeper.view().free_id().ok_or_else(full)?;
        new.device_sectors = self.engine.journals.sectors_before(new.device_sectors);
        let add = Command::Add(Box::new(new));
        self.with_traffic(|keeper, traffic| keeper.command(command, add, traffic));
        Ok(())
    }

    /// When a spare may have this role; `None` while somebody has it.
    fn role_due(&self, role: u16) -> Option<Instant> {
        if !self.keeper.view().is_vacant(role) || self.alive(role) {
            return None;
        }
        let session = &self.sessions[usize::from(role)];
        let waited_for = match session.state {
            SessionState::Missing => !self.absents.are_none(),
            SessionState::Returning(_) => true,
            _ => session.due.is_some(),
        };
        let gone_at = session.gone_at.unwrap_or_default();
        let due = if waited_for { gone_at.plus_millis(self.spares.patience_ms) } else { gone_at };
        // Who is just coming back is not sent away, but that takes only so long.
        let attempt = session.due.filter(|_| matches!(session.state, SessionState::Returning(_)));
        Some(attempt.map_or(due, |until| due.max(until)))
    }

    /// The role that is next to be given to a spare, and when.
    fn next_for_spare(&self) -> Option<(Instant, u16)> {
        self.keeper.view().spares().next()?;
        let may = self.may_return() && !self.is_taking_in();
        let roles = (0..self.shared.params().nodes).filter(|_| may);
        let due = |role| Some((self.role_due(role)?.max(self.spares.due), role));
        roles.filter_map(due).min()
    }

    pub(in crate::client) fn spare_deadline(&self) -> Option<Instant> {
        self.next_for_spare().map(|(due, _)| due)
    }

    /// Gives a spare the role of a member that stays away.
    pub(in crate::client) fn use_spares(&mut self) {
        let now = self.keeper.view().now();
        let Some((_, role)) = self.next_for_spare().filter(|&(due, _)| due <= now) else { return };
        // If one cannot be reached another one may.
        let count = self.keeper.view().spares().count().max(1);
        let next = self.keeper.view().spares().nth(self.spares.tries as usize % count);
        let Some(new) = next else { return };
        if self.begin_recovery(Origin::Spare, new, role).is_err() {
            self.spare_fails();
        }
    }

    /// It did not get the role this time.
    pub(in crate::client) fn spare_fails(&mut self) {
        self.spares.due = self.keeper.view().now().plus_millis(pause_millis(self.spares.tries));
        self.spares.tries = self.spares.tries.wrapping_add(1);
    }
}
