//! The arena: one aligned mapping in which all user bytes live. The front belongs to the machine
//! (its scratch), then comes a stretch of zeroes to write from, then what is handed out as request
//! buffers, and at the end a little for the fabric where there is one.
//!
//! Every range has one holder at a time: whoever allocated it, then the machine or the kernel
//! while a request or an I/O names it. All access goes through that rule; the borrow checker
//! cannot see it because the kernel is one of the holders.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use braid_array::Buf;
use braid_array::array::Scratch;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::fabric::Place;

const BLOCK_BYTES: u64 = 1 << 20;
const FABRIC_BYTES: u32 = 4 << 20;
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The bytes of the arena; shared with the driver, which does I/O on them.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    bytes: usize,
    mapping: NonNull<u8>,
    mapping_bytes: usize,
}

// SAFETY: the mapping is plain memory without thread affinity; who may touch which range when is
// settled by the ownership rule of this module.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// A mapping of its own, all zeroes.
    ///
    /// # Errors
    /// When the address space cannot be had.
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        let mapping_bytes = bytes + HUGE_PAGE_BYTES;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let mapping = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                mapping_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let gap = mapping.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: the gap is less than the huge page by which the mapping is longer.
        let base = unsafe { mapping.add(gap) };
        // Huge pages are an optimisation: kernels without them refuse the advice.
        // SAFETY: the range lies inside the mapping; the advice changes no contents.
        let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        Ok(Self { base, bytes, mapping, mapping_bytes })
    }

    /// Length of the whole arena.
    pub(crate) const fn len_bytes(&self) -> usize {
        self.bytes
    }

    /// Where a range starts.
    ///
    /// # Panics
    /// When the range does not lie in the arena.
    pub(crate) fn address(&self, buf: Buf) -> *mut u8 {
        let start = usize::try_from(buf.offset).unwrap_or(usize::MAX);
        let end = start.checked_add(buf.len as usize);
        assert!(end.is_some_and(|end| end <= self.bytes), "buffer outside the arena: {buf:?}");
        // SAFETY: `start` is at most `bytes`, checked above.
        unsafe { self.base.as_ptr().add(start) }
    }

    /// The bytes of a range.
    ///
    /// # Safety
    /// The caller holds the range, and nobody writes to it while the slice lives.
    pub(crate) unsafe fn bytes(&self, buf: Buf) -> &[u8] {
        // SAFETY: `address` checked the bounds, the mapping is initialised (zeroed by the
        // kernel), and the caller vouches for aliasing.
        unsafe { std::slice::from_raw_parts(self.address(buf), buf.len as usize) }
    }

    /// The bytes of a range, to be written.
    ///
    /// # Safety
    /// The caller holds the range, and nobody else touches it while the slice lives.
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

/// The memory and who holds which part of it.
#[derive(Debug)]
pub struct Arena {
    memory: Arc<Memory>,
    scratch: Scratch,
    zeroes: Buf,
    pool: Pool,
    fabric: Buf,
}

impl Arena {
    /// An arena with `scratch_bytes` for a machine and at least `request_bytes` for requests.
    ///
    /// # Errors
    /// When the address space cannot be had.
    pub fn new(scratch_bytes: u64, request_bytes: u64) -> io::Result<Self> {
        Self::with_end(scratch_bytes, request_bytes, 0)
    }

    /// As `new`, with room for the headers and messages of a fabric at the end.
    ///
    /// # Errors
    /// When the address space cannot be had.
    pub fn for_fabric(scratch_bytes: u64, request_bytes: u64) -> io::Result<Self> {
        Self::with_end(scratch_bytes, request_bytes, FABRIC_BYTES)
    }

    fn with_end(scratch_bytes: u64, request_bytes: u64, fabric: u32) -> io::Result<Self> {
        let scratch_end = scratch_bytes.next_multiple_of(BLOCK_BYTES);
        let blocks = u32::try_from(request_bytes.div_ceil(BLOCK_BYTES).max(1))
            .map_err(|_| io::ErrorKind::InvalidInput)?;
        let pool_start = scratch_end + BLOCK_BYTES;
        let pool_end = pool_start + u64::from(blocks) * BLOCK_BYTES;
        let bytes = pool_end + u64::from(fabric);
        let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(Self {
            memory: Arc::new(Memory::new(bytes)?),
            scratch: Scratch { offset: 0, bytes: scratch_bytes },
            zeroes: Buf { offset: scratch_end, len: 1 << 20 },
            pool: Pool::new(pool_start, blocks),
            fabric: Buf { offset: pool_end, len: fabric },
        })
    }

