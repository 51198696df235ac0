//! A front end for vhost-user: acts like a virtual machine with a block device, on memory of its
//! own instead of a guest's.

use std::fs::File;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};

use rustix::fs::{MemfdFlags, SealFlags};
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Types of requests.
pub(super) const READ: u32 = 0;
pub(super) const WRITE: u32 = 1;
pub(super) const FLUSH: u32 = 4;
pub(super) const GET_ID: u32 = 8;
pub(super) const DISCARD: u32 = 11;
pub(super) const ZEROES: u32 = 13;

/// Descriptors of a ring; three for each slot.
const SIZE: u16 = 128;
/// Requests of a ring at the same time.
pub(super) const SLOTS: u16 = SIZE / 3;
/// Data of a slot.
pub(super) const DATA: u64 = 64 << 10;
/// Layout of a ring in memory: descriptors, available ring, used ring, heads, data.
const RING: u64 = 4 << 20;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const HEADS: u64 = 0x4000;
const INDIRECT: u64 = 0x8000;
const DATA_AT: u64 = 0x1_0000;
/// The memory is not where it begins.
const BASE: u64 = 1 << 30;

struct Ring {
    at: u64,
    kick: EventFd,
    call: EventFd,
    error: EventFd,
    available: u16,
    used: u16,
}

/// A guest with some rings. Each slot of a ring has one request at a time: it is
/// [put](Self::put), and comes back from [`answers`](Self::answers) with its status.
pub(super) struct Guest {
    socket: PathBuf,
    front_end: Option<Frontend>,
    /// Its connection.
    stream: Option<UnixStream>,
    pub(super) memory: GuestMemoryMmap,
    rings: Vec<Ring>,
    inflight: Option<(VhostUserInflight, File)>,
    pub(super) features: u64,
    /// Chains lie in tables of their own.
    pub(super) indirect: bool,
}

impl Guest {
    pub(super) fn connect(socket: &Path, rings: usize) -> Self {
        let file = File::from(
            rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .unwrap(),
        );
        let bytes = rings as u64 * RING;
        file.set_len(bytes).unwrap();
        // As QEMU does: then reads go there without a copy.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        let region = (GuestAddress(BASE), bytes as usize, Some(FileOffset::new(file, 0)));
        let memory = GuestMemoryMmap::from_ranges_with_files([region]).unwrap();
        let ring = |number| Ring {
            at: BASE + number as u64 * RING,
            kick: EventFd::new(EFD_NONBLOCK).unwrap(),
            call: EventFd::new(EFD_NONBLOCK).unwrap(),
            error: EventFd::new(EFD_NONBLOCK).unwrap(),
            available: 0,
            used: 0,
        };
        let rings = (0..rings).map(ring).collect();
        let mut guest = Self {
            socket: socket.to_owned(),
            front_end: None,
            stream: None,
            memory,
            rings,
            inflight: None,
            features: 0,
            indirect: false,
        };
        guest.come_back();
        guest
    }

    /// Connects, as a front end does at its start and after a connection was lost.
    pub(super) fn come_back(&mut self) {
        let count = self.rings.len() as u16;
        let stream = UnixStream::connect(&self.socket).unwrap();
        self.stream = Some(stream.try_clone().unwrap());
        let mut front_end = Frontend::from_stream(stream, u64::from(count));
        front_end.set_owner().unwrap();
        self.features = front_end.get_features().unwrap();
        let protocol = front_end.get_protocol_features().unwrap();
        front_end.set_protocol_features(protocol).unwrap();
        front_end.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        assert!(protocol.contains(VhostUserProtocolFeatures::INFLIGHT_SHMFD));
        assert!(front_end.get_queue_num().unwrap() >= u64::from(count));
        front_end.set_features(self.features).unwrap();
        let inflight = self.inflight.take().unwrap_or_else(|| {
            front_end.get_inflight_fd(&VhostUserInflight::new(0, 0, count, SIZE)).unwrap()
        });
        front_end.set_inflight_fd(&inflight.0, inflight.1.as_raw_fd()).unwrap();
        self.inflight = Some(inflight);
        let regions: Vec<_> = self
            .memory
            .iter()
            .map(|region| VhostUserMemoryRegionInfo::from_guest_region(region).unwrap())
            .collect();
        front_end.set_mem_table(&regions).unwrap();
        let address = |at| self.memory.get_host_address(GuestAddress(at)).unwrap() as u64;
        for (number, ring) in self.rings.iter().enumerate() {
            let used: u16 = self.memory.read_obj(GuestAddress(ring.at + USED + 2)).unwrap();
            let config = VringConfigData {
                queue_max_size: SIZE,
                queue_size: SIZE,
                flags: 0,
                desc_table_addr: address(ring.at),
                used_ring_addr: address(ring.at + USED),
                avail_ring_addr: address(ring.at + AVAILABLE),
                log_addr: None,
            };
            front_end.set_vring_num(number, SIZE).unwrap();
            front_end.set_vring_base(number, used).unwrap();
            front_end.set_vring_addr(number, &config).unwrap();
            front_end.set_vring_err(number, &ring.error).unwrap();
            front_end.set_vring_kick(number, &ring.kick).unwrap();
            front_end.set_vring_call(number, &ring.call).unwrap();
            front_end.set_vring_enable(number, true).unwrap();
        }
        self.front_end = Some(front_end);
    }

