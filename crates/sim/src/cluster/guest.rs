//! A second array on the same nodes. Its client has the key of that array alone, and writes a
//! little at a time. Events of the first client must not affect it.

use braid_array::Action;
use braid_array::action::{Command, CommandId};
use braid_array::format::BadBlocks;
use braid_cluster::client::{ClientConfig, ClientMember};
use braid_cluster::ids::Epoch;
use braid_cluster::pipeline::Params;

use super::content::{self, Layout};
use super::nodes::Cluster;
use super::scenario::ClusterScenario;
use crate::disk::Disk;
use crate::judge::Judge;
use crate::oracle::Range;
use crate::report::Failure;
use crate::rng::Rng;
use crate::workload::Kind;
use crate::world::World;

/// The name of its volume on every node.
pub const VOLUME: &str = "guest";

/// Its largest write.
const MAX_SECTORS: u64 = 64;

/// The client of a second array, and its written content. [`start`](Self::start) starts it.
/// [`go_on`](Self::go_on) is called after each step of the world, [`hears`](Self::hears) with each
/// action of the client. When nothing is `left` to write the client stops; then
/// [`judge`](Self::judge) compares the volumes with the written content.
#[derive(Debug)]
pub struct Guest {
    /// Its client.
    pub process: usize,
    layout: Layout,
    rng: Rng,
    /// Content written so far.
    judge: Judge,
    pub(super) left: u64,
    stopping: bool,
    pub(super) stopped: bool,
}

impl Guest {
    /// Starts a client on fresh volumes, which the nodes have.
    pub fn start(
        world: &mut World,
        disks: &[Disk],
        params: Params,
        rng: Rng,
    ) -> Result<Self, String> {
        let mut members = Vec::new();
        let mut limit = None;
        for (role, disk) in disks.iter().enumerate() {
            let superblock = content::superblock(disk)?;
            limit = Some(superblock.set_uuid);
            let address = format!("n{role}");
            let volume = VOLUME.to_owned();
            let bad_blocks = BadBlocks::default();
            members.push(Some(ClientMember { address, volume, superblock, bad_blocks }));
        }
        let config = ClientConfig::new(params, members);
        let slot_bytes = MAX_SECTORS * 512;
        let process = world.start_client("guest", config, slot_bytes, limit)?;
        let layout = Layout::new(params);
        let mut judge = Judge::new(layout.sectors());
        judge.client_begins(process, 1, slot_bytes);
        Ok(Self { process, judge, layout, rng, left: 40, stopping: false, stopped: false })
    }

    /// Writes next when it can, and stops when it is through.
    pub fn go_on(&mut self, world: &mut World) {
        if self.judge.in_flight(self.process) > 0 || self.stopping {
            return;
        }
        if self.left == 0 {
            self.stopping = true;
            return world.command(self.process, CommandId(1), Command::Stop);
        }
        let blocks = self.layout.sectors() / 8;
        let start = self.rng.below(blocks);
        let count = self.rng.between(1, (blocks - start).min(MAX_SECTORS / 8));
        let range = Range { sector: start * 8, sectors: count * 8 };
        let kind = Kind::Write { fua: self.rng.percent(20) };
        if let Some(draft) = world.ask(&mut self.judge, self.process, kind, range) {
            self.left -= 1;
            self.judge.submitted(self.process, draft, false);
            world.drain(self.process);
        }
    }

    /// Hears from its client.
    ///
    /// # Errors
    /// When a write fails: nothing of this array's is broken.
    pub fn hears(&mut self, action: &Action) -> Result<(), Failure> {
        match action {
            Action::Complete { id, result } => {
                let flight = self.judge.answered(self.process, *id)?;
                self.judge.conclude(&flight, *result, None)?;
                result.map_err(|error| Failure(format!("a write of the guest failed: {error}")))?;
            }
            Action::Reply { .. } => self.stopped = true,
            _ => {}
        }
        Ok(())
    }

    /// Checks that the volumes hold the written content.
    pub fn judge(&mut self, disks: &[&Disk]) -> Result<(), Failure> {
        let judged = content::judge(&self.layout, disks, &[&[]], &mut self.judge);
        judged.map_err(|Failure(what)| Failure(format!("the guest: {what}")))
    }
}

impl Cluster {
    /// Makes another array on the nodes, and starts its client.
    pub fn start_guest(&mut self) -> Result<Guest, Failure> {
        let params = Params { session: self.rng.next(), epoch: Epoch(1), ..self.scenario.params };
        let scenario = ClusterScenario::calm(params);
        let disks = content::create(&self.layout, [8; 16], &scenario, &mut self.rng);
        for (&node, disk) in self.nodes.iter().zip(&disks) {
            self.world.processes[node].keep(VOLUME, disk.clone());
        }
        let rng = self.rng.fork();
        Guest::start(&mut self.world, &disks, params, rng).map_err(Failure)
    }
}
