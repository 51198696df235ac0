//! A simulated process: a machine, its arena, and the devices and volumes it can use.

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

/// A device of a process.
#[derive(Debug)]
pub struct Device {
    /// Its content and faults.
    pub disk: Disk,
    /// The id under which the machine uses it.
    pub open: Option<MemberId>,
    /// Operations on it.
    pub counts: Counts,
    /// Detects writes that replay the journal.
    pub(super) replay: Replay,
}

impl Device {
    /// A device that is not in use.
    pub fn new(disk: Disk) -> Self {
        Self { disk, open: None, counts: Counts::default(), replay: Replay::default() }
    }
}

/// Operations on a device, successful or not.
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

/// A process of the simulated world: a local array with its devices, a client, or a node with its
/// volumes and notes. The caller makes it ([`new`](Self::new), [`keep`](Self::keep) for volumes)
/// and hands it to `World::start`; from then on the world drives its machine. A process that has
/// died stays in the world; its disks and notes may be moved to a new one. The arena is bytes,
/// filled with [`POISON`] where nothing was written, or with zeroes for a local array.
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
    /// Its devices, in use or not.
    pub devices: Vec<Device>,
    /// The names of volumes, each with the number of its device.
    pub volumes: BTreeMap<String, usize>,
    /// Set if the machine must not write.
    pub read_only: bool,
    /// Range that every peer may put to; empty, but for scripted machines that admit no peers.
    pub open_to_all: Range<u64>,
    /// Its notes, by name.
    pub notes: BTreeMap<String, Vec<u8>>,
    /// Set if notes cannot be removed.
    pub keeps_notes: bool,
    /// Set while it runs.
    pub alive: bool,
    /// Set if its unused memory is going to be taken back.
    pub(super) cools: bool,
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
            devices: Vec::new(),
            volumes: BTreeMap::new(),
            read_only: false,
            open_to_all: 0..0,
            notes: BTreeMap::new(),
            keeps_notes: false,
            alive: true,
            cools: false,
            frozen: false,
            held: Vec::new(),
            peers: BTreeMap::new(),
            accepted: 0,
            next_member: 0,
        }
    }

    /// The process of an array of devices, each of them with the member that it is.
    pub fn of_array(
        array: Box<dyn BlockMachine + Send>,
        arena_bytes: u64,
        disks: Vec<Disk>,
        attached: &[(MemberId, usize)],
    ) -> Self {
        let mut process = Self {
            arena: vec![0; arena_bytes as usize],
            devices: disks.into_iter().map(Device::new).collect(),
            ..Self::new("array".to_owned(), AnyMachine::Block(array), 0, None)
        };
        for &(member, device) in attached {
            process.attach(member, Some(device));
        }
        process
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

    /// Puts a device behind a member id, before the machine is told to add it; `None` takes it
    /// away.
    pub fn attach(&mut self, member: MemberId, device: Option<usize>) {
        if let Some(before) = self.device_of(member) {
            self.devices[before].open = None;
        }
        if let Some(device) = device {
            self.devices[device].open = Some(member);
        }
    }

    /// The device of a member.
    pub fn device_of(&self, member: MemberId) -> Option<usize> {
        self.devices.iter().position(|device| device.open == Some(member))
    }

    /// A device, or the store beside it, if there is one.
    pub fn disk_mut(&mut self, device: usize, beside: bool) -> Option<&mut Disk> {
        let disk = &mut self.devices[device].disk;
        if beside { disk.beside_mut() } else { Some(disk) }
    }

    /// Puts a volume into the store.
    pub fn keep(&mut self, name: &str, disk: Disk) {
        self.volumes.insert(name.to_owned(), self.devices.len());
        self.devices.push(Device::new(disk));
    }

    /// The volume of this name, which the store has.
    pub fn volume(&self, name: &str) -> &Device {
        &self.devices[self.volumes[name]]
    }

    /// The volume of this name, which the store has.
    pub fn volume_mut(&mut self, name: &str) -> &mut Device {
        &mut self.devices[self.volumes[name]]
    }

    /// Takes the disks out of a process that uses them no more.
    pub fn take_disks(&mut self) -> Vec<Disk> {
        self.volumes.clear();
        self.devices.drain(..).map(|device| device.disk).collect()
    }

    /// Writes a part of a note.
    pub(crate) fn note(&mut self, name: &str, at: u64, bytes: &[u8]) {
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
            let &device = self.volumes.get(name)?;
            Some((name.clone(), self.devices[device].disk.image().len() as u64))
        };
        Survey {
            total_bytes: 9,
            free_bytes: 5,
            promised_bytes: 2,
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

    /// Creates, opens, lengthens, closes or deletes a volume.
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
            VolumeOp::Lengthen { member, kept_bytes, bytes, tail } => {
                let absent = || Refusal::plain("this volume is not open");
                let device = self.device_of(*member).ok_or_else(absent)?;
                self.devices[device].disk.lengthen(*kept_bytes, *bytes, tail);
                return Ok(Volume { member: *member, bytes: *bytes });
            }
            VolumeOp::Close { member } | VolumeOp::Delete { member } => {
                let absent = || Refusal::plain("this volume is not open");
                let device = self.device_of(*member).ok_or_else(absent)?;
                self.devices[device].open = None;
                if matches!(op, VolumeOp::Delete { .. }) {
                    self.volumes.retain(|_, other| *other != device);
                }
                let bytes = self.devices[device].disk.sectors() * SECTOR_BYTES;
                return Ok(Volume { member: *member, bytes });
            }
        };
        let member = MemberId(self.next_member);
        let Some(&device) = self.volumes.get(name) else {
            return Err(Refusal::new(format!("there is no volume {name}"), "create it first"));
        };
        let device = &mut self.devices[device];
        if device.open.is_some() {
            return Err(Refusal::plain(format!("volume {name} is in use")));
        }
        self.next_member += 1;
        device.open = Some(member);
        Ok(Volume { member, bytes: device.disk.sectors() * SECTOR_BYTES })
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
