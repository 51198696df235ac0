//! An array all data of which move to another one, over one more node, and back at times. Nodes and
//! clients die, links break, and the power fails at any moment of that. Whatever superblocks tell
//! afterwards, the content is there.

mod ending;
mod life;

use braid_array::array::Scratch;
use braid_array::format::{MoveNote, Superblock};
use braid_array::{BlockMachine, Role};
use braid_cluster::assemble::{Candidate, Options, Start, decide};
use braid_cluster::client::{Client, ClientConfig};
use braid_cluster::failover::FailoverClient;
use braid_cluster::ids::{Epoch, NodeId};
use braid_cluster::moving::{MovingClient, NEW_PEERS};
use braid_cluster::node::Node;
use braid_cluster::pair::{Counts, counts_among};
use braid_cluster::{Pipeline, Planner, pipeline::Params};

use super::away::Search;
use super::content::{self, ARRAY, Layout};
use super::scenario::{self, ClusterScenario};
use crate::disk::Disk;
use crate::judge::Judge;
use crate::report::{Failure, Report};
use crate::rng::Rng;
use crate::trace::Trace;
use crate::world::World;
use crate::world::process::Process;

/// Names of the volumes of the old and of the new array.
const VOLUMES: [&str; 2] = ["data", "data.2"];
/// The ids of the arrays.
const ARRAYS: [[u8; 16]; 2] = [ARRAY, [9; 16]];
/// Longer than anything takes.
const FAIL_TIMEOUT_MS: u64 = 3_600_000;
/// Where the superblock lies.
const SUPER_SECTOR: u64 = 8;
/// Requests in flight.
const DEPTH: usize = 8;
const BLOCK_SECTORS: u64 = 8;
/// The largest of them, in blocks.
const MAX_BLOCKS: u64 = 32;
const SLOT_BYTES: u64 = MAX_BLOCKS * BLOCK_SECTORS * 512;

/// Both arrays, and what serves them.
pub(super) struct Moved {
    scenario: ClusterScenario,
    world: World,
    rng: Rng,
    /// Of the old and of the new array.
    layouts: [Layout; 2],
    params: [Params; 2],
    /// The nodes' processes.
    nodes: Vec<usize>,
    client: usize,
    /// The array that the client serves, if it is only one.
    alone: Option<usize>,
    searches: [Search; 2],
    judge: Judge,
    /// Blocks of the array that users see.
    blocks: u64,
    /// Bytes of a piece that is moved.
    piece_bytes: u64,
    /// Answer to the command that turns the move round.
    turned: Option<bool>,
    stopped: bool,
    /// The client has both arrays, and goes on.
    begun: bool,
    /// The client has answered a request.
    serves: bool,
    /// It could not start, and ends.
    refused: bool,
    /// The power was lost before.
    power_was_lost: bool,
    /// All nodes are there, and nobody knows whether parities fit: the array does not start.
    in_doubt: bool,
}

/// Returns whether the seed is such a run. Drawn from a generator of its own, so that other seeds
/// are unchanged.
pub(super) fn is_due(seed: u64) -> bool {
    Rng::new(seed ^ 0x006d_6f76_6564_0000).percent(4)
}

/// Draws the scenario of such a seed.
pub(super) fn draw(rng: &mut Rng) -> ClusterScenario {
    loop {
        let scenario = super::away::larger::draw(rng);
        let nodes = scenario.params.nodes;
        if nodes <= 8
            && let Some(larger) = larger(&scenario.params)
        {
            let journal_bytes = match scenario.journal_bytes {
                0 => 0,
                bytes => bytes.max(scenario::least_journal_bytes(&larger)),
            };
            return ClusterScenario {
                whole_rings: None,
                limited: false,
                journal_bytes,
                ..scenario
            };
        }
    }
}

/// Returns the parameters of an array over one more node, if there is one of the same kind.
fn larger(params: &Params) -> Option<Params> {
    let nodes = params.nodes + 1;
    params.family.code(nodes, 0).ok()?;
    let stripe = Layout::new(Params { nodes, stripes: 1, ..*params }).sectors();
    let stripes = Layout::new(*params).sectors().div_ceil(stripe);
    let planner = match params.planner {
        Planner::Encoder { .. } => Planner::Encoder { node: Role(0) },
        planner => planner,
    };
    let new = Params { nodes, stripes, planner, ..*params };
    Pipeline::new(new).ok()?;
    Some(new)
}

/// Moves all, then judges the content.
pub(super) fn run(scenario: ClusterScenario, rng: Rng, trace: Trace) -> Result<Report, Failure> {
    let mut moved = Moved::new(scenario, rng, trace)?;
    moved.live()?;
    moved.lose_what_is_left()?;
    moved.finish()?;
    Ok(Report::of(&moved.world.trace))
}

