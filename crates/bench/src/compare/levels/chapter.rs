//! Tables, plots and cells.

use super::case::{Built, Cache, LevelCase};
use super::level::Level;
use super::numbers::{Against, CPU, IOPS, Levels, METRICS, P99, RATE};
use super::{LevelOptions, published, sentences};
use crate::compare::Rival;
use crate::compare::words::{NOTHING, median, number, plain};
use crate::model::{
    Axis, Cell, Chapter, Found, Plot, Point, Published, Rule, Series, Style, Table,
};
use crate::rig::file_name;

const MB_S: &str = "MB/s are units of 1000 KiB a second, as published.";

pub(super) fn chapter(options: &LevelOptions, found: &Found) -> Chapter {
    let numbers = Levels::of(options, found);
    let cases = options.all_cases();
    let measured: Vec<LevelCase> =
        cases.iter().copied().filter(|case| numbers.numbers.has(case)).collect();
    let mut tables: Vec<Table> =
        Cache::ALL.iter().filter_map(|one| ratios(&numbers, *one)).collect();
    tables.extend(measured.iter().map(|case| table(&numbers, *case)));
    tables.extend(Cache::ALL.iter().flat_map(|cache| against(&numbers, *cache)));
    let mut cells: Vec<Cell> = measured.iter().flat_map(|case| cells(&numbers, *case)).collect();
    cells.extend(Cache::ALL.iter().flat_map(|cache| rival_cells(&numbers, *cache)));
    Chapter {
        title: "RAID levels under one job file".to_owned(),
        about: about(options),
        says: sentences::sentences(&numbers),
        tables,
        plots: options.levels.iter().filter_map(|level| plot(&numbers, *level)).collect(),
        cells,
        published: cases.iter().flat_map(|case| published_cells(&numbers, *case)).collect(),
        ..Chapter::default()
    }
}

fn about(options: &LevelOptions) -> Vec<String> {
    let count = |level: &Level| format!("{} of {}", level.facts().name, options.members(*level));
    let counts: Vec<String> = options.levels.iter().map(count).collect();
    let mut about = vec![format!(
        "A job file of fio's on ext4 over one disk without RAID, and over {} members. \
         \"Bare host\" is the file system below, without a disk made of a file.",
        counts.join(", ")
    )];
    match &options.job {
        Some(job) => about.push(format!("The job file is {}, not a published one.", job.name)),
        None => about.push(format!(
            "First published in {}, on an i9-12900 with one Crucial P5 Plus NVMe disk: guests of \
             2 CPUs and 8 GiB, whose virtual disks were files of the host's. Their direct I/O \
             ended in the page cache of the host: 20 GB/s are read there from a disk of 6 GB/s. \
             So the published figures are those of a cache.",
            published::SOURCE
        )),
    }
    about.push(
        "Warm here is as it was there: direct I/O on the array, whose members are disks in the \
         page cache of the host (loop devices without direct I/O over files), for the levels that \
         were published. Cold: the members are read and written past the page cache, and it is \
         emptied before each run. What lies in memory itself, as files in /dev/shm do, is never \
         cold."
            .to_owned(),
    );
    let size = options.size_bytes;
    let loops = options.loops;
    let runtime = options.runtime_ms;
    let as_published = (published::SIZE_BYTES, published::LOOPS, published::RUNTIME_MS);
    if options.job.is_none() && (size, loops, runtime) != as_published {
        about.push(format!(
            "Scaled: the file has {} MiB instead of 1024, and a job ends after {} s or when it \
             has gone {loops} times through it, instead of 30 s or 5 times.",
            size >> 20,
            runtime as f64 / 1000.0
        ));
    }
    about.push(
        "The bound is what a level can reach at best where all members share one medium, by what \
         that medium does without RAID: long writes cost what is stored; a small write on parity \
         reads what it needs and then writes the data and each parity. Members on media of their \
         own may exceed it."
            .to_owned(),
    );
    about
}

/// Rate by that without RAID, in words.
fn kept(numbers: &Levels<'_>, case: LevelCase, job: &str) -> String {
    median(numbers.to_plain(case, job).map(|ratio| ratio.spread))
}

