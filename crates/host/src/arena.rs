//! The arena: one aligned mapping in which all user bytes live. The front belongs to the machine
//! (its scratch), then comes a stretch of zeroes to write from, then what is handed out as request
//! buffers, and at the end a little for the fabric where there is one.
//!
//! Every range has one holder at a time: whoever allocated it, then the machine or the kernel
//! while a request or an I/O names it. All access goes through that rule; the borrow checker
//! cannot see it because the kernel is one of the holders.

mod memory;
mod pool;

use std::io;
use std::sync::Arc;

use braid_array::Buf;
use braid_array::array::Scratch;

pub(crate) use memory::Memory;
use pool::{BLOCK_BYTES, Pool};

const FABRIC_BYTES: u32 = 4 << 20;

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
    pub(crate) const fn request_bytes(&self) -> u64 {
        self.pool.bytes()
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
        Pool::occupied_bytes(len)
    }
}

/// Where in the arena a fabric works.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The arena. Peers may put anywhere in it below `own`, and puts come from there.
    pub(crate) memory: Arc<Memory>,
    /// The end of the arena, which is the fabric's own (for headers and messages).
    pub(crate) own: Buf,
}

impl Place {
    /// Whether a peer may put this many bytes here.
    pub(crate) fn admits(&self, to: u64, bytes: u32) -> bool {
        to.checked_add(u64::from(bytes)).is_some_and(|end| end <= self.own.offset)
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
