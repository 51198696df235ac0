//! The lane *nodes*: a client and its nodes, on the pretend fabric.

use braid_array::action::NewMember;
use braid_array::array::Scratch;
use braid_array::format::Superblock;
use braid_array::level::Level;
use braid_array::status::MemberState;
use braid_array::{MemberId, Role};
use braid_cluster::assemble::{Candidate, Options, Start, decide};
use braid_cluster::client::ClientConfig;
use braid_cluster::ids::{Epoch, NodeId};
use braid_cluster::node::Node;
use braid_cluster::pipeline::{Params, Slots};
use braid_cluster::view::{View, Vote};
use braid_cluster::{Family, Pipeline, Planner};
use braid_sim::cluster::content::{self, Layout, VOLUME};
use braid_sim::cluster::scenario::ClusterScenario;
use braid_sim::disk::Disk;
use braid_sim::fault::FaultProfile;
use braid_sim::rng::Rng;
use braid_sim::trace::Trace;
use braid_sim::world::World;
use braid_sim::world::process::Process;

use crate::members::lane::{
    CHUNK_SECTORS, Code, DATA_SECTOR, DATA_SECTORS, Lane, SLOT_BYTES, SLOTS, Setup,
};

/// The array's id.
const ARRAY: [u8; 16] = [7; 16];

/// The codes of this lane.
pub(crate) fn codes() -> Vec<Code> {
    vec![
        Code::md(Level::Raid1, 0, 2, 1, false),
        Code::md(Level::Raid5, 2, 4, 1, false),
        Code::md(Level::Raid6, 2, 5, 2, true),
        Code { family: Family::Xor2d, members: 5, losses: 2, tells: true },
    ]
}

/// A [`Lane`] of a client and one node for each member, as processes of a pretend world. Devices
/// are the nodes' volumes, by index of `nodes`; `client` is the process of the last client.
pub(crate) struct Nodes {
    layout: Layout,
    params: Params,
    world: World,
    rng: Rng,
    nodes: Vec<usize>,
    client: usize,
}

fn params(code: Code) -> Params {
    let chunk_bytes = CHUNK_SECTORS as u32 * 512;
    let rows = code.family.code(code.members, 0).expect("a code").rows();
    let slots = |count, bytes| Slots { count: count * code.members, bytes };
    Params {
        session: 0,
        epoch: Epoch::BEFORE_ANY,
        family: code.family,
        nodes: code.members,
        chunk_bytes,
        stripes: DATA_SECTORS / (CHUNK_SECTORS * u64::from(rows)),
        planner: Planner::Encoder { node: Role(0) },
        wide: slots(2, chunk_bytes),
        narrow: slots(2, 4096),
        reads: slots(8, chunk_bytes),
        silence_ms: 4000,
    }
}

impl Nodes {
    fn start_node(&mut self, role: Role, disk: Disk) -> usize {
        let pipeline = Pipeline::new(self.params).expect("a pipeline");
        // Room for the ring of a client, and of the one before, which may not be gone yet.
        let largest = Role::all(self.params.nodes).map(|role| pipeline.ring_bytes(role)).max();
        let bytes = 2 * largest.unwrap_or(0) + (1 << 20);
        let node = Node::new(
            Scratch { offset: 0, bytes },
            NodeId(role.0.into()),
            1 + self.rng.below(1 << 60),
        );
        let mut process = Process::of_node(role.0.into(), node, bytes);
        process.keep(VOLUME, disk);
        if let Some(&before) = self.nodes.get(role.index()) {
            process.notes = std::mem::take(&mut self.world.processes[before].notes);
        }
        self.world.start(process)
    }

    /// Returns the voters in a node's note. No change of the voters may be under way.
    pub(crate) fn voters(&self, node: usize) -> Vec<u64> {
        let notes = self.world.processes[self.nodes[node]].notes.values();
        let vote = notes.filter_map(|note| Vote::newest(&ARRAY, note)).next();
        let view = vote.expect("a vote file").1.view.expect("a view in it");
        assert_eq!(view.voted, [], "the old voters are asked still");
        view.voters.iter().map(|voter| voter.0).collect()
    }

    /// Returns whether every later client learns of the loss of this role, from any majority of
    /// voters.
    pub(crate) fn is_loss_noted(&self, role: Role) -> bool {
        let views = self.nodes.iter().zip(0..).filter_map(|(&node, id)| {
            let notes = self.world.processes[node].notes.values();
            let view = notes.filter_map(|note| Vote::newest(&ARRAY, note)).next()?.1.view?;
            Some((NodeId(id), view))
        });
        let views: Vec<(NodeId, View)> = views.collect();
        let Some((_, newest)) = views.iter().max_by_key(|(_, view)| view.order()) else {
            return false;
        };
        let have = views.iter().filter(|(_, view)| !view.has(role)).map(|&(node, _)| node);
        newest.holds(&have.collect())
    }

