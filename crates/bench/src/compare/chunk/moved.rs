//! What members move for requests of 4K: the claim that it is the whole chunk.

use super::Options;
use super::cases::{Counted, counted_job};
use super::stand::{COUNTED_REQUEST_BYTES, COUNTERS};
use super::words::{cell, median, number, size};
use crate::model::{
    Axis, Cell, Chapter, Found, Measured, Plot, Point, Run, Scale, Series, Spread, Style, Table,
};
use crate::tool::qemu_img;

/// What the kernel counts a block device's traffic in.
const SECTOR_BYTES: f64 = 512.0;
/// What an array writes down about itself may come on top.
const OWN: f64 = 0.1;

/// What must be moved for each byte of a request that is smaller than a chunk: on RAID 0 itself,
/// with parity the old bytes and the old parity are read, and the new ones written.
fn bound(level: &str, write: bool) -> Option<f64> {
    match (level, write) {
        ("0", _) | (_, false) => Some(1.0),
        ("5", true) => Some(4.0),
        ("6", true) => Some(6.0),
        _ => None,
    }
}

/// Bytes that all members together have read and written between `before` and `after`.
fn moved_bytes(text: &str) -> Option<f64> {
    let sectors = |when: &str| {
        let lines = text.lines().filter(|line| line.split(' ').next() == Some(when));
        let of_member = |line: &str| {
            let mut words = line.split_whitespace().skip(2);
            let read: f64 = words.nth(2)?.parse().ok()?;
            let written: f64 = words.nth(3)?.parse().ok()?;
            Some(read + written)
        };
        let members: Vec<f64> = lines.map(of_member).collect::<Option<_>>()?;
        (!members.is_empty()).then(|| members.iter().sum::<f64>())
    };
    Some((sectors("after")? - sectors("before")?) * SECTOR_BYTES)
}

/// Bytes moved for each byte asked for.
fn ratio(found: &Found, run: &Run) -> Option<f64> {
    let moved = moved_bytes(&found.text(run, COUNTERS)?)?;
    let bench = qemu_img::parse(&found.text(run, qemu_img::OUTPUT)?)?;
    let asked = bench.requests * bench.bytes;
    (asked > 0.0).then(|| moved / asked)
}

fn measured(found: &Found, case: &str, job: &str) -> Option<Measured> {
    let mut ratios = Vec::new();
    let mut raw = Vec::new();
    for run in found.runs(case, job) {
        let Some(ratio) = ratio(found, run) else { continue };
        ratios.push(ratio);
        raw.extend([COUNTERS, qemu_img::OUTPUT].iter().filter_map(|name| run.file(name)));
    }
    let raw = raw.into_iter().map(str::to_owned).collect();
    Some(Measured { spread: Spread::of(&ratios)?, runs: ratios.len(), raw })
}

pub(super) fn add(chapter: &mut Chapter, options: &Options, found: &Found) {
    for counted in Counted::all(options) {
        for write in [false, true] {
            let case = counted.name();
            let job = counted_job(write);
            let Some(measured) = measured(found, &case, job) else { continue };
            let cell = Cell::new(&case, job, "moved", "B/B", measured);
            chapter.cells.push(Cell { bound: bound(&counted.0.level, write), ..cell });
        }
    }
    let Some(table) = table(chapter, options) else { return };
    chapter.tables.push(table);
    chapter.plots.push(plot(chapter, options));
    chapter.says.extend(sentence(chapter, options));
}

fn of_level<'a>(options: &Options, level: &'a str) -> impl Iterator<Item = Counted> + use<'a> {
    Counted::all(options).into_iter().filter(move |counted| counted.0.level == level)
}

fn table(chapter: &Chapter, options: &Options) -> Option<Table> {
    let mut rows = Vec::new();
    for counted in Counted::all(options) {
        let of = |write| cell(chapter, &counted.name(), counted_job(write));
        if of(false).is_none() && of(true).is_none() {
            continue;
        }
        let claimed = counted.0.chunk_bytes / COUNTED_REQUEST_BYTES;
        let bound = |write| bound(&counted.0.level, write).map_or("-".to_owned(), number);
        let [read, write] = [false, true].map(|write| median(of(write)));
        let row = [counted.0.name(), claimed.to_string(), read, bound(false), write, bound(true)];
        rows.push(row.into());
    }
    let head = ["case", "as claimed", "4K read", "bound", "4K write", "bound"];
    (!rows.is_empty()).then(|| Table {
        title: "Bytes that members move for each byte of a 4K request at a random place".into(),
        head: head.map(str::to_owned).into(),
        rows,
        note: "Counted by the kernel at the members (loop devices). As claimed: the whole chunk, \
               for reads and writes. Bound: the bytes themselves; for a write with parity the old \
               bytes and each old parity are read, and the new ones written."
            .into(),
    })
}

