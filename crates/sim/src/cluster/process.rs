//! A simulated process: a machine, its arena, and the volumes it can open.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use braid_array::array::Scratch;
use braid_array::fabric::{PeerId, Survey, Volume, VolumeOp};
use braid_array::{AnyMachine, BlockMachine, Buf, IoOp, MemberId, Refusal, SECTOR_BYTES};
use braid_cluster::node::Node;

use super::claims::{ClaimId, Claims, Use};
use super::due::{Due, EndId};
use super::replay::Replay;
use crate::device_io::bytes_of;
use crate::disk::Disk;

/// Content of unwritten bytes in an arena, and of targets of pending puts.
pub const POISON: u8 = 0xa5;

/// A volume in a process's store.
#[derive(Debug)]
pub struct Stored {
    /// Its name.
    pub name: String,
    /// Content of the volume.
    pub disk: Disk,
    /// Member id of the opened volume.
    pub open: Option<MemberId>,
    /// Operations on the volume.
    pub counts: Counts,
    /// Detects writes that replay the journal.
    pub(super) replay: Replay,
}

/// Operations on a volume, successful or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Flushes.
    pub flushes: usize,
    /// Writes, durable ones too.
    pub writes: usize,
    /// Writes with FUA.
    pub durable_writes: usize,
    /// Ranges that were zeroed and deallocated.
    pub given_back: usize,
}

impl Counts {
    pub(super) fn note(&mut self, op: IoOp) {
        match op {
            IoOp::Flush => self.flushes += 1,
            IoOp::Write { fua, .. } => {
                self.writes += 1;
                self.durable_writes += usize::from(fua);
            }
            IoOp::WriteZeroes { unmap: true, .. } => self.given_back += 1,
            _ => {}
        }
    }
}

/// A process of the simulated world: a client, or a node with its volumes and notes. The caller
/// makes it ([`new`](Self::new), [`keep`](Self::keep) for volumes) and hands it to `World::start`;
/// from then on the world drives its machine. A process that has died stays in the world; its disks
/// and notes may be moved to a new one. The arena is bytes, filled with [`POISON`] where nothing
/// was written.
pub struct Process {
    /// Name for messages.
    pub name: String,
    /// The machine.
    pub machine: AnyMachine,
    /// The buffers.
    pub arena: Vec<u8>,
    /// Claims on the arena.
    pub claims: Claims,
    /// Address it listens on.
    pub address: Option<String>,
    /// Array of its key, if the key is limited to one.
    pub limit: Option<[u8; 16]>,
    /// Its volumes, by name.
    pub volumes: BTreeMap<String, Stored>,
    /// Range that every peer may put to; empty, but for scripted machines that admit no peers.
    pub open_to_all: Range<u64>,
    /// Its notes, by name.
    pub notes: BTreeMap<String, Vec<u8>>,
    /// Set if notes cannot be removed.
    pub keeps_notes: bool,
    /// Set while it runs.
    pub alive: bool,
    /// Set while it is frozen.
    pub(super) frozen: bool,
    /// Events held back while it is frozen.
    pub(super) held: Vec<Due>,
    /// Ends of its connections, by peer.
    pub(super) peers: BTreeMap<PeerId, EndId>,
    pub(super) accepted: u32,
    pub(super) next_member: u16,
}

impl Process {
    /// A process that listens, or not.
    pub fn new(
        name: String,
        machine: AnyMachine,
        arena_bytes: usize,
        address: Option<String>,
    ) -> Self {
        Self {
            name,
            machine,
            arena: vec![POISON; arena_bytes],
            claims: Claims::default(),
            address,
            limit: None,
            volumes: BTreeMap::new(),
            open_to_all: 0..0,
            notes: BTreeMap::new(),
            keeps_notes: false,
            alive: true,
            frozen: false,
            held: Vec::new(),
            peers: BTreeMap::new(),
            accepted: 0,
            next_member: 0,
        }
    }

    /// A client's process, which listens nowhere. Its arena ends with its scratch. With `limit`, it
    /// has the key of that array alone.
    pub fn of_client(
        name: &str,
        client: Box<dyn BlockMachine + Send>,
        scratch: Scratch,
        limit: Option<[u8; 16]>,
    ) -> Self {
        let arena_bytes = (scratch.offset + scratch.bytes) as usize;
        let machine = AnyMachine::Block(client);
        Self { limit, ..Self::new(name.to_owned(), machine, arena_bytes, None) }
    }

    /// A node's process, which listens where its number says; without volumes and notes.
    pub fn of_node(id: u64, node: Node, arena_bytes: u64) -> Self {
        let name = format!("n{id}");
        let machine = AnyMachine::Plain(Box::new(node));
        Self::new(name.clone(), machine, arena_bytes as usize, Some(name))
    }

