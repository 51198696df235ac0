//! Nodes in the simulator's world, and a client played by a test: it opens any number of
//! connections, sends any message, puts anywhere, and keeps the messages to it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use braid_array::action::Event;
use braid_array::array::Scratch;
use braid_array::events::ArrayEvent;
use braid_array::fabric::{FabricEvent, FabricOp, PeerId};
use braid_array::{Action, AnyMachine, Buf, Instant, IoId, Machine, Refusal};
use braid_cluster::Node;
use braid_cluster::ids::{Epoch, NodeId};
use braid_cluster::wire::Message;
use braid_sim::disk::Disk;
use braid_sim::fault::FaultProfile;
use braid_sim::rng::Rng;
use braid_sim::trace::Trace;
use braid_sim::world::process::{Counts, Process};
use braid_sim::world::script;

/// Memory of the client for incoming puts; the data of outgoing puts come behind it.
const LANDING_BYTES: u64 = 1 << 16;
/// The name of the client's end of each of its connections.
const PEER: PeerId = PeerId(0);

/// A node machine that a test can look at while the world runs it.
struct Shared(Arc<Mutex<Node>>);

impl Machine for Shared {
    fn handle(&mut self, now: Instant, event: Event) {
        self.0.lock().unwrap().handle(now, event);
    }

    fn poll(&mut self) -> Option<Action> {
        self.0.lock().unwrap().poll()
    }

    fn deadline(&self) -> Option<Instant> {
        self.0.lock().unwrap().deadline()
    }

    fn idle(&self) -> bool {
        self.0.lock().unwrap().idle()
    }

    fn invariants(&self) -> Result<(), String> {
        self.0.lock().unwrap().invariants()
    }
}

/// A node, by the process that it is at the moment.
struct Site {
    process: usize,
    node: Arc<Mutex<Node>>,
    replies: Vec<Result<(), Refusal>>,
    said: Vec<ArrayEvent>,
}

/// A connection of the client.
struct Dialed {
    process: usize,
    /// Actions queued until the connection stands; `None` afterwards.
    waiting: Arc<Mutex<Option<VecDeque<Action>>>>,
}

/// Events of a client's connection.
type Events = Arc<Mutex<Vec<(PeerId, Event)>>>;

/// Nodes, by number, and the client. [`dial`](Self::dial) opens a connection; then the client
/// [sends](Self::send) and [puts](Self::put). [`step`](Self::step) handles one event,
/// [`run`](Self::run) all pending ones. Messages to the client are in `heard`, puts in `placed`,
/// and ended connections in `lost`.
pub(crate) struct World {
    world: braid_sim::world::World,
    sites: Vec<Site>,
    dialed: Vec<Dialed>,
    events: Events,
    rng: Rng,
    /// Messages to the client, with the connection of each.
    pub(crate) heard: Vec<(PeerId, Message)>,
    /// Puts into the client's memory.
    pub(crate) placed: Vec<(PeerId, u32)>,
    /// Connections that are over, by no will of the client.
    pub(crate) lost: Vec<PeerId>,
}

/// The part of a node's arena that it gives to rings.
const fn ring_space(arena_bytes: usize) -> Scratch {
    Scratch { offset: 4096, bytes: arena_bytes as u64 - 4096 }
}

impl World {
    pub(crate) fn new(nodes: usize, arena_bytes: usize, seed: u64) -> Self {
        Self::with_limit(nodes, arena_bytes, seed, None)
    }

    /// Nodes that give so much memory to rings, if that is not all.
    pub(crate) fn with_limit(
        nodes: usize,
        arena_bytes: usize,
        seed: u64,
        limit: Option<u64>,
    ) -> Self {
        let mut rng = Rng::new(seed);
        let world = braid_sim::world::World::new(rng.fork(), FaultProfile::CALM, Trace::new(false));
        let mut new = Self {
            world,
            sites: Vec::new(),
            dialed: Vec::new(),
            events: Events::default(),
            rng,
            heard: Vec::new(),
            placed: Vec::new(),
            lost: Vec::new(),
        };
        for number in 0..nodes as u64 {
            let mut node = Node::new(ring_space(arena_bytes), NodeId(number), 100 + number);
            if let Some(bytes) = limit {
                node = node.with_limit(bytes);
            }
            let site = new.start(number, node, arena_bytes, |_| {});
            new.sites.push(site);
        }
        new
    }

    fn start(
        &mut self,
        number: u64,
        node: Node,
        arena_bytes: usize,
        prepare: impl FnOnce(&mut Process),
    ) -> Site {
        let node = Arc::new(Mutex::new(node));
        let machine = AnyMachine::Plain(Box::new(Shared(Arc::clone(&node))));
        let name = format!("node {number}");
        let mut process = Process::new(name, machine, arena_bytes, Some(number.to_string()));
        prepare(&mut process);
        let process = self.world.start(process);
        Site { process, node, replies: Vec::new(), said: Vec::new() }
    }

