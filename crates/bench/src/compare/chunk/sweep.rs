//! Chunks against lengths of requests, and against sequential streams.

use super::cases::{Sweep, SweepJob, verb};
use super::words::{cell, median, number, size};
use super::{Options, PUBLISHED_CHUNK_BYTES};
use crate::model::{Axis, Cell, Chapter, Found, Plot, Point, Scale, Series, Spread, Style, Table};
use crate::tool::fio;

/// Chunks that differ by less do not differ.
const ALIKE: f64 = 0.15;

/// The chunk that the others are compared with: the published one, if it is among them.
fn reference(options: &Options) -> Option<u64> {
    let chunks = &options.chunks_bytes;
    let published = chunks.iter().find(|bytes| **bytes == PUBLISHED_CHUNK_BYTES);
    published.or(chunks.last()).copied()
}

/// What a section of a job gave, in MB/s.
fn rate(text: &str, section: &str, write: bool) -> Option<f64> {
    let jobs = fio::parse(text);
    let job = jobs.iter().find(|job| job.name == section)?;
    let side = if write { &job.write } else { &job.read };
    (side.bytes_s > 0.0).then_some(side.bytes_s / 1e6)
}

pub(super) fn add(chapter: &mut Chapter, options: &Options, found: &Found) {
    let first = chapter.cells.len();
    for sweep in Sweep::all(options) {
        for job in SweepJob::all(options) {
            add_cells(chapter, options, found, &sweep, job);
        }
    }
    add_ratios(&mut chapter.cells[first..], options);
    for level in &options.levels {
        for write in [false, true] {
            chapter.tables.extend(requests_table(chapter, options, level, write));
            chapter.tables.extend(streams_table(chapter, options, level, write));
        }
    }
    for level in &options.levels {
        for write in [false, true] {
            chapter.plots.extend(ratio_plot(chapter, options, level, write));
            chapter.plots.extend(streams_plot(chapter, options, level, write));
        }
    }
    for level in &options.levels {
        chapter.says.extend(requests_sentence(chapter, options, level));
    }
    chapter.says.extend(streams_sentence(chapter, options));
}

fn add_cells(
    chapter: &mut Chapter,
    options: &Options,
    found: &Found,
    sweep: &Sweep,
    job: SweepJob,
) {
    let case = sweep.name();
    let name = job.name();
    let cores = found.server_cores(&case, &name).map(|cores| cores.median);
    for section in job.sections(options) {
        let read = |text: &str| rate(text, &section, job.write());
        let Some(measured) = found.measured(&case, &name, fio::OUTPUT, read) else { continue };
        let cell = Cell::new(&case, &job.number(&section), "bandwidth", "MB/s", measured);
        chapter.cells.push(Cell { server_cores: cores, ..cell });
    }
}

/// To the chunk that the others are compared with.
fn add_ratios(cells: &mut [Cell], options: &Options) {
    let Some(reference) = reference(options) else { return };
    for level in &options.levels {
        let name = |chunk_bytes| Sweep { level: level.clone(), chunk_bytes }.name();
        let references: Vec<(String, f64)> = cells
            .iter()
            .filter(|cell| cell.case == name(reference))
            .map(|cell| (cell.job.clone(), cell.spread.median))
            .collect();
        for &chunk in options.chunks_bytes.iter() {
            for cell in cells.iter_mut().filter(|cell| cell.case == name(chunk)) {
                let of = references.iter().find(|(job, _)| *job == cell.job);
                cell.ratio = of.map(|(_, median)| cell.spread.median / median);
            }
        }
    }
}

fn name(level: &str, chunk_bytes: u64) -> String {
    Sweep { level: level.to_owned(), chunk_bytes }.name()
}

/// Rows of chunks; columns of what was run.
fn table(
    chapter: &Chapter,
    options: &Options,
    level: &str,
    jobs: &[String],
) -> Option<Vec<Vec<String>>> {
    let row = |&chunk: &u64| {
        let cells = jobs.iter().map(|job| median(cell(chapter, &name(level, chunk), job)));
        std::iter::once(size(chunk)).chain(cells).collect::<Vec<String>>()
    };
    let rows: Vec<Vec<String>> = options.chunks_bytes.iter().map(row).collect();
    let any = rows.iter().flat_map(|row| row.iter().skip(1)).any(|word| word != "-");
    any.then_some(rows)
}

