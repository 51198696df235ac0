//! Tables, plots and cells.

use super::case::{Built, Cache, Case};
use super::level::Level;
use super::numbers::{Numbers, number, rate};
use super::{Options, published, says};
use crate::compare::rivals::Rival;
use crate::model::chapter::Published;
use crate::model::{
    Axis, Cell, Chapter, Found, Plot, Point, Rule, Scale, Series, Spread, Style, Table,
};
use crate::rig::file_name;
use crate::tool::fio;

const RATE: &str = "bandwidth";
const RATE_UNIT: &str = "1000 KiB/s";
const MB_S: &str = "MB/s are units of 1000 KiB a second, as published.";

pub(super) fn chapter(options: &Options, found: &Found) -> Chapter {
    let numbers = Numbers::of(options, found);
    let cases: Vec<Case> = Cache::ALL.into_iter().flat_map(|cache| options.cases(cache)).collect();
    let measured: Vec<Case> = cases.iter().copied().filter(|case| numbers.has(*case)).collect();
    let mut tables: Vec<Table> =
        Cache::ALL.iter().filter_map(|cache| ratios(&numbers, *cache)).collect();
    tables.extend(measured.iter().map(|case| table(&numbers, *case)));
    tables.extend(Cache::ALL.iter().flat_map(|cache| against(&numbers, *cache)));
    let mut cells: Vec<Cell> = measured.iter().flat_map(|case| cells(&numbers, *case)).collect();
    cells.extend(Cache::ALL.iter().flat_map(|cache| rival_cells(&numbers, *cache)));
    Chapter {
        name: "levels".to_owned(),
        title: "RAID levels under one job file".to_owned(),
        about: about(options),
        says: says::says(&numbers),
        tables,
        plots: options.levels.iter().filter_map(|level| plot(&numbers, *level)).collect(),
        cells,
        published: cases.iter().flat_map(|case| published_cells(&numbers, *case)).collect(),
        ..Chapter::default()
    }
}