/// All levels side by side.
fn ratios(numbers: &Levels<'_>, cache: Cache) -> Option<Table> {
    let case = |level: &Level| LevelCase { built: Built::Braid(*level), cache };
    let levels = numbers.options.levels.iter().map(case);
    let cases: Vec<LevelCase> = levels.filter(|case| numbers.numbers.has(case)).collect();
    let pair = |case: &LevelCase| {
        [(case.built.to_string(), (*case, false)), ("published".to_owned(), (*case, true))]
    };
    let table = Table::grid(
        format!("Rate by that without RAID, {cache} cache"),
        "JOB",
        cases.iter().flat_map(pair),
        numbers.jobs().into_iter().map(|job| (job, job)),
        |job, &(case, is_published)| {
            if is_published {
                plain(numbers.published_ratio(case, job))
            } else {
                kept(numbers, case, job)
            }
        },
        "Published is by the published rate without RAID, with a warm cache.",
    );
    (!cases.is_empty()).then(|| without_empty_columns(table))
}

/// One case as it was published.
fn table(numbers: &Levels<'_>, case: LevelCase) -> Table {
    let of = |job: &str, metric| median(numbers.numbers.spread((case, job, metric)));
    let published = |job: &str| numbers.published(case, job);
    let cores = numbers.cores(case).map_or_else(String::new, |cores| {
        format!(" The process that serves it took {cores:.2} cores meanwhile, on average.")
    });
    without_empty_columns(Table::of_columns(
        format!("{case} cache"),
        numbers.jobs(),
        &[
            ("JOB", &|job| (*job).to_owned()),
            ("MB/s", &|job| of(job, RATE)),
            ("published", &|job| plain(published(job).map(|(rate, _)| rate))),
            ("IOPS", &|job| of(job, IOPS)),
            ("published", &|job| plain(published(job).map(|(_, iops)| iops))),
            ("of no RAID", &|job| kept(numbers, case, job)),
            ("published", &|job| plain(numbers.published_ratio(case, job))),
            ("bound", &|job| plain(numbers.bound(case, job))),
            ("p99 ms", &|job| of(job, P99)),
            ("CPU %", &|job| of(job, CPU)),
        ],
        format!("{MB_S} CPU is that of each process of fio's.{cores}"),
    ))
}

fn against(numbers: &Levels<'_>, cache: Cache) -> Vec<Table> {
    let of = |case: LevelCase, job: &str| median(numbers.numbers.spread((case, job, RATE)));
    let table = |&rival: &Rival| {
        Table::of_columns(
            format!("Braid by {rival}, {cache} cache"),
            numbers.against(rival, cache),
            &[
                ("LEVEL AND JOB", &|one| format!("{}, {}", one.ours.built, one.job)),
                ("MB/s", &|one| of(one.ours, &one.job)),
                (rival.name(), &|one| of(one.theirs, &one.job)),
                ("ratio", &|one| median(Some(one.ratio.spread))),
                ("least", &|one| number(one.ratio.spread.min)),
                ("most", &|one| number(one.ratio.spread.max)),
            ],
            format!("{MB_S} {}", how(rival)),
        )
        .unless_empty()
    };
    numbers.options.against.iter().filter_map(table).collect()
}

/// Note on a rival.
const fn how(rival: Rival) -> &'static str {
    match rival {
        Rival::Btrfs => {
            "btrfs has the same profile for data and metadata, over the same kind of devices, and \
             is mounted with nodatacow: without checksums and without copies on write. Kernels of \
             2026 copy direct writes to profiles with copies or parity into the page cache first."
        }
        Rival::Md => "md has the same level, layout and chunk over the same kind of devices.",
        Rival::File => "That is the file system below, without RAID and without a disk of a file.",
        Rival::Nbdkit | Rival::Gluster => {
            "nbdkit serves one file, without RAID, and nbdfuse shows it as Braid shows an array."
        }
    }
}

