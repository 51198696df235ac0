//! Clients that take an array over and die on their way, or soon after. They may not reach all of
//! the nodes that the next one reaches.

use braid_array::status::ArrayState;

use super::session::Session;
use crate::world::Failure;

impl Session {
    /// Some come and go, one after the other, nobody vouching for anything.
    ///
    /// # Errors
    /// One does what it must not.
    pub(super) fn brief_clients(&mut self) -> Result<(), Failure> {
        for _ in 0..self.rng.between(1, 3) {
            let Self { scenario, rng, lost, .. } = self;
            let mut away = lost.clone();
            if rng.percent(50) {
                away.extend(scenario.more_losses(rng, lost));
            }
            self.world.note(&[62], || format!("BRIEF CLIENT without {away:?}"));
            self.unforced = true;
            let before = (self.lost.clone(), self.dropped.clone(), self.dead);
            let started = self.start_client(&away, false);
            self.unforced = false;
            if started.is_err() {
                // Not even superblocks say that there are enough members.
                return Ok(());
            }
            let most = self.rng.pick(&[20, 100, 600]);
            for _ in 0..self.rng.below(most) {
                self.step()?;
            }
            let client = self.world.processes[self.client].client();
            if client.status().state == ArrayState::Failed {
                // It was refused, and gives nodes up that are not lost.
                (self.lost, self.dropped, self.dead) = before;
            }
            self.crash();
        }
        Ok(())
    }
}
