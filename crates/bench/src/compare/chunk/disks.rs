//! Disks of virtual machines: as published, the array itself, an image file on it, and the array
//! handed through.

use super::cases::{ARRAY, DiskJob, IMAGE, TESTS, VirtualDiskPlace, WAYS, job_name};
use super::numbers::{Chunks, RATE};
use crate::compare::words::{NOTHING, marked, median, number, plain, word};
use crate::model::{Axis, Cell, Chapter, Plot, Point, Published, Rule, Series, Style, Table};

/// Random requests of 512K on the bare array, in MB/s, as published ("about 2 GB/s").
const PUBLISHED_512K: f64 = 2000.0;
/// Share of that which the image file kept: "2.5 to 3 tenths less".
const PUBLISHED_IMAGE: f64 = 0.725;
/// Share of that which the array mapped raw kept: "about 2 tenths less".
const PUBLISHED_RAW: f64 = 0.8;
/// Disks on an array, each with one that is not.
const RIVALS: [(VirtualDiskPlace, VirtualDiskPlace); 2] =
    [(ARRAY, VirtualDiskPlace::File), (VirtualDiskPlace::Nbd, VirtualDiskPlace::Nbdkit)];
/// Shares that an image file and the array over NBD should keep here.
const IMAGE_GOAL: f64 = 0.85;
const RAW_GOAL: f64 = 0.95;

/// Facts of a disk that was published.
struct DiskFacts {
    /// Share of the bare array's rate.
    share: f64,
    as_published: &'static str,
    goal: Option<f64>,
}

fn facts(disk: VirtualDiskPlace) -> Option<DiskFacts> {
    let (share, as_published, goal) = match disk {
        VirtualDiskPlace::Array => (1.0, "1.00", None),
        VirtualDiskPlace::Image { format: "raw", .. } => {
            (PUBLISHED_IMAGE, "0.70-0.75", Some(IMAGE_GOAL))
        }
        VirtualDiskPlace::Nbd => (PUBLISHED_RAW, "0.80", Some(RAW_GOAL)),
        _ => return None,
    };
    Some(DiskFacts { share, as_published, goal })
}

pub(super) fn add(chapter: &mut Chapter, numbers: &Chunks<'_>) {
    for disk in VirtualDiskPlace::all(numbers.options) {
        chapter.cells.extend(DiskJob::ALL.iter().filter_map(|job| cell(numbers, disk, *job)));
    }
    for disk in [ARRAY, IMAGE, VirtualDiskPlace::Nbd] {
        chapter.published.extend(WAYS.into_iter().filter_map(|write| {
            let value = facts(disk)?.share * PUBLISHED_512K;
            Some(Published::new(&disk.to_string(), &job_name("512K", write), RATE, value))
        }));
    }
    if !is_measured(numbers) {
        return;
    }
    chapter.tables.extend(WAYS.map(|write| rates_table(numbers, write)));
    chapter.tables.push(ratios_table(numbers));
    chapter.tables.extend(rivals_table(numbers).unless_empty());
    chapter.plots.extend(WAYS.map(|write| plot(numbers, write)));
}

pub(super) fn says(chapter: &mut Chapter, numbers: &Chunks<'_>) {
    if !is_measured(numbers) {
        return;
    }
    let kept = [IMAGE, VirtualDiskPlace::Nbd].map(|disk| kept_sentence(numbers, disk));
    chapter.says.extend(kept.into_iter().flatten());
    chapter.says.extend(where_it_goes(numbers));
    chapter.says.extend(where_nbd_loses(numbers));
    chapter.says.extend(RIVALS.into_iter().filter_map(|pair| rival_sentence(numbers, pair)));
    if numbers.options.rounds == 1 {
        chapter.says.push(
            "Each number was measured once: what differs little may differ the other way round \
             the next time."
                .to_owned(),
        );
    }
}

fn is_measured(numbers: &Chunks<'_>) -> bool {
    VirtualDiskPlace::all(numbers.options).iter().any(|disk| numbers.numbers.has(disk))
}

fn cell(numbers: &Chunks<'_>, disk: VirtualDiskPlace, job: DiskJob) -> Option<Cell> {
    let share = if job.test == "512K" { facts(disk).map(|facts| facts.share) } else { None };
    Some(Cell {
        server_cores: numbers.numbers.cores(disk, job).map(|cores| cores.median),
        published: share.map(|share| share * PUBLISHED_512K),
        published_ratio: share,
        ratio: numbers.ratio(disk, ARRAY, job),
        ..numbers.numbers.cell((disk, job, RATE))?
    })
}

