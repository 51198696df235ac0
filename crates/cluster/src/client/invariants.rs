//! What is true of a client whenever [`poll`](braid_array::Machine::poll) has got empty.

use braid_array::MemberId;
use braid_array::keeper::Carried;

use super::sessions::setup::SessionState;
use super::{Client, Machine, Phase, RequestKind, Session};

impl Client {
    pub(super) fn check_all(&self) -> Result<(), String> {
        let running = matches!(self.phase, Phase::Running);
        self.engine.check(&self.shared, &self.members, &self.out, running)?;
        self.every_wait_ends()?;
        if self.out.has_reports() {
            return Err("the keeper has not heard what was reported".to_owned());
        }
        self.keeper_is_told()
    }

    /// Whatever is not over ends: by the executor, which answers what it was asked and tells what
    /// became of a connection, by a deadline, as nodes may answer or not, or by a command.
    fn every_wait_ends(&self) -> Result<(), String> {
        let rests = self.idle() || self.quiet() && self.keeper.view().is_paused();
        let rests = rests && !matches!(self.phase, Phase::Setup);
        let connects = |session: &Session| session.state == SessionState::Connecting;
        let by_executor = !self.out.ios.is_empty() || self.sessions.iter().any(connects);
        if rests || by_executor || self.deadline().is_some() {
            return Ok(());
        }
        Err(format!("in {:?} it waits, and nothing is on its way or due", self.phase))
    }

    fn keeper_is_told(&self) -> Result<(), String> {
        let metas = self.out.requests.values();
        let metas = metas.filter(|(_, kind)| matches!(kind, RequestKind::Meta)).count();
        let (writers, work) = self.engine.counts(&self.shared);
        self.keeper.view().invariants(Carried {
            writers,
            writes: &self.engine.writes(&self.shared),
            work,
            updates: metas + self.untold.len(),
            on: &|id| self.asked_of(id),
        })
    }

    /// What a node has not answered, unless it is not waited for any more.
    fn asked_of(&self, id: MemberId) -> Option<usize> {
        if matches!(self.phase, Phase::Stopped) {
            return None;
        }
        let role = self.role_of(id).filter(|&role| self.alive(role))?;
        let requests = self.out.requests.values().filter(|(asked, _)| *asked == role);
        Some(requests.count() + self.engine.owed_by(&self.shared, role))
    }
}
