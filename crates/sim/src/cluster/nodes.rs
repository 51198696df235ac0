//! The nodes and witnesses of a run, and their volumes.

use std::num::NonZeroU64;

use braid_array::Role;
use braid_array::array::Scratch;
use braid_array::format::superblock::feature;
use braid_array::status::Status;
use braid_cluster::ids::{Epoch, NodeId};
use braid_cluster::node::Node;
use braid_cluster::view::{View, Vote};
use braid_cluster::{Pipeline, Planner};

use super::content::{self, ARRAY, Layout, VOLUME};
use super::scenario::ClusterScenario;
use crate::disk::Disk;
use crate::rng::Rng;
use crate::trace::Trace;
use crate::world::World;
use crate::world::process::Process;

/// Nodes with their volumes, and witnesses, in a world with all processes. Nodes are named by role
/// here, witnesses by number, and both by the number of their process in the world.
///
/// Order of calls: [`new`](Self::new) creates the volumes, and starts nodes and witnesses. A node
/// that has died is there again by [`reboot`](Self::reboot); after a loss of power
/// [`take_disks`](Self::take_disks) and [`start_nodes`](Self::start_nodes) bring all back.
pub struct Cluster {
    /// Scenario of the seed.
    pub scenario: ClusterScenario,
    /// Draws troubles.
    pub rng: Rng,
    /// Processes and network.
    pub world: World,
    /// Where blocks lie.
    pub layout: Layout,
    /// The processes of the nodes, by role.
    pub nodes: Vec<usize>,
    /// Their numbers as nodes, by role.
    pub(super) ids: Vec<u64>,
    /// By role, which start of the node this is.
    pub(super) incarnations: Vec<u64>,
    /// The processes of the witnesses.
    pub witnesses: Vec<usize>,
    /// The epoch of the last client.
    pub(super) epoch: Epoch,
}

impl Cluster {
    /// Nodes with fresh volumes, and witnesses.
    pub fn new(scenario: ClusterScenario, mut rng: Rng, trace: Trace) -> Self {
        let mut world = World::new(rng.fork(), scenario.profile, trace);
        world.journal_sectors = scenario.journal_bytes / 4096 * 8;
        let params = scenario.params;
        let layout = Layout::new(params);
        let disks = content::create(&layout, ARRAY, &scenario, &mut rng);
        let mut cluster = Self {
            scenario,
            rng,
            world,
            layout,
            nodes: Vec::new(),
            ids: (0..u64::from(params.nodes)).collect(),
            incarnations: vec![0; usize::from(params.nodes)],
            witnesses: Vec::new(),
            epoch: Epoch::BEFORE_ANY,
        };
        cluster.start_nodes(disks);
        cluster.start_witnesses();
        cluster
    }

    /// Notes the size of the array, which superblocks tell.
    pub(super) fn has_stripes(&mut self, stripes: u64) {
        if self.scenario.params.stripes != stripes {
            self.scenario.params.stripes = stripes;
            self.layout = Layout::new(self.scenario.params);
        }
    }

    /// Starts every node anew on its volume.
    pub fn start_nodes(&mut self, disks: Vec<Disk>) {
        let before = std::mem::take(&mut self.nodes);
        for (role, disk) in (0..).map(Role).zip(disks) {
            let node = self.start_node(role, disk, before.get(role.index()).copied());
            self.nodes.push(node);
        }
    }

    /// Starts a node on this volume, with the notes of the process `before`.
    fn start_node(&mut self, role: Role, disk: Disk, before: Option<usize>) -> usize {
        let (node, incarnation) = self.start_node_as(self.ids[role.index()], disk, before);
        self.incarnations[role.index()] = incarnation;
        node
    }

    /// The process of the node of this role.
    pub fn node(&self, role: Role) -> usize {
        self.nodes[role.index()]
    }

    /// Returns whether the node of this role lives.
    pub(super) fn is_alive(&self, role: Role) -> bool {
        self.world.processes[self.node(role)].alive
    }

    /// The node of this role dies.
    pub(super) fn kill(&mut self, role: Role) {
        self.world.kill(self.node(role));
    }

    /// Nodes that the array can do without, as [`Scenario::more_losses`] draws them.
    pub(super) fn more_losses(&mut self, lost: &[Role]) -> Vec<Role> {
        self.scenario.more_losses(&mut self.rng, lost)
    }

    /// Draws more nodes than the array can do without: all of them, or `fewer`, as may be.
    pub(super) fn too_many(&mut self, fewer: bool) -> Vec<Role> {
        let mut roles: Vec<Role> = Role::all(self.scenario.params.nodes).collect();
        while fewer && self.rng.percent(80) {
            let mut less = roles.clone();
            less.remove(self.rng.index(roles.len()));
            if self.scenario.survives(&less) {
                break;
            }
            roles = less;
        }
        roles
    }

    /// Returns the disk under the array's volume of a node or spare.
    pub(super) fn disk_of(&self, process: usize) -> &Disk {
        &self.world.processes[process].volume(VOLUME).disk
    }

    /// A note for the trace.
    pub(super) fn note(&mut self, numbers: &[u64], words: impl FnOnce() -> String) {
        self.world.note(numbers, words);
    }

    /// The key of a client, if it has that of its array alone.
    pub(super) fn limit(&self) -> Option<[u8; 16]> {
        self.scenario.limited.then_some(ARRAY)
    }

    /// Returns the client's status of its array.
    pub(super) fn status_of(&mut self, client: usize) -> Status {
        self.world.processes[client].client().status()
    }

