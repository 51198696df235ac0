//! Invariants of a client that hold whenever [`poll`](braid_array::Machine::poll) is empty.

use braid_array::keeper::Carried;
use braid_array::{Instant, MemberId};

use super::out::RequestKind;
use super::parts::Parts;
use super::{Client, ClientPhase};

impl Client {
    /// Checks all invariants; `due` is the client's deadline.
    pub(super) fn check_all(&self, due: Option<Instant>) -> Result<(), String> {
        let Parts { engine, shared, members, out, .. } = &self.parts;
        engine.check(shared, members, out, matches!(self.parts.phase, ClientPhase::Running))?;
        self.every_wait_ends(due)?;
        if out.has_reports() {
            return Err("the keeper has not heard what was reported".to_owned());
        }
        self.keeper_is_told()
    }

    /// Checks that every wait ends: by the executor, which answers requests and reports
    /// connections, by a deadline, or by a command.
    fn every_wait_ends(&self, due: Option<Instant>) -> Result<(), String> {
        let rests =
            self.parts.are_idle() || self.parts.quiet() && self.parts.keeper.view().is_paused();
        let rests = rests && !self.parts.is_starting();
        let connects = self.parts.sessions.list.any_connecting();
        let by_executor = !self.parts.out.ios.is_empty() || connects;
        if rests || by_executor || due.is_some() {
            return Ok(());
        }
        Err(format!("in {:?} it waits, and nothing is on its way or due", self.parts.phase))
    }

    fn keeper_is_told(&self) -> Result<(), String> {
        let metas = self.parts.out.requests.values();
        let metas = metas.filter(|(_, kind)| matches!(kind, RequestKind::Meta)).count();
        let (writers, work) = self.parts.engine.counts(&self.parts.shared);
        self.parts.keeper.view().invariants(Carried {
            writers,
            writes: &self.parts.engine.writes(&self.parts.shared),
            work,
            updates: metas + self.untold.len(),
            on: &|id| self.asked_of(id),
        })
    }

    /// Returns the number of answers that a node owes; `None` if it is no longer waited for.
    fn asked_of(&self, id: MemberId) -> Option<usize> {
        if matches!(self.parts.phase, ClientPhase::Stopped) {
            return None;
        }
        let role = self.parts.alive_role_of(id)?;
        let requests = self.parts.out.requests.values().filter(|(asked, _)| *asked == role.into());
        Some(requests.count() + self.parts.engine.owed_by(&self.parts.shared, role))
    }
}
