//! Nodes, their stores and the connections between them, in memory. Everything that is under way
//! happens at a time that a seed picks; buffers are read and written only then.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use braid_array::Refusal;
use braid_array::action::{Checked, Compute, Event, IoErrorKind};
use braid_array::array::Scratch;
use braid_array::events::ArrayEvent;
use braid_array::fabric::{FabricEvent, FabricOp, NoteOp, PeerId, Survey, Volume, VolumeOp};
use braid_array::{
    Action, Buf, Instant, IoError, IoId, IoOp, Machine, MemberId, Outcome, SECTOR_BYTES,
};

use crate::Node;
use crate::wire::Message;

/// Where the scripted client stands among the sites.
pub(super) const CLIENT: usize = usize::MAX;

/// A process and an end of a connection of its.
type End = (usize, PeerId);

/// Something under way.
enum Pending {
    Io(usize, IoId, MemberId, IoOp),
    Compute(usize, IoId, Compute),
    Note(usize, IoId, NoteOp),
    /// Bytes of somebody's arena, or of the client's (no id).
    Put(Option<(usize, IoId)>, End, Source, u64, u32),
    Event(usize, Event),
    /// To this end of a connection, in order.
    Ordered(End, FabricEvent),
}

enum Source {
    Arena(Buf),
    Bytes(Vec<u8>),
}

pub(super) struct Site {
    pub(super) node: Node,
    pub(super) arena: Vec<u8>,
    pub(super) volumes: BTreeMap<String, Vec<u8>>,
    pub(super) notes: BTreeMap<String, Vec<u8>>,
    open: BTreeMap<MemberId, String>,
    next_member: u16,
    next_accepted: u32,
    /// Refuses connections.
    pub(super) down: bool,
    /// I/O on these sectors fails.
    pub(super) bad_sectors: BTreeSet<u64>,
    /// There is no room for what is written.
    pub(super) full: bool,
    /// Notes cannot be removed.
    pub(super) keeps_notes: bool,
    pub(super) flushes: usize,
    /// Sectors that can be written.
    pub(super) unreadable: Vec<u64>,
    pub(super) writes: usize,
    pub(super) durable_writes: usize,
    /// Ranges that were to read as zeroes and need no space.
    pub(super) given_back: usize,
    pub(super) replies: Vec<Result<(), Refusal>>,
    /// For the log.
    pub(super) said: Vec<ArrayEvent>,
}

pub(super) struct World {
    pub(super) sites: Vec<Site>,
    /// Both ends of every connection that stands.
    links: BTreeMap<End, End>,
    /// Where what comes over a node's end may land.
    windows: BTreeMap<End, Range<u64>>,
    /// What they bear of whom they are connected to, in milliseconds.
    pub(super) silences: BTreeMap<End, u32>,
    pending: Vec<Pending>,
    seed: u64,
    /// What the client has heard: from which of its connections, and what.
    pub(super) heard: Vec<(PeerId, Message)>,
    pub(super) placed: Vec<(PeerId, u32)>,
    pub(super) lost: Vec<PeerId>,
    pub(super) client_arena: Vec<u8>,
    next_client_peer: u32,
}

impl World {
    pub(super) fn new(nodes: usize, arena_bytes: usize, seed: u64) -> Self {
        let site = |number| Site {
            node: Node::new(
                Scratch { offset: 4096, bytes: arena_bytes as u64 - 4096 },
                number,
                100 + number,
            ),
            arena: vec![0; arena_bytes],
            volumes: BTreeMap::new(),
            notes: BTreeMap::new(),
            open: BTreeMap::new(),
            next_member: 0,
            next_accepted: PeerId::FIRST_ACCEPTED,
            down: false,
            bad_sectors: BTreeSet::new(),
            full: false,
            keeps_notes: false,
            flushes: 0,
            unreadable: Vec::new(),
            writes: 0,
            durable_writes: 0,
            given_back: 0,
            replies: Vec::new(),
            said: Vec::new(),
        };
        Self {
            sites: (0..nodes as u64).map(site).collect(),
            links: BTreeMap::new(),
            windows: BTreeMap::new(),
            silences: BTreeMap::new(),
            pending: Vec::new(),
            seed: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            heard: Vec::new(),
            placed: Vec::new(),
            lost: Vec::new(),
            client_arena: vec![0; 1 << 16],
            next_client_peer: 0,
        }
    }

