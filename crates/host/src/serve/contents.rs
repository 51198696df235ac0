//! Partitions and volumes on a served array. Programs get them as disks and files of their own.

use std::ops::Range;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use braid_rescue::Image;
use braid_rescue::contents::{self, Content, Piece};
use serde::{Deserialize, Serialize};

use super::ExportedArray;
use crate::engine::scattered::{self, ScatteredRanges, length};
use crate::submission::{Message, SubmissionQueue};

/// Limit on searching the array. An array whose members do not answer is served nevertheless.
const LOOKED_AT_WITHIN: Duration = Duration::from_secs(5);
/// A part in more pieces is not served by itself.
const MOST_PIECES: usize = 1024;

/// A part of the array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ServedPart {
    /// Its name; none else has it, and it can be that of a file.
    pub(super) name: String,
    /// Its bytes on the array, or its first piece.
    bytes: Range<u64>,
    /// Its other pieces.
    #[serde(default)]
    more: Vec<Range<u64>>,
}

/// A part, and the range by which exports reach it: of the array, or behind it.
pub(super) type ShownPart = (String, Range<u64>);

impl ServedPart {
    /// Creates the part that consists of these pieces, at least one.
    fn new(name: String, mut pieces: Vec<Range<u64>>) -> Self {
        let more = pieces.split_off(1);
        Self { name, bytes: pieces[0].clone(), more }
    }

    fn pieces(&self) -> Vec<Range<u64>> {
        std::iter::once(&self.bytes).chain(&self.more).cloned().collect()
    }
}

/// Returns the ranges by which exports reach the parts of an array. Opens those for parts in
/// several pieces.
pub(super) fn shown(parts: &[ServedPart], scattered: &ScatteredRanges) -> Vec<ShownPart> {
    let is_cut = |part: &&ServedPart| !part.more.is_empty();
    let cut: Vec<Vec<Range<u64>>> = parts.iter().filter(is_cut).map(ServedPart::pieces).collect();
    let starts = scattered::starts(cut.iter().map(Vec::as_slice));
    let mut ranges = starts.iter().zip(&cut).map(|(at, pieces)| *at..*at + length(pieces));
    let shown = parts.iter().map(|part| {
        let behind = if part.more.is_empty() { None } else { ranges.next() };
        (part.name.clone(), behind.unwrap_or_else(|| part.bytes.clone()))
    });
    let shown = shown.collect();
    // Nothing may have been looked at yet.
    if !cut.is_empty() {
        scattered.open(starts.into_iter().zip(cut));
    }
    shown
}

/// Searches a running array for parts. Returns none where that takes too long.
pub(super) fn look(
    name: &str,
    submissions: &SubmissionQueue,
    array: ExportedArray,
) -> Vec<ServedPart> {
    let block_bytes = u64::from(array.block_bytes);
    let size_bytes = array.whole().end;
    let mut array = ServedContent { submissions: submissions.clone(), size_bytes, block_bytes };
    let (done, looked) = mpsc::channel();
    let called = name.to_owned();
    let look = move || {
        let found = contents::look(&mut [(called, &mut array)]);
        // Nobody may wait any longer.
        let _ = done.send(parts(&found, block_bytes));
    };
    let started = thread::Builder::new().name("contents".into()).spawn(look);
    let found = started.ok().and_then(|_| looked.recv_timeout(LOOKED_AT_WITHIN).ok());
    found.unwrap_or_else(|| {
        let seconds = LOOKED_AT_WITHIN.as_secs();
        tracing::warn!(
            array = name,
            "what lies on it is not served by itself: it could not be read within {seconds} s"
        );
        Vec::new()
    })
}

fn parts(found: &[Content], block_bytes: u64) -> Vec<ServedPart> {
    let readable = contents::readable(found).into_iter();
    let parts = readable.filter_map(|(name, content)| {
        let pieces = content.place.as_ref()?.pieces(MOST_PIECES)?;
        let pieces: Vec<Range<u64>> = pieces.iter().map(Piece::range).collect();
        let aligned = |piece: &Range<u64>| {
            piece.start.is_multiple_of(block_bytes) && piece.end.is_multiple_of(block_bytes)
        };
        // Requests are for blocks, so a block must not lie in two pieces.
        let fits = pieces.len() == 1 || !pieces.is_empty() && pieces.iter().all(aligned);
        fits.then(|| ServedPart::new(name, pieces))
    });
    parts.collect()
}

/// The array's content.
struct ServedContent {
    submissions: SubmissionQueue,
    size_bytes: u64,
    block_bytes: u64,
}

impl Image for ServedContent {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), String> {
        let from = offset_bytes - offset_bytes % self.block_bytes;
        let end = (offset_bytes + into.len() as u64).next_multiple_of(self.block_bytes);
        let len = u32::try_from(end - from).map_err(|error| error.to_string())?;
        let read = self.submissions.call(|done| Message::Read { offset: from, len, done });
        let bytes = read.ok_or("the array has ended")?.map_err(|error| error.to_string())?;
        let at = (offset_bytes - from) as usize;
        into.copy_from_slice(bytes.get(at..at + into.len()).ok_or("it ends before that")?);
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "of one piece")]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_where_they_were_found() {
        let mut disk = vec![0; 4 << 20];
        // An MBR with one partition of 1 MiB at 63 sectors.
        disk[450] = 0x83;
        disk[454..458].copy_from_slice(&63_u32.to_le_bytes());
        disk[458..462].copy_from_slice(&2048_u32.to_le_bytes());
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        let mut image = disk.as_slice();
        let found = contents::look(&mut [("a".to_owned(), &mut image)]);
        let parts = parts(&found, 512);
        assert_eq!(parts, [ServedPart::new("p1".into(), vec![32_256..1_080_832])]);
        let shown = shown(&parts, &ScatteredRanges::default());
        assert_eq!(shown, [("p1".to_owned(), 32_256..1_080_832)]);
    }

    #[test]
    fn what_lies_in_pieces_is_asked_for_behind_the_array() {
        let cut = ServedPart::new("v".into(), vec![8192..12_288, 0..4096]);
        let whole = ServedPart::new("p1".into(), vec![4096..8192]);
        let scattered = ScatteredRanges::default();
        let shown = shown(&[cut, whole], &scattered);
        let behind = 1 << 63..(1 << 63) + 8192;
        assert_eq!(shown, [("v".to_owned(), behind), ("p1".to_owned(), 4096..8192)]);
        assert!(
            serde_json::from_str::<ServedPart>(r#"{"name":"a","bytes":{"start":0,"end":1}}"#)
                .is_ok_and(|part| part.pieces() == [0..1]),
            "as a program before this one gave it"
        );
    }
}
