//! Disks of virtual machines: as published, the array itself, an image file on it, and the array
//! handed through.

use super::Options;
use super::cases::{ARRAY, Disk, DiskJob, IMAGE, TESTS, job_name};
use super::words::{cell, median, number, ratio};
use crate::model::{
    Axis, Cell, Chapter, Found, Plot, Point, Published, Rule, Scale, Series, Style, Table,
};
use crate::tool::qemu_img;

/// Random requests of 512K on the bare array, in MB/s, as published ("about 2 GB/s").
const PUBLISHED_512K: f64 = 2000.0;
/// What the image file kept of that: "2.5 to 3 tenths less".
const PUBLISHED_IMAGE: f64 = 0.725;
/// What the array mapped raw kept: "about 2 tenths less".
const PUBLISHED_RAW: f64 = 0.8;
/// What is compared with what is not an array.
const RIVALS: [(Disk, Disk); 2] = [(ARRAY, Disk::File), (Disk::Nbd, Disk::Nbdkit)];
/// What an image file should keep here, and the array over NBD.
const IMAGE_GOAL: f64 = 0.85;
const RAW_GOAL: f64 = 0.95;

fn published(disk: Disk) -> Option<f64> {
    match disk {
        Disk::Array => Some(1.0),
        Disk::Image { format: "raw", .. } => Some(PUBLISHED_IMAGE),
        Disk::Nbd => Some(PUBLISHED_RAW),
        _ => None,
    }
}

/// The same in words.
fn as_published(disk: Disk) -> Option<String> {
    match disk {
        Disk::Image { format: "raw", .. } => Some("0.70-0.75".to_owned()),
        other => published(other).map(number),
    }
}

fn goal(disk: Disk) -> Option<f64> {
    match disk {
        Disk::Image { format: "raw", .. } => Some(IMAGE_GOAL),
        Disk::Nbd => Some(RAW_GOAL),
        _ => None,
    }
}

pub(super) fn add(chapter: &mut Chapter, options: &Options, found: &Found) {
    let first = chapter.cells.len();
    for disk in Disk::all(options) {
        for job in DiskJob::ALL {
            add_cell(chapter, found, disk, job);
        }
    }
    add_ratios(&mut chapter.cells[first..]);
    add_published(chapter);
    if chapter.cells.len() == first {
        return;
    }
    for write in [false, true] {
        chapter.tables.push(rates_table(chapter, options, write));
    }
    chapter.tables.push(ratios_table(chapter, options));
    chapter.tables.extend(rivals_table(chapter, options));
    for write in [false, true] {
        chapter.plots.push(plot(chapter, options, write));
    }
    chapter.says.extend(kept_sentence(chapter, IMAGE));
    chapter.says.extend(kept_sentence(chapter, Disk::Nbd));
    chapter.says.extend(where_it_goes(chapter));
    chapter.says.extend(where_nbd_loses(chapter));
    for pair in RIVALS {
        chapter.says.extend(rival_sentence(chapter, pair));
    }
    if options.rounds == 1 {
        chapter.says.push(
            "Each number was measured once: what differs little may differ the other way round \
             the next time."
                .to_owned(),
        );
    }
}

fn add_cell(chapter: &mut Chapter, found: &Found, disk: Disk, job: DiskJob) {
    let case = disk.name();
    let name = job.name();
    let rate = |text: &str| Some(qemu_img::parse(text)?.bytes_s() / 1e6);
    let Some(measured) = found.measured(&case, &name, qemu_img::OUTPUT, rate) else { return };
    let cell = Cell::new(&case, &name, "bandwidth", "MB/s", measured);
    let share = if job.test == "512K" { published(disk) } else { None };
    chapter.cells.push(Cell {
        server_cores: found.server_cores(&case, &name).map(|cores| cores.median),
        published: share.map(|share| share * PUBLISHED_512K),
        published_ratio: share,
        ..cell
    });
}

fn add_ratios(cells: &mut [Cell]) {
    let array: Vec<(String, f64)> = cells
        .iter()
        .filter(|cell| cell.case == ARRAY.name())
        .map(|cell| (cell.job.clone(), cell.spread.median))
        .collect();
    for cell in cells {
        let of = array.iter().find(|(job, _)| *job == cell.job);
        cell.ratio = of.map(|(_, median)| cell.spread.median / median);
    }
}