fn about(options: &Options) -> Vec<String> {
    let count = |level: &Level| format!("{} of {}", level.name(), options.members(*level));
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

/// All levels side by side.
fn ratios(numbers: &Numbers<'_>, cache: Cache) -> Option<Table> {
    let case = |built| Case { built, cache };
    let levels = numbers.options.levels.iter().map(|level| case(Built::Braid(*level)));
    let cases: Vec<Case> = levels.filter(|case| numbers.has(*case)).collect();
    let mut head = vec!["JOB".to_owned()];
    head.extend(cases.iter().flat_map(|case| [case.built.name(), "published".to_owned()]));
    let row = |job: &str| {
        let mut row = vec![job.to_owned()];
        for &case in &cases {
            row.push(spread(numbers.to_plain(case, job)));
            row.push(plain(numbers.published_ratio(case, job)));
        }
        row
    };
    let table = Table {
        title: format!("Rate by that without RAID, {} cache", cache.name()),
        head,
        rows: numbers.jobs().into_iter().map(row).collect(),
        note: "Published is by the published rate without RAID, with a warm cache.".to_owned(),
    };
    (!cases.is_empty()).then(|| without_empty_columns(table))
}

fn cpu_percent(job: &fio::Figures) -> Option<f64> {
    Some(job.user_cpu_percent + job.system_cpu_percent)
}

/// One case as it was published.
fn table(numbers: &Numbers<'_>, case: Case) -> Table {
    let head = [
        "JOB",
        "MB/s",
        "published",
        "IOPS",
        "published",
        "of no RAID",
        "published",
        "bound",
        "p99 ms",
        "CPU %",
    ];
    let row = |job: &str| {
        let of = |read: fn(&fio::Figures) -> Option<f64>| {
            spread(numbers.measured(case, job, read).map(|measured| measured.spread))
        };
        let published = numbers.published(case, job);
        vec![
            job.to_owned(),
            of(rate),
            plain(published.map(|(rate, _)| rate)),
            of(|job| Some(job.side().iops)),
            plain(published.map(|(_, iops)| iops)),
            spread(numbers.to_plain(case, job)),
            plain(numbers.published_ratio(case, job)),
            plain(numbers.bound(case, job)),
            of(|job| Some(job.side().p99_s? * 1e3)),
            of(cpu_percent),
        ]
    };
    let cores = numbers.cores(case).map_or_else(String::new, |cores| {
        format!(" The process that serves it took {cores:.2} cores meanwhile, on average.")
    });
    without_empty_columns(Table {
        title: format!("{} cache", case.name()),
        head: head.map(str::to_owned).to_vec(),
        rows: numbers.jobs().into_iter().map(row).collect(),
        note: format!("{MB_S} CPU is that of each process of fio's.{cores}"),
    })
}

fn against(numbers: &Numbers<'_>, cache: Cache) -> Vec<Table> {
    let mut tables = Vec::new();
    for &rival in &numbers.options.against {
        let mut rows = Vec::new();
        for (ours, theirs) in numbers.pairs(rival, cache) {
            for job in numbers.jobs() {
                let Some(ratio) = numbers.ratio(ours, theirs, job) else { continue };
                let of = |case| numbers.measured(case, job, rate).map(|measured| measured.spread);
                rows.push(vec![
                    format!("{}, {job}", ours.built.name()),
                    spread(of(ours)),
                    spread(of(theirs)),
                    spread(Some(ratio.spread)),
                    number(ratio.spread.min),
                    number(ratio.spread.max),
                ]);
            }
        }
        if !rows.is_empty() {
            let head = ["LEVEL AND JOB", "MB/s", rival.name(), "ratio", "least", "most"];
            tables.push(Table {
                title: format!("Braid by {rival}, {} cache", cache.name()),
                head: head.map(str::to_owned).to_vec(),
                rows,
                note: format!("{MB_S} {}", how(rival)),
            });
        }
    }
    tables
}

/// What has to be known of a rival.
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

fn plot(numbers: &Numbers<'_>, level: Level) -> Option<Plot> {
    let jobs = numbers.jobs();
    let case = |cache| Case { built: Built::Braid(level), cache };
    let points = |value: &dyn Fn(&str) -> Option<Point>| -> Vec<Point> {
        let at = |(x, job): (usize, &&str)| Some(Point { x: x as f64, ..value(job)? });
        jobs.iter().enumerate().filter_map(at).collect()
    };
    let mut series = Vec::new();
    for cache in Cache::ALL {
        let of = |job: &str| Some(Point::of(0.0, numbers.to_plain(case(cache), job)?));
        let name = cache.name().to_owned();
        series.push(Series { name, style: Style::Measured, points: points(&of) });
    }
    let warm = case(Cache::Warm);
    let published = |job: &str| Some(Point::at(0.0, numbers.published_ratio(warm, job)?));
    let bound = |job: &str| {
        let bound = numbers.bound(case(Cache::Cold), job).or_else(|| numbers.bound(warm, job));
        Some(Point::at(0.0, bound?))
    };
    let name = "published (warm)".to_owned();
    let style = Style::Published;
    series.push(Series { name, style, points: points(&published) });
    let name = "bound".to_owned();
    let style = Style::Bound;
    series.push(Series { name, style, points: points(&bound) });
    let measured = series[..2].iter().any(|series| !series.points.is_empty());
    series.retain(|series| !series.points.is_empty());
    measured.then(|| Plot {
        id: format!("levels-{}", file_name(level.name())),
        title: format!("{}: rate by that without RAID", level.name()),
        x: Axis {
            label: "job".to_owned(),
            scale: Scale::Names(jobs.iter().map(|&job| job.to_owned()).collect()),
        },
        y: Axis { label: "rate / rate without RAID".to_owned(), scale: Scale::Linear },
        series,
        rules: vec![Rule { name: "no RAID".to_owned(), value: 1.0 }],
    })
}

fn cells(numbers: &Numbers<'_>, case: Case) -> Vec<Cell> {
    let mut cells = Vec::new();
    let cores = numbers.cores(case);
    for job in numbers.jobs() {
        let published = numbers.published(case, job);
        let cell = |metric: &str, unit: &str, read: fn(&fio::Figures) -> Option<f64>| {
            let measured = numbers.measured(case, job, read)?;
            Some(Cell::new(&case.name(), job, metric, unit, measured))
        };
        // Of requests it is the same: they are as long there as here.
        let ratio = numbers.to_plain(case, job).map(|ratio| ratio.median);
        let ratio = if case.built == Built::Plain { Some(1.0) } else { ratio };
        let bound = numbers.bound(case, job).and_then(|ratio| {
            let plain = Case { built: Built::Plain, ..case };
            Some(ratio * numbers.measured(plain, job, rate)?.spread.median)
        });
        cells.extend(cell(RATE, RATE_UNIT, rate).map(|cell| Cell {
            published: published.map(|(rate, _)| rate),
            ratio,
            published_ratio: numbers.published_ratio(case, job),
            bound,
            server_cores: cores,
            ..cell
        }));
        cells.extend(
            cell("iops", "1/s", |job| Some(job.side().iops))
                .map(|cell| Cell { published: published.map(|(_, iops)| iops), ..cell }),
        );
        cells.extend(cell("latency p50", "ms", |job| Some(job.side().p50_s? * 1e3)));
        cells.extend(cell("latency p99", "ms", |job| Some(job.side().p99_s? * 1e3)));
        cells.extend(cell("cpu", "%", cpu_percent));
    }
    cells
}

fn rival_cells(numbers: &Numbers<'_>, cache: Cache) -> Vec<Cell> {
    let mut cells = Vec::new();
    for &rival in &numbers.options.against {
        for (ours, theirs) in numbers.pairs(rival, cache) {
            for job in numbers.jobs() {
                let Some(ratio) = numbers.ratio(ours, theirs, job) else { continue };
                let metric = format!("bandwidth by {rival}'s");
                cells.push(Cell::new(&ours.name(), job, &metric, "1", ratio));
            }
        }
    }
    cells
}

fn published_cells(numbers: &Numbers<'_>, case: Case) -> Vec<Published> {
    let mut all = Vec::new();
    for (job, ..) in published::JOBS {
        let Some((rate, iops)) = numbers.published(case, job) else { continue };
        for (metric, value) in [(RATE, rate), ("iops", iops)] {
            let case = case.name();
            let job = job.to_owned();
            let metric = metric.to_owned();
            all.push(Published { case, job, metric, value });
        }
    }
    all
}

/// Columns that say nothing only take room.
fn without_empty_columns(mut table: Table) -> Table {
    let says = |at: usize| at == 0 || table.rows.iter().any(|row| row[at] != "-");
    let kept: Vec<bool> = (0..table.head.len()).map(says).collect();
    for row in table.rows.iter_mut().chain([&mut table.head]) {
        let mut at = kept.iter();
        row.retain(|_| at.next() == Some(&true));
    }
    table
}

fn plain(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}

/// The median, marked where it says little.
fn spread(spread: Option<Spread>) -> String {
    spread.map_or_else(
        || "-".to_owned(),
        |spread| {
            let mark = if spread.is_noisy() { "~" } else { "" };
            format!("{}{mark}", number(spread.median))
        },
    )
}