    /// Nodes give so much memory to rings.
    pub(super) fn limit_rings(&mut self, bytes: u64) {
        for (number, site) in (0..).zip(&mut self.sites) {
            let space = Scratch { offset: 4096, bytes: site.arena.len() as u64 - 4096 };
            site.node = Node::new(space, number, 100 + number).with_limit(bytes);
        }
    }

    pub(super) fn random(&mut self, below: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 11) % below
    }

    pub(super) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.random(256) as u8).collect()
    }

    /// The client connects to a node.
    pub(super) fn dial(&mut self, site: usize) -> PeerId {
        let peer = PeerId(self.next_client_peer);
        self.next_client_peer += 1;
        self.accept((CLIENT, peer), site, None);
        peer
    }

    /// The client connects to a node, with the key of this array.
    pub(super) fn dial_limited(&mut self, site: usize, array: [u8; 16]) -> PeerId {
        let peer = PeerId(self.next_client_peer);
        self.next_client_peer += 1;
        self.accept((CLIENT, peer), site, Some(array));
        peer
    }

    fn accept(&mut self, dialer: End, site: usize, limit: Option<[u8; 16]>) {
        let peer = PeerId(self.sites[site].next_accepted);
        self.sites[site].next_accepted += 1;
        self.links.insert(dialer, (site, peer));
        self.links.insert((site, peer), dialer);
        let accepted = FabricEvent::Accepted { peer, limit };
        self.pending.push(Pending::Ordered((site, peer), accepted));
    }

    pub(super) fn send(&mut self, peer: PeerId, message: &Message) {
        self.send_bytes(peer, message.encode(1));
    }

    /// Has a node grant an epoch of an array.
    pub(super) fn grant(&mut self, peer: PeerId, array: [u8; 16], epoch: u32) {
        self.send(peer, &Message::Grant { tag: 0, array, epoch, client: 0 });
        self.run();
        let answer = self.heard.pop();
        assert!(matches!(answer, Some((_, Message::Granted { tag: 0, .. }))), "{answer:?}");
    }

    pub(super) fn send_bytes(&mut self, peer: PeerId, bytes: Vec<u8>) {
        let Some(&(site, theirs)) = self.links.get(&(CLIENT, peer)) else { return };
        let event = FabricEvent::Message { peer: theirs, bytes };
        self.pending.push(Pending::Ordered((site, theirs), event));
    }

    pub(super) fn put(&mut self, peer: PeerId, to: u64, imm: u32, bytes: Vec<u8>) {
        let Some(&end) = self.links.get(&(CLIENT, peer)) else { return };
        self.pending.push(Pending::Put(None, end, Source::Bytes(bytes), to, imm));
    }

    /// The client hangs up.
    pub(super) fn hang_up(&mut self, peer: PeerId) {
        self.cut((CLIENT, peer), false);
    }

    /// The only node ends at once, with all that was under way, and starts again.
    pub(super) fn crash(&mut self) {
        self.pending.clear();
        self.links.clear();
        let site = &mut self.sites[0];
        let space = Scratch { offset: 4096, bytes: site.arena.len() as u64 - 4096 };
        site.node = Node::new(space, 0, 200);
        site.open.clear();
    }

    /// Breaks what connects two nodes.
    pub(super) fn break_link(&mut self, a: usize, b: usize) {
        let ends = self.links.iter().find(|(from, to)| from.0 == a && to.0 == b);
        let end = *ends.expect("they are connected").0;
        self.cut(end, true);
    }

    /// Takes a connection away. Puts under way on it are answered, badly or well.
    fn cut(&mut self, end: End, tell: bool) {
        let Some(other) = self.links.remove(&end) else { return };
        self.links.remove(&other);
        let mut kept = Vec::new();
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::Put(owner, to, ..) if to == end || to == other => {
                    if let Some((site, io)) = owner {
                        self.answer(site, io, Err(IoError::GONE));
                    }
                }
                // What was sent before somebody hung up still comes.
                Pending::Ordered(to, _) if to == end || (tell && to == other) => {}
                pending => kept.push(pending),
            }
        }
        self.pending.extend(kept);
        let lost = |peer| FabricEvent::Lost { peer, why: Refusal::new("it is gone", "") };
        self.pending.push(Pending::Ordered(other, lost(other.1)));
        if tell {
            self.pending.push(Pending::Ordered(end, lost(end.1)));
        }
    }

    fn answer(&mut self, site: usize, io: IoId, result: Result<(), IoError>) {
        self.sites[site]
            .node
            .handle(Instant(0), Event::Done { io, result: result.map(|()| Outcome::Done) });
    }

    pub(super) fn command(&mut self, site: usize, event: Event) {
        self.sites[site].node.handle(Instant(0), event);
    }

    /// Is memory of this site in use by anything under way?
    pub(super) fn uses_memory(&self, site: usize) -> bool {
        self.pending.iter().any(|pending| match pending {
            Pending::Io(at, _, _, op) => *at == site && *op != IoOp::Flush,
            Pending::Compute(at, ..) => *at == site,
            Pending::Put(Some((at, _)), ..) => *at == site,
            _ => false,
        })
    }

    /// Until nothing is under way.
    pub(super) fn run(&mut self) {
        while self.step() {}
    }

    /// One thing happens. False when nothing is under way.
    pub(super) fn step(&mut self) -> bool {
        self.drain();
        if self.pending.is_empty() {
            return false;
        }
        let mut pick = self.random(self.pending.len() as u64) as usize;
        if let Pending::Ordered(end, _) = &self.pending[pick] {
            let first = |p: &Pending| matches!(p, Pending::Ordered(other, _) if other == end);
            pick = self.pending.iter().position(first).expect("at least this one");
        }
        let pending = self.pending.remove(pick);
        self.happen(pending);
        self.drain();
        true
    }

    fn happen(&mut self, pending: Pending) {
        match pending {
            Pending::Io(site, io, member, op) => {
                let result = self.sites[site].io(member, op);
                self.answer(site, io, result);
            }
            Pending::Compute(site, io, compute) => {
                let result = Ok(self.sites[site].compute(&compute));
                self.sites[site].node.handle(Instant(0), Event::Done { io, result });
            }
            Pending::Note(site, io, op) => self.note(site, io, op),
            Pending::Put(owner, (site, peer), source, to, imm) => {
                let bytes = match (source, owner) {
                    (Source::Bytes(bytes), _) => bytes,
                    (Source::Arena(buf), Some((from, _))) => self.sites[from].bytes(buf).to_vec(),
                    (Source::Arena(_), None) => unreachable!("it has no owner"),
                };
                let arena = match site {
                    CLIENT => &mut self.client_arena,
                    _ => &mut self.sites[site].arena,
                };
                let end = to.saturating_add(bytes.len() as u64);
                let admits = |w: &Range<u64>| w.start <= to && end <= w.end;
                let admitted =
                    site == CLIENT || self.windows.get(&(site, peer)).is_some_and(admits);
                let room = usize::try_from(to).ok().filter(|_| admitted);
                let room = room.and_then(|to| arena.get_mut(to..));
                let Some(room) = room.and_then(|room| room.get_mut(..bytes.len())) else {
                    // Outside the window: that is the end of the connection.
                    if let Some((from, io)) = owner {
                        self.answer(from, io, Err(IoError::GONE));
                    }
                    return self.cut((site, peer), true);
                };
                room.copy_from_slice(&bytes);
                let placed = FabricEvent::Placed { peer, imm };
                match site {
                    CLIENT => self.placed.push((peer, imm)),
                    _ => self.sites[site].node.handle(Instant(0), Event::Fabric(placed)),
                }
                if let Some((from, io)) = owner {
                    let result = Ok(Outcome::Done);
                    self.pending.push(Pending::Event(from, Event::Done { io, result }));
                }
            }
            Pending::Event(site, event) => self.sites[site].node.handle(Instant(0), event),
            Pending::Ordered((CLIENT, peer), event) => match event {
                FabricEvent::Message { bytes, .. } => {
                    let (_, message) = Message::decode(&bytes).expect("nodes send messages");
                    self.heard.push((peer, message));
                }
                FabricEvent::Lost { .. } => self.lost.push(peer),
                _ => unreachable!("nodes do not call clients"),
            },
            Pending::Ordered((site, _), event) => {
                self.sites[site].node.handle(Instant(0), Event::Fabric(event));
            }
        }
    }

    fn note(&mut self, site: usize, io: IoId, op: NoteOp) {
        let at = &mut self.sites[site];
        let result = match op {
            NoteOp::Read { name } => {
                let bytes = at.notes.get(&name).cloned().unwrap_or_default();
                return at.node.handle(Instant(0), Event::Loaded { io, bytes });
            }
            NoteOp::Remove { .. } if at.keeps_notes => Err(IoError::GONE),
            NoteOp::Remove { name } => {
                at.notes.remove(&name);
                Ok(())
            }
            NoteOp::Write { name, at: start, bytes } => {
                let note = at.notes.entry(name).or_default();
                let range = start as usize..start as usize + bytes.len();
                note.resize(note.len().max(range.end), 0);
                note[range].copy_from_slice(&bytes);
                Ok(())
            }
        };
        self.answer(site, io, result);
    }

    /// Takes in what the nodes want done.
    fn drain(&mut self) {
        for site in 0..self.sites.len() {
            while let Some(action) = self.sites[site].node.poll() {
                self.carry_out(site, action);
            }
        }
    }

    fn carry_out(&mut self, site: usize, action: Action) {
        match action {
            Action::Io { io, member, op } => self.pending.push(Pending::Io(site, io, member, op)),
            Action::Compute { io, compute } => {
                self.pending.push(Pending::Compute(site, io, compute));
            }
            Action::Store { buf, bytes } => {
                self.sites[site].bytes(buf).copy_from_slice(&bytes);
            }
            Action::Load { io, buf } => {
                let bytes = self.sites[site].bytes(buf).to_vec();
                self.pending.push(Pending::Event(site, Event::Loaded { io, bytes }));
            }
            Action::Reply { result, .. } => self.sites[site].replies.push(result),
            Action::Volume { io, op } => {
                let result = self.sites[site].volume(op);
                self.pending.push(Pending::Event(site, Event::Volume { io, result }));
            }
            Action::Note { io, op } => self.pending.push(Pending::Note(site, io, op)),
            Action::Fabric(op) => self.fabric(site, op),
            Action::Survey { io, after, most } => {
                let result = Ok(self.sites[site].survey(&after, most));
                self.pending.push(Pending::Event(site, Event::Survey { io, result }));
            }
            Action::Notify(event) => self.sites[site].said.push(event),
            Action::Use { .. } => {}
            Action::GiveBack { range } => {
                self.sites[site].arena[range.start as usize..range.end as usize].fill(0xee);
            }
            Action::Complete { .. } | Action::Abandon { .. } => {
                unreachable!("a node has no array")
            }
        }
    }

    fn fabric(&mut self, site: usize, op: FabricOp) {
        match op {
            FabricOp::Connect { peer, address } => {
                let to: usize = address.parse().expect("addresses here are numbers");
                let event = if self.sites.get(to).is_some_and(|site| !site.down) {
                    self.accept((site, peer), to, None);
                    FabricEvent::Connected { peer }
                } else {
                    FabricEvent::Lost { peer, why: Refusal::new("connection refused", "") }
                };
                self.pending.push(Pending::Ordered((site, peer), event));
            }
            FabricOp::Put { io, peer, from, to, imm } => match self.links.get(&(site, peer)) {
                Some(&end) => {
                    let source = Source::Arena(from);
                    self.pending.push(Pending::Put(Some((site, io)), end, source, to, imm));
                }
                None => self.answer(site, io, Err(IoError::GONE)),
            },
            FabricOp::Send { peer, bytes } => {
                if let Some(&(to, theirs)) = self.links.get(&(site, peer)) {
                    let event = FabricEvent::Message { peer: theirs, bytes };
                    self.pending.push(Pending::Ordered((to, theirs), event));
                }
            }
            FabricOp::Admit { peer, window } => {
                self.windows.insert((site, peer), window);
            }
            FabricOp::BearSilence { peer, millis } => {
                self.silences.insert((site, peer), millis);
            }
            FabricOp::HangUp { peer } | FabricOp::Cut { peer } => self.cut((site, peer), false),
        }
    }
}

