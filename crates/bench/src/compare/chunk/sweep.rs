//! Chunks against lengths of requests, and against sequential streams.

use super::cases::{ChunkSweep, SweepJob, WAYS, verb};
use super::numbers::{Chunks, RATE};
use super::{ChunkOptions, PUBLISHED_CHUNK_BYTES};
use crate::compare::words::{NOTHING, median, number, size};
use crate::model::{Axis, Cell, Chapter, Plot, Point, Series, Spread, Table};

/// Chunks that differ by less do not differ.
const ALIKE: f64 = 0.15;

/// The chunk that the others are compared with: the published one, if it is among them.
fn reference(options: &ChunkOptions) -> Option<u64> {
    let chunks = &options.chunks_bytes;
    let published = chunks.iter().find(|bytes| **bytes == PUBLISHED_CHUNK_BYTES);
    published.or(chunks.last()).copied()
}

pub(super) fn add(chapter: &mut Chapter, numbers: &Chunks<'_>) {
    let options = numbers.options;
    for sweep in ChunkSweep::all(options) {
        for job in SweepJob::all(options) {
            chapter.cells.extend(cells(numbers, &sweep, job));
        }
    }
    for level in &options.levels {
        for write in WAYS {
            chapter.tables.extend(requests_table(numbers, level, write));
            chapter.tables.extend(streams_table(numbers, level, write));
            chapter.plots.extend(ratio_plot(numbers, level, write));
            chapter.plots.extend(streams_plot(numbers, level, write));
        }
        chapter.says.extend(requests_sentence(numbers, level));
    }
    chapter.says.extend(streams_sentence(numbers));
}

fn cells(numbers: &Chunks<'_>, sweep: &ChunkSweep, job: SweepJob) -> Vec<Cell> {
    let to = reference(numbers.options).map(|chunk| name(&sweep.level, chunk));
    let server_cores = numbers.numbers.cores(sweep, job).map(|cores| cores.median);
    let cell = |section: &String| {
        let number = job.number(section);
        let ratio = to.as_ref().and_then(|to| numbers.ratio(sweep, to, &number));
        Some(Cell { server_cores, ratio, ..numbers.numbers.cell((sweep, number, RATE))? })
    };
    job.sections(numbers.options).iter().filter_map(cell).collect()
}

fn name(level: &str, chunk_bytes: u64) -> String {
    ChunkSweep { level: level.to_owned(), chunk_bytes }.to_string()
}

/// Rows of chunks; columns of what was run, under their heads.
fn table(
    numbers: &Chunks<'_>,
    level: &str,
    title: String,
    columns: Vec<(String, String)>,
    note: &str,
) -> Option<Table> {
    let rows = numbers.options.chunks_bytes.iter().map(|&chunk| (size(chunk), name(level, chunk)));
    let rate = |case: &String, job: &String| median(numbers.rate(case, job));
    let table = Table::grid(title, "chunk", columns, rows, rate, note);
    let any = table.rows.iter().flat_map(|row| row.iter().skip(1)).any(|word| word != NOTHING);
    any.then_some(table)
}

fn requests_table(numbers: &Chunks<'_>, level: &str, write: bool) -> Option<Table> {
    let of_depth = |&depth: &u32| {
        let job = SweepJob::Requests { write, depth };
        let column = move |section: String| (format!("{section} QD{depth}"), job.number(&section));
        job.sections(numbers.options).into_iter().map(column)
    };
    let columns = numbers.options.depths.iter().flat_map(of_depth).collect();
    let title = format!("RAID {level}: random {}s, MB/s", verb(write));
    let note = "Columns: length of the requests, and how many are under way at once (QD).";
    table(numbers, level, title, columns, note)
}

fn streams_table(numbers: &Chunks<'_>, level: &str, write: bool) -> Option<Table> {
    let job = SweepJob::Streams { write };
    let column = |section: String| (section.clone(), job.number(&section));
    let columns = job.sections(numbers.options).into_iter().map(column).collect();
    let title = format!("RAID {level}: sequential {}s at once, MB/s together", verb(write));
    let note = "Columns: how many streams there are, as of so many virtual machines.";
    table(numbers, level, title, columns, note)
}

/// The deepest queue says most about the members.
fn deepest(options: &ChunkOptions) -> u32 {
    options.depths.iter().copied().max().unwrap_or(1)
}