    /// Returns the superblock on a node's volume.
    pub(crate) fn superblock(&self, node: usize) -> Superblock {
        content::superblock(self.volume(node)).expect("a superblock")
    }

    /// By role: the node of the member in sync.
    fn holders(&mut self) -> Vec<usize> {
        let number = |name: &str| name.strip_prefix("node://n")?.split('/').next()?.parse().ok();
        let status = self.machine().status();
        let members = status.members.iter().filter(|member| member.state == MemberState::InSync);
        let mut holders: Vec<(Role, usize)> =
            members.filter_map(|member| Some((member.role?, number(&member.device)?))).collect();
        holders.sort_unstable();
        holders.into_iter().map(|(_, node)| node).collect()
    }

    fn volume(&self, role: usize) -> &Disk {
        &self.world.processes[self.nodes[role]].volume(VOLUME).disk
    }

    fn is_alive(&self, role: usize) -> bool {
        self.world.processes[self.nodes[role]].alive
    }
}

impl Lane for Nodes {
    fn create(code: Code, setup: Setup) -> Self {
        let params = params(code);
        let mut rng = Rng::new(1);
        let layout = Layout::new(params);
        let scenario = ClusterScenario {
            dirty: setup.dirty,
            bitmap_chunk_bytes: setup.bitmap.then_some(CHUNK_SECTORS as u32 * 512),
            ..ClusterScenario::calm(params)
        };
        let mut disks = content::create(&layout, ARRAY, &scenario, &mut rng);
        for number in (code.members..).take(setup.spares.into()) {
            let mut spare = content::superblock(&disks[0]).expect("a superblock");
            spare.dev_number = number.into();
            spare.device_uuid = [number as u8 + 1; 16];
            let mut disk = Disk::new(disks[0].sectors());
            disk.put(spare.super_offset, &spare.encode());
            disks.push(disk);
        }
        let world = World::new(rng.fork(), FaultProfile::CALM, Trace::new(false));
        let nodes = Vec::new();
        let mut lane = Self { layout, params, world, rng, nodes, client: usize::MAX };
        for (role, disk) in (0..).zip(disks) {
            let node = lane.start_node(Role(role), disk);
            lane.nodes.push(node);
        }
        lane
    }

    fn assemble(&mut self, read_only: bool) {
        self.params.session = self.rng.next();
        self.params.epoch = self.params.epoch.next();
        let there = (0..self.nodes.len()).filter(|&node| self.is_alive(node));
        let found = there.map(|node| content::candidate(self.volume(node), format!("n{node}")));
        let found: Vec<Candidate> = found.flatten().collect();
        let options = Options { force: false, read_only, unclean: true };
        let start = match decide(&found, options).start {
            Start::Ready(start) => *start,
            Start::Refused(why) => panic!("no array: {why}"),
        };
        let config = ClientConfig::new(self.params, start.members);
        let bitmap = start.bitmap;
        let spares = start.spares;
        let spare_patience_ms = 1000;
        let config = ClientConfig { bitmap, spares, spare_patience_ms, read_only, ..config };
        let name = format!("client {}", self.params.epoch);
        let client = self.world.start_client(&name, config, SLOTS * SLOT_BYTES, None);
        self.client = client.expect("an array");
    }

    fn world(&mut self) -> (&mut World, usize) {
        (&mut self.world, self.client)
    }

    fn disk(&mut self, device: usize) -> &mut Disk {
        let node = self.nodes[device];
        &mut self.world.processes[node].volume_mut(VOLUME).disk
    }

    fn set_broken(&mut self, device: usize, broken: bool) {
        if broken {
            self.world.kill(self.nodes[device]);
        } else {
            let disk = self.volume(device).clone();
            self.nodes[device] = self.start_node(Role(device as u16), disk);
        }
    }

    fn misfit(&mut self) -> Option<String> {
        let holders = self.holders();
        let disks: Vec<&Disk> = holders.into_iter().map(|node| self.volume(node)).collect();
        content::misfit(&self.layout, &disks)
    }

    fn offer(&mut self, member: MemberId, device: Option<usize>) -> NewMember {
        let sectors = DATA_SECTOR + DATA_SECTORS + 64;
        let node = device.unwrap_or_else(|| {
            let process = self.start_node(Role(self.nodes.len() as u16), Disk::new(sectors));
            self.nodes.push(process);
            self.nodes.len() - 1
        });
        let superblock = device.map(|node| content::superblock(self.volume(node)));
        let superblock = superblock.map(|found| found.expect("a superblock"));
        let listed = |found| content::bad_blocks(self.volume(node), found).expect("a list");
        let bad_blocks = superblock.as_ref().map(listed);
        NewMember {
            member,
            device: format!("node://n{node}/{VOLUME}"),
            device_sectors: sectors,
            superblock: superblock.map(Box::new),
            bad_blocks,
            readd: false,
            device_uuid: [0x80 | node as u8; 16],
        }
    }
}
