//! An array over the nodes of a [`World`], written by a scripted client, with its expected content.

use braid_array::Role;
use std::collections::BTreeMap;

use braid_array::code::{Cell, Content, Terms};
use braid_array::fabric::PeerId;
use braid_array::level::{Layout, Level};
use braid_cluster::Family;
use braid_cluster::ids::{Epoch, Generation, Position, StripeNo};
use braid_cluster::pipeline::{Params, Pipeline, Slots};
use braid_cluster::schedule::Planner;
use braid_cluster::set::{Imm, Roles, Set, Touched, WriteStrategy};
use braid_cluster::wire::{Message, PeerAddress};

use super::world::World;

/// The array's id.
pub(super) const ARRAY: [u8; 16] = [3; 16];
pub(super) const DATA_SECTOR: u64 = 16;
pub(super) const ENCODER: Planner = Planner::Encoder { node: Role(0) };
pub(super) const CHUNK: u32 = 8192;
const SLICE: u32 = 4096;
const ARENA_BYTES: usize = 8 << 20;
/// Content of blocks on nodes that lack the right content.
pub(super) const RUBBISH: u8 = 0xee;

pub(super) fn md(level: Level) -> Family {
    Family::Md { level, layout: Layout::default_for(level) }
}

/// md's levels with redundancy, and over how many nodes.
pub(super) fn levels() -> Vec<(Family, u16)> {
    let levels = [
        (Level::Raid1, 2),
        (Level::Raid1, 3),
        (Level::Raid10, 4),
        (Level::Raid10, 5),
        (Level::Raid4, 3),
        (Level::Raid4, 4),
        (Level::Raid5, 3),
        (Level::Raid5, 5),
        (Level::Raid6, 4),
        (Level::Raid6, 6),
    ];
    levels.map(|(level, nodes)| (md(level), nodes)).to_vec()
}

pub(super) struct Array {
    pub(super) world: World,
    /// Connections to the nodes.
    pub(super) peers: Vec<PeerId>,
    pub(super) rings: Vec<u64>,
    pub(super) pipeline: Pipeline,
    /// Expected content of the blocks, by stripe and data index.
    model: Vec<Vec<Vec<u8>>>,
    generations: Vec<Generation>,
}

pub(super) fn params(family: Family, nodes: u16, planner: Planner) -> Params {
    Params {
        session: 77,
        epoch: Epoch(1),
        family,
        nodes,
        chunk_bytes: CHUNK,
        stripes: 2 * u64::from(nodes),
        planner,
        wide: Slots { count: nodes, bytes: SLICE },
        narrow: Slots { count: nodes, bytes: 4096 },
        reads: Slots { count: 3, bytes: 8192 },
        silence_ms: 3000,
    }
}

impl Array {
    pub(super) fn new(family: Family, nodes: u16, planner: Planner, seed: u64) -> Self {
        Self::on(World::new(usize::from(nodes), ARENA_BYTES, seed), family, nodes, planner)
    }

    /// On nodes that give this much memory to rings.
    pub(super) fn lean(family: Family, nodes: u16, ring_bytes: u64) -> Self {
        let world = World::with_limit(usize::from(nodes), ARENA_BYTES, 5, Some(ring_bytes));
        Self::on(world, family, nodes, ENCODER)
    }

    fn on(mut world: World, family: Family, nodes: u16, planner: Planner) -> Self {
        let pipeline = Pipeline::new(params(family, nodes, planner)).expect("a pipeline");
        let bytes = DATA_SECTOR * 512 + pipeline.member_bytes();
        let peers: Vec<PeerId> = (0..usize::from(nodes)).map(|site| world.dial(site)).collect();
        peers.iter().for_each(|&peer| world.grant(peer, ARRAY, 1));
        for &peer in &peers {
            world.send(peer, &Message::CreateVolume { tag: 1, name: "v".to_owned(), bytes });
        }
        world.run();
        for (role, &peer) in peers.iter().enumerate() {
            let params = *pipeline.params();
            let role = Role::at(role);
            let message = Message::OpenPipeline { tag: 2, role, data_sector: DATA_SECTOR, params };
            world.send(peer, &message);
        }
        world.run();
        let mut rings = vec![0; usize::from(nodes)];
        for (peer, message) in std::mem::take(&mut world.heard) {
            match message {
                Message::Volume { tag: 1, bytes: found, .. } => assert_eq!(found, bytes),
                Message::PipelineReady { tag: 2, ring, .. } => rings[peer.0 as usize] = ring,
                other => panic!("{other:?}"),
            }
        }
        let blocks = vec![vec![0; CHUNK as usize]; pipeline.data_blocks() as usize];
        let model = vec![blocks; pipeline.params().stripes as usize];
        let generations = vec![Generation(0); usize::from(pipeline.positions())];
        Self { world, peers, rings, pipeline, model, generations }
    }

