//! Buffer handles. User bytes live in the executor's arena; the machine sees ranges of it only.

/// A range of the executor's arena, in bytes. Multiples of 512; I/O buffers are 4096-aligned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buf {
    /// First byte, counted from the start of the arena.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
}

impl Buf {
    /// Returns whether the two have bytes in common.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.offset < other.offset + other.len as u64
            && other.offset < self.offset + self.len as u64
    }

    /// The part of this buffer that starts `at` bytes in and is `len` bytes long.
    ///
    /// # Panics
    /// When the part lies outside the buffer.
    #[must_use]
    pub fn slice(self, at: u32, len: u32) -> Self {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len), "slice outside its buffer");
        Self { offset: self.offset + u64::from(at), len }
    }
}