fn rates_table(numbers: &Chunks<'_>, write: bool) -> Table {
    let disks = VirtualDiskPlace::all(numbers.options);
    let disks = disks.into_iter().map(|disk| (disk.to_string(), Some(disk)));
    let what = if write { "written" } else { "read" };
    Table::grid(
        format!("Disks of virtual machines, {what}, MB/s"),
        "test",
        [("published, bare".to_owned(), None)].into_iter().chain(disks),
        TESTS.map(|test| (test, test)),
        |test, disk| match disk {
            Some(disk) => median(numbers.rate(disk, job_name(test, write))),
            None => plain((*test == "512K").then_some(PUBLISHED_512K)),
        },
        "Seq: requests of 1M one after the other; the others are scattered. QD32: 32 under way at \
         once, else one.",
    )
}

fn by_job(
    title: &str,
    first: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
    note: &str,
) -> Table {
    let first = first.iter().map(|&word| word.to_owned());
    Table::new(title, first.chain(DiskJob::ALL.map(|job| job.to_string())), rows, note)
}

fn ratios_table(numbers: &Chunks<'_>) -> Table {
    let row = |disk: VirtualDiskPlace| {
        let ratio = |job: DiskJob| {
            let noisy = numbers.rate(disk, job).is_some_and(|rate| rate.is_noisy());
            word(numbers.ratio(disk, ARRAY, job), |ratio| marked(number(ratio), noisy))
        };
        let facts = facts(disk);
        let published = facts.as_ref().map_or(NOTHING, |facts| facts.as_published).to_owned();
        let goal = plain(facts.and_then(|facts| facts.goal));
        let first = [disk.to_string(), published, goal];
        first.into_iter().chain(DiskJob::ALL.map(ratio)).collect()
    };
    let disks = VirtualDiskPlace::all(numbers.options).into_iter().filter(|disk| *disk != ARRAY);
    by_job(
        "What disks of virtual machines keep of the array as the host sees it",
        &["case", "published 512K", "goal"],
        disks.map(row),
        "Ratios to the array's file. Published: an image on the hypervisor's file system, and the \
         array mapped raw into the guest, which NBD stands for here.",
    )
}

/// Compares disks on arrays with those that are not.
fn rivals_table(numbers: &Chunks<'_>) -> Table {
    let row = |(ours, rival): (VirtualDiskPlace, VirtualDiskPlace)| {
        let ratio = |job: DiskJob| {
            let of = |disk: VirtualDiskPlace| numbers.numbers.measured((disk, job, RATE));
            word(of(ours).zip(of(rival)), |(ours, rival)| {
                let median = number(ours.spread.median / rival.spread.median);
                if ours.runs.min(rival.runs) == 1 {
                    return median;
                }
                let worst = ours.spread.min / rival.spread.max;
                let best = ours.spread.max / rival.spread.min;
                format!("{median} ({}-{})", number(worst), number(best))
            })
        };
        let name = format!("{ours} / {rival}");
        std::iter::once(name).chain(DiskJob::ALL.map(ratio)).collect()
    };
    let all = VirtualDiskPlace::all(numbers.options);
    by_job(
        "An array against one bare file, and our server of NBD against nbdkit",
        &["ratio"],
        RIVALS.into_iter().filter(|(_, rival)| all.contains(rival)).map(row),
        "In parentheses: the worst of ours to the best of the other, and the other way round. \
         nbdkit serves one file through the page cache, without RAID.",
    )
}

fn plot(numbers: &Chunks<'_>, write: bool) -> Plot {
    let bars = |disk: VirtualDiskPlace| {
        let point = |(i, test): (usize, &&str)| {
            let ratios = numbers.ratios(disk, ARRAY, job_name(test, write))?;
            Some(Point::of(i as f64, ratios))
        };
        Series::measured(disk.to_string(), TESTS.iter().enumerate().filter_map(point))
    };
    let published = |name: &str, share| {
        let name = format!("{name}, published");
        Series::new(name, Style::Published, [Point::at(1.0, share)])
    };
    // What is no array has a scale of its own, and a table.
    let no_bars =
        |disk: &VirtualDiskPlace| *disk == ARRAY || RIVALS.iter().any(|(_, rival)| rival == disk);
    let disks = VirtualDiskPlace::all(numbers.options).into_iter().filter(|disk| !no_bars(disk));
    let series = disks
        .map(bars)
        .chain([published("image file", PUBLISHED_IMAGE), published("mapped raw", PUBLISHED_RAW)]);
    let what = if write { "writes" } else { "reads" };
    let title = format!("Disks of virtual machines: {what}, against the array seen from the host");
    let axes = [Axis::names("test", TESTS), Axis::linear("ratio to the array")];
    Plot::new(format!("chunk-disks-{what}"), title, axes, series)
        .with_rules([Rule::new("the array", 1.0), Rule::new("goal, image file", IMAGE_GOAL)])
}

