//! Memory of our own that is a member, mapped: I/O on it is a copy, without a call.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::arena::Memory;
use crate::driver::Op;
use crate::lock::LockedFile;

/// Unit in which writes are noted. Reading a page that was never written through the mapping would
/// allocate the page; so a written byte allocates at most this much.
const AREA_BYTES: u64 = 64 << 10;

/// Files longer than this are not mapped. Their notes would take megabytes and as much time before
/// the first write, and no machine has so much memory.
const MAX_BYTES: u64 = 1 << 40;

/// A sealed file of memory, from its beginning on. The file cannot become shorter, so all of the
/// mapping stays there.
#[derive(Debug)]
pub(super) struct Mapped {
    at: NonNull<u8>,
    len: usize,
    /// A bit per area: something in it was written.
    written: Box<[AtomicU64]>,
}

// SAFETY: the mapping belongs to this value alone. Its bytes are shared with the kernel, which
// reads and writes them for whoever uses the file, as with any file: what overlapping reads and
// writes under way at the same time bring is not defined, and the machine begins none.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps a file, of which `sealed` says that it cannot become shorter than these bytes. None
    /// where the system has no room for the mapping; the file serves without.
    ///
    /// # Safety
    /// The file must be sealed so, or bytes of the mapping may vanish under a copy.
    pub(super) unsafe fn new(file: &LockedFile, bytes: u64) -> Option<Self> {
        let len = usize::try_from(bytes).ok().filter(|_| (1..=MAX_BYTES).contains(&bytes))?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, where the kernel finds room for it.
        let at = unsafe { mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, file, 0) };
        let words = bytes.div_ceil(AREA_BYTES).div_ceil(64);
        let written = (0..words).map(|_| AtomicU64::new(0)).collect();
        Some(Self { at: NonNull::new(at.ok()?.cast())?, len, written })
    }

    /// Carries an operation on the file out. None if that takes a call.
    pub(super) fn carry_out(&self, memory: &Memory, op: &Op) -> Option<u32> {
        match op {
            Op::Read { offset, buf, .. } => {
                // SAFETY: the operation holds the buffer until it has ended.
                let bytes = unsafe { memory.bytes_mut(*buf) };
                self.read(*offset, bytes).then_some(buf.len)
            }
            Op::Write { offset, buf, .. } => {
                // SAFETY: as above.
                let bytes = unsafe { memory.bytes(*buf) };
                self.write(*offset, bytes).then_some(buf.len)
            }
            // Nothing here outlives the process, so nothing is made durable.
            Op::Sync { .. } => Some(0),
            _ => None,
        }
    }

    /// Fills a buffer; false where the file may have holes, which a call reads without making
    /// pages, or ends.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> bool {
        let Some(start) = self.range(offset, bytes.len()) else { return false };
        if !self.areas(offset, bytes.len()).all(|area| self.is_written(area)) {
            return false;
        }
        // SAFETY: the range lies within the mapping, which outlives `self`, and the buffer is apart
        // from it: nobody else has its address.
        unsafe {
            self.at
                .add(start)
                .copy_to_nonoverlapping(NonNull::new_unchecked(bytes.as_mut_ptr()), bytes.len());
        }
        true
    }

    /// Writes a buffer. Returns false where the file ends, and for areas not written before, as a
    /// call makes their pages without clearing them first.
    fn write(&self, offset: u64, bytes: &[u8]) -> bool {
        let Some(start) = self.range(offset, bytes.len()) else { return false };
        if !self.note_written(offset, bytes.len()) {
            return false;
        }
        // SAFETY: as for `read`.
        unsafe {
            self.at.add(start).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
        }
        true
    }

    /// Notes that a range is written, by whatever way. Returns whether all of it was noted before.
    pub(super) fn note_written(&self, offset: u64, len: usize) -> bool {
        let mut known = true;
        for area in self.areas(offset, len) {
            if !self.is_written(area) {
                known = false;
                self.written[area / 64].fetch_or(1 << (area % 64), Ordering::Relaxed);
            }
        }
        known
    }

    fn range(&self, offset: u64, len: usize) -> Option<usize> {
        let start = usize::try_from(offset).ok()?;
        (start.checked_add(len)? <= self.len).then_some(start)
    }

    fn is_written(&self, area: usize) -> bool {
        self.written[area / 64].load(Ordering::Relaxed) & (1 << (area % 64)) != 0
    }

    /// The areas of a range within the mapping.
    fn areas(&self, offset: u64, len: usize) -> impl Iterator<Item = usize> + use<> {
        let area = |byte: u64| usize::try_from(byte / AREA_BYTES).expect("within the mapping");
        let end = offset + len as u64;
        area(offset)..area(end.next_multiple_of(AREA_BYTES))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and nobody has its address any more. Nothing can
        // be done about a failure.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::memory;

    const BYTES: u64 = 1 << 20;

    fn mapped() -> (Mapped, LockedFile) {
        let file = memory("mem:1M".into(), BYTES).expect("memory").file;
        // SAFETY: `memory` seals what it makes.
        (unsafe { Mapped::new(&file, BYTES) }.expect("room"), file)
    }

    fn pages_made(file: &LockedFile) -> u64 {
        rustix::fs::fstat(file).expect("stat").st_blocks.cast_unsigned() / 8
    }

    #[test]
    fn what_was_never_written_is_left_to_a_call_and_makes_no_pages() {
        let (mapped, file) = mapped();
        assert!(!mapped.read(0, &mut [1; 4096]));
        assert!(!mapped.write(AREA_BYTES - 2048, &[7; 4096]), "written for the first time");
        assert_eq!(pages_made(&file), 0);
        assert!(mapped.write(AREA_BYTES - 2048, &[7; 4096]));
        let mut found = [0; 4096];
        assert!(mapped.read(AREA_BYTES - 2048, &mut found));
        assert_eq!(found, [7; 4096]);
        rustix::io::pread(&file, &mut found[..], AREA_BYTES - 2048).expect("a read");
        assert_eq!(found, [7; 4096], "the file has what was written through the mapping");
        assert!(!mapped.read(AREA_BYTES * 2 - 2048, &mut found), "its second half is a hole");
    }

    #[test]
    fn nothing_reaches_beyond_the_end() {
        let (mapped, _file) = mapped();
        for offset in [BYTES - 511, BYTES, u64::MAX - 100] {
            assert!(!mapped.read(offset, &mut [0; 512]), "{offset}");
            assert!(!mapped.write(offset, &[0; 512]), "{offset}");
        }
        mapped.note_written(BYTES - 512, 512);
        assert!(mapped.write(BYTES - 512, &[1; 512]));
    }
}
