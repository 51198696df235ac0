//! A directory of files whose names never change, as a file system. Requests that are not
//! about the content of a file are answered here. No I/O.

use std::ops::Range;

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use super::proto::{Attributes, FuseAnswer, FuseRequest, Operation, open, put_name};
use crate::access::Access;
use crate::system::since_1970;

/// The inode of the directory.
const ROOT: u64 = 1;
/// Inode of the first file.
pub(super) const FIRST: u64 = 2;
/// Inode of the directory of the file's parts. No file has it.
const PARTS: u64 = 1 << 32;

const DIRECTORY: u32 = 0o04_0000;
const REGULAR: u32 = 0o10_0000;
/// Bits of a mode that permit writing.
const WRITE: u32 = 0o222;

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileOutcome {
    /// This is the answer.
    Answer(FuseAnswer),
    /// The content of a file is asked.
    Ask {
        /// Index of the file.
        file: usize,
        /// Operation on it.
        ask: FileOperation,
    },
    /// No answer is wanted.
    Nothing,
}

/// Operation on the content of a file. Ranges, in bytes, lie within the file and are not empty.
/// Ranges of a part are places in the first file, within that part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileOperation {
    /// Read.
    Read(Range<u64>),
    /// Write the first of the data that came with the request, durably with `fua`.
    Write {
        /// Range to write to.
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

impl FileOperation {
    /// Moves its ranges by so many bytes.
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
pub struct PartFiles {
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
    parts: PartFiles,
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
        let made_s = since_1970().as_secs();
        let parts = PartFiles::default();
        let tree = Self { files, parts, read_only, mode: 0, owner: (0, 0), made_s };
        tree.open_to(&Access::default())
    }

    /// Sets mode, owner and group of the files.
    pub(crate) fn open_to(self, access: &Access) -> Self {
        let user = access.owner().unwrap_or_else(|| rustix::process::geteuid().as_raw());
        let group = access.group().unwrap_or_else(|| rustix::process::getegid().as_raw());
        let mode = if self.read_only { access.mode() & !WRITE } else { access.mode() };
        Self { mode, owner: (user, group), ..self }
    }

    /// Sets the parts of the first file.
    pub(crate) fn set_parts(&mut self, parts: PartFiles) {
        self.parts = parts;
    }

    /// The size of the first file.
    pub(super) fn size(&self) -> u64 {
        self.files[0].1
    }

    /// Sets the size of the first file.
    pub(super) fn set_size(&mut self, bytes: u64) {
        self.files[0].1 = bytes;
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

    /// Returns the start of a file in the array.
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
    pub fn take(&self, request: &FuseRequest) -> FileOutcome {
        let node = request.node;
        let answer = match &request.operation {
            Operation::Unanswered => return FileOutcome::Nothing,
            Operation::Read { .. }
            | Operation::Write { .. }
            | Operation::Sync
            | Operation::Allocate { .. } => return self.content(node, &request.operation),
            Operation::Lookup { name } => self.lookup(node, name),
            Operation::Attributes => match self.attributes(node) {
                Some(attributes) => FuseAnswer::Attributes(attributes),
                None => FuseAnswer::Error(Errno::NOENT),
            },
            Operation::Change { access, size } => self.change(node, *access, *size),
            Operation::Open { flags } => self.open(node, *flags),
            Operation::OpenDirectory => FuseAnswer::Opened { flags: 0 },
            Operation::ReadDirectory { offset, len } => self.names(node, *offset, *len),
            Operation::FileSystem => FuseAnswer::FileSystem,
            Operation::Nothing => FuseAnswer::Done,
            // The array goes on under its name: nothing is taken away, moved or added.
            Operation::Name => FuseAnswer::Error(Errno::PERM),
            Operation::Rename => FuseAnswer::Error(Errno::BUSY),
            Operation::Malformed => FuseAnswer::Error(Errno::INVAL),
            // It is agreed upon before anything else is asked.
            Operation::Init { .. } => FuseAnswer::Error(Errno::PROTO),
            // The kernel does not ask again.
            Operation::Other => FuseAnswer::Error(Errno::NOSYS),
        };
        FileOutcome::Answer(answer)
    }

    fn lookup(&self, node: u64, name: &[u8]) -> FuseAnswer {
        if !self.is_directory(node) {
            return FuseAnswer::Error(Errno::NOENT);
        }
        let entries = self.entries(node);
        let known = entries.into_iter().find(|(_, known)| known.as_bytes() == name);
        match known.and_then(|(node, _)| self.attributes(node)) {
            Some(attributes) => FuseAnswer::Found(attributes),
            None => FuseAnswer::Error(Errno::NOENT),
        }
    }

    /// Times and a truncation to nothing (`O_TRUNC`) are ignored, as on a block device.
    fn change(&self, node: u64, access: bool, size: Option<u64>) -> FuseAnswer {
        let Some(attributes) = self.attributes(node) else {
            return FuseAnswer::Error(Errno::NOENT);
        };
        if access {
            FuseAnswer::Error(Errno::PERM)
        } else if size.is_some_and(|size| size != 0 && size != attributes.size) {
            FuseAnswer::Error(Errno::INVAL)
        } else {
            FuseAnswer::Attributes(attributes)
        }
    }

    fn open(&self, node: u64, flags: u32) -> FuseAnswer {
        let writes = !(OFlags::from_bits_retain(flags) & OFlags::RWMODE).is_empty();
        if self.file(node).is_none() {
            FuseAnswer::Error(Errno::ISDIR)
        } else if self.read_only && writes {
            FuseAnswer::Error(Errno::ROFS)
        } else {
            let flags = open::DIRECT_IO | open::PARALLEL_DIRECT_WRITES | open::NOFLUSH;
            FuseAnswer::Opened { flags }
        }
    }

    fn names(&self, node: u64, offset: u64, len: u32) -> FuseAnswer {
        if !self.is_directory(node) {
            return FuseAnswer::Error(Errno::NOTDIR);
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
        FuseAnswer::Names(out)
    }

    /// Returns the outcome of a request about the content of a file.
    fn content(&self, node: u64, operation: &Operation) -> FileOutcome {
        let Some((file, size)) = self.file(node) else {
            return FileOutcome::Answer(match operation {
                Operation::Sync => FuseAnswer::Done,
                _ => FuseAnswer::Error(Errno::ISDIR),
            });
        };
        let asked = match *operation {
            Operation::Read { offset, len } => {
                let end = offset.saturating_add(len.into()).min(size);
                if offset < end {
                    Ok(FileOperation::Read(offset..end))
                } else {
                    Err(FuseAnswer::Data { len: 0 })
                }
            }
            Operation::Write { offset, len, flags } => write(offset, len, flags, size),
            Operation::Allocate { offset, len, mode } => self.allocate(offset, len, mode, size),
            _ => Ok(FileOperation::Flush),
        };
        match asked {
            Ok(ask) => FileOutcome::Ask { file, ask: ask.after(self.start(file)) },
            Err(answer) => FileOutcome::Answer(answer),
        }
    }

    /// Never `NOSYS`: the kernel would not ask again as long as it is mounted.
    fn allocate(
        &self,
        offset: u64,
        len: u64,
        mode: u32,
        size: u64,
    ) -> Result<FileOperation, FuseAnswer> {
        let mode = FallocateFlags::from_bits_retain(mode);
        let end = offset.saturating_add(len);
        let keep_size = mode.contains(FallocateFlags::KEEP_SIZE);
        let range = offset.min(size)..end.min(size);
        let what = mode - FallocateFlags::KEEP_SIZE;
        let punch = what == FallocateFlags::PUNCH_HOLE;
        if !punch && what != FallocateFlags::ZERO_RANGE && !what.is_empty() {
            Err(FuseAnswer::Error(Errno::OPNOTSUPP))
        } else if self.read_only {
            Err(FuseAnswer::Error(Errno::ROFS))
        } else if end > size && !keep_size {
            Err(FuseAnswer::Error(Errno::FBIG))
        } else if what.is_empty() || range.is_empty() {
            // All the space there is is allocated.
            Err(FuseAnswer::Done)
        } else {
            Ok(FileOperation::Zero { range, unmap: punch })
        }
    }
}

/// Reduces a write to the part that there is room for.
fn write(offset: u64, len: u32, flags: u32, size: u64) -> Result<FileOperation, FuseAnswer> {
    let end = offset.saturating_add(len.into()).min(size);
    if len == 0 {
        return Err(FuseAnswer::Written { len: 0 });
    }
    if offset >= end {
        return Err(FuseAnswer::Error(Errno::NOSPC));
    }
    // Such a write is not followed by a request to make it durable.
    let durable = OFlags::DSYNC | OFlags::SYNC;
    let fua = OFlags::from_bits_retain(flags).intersects(durable);
    Ok(FileOperation::Write { range: offset..end, fua })
}
