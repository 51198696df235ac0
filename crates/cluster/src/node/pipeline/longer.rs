//! A longer part of the array on a member, once its pipeline is at rest.
//!
//! The volume ends with the journal, if it has one. So an empty journal is made at the new end, and
//! records in the old one are lost: the client has made all slice-sets durable in their places, and
//! has the superblocks say that they are. Its next pipeline finds the volume as it is then.

use braid_array::{Refusal, SECTOR_BYTES};

use super::pipe::Pipe;
use crate::journal::{HEADERS_BYTES, Header, PAGE_BYTES};
use crate::node::ids::{ArrayId, Violation};

/// The longest part of an array on a member, as a bound for hostile numbers.
const MAX_DATA_BYTES: u64 = 1 << 60;

/// New length of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LongerVolume {
    /// The bytes that stay; zeroes follow.
    pub(crate) kept_bytes: u64,
    /// Its size.
    pub(crate) bytes: u64,
    /// Its last bytes: the headers of the journal.
    pub(crate) tail: Vec<u8>,
}

impl LongerVolume {
    /// Plans a volume whose data ends at `end` instead of `kept_bytes`, with this header.
    fn new(kept_bytes: u64, end: u64, journal: Option<(Header, ArrayId)>) -> Self {
        let Some((header, array)) = journal else {
            let bytes = end.next_multiple_of(PAGE_BYTES);
            return Self { kept_bytes, bytes, tail: Vec::new() };
        };
        let mut tail = vec![0; HEADERS_BYTES as usize];
        let at = header.byte() as usize;
        tail[at..at + PAGE_BYTES as usize].copy_from_slice(&header.encode(&array));
        Self { kept_bytes, bytes: header.place(end) + HEADERS_BYTES, tail }
    }
}

impl Pipe {
    /// Ends all stores of the pipeline. Returns the new length of the volume, for this much data on
    /// the member; or a refusal, if that is no greater length.
    pub(crate) fn lengthen(
        &mut self,
        data_bytes: u64,
    ) -> Result<Result<LongerVolume, Refusal>, Violation> {
        let busy = self.sets.busy().next().is_some();
        if busy || self.at_rest || !self.seat.write {
            return Err(Violation("LengthenVolume of a pipeline that is not at rest"));
        }
        let header = match &mut self.journal {
            Some(journal) => Some((journal.emptied()?, journal.array())),
            None => None,
        };
        let used = self.seat.pipeline.member_bytes();
        let whole = data_bytes.is_multiple_of(PAGE_BYTES);
        if !whole || !(used..=MAX_DATA_BYTES).contains(&data_bytes) {
            let reason = format!("{data_bytes} bytes are no part of an array that has {used}");
            return Ok(Err(Refusal::new(reason, "use more, in whole pages")));
        }
        self.at_rest = true;
        let start = self.seat.data_sector * SECTOR_BYTES;
        let end = start + data_bytes;
        let kept_bytes = if braid_array::broken("new-is-zeroes") {
            self.seat.volume_bytes.min(end)
        } else {
            start + used
        };
        Ok(Ok(LongerVolume::new(kept_bytes, end, header)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::headers_byte;

    #[test]
    fn the_journal_lies_empty_at_the_new_end() {
        let array = [7; 16];
        for sequence in [4, 5] {
            let header = Header::new(1 << 20, true).map(|header| Header { sequence, ..header });
            let header = header.unwrap();
            let longer = LongerVolume::new(3 << 20, 8 << 20, Some((header, array)));
            let headers = headers_byte(longer.bytes).unwrap();
            assert_eq!(longer.bytes - headers, longer.tail.len() as u64);
            assert_eq!(Header::newest(&array, &longer.tail), Some(header));
            assert_eq!(headers - header.log_bytes, 8 << 20);
            assert_eq!(longer.kept_bytes, 3 << 20);
        }
        let without = LongerVolume::new(3 << 20, (8 << 20) + 512, None);
        assert_eq!(without.bytes, (8 << 20) + 4096);
        assert!(without.tail.is_empty());
    }
}
