//! A directory of files, one for each disk: `d0`, `d1` ...

use std::ffi::OsStr;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request as Asked, TimeOrNow, WriteFlags,
};
use rustix::fs::FallocateFlags;

use super::disk::{Disk, Request};

const ROOT: INodeNo = INodeNo::ROOT;
/// Of the file of the first disk.
const FIRST: u64 = 2;
/// Neither names nor sizes ever change.
const FOREVER: Duration = Duration::from_secs(1 << 30);
/// The largest request; the kernel's own limit.
const MAX_WRITE_BYTES: u32 = 1 << 20;
/// As many requests of all disks wait here; more wait in the kernel.
const MAX_BACKGROUND: u16 = 256;

/// The name of a disk.
pub(super) fn name(number: usize) -> String {
    format!("d{number}")
}

#[derive(Debug)]
pub(super) struct FileSystem {
    disks: Vec<Disk>,
    mounted: SystemTime,
}

impl FileSystem {
    pub(super) fn new(disks: Vec<Disk>) -> Self {
        Self { disks, mounted: SystemTime::now() }
    }

    fn disk(&self, ino: INodeNo) -> Option<&Disk> {
        self.disks.get(usize::try_from(ino.0.checked_sub(FIRST)?).ok()?)
    }

    fn attributes(&self, ino: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size, nlink) = match self.disk(ino) {
            Some(disk) => (FileType::RegularFile, 0o600, disk.bytes, 1),
            None if ino == ROOT => (FileType::Directory, 0o500, 0, 2),
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

// A disk has no memory of its own that would have to be flushed, and nothing on it outlives the
// measurement: what was answered is in the file below.
impl Filesystem for FileSystem {
    fn init(&mut self, _: &Asked, config: &mut KernelConfig) -> std::io::Result<()> {
        // Each of them makes it faster and none is needed.
        let wishes =
            [InitFlags::FUSE_ASYNC_DIO, InitFlags::FUSE_MAX_PAGES, InitFlags::FUSE_PARALLEL_DIROPS];
        for wish in wishes {
            let _ = config.add_capabilities(wish);
        }
        let _ = config.set_max_write(MAX_WRITE_BYTES);
        let _ = config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &Asked, parent: INodeNo, wanted: &OsStr, reply: ReplyEntry) {
        let mut numbers = 0..self.disks.len();
        let found = numbers.find(|&number| parent == ROOT && wanted == OsStr::new(&name(number)));
        let attributes = found.and_then(|number| self.attributes(INodeNo(number as u64 + FIRST)));
        match attributes {
            Some(attributes) => reply.entry(&FOREVER, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Asked, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Some(attributes) => reply.attr(&FOREVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Times and a truncation to nothing (`O_TRUNC`) are ignored, as on a block device.
    fn setattr(
        &self,
        _: &Asked,
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
        let resized = size.is_some_and(|size| size != 0 && size != attributes.size);
        if mode.is_some() || uid.is_some() || gid.is_some() || resized {
            reply.error(Errno::EPERM);
        } else {
            reply.attr(&FOREVER, &attributes);
        }
    }

    fn readdir(
        &self,
        _: &Asked,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if ino != ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let dots = [".", ".."].map(|dot| (ROOT, FileType::Directory, dot.to_owned()));
        let file =
            |number: usize| (INodeNo(number as u64 + FIRST), FileType::RegularFile, name(number));
        let entries = dots.into_iter().chain((0..self.disks.len()).map(file));
        for (next, (ino, kind, name)) in (1..).zip(entries) {
            if next > offset && reply.add(ino, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn open(&self, _: &Asked, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if self.disk(ino).is_none() {
            return reply.error(Errno::EISDIR);
        }
        let flags = FopenFlags::FOPEN_DIRECT_IO
            | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
            | FopenFlags::FOPEN_NOFLUSH;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Asked,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(disk) = self.disk(ino) else { return reply.error(Errno::EISDIR) };
        let bytes = disk.bytes.saturating_sub(offset).min(size.into()) as usize;
        if bytes == 0 {
            return reply.data(&[]);
        }
        disk.ask(Request::Read { offset, bytes, reply });
    }

    fn write(
        &self,
        _: &Asked,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some(disk) = self.disk(ino) else { return reply.error(Errno::EISDIR) };
        let bytes = disk.bytes.saturating_sub(offset).min(data.len() as u64) as usize;
        if bytes == 0 {
            return reply.error(Errno::ENOSPC);
        }
        disk.ask(Request::Write { offset, data: data[..bytes].to_vec(), reply });
    }

    /// Comes with every close, on kernels that do not know NOFLUSH: no barrier.
    fn flush(&self, _: &Asked, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Asked, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.disk(ino) {
            Some(disk) => disk.ask(Request::Flush { reply }),
            None => reply.ok(),
        }
    }

    /// Discards, and makes zeroes without having them sent, for nothing. Never ENOSYS: the kernel
    /// would not ask again.
    fn fallocate(
        &self,
        _: &Asked,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let Some(disk) = self.disk(ino) else { return reply.error(Errno::EISDIR) };
        let bytes = disk.bytes.saturating_sub(offset).min(length);
        let what = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let zeroes = [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE];
        if !zeroes.contains(&(what - FallocateFlags::KEEP_SIZE)) || bytes == 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        disk.ask(Request::Discard { offset, bytes, reply });
    }
}
