//! Fixtures that tests of this crate share.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;

use braid_array::action::Command;

use braid_array::format::superblock::{MAX_SECTOR, Reshape};
use braid_array::format::{DevRole, Superblock, Version};
use braid_array::status::{ArrayState, MemberState, MemberStatus, Status};
use braid_array::{MemberId, Refusal, RequestError, Role, SECTOR_BYTES};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, Shutdown, SocketType};

use crate::submission::{Message, SubmissionQueue};

/// A test cannot run here: says so where it is seen even when the test passes, and fails in CI.
pub(crate) fn skipped(what: &str) {
    // Past the test harness, which swallows what `eprintln!` prints.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what} is not usable here");
    assert!(std::env::var_os("CI").is_none(), "{what} is missing in CI");
}

/// Returns an address without a listener, which stays so until the socket is dropped.
pub(crate) fn deaf_address() -> (OwnedFd, String) {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().unwrap().to_string();
    (OwnedFd::from(listener), address)
}

/// Listens no more, although a process that was just forked may still have the socket.
pub(crate) fn deafen(listener: UnixListener) {
    rustix::net::shutdown(&listener, Shutdown::Both).unwrap();
}

/// Commands that a fake engine received.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) commands: Vec<Command>,
}

/// An array in memory behind a submission queue, on a thread of its own. Like the real one it
/// insists on whole blocks.
#[derive(Debug)]
pub(crate) struct FakeEngine {
    pub(crate) submissions: SubmissionQueue,
    pub(crate) asked: Arc<Mutex<Asked>>,
}

impl FakeEngine {
    /// An array with this content. Reads that touch `bad` fail.
    pub(crate) fn start(content: Vec<u8>, block: u32, bad: Range<u64>, members: &[&Path]) -> Self {
        let (sender, messages) = mpsc::channel();
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let asked = Arc::new(Mutex::new(Asked::default()));
        let status = status(content.len() as u64, members);
        let fake = Fake { content, block: block.into(), bad, status, asked: Arc::clone(&asked) };
        thread::spawn(move || fake.run(&messages));
        Self { submissions: SubmissionQueue::new(sender, wake), asked }
    }
}

struct Fake {
    content: Vec<u8>,
    block: u64,
    bad: Range<u64>,
    status: Status,
    asked: Arc<Mutex<Asked>>,
}

impl Fake {
    fn run(self, messages: &Receiver<Message>) {
        for message in messages {
            let mut asked = self.asked.lock().unwrap();
            match message {
                Message::Read { offset, len, done } => {
                    done(range(&self.content, self.block, offset, len.into()).and_then(|range| {
                        let bad = offset < self.bad.end && self.bad.start < offset + u64::from(len);
                        if bad { Err(RequestError::Medium) } else { Ok(self.content[range].into()) }
                    }))
                }
                Message::Command { command, device, done } => {
                    if let (Command::Add(new), Some(device)) = (&command, &device) {
                        assert_eq!(Path::new(&new.device), device.path);
                    }
                    let stop = matches!(command, Command::Stop);
                    let refused = matches!(command, Command::Replace(_));
                    asked.commands.push(command);
                    let error = Refusal::new("no spare", "add one");
                    done(if refused { Err(error) } else { Ok(()) });
                    if stop {
                        break;
                    }
                }
                Message::Status { done } => done(self.status.clone()),
                Message::Clients { done } => done(Vec::new()),
                Message::Figures { done } => drop(done),
                Message::Protection { done } => drop(done),
                _ => unreachable!("nobody writes by this queue"),
            }
        }
    }
}

fn range(content: &[u8], block: u64, offset: u64, len: u64) -> Result<Range<usize>, RequestError> {
    if !offset.is_multiple_of(block) || !len.is_multiple_of(block) || len == 0 {
        return Err(RequestError::Malformed);
    }
    let end = offset.checked_add(len).filter(|end| *end <= content.len() as u64);
    let end = end.ok_or(RequestError::OutOfRange)?;
    Ok(usize::try_from(offset).unwrap()..usize::try_from(end).unwrap())
}

/// The status of a clean mirror of this size.
pub(crate) fn status(bytes: u64, members: &[&Path]) -> Status {
    let member = |(number, device): (usize, &&Path)| {
        let number = u16::try_from(number).unwrap();
        let device = device.display().to_string();
        let member = MemberStatus::new(MemberId(number), device, MemberState::InSync);
        MemberStatus { role: Some(Role(number)), events: 7, ..member }
    };
    Status {
        superblock: superblock(bytes / SECTOR_BYTES, u32::try_from(members.len()).unwrap()),
        array_sectors: bytes / SECTOR_BYTES,
        used_member_sectors: bytes / SECTOR_BYTES,
        state: ArrayState::Clean,
        degraded: 0,
        members: members.iter().enumerate().map(member).collect(),
        ..Status::blank()
    }
}

fn superblock(sectors: u64, raid_disks: u32) -> Superblock {
    Superblock {
        version: Version::V1_2,
        feature_map: 0,
        set_uuid: *b"the array's uuid",
        set_name: [0; 32],
        ctime: 1_700_000_000,
        level: 1,
        layout: 0,
        size_sectors: sectors,
        chunk_sectors: 0,
        raid_disks,
        bitmap_offset_sectors: 0,
        reshape: Reshape::default(),
        data_offset: 2048,
        data_size: sectors,
        super_offset: 8,
        recovery_offset: 0,
        dev_number: 0,
        corrected_reads: 0,
        device_uuid: [1; 16],
        devflags: 0,
        bblog_shift: 0,
        bblog_size_sectors: 0,
        bblog_offset_sectors: 0,
        utime: 1_700_000_000,
        events: 7,
        resync_offset: MAX_SECTOR,
        roles: (0..128)
            .map(|n| if n < raid_disks { DevRole::Active(Role(n as u16)) } else { DevRole::Spare })
            .collect(),
        ..Superblock::blank()
    }
}
