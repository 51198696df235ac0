//! Memory of others, mapped among the addresses of the arena: a buffer can lie there as in the
//! arena itself.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

use braid_array::Buf;
use rustix::fs::{SealFlags, fcntl_get_seals};

use super::memory::Memory;

/// A part of a file, mapped as buffers of the arena until it is dropped. Other processes that have
/// the file open may read and write it at any moment, so no result that must not change may be
/// computed from its content.
#[derive(Debug)]
pub(crate) struct MappedWindow {
    memory: Arc<Memory>,
    range: Range<u64>,
}

impl MappedWindow {
    /// Maps a part of a file. The file must be sealed against truncation, so that all of the part
    /// stays there, whatever its owner does.
    ///
    /// # Errors
    /// When the file is not sealed, when it ends before, when no addresses are left, or the system
    /// refuses.
    pub(crate) fn open(
        memory: &Arc<Memory>,
        file: impl AsFd,
        offset: u64,
        bytes: u64,
    ) -> io::Result<Self> {
        let sealed = fcntl_get_seals(&file)?.contains(SealFlags::SHRINK);
        let len = rustix::fs::fstat(&file)?.st_size.cast_unsigned();
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= len);
        if !sealed || !inside || bytes == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let range = memory.reserve(bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        let window = Self { memory: Arc::clone(memory), range };
        memory.map_window(&window.range, Some((file.as_fd(), offset)))?;
        Ok(window)
    }

    /// A part of it.
    pub(crate) fn buf(&self, offset: u64, len: u32) -> Option<Buf> {
        let start = self.range.start.checked_add(offset)?;
        let inside = start.checked_add(len.into())? <= self.range.end;
        inside.then_some(Buf { offset: start, len })
    }
}

impl Drop for MappedWindow {
    fn drop(&mut self) {
        // Where it fails the addresses stay in use, as what lies there does.
        if self.memory.map_window(&self.range, None).is_ok() {
            self.memory.unreserve(&self.range);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use rustix::fs::{MemfdFlags, fcntl_add_seals, memfd_create};

    use super::*;
    use crate::arena::Arena;

    fn file(bytes: u64, seals: SealFlags) -> File {
        let file = memfd_create("window", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
        let file = File::from(file);
        file.set_len(bytes).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    }

    #[test]
    fn a_window_shows_its_file_and_its_addresses_come_back() {
        let arena = Arena::new(0, 1 << 20).unwrap();
        let memory = arena.memory();
        let file = file(1 << 20, SealFlags::SHRINK);
        file.write_all_at(b"of a guest", 8192 + 3).unwrap();
        let window = MappedWindow::open(memory, &file, 8192, 4096).unwrap();
        let other = MappedWindow::open(memory, &file, 0, 1 << 20).unwrap();
        assert!(!window.buf(0, 4096).unwrap().overlaps(other.buf(0, 1 << 20).unwrap()));
        let buf = window.buf(3, 10).unwrap();
        // SAFETY: nobody else has the file.
        let bytes = unsafe { memory.bytes_mut(buf) };
        assert_eq!(bytes, b"of a guest");
        bytes[0] = b'O';
        let mut there = [0; 10];
        file.read_exact_at(&mut there, 8192 + 3).unwrap();
        assert_eq!(&there, b"Of a guest");
        assert_eq!(window.buf(1, 4096), None);
        assert_eq!(window.buf(u64::MAX, 1), None);
        assert!(memory.is_window(buf) && !memory.is_window(arena.zeroes()));
        let place = window.buf(0, 1);
        drop(window);
        let again = MappedWindow::open(memory, &file, 0, 4096).unwrap();
        assert_eq!(again.buf(0, 1), place);
    }

    #[test]
    fn what_may_become_shorter_is_not_taken() {
        let arena = Arena::new(0, 1 << 20).unwrap();
        let memory = arena.memory();
        let open = |file: &File, offset, bytes| MappedWindow::open(memory, file, offset, bytes);
        assert!(open(&file(8192, SealFlags::empty()), 0, 4096).is_err());
        assert!(open(&file(8192, SealFlags::GROW), 0, 4096).is_err());
        let sealed = file(8192, SealFlags::SHRINK);
        assert!(open(&sealed, 4096, 8192).is_err(), "beyond its end");
        assert!(open(&sealed, u64::MAX - 4095, 4096).is_err());
        assert!(open(&sealed, 0, 0).is_err());
        assert!(open(&sealed, 0, 8192).is_ok());
        assert!(open(&File::open("/dev/zero").unwrap(), 0, 4096).is_err());
    }
}
