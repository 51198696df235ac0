//! The content of an array over nodes: of one array, or of two between which its data move.

use braid_array::format::MoveNote;
use braid_array::{Refusal, SECTOR_BYTES};
use braid_cluster::assemble::Candidate;
use braid_host::serve::Private;
use braid_host::submission::Message;

/// Bytes in multiples of which an array on nodes is read.
pub(super) const BLOCK_BYTES: u64 = 4096;

/// An array that is read.
pub(super) struct OpenedArray {
    pub(super) array: Private,
    pub(super) candidates: Vec<Candidate>,
    pub(super) note: MoveNote,
}

/// The content of an array over nodes, or of two between which its data move: the new one has those
/// before the front.
pub(in crate::cmd) struct StoredContent {
    /// The one that has what lies before the front, and the one that has the rest.
    arrays: [Option<Private>; 2],
    front_bytes: u64,
    size_bytes: u64,
}

impl StoredContent {
    /// Returns that of the opened array, or of the old and the new one.
    pub(super) fn of(opened: Vec<OpenedArray>) -> Result<Self, &'static str> {
        let mut opened = opened.into_iter();
        let old = opened.next().ok_or("there is no array")?;
        let size_bytes = old.array.size_bytes();
        let Some(new) = opened.next() else {
            return Ok(Self { arrays: [None, Some(old.array)], front_bytes: 0, size_bytes });
        };
        let front_bytes = new.note.position().saturating_mul(SECTOR_BYTES);
        let fits = front_bytes <= size_bytes && front_bytes.is_multiple_of(BLOCK_BYTES);
        if !fits || size_bytes > new.array.size_bytes() {
            return Err("the two arrays between which its data move do not belong together");
        }
        Ok(Self { arrays: [Some(new.array), Some(old.array)], front_bytes, size_bytes })
    }

    /// Size of the array.
    pub(super) const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Reads whole blocks.
    pub(super) fn read(&self, offset: u64, len: u64) -> Option<Vec<u8>> {
        let end = offset + len;
        let middle = self.front_bytes.clamp(offset, end);
        let mut bytes = Vec::new();
        for (array, range) in self.arrays.iter().zip([offset..middle, middle..end]) {
            if range.is_empty() {
                continue;
            }
            let len = u32::try_from(range.end - range.start).ok()?;
            let offset = range.start;
            let read =
                array.as_ref()?.submissions().call(|done| Message::Read { offset, len, done });
            let part = read.and_then(Result::ok)?;
            if bytes.is_empty() {
                bytes = part;
            } else {
                bytes.extend(part);
            }
        }
        Some(bytes)
    }

    pub(super) fn stop(self) -> Result<(), Refusal> {
        self.arrays.into_iter().flatten().try_for_each(Private::stop)
    }
}