impl Moved {
    fn new(scenario: ClusterScenario, mut rng: Rng, trace: Trace) -> Result<Self, Failure> {
        let mut world = World::new(rng.fork(), scenario.profile, trace);
        world.journal_sectors = scenario.journal_bytes / 4096 * 8;
        let old = scenario.params;
        let none = || Failure("no array over one more node".to_owned());
        let new = larger(&old).ok_or_else(none)?;
        let layouts = [old, new].map(Layout::new);
        let blocks = layouts[0].sectors() / BLOCK_SECTORS;
        let mut moved = Self {
            world,
            layouts,
            params: [old, new],
            nodes: Vec::new(),
            client: 0,
            alone: None,
            searches: Default::default(),
            judge: Judge::new(blocks * BLOCK_SECTORS),
            blocks,
            piece_bytes: rng.pick(&[4096, 8192, 32768]),
            turned: None,
            stopped: false,
            begun: false,
            serves: false,
            refused: false,
            power_was_lost: false,
            in_doubt: false,
            scenario,
            rng,
        };
        moved.make_nodes();
        moved.begin_client()?;
        Ok(moved)
    }

    fn make_nodes(&mut self) {
        let create = |(layout, id)| content::create(layout, id, &self.scenario, &mut self.rng);
        let [old, mut new]: [Vec<Disk>; 2] =
            [0, 1].map(|side| (&self.layouts[side], ARRAYS[side])).map(create);
        new.iter_mut().for_each(begins);
        let mut old = old.into_iter();
        for (id, new) in (0..).zip(new) {
            let node = self.start_node(id, [old.next(), Some(new)], None);
            self.nodes.push(node);
        }
    }

    fn address(id: usize) -> String {
        format!("n{id}")
    }

    /// Starts a node with these volumes, and the notes of the process `before`.
    fn start_node(&mut self, id: usize, disks: [Option<Disk>; 2], before: Option<usize>) -> usize {
        let bytes = self.node_bytes();
        let incarnation = 1 + self.rng.below(u64::MAX - 1);
        let node = Node::new(Scratch { offset: 0, bytes }, NodeId(id as u64), incarnation);
        let mut process = Process::of_node(id as u64, node, bytes);
        for (name, disk) in VOLUMES.iter().zip(disks) {
            if let Some(disk) = disk {
                process.keep(name, disk);
            }
        }
        if let Some(before) = before {
            process.notes = std::mem::take(&mut self.world.processes[before].notes);
        }
        self.world.start(process)
    }

    /// Room for the rings of a client and of its predecessor, of each array.
    fn node_bytes(&self) -> u64 {
        let ring = |params: &Params| {
            let mut params = *params;
            if params.planner == Planner::Client {
                params.planner = Planner::Encoder { node: Role(0) };
            }
            let pipeline = Pipeline::new(params).expect("a scenario's pipeline");
            let ring = Role::all(params.nodes).map(|role| pipeline.ring_bytes(role)).max();
            ring.unwrap_or(0) + u64::from(pipeline.positions() + 2) * 4096
        };
        3 * self.params.iter().map(ring).sum::<u64>() + (1 << 20)
    }

    /// The disks of a node, by array.
    fn disks_of(&self, node: usize) -> [Option<&Disk>; 2] {
        let process = &self.world.processes[node];
        VOLUMES.map(|name| process.volumes.contains_key(name).then(|| &process.volume(name).disk))
    }

    fn disks(&self, side: usize) -> Vec<&Disk> {
        self.nodes.iter().filter_map(|&node| self.disks_of(node)[side]).collect()
    }

    fn is_alive(&self, id: usize) -> bool {
        self.world.processes[self.nodes[id]].alive
    }

    /// Restarts a dead node; its disks go through a power cut.
    fn reboot(&mut self, id: usize) {
        let before = self.nodes[id];
        let mut disks = self.disks_of(before).map(|disk| disk.cloned());
        if self.rng.percent(70) {
            disks.iter_mut().flatten().for_each(|disk| disk.power_cut(&mut self.rng));
        }
        self.nodes[id] = self.start_node(id, disks, Some(before));
    }

    /// The volumes of an array that can be looked at, and those that cannot.
    fn look(&self, side: usize) -> (Vec<Candidate>, Vec<(String, String)>) {
        let mut candidates = Vec::new();
        let mut absent = Vec::new();
        for id in 0..usize::from(self.params[side].nodes) {
            let disk = self.disks_of(self.nodes[id])[side];
            let volume = VOLUMES[side].to_owned();
            if !self.is_alive(id) {
                absent.push((Self::address(id), volume));
            } else if let Some(candidate) =
                disk.and_then(|disk| content::candidate(disk, Self::address(id)))
            {
                candidates.push(Candidate { volume, ..candidate });
            }
        }
        (candidates, absent)
    }

    /// Returns the configuration of a client of an array, if it can start.
    fn assembled(&mut self, side: usize) -> Option<ClientConfig> {
        let (candidates, absent) = self.look(side);
        let assembly = decide(&candidates, Options { unclean: true, ..Options::default() });
        let Start::Ready(plan) = assembly.start else { return None };
        let params = Params { session: self.rng.next(), epoch: Epoch(1), ..self.params[side] };
        let config = ClientConfig::new(params, plan.members);
        let first_peer = if side == 1 && self.alone.is_none() { NEW_PEERS } else { 0 };
        Some(ClientConfig {
            found: plan.found,
            bitmap: plan.bitmap,
            absent,
            mix: self.scenario.mix,
            long_write_bytes: self.scenario.long_write_bytes,
            first_peer,
            ..config
        })
    }