    pub(super) fn front_end(&mut self) -> &mut Frontend {
        self.front_end.as_mut().unwrap()
    }

    /// Shuts the connection down. Closing is not enough: processes that other tests start may
    /// inherit a copy of it.
    pub(super) fn leave(&mut self) {
        self.front_end = None;
        let stream = self.stream.take().expect("a connection");
        stream.shutdown(Shutdown::Both).unwrap();
    }

    /// A part of the configuration space.
    pub(super) fn config(&mut self, offset: u32, len: usize) -> Vec<u8> {
        let flags = VhostUserConfigFlags::WRITABLE;
        let room = vec![0; len];
        self.front_end().get_config(offset, len as u32, flags, &room).unwrap().1
    }

    fn data_at(&self, ring: usize, slot: u16) -> u64 {
        self.rings[ring].at + DATA_AT + u64::from(slot) * DATA
    }

    /// Returns the data of a slot.
    pub(super) fn data(&self, ring: usize, slot: u16, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        self.memory.read_slice(&mut data, GuestAddress(self.data_at(ring, slot))).unwrap();
        data
    }

    pub(super) fn set_data(&self, ring: usize, slot: u16, data: &[u8]) {
        self.memory.write_slice(data, GuestAddress(self.data_at(ring, slot))).unwrap();
    }

    /// Puts a request into the ring; [`kick`](Self::kick) makes it available. Its data are the
    /// first `len` bytes of the slot.
    pub(super) fn put(&mut self, ring: usize, slot: u16, kind: u32, sector: u64, len: u32) {
        let data = self.data_at(ring, slot);
        let at = self.rings[ring].at;
        let head = at + HEADS + u64::from(slot) * 32;
        let mut header = kind.to_le_bytes().to_vec();
        header.extend([0; 4]);
        header.extend(sector.to_le_bytes());
        header.push(0xff);
        self.memory.write_slice(&header, GuestAddress(head)).unwrap();
        let write = if matches!(kind, READ | GET_ID) { 2 } else { 0 };
        let parts = [(head, 16, 0), (data, len, write), (head + 16, 1, 2)];
        let parts: Vec<_> = parts.into_iter().filter(|part| part.1 > 0).collect();
        let first = slot * 3;
        let table = if self.indirect { at + INDIRECT + u64::from(slot) * 48 } else { at };
        let base = if self.indirect { 0 } else { first };
        for (number, &(address, len, flags)) in (0u16..).zip(&parts) {
            let next = if usize::from(number) + 1 < parts.len() { 1 } else { 0 };
            let index = base + number;
            self.describe(table, index, (address, len, flags | next, index + 1));
        }
        if self.indirect {
            self.describe(at, first, (table, parts.len() as u32 * 16, 4, 0));
        }
        let ring = &mut self.rings[ring];
        let place = at + AVAILABLE + 4 + u64::from(ring.available % SIZE) * 2;
        self.memory.write_obj(first, GuestAddress(place)).unwrap();
        ring.available = ring.available.wrapping_add(1);
    }

