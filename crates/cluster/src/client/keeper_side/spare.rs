//! Spares: nodes that replace a member that is gone for good. A member that may return by itself is
//! waited for first. A spare is connected only when it is needed.

use braid_array::{Instant, Role};

use super::KeeperSide;
use super::command::{JoinCommand, JoinFacts, Origin, Recovery, Vacancy};
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

    /// Returns the time from which a spare may have this role. `absent`: absent members are looked
    /// for.
    fn role_due(&self, vacancy: &Vacancy, absent: bool) -> Instant {
        let Vacancy { state, due, gone_at, .. } = *vacancy;
        let (waited_for, attempt) = match state {
            SessionState::Missing => (absent, None),
            // Who is just coming back is not sent away, but that takes only so long.
            SessionState::Negotiating(_) => (true, due),
            SessionState::Ready | SessionState::Lost => (due.is_some(), None),
        };
        let due = if waited_for { gone_at.plus_millis(self.patience_ms) } else { gone_at };
        due.max(attempt.unwrap_or_default()).max(self.due)
    }
}

impl KeeperSide {
    /// Returns the next role for a spare, and its time.
    pub(super) fn next_for_spare(&self, facts: &JoinFacts) -> Option<(Instant, Role)> {
        if facts.spares.is_empty() || !facts.may_return || self.is_taking_in() {
            return None;
        }
        let absent = !self.absents.are_none();
        let due = |vacancy| (self.spares.role_due(vacancy, absent), vacancy.role);
        facts.vacancies.iter().map(due).min()
    }

    /// Gives a spare the role of a member that stays away. If one cannot be reached another one
    /// may.
    pub(super) fn use_spares(&mut self, facts: &JoinFacts) {
        let next = self.next_for_spare(facts).filter(|&(due, _)| due <= self.now);
        let Some((_, place)) = next else { return };
        let number = self.spares.tries as usize % facts.spares.len();
        let new = Box::new(facts.spares[number].clone());
        let origin = Origin::Spare;
        self.commands.push_back(JoinCommand::Recover(Recovery { origin, new, place }));
    }
}
