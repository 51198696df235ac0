//! The file system: a directory of files, and the requests on them.

use std::ffi::OsStr;
use std::ops::Range;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use rustix::fs::{FallocateFlags, OFlags};

const ROOT: INodeNo = INodeNo::ROOT;
/// Of the first file.
const FIRST: u64 = 2;

/// Neither names nor sizes ever change.
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// The largest request; the kernel's own limit.
const MAX_WRITE_BYTES: u32 = 1 << 20;
const MAX_BACKGROUND: u16 = 256;

/// What a file does. Ranges, in bytes, lie within it and are not empty. A reply that is dropped
/// says EIO.
pub trait Content: Send + Sync + 'static {
    /// Bytes; it never changes.
    fn size(&self) -> u64;

    /// Answers with these bytes.
    fn read(&self, range: Range<u64>, reply: ReplyData);

    /// Writes, durably with `fua`.
    fn write(&self, offset: u64, data: Vec<u8>, fua: bool, reply: ReplyWrite);

    /// Makes durable what was written.
    fn flush(&self, reply: ReplyEmpty);

    /// Writes zeroes; with `unmap` the space may be given back.
    fn zero(&self, range: Range<u64>, unmap: bool, reply: ReplyEmpty);
}

/// A directory of files.
#[derive(Debug)]
pub struct FileSystem<C> {
    files: Vec<(String, C)>,
    read_only: bool,
    mounted: SystemTime,
}

impl<C: Content> FileSystem<C> {
    /// Of these files, by name.
    #[must_use]
    pub fn new(files: Vec<(String, C)>, read_only: bool) -> Self {
        Self { files, read_only, mounted: SystemTime::now() }
    }

    fn file(&self, ino: INodeNo) -> Option<&C> {
        let number = usize::try_from(ino.0.checked_sub(FIRST)?).ok()?;
        self.files.get(number).map(|(_, file)| file)
    }

    /// By inode.
    fn names(&self) -> impl Iterator<Item = (INodeNo, &str)> {
        (FIRST..).map(INodeNo).zip(self.files.iter().map(|(name, _)| name.as_str()))
    }

    fn attributes(&self, ino: INodeNo) -> Option<FileAttr> {
        let write = if self.read_only { 0 } else { 0o200 };
        let (kind, perm, size, nlink) = match self.file(ino) {
            Some(file) => (FileType::RegularFile, 0o400 | write, file.size(), 1),
            None if ino == ROOT => (FileType::Directory, 0o555, 0, 2),
            None => return None,
        };
        Some(FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: self.mounted,
            mtime: self.mounted,
            ctime: self.mounted,
            crtime: self.mounted,
            kind,
            perm,
            nlink,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

impl<C: Content> Filesystem for FileSystem<C> {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // None of them is needed, and the kernel may not know it.
        let wishes = [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_MAX_PAGES,
            InitFlags::FUSE_PARALLEL_DIROPS,
            // Kernels before 6.6 let nobody share a mapping of a file with direct I/O. What is
            // mapped is cached, until the mapping ends.
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ];
        for wish in wishes {
            let _ = config.add_capabilities(wish);
        }
        let _ = config.set_max_write(MAX_WRITE_BYTES);
        let _ = config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.names().find(|(_, known)| parent == ROOT && name == OsStr::new(known));
        match found.and_then(|(ino, _)| self.attributes(ino)) {
            Some(attributes) => reply.entry(&FOREVER, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Some(attributes) => reply.attr(&FOREVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Times and a truncation to nothing (`O_TRUNC`) are ignored, as on a block device.
    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let Some(attributes) = self.attributes(ino) else { return reply.error(Errno::ENOENT) };
        if mode.is_some() || uid.is_some() || gid.is_some() {
            reply.error(Errno::EPERM);
        } else if size.is_some_and(|size| size != 0 && size != attributes.size) {
            reply.error(Errno::EINVAL);
        } else {
            reply.attr(&FOREVER, &attributes);
        }
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if ino != ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let dots = [".", ".."].map(|dot| (ROOT, FileType::Directory, dot));
        let files = self.names().map(|(ino, name)| (ino, FileType::RegularFile, name));
        let entries = dots.into_iter().chain(files);
        for (next, (ino, kind, name)) in (1..).zip(entries) {
            if next > offset && reply.add(ino, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if self.file(ino).is_none() {
            reply.error(Errno::EISDIR);
        } else if self.read_only && flags.acc_mode() != OpenAccMode::O_RDONLY {
            reply.error(Errno::EROFS);
        } else {
            let flags = FopenFlags::FOPEN_DIRECT_IO
                | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
                | FopenFlags::FOPEN_NOFLUSH;
            reply.opened(FileHandle(0), flags);
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(file) = self.file(ino) else { return reply.error(Errno::EISDIR) };
        let end = offset.saturating_add(size.into()).min(file.size());
        if offset >= end {
            return reply.data(&[]);
        }
        file.read(offset..end, reply);
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some(file) = self.file(ino) else { return reply.error(Errno::EISDIR) };
        let room = file.size().saturating_sub(offset).min(data.len() as u64);
        if room == 0 {
            let beyond = !data.is_empty();
            return if beyond { reply.error(Errno::ENOSPC) } else { reply.written(0) };
        }
        // Such a write is not followed by an FSYNC.
        let durable = OFlags::DSYNC | OFlags::SYNC;
        let fua = OFlags::from_bits_retain(flags.0.cast_unsigned()).intersects(durable);
        file.write(offset, data[..room as usize].to_vec(), fua, reply);
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // Comes with every close, on kernels that do not know NOFLUSH: no barrier.
        reply.ok();
    }

    fn fsync(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        match self.file(ino) {
            Some(file) => file.flush(reply),
            None => reply.ok(),
        }
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    /// Never ENOSYS: the kernel would not ask again as long as it is mounted.
    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let Some(file) = self.file(ino) else { return reply.error(Errno::EISDIR) };
        let size = file.size();
        let end = offset.saturating_add(length);
        let keep_size = mode.contains(FallocateFlags::KEEP_SIZE);
        let range = offset.min(size)..end.min(size);
        let what = mode - FallocateFlags::KEEP_SIZE;
        let known = [FallocateFlags::empty(), PUNCH_HOLE, ZERO_RANGE].contains(&what);
        if !known {
            reply.error(Errno::EOPNOTSUPP);
        } else if self.read_only {
            reply.error(Errno::EROFS);
        } else if end > size && !keep_size {
            reply.error(Errno::EFBIG);
        } else if what.is_empty() || range.is_empty() {
            // All the space there is is allocated.
            reply.ok();
        } else {
            file.zero(range, what == PUNCH_HOLE, reply);
        }
    }

    /// The array goes on under its name: nothing is taken away, moved or added.
    fn unlink(&self, _req: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _newparent: INodeNo,
        _newname: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EBUSY);
    }

    /// Also asked for regular files.
    fn mknod(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }

    fn mkdir(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }
}

const PUNCH_HOLE: FallocateFlags = FallocateFlags::PUNCH_HOLE;
const ZERO_RANGE: FallocateFlags = FallocateFlags::ZERO_RANGE;
