//! The messages of FUSE, as `include/uapi/linux/fuse.h` of Linux lays them out: requests as the
//! kernel hands them over, and the answers to them. No I/O. All numbers are in the host's byte
//! order.
//!
//! A request is a header of 40 bytes, a structure that its operation determines, and a part of
//! variable length: a name, data. Input is treated as hostile: every length is checked.

#![expect(clippy::host_endian_bytes, reason = "kernel and program are on one machine")]

use rustix::io::Errno;

/// The header of a request.
const HEADER_BYTES: usize = 40;
/// Header and structure of a write: its data follow.
pub const HEAD_BYTES: usize = HEADER_BYTES + 40;
/// The longest write, and the longest read.
pub const MAX_TRANSFER_BYTES: u32 = 1 << 20;
/// The longest name that is looked at.
const MAX_NAME_BYTES: usize = 1024;

/// The version of the protocol: this major number, and at least and at most these minor ones.
const MAJOR: u32 = 7;
const LEAST_MINOR: u32 = 23;
const MOST_MINOR: u32 = 45;

/// Limit of the kernel on background requests in flight.
const MAX_BACKGROUND: u16 = 256;
const CONGESTION: u16 = MAX_BACKGROUND / 4 * 3;

/// Time for which names and attributes hold. Names never change, and when a size does the kernel is
/// [told](put_stale).
const FOREVER_S: u64 = 1 << 30;

/// Operations, by their numbers.
mod code {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const SYMLINK: u32 = 6;
    pub(super) const MKNOD: u32 = 8;
    pub(super) const MKDIR: u32 = 9;
    pub(super) const UNLINK: u32 = 10;
    pub(super) const RENAME: u32 = 12;
    pub(super) const LINK: u32 = 13;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const INIT: u32 = 26;
    pub(super) const OPENDIR: u32 = 27;
    pub(super) const READDIR: u32 = 28;
    pub(super) const RELEASEDIR: u32 = 29;
    pub(super) const FSYNCDIR: u32 = 30;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const BATCH_FORGET: u32 = 42;
    pub(super) const FALLOCATE: u32 = 43;
    pub(super) const RENAME2: u32 = 45;
}

/// Features negotiated between a file system and the kernel. Bits from 32 on are the second word.
mod init {
    pub(super) const ASYNC_READ: u64 = 1 << 0;
    pub(super) const BIG_WRITES: u64 = 1 << 5;
    pub(super) const ASYNC_DIO: u64 = 1 << 15;
    pub(super) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(super) const MAX_PAGES: u64 = 1 << 22;
    /// Announces the second word of flags.
    pub(super) const EXT: u64 = 1 << 30;
    /// Kernels before 6.6 cannot share a mapping of a file with direct I/O. Mapped data are cached
    /// until the mapping ends.
    pub(super) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;

    /// Optional features, of which the kernel may know none. `WRITEBACK_CACHE` is left out on
    /// purpose: written data would be in the kernel's memory alone.
    pub(super) const WISHES: u64 = ASYNC_READ
        | BIG_WRITES
        | ASYNC_DIO
        | PARALLEL_DIROPS
        | MAX_PAGES
        | EXT
        | DIRECT_IO_ALLOW_MMAP;
}

/// Attributes of a file to be changed.
mod change {
    pub(super) const MODE: u32 = 1 << 0;
    pub(super) const UID: u32 = 1 << 1;
    pub(super) const GID: u32 = 1 << 2;
    pub(super) const SIZE: u32 = 1 << 3;
}

