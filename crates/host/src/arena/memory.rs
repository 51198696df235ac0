//! The one mapping, and access to its ranges.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use braid_array::Buf;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use super::reserve::{ALIGNMENT, RESERVED_BYTES, ReservedRanges};

pub(super) const HUGE_PAGE_BYTES: u64 = 2 << 20;
const HUGE_PAGE: usize = HUGE_PAGE_BYTES as usize;

/// Unit in which memory is given back to the system.
pub(crate) const PIECE_BYTES: u64 = 1 << 20;

/// A piece of the arena, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArenaPiece(pub(crate) u32);

impl ArenaPiece {
    /// The pieces in which a range begins and ends.
    pub(crate) fn around(range: Buf) -> (Self, Self) {
        let at = |offset: u64| Self(u32::try_from(offset / PIECE_BYTES).unwrap_or(u32::MAX));
        (at(range.offset), at(range.offset + u64::from(range.len).max(1) - 1))
    }

    /// The pieces of which all lies in a range.
    pub(crate) fn inside(range: Range<u64>) -> impl Iterator<Item = Self> {
        let first = range.start.div_ceil(PIECE_BYTES);
        let end = range.end / PIECE_BYTES;
        (first..end).filter_map(|number| u32::try_from(number).ok()).map(Self)
    }

    /// The pieces of which anything lies in a range.
    pub(crate) fn touching(range: Range<u64>) -> impl Iterator<Item = Self> {
        let first = range.start / PIECE_BYTES;
        let end = range.end.div_ceil(PIECE_BYTES);
        (first..end).filter_map(|number| u32::try_from(number).ok()).map(Self)
    }

    /// The pieces of which all lies in these ranges together, which do not overlap.
    pub(crate) fn covered(mut ranges: Vec<Range<u64>>) -> impl Iterator<Item = Self> {
        ranges.sort_by_key(|range| range.start);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match joined.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                Some(last) => {
                    assert!(last.end < range.start, "a part of memory has two owners: {range:?}");
                    joined.push(range);
                }
                None => joined.push(range),
            }
        }
        joined.into_iter().flat_map(Self::inside)
    }
}

/// The bytes of the arena; shared with the driver, which does I/O on them.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    bytes: usize,
    /// Only used pages are resident.
    lean: bool,
    /// Addresses behind the arena for memory of others, which is mapped there, and the ranges in
    /// use.
    reserved: Range<u64>,
    taken: ReservedRanges,
    mapping: NonNull<u8>,
    mapping_bytes: usize,
}

