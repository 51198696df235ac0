//! The lane *nodes*: a client and its nodes, on the pretend fabric.

use braid_array::action::{Event, NewMember};
use braid_array::array::Scratch;
use braid_array::format::BadBlocks;
use braid_array::level::Level;
use braid_array::{Action, AnyMachine, BlockMachine, Buf, Instant, MemberId};
use braid_cluster::client::{Client, ClientConfig, ClientMember};
use braid_cluster::node::Node;
use braid_cluster::pipeline::{Params, Slots};
use braid_cluster::{Family, Pipeline, Planner};
use braid_sim::cluster::content::{self, Layout};
use braid_sim::cluster::process::Process;
use braid_sim::cluster::session::VOLUME;
use braid_sim::cluster::world::{Temper, World};
use braid_sim::disk::Disk;
use braid_sim::rng::Rng;
use braid_sim::trace::Trace;

use crate::lane::{CHUNK_SECTORS, Code, DATA_SECTOR, DATA_SECTORS, Lane, SLOT_BYTES, SLOTS, Setup};

/// The codes of this lane.
pub(crate) fn codes() -> Vec<Code> {
    vec![
        Code::md(Level::Raid1, 0, 2, 1, false),
        Code::md(Level::Raid5, 2, 4, 1, false),
        Code::md(Level::Raid6, 2, 5, 2, true),
        Code { family: Family::Xor2d, members: 5, losses: 2, tells: true },
    ]
}

/// See the module.
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
        epoch: 0,
        family: code.family,
        nodes: code.members,
        chunk_bytes,
        stripes: DATA_SECTORS / (CHUNK_SECTORS * u64::from(rows)),
        planner: Planner::Encoder { node: 0 },
        wide: slots(2, chunk_bytes),
        narrow: slots(2, 4096),
        reads: slots(8, chunk_bytes),
    }
}

impl Nodes {
    fn start_node(&mut self, role: u16, disk: Disk) -> usize {
        let pipeline = Pipeline::new(self.params).expect("a pipeline");
        // Room for the ring of a client, and of the one before, which may not be gone yet.
        let bytes = 2 * pipeline.ring_bytes(role) + (1 << 20);
        let node =
            Node::new(Scratch { offset: 0, bytes }, role.into(), 1 + self.rng.below(1 << 60));
        let name = format!("n{role}");
        let machine = AnyMachine::Plain(Box::new(node));
        let mut process = Process::new(name.clone(), machine, bytes as usize, Some(name));
        process.keep(VOLUME, disk);
        self.world.start(process)
    }

    fn volume(&self, role: usize) -> &Disk {
        &self.world.processes[self.nodes[role]].volumes[VOLUME].disk
    }

    fn is_alive(&self, role: usize) -> bool {
        self.world.processes[self.nodes[role]].alive
    }
}

impl Lane for Nodes {
    fn create(code: Code, setup: Setup) -> Self {
        let (params, mut rng) = (params(code), Rng::new(1));
        let layout = Layout::new(params);
        let disks = content::create(
            &layout,
            [7; 16],
            setup.dirty,
            setup.bitmap.then_some(CHUNK_SECTORS as u32 * 512),
            &mut rng,
        );
        let world = World::new(rng.fork(), Temper::CALM, Trace::new(false));
        let nodes = Vec::new();
        let mut lane = Self { layout, params, world, rng, nodes, client: usize::MAX };
        for (role, disk) in (0..).zip(disks) {
            let node = lane.start_node(role, disk);
            lane.nodes.push(node);
        }
        lane
    }

    fn assemble(&mut self, read_only: bool) {
        if self.world.processes.get(self.client).is_some_and(|client| client.alive) {
            self.crash();
        }
        self.params.session = self.rng.next();
        self.params.epoch += 1;
        let member = |role: usize| {
            let superblock = content::superblock(self.volume(role)).expect("a superblock");
            ClientMember { address: format!("n{role}"), volume: VOLUME.to_owned(), superblock }
        };
        let roles = 0..self.nodes.len();
        let members = roles.map(|role| self.is_alive(role).then(|| member(role))).collect();
        let there = (0..self.nodes.len()).filter(|&role| self.is_alive(role));
        let disks: Vec<&Disk> = there.map(|role| self.volume(role)).collect();
        let bitmap = content::bitmap(&disks).expect("superblocks");
        let config = ClientConfig::new(self.params, members);
        let config = ClientConfig { bitmap, read_only, ..config };
        let (offset, bytes) = (SLOTS * SLOT_BYTES, Client::scratch_bytes(&config));
        let client = Client::new(config, Scratch { offset, bytes }).expect("an array");
        let client = AnyMachine::Block(Box::new(client));
        let name = format!("client {}", self.params.epoch);
        let process = Process::new(name, client, (offset + bytes) as usize, None);
        self.client = self.world.start(process);
    }

    fn crash(&mut self) {
        self.world.kill(self.client);
    }

    fn machine(&mut self) -> &mut dyn BlockMachine {
        self.world.processes[self.client].client()
    }

    fn drain(&mut self) {
        self.world.drain(self.client);
    }

    fn handle(&mut self, event: Event) {
        self.world.handle(self.client, event);
    }

    fn step(&mut self) -> bool {
        self.world.step()
    }

    fn now(&self) -> Instant {
        self.world.now()
    }

    fn outputs(&mut self) -> Vec<Action> {
        if let Some(fault) = self.world.faults.first() {
            panic!("{fault}");
        }
        let outputs = std::mem::take(&mut self.world.outputs).into_iter();
        outputs.filter(|(process, _)| *process == self.client).map(|(_, action)| action).collect()
    }

    fn bytes(&mut self, buf: Buf) -> &mut [u8] {
        self.world.processes[self.client].bytes(buf)
    }

    fn disk(&mut self, device: usize) -> &mut Disk {
        let node = self.nodes[device];
        let volumes = &mut self.world.processes[node].volumes;
        &mut volumes.get_mut(VOLUME).expect("a node's volume").disk
    }

    fn set_broken(&mut self, device: usize, broken: bool) {
        if broken {
            self.world.kill(self.nodes[device]);
        } else {
            let disk = self.volume(device).clone();
            self.nodes[device] = self.start_node(device as u16, disk);
        }
    }

    fn misfit(&mut self) -> Option<String> {
        let disks: Vec<&Disk> = (0..self.nodes.len()).map(|role| self.volume(role)).collect();
        content::misfit(&self.layout, &disks)
    }

    fn offer(&mut self, member: MemberId, device: Option<usize>) -> NewMember {
        let role = device.unwrap_or(self.nodes.len());
        let superblock = device.map(|role| content::superblock(self.volume(role)));
        NewMember {
            member,
            device: format!("node://n{role}/{VOLUME}"),
            device_sectors: DATA_SECTOR + DATA_SECTORS + 64,
            superblock: superblock.map(|found| Box::new(found.expect("a superblock"))),
            bad_blocks: BadBlocks::default(),
            readd: false,
            device_uuid: [7; 16],
        }
    }
}