impl Site {
    fn bytes(&mut self, buf: Buf) -> &mut [u8] {
        &mut self.arena[buf.offset as usize..][..buf.len as usize]
    }

    fn io(&mut self, member: MemberId, op: IoOp) -> Result<(), IoError> {
        let name = self.open.get(&member).expect("the member is open");
        let volume = self.volumes.get_mut(name).expect("an open volume is there");
        let (sector, buf) = match op {
            IoOp::Read { sector, buf } | IoOp::Write { sector, buf, .. } => (sector, buf),
            IoOp::Flush => {
                self.flushes += 1;
                return Ok(());
            }
            IoOp::WriteZeroes { sector, sectors, unmap: true, .. } => {
                let range = &mut volume[(sector * SECTOR_BYTES) as usize..];
                range[..(sectors * SECTOR_BYTES) as usize].fill(0);
                self.given_back += 1;
                return Ok(());
            }
            other => unreachable!("{other:?}"),
        };
        let reads = matches!(op, IoOp::Read { .. });
        let sectors = sector..sector + u64::from(buf.len) / SECTOR_BYTES;
        if self.bad_sectors.iter().any(|bad| sectors.contains(bad)) {
            return Err(IoError::MEDIUM);
        }
        if reads && self.unreadable.iter().any(|bad| sectors.contains(bad)) {
            return Err(IoError::MEDIUM);
        }
        if !reads && self.full {
            return Err(IoError { kind: IoErrorKind::Full, errno: Some(28) });
        }
        let stored = &mut volume[(sector * SECTOR_BYTES) as usize..][..buf.len as usize];
        let memory = &mut self.arena[buf.offset as usize..][..buf.len as usize];
        match op {
            IoOp::Read { .. } => memory.copy_from_slice(stored),
            _ => stored.copy_from_slice(memory),
        }
        self.writes += usize::from(matches!(op, IoOp::Write { .. }));
        self.durable_writes += usize::from(matches!(op, IoOp::Write { fua: true, .. }));
        Ok(())
    }