fn add_published(chapter: &mut Chapter) {
    for disk in [ARRAY, IMAGE, Disk::Nbd] {
        for write in [false, true] {
            chapter.published.extend(published(disk).map(|share| Published {
                case: disk.name(),
                job: job_name("512K", write),
                metric: "bandwidth".to_owned(),
                value: share * PUBLISHED_512K,
            }));
        }
    }
}

fn rates_table(chapter: &Chapter, options: &Options, write: bool) -> Table {
    let disks = Disk::all(options);
    let row = |test: &&str| {
        let job = job_name(test, write);
        let mut row = vec![(*test).to_owned()];
        if *test == "512K" {
            row.push(number(PUBLISHED_512K));
        } else {
            row.push("-".to_owned());
        }
        row.extend(disks.iter().map(|disk| median(cell(chapter, &disk.name(), &job))));
        row
    };
    let mut head = vec!["test".to_owned(), "published, bare".to_owned()];
    head.extend(disks.iter().map(Disk::name));
    let what = if write { "written" } else { "read" };
    Table {
        title: format!("Disks of virtual machines, {what}, MB/s"),
        head,
        rows: TESTS.iter().map(row).collect(),
        note: "Seq: requests of 1M one after the other; the others are scattered. QD32: 32 under \
               way at once, else one."
            .into(),
    }
}

fn ratios_table(chapter: &Chapter, options: &Options) -> Table {
    let jobs: Vec<String> = DiskJob::ALL.iter().map(DiskJob::name).collect();
    let row = |disk: &Disk| {
        let or_none = |word: Option<String>| word.unwrap_or_else(|| "-".to_owned());
        let mut row =
            vec![disk.name(), or_none(as_published(*disk)), or_none(goal(*disk).map(number))];
        row.extend(jobs.iter().map(|job| ratio(cell(chapter, &disk.name(), job))));
        row
    };
    let head = ["case", "published 512K", "goal"].into_iter().map(str::to_owned);
    Table {
        title: "What disks of virtual machines keep of the array as the host sees it".to_owned(),
        head: head.chain(jobs.iter().cloned()).collect(),
        rows: Disk::all(options).iter().filter(|disk| **disk != ARRAY).map(row).collect(),
        note: "Ratios to the array's file. Published: an image on the hypervisor's file system, \
               and the array mapped raw into the guest, which NBD stands for here."
            .into(),
    }
}

/// What is not an array, beside what is.
fn rivals_table(chapter: &Chapter, options: &Options) -> Option<Table> {
    let all = Disk::all(options);
    let asked = RIVALS.into_iter().filter(|(_, rival)| all.contains(rival));
    let jobs: Vec<String> = DiskJob::ALL.iter().map(DiskJob::name).collect();
    let row = |(ours, rival): (Disk, Disk)| {
        let ratio = |job: &String| {
            let ours = cell(chapter, &ours.name(), job);
            let rival = cell(chapter, &rival.name(), job);
            let Some((ours, rival)) = ours.zip(rival) else { return "-".to_owned() };
            let runs = ours.runs.min(rival.runs);
            let ours = ours.spread;
            let rival = rival.spread;
            let median = number(ours.median / rival.median);
            if runs == 1 {
                return median;
            }
            let worst = ours.min / rival.max;
            let best = ours.max / rival.min;
            format!("{median} ({}-{})", number(worst), number(best))
        };
        let name = format!("{} / {}", ours.name(), rival.name());
        std::iter::once(name).chain(jobs.iter().map(ratio)).collect::<Vec<String>>()
    };
    let rows: Vec<Vec<String>> = asked.map(row).collect();
    (!rows.is_empty()).then(|| Table {
        title: "An array against one bare file, and our server of NBD against nbdkit".to_owned(),
        head: std::iter::once("ratio".to_owned()).chain(jobs.iter().cloned()).collect(),
        rows,
        note: "In parentheses: the worst of ours to the best of the other, and the other way \
               round. nbdkit serves one file through the page cache, without RAID."
            .into(),
    })
}