    /// With all connections between the nodes.
    pub(super) fn connected(family: Family, nodes: u16, planner: Planner, seed: u64) -> Self {
        let mut array = Self::new(family, nodes, planner, seed);
        for node in 0..nodes {
            array.connect(Role(node));
        }
        array.world.run();
        let heard = std::mem::take(&mut array.world.heard);
        assert_eq!(heard.len(), usize::from(nodes));
        assert!(heard.iter().all(|(_, message)| *message == Message::Ok { tag: 3 }), "{heard:?}");
        array
    }

    /// In the middle of writing a stripe at five positions: so many steps at most have been taken.
    pub(super) fn writing(stripe: u64, steps: u64, seed: u64) -> Self {
        let mut array = Self::connected(Family::Xor2d, 5, ENCODER, seed);
        for position in 0..5 {
            let set = array.set(position, stripe);
            array.write(&set);
        }
        for _ in 0..array.world.random(steps) {
            array.world.step();
        }
        array
    }

    /// Tells a node to connect to the others.
    pub(super) fn connect(&mut self, node: Role) {
        let others = Role::all(self.peers.len() as u16).filter(|&other| other != node);
        let peer = |role: Role| PeerAddress {
            role,
            address: role.to_string(),
            ring: self.rings[role.index()],
        };
        let peers = others.map(peer).collect();
        self.world.send(self.peers[node.index()], &Message::Connect { tag: 3, peers });
    }

    /// The next slice-set at a position, a whole slice.
    pub(super) fn set(&mut self, position: u16, stripe: u64) -> Set {
        let position = Position(position);
        let generation = &mut self.generations[position.index()];
        *generation = generation.next();
        Set {
            position,
            generation: *generation,
            number: 0,
            stripe: StripeNo(stripe),
            offset: 0,
            len: SLICE,
            strategy: WriteStrategy::FullStripe,
            planner: self.pipeline.planner(position),
            fua: false,
            touched: Touched::all(self.pipeline.data_blocks()),
            missing: Roles::NONE,
            log: true,
            relay: false,
        }
    }

    /// Blocks picked at random, one at least.
    pub(super) fn some(&mut self) -> Touched {
        let mut touched = Touched::none(self.pipeline.data_blocks());
        let blocks = u64::from(self.pipeline.data_blocks());
        for _ in 0..=self.world.random(blocks) {
            touched.insert(self.world.random(blocks) as u32);
        }
        touched
    }

    /// Tells a node of a slice-set that another one was to relay.
    pub(super) fn say(&mut self, node: Role, set: &Set) {
        let set = Set { relay: false, ..set.clone() };
        self.world.send(self.peers[node.index()], &Message::BeginSet { set });
    }

    /// Opens a slice-set with random content and sends its slices.
    pub(super) fn write(&mut self, set: &Set) {
        self.write_some(set, &set.touched.clone());
    }

    /// Writes new content to these blocks only: the others are put with their old content.
    pub(super) fn write_some(&mut self, set: &Set, new: &Touched) {
        let range = set.offset as usize..(set.offset + set.len) as usize;
        let stripe = set.stripe.0 as usize;
        let old = self.model[stripe].clone();
        for index in new.iter() {
            let bytes = self.world.bytes(set.len as usize);
            self.model[stripe][index as usize][range.clone()].copy_from_slice(&bytes);
        }
        let plan = self.pipeline.plan_of(set).expect("it may be opened");
        let receiver = |(number, _): (usize, Content)| plan.schedule.transfers()[number].to;
        let told: Roles = if set.relay {
            plan.sent_by_client(set.strategy, &set.touched).map(receiver).collect()
        } else {
            plan.involved(set.strategy, &set.touched).into_iter().collect()
        };
        for node in told.iter() {
            self.world.send(self.peers[node.index()], &Message::BeginSet { set: set.clone() });
        }
        for (number, content) in plan.sent_by_client(set.strategy, &set.touched) {
            let terms = match content {
                Content::Data(index) => Terms::block(index),
                Content::Sum(number) => plan.code.terms(plan.code.equations()[number].parity),
            };
            let mut bytes = self.content(set.stripe.0, &terms)[range.clone()].to_vec();
            let home = plan.code.cell(number).node;
            if set.strategy == WriteStrategy::ReadModifyWrite && set.missing.contains(home) {
                let old = &old[number][range.clone()];
                braid_parity::combine(&mut [&mut bytes], &[1], &[old], true);
            }
            let node = plan.schedule.transfers()[number].to.index();
            let to = self.rings[node] + self.pipeline.arrival(&plan, set, number).offset;
            let imm = Imm::of(set, number).encode();
            self.world.put(self.peers[node], to, imm, bytes);
        }
    }

