//! Events between two clients, and troubles while one serves.

use braid_array::Role;
use braid_cluster::client::NODE_TIMEOUT_MS;

use super::Relay;
use super::focus::Focus;
use crate::cluster::nodes::Cluster;
use crate::cluster::scenario::ClusterScenario;

impl Relay<'_> {
    /// Ends the client; `just_then` tells that a kill point was reached. Returns the roles of the
    /// next client.
    pub(super) fn pass_on(&mut self, just_then: bool, all: &[Role]) -> Vec<Role> {
        if let Some(fenced) = self.fenced.take() {
            self.kill(fenced.process);
        }
        // Who is cut off from this client may be from the next one, too.
        let cut_off = self.cluster.rng.percent(50);
        let away = if cut_off { self.cluster.more_losses(&[]) } else { Vec::new() };
        let next = || all.iter().copied().filter(|role| !away.contains(role)).collect();
        if just_then && self.ends_in_focus(all) {
            return next();
        }
        if let Some(client) = self.client.take() {
            let lost = if just_then { 8 } else { 5 };
            match self.cluster.rng.below(10) {
                0..2 if client.serves => {
                    self.cluster.note(&[71], || "TAKE OVER".to_owned());
                    self.fenced = Some(client);
                }
                kind if kind < lost => {
                    // Who does not get its last messages need not be who is away then.
                    let mut aside = self.cluster.rng.aside(0x6465_6166);
                    let deaf = if aside.percent(40) { &[] } else { &away[..] };
                    self.lose_what_is_under_way(client.process, deaf);
                    self.kill(client.process);
                }
                _ => self.kill(client.process),
            }
        }
        let lost = self.cluster.more_losses(&[]);
        // Whoever has not yet done what another says that he has does it, unless he forgets it.
        let (cut, restart) = if just_then { (6, 14) } else { (3, 8) };
        match self.cluster.rng.below(20) {
            kind if kind < cut && self.may_lose_power() => self.lose_power(all),
            kind if kind < restart => lost.iter().for_each(|&role| self.restart(role)),
            14..17 => self.come_to_rest(),
            _ => {}
        }
        next()
    }

    /// Ends a client at the moment of the relay's focus: its messages under way are lost, or all
    /// lose power, and nothing else happens. Returns false if it shall end like any other.
    fn ends_in_focus(&mut self, all: &[Role]) -> bool {
        if self.focus == Focus::Nothing || self.cluster.rng.percent(20) {
            return false;
        }
        let Some(client) = self.client.take() else { return false };
        if self.focus != Focus::Flushes {
            self.lose_what_is_under_way(client.process, &[]);
        }
        self.kill(client.process);
        if self.focus == Focus::Flushes && self.may_lose_power() {
            self.lose_power(all);
        }
        true
    }

    /// A client is cut off from these, or from any.
    fn lose_what_is_under_way(&mut self, client: usize, away: &[Role]) {
        let Cluster { world, rng, nodes, .. } = &mut self.cluster;
        let mut lost: Vec<usize> = away.iter().map(|&role| nodes[role.index()]).collect();
        if away.is_empty() {
            lost.clone_from(nodes);
            lost.retain(|_| rng.percent(60));
        }
        world.lose_what_is_under_way(client, |process| lost.contains(&process));
    }

    /// Returns whether power may be lost without losing the only copy of data: left-out members
    /// would lack data that only the running nodes have.
    fn may_lose_power(&self) -> bool {
        let ClusterScenario { params, journal_bytes, .. } = &self.cluster.scenario;
        let sums = params.family.has_parities() && *journal_bytes == 0;
        !sums || self.cluster.left_out().is_empty()
    }

    fn lose_power(&mut self, all: &[Role]) {
        self.cluster.note(&[72], || "POWER CUT".to_owned());
        if let Some(fenced) = self.fenced.take() {
            self.kill(fenced.process);
        }
        all.iter().for_each(|&role| self.restart(role));
        (0..self.cluster.witnesses.len()).for_each(|number| self.cluster.restart_witness(number));
    }

    /// A node dies and is there again, without its memory.
    fn restart(&mut self, role: Role) {
        self.cluster.note(&[73], || format!("RESTART {role}"));
        self.cluster.kill(role);
        self.cluster.reboot(role);
        self.gone.push(role);
    }

    /// Delivers the messages that clients have sent, up to a drawn number of events.
    pub(super) fn come_to_rest(&mut self) {
        for _ in 0..self.cluster.rng.below(3000) {
            if !self.cluster.world.step() {
                break;
            }
        }
        self.cluster.world.outputs.clear();
    }

    /// A node or witness is lost, or a connection.
    pub(super) fn trouble(&mut self) {
        let Some(client) = self.client.as_ref().map(|client| client.process) else { return };
        let lost = self.cluster.more_losses(&[]);
        let rng = &mut self.cluster.rng;
        let nanos = rng.between(1, 3000 * NODE_TIMEOUT_MS) * 1000;
        let kind = rng.below(10);
        for role in lost {
            self.cluster.note(&[74], || format!("TROUBLE {kind} of {role}"));
            let node = self.cluster.node(role);
            let peer = match kind {
                0..5 => client,
                5 => self.cluster.nodes[(role.index() + 1) % self.cluster.nodes.len()],
                6 => {
                    self.gone.push(role);
                    self.cluster.world.freeze(node, nanos);
                    continue;
                }
                7 if !self.cluster.witnesses.is_empty() => {
                    let Cluster { witnesses, rng, .. } = &mut self.cluster;
                    let number = rng.index(witnesses.len());
                    self.cluster.lose_witness(client, number);
                    continue;
                }
                _ => {
                    self.restart(role);
                    continue;
                }
            };
            self.gone.push(role);
            self.cluster.world.disconnect(node, peer);
        }
    }
}