    /// Decides which array counts.
    fn counting(&self) -> Result<Counts, Failure> {
        let [(old, _), (new, _)] = [0, 1].map(|side| self.look(side));
        counts_among(&old, &new).map_err(|why| Failure(format!("no array counts: {why}")))
    }

    /// Returns whether what counts can start from the nodes that are alive.
    fn may_begin(&mut self) -> bool {
        let sides = match self.counting() {
            Ok(Counts::Old) => 0..1,
            Ok(Counts::New) => 1..2,
            Ok(Counts::Both) => 0..2,
            Err(_) => return false,
        };
        sides.into_iter().all(|side| self.assembled(side).is_some())
    }

    /// Starts a client of the arrays that count, after the last one has ended.
    fn begin_client(&mut self) -> Result<(), Failure> {
        let counts = self.counting()?;
        self.world.note(&[95], || format!("BEGINS {counts:?}"));
        self.searches = Default::default();
        let mut scratch = Scratch { offset: DEPTH as u64 * SLOT_BYTES, bytes: 0 };
        self.alone = match counts {
            Counts::Old => Some(0),
            Counts::New => Some(1),
            Counts::Both => None,
        };
        let client: Box<dyn BlockMachine + Send> = if let Some(side) = self.alone {
            Box::new(self.client_of(side, &mut scratch)?)
        } else {
            let old = self.client_of(0, &mut scratch)?;
            let new = self.client_of(1, &mut scratch)?;
            let offset = scratch.offset + scratch.bytes;
            scratch = Scratch { offset, bytes: 8 * self.piece_bytes };
            Box::new(MovingClient::new(old, new, scratch, FAIL_TIMEOUT_MS))
        };
        self.client = self.world.start(Process::of_client("moving", client, scratch, None));
        self.judge.client_begins(self.client, DEPTH, SLOT_BYTES);
        self.judge.oracle.decided();
        (self.serves, self.refused) = (false, false);
        self.begun = self.alone.is_some();
        Ok(())
    }

    /// The client of an array; its memory comes behind that of the last one.
    fn client_of(&mut self, side: usize, scratch: &mut Scratch) -> Result<FailoverClient, Failure> {
        let none = || Failure(format!("array {side} cannot start"));
        let config = self.assembled(side).ok_or_else(none)?;
        let offset = scratch.offset + scratch.bytes;
        *scratch = Scratch { offset, bytes: Client::scratch_bytes(&config) };
        let finder = Box::new(self.searches[side].clone());
        FailoverClient::new(config, *scratch, finder, FAIL_TIMEOUT_MS).map_err(Failure)
    }

    /// Checks that every block has an allowed content in the array that is left.
    fn judge_volumes(&mut self) -> Result<(), Failure> {
        let notes: Vec<MoveNote> = (0..2).map(|side| self.newest_note(side)).collect();
        let left = match (self.alone, &notes[..]) {
            (Some(alone), _) => alone,
            (None, [MoveNote::Source, MoveNote::Apart]) => 1,
            (None, [MoveNote::Apart, MoveNote::Target { front: 0, back: true }]) => 0,
            _ => return Err(Failure(format!("it stopped with {notes:?}"))),
        };
        let Self { layouts, judge, nodes, world, .. } = self;
        let disk = |&node: &usize| {
            let process = &world.processes[node];
            process.volumes.contains_key(VOLUMES[left]).then(|| &process.volume(VOLUMES[left]).disk)
        };
        let disks: Vec<&Disk> = nodes.iter().filter_map(disk).collect();
        if let Some(misfit) = content::misfit(&layouts[left], &disks) {
            return Err(Failure(misfit));
        }
        let stripes = 0..self.params[left].stripes;
        let mut data: Vec<u8> =
            stripes.flat_map(|stripe| content::data(&layouts[left], &disks, stripe, &[])).collect();
        data.truncate((self.blocks * BLOCK_SECTORS * 512) as usize);
        judge.content(0, &data, &|_| false)
    }

    fn newest_note(&self, side: usize) -> MoveNote {
        let found = self.disks(side).into_iter().filter_map(|disk| content::superblock(disk).ok());
        let newest = found.max_by_key(|superblock| superblock.events);
        newest.map_or(MoveNote::Apart, |superblock| MoveNote::of(&superblock))
    }
}

/// Has the superblock of a volume say that data are to come to the array.
fn begins(disk: &mut Disk) {
    if let Ok(superblock) = content::superblock(disk) {
        let note = MoveNote::Target { front: 0, back: false };
        let feature_map = superblock.feature_map | note.features();
        disk.put(SUPER_SECTOR, &Superblock { feature_map, ..superblock }.encode());
    }
}
