//! A directory of files whose names and sizes never change, as a file system. Requests that are not
//! about the content of a file are answered here. No I/O.

use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use super::proto::{Answer, Attributes, Operation, Request, open, put_name};
use crate::access::Access;

/// The inode of the directory.
const ROOT: u64 = 1;
/// Inode of the first file.
const FIRST: u64 = 2;
/// Inode of the directory of the file's parts. No file has it.
const PARTS: u64 = 1 << 32;

const DIRECTORY: u32 = 0o04_0000;
const REGULAR: u32 = 0o10_0000;
/// Bits of a mode that permit writing.
const WRITE: u32 = 0o222;

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This is the answer.
    Answer(Answer),
    /// The content of a file is asked.
    Ask {
        /// Index of the file.
        file: usize,
        /// Operation on it.
        ask: Ask,
    },
    /// No answer is wanted.
    Nothing,
}

/// Operation on the content of a file. Ranges, in bytes, lie within the file and are not empty.
/// Ranges of a part are places in the first file, within that part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Read.
    Read(Range<u64>),
    /// Write the first of the data that came with the request, durably with `fua`.
    Write {
        /// Where to.
        range: Range<u64>,
        /// Durable before it is answered.
        fua: bool,
    },
    /// Make written data durable.
    Flush,
    /// Make a range read as zeroes.
    Zero {
        /// Range to be zeroed.
        range: Range<u64>,
        /// The space may be given back.
        unmap: bool,
    },
}

impl Ask {
    /// The same, so many bytes farther on.
    fn after(self, bytes: u64) -> Self {
        let moved = |range: Range<u64>| range.start + bytes..range.end + bytes;
        match self {
            Self::Read(range) => Self::Read(moved(range)),
            Self::Write { range, fua } => Self::Write { range: moved(range), fua },
            Self::Flush => Self::Flush,
            Self::Zero { range, unmap } => Self::Zero { range: moved(range), unmap },
        }
    }
}

/// Parts of the first file, as files in a second directory. Without files there is no such
/// directory.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// Name of the directory.
    pub name: String,
    /// Their names, and their places in the first file, in which ranges of them are asked for.
    pub files: Vec<(String, Range<u64>)>,
}

/// A directory of files.
#[derive(Debug)]
pub struct Tree {
    /// Names and sizes.
    files: Vec<(String, u64)>,
    parts: Parts,
    read_only: bool,
    mode: u32,
    owner: (u32, u32),
    made_s: u64,
}

impl Tree {
    /// Creates a tree of these files (names and sizes). Their owner is the user of this process,
    /// and no other user has access.
    #[must_use]
    pub fn new(files: Vec<(String, u64)>, read_only: bool) -> Self {
        let made_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let parts = Parts::default();
        let tree = Self { files, parts, read_only, mode: 0, owner: (0, 0), made_s };
        tree.open_to(&Access::default())
    }

    /// With files of this mode, owner and group.
    pub(crate) fn open_to(self, access: &Access) -> Self {
        let user = access.owner().unwrap_or_else(|| rustix::process::geteuid().as_raw());
        let group = access.group().unwrap_or_else(|| rustix::process::getegid().as_raw());
        let mode = if self.read_only { access.mode() & !WRITE } else { access.mode() };
        Self { mode, owner: (user, group), ..self }
    }

    /// Sets the parts of the first file.
    pub(crate) fn set_parts(&mut self, parts: Parts) {
        self.parts = parts;
    }

    /// The number of a file, and its size. Parts come after all others.
    fn file(&self, node: u64) -> Option<(usize, u64)> {
        let number = usize::try_from(node.checked_sub(FIRST)?).ok()?;
        let size = match number.checked_sub(self.files.len()) {
            None => self.files[number].1,
            Some(part) => {
                let (_, bytes) = self.parts.files.get(part)?;
                bytes.end - bytes.start
            }
        };
        Some((number, size))
    }