fn ratio_plot(numbers: &Chunks<'_>, level: &str, write: bool) -> Option<Plot> {
    let options = numbers.options;
    let depth = deepest(options);
    let job = SweepJob::Requests { write, depth };
    let to = reference(options)?;
    let line = |section: &String| {
        let point = |&chunk: &u64| {
            let number = job.number(section);
            let ratios = numbers.ratios(name(level, chunk), name(level, to), number)?;
            Some(Point::of(chunk as f64, ratios))
        };
        Series::measured(section, options.chunks_bytes.iter().filter_map(point))
    };
    let verb = verb(write);
    let to = size(to);
    let title = format!(
        "RAID {level}: random {verb}s of several lengths, depth {depth}, against chunk {to}"
    );
    let axes = [Axis::log2("chunk (bytes)"), Axis::linear(format!("ratio to chunk {to}"))];
    let sections = job.sections(options);
    let id = format!("chunk-raid{level}-{verb}");
    Plot::new(id, title, axes, sections.iter().map(line)).if_measured()
}

fn streams_plot(numbers: &Chunks<'_>, level: &str, write: bool) -> Option<Plot> {
    let options = numbers.options;
    let job = SweepJob::Streams { write };
    let line = |&chunk: &u64| {
        let point = |&streams: &u32| {
            let rate = numbers.rate(name(level, chunk), job.number(&streams.to_string()))?;
            Some(Point::of(f64::from(streams), rate))
        };
        let points = options.streams.iter().filter_map(point);
        Series::measured(format!("chunk {}", size(chunk)), points)
    };
    let verb = verb(write);
    let id = format!("chunk-raid{level}-streams-{verb}");
    let title = format!("RAID {level}: sequential {verb}s at once");
    let axes = [Axis::log2("streams"), Axis::linear("MB/s together")];
    Plot::new(id, title, axes, options.chunks_bytes.iter().map(line)).if_measured()
}

/// Says what the chunk does to the smallest and to the largest requests.
fn requests_sentence(numbers: &Chunks<'_>, level: &str) -> Option<String> {
    let options = numbers.options;
    let mut parts = Vec::new();
    let first = options.requests_bytes.first()?;
    let last = options.requests_bytes.last()?;
    for &request in if first == last { vec![first] } else { vec![first, last] } {
        for write in [false, true] {
            let job = SweepJob::Requests { write, depth: deepest(options) };
            let number = job.number(&size(request));
            parts.extend(chunks_compared(numbers, level, &number));
        }
    }
    let together = parts.join("; ");
    (!parts.is_empty()).then(|| format!("RAID {level}: {together}."))
}

/// One job over all chunks, in words.
fn chunks_compared(numbers: &Chunks<'_>, level: &str, job: &str) -> Option<String> {
    let rate = |&chunk: &u64| Some((chunk, numbers.rate(name(level, chunk), job)?));
    let rates: Vec<(u64, Spread)> = numbers.options.chunks_bytes.iter().filter_map(rate).collect();
    let (best, most) = rates.iter().max_by(|a, b| a.1.median.total_cmp(&b.1.median))?;
    let (worst, least) = rates.iter().min_by(|a, b| a.1.median.total_cmp(&b.1.median))?;
    let job = job.split(", ").next().unwrap_or(job);
    // Rounds that overlap say of no chunk that it is the better one.
    if least.median >= most.median * (1.0 - ALIKE) || least.max >= most.min {
        let rate = number(most.median);
        return Some(format!("{job}s are as fast with every chunk ({rate} MB/s at best)"));
    }
    Some(format!(
        "{job}s are fastest with chunk {} ({} MB/s) and slowest with {} ({} of that)",
        size(*best),
        number(most.median),
        size(*worst),
        number(least.median / most.median)
    ))
}

/// Says what many virtual machines keep of what one had.
fn streams_sentence(numbers: &Chunks<'_>) -> Option<String> {
    let options = numbers.options;
    let one = options.streams.iter().min()?;
    let most = options.streams.iter().max()?;
    let chunk = reference(options)?;
    let mut parts = Vec::new();
    for level in &options.levels {
        let share = |write| {
            let job = SweepJob::Streams { write };
            let rate = |streams: &u32| {
                let number = job.number(&streams.to_string());
                Some(numbers.rate(name(level, chunk), number)?.median)
            };
            Some(rate(most)? / rate(one)?)
        };
        let Some((read, write)) = share(false).zip(share(true)) else { continue };
        let said = format!(
            "{} times (reads) and {} times (writes) on RAID {level}",
            number(read),
            number(write)
        );
        parts.push((read.min(write), said));
    }
    let least = parts.iter().map(|(least, _)| *least).fold(f64::INFINITY, f64::min);
    let verdict = match least {
        _ if parts.is_empty() || one == most => return None,
        least if least >= 1.0 - ALIKE => "Many sequential streams at once cost nothing here",
        _ => "Many sequential streams at once cost something, as published of hard disks",
    };
    let said: Vec<String> = parts.into_iter().map(|(_, said)| said).collect();
    Some(format!(
        "{verdict}: with chunk {} {most} of them together move {} what one alone moves.",
        size(chunk),
        said.join(", and ")
    ))
}
