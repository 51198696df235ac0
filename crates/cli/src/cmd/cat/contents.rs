//! Partitions and volumes on an array: listing them, and reading one.

use std::io::{self, Write};
use std::ops::Range;

use braid_rescue::Image;
use braid_rescue::contents::{self, Content, Place};

use super::source::Source;
use super::{around, range, stdout_failure};
use crate::args::CatArgs;
use crate::cmd::contents::place_of;
use crate::failure::Failure;
use crate::output;
use crate::output::contents::{ContentsJson, tree};

/// Bytes read at once.
const PART_BYTES: u64 = 1 << 20;

/// Returns whether the arguments ask for partitions or volumes rather than plain bytes.
pub(super) const fn are_asked_for(args: &CatArgs) -> bool {
    args.list || args.part.is_some()
}

/// Lists the contents of these arrays, or writes the requested one.
pub(super) fn run(mut arrays: Vec<(String, Source<'_>)>, args: &CatArgs) -> Result<(), Failure> {
    let named = arrays.iter_mut().map(|(name, source)| (name.clone(), source as &mut dyn Image));
    let found = contents::look(&mut named.collect::<Vec<_>>());
    match &args.part {
        Some(name) => part(&mut arrays, &found, name, args),
        None if args.json => output::print_json(&ContentsJson::new(&found)),
        None => output::answer(&tree(&found)),
    }
}

fn part(
    arrays: &mut [(String, Source<'_>)],
    found: &[Content],
    name: &str,
    args: &CatArgs,
) -> Result<(), Failure> {
    let place = place_of("cat", found, name)?;
    let (offset, length) = range(name, place.size_bytes(), args)?;
    let mut stdout = io::stdout().lock();
    let mut lost = Vec::new();
    for (array, bytes) in pieces(place, offset..offset + length) {
        let [.., (_, source)] = &mut arrays[..=array] else { break };
        let mut sink = |bytes: &[u8]| stdout.write_all(bytes);
        if let Source::Members(reader) = source
            && !args.maps.all().is_empty()
        {
            let copied = around::copy(reader, bytes.start, bytes.end - bytes.start, &mut sink);
            lost.push((array, copied.map_err(|error| stdout_failure(name, &error))?));
        } else {
            copy(source, name, bytes, &mut sink)?;
        }
    }
    stdout.flush().map_err(|error| stdout_failure(name, &error))?;
    lost.retain(|(_, ranges)| !ranges.is_empty());
    for (array, ranges) in &lost {
        if let (_, Source::Members(reader)) = &arrays[*array] {
            around::tell(name, reader, ranges);
        }
    }
    if lost.is_empty() { Ok(()) } else { Err(Failure::Silent(Failure::REFUSED)) }
}

/// Where a range of a place lies: arrays and bytes there, in order.
fn pieces(place: &Place, wanted: Range<u64>) -> impl Iterator<Item = (usize, Range<u64>)> {
    let mut at = wanted.start;
    std::iter::from_fn(move || {
        let left = wanted.end.checked_sub(at).filter(|left| *left > 0)?;
        let piece = place.piece(at)?;
        let bytes = piece.bytes.min(left);
        at += bytes;
        Some((piece.array, piece.offset_bytes..piece.offset_bytes + bytes))
    })
}

fn copy(
    source: &mut Source<'_>,
    name: &str,
    bytes: Range<u64>,
    sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), Failure> {
    let mut buffer = vec![0; PART_BYTES.min(bytes.end - bytes.start) as usize];
    let mut at = bytes.start;
    while at < bytes.end {
        let part = &mut buffer[..PART_BYTES.min(bytes.end - at) as usize];
        source.read(at, part).map_err(|reason| {
            let next = "find more members of the array, or a copy of what lies there";
            Failure::refused("cat", name, reason, next)
        })?;
        sink(part).map_err(|error| stdout_failure(name, &error))?;
        at += part.len() as u64;
    }
    Ok(())
}
