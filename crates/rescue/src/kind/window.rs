//! The bytes in which signatures are looked for.

use std::ops::Range;

use crate::bytes::is_zero;
use crate::image::{Image, read_patchy};

/// The first ones: up to the second label of ZFS.
const HEAD_BYTES: usize = 512 << 10;

/// The last ones: back to the third label of ZFS, which is aligned to 256 KiB.
const TAIL_BYTES: u64 = 768 << 10;

/// Beginning and end of an image.
pub(super) struct Window {
    pub(super) head: Vec<u8>,
    tail: Vec<u8>,
    /// All of the image.
    pub(super) size_bytes: u64,
    /// Sectors that are zeroes here since they cannot be read.
    pub(super) unreadable: Vec<Range<u64>>,
}

impl Window {
    pub(super) fn read(image: &mut dyn Image) -> Self {
        let size_bytes = image.size_bytes();
        let head = read_patchy(image, 0, HEAD_BYTES);
        let tail_at = size_bytes.saturating_sub(TAIL_BYTES);
        let tail = read_patchy(image, tail_at, TAIL_BYTES as usize);
        let mut unreadable = head.holes;
        let seen = head.bytes.len() as u64;
        unreadable.extend(tail.holes.into_iter().filter(|hole| hole.start >= seen));
        Self { head: head.bytes, tail: tail.bytes, size_bytes, unreadable }
    }

    /// Bytes that begin so many before the end, and their place.
    pub(super) fn before_end(&self, bytes: u64) -> Option<(u64, &[u8])> {
        let at = self.tail.len().checked_sub(usize::try_from(bytes).ok()?)?;
        Some((self.size_bytes - bytes, &self.tail[at..]))
    }

    pub(super) fn is_zero(&self) -> bool {
        is_zero(&self.head) && is_zero(&self.tail)
    }
}
