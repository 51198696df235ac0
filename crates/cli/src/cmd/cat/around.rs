//! Copying around unreadable ranges: they are replaced by zeroes and listed.

use std::io;
use std::ops::Range;

use braid_array::SECTOR_BYTES;
use braid_host::reader::{CopyError, ReadError, Reader};

use crate::output;

/// Bytes after a failed read that are read in small pieces.
const PIECE_BYTES: u64 = 1 << 20;
const PAGE_BYTES: u64 = 4096;
/// Number of ranges that are listed.
const LISTED: usize = 1000;

/// Hands `length` bytes from `offset` on to `sink`. Returns the unreadable ranges of the array, in
/// order.
///
/// # Errors
/// Returns the first error of `sink`.
pub(super) fn copy(
    reader: &mut Reader,
    offset: u64,
    length: u64,
    sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<Vec<Range<u64>>> {
    let mut lost: Vec<Range<u64>> = Vec::new();
    let end = offset + length;
    let mut at = offset;
    while at < end {
        let copied = reader.read_with(at, end - at, |bytes| {
            sink(bytes)?;
            at += bytes.len() as u64;
            Ok(())
        });
        match copied {
            Ok(()) => {}
            Err(CopyError::Sink(error)) => return Err(error),
            Err(CopyError::Read(_)) => {
                let stop = end.min(at + PIECE_BYTES);
                in_pieces(reader, at..stop, PAGE_BYTES, sink, &mut lost)?;
                at = stop;
            }
        }
    }
    Ok(lost)
}

/// Copies a range in pieces that end at multiples of `unit`. Unreadable pages are copied in
/// sectors.
fn in_pieces(
    reader: &mut Reader,
    range: Range<u64>,
    unit: u64,
    sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    lost: &mut Vec<Range<u64>>,
) -> io::Result<()> {
    let mut at = range.start;
    while at < range.end {
        let stop = (at / unit * unit + unit).min(range.end);
        let mut bytes = vec![0; (stop - at) as usize];
        match reader.read_at(at, &mut bytes) {
            Ok(()) => sink(&bytes)?,
            Err(ReadError { .. }) if unit > SECTOR_BYTES => {
                in_pieces(reader, at..stop, SECTOR_BYTES, sink, lost)?;
            }
            Err(ReadError { .. }) => {
                bytes.fill(0);
                sink(&bytes)?;
                match lost.last_mut() {
                    Some(before) if before.end == at => before.end = stop,
                    _ => lost.push(at..stop),
                }
            }
        }
        at = stop;
    }
    Ok(())
}

/// Lists the unreadable ranges, with their places on members.
pub(super) fn tell(object: &str, reader: &Reader, lost: &[Range<u64>]) {
    for range in lost.iter().take(LISTED) {
        let bytes = range.end - range.start;
        let place =
            reader.place(range.start).map(|(member, byte)| format!(" ({member}, byte {byte})"));
        let place = place.unwrap_or_default();
        let line =
            format!("{bytes} bytes at byte {} of the array cannot be read{place}", range.start);
        output::warning(&format!("cat {object}: {line}; zeroes are in their place"));
    }
    if lost.len() > LISTED {
        let line = format!("{} ranges more cannot be read", lost.len() - LISTED);
        output::warning(&format!("cat {object}: {line}; zeroes are in their place"));
    }
}