    /// Opens a slice-set that makes its range read as zeroes.
    pub(super) fn blank(&mut self, set: &Set) {
        let range = set.offset as usize..(set.offset + set.len) as usize;
        for block in &mut self.model[set.stripe.0 as usize] {
            block[range.clone()].fill(0);
        }
        self.write_some(set, &Touched::none(set.touched.blocks()));
    }

    /// Returns the whole content of a block that is this sum of the data.
    pub(super) fn content(&self, stripe: u64, terms: &Terms) -> Vec<u8> {
        let mut block = vec![0; CHUNK as usize];
        for (index, coef) in terms.iter() {
            let data = &self.model[stripe as usize][index as usize];
            braid_parity::combine(&mut [&mut block], &[coef], &[data], true);
        }
        block
    }

    /// Returns the content of a cell.
    pub(super) fn cell(&mut self, stripe: u64, cell: Cell) -> &mut [u8] {
        let at = DATA_SECTOR * 512 + self.pipeline.member_byte(StripeNo(stripe), cell.row, 0);
        let disk = self.world.disk(cell.node.index(), "v");
        &mut disk.image_mut()[at as usize..][..CHUNK as usize]
    }

    /// Runs all pending work, and commits each slice-set that is prepared completely on every node.
    pub(super) fn run(&mut self) {
        self.world.run();
        let mut prepared: BTreeMap<(Position, Generation), (Vec<PeerId>, bool)> = BTreeMap::new();
        let heard = std::mem::take(&mut self.world.heard);
        for (peer, message) in heard {
            match message {
                Message::Prepared { position, generation, ok, .. } => {
                    let (peers, whole) = prepared
                        .entry((position, generation))
                        .or_insert_with(|| (Vec::new(), true));
                    peers.push(peer);
                    *whole &= ok;
                }
                other => self.world.heard.push((peer, other)),
            }
        }
        for ((position, generation), (peers, whole)) in prepared {
            for peer in peers {
                let message = if whole {
                    Message::Commit { sets: vec![(position, generation)] }
                } else {
                    Message::Abort { position, generation }
                };
                self.world.send(peer, &message);
            }
        }
        self.world.run();
    }

    /// Every node has closed these slice-sets, and well.
    pub(super) fn expect_closed(&mut self, sets: &[Set]) {
        let mut closed: BTreeMap<(Position, Generation), usize> = BTreeMap::new();
        for (peer, message) in std::mem::take(&mut self.world.heard) {
            match message {
                Message::Finished { position, generation, ok: true, .. } => {
                    *closed.entry((position, generation)).or_default() += 1;
                }
                other => panic!("{peer:?} says {other:?}"),
            }
        }
        for set in sets {
            let plan = self.pipeline.plan_of(set).expect("it may be opened");
            let involved = plan.involved(set.strategy, &set.touched).len();
            assert_eq!(closed.remove(&(set.position, set.generation)), Some(involved), "{set:?}");
        }
        assert!(closed.is_empty());
        assert!(self.world.all_idle());
    }

    /// Checks that every member holds a direct encoding of the model.
    pub(super) fn verify(&self) {
        self.verify_without(Roles::NONE);
    }

    /// Checks all members except these.
    pub(super) fn verify_without(&self, missing: Roles) {
        let Params { nodes, stripes, .. } = *self.pipeline.params();
        for stripe in 0..stripes {
            for node in (0..nodes).filter(|&node| !missing.contains(Role(node))) {
                let wrong = self.wrong_rows(stripe, Role(node));
                assert_eq!(wrong, [], "stripe {stripe}, node {node} without {missing:?}");
            }
        }
    }

    /// Gives every block some content.
    pub(super) fn fill_all(&mut self) {
        for stripe in 0..self.pipeline.params().stripes {
            for offset in (0..CHUNK).step_by(SLICE as usize) {
                let whole = self.set((stripe % 2) as u16, stripe);
                let set = Set { offset, ..whole };
                self.write(&set);
                self.run();
                self.expect_closed(&[set]);
            }
        }
    }

    /// Returns the rows of a stripe on which a member holds wrong content.
    pub(super) fn wrong_rows(&self, stripe: u64, node: Role) -> Vec<u16> {
        let Params { family, nodes, .. } = *self.pipeline.params();
        let code = family.code(nodes, stripe).expect("a code");
        let wrong = |&row: &u16| {
            let block = self.content(stripe, &code.terms(Cell { row, node }));
            let at = DATA_SECTOR * 512 + self.pipeline.member_byte(StripeNo(stripe), row, 0);
            let volume = self.world.volume(node.index(), "v");
            volume[at as usize..][..CHUNK as usize] != block
        };
        (0..self.pipeline.rows()).filter(wrong).collect()
    }
}
