//! A front end whose array grows. The front end speaks the protocol by hand, with one ring and one
//! request at a time.

use std::fs::File;
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use braid_array::SECTOR_BYTES;
use rustix::event::EventfdFlags;
use rustix::fs::MemfdFlags;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::VhostServer;
use super::device::ExportedDevice;
use crate::engine::tests::{MIB, Served, memory};

/// Bytes of the memory, and the places in it: descriptors, the two rings, a header with the status
/// behind it, data.
const MEMORY: u64 = 64 << 10;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const HEADER: u64 = 0x3000;
const STATUS: u64 = 0x3010;
const DATA: u64 = 0x4000;
/// Address of the memory in the front end, which only its messages name.
const USER: u64 = 0x7000_0000;

const READ: u32 = 0;
const WRITE: u32 = 1;
const OK: u8 = 0;
const IO_ERROR: u8 = 1;

/// Wish for an answer.
const NEED_REPLY: u32 = 1 << 3;

struct Guest {
    stream: UnixStream,
    memory: File,
    kick: OwnedFd,
    call: File,
    asked: u16,
}

impl Guest {
    /// Says something, without waiting for an answer.
    fn say(&self, code: u32, flags: u32, body: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let mut bytes = Vec::new();
        let words = [code, 1 | flags, body.len() as u32];
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.extend(body);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
        }
        let parts = [IoSlice::new(&bytes)];
        let sent = sendmsg(&self.stream, &parts, &mut control, SendFlags::empty());
        assert_eq!(sent, Ok(bytes.len()));
    }

    /// Returns the next answer, which is to this.
    fn answer(&mut self, code: u32) -> Vec<u8> {
        let mut header = [0; 12];
        self.stream.read_exact(&mut header).unwrap();
        assert_eq!(header[..4], code.to_le_bytes());
        let len = u32::from_le_bytes(header[8..].try_into().unwrap());
        let mut body = vec![0; len as usize];
        self.stream.read_exact(&mut body).unwrap();
        body
    }

    fn number(&mut self, code: u32) -> u64 {
        self.say(code, 0, &[], &[]);
        u64::from_le_bytes(self.answer(code).try_into().unwrap())
    }

    fn connect(path: &std::path::Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let memory = File::from(rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
        memory.set_len(MEMORY).unwrap();
        let eventfd = || rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let call = File::from(eventfd());
        let mut guest = Self { stream, memory, kick: eventfd(), call, asked: 0 };
        let features = guest.number(1);
        // Version 1, and the protocol's own features.
        guest.say(2, 0, &(features & (1 << 32 | 1 << 30)).to_le_bytes(), &[]);
        let protocol = guest.number(15);
        assert_ne!(protocol & 1 << 5, 0, "it can say something by itself");
        // The answers, the configuration space, and messages from the other side.
        guest.say(16, 0, &(1u64 << 3 | 1 << 9 | 1 << 5).to_le_bytes(), &[]);
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let bytes: Vec<u8> = words(&[1, 0, MEMORY, USER, 0]);
        guest.say(5, 0, &bytes, &[guest.memory.as_fd()]);
        guest.say(8, 0, &(8u64 << 32).to_le_bytes(), &[]);
        guest.say(10, 0, &[0; 8], &[]);
        let bytes: Vec<u8> = words(&[0, USER, USER + USED, USER + AVAILABLE, 0]);
        guest.say(9, 0, &bytes, &[]);
        guest.say(13, 0, &[0; 8], &[guest.call.as_fd()]);
        guest.say(12, 0, &[0; 8], &[guest.kick.as_fd()]);
        guest.say(18, 0, &(1u64 << 32).to_le_bytes(), &[]);
        guest
    }

    /// The size in sectors, as the configuration space has it.
    fn capacity(&mut self) -> u64 {
        let mut body = [0; 20];
        body[4] = 8;
        self.say(24, 0, &body, &[]);
        u64::from_le_bytes(self.answer(24)[12..].try_into().unwrap())
    }

    /// Asks for 512 bytes, and returns the status.
    fn ask(&mut self, kind: u32, sector: u64) -> u8 {
        let mut header = kind.to_le_bytes().to_vec();
        header.extend([0; 4]);
        header.extend(sector.to_le_bytes());
        header.push(0xff);
        self.memory.write_all_at(&header, HEADER).unwrap();
        let into = if kind == READ { 2 } else { 0 };
        let parts = [(HEADER, 16, 1, 1), (DATA, 512, 1 | into, 2), (STATUS, 1, 2u16, 0u16)];
        for ((address, len, flags, next), at) in parts.into_iter().zip((0..).step_by(16)) {
            let mut bytes = u64::to_le_bytes(address).to_vec();
            bytes.extend(u32::to_le_bytes(len));
            bytes.extend(flags.to_le_bytes());
            bytes.extend(next.to_le_bytes());
            self.memory.write_all_at(&bytes, at).unwrap();
        }
        // The ring has the first descriptor everywhere.
        self.asked += 1;
        self.memory.write_all_at(&self.asked.to_le_bytes(), AVAILABLE + 2).unwrap();
        rustix::io::write(&self.kick, &1u64.to_le_bytes()).unwrap();
        let mut used = [0; 2];
        while u16::from_le_bytes(used) != self.asked {
            self.call.read_exact(&mut [0; 8]).unwrap();
            self.memory.read_exact_at(&mut used, USED + 2).unwrap();
        }
        let mut status = [0];
        self.memory.read_exact_at(&mut status, STATUS).unwrap();
        status[0]
    }
}