    fn survey(&self, after: &str, most: usize) -> Survey {
        let names: BTreeSet<&String> = self.volumes.keys().chain(self.notes.keys()).collect();
        let behind = || names.iter().filter(|name| name.as_str() > after);
        let listed: Vec<String> = behind().take(most).map(|&name| name.clone()).collect();
        let more = behind().count() > most;
        let (notes, volumes): (Vec<String>, Vec<String>) =
            listed.into_iter().partition(|name| self.notes.contains_key(name));
        let size = |name: String| (name.clone(), self.volumes[&name].len() as u64);
        let volumes = volumes.into_iter().map(size).collect();
        Survey { total_bytes: 9, free_bytes: 5, volumes, notes, more }
    }

    fn compute(&mut self, compute: &Compute) -> Outcome {
        let (inputs, coefs, outputs, accumulate) = match compute {
            Compute::Sum { inputs, coefs, outputs, accumulate } => {
                (inputs, coefs, outputs, accumulate)
            }
            &Compute::Compare { a, b } => {
                let p_differs = u64::from(self.bytes(a).to_vec() != self.bytes(b));
                return Outcome::Checked(Checked { p_differs, ..Checked::default() });
            }
            Compute::Crc { before, inputs } => {
                let bytes = inputs.iter().map(|&buf| self.bytes(buf).to_vec());
                let crc = bytes.fold(*before, |crc, bytes| crc32c::crc32c_append(crc, &bytes));
                return Outcome::Crc(crc);
            }
            Compute::Check { .. } => unreachable!("nodes check nothing"),
        };
        let inputs: Vec<Vec<u8>> = inputs.iter().map(|&buf| self.bytes(buf).to_vec()).collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let mut sums: Vec<Vec<u8>> = outputs.iter().map(|&buf| self.bytes(buf).to_vec()).collect();
        let mut into: Vec<&mut [u8]> = sums.iter_mut().map(Vec::as_mut_slice).collect();
        braid_parity::combine(&mut into, coefs, &inputs, *accumulate);
        for (&output, sum) in outputs.iter().zip(&sums) {
            self.bytes(output).copy_from_slice(sum);
        }
        Outcome::Done
    }

