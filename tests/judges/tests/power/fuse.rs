//! A rack of disks as files of a directory, through FUSE: as little of the protocol as members
//! that are files need. The kernel keeps nothing of the files' content: each write and each flush
//! comes here.
//!
//! The layout of messages is the one of `include/uapi/linux/fuse.h`. They are in the byte order of
//! the machine, which is little-endian wherever this runs.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::rack::Rack;

const DEVICE: &str = "/dev/fuse";
const HEADER_BYTES: usize = 40;
const REPLY_HEADER_BYTES: usize = 16;
/// Of a read or write, before its data.
const TRANSFER_BYTES: usize = 40;
/// The most that a write carries; the kernel makes several of a larger one.
const WRITE_BYTES: u32 = 128 << 10;
const ROOT: u64 = 1;
/// The inode of the first disk.
const FIRST: u64 = 2;
/// Nothing but content ever changes.
const FOREVER_SECONDS: u64 = 1 << 30;
/// Reads of several pages at once, writes of more than one, direct I/O that is not waited for.
const INIT_FLAGS: u32 = 1 | 1 << 5 | 1 << 15;
/// Direct I/O whatever a program asks for; no flush when it closes; writes side by side.
const OPEN_FLAGS: u32 = 1 | 1 << 5 | 1 << 6;
/// `O_DSYNC`, which is a part of `O_SYNC`.
const DSYNC: u32 = 0o10000;

/// A rack that is mounted. Dropped, it is taken away; its thread ends with the last open file.
#[derive(Debug)]
pub(super) struct Mount {
    directory: PathBuf,
}

/// Can there be one here? Otherwise the reason to skip.
pub(super) fn available() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("mounting a file system of disks needs root".into());
    }
    OpenOptions::new().read(true).write(true).open(DEVICE).map_err(|e| format!("{DEVICE}: {e}"))?;
    Ok(())
}

impl Mount {
    /// On an empty directory.
    pub(super) fn new(rack: Rack, directory: &Path) -> Self {
        let device = OpenOptions::new().read(true).write(true).open(DEVICE).expect(DEVICE);
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let options = CString::new(options).expect("words");
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("braid-power", directory, "fuse", flags, options.as_c_str())
            .unwrap_or_else(|error| panic!("mounting {}: {error}", directory.display()));
        std::thread::spawn(move || serve(&Arc::new(device), &rack));
        Self { directory: directory.to_owned() }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = unmount(&self.directory, UnmountFlags::DETACH);
    }
}

/// Takes away what a test that was killed left mounted here.
pub(super) fn clear(directory: &Path) {
    while unmount(directory, UnmountFlags::DETACH).is_ok() {}
}