fn plot(chapter: &Chapter, options: &Options) -> Plot {
    let mut series = Vec::new();
    for level in &options.levels {
        let points = of_level(options, level).filter_map(|counted| {
            let cell = cell(chapter, &counted.name(), counted_job(true))?;
            Some(Point::of(counted.0.chunk_bytes as f64, cell.spread))
        });
        let points: Vec<Point> = points.collect();
        let line = |name: String, style, y: f64| {
            let points = points.iter().map(|point| Point::at(point.x, y)).collect();
            Series { name, style, points }
        };
        let bound = bound(level, true);
        let bound = bound.map(|y| line(format!("RAID {level}, bound"), Style::Bound, y));
        series.push(Series { name: format!("RAID {level}"), style: Style::Measured, points });
        series.extend(bound);
    }
    let claimed = |&bytes: &u64| Point::at(bytes as f64, (bytes / COUNTED_REQUEST_BYTES) as f64);
    series.push(Series {
        name: "as claimed: the whole chunk".to_owned(),
        style: Style::Published,
        points: options.chunks_bytes.iter().map(claimed).collect(),
    });
    Plot {
        id: "chunk-moved".to_owned(),
        title: "Bytes moved for each byte of a random 4K write".to_owned(),
        x: Axis { label: "chunk (bytes)".to_owned(), scale: Scale::Log2 },
        y: Axis { label: "bytes moved for a byte".to_owned(), scale: Scale::Log2 },
        series,
        rules: Vec::new(),
    }
}

/// What became of the claim on a level: the verdict, and what was moved.
fn judged(chapter: &Chapter, options: &Options, level: &str) -> Option<(&'static str, String)> {
    let write = |counted: Counted| {
        let cell = cell(chapter, &counted.name(), counted_job(true))?;
        Some((counted.0.chunk_bytes, cell.spread.median))
    };
    let all: Vec<(u64, f64)> = of_level(options, level).filter_map(write).collect();
    let &(largest_chunk, of_largest) = all.last()?;
    let least = all.iter().map(|(_, moved)| *moved).fold(f64::INFINITY, f64::min);
    let most = all.iter().map(|(_, moved)| *moved).fold(0.0, f64::max);
    let claimed = (largest_chunk / COUNTED_REQUEST_BYTES) as f64;
    let verdict = if most - least <= OWN * most + OWN {
        "the chunk plays no part, and the claim that all of it must be moved is refuted"
    } else if of_largest >= claimed / 2.0 {
        "the whole chunk is moved, as claimed"
    } else {
        "it depends on the chunk, but less than claimed"
    };
    let moved = match (number(least), number(most)) {
        (least, most) if least == most => least,
        (least, most) => format!("{least} to {most}"),
    };
    let needed = match bound(level, true) {
        Some(bound) if most > bound * (1.0 + OWN) => format!(" ({} are needed)", number(bound)),
        Some(bound) if bound > 1.0 => " (old bytes and parity are read, then written)".to_owned(),
        _ => String::new(),
    };
    Some((verdict, format!("{moved} bytes on RAID {level}{needed}")))
}

/// What became of the claim: levels with the same verdict together.
fn sentence(chapter: &Chapter, options: &Options) -> Option<String> {
    let of_level = |level: &String| judged(chapter, options, level);
    let mut verdicts: Vec<(&str, Vec<String>)> = Vec::new();
    for (verdict, moved) in options.levels.iter().filter_map(of_level) {
        match verdicts.iter_mut().find(|(other, _)| *other == verdict) {
            Some((_, all)) => all.push(moved),
            None => verdicts.push((verdict, vec![moved])),
        }
    }
    let first = options.chunks_bytes.first()?;
    let last = options.chunks_bytes.last()?;
    let parts = verdicts.iter().map(|(verdict, moved)| format!("{}: {verdict}", moved.join(", ")));
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| {
        format!(
            "For each byte of a random 4K write members move, with chunks of {} to {} (as claimed \
             up to {}), {}.",
            size(*first),
            size(*last),
            last / COUNTED_REQUEST_BYTES,
            parts.join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel said of two members around 512 writes of 4K on RAID 0.
    const COUNTERS: &str = "\
before loop4 214 0 12000 11 290 0 45056 15 0 24 27 0 0 0 0 0 0
before loop5 214 0 12000 11 290 0 45056 15 0 24 27 0 0 0 0 0 0
after loop4 214 0 12000 11 546 0 47104 15 0 24 27 0 0 0 0 0 0
after loop5 214 0 12008 11 546 0 47104 15 0 24 27 0 0 0 0 0 0
";

    #[test]
    fn what_the_kernel_counts_is_bytes() {
        assert_eq!(moved_bytes(COUNTERS), Some((2048.0 + 2048.0 + 8.0) * 512.0));
        for text in ["", "before", "after loop4 1 2 3", &COUNTERS[..200]] {
            assert_eq!(moved_bytes(text), None, "{text}");
        }
    }

    #[test]
    fn a_claim_is_judged_by_what_was_counted() {
        let options = Options { levels: vec!["5".into()], ..Options::quick() };
        let judge = |moved: &dyn Fn(u64) -> f64| {
            let mut chapter = Chapter::default();
            for counted in Counted::all(&options) {
                let spread = Spread::of(&[moved(counted.0.chunk_bytes)]).expect("a number");
                let measured = Measured { spread, runs: 1, raw: Vec::new() };
                let cell = Cell::new(&counted.name(), counted_job(true), "moved", "B/B", measured);
                chapter.cells.push(cell);
            }
            sentence(&chapter, &options).expect("a sentence")
        };
        let refuted = judge(&|_| 4.0);
        assert!(refuted.contains("4.00 bytes on RAID 5 (old bytes"), "{refuted}");
        assert!(refuted.contains("up to 256") && refuted.ends_with("is refuted."), "{refuted}");
        let borne_out = judge(&|chunk| (chunk / 4096) as f64);
        assert!(borne_out.contains("(4.00 are needed)") && borne_out.ends_with("as claimed."));
        assert!(judge(&|chunk| 4.0 + (chunk >> 18) as f64).contains("less than claimed"));
    }
}
