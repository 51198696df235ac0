//! Bytes that members move for requests of 4K, and the claim that these are the whole chunk.

use super::cases::{ChunkSweep, WAYS, counted_job};
use super::numbers::{Chunks, MOVED};
use super::set_up::COUNTED_REQUEST_BYTES;
use crate::compare::words::{between, median, number, plain, range, size};
use crate::model::{Axis, Cell, Chapter, Plot, Point, Series, Spread, Style, Table};

/// Share that an array may write about itself on top.
const OWN: f64 = 0.1;

/// Returns the bytes to be moved for each byte of a request that is smaller than a chunk: on RAID 0
/// itself, with parity the old bytes and the old parity are read, and the new ones written.
fn bound(level: &str, write: bool) -> Option<f64> {
    match (level, write) {
        ("0", _) | (_, false) => Some(1.0),
        ("5", true) => Some(4.0),
        ("6", true) => Some(6.0),
        _ => None,
    }
}

fn moved(numbers: &Chunks<'_>, sweep: &ChunkSweep, write: bool) -> Option<Spread> {
    numbers.numbers.spread((sweep.counted(), counted_job(write), MOVED))
}

pub(super) fn add(chapter: &mut Chapter, numbers: &Chunks<'_>) {
    for sweep in ChunkSweep::all(numbers.options) {
        chapter.cells.extend(WAYS.into_iter().filter_map(|write| {
            let cell = numbers.numbers.cell((sweep.counted(), counted_job(write), MOVED))?;
            Some(Cell { bound: bound(&sweep.level, write), ..cell })
        }));
    }
    if let Some(table) = table(numbers).unless_empty() {
        chapter.tables.push(table);
        chapter.plots.push(plot(numbers));
    }
}

fn table(numbers: &Chunks<'_>) -> Table {
    let row = |sweep: ChunkSweep| {
        let found = WAYS.map(|write| moved(numbers, &sweep, write));
        if found.iter().all(Option::is_none) {
            return None;
        }
        let claimed = sweep.chunk_bytes / COUNTED_REQUEST_BYTES;
        let [read, write] = found.map(median);
        let [at_read, at_write] = WAYS.map(|write| plain(bound(&sweep.level, write)));
        Some(vec![sweep.to_string(), claimed.to_string(), read, at_read, write, at_write])
    };
    Table::new(
        "Bytes that members move for each byte of a 4K request at a random place",
        ["case", "as claimed", "4K read", "bound", "4K write", "bound"],
        ChunkSweep::all(numbers.options).into_iter().filter_map(row),
        "Counted by the kernel at the members (loop devices). As claimed: the whole chunk, for \
         reads and writes. Bound: the bytes themselves; for a write with parity the old bytes and \
         each old parity are read, and the new ones written.",
    )
}

fn plot(numbers: &Chunks<'_>) -> Plot {
    let mut series = Vec::new();
    for level in &numbers.options.levels {
        let point = |sweep: &ChunkSweep| {
            Some(Point::of(sweep.chunk_bytes as f64, moved(numbers, sweep, true)?))
        };
        let points: Vec<Point> =
            ChunkSweep::of(numbers.options, level).iter().filter_map(point).collect();
        series.push(Series::measured(format!("RAID {level}"), points.clone()));
        series.extend(bound(level, true).map(|bound| {
            let points = points.iter().map(|point| Point::at(point.x, bound));
            Series::new(format!("RAID {level}, bound"), Style::Bound, points)
        }));
    }
    let claimed = |&bytes: &u64| Point::at(bytes as f64, (bytes / COUNTED_REQUEST_BYTES) as f64);
    let claimed = numbers.options.chunks_bytes.iter().map(claimed);
    series.push(Series::new("as claimed: the whole chunk", Style::Published, claimed));
    let axes = [Axis::log2("chunk (bytes)"), Axis::log2("bytes moved for a byte")];
    Plot::new("chunk-moved", "Bytes moved for each byte of a random 4K write", axes, series)
}

/// Judges the claim on a level: the verdict, and what was moved.
fn judged(numbers: &Chunks<'_>, level: &str) -> Option<(&'static str, String)> {
    let write = |sweep: &ChunkSweep| Some((sweep.chunk_bytes, moved(numbers, sweep, true)?.median));
    let all: Vec<(u64, f64)> =
        ChunkSweep::of(numbers.options, level).iter().filter_map(write).collect();
    let &(largest_chunk, of_largest) = all.last()?;
    let (least, most) = range(all.iter().map(|(_, moved)| *moved))?;
    let claimed = (largest_chunk / COUNTED_REQUEST_BYTES) as f64;
    let verdict = if most - least <= OWN * most + OWN {
        "the chunk plays no part, and the claim that all of it must be moved is refuted"
    } else if of_largest >= claimed / 2.0 {
        "the whole chunk is moved, as claimed"
    } else {
        "it depends on the chunk, but less than claimed"
    };
    let moved = between((least, most), number);
    let needed = match bound(level, true) {
        Some(bound) if most > bound * (1.0 + OWN) => format!(" ({} are needed)", number(bound)),
        Some(bound) if bound > 1.0 => " (old bytes and parity are read, then written)".to_owned(),
        _ => String::new(),
    };
    Some((verdict, format!("{moved} bytes on RAID {level}{needed}")))
}

/// Says what became of the claim: levels with the same verdict together.
pub(super) fn says(chapter: &mut Chapter, numbers: &Chunks<'_>) {
    let options = numbers.options;
    let mut verdicts: Vec<(&str, Vec<String>)> = Vec::new();
    for (verdict, moved) in options.levels.iter().filter_map(|level| judged(numbers, level)) {
        match verdicts.iter_mut().find(|(other, _)| *other == verdict) {
            Some((_, all)) => all.push(moved),
            None => verdicts.push((verdict, vec![moved])),
        }
    }
    let parts = verdicts.iter().map(|(verdict, moved)| format!("{}: {verdict}", moved.join(", ")));
    let parts = parts.collect::<Vec<String>>().join("; ");
    let chunks = options.chunks_bytes.first().zip(options.chunks_bytes.last());
    if let Some((first, last)) = chunks
        && !parts.is_empty()
    {
        chapter.says.push(format!(
            "For each byte of a random 4K write members move, with chunks of {} to {} (as claimed \
             up to {}), {parts}.",
            size(*first),
            size(*last),
            last / COUNTED_REQUEST_BYTES,
        ));
    }
}