/// Flags of an open file.
pub mod open {
    /// Direct I/O: nothing is cached.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// The end of a descriptor needs no answer.
    pub const NOFLUSH: u32 = 1 << 5;
    /// Writes may be under way at the same time.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// Notification that what the kernel knows of an inode does not hold any more.
const NOTIFY_INVAL_INODE: i32 = 2;
/// Notification that gives the kernel data of an inode.
const NOTIFY_STORE: i32 = 4;
/// Notification that asks the kernel to repeat unanswered requests.
const NOTIFY_RESEND: i32 = 7;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FuseRequest {
    /// Its name, for the answer.
    pub unique: u64,
    /// The inode it is about.
    pub node: u64,
    /// Operation that it asks for.
    pub operation: Operation,
}

/// Operation of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Agree on the protocol.
    Init {
        /// The kernel's version.
        version: (u32, u32),
        /// Kernel's limit of reading ahead.
        readahead: u32,
        /// Features that the kernel knows.
        flags: u64,
    },
    /// Find a file in a directory.
    Lookup {
        /// Name of the file.
        name: Vec<u8>,
    },
    /// Tell attributes.
    Attributes,
    /// Change attributes.
    Change {
        /// Mode or owner.
        access: bool,
        /// The size.
        size: Option<u64>,
    },
    /// Open a file, with the flags of open(2).
    Open {
        /// These flags.
        flags: u32,
    },
    /// Open a directory.
    OpenDirectory,
    /// Read.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes to read.
        len: u32,
    },
    /// Write the data that follow the first [`HEAD_BYTES`].
    Write {
        /// First byte.
        offset: u64,
        /// Bytes to write.
        len: u32,
        /// The flags of open(2).
        flags: u32,
    },
    /// Make written data of a file durable.
    Sync,
    /// The space of a range, as fallocate(2) has it.
    Allocate {
        /// First byte.
        offset: u64,
        /// Bytes of the range.
        len: u64,
        /// Flags of fallocate(2).
        mode: u32,
    },
    /// Tell names of a directory.
    ReadDirectory {
        /// After this one.
        offset: u64,
        /// Bytes for the answer.
        len: u32,
    },
    /// Report how full the file system is.
    FileSystem,
    /// An end, or a sync of something that is never written: only an answer is wanted.
    Nothing,
    /// Make, or take away, a name.
    Name,
    /// Move a file.
    Rename,
    /// Wants no answer.
    Unanswered,
    /// The structure is damaged.
    Malformed,
    /// Anything else.
    Other,
}

impl FuseRequest {
    /// The request that lies in two parts: its first [`HEAD_BYTES`], then the rest. `None` when
    /// that has no header, or one of something else.
    #[must_use]
    pub fn decode(head: &[u8], rest: &[u8]) -> Option<Self> {
        let len = head.len().checked_add(rest.len())?;
        if usize::try_from(u32_at(head, 0)?) != Ok(len) || len < HEADER_BYTES {
            return None;
        }
        let code = u32_at(head, 4)?;
        let unique = u64_at(head, 8)?;
        let node = u64_at(head, 16)?;
        let body = head.get(HEADER_BYTES..)?;
        let operation = Operation::decode(code, body, rest).unwrap_or(Operation::Malformed);
        Some(Self { unique, node, operation })
    }
}

impl Operation {
    /// `None` when bytes are missing.
    fn decode(code: u32, body: &[u8], rest: &[u8]) -> Option<Self> {
        Some(match code {
            code::LOOKUP => Self::Lookup { name: name(body, rest)? },
            code::GETATTR => Self::Attributes,
            code::SETATTR => {
                let valid = u32_at(body, 0)?;
                let size = u64_at(body, 16)?;
                Self::Change {
                    access: valid & (change::MODE | change::UID | change::GID) != 0,
                    size: if valid & change::SIZE == 0 { None } else { Some(size) },
                }
            }
            code::OPEN => Self::Open { flags: u32_at(body, 0)? },
            code::OPENDIR => Self::OpenDirectory,
            code::READ | code::READDIR => {
                let offset = u64_at(body, 8)?;
                let len = u32_at(body, 16)?;
                if len > MAX_TRANSFER_BYTES {
                    return None;
                }
                match code {
                    code::READ => Self::Read { offset, len },
                    _ => Self::ReadDirectory { offset, len },
                }
            }
            code::WRITE => {
                let offset = u64_at(body, 8)?;
                let len = u32_at(body, 16)?;
                let flags = u32_at(body, 32)?;
                let whole = body.len() == HEAD_BYTES - HEADER_BYTES;
                if !whole || usize::try_from(len) != Ok(rest.len()) || len > MAX_TRANSFER_BYTES {
                    return None;
                }
                Self::Write { offset, len, flags }
            }
            code::FALLOCATE => {
                let offset = u64_at(body, 8)?;
                let len = u64_at(body, 16)?;
                Self::Allocate { offset, len, mode: u32_at(body, 24)? }
            }
            code::INIT => {
                let low = u32_at(body, 12)?;
                let extended = u64::from(low) & init::EXT != 0;
                let high = if extended { u32_at(body, 16)? } else { 0 };
                Self::Init {
                    version: (u32_at(body, 0)?, u32_at(body, 4)?),
                    readahead: u32_at(body, 8)?,
                    flags: u64::from(high) << 32 | u64::from(low),
                }
            }
            code::STATFS => Self::FileSystem,
            code::FSYNC => Self::Sync,
            // A flush comes with every close, on kernels that do not know NOFLUSH: no barrier.
            code::RELEASE | code::RELEASEDIR | code::FSYNCDIR | code::FLUSH | code::DESTROY => {
                Self::Nothing
            }
            code::SYMLINK | code::MKNOD | code::MKDIR | code::UNLINK | code::LINK => Self::Name,
            code::RENAME | code::RENAME2 => Self::Rename,
            // What is interrupted is answered as if it were not.
            code::FORGET | code::BATCH_FORGET | code::INTERRUPT => Self::Unanswered,
            _ => Self::Other,
        })
    }
}