    /// The client's machine in it.
    ///
    /// # Panics
    /// When it is a node's.
    pub fn client(&mut self) -> &mut (dyn BlockMachine + Send) {
        self.machine.block().expect("a machine that serves requests")
    }

    /// Puts a volume into the store.
    pub fn keep(&mut self, name: &str, disk: Disk) {
        let name = name.to_owned();
        let counts = Counts::default();
        let replay = Replay::default();
        self.volumes.insert(name.clone(), Stored { name, disk, open: None, counts, replay });
    }

    /// Writes a part of a note.
    pub(super) fn note(&mut self, name: &str, at: u64, bytes: &[u8]) {
        let note = self.notes.entry(name.to_owned()).or_default();
        let start = at as usize;
        note.resize(note.len().max(start + bytes.len()), 0);
        note[start..start + bytes.len()].copy_from_slice(bytes);
    }

    /// Returns at most `most` names behind `after`, in order, with the sizes of volumes.
    pub(super) fn survey(&self, after: &str, most: usize) -> Survey {
        let names: BTreeSet<&String> = self.volumes.keys().chain(self.notes.keys()).collect();
        let mut behind = names.into_iter().filter(|name| name.as_str() > after);
        let listed: Vec<&String> = behind.by_ref().take(most).collect();
        let size = |&name: &&String| {
            let volume = self.volumes.get(name)?;
            Some((name.clone(), volume.disk.image().len() as u64))
        };
        Survey {
            total_bytes: 9,
            free_bytes: 5,
            volumes: listed.iter().filter_map(size).collect(),
            notes: listed
                .iter()
                .filter(|&&name| self.notes.contains_key(name))
                .map(|&name| name.clone())
                .collect(),
            more: behind.next().is_some(),
        }
    }

    /// Returns whether the arena contains these bytes.
    pub fn has(&self, buf: Buf) -> bool {
        let end = buf.offset.checked_add(u64::from(buf.len));
        end.is_some_and(|end| end <= self.arena.len() as u64)
    }

    /// Bytes of the arena.
    pub fn bytes(&mut self, buf: Buf) -> &mut [u8] {
        &mut self.arena[bytes_of(buf)]
    }

    /// Returns these bytes of the arena; empty after the death of the process.
    pub fn found(&self, buf: Buf) -> &[u8] {
        self.arena.get(bytes_of(buf)).unwrap_or_default()
    }

    /// The open volume with this id.
    pub fn volume(&mut self, member: MemberId) -> Option<&mut Stored> {
        self.volumes.values_mut().find(|volume| volume.open == Some(member))
    }

    /// Creates, opens, closes or deletes a volume.
    pub(super) fn change_volumes(&mut self, op: &VolumeOp) -> Result<Volume, Refusal> {
        let name = match op {
            VolumeOp::Create { name, bytes } => {
                if self.volumes.contains_key(name) {
                    let why = format!("volume {name} exists");
                    return Err(Refusal::new(why, "choose another name"));
                }
                self.keep(name, Disk::new(bytes / SECTOR_BYTES));
                name
            }
            VolumeOp::Open { name } => name,
            VolumeOp::Close { member } | VolumeOp::Delete { member } => {
                let absent = || Refusal::plain("this volume is not open");
                let volume = self.volume(*member).ok_or_else(absent)?;
                volume.open = None;
                let name = volume.name.clone();
                let bytes = volume.disk.sectors() * SECTOR_BYTES;
                if matches!(op, VolumeOp::Delete { .. }) {
                    self.volumes.remove(&name);
                }
                return Ok(Volume { member: *member, bytes });
            }
        };
        let member = MemberId(self.next_member);
        let Some(volume) = self.volumes.get_mut(name) else {
            return Err(Refusal::new(format!("there is no volume {name}"), "create it first"));
        };
        if volume.open.is_some() {
            return Err(Refusal::plain(format!("volume {name} is in use")));
        }
        self.next_member += 1;
        volume.open = Some(member);
        Ok(Volume { member, bytes: volume.disk.sectors() * SECTOR_BYTES })
    }

    /// Poisons bytes that are no longer needed; returns the conflict with a claim, if any.
    pub(super) fn poison(&mut self, buf: Buf) -> Option<String> {
        let conflict = self.claims.conflict(buf, Use::Write, "an end");
        self.bytes(buf).fill(POISON);
        conflict
    }

    /// Claims a buffer; returns the fault of the claim.
    pub(super) fn claim(
        &mut self,
        buf: Buf,
        access: Use,
        what: &'static str,
    ) -> (ClaimId, Option<String>) {
        let (id, conflict) = self.claims.take(buf, access, what);
        let outside = || {
            let place = format!("{}+{}", buf.offset, buf.len);
            (!self.has(buf)).then(|| format!("{what} of {place} outside the arena"))
        };
        (id, conflict.or_else(outside))
    }
}