    /// The machine's part.
    #[must_use]
    pub const fn scratch(&self) -> Scratch {
        self.scratch
    }

    pub(crate) const fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Zeroes to write from; nobody ever writes here.
    pub(crate) const fn zeroes(&self) -> Buf {
        self.zeroes
    }

    /// What a fabric works with. Without room for one when the arena was not made for it.
    pub(crate) fn place(&self) -> Place {
        Place { memory: Arc::clone(&self.memory), own: self.fabric }
    }

    /// Bytes that are handed out in turn.
    pub(crate) fn request_bytes(&self) -> u64 {
        self.pool.blocks.len() as u64 * BLOCK_BYTES
    }

    /// A buffer of exactly `len` bytes (1 to 1 MiB), 4096-aligned; `None` when there is none.
    pub(crate) fn allocate(&mut self, len: u32) -> Option<Buf> {
        self.pool.allocate(len)
    }

    /// Gives back a buffer from `allocate`; `buf` may also be a front part of it.
    pub(crate) fn release(&mut self, buf: Buf) {
        self.pool.release(buf.offset);
    }

    /// How much of the arena a buffer of this length occupies.
    pub(crate) const fn occupied_bytes(len: u32) -> u64 {
        CLASSES[Pool::class_of(len)]
    }
}

/// Slot sizes.
const CLASSES: [u64; 4] = [4 << 10, 64 << 10, 256 << 10, BLOCK_BYTES];
/// The last class: a block that is not cut.
const WHOLE: usize = CLASSES.len() - 1;

/// One MiB, whole or cut into slots of one class.
#[derive(Clone, Debug)]
struct Block {
    class: usize,
    free: u32,
    /// Bit `i` set: slot `i` is free.
    map: [u64; 4],
}

/// Allocator over blocks of 1 MiB. A block whose slots are all free becomes whole again, so that
/// small requests do not fragment the arena for good.
#[derive(Debug)]
struct Pool {
    start: u64,
    blocks: Vec<Block>,
    whole: Vec<u32>,
    /// For each class below the largest, blocks with a free slot.
    partial: [Vec<u32>; WHOLE],
}

impl Pool {
    fn new(start: u64, blocks: u32) -> Self {
        Self {
            start,
            blocks: vec![Block { class: WHOLE, free: 1, map: [0; 4] }; blocks as usize],
            whole: (0..blocks).rev().collect(),
            partial: [const { Vec::new() }; WHOLE],
        }
    }

    const fn class_of(len: u32) -> usize {
        match len as u64 {
            0..=0x1000 => 0,
            0x1001..=0x1_0000 => 1,
            0x1_0001..=0x4_0000 => 2,
            _ => WHOLE,
        }
    }

    fn allocate(&mut self, len: u32) -> Option<Buf> {
        assert!(len > 0 && u64::from(len) <= BLOCK_BYTES, "no class for {len} bytes");
        let class = Self::class_of(len);
        if class == WHOLE {
            let index = self.whole.pop()?;
            self.blocks[index as usize].free = 0;
            return Some(Buf { offset: self.start + u64::from(index) * BLOCK_BYTES, len });
        }
        let index = match self.partial[class].last() {
            Some(&index) => index,
            None => {
                let index = self.whole.pop()?;
                self.blocks[index as usize] = Block::cut(class);
                self.partial[class].push(index);
                index
            }
        };
        let block = &mut self.blocks[index as usize];
        let slot = block.take();
        if block.free == 0 {
            self.partial[class].pop();
        }
        let offset = self.start + u64::from(index) * BLOCK_BYTES + u64::from(slot) * CLASSES[class];
        Some(Buf { offset, len })
    }