// SAFETY: the mapping is plain memory without thread affinity; who may touch which range when is
// settled by the ownership rule of this module.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// A mapping of its own, all zeroes; with huge pages in its first `huge_bytes`.
    ///
    /// # Errors
    /// When the address space cannot be had.
    #[cfg(ofi)]
    pub(crate) fn new(bytes: usize, huge_bytes: usize) -> io::Result<Self> {
        Self::with_windows(bytes, huge_bytes, false)
    }

    /// Maps memory, on request with addresses for memory of others. Where a limit on the address
    /// space is too narrow, there are none.
    ///
    /// # Errors
    /// When the address space cannot be had.
    pub(super) fn with_windows(bytes: usize, huge_bytes: usize, windows: bool) -> io::Result<Self> {
        let with = windows.then(|| Self::map(bytes, false, RESERVED_BYTES));
        let memory = match with {
            Some(Ok(memory)) => memory,
            _ => Self::map(bytes, false, 0)?,
        };
        memory.advise(0..huge_bytes as u64, Advice::LinuxHugepage);
        Ok(memory)
    }

    /// Maps memory of which only used pages are resident, one by one, except for warm ranges.
    ///
    /// # Errors
    /// When the address space cannot be had.
    pub(crate) fn lean(bytes: usize) -> io::Result<Self> {
        let memory = Self::map(bytes, true, 0)?;
        memory.advise(0..bytes as u64, Advice::LinuxNoHugepage);
        Ok(memory)
    }

    fn map(bytes: usize, lean: bool, reserved_bytes: u64) -> io::Result<Self> {
        let spare = if reserved_bytes > 0 { reserved_bytes + ALIGNMENT } else { 0 };
        let spare = usize::try_from(spare).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mapping_bytes = bytes + HUGE_PAGE + spare;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let mapping = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                mapping_bytes,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let gap = mapping.as_ptr().align_offset(HUGE_PAGE);
        // SAFETY: the gap is less than the huge page by which the mapping is longer.
        let base = unsafe { mapping.add(gap) };
        let behind = base.as_ptr().wrapping_add(bytes);
        let start = (bytes + behind.align_offset(ALIGNMENT as usize)) as u64;
        let reserved = start..start + reserved_bytes;
        let taken = ReservedRanges::default();
        let memory = Self { base, bytes, lean, reserved, taken, mapping, mapping_bytes };
        let access = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the range lies inside the mapping, and nobody has it yet.
        unsafe { rustix::mm::mprotect(base.as_ptr().cast(), bytes, access)? };
        Ok(memory)
    }

    /// Reserves unused addresses; none where so many are not left.
    pub(super) fn reserve(&self, bytes: u64) -> Option<Range<u64>> {
        self.taken.take(self.reserved.clone(), bytes)
    }

    /// Gives them back; nothing is mapped there.
    pub(super) fn unreserve(&self, range: &Range<u64>) {
        self.taken.give_back(range);
    }

    /// Maps a part of a file at reserved addresses, or nothing.
    pub(super) fn map_window(
        &self,
        range: &Range<u64>,
        what: Option<(BorrowedFd<'_>, u64)>,
    ) -> io::Result<()> {
        let inside = self.reserved.start <= range.start && range.end <= self.reserved.end;
        assert!(inside, "a window outside what is reserved: {range:?}");
        let address = self.base.as_ptr().wrapping_add(range.start as usize).cast();
        let len = (range.end - range.start) as usize;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the range is reserved, so nothing else of this process lies there; whoever had
        // buffers in it has given them up.
        unsafe {
            match what {
                Some((file, offset)) => {
                    let flags = MapFlags::SHARED | MapFlags::FIXED;
                    rustix::mm::mmap(address, len, access, flags, file, offset)?;
                }
                None => {
                    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
                    rustix::mm::mmap_anonymous(address, len, ProtFlags::empty(), flags)?;
                }
            }
        }
        Ok(())
    }

    /// Returns whether a buffer lies in memory that others own.
    pub(crate) const fn is_window(&self, buf: Buf) -> bool {
        self.reserved.start <= buf.offset && buf.offset < self.reserved.end
    }

    /// Advises the kernel about a range, which changes no contents. Huge pages are an optimisation:
    /// kernels without them refuse the advice.
    fn advise(&self, range: Range<u64>, advice: Advice) {
        let (address, len) = self.place(&range);
        // SAFETY: the range lies inside the mapping; this kind of advice changes no contents.
        let _ = unsafe { rustix::mm::madvise(address, len, advice) };
    }

    /// Returns the address and the length of a range.
    fn place(&self, range: &Range<u64>) -> (*mut std::ffi::c_void, usize) {
        let len = usize::try_from(range.end - range.start).expect("the memory is mapped");
        let start = usize::try_from(range.start).expect("the memory is mapped");
        assert!(range.end <= self.bytes as u64, "a range outside the arena: {range:?}");
        // SAFETY: it begins inside the mapping, checked above.
        (unsafe { self.base.as_ptr().add(start) }.cast(), len)
    }

    /// Returns whether only used pages are resident.
    pub(crate) const fn is_lean(&self) -> bool {
        self.lean
    }

    /// A range will be used: huge pages are welcome where all of one lies in it.
    pub(crate) fn warm(&self, range: Range<u64>) {
        let start = range.start.next_multiple_of(HUGE_PAGE_BYTES);
        let end = range.end / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        if start < end {
            self.advise(start..end, Advice::LinuxHugepage);
        }
    }

    /// Gives a range of whole pages back to the system; it reads as zeroes then. No buffer in it
    /// may be in use.
    pub(crate) fn cool(&self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.advise(range.clone(), Advice::LinuxNoHugepage);
        let (address, len) = self.place(&range);
        // SAFETY: the range lies inside the mapping and nobody holds any of it.
        let given = unsafe { rustix::mm::madvise(address, len, Advice::LinuxDontNeed) };
        debug_assert!(given.is_ok(), "{given:?}");
    }

    /// Length of the whole arena.
    pub(crate) const fn len_bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes of a piece; the last one may be shorter.
    pub(crate) fn piece(&self, piece: ArenaPiece) -> Buf {
        let offset = u64::from(piece.0) * PIECE_BYTES;
        let len = (self.bytes as u64).saturating_sub(offset).min(PIECE_BYTES);
        Buf { offset, len: u32::try_from(len).expect("a piece is 1 MiB") }
    }

    /// Gives the pages of a piece back to the system; it reads as zeroes then. No buffer in it may
    /// be in use or pinned by a kernel.
    pub(crate) fn give_back(&self, piece: ArenaPiece) {
        let buf = self.piece(piece);
        let address = self.address(buf).cast();
        // SAFETY: the range lies inside the mapping and nobody holds any of it.
        let given =
            unsafe { rustix::mm::madvise(address, buf.len as usize, Advice::LinuxDontNeed) };
        debug_assert!(given.is_ok(), "{given:?}");
    }

    /// Returns the address at which a range starts.
    ///
    /// # Panics
    /// When the range lies neither in the arena nor in a window.
    pub(crate) fn address(&self, buf: Buf) -> *mut u8 {
        let start = usize::try_from(buf.offset).unwrap_or(usize::MAX);
        let end = start.checked_add(buf.len as usize);
        let most = if self.is_window(buf) { self.reserved.end as usize } else { self.bytes };
        assert!(end.is_some_and(|end| end <= most), "buffer outside the arena: {buf:?}");
        // SAFETY: `start` lies inside the mapping, checked above.
        unsafe { self.base.as_ptr().add(start) }
    }

    /// The bytes of a range.
    ///
    /// # Safety
    /// The caller holds the range, and no other thread writes to it while the slice lives; in a
    /// window, nothing depends on two reads giving the same.
    pub(crate) unsafe fn bytes(&self, buf: Buf) -> &[u8] {
        // SAFETY: `address` checked the bounds, the mapping is initialised (zeroed by the
        // kernel), and the caller vouches for aliasing.
        unsafe { std::slice::from_raw_parts(self.address(buf), buf.len as usize) }
    }

    /// The bytes of a range, to be written.
    ///
    /// # Safety
    /// The caller holds the range, and no other thread of this process touches it while the slice
    /// lives; in a window, nothing depends on reading back the written bytes.
    #[expect(clippy::mut_from_ref, reason = "ranges are exclusive by the rule of this module")]
    pub(crate) unsafe fn bytes_mut(&self, buf: Buf) -> &mut [u8] {
        // SAFETY: as in `bytes`.
        unsafe { std::slice::from_raw_parts_mut(self.address(buf), buf.len as usize) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `new`; every user of it shares this object through
        // an `Arc`, and the driver keeps its share for as long as the kernel has I/O on it.
        let unmapped =
            unsafe { rustix::mm::munmap(self.mapping.as_ptr().cast(), self.mapping_bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_of_which_a_part_goes_is_touched_and_does_not_lie_in_it() {
        let numbers = |pieces: &mut dyn Iterator<Item = ArenaPiece>| -> Vec<u32> {
            pieces.map(|piece| piece.0).collect()
        };
        for (range, touched, inside) in [
            (4096..8192, vec![0], vec![]),
            (PIECE_BYTES - 4096..3 * PIECE_BYTES, vec![0, 1, 2], vec![1, 2]),
            (PIECE_BYTES..2 * PIECE_BYTES + 4096, vec![1, 2], vec![1]),
        ] {
            assert_eq!(numbers(&mut ArenaPiece::touching(range.clone())), touched);
            assert_eq!(numbers(&mut ArenaPiece::inside(range)), inside);
        }
    }
}
