//! Nodes that have left the array, replaced or given up: they run on, and the client has them drop
//! what they keep for a takeover. So in the end nothing of the array is open there, its ring is
//! given back, and its volume can be deleted.

use braid_array::Machine;

use super::session::{Phase, Session, VOLUME};
use crate::report::Failure;

/// How long the client may take to tell one. It tries again, later and later; and who hangs may do
/// so for a hundred seconds.
const FREE_MILLIS: u64 = 300_000;

impl Session {
    /// Nobody needs a node any more in whose place another one is. If the client lives that took
    /// that in, it runs on all the same, as the client has to tell it.
    pub(super) fn departs(&mut self, process: usize) {
        let tells = self.cluster.world.processes[self.client].alive && self.phase != Phase::Stopped;
        if tells && self.cluster.world.processes[process].alive {
            self.departed.push(process)
        } else {
            self.cluster.world.kill(process)
        }
    }

    /// They are off.
    pub(super) fn drop_departed(&mut self) {
        for process in std::mem::take(&mut self.departed) {
            self.cluster.world.kill(process);
        }
    }

    /// Nodes that have left the array keep nothing that waits for another client.
    pub(super) fn departed_are_free(&mut self) -> Result<(), Failure> {
        self.look_at_spare();
        let until = self.cluster.world.now().plus_millis(FREE_MILLIS);
        while let Some(&kept) = self.departed.iter().find(|&&process| {
            let process = &self.cluster.world.processes[process];
            process.volumes[VOLUME].open.is_some() || !process.machine.idle()
        }) {
            // A client that can write no more tells nobody anything.
            if self.promises.failed {
                break;
            }
            if self.cluster.world.now() >= until || !self.step()? {
                let name = &self.cluster.world.processes[kept].name;
                let what = format!("{name} has left the array and keeps its volume open");
                return Err(Failure(what));
            }
        }
        self.drop_departed();
        Ok(())
    }
}