/// Answers until the mount is gone.
fn serve(device: &File, rack: &Rack) {
    let mut message = vec![0; WRITE_BYTES as usize + 4096];
    let mut device = device;
    loop {
        let bytes = match device.read(&mut message) {
            Ok(bytes) => bytes,
            // A request that nobody waits for any more.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => continue,
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INTR) => continue,
            Err(_) => return,
        };
        let message = &message[..bytes];
        let Some(answer) = answer(message, rack) else { continue };
        let (error, payload) = match answer {
            Ok(payload) => (0, payload),
            Err(errno) => (-errno.raw_os_error(), Vec::new()),
        };
        let length = (REPLY_HEADER_BYTES + payload.len()) as u32;
        let header = [&length.to_le_bytes()[..], &error.to_le_bytes(), &message[8..16]].concat();
        // It fails where nobody waits any more.
        let _ = device.write(&[header, payload].concat());
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// What is said to a request; nothing to those that want no answer.
fn answer(message: &[u8], rack: &Rack) -> Option<Result<Vec<u8>, Errno>> {
    const LOOKUP: u32 = 1;
    const FORGET: u32 = 2;
    const GETATTR: u32 = 3;
    const OPEN: u32 = 14;
    const READ: u32 = 15;
    const WRITE: u32 = 16;
    const RELEASE: u32 = 18;
    const FSYNC: u32 = 20;
    const INIT: u32 = 26;
    const INTERRUPT: u32 = 36;
    const FORGET_SEVERAL: u32 = 42;
    let (header, body) = message.split_at(HEADER_BYTES);
    let inode = u64_at(header, 16);
    Some(match u32_at(header, 4) {
        FORGET | INTERRUPT | FORGET_SEVERAL => return None,
        INIT => Ok(init(body)),
        LOOKUP => lookup(rack, inode, body),
        GETATTR => attributes(rack, inode)
            .map(|attributes| [&FOREVER_SECONDS.to_le_bytes()[..], &[0; 8], &attributes].concat()),
        OPEN => {
            rack.inside().opened();
            Ok([&[0; 8][..], &OPEN_FLAGS.to_le_bytes(), &[0; 4]].concat())
        }
        READ => read(rack, inode, body),
        WRITE => write(rack, inode, body),
        FSYNC => disk(inode).and_then(|disk| rack.inside().flush(disk)).map(|()| Vec::new()),
        RELEASE => {
            rack.inside().closed();
            Ok(Vec::new())
        }
        // The kernel does without.
        _ => Err(Errno::NOSYS),
    })
}

fn init(body: &[u8]) -> Vec<u8> {
    let mut reply = vec![0; 64];
    reply[0..4].copy_from_slice(&7_u32.to_le_bytes());
    reply[4..8].copy_from_slice(&31_u32.to_le_bytes());
    reply[12..16].copy_from_slice(&(INIT_FLAGS & u32_at(body, 12)).to_le_bytes());
    // Requests at once, before the kernel holds others back and calls the disk busy.
    reply[16..18].copy_from_slice(&256_u16.to_le_bytes());
    reply[18..20].copy_from_slice(&192_u16.to_le_bytes());
    reply[20..24].copy_from_slice(&WRITE_BYTES.to_le_bytes());
    reply[24..28].copy_from_slice(&1_u32.to_le_bytes());
    reply
}

fn disk(inode: u64) -> Result<usize, Errno> {
    inode.checked_sub(FIRST).map(|disk| disk as usize).ok_or(Errno::ISDIR)
}

fn lookup(rack: &Rack, directory: u64, name: &[u8]) -> Result<Vec<u8>, Errno> {
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let found = if directory == ROOT { rack.inside().find(name) } else { None };
    let inode = FIRST + found.ok_or(Errno::NOENT)? as u64;
    let forever = FOREVER_SECONDS.to_le_bytes();
    let entry = [inode.to_le_bytes(), [0; 8], forever, forever, [0; 8]].concat();
    Ok([entry, attributes(rack, inode)?].concat())
}

fn attributes(rack: &Rack, inode: u64) -> Result<Vec<u8>, Errno> {
    const DIRECTORY: u32 = 0o040_700;
    const FILE: u32 = 0o100_600;
    let (mode, bytes) = match disk(inode) {
        Ok(disk) => (FILE, rack.inside().bytes(disk).ok_or(Errno::NOENT)? as u64),
        Err(_) => (DIRECTORY, 0),
    };
    let mut attributes = vec![0; 88];
    for (at, word) in [(0, inode), (8, bytes), (16, bytes / 512)] {
        attributes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    for (at, word) in [(60, mode), (64, 1), (80, 4096)] {
        attributes[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    Ok(attributes)
}

fn read(rack: &Rack, inode: u64, body: &[u8]) -> Result<Vec<u8>, Errno> {
    let offset = u64_at(body, 8) as usize;
    let bytes = u32_at(body, 16) as usize;
    rack.inside().read(disk(inode)?, offset, bytes).map(<[u8]>::to_vec)
}

fn write(rack: &Rack, inode: u64, body: &[u8]) -> Result<Vec<u8>, Errno> {
    let (head, data) = body.split_at(TRANSFER_BYTES);
    let offset = u64_at(head, 8) as usize;
    let durable = u32_at(head, 32) & DSYNC != 0;
    rack.inside().write(disk(inode)?, offset, data, durable)?;
    Ok([(data.len() as u32).to_le_bytes(), [0; 4]].concat())
}