    fn release(&mut self, offset: u64) {
        let within = offset.checked_sub(self.start).expect("buffer is not from the pool");
        let index = u32::try_from(within / BLOCK_BYTES).expect("buffer is from the pool");
        let block = &mut self.blocks[index as usize];
        let class = block.class;
        if class == WHOLE {
            assert_eq!(block.free, 0, "buffer released twice");
            block.free = 1;
            self.whole.push(index);
            return;
        }
        block.give(within % BLOCK_BYTES / CLASSES[class]);
        if block.free == 1 {
            self.partial[class].push(index);
        }
        if u64::from(block.free) == BLOCK_BYTES / CLASSES[class] {
            let at = self.partial[class].iter().position(|&other| other == index);
            self.partial[class].swap_remove(at.expect("a block with free slots is listed"));
            self.blocks[index as usize] = Block { class: WHOLE, free: 1, map: [0; 4] };
            self.whole.push(index);
        }
    }
}

impl Block {
    /// A block cut into free slots of a class.
    fn cut(class: usize) -> Self {
        let slots = BLOCK_BYTES / CLASSES[class];
        let mut map = [0; 4];
        for slot in 0..slots {
            map[(slot / 64) as usize] |= 1 << (slot % 64);
        }
        Self { class, free: u32::try_from(slots).expect("at most 256 slots"), map }
    }

    /// Takes the first free slot; there must be one.
    fn take(&mut self) -> u32 {
        let word = self.map.iter().position(|&word| word != 0).expect("a slot is free");
        let bit = self.map[word].trailing_zeros();
        self.map[word] &= self.map[word] - 1;
        self.free -= 1;
        u32::try_from(word).expect("four words") * 64 + bit
    }

    fn give(&mut self, slot: u64) {
        let (word, bit) = ((slot / 64) as usize, 1u64 << (slot % 64));
        assert_eq!(self.map[word] & bit, 0, "buffer released twice");
        self.map[word] |= bit;
        self.free += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_disjoint_and_writable() {
        let mut arena = Arena::new(5000, 5 << 20).unwrap();
        let lens = [512, 4096, 4097, 65_536, 65_537, 262_144, 262_145, 1 << 20, 100];
        let bufs: Vec<Buf> = lens.iter().map(|&len| arena.allocate(len).unwrap()).collect();
        for (i, buf) in bufs.iter().enumerate() {
            assert_eq!(arena.memory.address(*buf) as usize % 4096, 0);
            assert!(buf.offset >= arena.scratch.bytes);
            // SAFETY: just allocated, so held by this test alone.
            unsafe { arena.memory.bytes_mut(*buf) }.fill(u8::try_from(i).unwrap() + 1);
        }
        for (i, buf) in bufs.iter().enumerate() {
            // SAFETY: as above.
            let bytes = unsafe { arena.memory.bytes(*buf) };
            assert!(bytes.iter().all(|&b| usize::from(b) == i + 1), "buffer {i} was overwritten");
        }
    }

    #[test]
    fn an_emptied_pool_gives_whole_blocks_again() {
        let mut arena = Arena::new(0, 2 << 20).unwrap();
        for (round, len) in (0..).zip([4096, 65_536, 262_144]) {
            let small: Vec<Buf> = std::iter::from_fn(|| arena.allocate(len)).collect();
            assert_eq!(small.len(), (2 << 20) / len as usize);
            assert_eq!(arena.allocate(1), None);
            // Release in another order each time.
            let mut order: Vec<usize> = (0..small.len()).collect();
            order.sort_by_key(|&i| (i as u64).wrapping_mul(0x9e37_79b9 + 2 * round) % 509);
            for i in order {
                arena.release(small[i]);
            }
            let large: Vec<Buf> = std::iter::from_fn(|| arena.allocate(1 << 20)).collect();
            assert_eq!(large.len(), 2);
            large.into_iter().for_each(|buf| arena.release(buf));
        }
    }

    #[test]
    #[should_panic(expected = "released twice")]
    fn a_second_release_is_noticed() {
        let mut arena = Arena::new(0, 1 << 20).unwrap();
        let _other = arena.allocate(4096).unwrap();
        let buf = arena.allocate(4096).unwrap();
        arena.release(buf);
        arena.release(buf);
    }

    #[test]
    #[should_panic(expected = "outside the arena")]
    fn a_range_beyond_the_end_is_noticed() {
        let arena = Arena::new(0, 1 << 20).unwrap();
        arena.memory.address(Buf { offset: 2 << 20, len: 1 });
    }
}