fn requests_table(chapter: &Chapter, options: &Options, level: &str, write: bool) -> Option<Table> {
    let mut head = vec!["chunk".to_owned()];
    let mut jobs = Vec::new();
    for &depth in &options.depths {
        let job = SweepJob::Requests { write, depth };
        for section in job.sections(options) {
            jobs.push(job.number(&section));
            head.push(format!("{section} QD{depth}"));
        }
    }
    Some(Table {
        title: format!("RAID {level}: random {}s, MB/s", verb(write)),
        head,
        rows: table(chapter, options, level, &jobs)?,
        note: "Columns: length of the requests, and how many are under way at once (QD).".into(),
    })
}

fn streams_table(chapter: &Chapter, options: &Options, level: &str, write: bool) -> Option<Table> {
    let job = SweepJob::Streams { write };
    let sections = job.sections(options);
    let jobs: Vec<String> = sections.iter().map(|section| job.number(section)).collect();
    let head = std::iter::once("chunk".to_owned()).chain(sections);
    Some(Table {
        title: format!("RAID {level}: sequential {}s at once, MB/s together", verb(write)),
        head: head.collect(),
        rows: table(chapter, options, level, &jobs)?,
        note: "Columns: how many streams there are, as of so many virtual machines.".into(),
    })
}

/// The deepest queue says most about the members.
fn deepest(options: &Options) -> u32 {
    options.depths.iter().copied().max().unwrap_or(1)
}

fn ratio_plot(chapter: &Chapter, options: &Options, level: &str, write: bool) -> Option<Plot> {
    let job = SweepJob::Requests { write, depth: deepest(options) };
    let line = |section: &String| {
        let points = options.chunks_bytes.iter().filter_map(|&chunk| {
            let cell = cell(chapter, &name(level, chunk), &job.number(section))?;
            let factor = cell.ratio? / cell.spread.median;
            Some(Point::of(chunk as f64, cell.spread.times(factor)))
        });
        Series { name: section.clone(), style: Style::Measured, points: points.collect() }
    };
    let series: Vec<Series> = job.sections(options).iter().map(line).collect();
    let reference = size(reference(options)?);
    series.iter().any(|line| !line.points.is_empty()).then(|| Plot {
        id: format!("chunk-raid{level}-{}", verb(write)),
        title: format!(
            "RAID {level}: random {}s of several lengths, depth {}, against chunk {reference}",
            verb(write),
            deepest(options)
        ),
        x: Axis { label: "chunk (bytes)".to_owned(), scale: Scale::Log2 },
        y: Axis { label: format!("ratio to chunk {reference}"), scale: Scale::Linear },
        series,
        rules: Vec::new(),
    })
}

fn streams_plot(chapter: &Chapter, options: &Options, level: &str, write: bool) -> Option<Plot> {
    let job = SweepJob::Streams { write };
    let line = |&chunk: &u64| {
        let points = options.streams.iter().filter_map(|&streams| {
            let number = job.number(&streams.to_string());
            let cell = cell(chapter, &name(level, chunk), &number)?;
            Some(Point::of(f64::from(streams), cell.spread))
        });
        let name = format!("chunk {}", size(chunk));
        Series { name, style: Style::Measured, points: points.collect() }
    };
    let series: Vec<Series> = options.chunks_bytes.iter().map(line).collect();
    series.iter().any(|line| !line.points.is_empty()).then(|| Plot {
        id: format!("chunk-raid{level}-streams-{}", verb(write)),
        title: format!("RAID {level}: sequential {}s at once", verb(write)),
        x: Axis { label: "streams".to_owned(), scale: Scale::Log2 },
        y: Axis { label: "MB/s together".to_owned(), scale: Scale::Linear },
        series,
        rules: Vec::new(),
    })
}

/// What the chunk does to the smallest and to the largest requests.
fn requests_sentence(chapter: &Chapter, options: &Options, level: &str) -> Option<String> {
    let mut parts = Vec::new();
    let first = options.requests_bytes.first()?;
    let last = options.requests_bytes.last()?;
    for &request in if first == last { vec![first] } else { vec![first, last] } {
        for write in [false, true] {
            let job = SweepJob::Requests { write, depth: deepest(options) };
            let number = job.number(&size(request));
            parts.extend(chunks_compared(chapter, options, level, &number));
        }
    }
    let together = parts.join("; ");
    (!parts.is_empty()).then(|| format!("RAID {level}: {together}."))
}