/// The name that ends with the first zero.
fn name(body: &[u8], rest: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = body.iter().chain(rest).copied();
    let name: Vec<u8> = bytes.clone().take(MAX_NAME_BYTES).take_while(|byte| *byte != 0).collect();
    let ends = bytes.nth(name.len()) == Some(0);
    if ends { Some(name) } else { None }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_ne_bytes)
}

/// Attributes of a file or the directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Its inode.
    pub node: u64,
    /// Bytes.
    pub size: u64,
    /// Kind and permissions, as stat(2) has them.
    pub mode: u32,
    /// Number of its names.
    pub links: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// Time at which it was made, changed and read last: seconds since 1970.
    pub time_s: u64,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FuseAnswer {
    /// Refused or failed.
    Error(Errno),
    /// Done.
    Done,
    /// Answer to `Init`, with the results of the negotiation.
    Init {
        /// The minor version that both know.
        minor: u32,
        /// Limit of reading ahead, as the kernel has it.
        readahead: u32,
        /// Features that both know.
        flags: u64,
    },
    /// The file that was looked up.
    Found(Attributes),
    /// Attributes.
    Attributes(Attributes),
    /// A file is open.
    Opened {
        /// Flags of [`open`].
        flags: u32,
    },
    /// Data were written.
    Written {
        /// Bytes.
        len: u32,
    },
    /// Data that follow.
    Data {
        /// Bytes.
        len: u32,
    },
    /// Names: [`put_name`].
    Names(Vec<u8>),
    /// The file system, of which there is nothing to say.
    FileSystem,
}

impl FuseAnswer {
    /// The answer to the first of all requests. `None` when there is no common protocol.
    #[must_use]
    pub fn to_init(version: (u32, u32), readahead: u32, flags: u64) -> Option<Self> {
        let (major, minor) = version;
        if major != MAJOR || minor < LEAST_MINOR {
            return None;
        }
        let minor = minor.min(MOST_MINOR);
        Some(Self::Init { minor, readahead, flags: flags & init::WISHES })
    }

    /// Appends it, for the request of this name.
    pub fn encode(&self, unique: u64, out: &mut Vec<u8>) {
        let start = out.len();
        let error = if let Self::Error(errno) = self { -errno.raw_os_error() } else { 0 };
        put_u32(out, 0);
        out.extend_from_slice(&error.to_ne_bytes());
        put_u64(out, unique);
        self.put_body(out);
        let follow = if let Self::Data { len } = self { *len as usize } else { 0 };
        let len = u32::try_from(out.len() - start + follow).expect("short answers");
        out[start..start + 4].copy_from_slice(&len.to_ne_bytes());
    }

    fn put_body(&self, out: &mut Vec<u8>) {
        match self {
            Self::Error(_) | Self::Done | Self::Data { .. } => {}
            Self::Init { minor, readahead, flags } => put_init(out, *minor, *readahead, *flags),
            Self::Found(attributes) => {
                // Inode and generation; names and attributes hold for so long.
                let words = [attributes.node, 0, FOREVER_S, FOREVER_S, 0];
                words.iter().for_each(|word| put_u64(out, *word));
                put_attributes(out, attributes);
            }
            Self::Attributes(attributes) => {
                put_u64(out, FOREVER_S);
                put_u64(out, 0);
                put_attributes(out, attributes);
            }
            Self::Opened { flags } => {
                put_u64(out, 0);
                put_u32(out, *flags);
                put_u32(out, 0);
            }
            Self::Written { len } => {
                put_u32(out, *len);
                put_u32(out, 0);
            }
            Self::Names(names) => out.extend_from_slice(names),
            Self::FileSystem => {
                let start = out.len();
                // Blocks and inodes, and how many are free.
                out.extend_from_slice(&[0; 40]);
                // A block, and the longest name.
                [512, 255].iter().for_each(|word| put_u32(out, *word));
                out.resize(start + 80, 0);
            }
        }
    }
}