#[test]
fn a_guest_is_told_when_the_array_has_grown() {
    let dir = tempfile::tempdir().unwrap();
    let sectors = Arc::new(AtomicU64::new(2 * MIB / SECTOR_BYTES));
    let mut engine = memory(4 * MIB, 8 * MIB, |double| double.of(Arc::clone(&sectors)));
    let mut server = VhostServer::new(ExportedDevice {
        name: "x".into(),
        size: engine.size(),
        block_bytes: 512,
        read_only: false,
        chunk_bytes: 0,
        stripe_bytes: 0,
        rings: 1,
    });
    let path = dir.path().join("guest.sock");
    server.listen(UnixListener::bind(&path).unwrap()).unwrap();
    engine.add_export(Box::new(server));
    let served = Served::start(engine, false);
    let mut guest = Guest::connect(&path);
    let (mut told, theirs) = UnixStream::pair().unwrap();
    told.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    guest.say(21, NEED_REPLY, &[], &[theirs.as_fd()]);
    assert_eq!(guest.answer(21), [0; 8]);
    drop(theirs);
    assert_eq!(guest.capacity(), 4096);
    assert_eq!([guest.ask(WRITE, 4095), guest.ask(WRITE, 4096)], [OK, IO_ERROR]);

    sectors.store(4 * MIB / SECTOR_BYTES, Ordering::Relaxed);
    // Anything that the engine has to do makes it look.
    assert_eq!(guest.ask(READ, 0), OK);
    let mut message = [0; 12];
    told.read_exact(&mut message).unwrap();
    assert_eq!(message, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], "the configuration has changed");
    assert_eq!(guest.capacity(), 8192);
    guest.memory.write_all_at(&[7; 512], DATA).unwrap();
    assert_eq!([guest.ask(WRITE, 8191), guest.ask(WRITE, 8192)], [OK, IO_ERROR]);
    guest.memory.write_all_at(&[0; 512], DATA).unwrap();
    assert_eq!(guest.ask(READ, 8191), OK);
    let mut data = [0; 512];
    guest.memory.read_exact_at(&mut data, DATA).unwrap();
    assert_eq!(data, [7; 512]);

    // A message without the connection that it is to bring.
    guest.say(21, NEED_REPLY, &[], &[]);
    assert_eq!(guest.stream.read(&mut [0]).unwrap(), 0, "it is hung up on");
    // Nothing is left to be told, and nobody to tell.
    assert_eq!(told.read(&mut [0]).unwrap(), 0);
    served.stop();
}