fn plot(chapter: &Chapter, options: &Options, write: bool) -> Plot {
    let bars = |disk: Disk| {
        let point = |(i, test): (usize, &&str)| {
            let cell = cell(chapter, &disk.name(), &job_name(test, write))?;
            Some(Point::of(i as f64, cell.spread.times(cell.ratio? / cell.spread.median)))
        };
        let points = TESTS.iter().enumerate().filter_map(point).collect();
        Series { name: disk.name(), style: Style::Measured, points }
    };
    let published = |name: &str, share| Series {
        name: format!("{name}, published"),
        style: Style::Published,
        points: vec![Point::at(1.0, share)],
    };
    // What is no array has a scale of its own, and a table.
    let no_bars = |disk: &Disk| *disk == ARRAY || RIVALS.iter().any(|(_, rival)| rival == disk);
    let disks = Disk::all(options).into_iter().filter(|disk| !no_bars(disk));
    let mut series: Vec<Series> = disks.map(bars).collect();
    series.push(published("image file", PUBLISHED_IMAGE));
    series.push(published("mapped raw", PUBLISHED_RAW));
    let rule = |name: &str, value| Rule { name: name.to_owned(), value };
    let what = if write { "writes" } else { "reads" };
    Plot {
        id: format!("chunk-disks-{what}"),
        title: format!("Disks of virtual machines: {what}, against the array seen from the host"),
        x: Axis { label: "test".to_owned(), scale: Scale::Names(TESTS.map(str::to_owned).into()) },
        y: Axis { label: "ratio to the array".to_owned(), scale: Scale::Linear },
        series,
        rules: vec![rule("the array", 1.0), rule("goal, image file", IMAGE_GOAL)],
    }
}