/// One job over all chunks, in words.
fn chunks_compared(chapter: &Chapter, options: &Options, level: &str, job: &str) -> Option<String> {
    let rate = |&chunk: &u64| Some((chunk, cell(chapter, &name(level, chunk), job)?.spread));
    let rates: Vec<(u64, Spread)> = options.chunks_bytes.iter().filter_map(rate).collect();
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

/// What many virtual machines keep of what one had.
fn streams_sentence(chapter: &Chapter, options: &Options) -> Option<String> {
    let one = options.streams.iter().min()?;
    let most = options.streams.iter().max()?;
    let chunk = reference(options)?;
    let mut parts = Vec::new();
    for level in &options.levels {
        let share = |write| {
            let job = SweepJob::Streams { write };
            let rate = |streams: &u32| {
                let number = job.number(&streams.to_string());
                Some(cell(chapter, &name(level, chunk), &number)?.spread.median)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Measured;

    /// A chapter whose rates follow a rule of chunk and job.
    fn made(options: &Options, rate: impl Fn(u64, &str) -> f64) -> Chapter {
        let mut chapter = Chapter::default();
        for sweep in Sweep::all(options) {
            for job in SweepJob::all(options) {
                for section in job.sections(options) {
                    let job = job.number(&section);
                    let spread = Spread::of(&[rate(sweep.chunk_bytes, &job)]).expect("a number");
                    let measured = Measured { spread, runs: 1, raw: Vec::new() };
                    chapter.cells.push(Cell::new(
                        &sweep.name(),
                        &job,
                        "bandwidth",
                        "MB/s",
                        measured,
                    ));
                }
            }
        }
        add_ratios(&mut chapter.cells, options);
        chapter
    }

    #[test]
    fn what_is_said_follows_from_the_numbers() {
        let options = Options { levels: vec!["0".into()], ..Options::quick() };
        let alike = made(&options, |_, job| if job.starts_with("32") { 400.0 } else { 100.0 });
        let said = requests_sentence(&alike, &options, "0").expect("a sentence");
        assert!(
            said.contains("4K random reads are as fast with every chunk (100 MB/s at best)"),
            "{said}"
        );
        let said = streams_sentence(&alike, &options).expect("a sentence");
        assert!(said.starts_with("Many sequential streams at once cost nothing"), "{said}");
        assert!(said.contains("4.00 times (reads) and 4.00 times (writes) on RAID 0"), "{said}");
        let slow = made(&options, |chunk, job| {
            let many = if job.starts_with("32") { 0.5 } else { 1.0 };
            many * if chunk == 4096 && job.contains("1M") { 25.0 } else { 100.0 }
        });
        let said = requests_sentence(&slow, &options, "0").expect("a sentence");
        assert!(said.contains("slowest with 4K (0.25 of that)"), "{said}");
        let said = streams_sentence(&slow, &options).expect("a sentence");
        assert!(said.starts_with("Many sequential streams at once cost something"), "{said}");
        assert_eq!(requests_sentence(&Chapter::default(), &options, "0"), None);
    }

    #[test]
    fn ratios_are_to_the_published_chunk_and_tables_have_all() {
        let options = Options { levels: vec!["5".into()], ..Options::full() };
        let chapter = made(&options, |chunk, _| chunk as f64);
        let found = cell(&chapter, "RAID 5, chunk 64K", "4K random read, depth 1");
        assert_eq!(found.and_then(|cell| cell.ratio), Some(0.25));
        let table = requests_table(&chapter, &options, "5", true).expect("a table");
        assert_eq!((table.rows.len(), table.head.len()), (6, 9));
        assert!(table.rows.iter().all(|row| row.len() == 9 && !row.contains(&"-".to_owned())));
        assert_eq!(streams_table(&chapter, &options, "5", true).expect("a table").head[6], "32");
        let plot = ratio_plot(&chapter, &options, "5", false).expect("a plot");
        assert_eq!((plot.series.len(), plot.series[0].points[5].y), (4, 4.0));
        let none = Chapter::default();
        assert_eq!(requests_table(&none, &options, "5", true), None);
        assert_eq!(streams_plot(&none, &options, "5", true), None);
    }
}