    /// Where the node of a role listens.
    pub(super) fn address(&self, role: Role) -> String {
        format!("n{}", self.ids[role.index()])
    }

    pub(super) fn start_node_as(
        &mut self,
        id: u64,
        disk: Disk,
        before: Option<usize>,
    ) -> (usize, u64) {
        let (bytes, limit) = self.node_bytes();
        let incarnation = 1 + self.rng.below(u64::MAX - 1);
        let node = Node::new(Scratch { offset: 0, bytes }, NodeId(id), incarnation);
        let node = match limit {
            Some(limit) => node.with_limit(limit),
            None => node,
        };
        let mut process = Process::of_node(id, node, bytes);
        process.keep(VOLUME, disk);
        if let Some(before) = before {
            process.notes = std::mem::take(&mut self.world.processes[before].notes);
        }
        (self.world.start(process), incarnation)
    }

    /// Cuts the power of a node, and restarts it at once.
    pub(super) fn cut_and_restart(&mut self, id: u64, node: usize) -> (usize, u64) {
        self.world.kill(node);
        let mut disk = self.disk_of(node).clone();
        disk.power_cut(&mut self.rng);
        self.start_node_as(id, disk, Some(node))
    }

    /// Restarts a dead node. Returns whether its disk went through a power cut.
    pub fn reboot(&mut self, role: Role) -> bool {
        let mut disk = self.disk(role).clone();
        let power_cut = self.rng.percent(70);
        if power_cut {
            disk.power_cut(&mut self.rng);
        }
        let before = self.node(role);
        self.nodes[role.index()] = self.start_node(role, disk, Some(before));
        power_cut
    }

    /// Returns the votes recorded by nodes and witnesses for the array.
    pub(super) fn votes(&self) -> impl Iterator<Item = Vote> {
        let voters = self.nodes.iter().chain(&self.witnesses);
        let notes = voters.flat_map(|&node| self.world.processes[node].notes.values());
        notes.filter_map(|note| Some(Vote::newest(&ARRAY, note)?.1))
    }

    /// The newest view that nodes were told of.
    pub(super) fn newest_view(&self) -> Option<View> {
        self.votes().filter_map(|vote| vote.view).max_by_key(View::order)
    }

    /// Returns whether enough members of the view have kept running since.
    pub(super) fn have_kept_enough(&self, view: &View, missing: &[Role]) -> bool {
        let kept = |role: &Role| {
            let at = role.index();
            let now = NonZeroU64::new(self.incarnations[at]);
            !missing.contains(role) && view.has(*role) && view.members[at] == now
        };
        let lost: Vec<Role> = Role::all(self.scenario.params.nodes).filter(|r| !kept(r)).collect();
        self.scenario.survives(&lost)
    }

    /// Returns whether the newest superblocks, except those of `missing`, allow partly stored
    /// slice-sets that no journal records.
    pub(super) fn some_are_unrecorded(&self, missing: &[Role]) -> bool {
        self.newest_says(missing, feature::NODE_UNRECORDED)
    }

    /// Returns whether the newest superblocks, except those of `missing`, have this feature.
    pub(super) fn newest_says(&self, missing: &[Role], feature: u32) -> bool {
        let there = Role::all(self.scenario.params.nodes).filter(|role| !missing.contains(role));
        let found = there.filter_map(|role| content::superblock(self.disk(role)).ok());
        let newest = found.max_by_key(|superblock| superblock.events);
        newest.is_some_and(|superblock| superblock.has(feature))
    }

    /// Roles that the newest view leaves out.
    pub fn left_out(&self) -> Vec<Role> {
        let roles = Role::all(self.scenario.params.nodes);
        self.newest_view()
            .map_or(Vec::new(), |view| roles.filter(|&role| !view.has(role)).collect())
    }

    /// Returns the size of a node's arena, and the limit of its use, if any. The arena has room for
    /// the rings of a client, of its predecessor, which may still be connected, and of a guest.
    fn node_bytes(&self) -> (u64, Option<u64>) {
        let mut params = self.scenario.params;
        if params.planner == Planner::Client {
            params.planner = Planner::Encoder { node: Role(0) };
        }
        let pipeline = Pipeline::new(params).expect("a scenario's pipeline");
        let most = |bytes: fn(&Pipeline, Role) -> u64| {
            Role::all(params.nodes).map(|role| bytes(&pipeline, role)).max().unwrap_or(0)
        };
        let ring = most(Pipeline::ring_bytes);
        let base = most(Pipeline::base_bytes);
        let pages = u64::from(pipeline.positions() + 2) * 4096;
        // Nodes keep half of it for bases.
        let limit = |whole| 2 * (3 * (base + pages)).max(whole * (ring - base));
        (3 * (ring + pages) + (1 << 20), self.scenario.whole_rings.map(limit))
    }

    pub(super) const fn slot_bytes(&self) -> u64 {
        self.scenario.largest_sectors * 512
    }

    /// A node's volume.
    pub fn disk(&self, role: Role) -> &Disk {
        self.disk_of(self.node(role))
    }

    /// All volumes, by role.
    pub fn disks(&self) -> Vec<&Disk> {
        Role::all(self.scenario.params.nodes).map(|role| self.disk(role)).collect()
    }

    /// Takes the volumes out of the nodes, which are dead.
    pub fn take_disks(&mut self) -> Vec<Disk> {
        let first = |&node: &usize| self.world.processes[node].take_disks().swap_remove(0);
        self.nodes.iter().map(first).collect()
    }
}