fn plot(numbers: &Levels<'_>, level: Level) -> Option<Plot> {
    let jobs = numbers.jobs();
    let case = |cache| LevelCase { built: Built::Braid(level), cache };
    let series = |name: &str, style, value: &dyn Fn(&str) -> Option<Point>| {
        let at = |(x, job): (usize, &&str)| Some(Point { x: x as f64, ..value(job)? });
        Series::new(name, style, jobs.iter().enumerate().filter_map(at))
    };
    let measured = |cache: Cache| {
        series(cache.name(), Style::Measured, &|job| {
            Some(Point::of(0.0, numbers.to_plain(case(cache), job)?.spread))
        })
    };
    let warm = case(Cache::Warm);
    let published = |job: &str| Some(Point::at(0.0, numbers.published_ratio(warm, job)?));
    let bound = |job: &str| {
        let bound = numbers.bound(case(Cache::Cold), job).or_else(|| numbers.bound(warm, job));
        Some(Point::at(0.0, bound?))
    };
    let mut all = Cache::ALL.map(measured).to_vec();
    all.push(series("published (warm)", Style::Published, &published));
    all.push(series("bound", Style::Bound, &bound));
    all.retain(|series| !series.points.is_empty());
    let name = level.facts().name;
    let title = format!("{name}: rate by that without RAID");
    let axes = [Axis::names("job", jobs.clone()), Axis::linear("rate / rate without RAID")];
    let plot = Plot::new(format!("levels-{}", file_name(name)), title, axes, all);
    plot.with_rules([Rule::new("no RAID", 1.0)]).if_measured()
}

fn cells(numbers: &Levels<'_>, case: LevelCase) -> Vec<Cell> {
    let cell = |job: &str, metric: &str| {
        let cell = numbers.numbers.cell((case, job, metric))?;
        let published = numbers.published(case, job);
        if metric == IOPS {
            return Some(Cell { published: published.map(|(_, iops)| iops), ..cell });
        }
        if metric != RATE {
            return Some(cell);
        }
        let of_plain = |ratio| Some(ratio * numbers.numbers.median((case.plain(), job, RATE))?);
        let is_plain = case == case.plain();
        Some(Cell {
            published: published.map(|(rate, _)| rate),
            ratio: if is_plain { Some(1.0) } else { numbers.kept(case, job) },
            published_ratio: numbers.published_ratio(case, job),
            bound: numbers.bound(case, job).and_then(of_plain),
            server_cores: numbers.cores(case),
            ..cell
        })
    };
    let jobs = numbers.jobs().into_iter();
    jobs.flat_map(|job| METRICS.map(|metric| cell(job, metric))).flatten().collect()
}

fn rival_cells(numbers: &Levels<'_>, cache: Cache) -> Vec<Cell> {
    let of = |&rival: &Rival| {
        let metric = format!("bandwidth by {rival}'s");
        let cell =
            |one: Against| Cell::new(&one.ours.to_string(), &one.job, &metric, "1", one.ratio);
        numbers.against(rival, cache).into_iter().map(cell).collect::<Vec<Cell>>()
    };
    numbers.options.against.iter().flat_map(of).collect()
}

fn published_cells(numbers: &Levels<'_>, case: LevelCase) -> Vec<Published> {
    let of_job = |(job, ..): (&str, &str, u16, u16, &str, bool)| {
        let (rate, iops) = numbers.published(case, job)?;
        let one = |(metric, value)| Published::new(&case.to_string(), job, metric, value);
        Some([(RATE, rate), (IOPS, iops)].map(one))
    };
    published::JOBS.into_iter().filter_map(of_job).flatten().collect()
}

/// Columns that say nothing only take room.
fn without_empty_columns(mut table: Table) -> Table {
    let says = |at: usize| at == 0 || table.rows.iter().any(|row| row[at] != NOTHING);
    let kept: Vec<bool> = (0..table.head.len()).map(says).collect();
    for row in table.rows.iter_mut().chain([&mut table.head]) {
        let mut at = kept.iter();
        row.retain(|_| at.next() == Some(&true));
    }
    table
}