fn put_init(out: &mut Vec<u8>, minor: u32, readahead: u32, flags: u64) {
    let start = out.len();
    let pages = u16::try_from(MAX_TRANSFER_BYTES / 4096).expect("a few");
    let low = flags as u32;
    let high = (flags >> 32) as u32;
    [MAJOR, minor, readahead, low].iter().for_each(|word| put_u32(out, *word));
    [MAX_BACKGROUND, CONGESTION].iter().for_each(|word| put_u16(out, *word));
    // The granularity of times: a nanosecond.
    [MAX_TRANSFER_BYTES, 1].iter().for_each(|word| put_u32(out, *word));
    [pages, 0].iter().for_each(|word| put_u16(out, *word));
    put_u32(out, high);
    out.resize(start + 64, 0);
}

fn put_attributes(out: &mut Vec<u8>, of: &Attributes) {
    let start = out.len();
    let words = [of.node, of.size, of.size / 512, of.time_s, of.time_s, of.time_s];
    words.iter().for_each(|word| put_u64(out, *word));
    // The nanoseconds of three times.
    out.extend_from_slice(&[0; 12]);
    let block_bytes = 4096;
    let words = [of.mode, of.links, of.owner.0, of.owner.1, 0, block_bytes];
    words.iter().for_each(|word| put_u32(out, *word));
    out.resize(start + 88, 0);
}

/// Appends a name of a directory, after which the next request goes on at `next`. False when it
/// would be longer than `most` then.
pub fn put_name(out: &mut Vec<u8>, most: usize, next: u64, name: &[u8], is: &Attributes) -> bool {
    let len = (24 + name.len()).next_multiple_of(8);
    let Ok(name_bytes) = u32::try_from(name.len()) else { return false };
    if out.len() + len > most {
        return false;
    }
    let start = out.len();
    put_u64(out, is.node);
    put_u64(out, next);
    put_u32(out, name_bytes);
    // What kind of file: the four bits of its mode.
    put_u32(out, is.mode >> 12);
    out.extend_from_slice(name);
    out.resize(start + len, 0);
    true
}

/// Returns the message that makes the kernel repeat requests that a predecessor took and did not
/// answer.
#[must_use]
pub fn resend() -> Vec<u8> {
    let mut out = Vec::new();
    put_u32(&mut out, 16);
    out.extend_from_slice(&NOTIFY_RESEND.to_ne_bytes());
    put_u64(&mut out, 0);
    out
}

/// Appends the message that makes the kernel ask again for the attributes of an inode. Its cached
/// data still hold.
pub fn put_stale(out: &mut Vec<u8>, node: u64) {
    put_u32(out, 40);
    out.extend_from_slice(&NOTIFY_INVAL_INODE.to_ne_bytes());
    put_u64(out, 0);
    put_u64(out, node);
    // No range of data: it would begin at 0 or later.
    out.extend_from_slice(&(-1i64).to_ne_bytes());
    put_u64(out, 0);
}

/// Appends the message that makes a file so many bytes long for the kernel. Attributes alone do not
/// while programs write: the kernel takes them for older than the last write, and a loop device
/// then reads nothing beyond the old end. The kernel gets the last byte, a part of a page, and so
/// asks for that page all the same.
pub fn put_longer(out: &mut Vec<u8>, node: u64, bytes: u64) {
    put_u32(out, 41);
    out.extend_from_slice(&NOTIFY_STORE.to_ne_bytes());
    put_u64(out, 0);
    put_u64(out, node);
    put_u64(out, bytes.saturating_sub(1));
    put_u32(out, 1);
    put_u32(out, 0);
    out.push(0);
}

fn put_u16(out: &mut Vec<u8>, number: u16) {
    out.extend_from_slice(&number.to_ne_bytes());
}

fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_ne_bytes());
}

fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_ne_bytes());
}