    fn describe(&self, table: u64, index: u16, (address, len, flags, next): (u64, u32, u16, u16)) {
        let mut bytes = address.to_le_bytes().to_vec();
        bytes.extend(len.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        let at = GuestAddress(table + u64::from(index) * 16);
        self.memory.write_slice(&bytes, at).unwrap();
    }

    /// Makes all requests that were put available at once, and notifies the device.
    pub(super) fn kick(&self, ring: usize) {
        let Ring { at, available, .. } = self.rings[ring];
        let index = GuestAddress(at + AVAILABLE + 2);
        self.memory.store(available, index, Ordering::Release).unwrap();
        self.rings[ring].kick.write(1).unwrap();
    }

    /// Returns the new answers: slots and their status.
    pub(super) fn answered(&mut self, ring: usize) -> Vec<(u16, u8)> {
        let at = self.rings[ring].at;
        let index = GuestAddress(at + USED + 2);
        let there: u16 = self.memory.load(index, Ordering::Acquire).unwrap();
        let mut answers = Vec::new();
        while self.rings[ring].used != there {
            let used = self.rings[ring].used;
            self.rings[ring].used = used.wrapping_add(1);
            let place = GuestAddress(at + USED + 4 + u64::from(used % SIZE) * 8);
            let head: u32 = self.memory.read_obj(place).unwrap();
            let slot = head as u16 / 3;
            let status = GuestAddress(at + HEADS + u64::from(slot) * 32 + 16);
            answers.push((slot, self.memory.read_obj(status).unwrap()));
        }
        // We want to hear of the next one.
        let event = GuestAddress(at + AVAILABLE + 4 + u64::from(SIZE) * 2);
        self.memory.store(there, event, Ordering::Relaxed).unwrap();
        fence(Ordering::SeqCst);
        answers
    }

    /// Waits for `count` answers, in the order in which they come.
    pub(super) fn answers(&mut self, ring: usize, count: usize) -> Vec<(u16, u8)> {
        let mut answers = Vec::new();
        loop {
            answers.extend(self.answered(ring));
            if answers.len() >= count {
                return answers;
            }
            if self.answered_none(ring) {
                self.wait(ring);
            }
        }
    }

    fn answered_none(&self, ring: usize) -> bool {
        let index = GuestAddress(self.rings[ring].at + USED + 2);
        self.memory.load::<u16>(index, Ordering::Acquire).unwrap() == self.rings[ring].used
    }

    /// Waits for a call.
    fn wait(&self, ring: usize) {
        let call = &self.rings[ring].call;
        let epoll = Epoll::new().unwrap();
        let event = EpollEvent::new(EventSet::IN, 0);
        epoll.ctl(ControlOperation::Add, call.as_raw_fd(), event).unwrap();
        let mut events = [EpollEvent::default()];
        assert_eq!(epoll.wait(60_000, &mut events).unwrap(), 1, "no call in 60 s");
        call.read().unwrap();
    }

    /// Runs a request to its end.
    pub(super) fn ask(&mut self, kind: u32, sector: u64, len: u32) -> u8 {
        self.put(0, 0, kind, sector, len);
        self.kick(0);
        let answers = self.answers(0, 1);
        assert_eq!(answers.len(), 1);
        answers[0].1
    }

    /// Requests that are noted as under way.
    pub(super) fn under_way(&self) -> usize {
        (0..self.rings.len()).map(|ring| self.under_way_of(ring)).sum()
    }

    pub(super) fn under_way_of(&self, ring: usize) -> usize {
        let (inflight, file) = self.inflight.as_ref().unwrap();
        let stride = inflight.mmap_size / u64::from(inflight.num_queues);
        let mut notes = vec![0; stride as usize];
        file.read_exact_at(&mut notes, ring as u64 * stride).unwrap();
        notes[16..].chunks(16).filter(|note| note[0] == 1).count()
    }

    /// Stops a ring, as a paused or reset guest does. Returns the index of the next request.
    pub(super) fn base(&mut self, ring: usize) -> u32 {
        self.front_end().get_vring_base(ring).unwrap()
    }

    /// Puts a chain into the ring that has no end.
    pub(super) fn put_circle(&mut self, ring: usize) {
        self.put(ring, 0, READ, 0, 512);
        let at = self.rings[ring].at;
        self.describe(at, 1, (at, 512, 1, 0));
    }

    pub(super) fn is_told_of_trouble(&self, ring: usize) -> bool {
        self.rings[ring].error.read().is_ok()
    }
}