    fn volume(&mut self, op: VolumeOp) -> Result<Volume, Refusal> {
        let name = match op {
            VolumeOp::Create { name, bytes } => {
                if self.volumes.contains_key(&name) {
                    return Err(Refusal::new(
                        format!("volume {name} exists"),
                        "choose another name",
                    ));
                }
                self.volumes.insert(name.clone(), vec![0; bytes as usize]);
                name
            }
            VolumeOp::Open { name } if self.volumes.contains_key(&name) => name,
            VolumeOp::Open { name } => {
                return Err(Refusal::new(format!("there is no volume {name}"), "create it first"));
            }
            VolumeOp::Close { member } | VolumeOp::Delete { member } => {
                let name = self.open.remove(&member).expect("it is open");
                if matches!(op, VolumeOp::Delete { .. }) {
                    self.volumes.remove(&name);
                }
                return Ok(Volume { member, bytes: 0 });
            }
        };
        assert!(!self.open.values().any(|open| *open == name), "a volume is opened once");
        let member = MemberId(self.next_member);
        self.next_member += 1;
        let bytes = self.volumes[&name].len() as u64;
        self.open.insert(member, name);
        Ok(Volume { member, bytes })
    }

    pub(super) fn open_volumes(&self) -> usize {
        self.open.len()
    }
}