    /// The only node ends at once, with all that was under way, and starts again.
    pub(crate) fn crash(&mut self) {
        let before = self.sites[0].process;
        self.world.lose_what_is_under_way(before, |_| true);
        self.world.kill(before);
        let process = &mut self.world.processes[before];
        let volumes = std::mem::take(&mut process.volumes);
        let devices = std::mem::take(&mut process.devices);
        let notes = std::mem::take(&mut process.notes);
        let arena_bytes = 1 << 20;
        let node = Node::new(ring_space(arena_bytes), NodeId(0), 200);
        self.sites[0] = self.start(0, node, arena_bytes, |process| {
            process.volumes = volumes;
            process.devices = devices;
            process.notes = notes;
        });
    }

    pub(crate) fn random(&mut self, below: u64) -> u64 {
        self.rng.below(below)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.rng.next() as u8).collect()
    }

    /// The client connects to a node.
    pub(crate) fn dial(&mut self, site: usize) -> PeerId {
        self.dial_as(site, None)
    }

    /// The client connects to a node, with the key of this array.
    pub(crate) fn dial_limited(&mut self, site: usize, array: [u8; 16]) -> PeerId {
        self.dial_as(site, Some(array))
    }

    fn dial_as(&mut self, site: usize, limit: Option<[u8; 16]>) -> PeerId {
        let dialed = PeerId(self.dialed.len() as u32);
        let waiting = Arc::new(Mutex::new(Some(VecDeque::new())));
        let events = Arc::clone(&self.events);
        let said = Arc::clone(&waiting);
        let rule = move |event: &Event| {
            events.lock().unwrap().push((dialed, event.clone()));
            let up = matches!(event, Event::Fabric(FabricEvent::Connected { .. }));
            let waits = if up { said.lock().unwrap().take() } else { None };
            waits.into_iter().flatten().collect()
        };
        let name = format!("client {}", dialed.0);
        let (process, _) = script::start(&mut self.world, &name, 0, Vec::new(), rule);
        let client = &mut self.world.processes[process];
        client.limit = limit;
        client.arena = vec![0; LANDING_BYTES as usize];
        client.open_to_all = 0..LANDING_BYTES;
        self.dialed.push(Dialed { process, waiting });
        let connect = FabricOp::Connect { peer: PEER, address: site.to_string() };
        self.world.carry_out(process, Action::Fabric(connect));
        dialed
    }

    /// Queues an action until the client's connection stands.
    fn act(&mut self, peer: PeerId, action: Action) {
        let Dialed { process, waiting } = &self.dialed[peer.0 as usize];
        match waiting.lock().unwrap().as_mut() {
            Some(waiting) => waiting.push_back(action),
            None if !self.lost.contains(&peer) => self.world.carry_out(*process, action),
            None => {}
        }
    }

    pub(crate) fn send(&mut self, peer: PeerId, message: &Message) {
        self.send_bytes(peer, message.encode(Epoch(1)));
    }

    pub(crate) fn send_bytes(&mut self, peer: PeerId, bytes: Vec<u8>) {
        self.act(peer, Action::Fabric(FabricOp::Send { peer: PEER, bytes }));
    }

    /// Obtains the grant of an epoch of an array from a node.
    pub(crate) fn grant(&mut self, peer: PeerId, array: [u8; 16], epoch: u32) {
        self.send(peer, &Message::Grant { tag: 0, array, epoch: Epoch(epoch), client: 0 });
        self.run();
        let answer = self.heard.pop();
        assert!(matches!(answer, Some((_, Message::Granted { tag: 0, .. }))), "{answer:?}");
    }

    pub(crate) fn put(&mut self, peer: PeerId, to: u64, imm: u32, bytes: Vec<u8>) {
        let process = self.dialed[peer.0 as usize].process;
        let arena = &mut self.world.processes[process].arena;
        let from = Buf { offset: arena.len() as u64, len: bytes.len() as u32 };
        arena.extend(bytes);
        let put = FabricOp::Put { io: IoId(from.offset), peer: PEER, from, to, imm };
        self.act(peer, Action::Fabric(put));
    }

    /// The client hangs up.
    pub(crate) fn hang_up(&mut self, peer: PeerId) {
        if !self.lost.contains(&peer) {
            self.dialed[peer.0 as usize].waiting.lock().unwrap().take();
            let process = self.dialed[peer.0 as usize].process;
            self.world.carry_out(process, Action::Fabric(FabricOp::HangUp { peer: PEER }));
        }
    }

    /// Breaks the connections between two nodes.
    pub(crate) fn break_link(&mut self, a: usize, b: usize) {
        self.world.disconnect(self.sites[a].process, self.sites[b].process);
    }

    /// Returns the timeouts of ends of connections, in milliseconds.
    pub(crate) fn silences(&self) -> Vec<u32> {
        self.world.network.silences().collect()
    }

    pub(crate) fn command(&mut self, site: usize, event: Event) {
        self.world.handle(self.sites[site].process, event);
    }

    /// Returns whether memory of this site is in use by an operation of its own.
    pub(crate) fn uses_memory(&self, site: usize) -> bool {
        self.process(site).claims.uses().any(|what| what != "a put's arrival")
    }

    /// Until nothing is under way.
    pub(crate) fn run(&mut self) {
        while self.step() {}
        for dialed in &self.dialed {
            self.world.processes[dialed.process].arena.truncate(LANDING_BYTES as usize);
        }
    }

    /// Handles one event. Returns false when none is pending.
    pub(crate) fn step(&mut self) -> bool {
        let moved = !self.world.quiet() && self.world.step();
        self.pull();
        moved
    }

    /// Collects the outputs of nodes and client.
    fn pull(&mut self) {
        for (process, action) in std::mem::take(&mut self.world.outputs) {
            let site = self.sites.iter_mut().find(|site| site.process == process);
            let Some(site) = site else { continue };
            match action {
                Action::Reply { result, .. } => site.replies.push(result),
                Action::Notify(event) => site.said.push(event),
                other => panic!("a node has no array, and says {other:?}"),
            }
        }
        for (peer, event) in std::mem::take(&mut *self.events.lock().unwrap()) {
            match event {
                Event::Fabric(FabricEvent::Message { bytes, .. }) => {
                    let (_, message) = Message::decode(&bytes).expect("nodes send messages");
                    self.heard.push((peer, message));
                }
                Event::Fabric(FabricEvent::Placed { imm, .. }) => self.placed.push((peer, imm)),
                Event::Fabric(FabricEvent::Lost { .. }) => self.lost.push(peer),
                _ => {}
            }
        }
    }

    pub(crate) fn sites(&self) -> std::ops::Range<usize> {
        0..self.sites.len()
    }

    fn process(&self, site: usize) -> &Process {
        &self.world.processes[self.sites[site].process]
    }

    pub(crate) fn process_mut(&mut self, site: usize) -> &mut Process {
        &mut self.world.processes[self.sites[site].process]
    }

    /// Looks at a node.
    pub(crate) fn node<T>(&self, site: usize, look: impl FnOnce(&Node) -> T) -> T {
        look(&self.sites[site].node.lock().unwrap())
    }

    /// Returns whether all nodes are idle.
    pub(crate) fn all_idle(&self) -> bool {
        self.sites().all(|site| self.node(site, Machine::idle))
    }

    /// Bytes of a node's rings that are in use.
    pub(crate) fn ring_used(&self, site: usize) -> u64 {
        self.node(site, |node| node.ring_use().used_bytes)
    }

    pub(crate) fn open_volumes(&self, site: usize) -> usize {
        self.process(site).devices.iter().filter(|device| device.open.is_some()).count()
    }

    /// A node has this volume.
    pub(crate) fn keep(&mut self, site: usize, name: &str, content: &[u8]) {
        let mut disk = Disk::new(content.len() as u64 / 512);
        disk.put(0, content);
        self.process_mut(site).keep(name, disk);
    }

    /// The names of a node's volumes.
    pub(crate) fn volumes(&self, site: usize) -> Vec<&str> {
        self.process(site).volumes.keys().map(String::as_str).collect()
    }

    /// Returns the content of a volume.
    pub(crate) fn volume(&self, site: usize, name: &str) -> &[u8] {
        self.process(site).volume(name).disk.image()
    }

    /// A volume that a test does something to.
    pub(crate) fn disk(&mut self, site: usize, name: &str) -> &mut Disk {
        &mut self.process_mut(site).volume_mut(name).disk
    }

    /// Returns the operations on the first volume of a node.
    pub(crate) fn counts(&self, site: usize) -> Counts {
        let &device = self.process(site).volumes.values().next().expect("the node has one");
        self.process(site).devices[device].counts
    }

    /// Returns the notes of a node.
    pub(crate) fn notes(&self, site: usize) -> Vec<(&str, &[u8])> {
        let notes = self.process(site).notes.iter();
        notes.map(|(name, note)| (name.as_str(), note.as_slice())).collect()
    }

    /// Returns the replies of a node to commands.
    pub(crate) fn replies(&self, site: usize) -> &[Result<(), Refusal>] {
        &self.sites[site].replies
    }

    /// Returns the log messages of a node.
    pub(crate) fn said(&self, site: usize) -> &[ArrayEvent] {
        &self.sites[site].said
    }

    /// The memory of a connection of the client.
    pub(crate) fn client_arena(&mut self, peer: PeerId) -> &mut [u8] {
        &mut self.world.processes[self.dialed[peer.0 as usize].process].arena
    }
}