/// The worst and the best of what a disk keeps, against what was published and what is the goal.
fn kept_sentence(numbers: &Chunks<'_>, disk: VirtualDiskPlace) -> Option<String> {
    let DiskFacts { as_published, goal, .. } = facts(disk)?;
    let goal = goal?;
    let ratios: Vec<(String, f64)> = DiskJob::ALL
        .iter()
        .filter_map(|job| Some((job.to_string(), numbers.ratio(disk, ARRAY, job)?)))
        .collect();
    let of = |job: &str| ratios.iter().find(|(name, _)| name == job).map(|(_, ratio)| *ratio);
    let read = of("512K read")?;
    let write = of("512K write")?;
    let missed: Vec<String> = ratios
        .iter()
        .filter(|(_, ratio)| *ratio < goal)
        .map(|(job, ratio)| format!("{job} ({})", number(*ratio)))
        .collect();
    let verdict = if missed.is_empty() {
        "keeps that everywhere".to_owned()
    } else if missed.len() == ratios.len() {
        format!("loses more than that everywhere: {}", missed.join(", "))
    } else {
        format!("loses more than that at {}", missed.join(", "))
    };
    Some(format!(
        "{}: 512K requests keep {} (reads) and {} (writes) of what the host sees of the array, \
         published {as_published}. The goal is {}; it {verdict}.",
        capital(&disk.to_string()),
        number(read),
        number(write),
        number(goal)
    ))
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Says which layer takes how much of what an image file loses: the layers are cases of their own.
fn where_it_goes(numbers: &Chunks<'_>) -> Option<String> {
    let mut parts = Vec::new();
    for job in DiskJob::ALL {
        let seconds_a_byte = |disk: VirtualDiskPlace| Some(1.0 / numbers.rate(disk, job)?.median);
        let array = seconds_a_byte(ARRAY)?;
        let device = seconds_a_byte(VirtualDiskPlace::Device)?;
        let image = seconds_a_byte(IMAGE)?;
        if array / image < IMAGE_GOAL {
            let share = (device - array) / (image - array);
            parts.push(format!("{job} {}%", (share * 100.0).clamp(0.0, 100.0).round()));
        }
    }
    let together = parts.join(", ");
    (!parts.is_empty()).then(|| {
        format!(
            "Where the image file loses its time: the loop device below the file system takes \
             {together} of what is lost; the file system takes the rest."
        )
    })
}

/// Says whether the array's process takes longer over NBD, by its CPU time for each byte.
fn where_nbd_loses(numbers: &Chunks<'_>) -> Option<String> {
    let cpu_a_byte = |disk: VirtualDiskPlace, job: &DiskJob| {
        Some(numbers.numbers.cores(disk, job)?.median / numbers.rate(disk, job)?.median)
    };
    let times = |job: &DiskJob| {
        let lost = numbers.ratio(VirtualDiskPlace::Nbd, ARRAY, job)? < RAW_GOAL;
        let times = cpu_a_byte(VirtualDiskPlace::Nbd, job)? / cpu_a_byte(ARRAY, job)?;
        (lost && times.is_finite()).then_some((job.to_string(), times))
    };
    let all: Vec<(String, f64)> = DiskJob::ALL.iter().filter_map(times).collect();
    let most = all.iter().map(|(_, times)| *times).fold(0.0, f64::max);
    let verdict = if most <= 1.1 {
        "so the time goes to qemu's client and to the socket between them"
    } else {
        "the rest goes to qemu's client and to the socket between them"
    };
    let said: Vec<String> =
        all.iter().map(|(job, times)| format!("{} times at {job}", number(*times))).collect();
    (!said.is_empty()).then(|| {
        format!(
            "Where NBD loses, the array's process needs for each byte, against its file, this much \
             CPU: {}; {verdict}.",
            said.join(", ")
        )
    })
}

/// Says where an array wins and loses most against a disk that is none.
fn rival_sentence(
    numbers: &Chunks<'_>,
    (ours, rival): (VirtualDiskPlace, VirtualDiskPlace),
) -> Option<String> {
    let ratio = |job: &DiskJob| Some((job.to_string(), numbers.ratio(ours, rival, job)?));
    let ratios: Vec<(String, f64)> = DiskJob::ALL.iter().filter_map(ratio).collect();
    let least = ratios.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let most = ratios.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let verdict = match (least.1, most.1) {
        (least, _) if least >= 1.0 => "wins everywhere",
        (_, most) if most < 1.0 => "loses everywhere",
        _ => "wins some and loses some",
    };
    let ours = capital(&ours.to_string());
    Some(format!(
        "{ours} against {rival}, without RAID, in the same run: it {verdict}, from {} of its rate \
         ({}) to {} ({}).",
        number(least.1),
        least.0,
        number(most.1),
        most.0
    ))
}