    fn is_directory(&self, node: u64) -> bool {
        node == ROOT || node == PARTS && !self.parts.files.is_empty()
    }

    /// Returns the entries of a directory, directories last.
    fn entries(&self, node: u64) -> Vec<(u64, &str)> {
        let root = self.files.iter().map(|(name, _)| name.as_str());
        let parts = self.parts.files.iter().map(|(name, _)| name.as_str());
        if node == PARTS {
            return (FIRST + self.files.len() as u64..).zip(parts).collect();
        }
        let mut entries: Vec<(u64, &str)> = (FIRST..).zip(root).collect();
        if self.is_directory(PARTS) {
            entries.push((PARTS, &self.parts.name));
        }
        entries
    }

    /// Where a file begins in the array.
    fn start(&self, file: usize) -> u64 {
        let part = file.checked_sub(self.files.len()).map(|part| &self.parts.files[part]);
        part.map_or(0, |(_, bytes)| bytes.start)
    }

    fn attributes(&self, node: u64) -> Option<Attributes> {
        let (mode, size, links) = match self.file(node) {
            Some((_, size)) => (REGULAR | self.mode, size, 1),
            None if node == ROOT && self.is_directory(PARTS) => (DIRECTORY | 0o555, 0, 3),
            None if self.is_directory(node) => (DIRECTORY | 0o555, 0, 2),
            None => return None,
        };
        Some(Attributes { node, size, mode, links, owner: self.owner, time_s: self.made_s })
    }

    /// Returns the outcome of a request.
    #[must_use]
    pub fn take(&self, request: &Request) -> Outcome {
        let node = request.node;
        let answer = match &request.operation {
            Operation::Unanswered => return Outcome::Nothing,
            Operation::Read { .. }
            | Operation::Write { .. }
            | Operation::Sync
            | Operation::Allocate { .. } => return self.content(node, &request.operation),
            Operation::Lookup { name } => self.lookup(node, name),
            Operation::Attributes => match self.attributes(node) {
                Some(attributes) => Answer::Attributes(attributes),
                None => Answer::Error(Errno::NOENT),
            },
            Operation::Change { access, size } => self.change(node, *access, *size),
            Operation::Open { flags } => self.open(node, *flags),
            Operation::OpenDirectory => Answer::Opened { flags: 0 },
            Operation::ReadDirectory { offset, len } => self.names(node, *offset, *len),
            Operation::FileSystem => Answer::FileSystem,
            Operation::Nothing => Answer::Done,
            // The array goes on under its name: nothing is taken away, moved or added.
            Operation::Name => Answer::Error(Errno::PERM),
            Operation::Rename => Answer::Error(Errno::BUSY),
            Operation::Malformed => Answer::Error(Errno::INVAL),
            // It is agreed upon before anything else is asked.
            Operation::Init { .. } => Answer::Error(Errno::PROTO),
            // The kernel does not ask again.
            Operation::Other => Answer::Error(Errno::NOSYS),
        };
        Outcome::Answer(answer)
    }

    fn lookup(&self, node: u64, name: &[u8]) -> Answer {
        if !self.is_directory(node) {
            return Answer::Error(Errno::NOENT);
        }
        let entries = self.entries(node);
        let known = entries.into_iter().find(|(_, known)| known.as_bytes() == name);
        match known.and_then(|(node, _)| self.attributes(node)) {
            Some(attributes) => Answer::Found(attributes),
            None => Answer::Error(Errno::NOENT),
        }
    }

    /// Times and a truncation to nothing (`O_TRUNC`) are ignored, as on a block device.
    fn change(&self, node: u64, access: bool, size: Option<u64>) -> Answer {
        let Some(attributes) = self.attributes(node) else { return Answer::Error(Errno::NOENT) };
        if access {
            Answer::Error(Errno::PERM)
        } else if size.is_some_and(|size| size != 0 && size != attributes.size) {
            Answer::Error(Errno::INVAL)
        } else {
            Answer::Attributes(attributes)
        }
    }

