//! The client's own buffers: for slices that lie in several pieces, for parities that the client
//! forms, for decoding. All have the length of a slice.

use braid_array::Buf;
use braid_array::array::Scratch;

/// Equal buffers in the client's part of the arena.
#[derive(Debug)]
pub(in crate::client) struct Staging {
    bytes: u32,
    free: Vec<u64>,
    all: usize,
}

impl Staging {
    /// Creates as many buffers as fit into `scratch`.
    pub(in crate::client) fn new(scratch: Scratch, bytes: u32) -> Self {
        let count = scratch.bytes / u64::from(bytes);
        let offset = |i: u64| scratch.offset + i * u64::from(bytes);
        Self { bytes, free: (0..count).rev().map(offset).collect(), all: count as usize }
    }

    /// Takes this many buffers of this length, or none.
    pub(in crate::client) fn take(&mut self, count: usize, len: u32) -> Option<Vec<Buf>> {
        assert!(len <= self.bytes, "longer than a slice");
        let keep = self.free.len().checked_sub(count)?;
        Some(self.free.split_off(keep).into_iter().map(|offset| Buf { offset, len }).collect())
    }

    /// Takes buffers back.
    pub(in crate::client) fn give(&mut self, bufs: impl IntoIterator<Item = Buf>) {
        self.free.extend(bufs.into_iter().map(|buf| buf.offset));
    }

    pub(in crate::client) const fn all(&self) -> usize {
        self.all
    }

    /// Returns the number of free buffers.
    pub(in crate::client) const fn free(&self) -> usize {
        self.free.len()
    }
}
