//! Starts in which nodes and connections are lost from the first message on, also more of them than
//! the array can do without. Every start must end: the client serves, or gives up.

use braid_array::Role;
use braid_cluster::client::NODE_TIMEOUT_MS;

use super::Relay;
use crate::cluster::nodes::Cluster;
use crate::oracle::Range;
use crate::report::Failure;
use crate::rng::Rng;
use crate::workload::Kind;

impl Relay<'_> {
    /// Runs some such starts, one after the other. Drawn from a generator of its own: earlier
    /// events are unchanged.
    pub(super) fn starts(&mut self, all: &[Role]) -> Result<(), Failure> {
        let mut aside = self.cluster.rng.aside(0x7374_6172_7473);
        for _ in 0..aside.pick(&[0, 0, 1, 2, 3]) {
            self.start_that_is_shaken(&mut aside, all)?;
        }
        Ok(())
    }

    fn start_that_is_shaken(&mut self, rng: &mut Rng, all: &[Role]) -> Result<(), Failure> {
        self.gone.clear();
        self.begin(all);
        let mut dead = Vec::new();
        for _ in 0..rng.between(1, 3) {
            let most = rng.pick(&[1, 10, 60, 200, 600]);
            for _ in 0..rng.below(most) {
                self.step()?;
            }
            self.shake(rng, &mut dead);
        }
        self.until("a start comes to rest, and is not over", Self::start_is_over)?;
        for role in dead {
            self.cluster.reboot(role);
        }
        if let Some(client) = self.client.take() {
            self.kill(client.process);
        }
        Ok(())
    }

    /// Any nodes die or hang, or their connections break; each of them is `dead` once.
    fn shake(&mut self, rng: &mut Rng, dead: &mut Vec<Role>) {
        let Some(client) = self.client.as_ref().map(|client| client.process) else { return };
        let percent = rng.pick(&[30, 60, 100]);
        let kind = rng.below(5);
        for role in Role::all(self.cluster.scenario.params.nodes) {
            if !rng.percent(percent) || dead.contains(&role) {
                continue;
            }
            let Cluster { world, nodes, .. } = &mut self.cluster;
            let node = nodes[role.index()];
            let next = nodes[(role.index() + 1) % nodes.len()];
            world.note(&[80], || format!("SHAKE {role}, kind {kind}"));
            self.gone.push(role);
            match kind {
                0..2 => {
                    world.kill(node);
                    dead.push(role);
                }
                2 => world.freeze(node, rng.below(3_000_000 * NODE_TIMEOUT_MS)),
                _ => {
                    let peer = if kind == 3 { next } else { client };
                    world.disconnect(node, peer);
                }
            }
        }
    }

    /// Requests a flush, which the client takes as soon as its start is over. Returns whether it
    /// is.
    fn start_is_over(&mut self) -> bool {
        if !self.is_refused() {
            return self.client.is_none() || self.request(Kind::Flush, 0..0);
        }
        let Some(process) = self.client.as_ref().map(|client| client.process) else { return true };
        if self.judge.free_slot(process).is_none() {
            return true;
        }
        let world = &mut self.cluster.world;
        let draft = world.ask(&mut self.judge, process, Kind::Flush, Range::default());
        let Some(draft) = draft else { return false };
        self.judge.submitted(process, draft, false);
        world.drain(process);
        true
    }
}
