//! A front end for vhost-user: what a virtual machine does with a block device, with memory of its
//! own in the place of a guest's (virtio 1.2, 2.7 and 5.2).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};

use rustix::fs::{MemfdFlags, SealFlags};
use vhost::vhost_user::message::{VhostUserHeaderFlag, VhostUserInflight};
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserProtocolFeatures};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::EventFd;

/// Descriptors of the ring, three for each request.
const SIZE: u16 = 128;
/// Layout of the memory: descriptors, what is available, what is used, headers, data.
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const HEADERS: u64 = 0x4000;
const HEADER_BYTES: u64 = 32;
const DATA: u64 = 0x1_0000;
/// The memory does not begin at zero.
const BASE: u64 = 1 << 30;
/// Data of all requests together.
const DATA_BYTES: u64 = 8 << 20;
/// Requests at a time.
const SLOTS: u16 = SIZE / 3;
/// Time until an answer comes.
const PATIENCE_MS: i32 = 60_000;

/// VIRTIO_RING_F_EVENT_IDX, VHOST_USER_F_PROTOCOL_FEATURES, VIRTIO_F_VERSION_1.
const FEATURES: u64 = 1 << 29 | 1 << 30 | 1 << 32;
/// VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT.
const KINDS: [u32; 2] = [0, 1];
/// VRING_DESC_F_NEXT, VRING_DESC_F_WRITE.
const NEXT: u16 = 1;
const WRITE: u16 = 2;

/// A disk over vhost-user, with one ring. Each slot has one request at a time: it
/// [begins](Self::begin), is [told](Self::tell) with others, and comes back from
/// [`answers`](Self::answers).
pub struct VirtualDisk {
    // As long as it is there, the disk is.
    _front_end: Frontend,
    memory: GuestMemoryMmap,
    kick: EventFd,
    call: EventFd,
    calls: Epoll,
    available: u16,
    told: u16,
    used: u16,
}

impl VirtualDisk {
    /// Connects to what listens there.
    pub fn connect(socket: &Path) -> Result<Self, String> {
        let file =
            rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .map_err(words)?;
        let file = File::from(file);
        let bytes = DATA + DATA_BYTES;
        file.set_len(bytes).map_err(words)?;
        // As QEMU does: then reads go there without a copy.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).map_err(words)?;
        let region = (GuestAddress(BASE), bytes as usize, Some(FileOffset::new(file, 0)));
        let memory = GuestMemoryMmap::from_ranges_with_files([region]).map_err(words)?;
        let kick = EventFd::new(0).map_err(words)?;
        let call = EventFd::new(0).map_err(words)?;
        let calls = Epoll::new().map_err(words)?;
        let event = EpollEvent::new(EventSet::IN, 0);
        calls.ctl(ControlOperation::Add, call.as_raw_fd(), event).map_err(words)?;
        let front_end = negotiate(socket, &memory, (&kick, &call)).map_err(words)?;
        let [available, told, used] = [0; 3];
        Ok(Self { _front_end: front_end, memory, kick, call, calls, available, told, used })
    }

    /// Makes a request available, of the first data of its slot.
    pub fn begin(
        &mut self,
        slot: u16,
        writes: bool,
        offset: u64,
        bytes: u32,
    ) -> Result<(), String> {
        if slot >= SLOTS {
            return Err(format!("no more than {SLOTS} requests at a time"));
        }
        let header = BASE + HEADERS + u64::from(slot) * HEADER_BYTES;
        let data = BASE + DATA + u64::from(slot) * u64::from(bytes);
        let mut head = [0; 17];
        head[..4].copy_from_slice(&KINDS[usize::from(writes)].to_le_bytes());
        head[8..16].copy_from_slice(&(offset / 512).to_le_bytes());
        // No status yet.
        head[16] = 0xff;
        self.memory.write_slice(&head, GuestAddress(header)).map_err(words)?;
        let first = slot * 3;
        let of_data = if writes { NEXT } else { NEXT | WRITE };
        let parts = [(header, 16, NEXT), (data, bytes, of_data), (header + 16, 1, WRITE)];
        for (index, (address, bytes, flags)) in (first..).zip(parts) {
            let mut described = [0; 16];
            described[..8].copy_from_slice(&address.to_le_bytes());
            described[8..12].copy_from_slice(&bytes.to_le_bytes());
            described[12..14].copy_from_slice(&flags.to_le_bytes());
            described[14..].copy_from_slice(&(index + 1).to_le_bytes());
            let at = GuestAddress(BASE + u64::from(index) * 16);
            self.memory.write_slice(&described, at).map_err(words)?;
        }
        let place = GuestAddress(BASE + AVAILABLE + 4 + u64::from(self.available % SIZE) * 2);
        self.memory.write_obj(first.to_le(), place).map_err(words)?;
        self.available = self.available.wrapping_add(1);
        Ok(())
    }

