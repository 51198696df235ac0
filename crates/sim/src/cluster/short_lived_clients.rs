//! Clients that take an array over and die during or soon after the takeover. Each may reach other
//! nodes than its successor.

use braid_array::status::ArrayState;

use super::kill_point::KillPoint;
use super::session::Session;
use crate::report::Failure;

/// Limit for clients that make nothing durable, but keep searching for absent nodes.
const MAX_STEPS: u64 = 3000;

impl Session {
    /// Runs some short-lived clients, one after the other, without a declaration by an operator.
    /// With `all`, they reach all nodes that are present.
    pub(super) fn short_lived_clients(&mut self, all: bool) -> Result<(), Failure> {
        // Recovery targets whom not all superblocks name are nobody's members yet.
        if !self.rebuilding().is_empty() {
            return Ok(());
        }
        for _ in 0..self.cluster.rng.between(1, 3) {
            let mut away = self.promises.lost.clone();
            if !all && self.cluster.rng.percent(50) {
                away.extend(self.cluster.more_losses(&self.promises.lost));
            }
            self.cluster.note(&[62], || format!("SHORT-LIVED CLIENT without {away:?}"));
            self.unforced = true;
            let before = self.promises.clone();
            let started = self.start_client(&away, false);
            self.unforced = false;
            if started.is_err() {
                // Not even superblocks say that there are enough members.
                return Ok(());
            }
            let mut kill_point = KillPoint::of_a_short_lived_client(&mut self.cluster);
            for _ in 0..MAX_STEPS {
                if kill_point.is_now(&self.cluster, 0) || !self.step()? {
                    break;
                }
            }
            let client = self.cluster.world.processes[self.client].client();
            if client.status().state == ArrayState::Failed {
                self.promises.take_back(before);
            }
            self.crash();
        }
        Ok(())
    }
}