    fn open(&self, node: u64, flags: u32) -> Answer {
        let writes = !(OFlags::from_bits_retain(flags) & OFlags::RWMODE).is_empty();
        if self.file(node).is_none() {
            Answer::Error(Errno::ISDIR)
        } else if self.read_only && writes {
            Answer::Error(Errno::ROFS)
        } else {
            let flags = open::DIRECT_IO | open::PARALLEL_DIRECT_WRITES | open::NOFLUSH;
            Answer::Opened { flags }
        }
    }

    fn names(&self, node: u64, offset: u64, len: u32) -> Answer {
        if !self.is_directory(node) {
            return Answer::Error(Errno::NOTDIR);
        }
        let dots = [(node, "."), (ROOT, "..")];
        let files = self.entries(node);
        let mut out = Vec::new();
        for (next, (node, name)) in (1..).zip(dots.into_iter().chain(files)) {
            let Some(attributes) = self.attributes(node) else { continue };
            let most = len as usize;
            if next > offset && !put_name(&mut out, most, next, name.as_bytes(), &attributes) {
                break;
            }
        }
        Answer::Names(out)
    }

    /// Returns the outcome of a request about the content of a file.
    fn content(&self, node: u64, operation: &Operation) -> Outcome {
        let Some((file, size)) = self.file(node) else {
            return Outcome::Answer(match operation {
                Operation::Sync => Answer::Done,
                _ => Answer::Error(Errno::ISDIR),
            });
        };
        let asked = match *operation {
            Operation::Read { offset, len } => {
                let end = offset.saturating_add(len.into()).min(size);
                if offset < end { Ok(Ask::Read(offset..end)) } else { Err(Answer::Data { len: 0 }) }
            }
            Operation::Write { offset, len, flags } => write(offset, len, flags, size),
            Operation::Allocate { offset, len, mode } => self.allocate(offset, len, mode, size),
            _ => Ok(Ask::Flush),
        };
        match asked {
            Ok(ask) => Outcome::Ask { file, ask: ask.after(self.start(file)) },
            Err(answer) => Outcome::Answer(answer),
        }
    }

    /// Never `NOSYS`: the kernel would not ask again as long as it is mounted.
    fn allocate(&self, offset: u64, len: u64, mode: u32, size: u64) -> Result<Ask, Answer> {
        let mode = FallocateFlags::from_bits_retain(mode);
        let end = offset.saturating_add(len);
        let keep_size = mode.contains(FallocateFlags::KEEP_SIZE);
        let range = offset.min(size)..end.min(size);
        let what = mode - FallocateFlags::KEEP_SIZE;
        let punch = what == FallocateFlags::PUNCH_HOLE;
        if !punch && what != FallocateFlags::ZERO_RANGE && !what.is_empty() {
            Err(Answer::Error(Errno::OPNOTSUPP))
        } else if self.read_only {
            Err(Answer::Error(Errno::ROFS))
        } else if end > size && !keep_size {
            Err(Answer::Error(Errno::FBIG))
        } else if what.is_empty() || range.is_empty() {
            // All the space there is is allocated.
            Err(Answer::Done)
        } else {
            Ok(Ask::Zero { range, unmap: punch })
        }
    }
}

/// As much of a write as there is room for.
fn write(offset: u64, len: u32, flags: u32, size: u64) -> Result<Ask, Answer> {
    let end = offset.saturating_add(len.into()).min(size);
    if len == 0 {
        return Err(Answer::Written { len: 0 });
    }
    if offset >= end {
        return Err(Answer::Error(Errno::NOSPC));
    }
    // Such a write is not followed by a request to make it durable.
    let durable = OFlags::DSYNC | OFlags::SYNC;
    let fua = OFlags::from_bits_retain(flags).intersects(durable);
    Ok(Ask::Write { range: offset..end, fua })
}