    /// Lets the other side see what has begun, and kicks it if it sleeps.
    pub fn tell(&mut self) -> Result<(), String> {
        let index = GuestAddress(BASE + AVAILABLE + 2);
        self.memory.store(self.available.to_le(), index, Ordering::Release).map_err(words)?;
        fence(Ordering::SeqCst);
        let event = GuestAddress(BASE + USED + 4 + u64::from(SIZE) * 8);
        let event: u16 = self.memory.load(event, Ordering::Acquire).map_err(words)?;
        let new = self.available.wrapping_sub(self.told);
        self.told = self.available;
        if self.available.wrapping_sub(u16::from_le(event)).wrapping_sub(1) < new {
            self.kick.write(1).map_err(words)?;
        }
        Ok(())
    }

    /// Waits for an answer, and appends the slots of all that are there.
    pub fn answers(&mut self, slots: &mut Vec<u16>) -> Result<(), String> {
        while !self.take_answers(slots)? {
            // The next one is to be heard of; it may have come meanwhile.
            let event = GuestAddress(BASE + AVAILABLE + 4 + u64::from(SIZE) * 2);
            self.memory.store(self.used.to_le(), event, Ordering::Relaxed).map_err(words)?;
            fence(Ordering::SeqCst);
            if self.take_answers(slots)? {
                return Ok(());
            }
            if self.calls.wait(PATIENCE_MS, &mut [EpollEvent::default()]).map_err(words)? == 0 {
                return Err("no answer for a minute".to_owned());
            }
            self.call.read().map_err(words)?;
        }
        Ok(())
    }

    /// True if there is one.
    fn take_answers(&mut self, slots: &mut Vec<u16>) -> Result<bool, String> {
        let index = GuestAddress(BASE + USED + 2);
        let there = u16::from_le(self.memory.load(index, Ordering::Acquire).map_err(words)?);
        if there == self.used {
            return Ok(false);
        }
        while self.used != there {
            let place = GuestAddress(BASE + USED + 4 + u64::from(self.used % SIZE) * 8);
            let head = u32::from_le(self.memory.read_obj(place).map_err(words)?);
            let slot = u16::try_from(head / 3).map_err(words)?;
            let status = BASE + HEADERS + u64::from(slot) * HEADER_BYTES + 16;
            let status: u8 = self.memory.read_obj(GuestAddress(status)).map_err(words)?;
            if status != 0 {
                return Err(format!("a request ended with status {status}"));
            }
            slots.push(slot);
            self.used = self.used.wrapping_add(1);
        }
        Ok(true)
    }
}

/// Tells the other side the memory and the ring.
fn negotiate(
    socket: &Path,
    memory: &GuestMemoryMmap,
    (kick, call): (&EventFd, &EventFd),
) -> Result<Frontend, vhost::Error> {
    let front_end = Frontend::connect(socket, 1)?;
    front_end.set_owner()?;
    let features = front_end.get_features()? & FEATURES;
    let mut front_end = front_end;
    let wanted = VhostUserProtocolFeatures::REPLY_ACK | VhostUserProtocolFeatures::INFLIGHT_SHMFD;
    let protocol = front_end.get_protocol_features()? & wanted;
    front_end.set_protocol_features(protocol)?;
    if protocol.contains(VhostUserProtocolFeatures::REPLY_ACK) {
        front_end.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    }
    front_end.set_features(features)?;
    if protocol.contains(VhostUserProtocolFeatures::INFLIGHT_SHMFD) {
        let (inflight, file) = front_end.get_inflight_fd(&VhostUserInflight::new(0, 0, 1, SIZE))?;
        front_end.set_inflight_fd(&inflight, file.as_raw_fd())?;
    }
    let regions: Result<Vec<_>, _> =
        memory.iter().map(VhostUserMemoryRegionInfo::from_guest_region).collect();
    front_end.set_mem_table(&regions?)?;
    let refused = |error| vhost::Error::IOError(io::Error::other(error));
    let address = |at: u64| {
        let address = memory.get_host_address(GuestAddress(BASE + at)).map_err(refused)?;
        Ok::<_, vhost::Error>(address as u64)
    };
    let ring = VringConfigData {
        queue_max_size: SIZE,
        queue_size: SIZE,
        flags: 0,
        desc_table_addr: address(0)?,
        used_ring_addr: address(USED)?,
        avail_ring_addr: address(AVAILABLE)?,
        log_addr: None,
    };
    front_end.set_vring_num(0, SIZE)?;
    front_end.set_vring_base(0, 0)?;
    front_end.set_vring_addr(0, &ring)?;
    front_end.set_vring_kick(0, kick)?;
    front_end.set_vring_call(0, call)?;
    front_end.set_vring_enable(0, true)?;
    Ok(front_end)
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}