/// The worst and the best of what a disk keeps, against what was published and what is the goal.
fn kept_sentence(chapter: &Chapter, disk: Disk) -> Option<String> {
    let name = disk.name();
    let goal = goal(disk)?;
    let ratios: Vec<(String, f64)> = DiskJob::ALL
        .iter()
        .filter_map(|job| Some((job.name(), cell(chapter, &name, &job.name())?.ratio?)))
        .collect();
    let of = |job: &str| ratios.iter().find(|(name, _)| name == job).map(|(_, ratio)| *ratio);
    let read = of("512K read")?;
    let write = of("512K write")?;
    let as_published = as_published(disk).unwrap_or_default();
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
        capital(&name),
        number(read),
        number(write),
        number(goal)
    ))
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Of what an image file loses, which layer takes how much: the layers are cases of their own.
fn where_it_goes(chapter: &Chapter) -> Option<String> {
    let mut parts = Vec::new();
    for job in DiskJob::ALL {
        let seconds_a_byte =
            |disk: Disk| Some(1.0 / cell(chapter, &disk.name(), &job.name())?.spread.median);
        let array = seconds_a_byte(ARRAY)?;
        let device = seconds_a_byte(Disk::Device)?;
        let image = seconds_a_byte(IMAGE)?;
        if array / image < IMAGE_GOAL {
            let share = (device - array) / (image - array);
            parts.push(format!("{} {}%", job.name(), (share * 100.0).clamp(0.0, 100.0).round()));
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

/// Whether it is the array's process that takes longer over NBD: by the CPU time that it needs for
/// what it moves.
fn where_nbd_loses(chapter: &Chapter) -> Option<String> {
    let cpu_a_byte = |disk: Disk, job: &str| {
        let cell = cell(chapter, &disk.name(), job)?;
        Some(cell.server_cores? / cell.spread.median)
    };
    let times = |job: &DiskJob| {
        let job = job.name();
        let lost = cell(chapter, &Disk::Nbd.name(), &job)?.ratio? < RAW_GOAL;
        let times = cpu_a_byte(Disk::Nbd, &job)? / cpu_a_byte(ARRAY, &job)?;
        (lost && times.is_finite()).then_some((job, times))
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

/// Where an array wins and loses most against what is none.
fn rival_sentence(chapter: &Chapter, (ours, rival): (Disk, Disk)) -> Option<String> {
    let ratio = |job: &DiskJob| {
        let rate = |disk: Disk| Some(cell(chapter, &disk.name(), &job.name())?.spread.median);
        Some((job.name(), rate(ours)? / rate(rival)?))
    };
    let ratios: Vec<(String, f64)> = DiskJob::ALL.iter().filter_map(ratio).collect();
    let least = ratios.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let most = ratios.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let verdict = match (least.1, most.1) {
        (least, _) if least >= 1.0 => "wins everywhere",
        (_, most) if most < 1.0 => "loses everywhere",
        _ => "wins some and loses some",
    };
    let ours = capital(&ours.name());
    let rival = rival.name();
    Some(format!(
        "{ours} against {rival}, without RAID, in the same run: it {verdict}, from {} of its rate \
         ({}) to {} ({}).",
        number(least.1),
        least.0,
        number(most.1),
        most.0
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Measured, Spread};

    fn made(options: &Options, rate: impl Fn(Disk, &str) -> f64) -> Chapter {
        let mut chapter = Chapter::default();
        for disk in Disk::all(options) {
            for job in DiskJob::ALL {
                let spread = Spread::of(&[rate(disk, &job.name())]).expect("a number");
                let measured = Measured { spread, runs: 1, raw: Vec::new() };
                let cell = Cell::new(&disk.name(), &job.name(), "bandwidth", "MB/s", measured);
                chapter.cells.push(cell);
            }
        }
        add_ratios(&mut chapter.cells);
        chapter
    }

    #[test]
    fn goals_are_judged_by_the_numbers() {
        let options = Options::quick();
        let kept = made(&options, |_, _| 1000.0);
        let said = kept_sentence(&kept, Disk::Nbd).expect("a sentence");
        assert!(said.ends_with("published 0.80. The goal is 0.95; it keeps that everywhere."));
        assert!(said.starts_with("Array over NBD: 512K requests keep 1.00 (reads)"), "{said}");
        assert_eq!(where_it_goes(&kept), None);
        let mut slow = made(&options, |disk, _| if disk == Disk::Nbd { 500.0 } else { 1000.0 });
        assert_eq!(where_nbd_loses(&slow), None, "nothing is known of the CPU");
        slow.cells.iter_mut().for_each(|cell| cell.server_cores = Some(0.8));
        let said = where_nbd_loses(&slow).expect("a sentence");
        assert!(said.contains("CPU: 2.00 times at Seq read,"), "{said}");
        slow.cells.iter_mut().for_each(|cell| cell.server_cores = Some(cell.spread.median));
        assert!(where_nbd_loses(&slow).is_some_and(|said| said.contains("so the time goes")));
        // The image at half the speed; a quarter of what it loses is lost by the device already.
        let lost = made(&options, |disk, job| match disk {
            IMAGE if job == "4K write" => 500.0,
            Disk::Device => 800.0,
            _ => 1000.0,
        });
        let said = kept_sentence(&lost, IMAGE).expect("a sentence");
        assert!(said.ends_with("it loses more than that at 4K write (0.50)."), "{said}");
        let said = where_it_goes(&lost).expect("a sentence");
        assert!(said.contains("takes 4K write 25% of what is lost"), "{said}");
        assert_eq!(kept_sentence(&Chapter::default(), IMAGE), None);
    }

    #[test]
    fn tables_have_the_published_numbers_beside_ours() {
        let options = Options { against: vec![super::super::Rival::Nbdkit], ..Options::full() };
        let chapter = made(&options, |disk, _| if disk == IMAGE { 600.0 } else { 800.0 });
        let rates = rates_table(&chapter, &options, false);
        assert_eq!(rates.rows[1][..3], ["512K", "2000", "800"]);
        let ratios = ratios_table(&chapter, &options);
        let image = ratios.rows.iter().find(|row| row[0] == IMAGE.name()).expect("a row");
        assert_eq!(image[1..4], ["0.70-0.75", "0.85", "0.75"]);
        assert!([rates, ratios].iter().all(|t| t.rows.iter().all(|r| r.len() == t.head.len())));
        let rivals = rivals_table(&chapter, &options).expect("a rival was asked for");
        assert_eq!(
            rivals.rows,
            [[
                vec!["array over NBD / bare file over nbdkit".to_owned()],
                vec!["1.00".to_owned(); 8]
            ]
            .concat()]
        );
        assert_eq!(rivals_table(&chapter, &Options::quick()), None);
        let said = rival_sentence(&chapter, RIVALS[1]).expect("it was measured");
        assert!(said.contains("it wins everywhere, from 1.00 of its rate (Seq read)"), "{said}");
        assert_eq!(rival_sentence(&chapter, RIVALS[0]), None);
        assert!(plot(&chapter, &options, true).series.len() > 5);
    }
}
