//! The end of the array. What is under way is finished first, unless a node keeps it waiting: one
//! that owes something and says nothing is given up, and the array is not called clean.

use braid_array::Refusal;

use super::{Client, Instant, Phase};

/// How long a node may say nothing then. Whoever stops an array waits for it.
const PATIENCE_MILLIS: u64 = 10_000;

impl Client {
    pub(super) fn stop_deadline(&self) -> Option<Instant> {
        (0..self.params().nodes).filter_map(|role| self.given_up_at(role)).min()
    }

    pub(super) fn stop_tick(&mut self) {
        for role in 0..self.params().nodes {
            if self.given_up_at(role).is_some_and(|at| at <= self.now) {
                let next = "see whether the node is overloaded, or its link is down";
                self.hang_up_on(role, Refusal::new("it does not answer", next));
            }
        }
    }

    /// When a node that the stop waits for has been silent for too long.
    fn given_up_at(&self, role: u16) -> Option<Instant> {
        let Phase::Stopping { since, .. } = self.phase else { return None };
        let link = &self.links[usize::from(role)];
        let asked = || self.questions.values().any(|&(asked, _)| asked == role);
        let writes = || self.open.values().any(|set| set.parts.contains(&role));
        let owes = link.alive() && (link.load() > 0 || asked() || writes());
        owes.then(|| link.heard.max(since).plus_millis(PATIENCE_MILLIS))
    }
}
