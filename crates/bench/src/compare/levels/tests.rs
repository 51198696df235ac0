//! The chapter, made of what fio might have said.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::case::{Built, Cache, Case};
use super::published;
use super::{Level, Levels, Options, Rival};
use crate::model::{Chapter, Comparison, Found, Run, Scale, Table};

/// What fio would say had it moved so much, in units of 1000 KiB a second.
fn said(rates: impl Fn(&str) -> Option<f64>) -> Value {
    let job =
        |(name, block, depth, processes, direction, _): (&str, &str, u16, u16, &str, bool)| {
            let bytes_s = rates(name)? * 1_024_000.0;
            let block_bytes = if block == "1m" {
                1048576.0
            } else {
                block[..block.len() - 1].parse::<f64>().ok()? * 1024.0
            };
            let moved = json!({"bw_bytes": bytes_s, "iops": bytes_s / block_bytes,
            "clat_ns": {"percentile": {"50.000000": 2000, "99.000000": 5000}}});
            let still = json!({"bw_bytes": 0, "iops": 0.0});
            let (read, write) =
                if direction.ends_with("read") { (moved, still) } else { (still, moved) };
            let options = json!({"bs": block, "rw": direction, "iodepth": depth.to_string(),
            "numjobs": processes.to_string()});
            Some(json!({"jobname": name, "error": 0, "read": read, "write": write,
            "job options": options, "usr_cpu": 1.0, "sys_cpu": 2.5}))
        };
    json!({"jobs": published::JOBS.into_iter().filter_map(job).collect::<Vec<_>>()})
}

/// Runs in a folder of their own.
struct Made {
    folder: TempDir,
    found: Found,
}

impl Made {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let found = Found { folder: folder.path().to_owned(), ..Found::default() };
        Self { folder, found }
    }

    fn run(&mut self, case: Case, round: u16, said: &Value) {
        let number = self.found.runs.len();
        let file = format!("raw.{number}.fio.json");
        fs::write(self.folder.path().join(&file), said.to_string()).expect("a file");
        self.found.runs.push(Run {
            case: case.name(),
            job: "cdm".to_owned(),
            round,
            commands: Vec::new(),
            files: vec![file],
            seconds: 10.0,
            server_cpu_s: Some(12.5),
        });
    }

    /// Every case that was published, as fast as published times a factor.
    fn published(cache: Cache, factor: impl Fn(Built, &str) -> f64) -> Self {
        let mut made = Self::new();
        for built in [Built::Bare, Built::Plain].into_iter().chain(Level::ALL.map(Built::Braid)) {
            let rates = |job: &str| Some(published::figures(built, job)?.0 * factor(built, job));
            made.run(Case { built, cache }, 0, &said(rates));
        }
        made
    }

    fn chapter(&self, options: Options) -> Chapter {
        Levels(options).chapter(&self.found)
    }
}

fn table<'a>(chapter: &'a Chapter, title: &str) -> &'a Table {
    let found = chapter.tables.iter().find(|table| table.title == title);
    found.unwrap_or_else(|| panic!("no table '{title}' in {:?}", chapter.tables))
}

fn entry<'a>(table: &'a Table, row: &str, column: usize) -> &'a str {
    let found = table.rows.iter().find(|cells| cells[0] == row);
    &found.unwrap_or_else(|| panic!("no row '{row}'"))[column]
}

const RAID_5: Built = Built::Braid(Level::Raid5);
const RANDOM: &str = "RND4KQ32T16-Write";

#[test]
fn what_was_published_stands_beside_what_was_found() {
    let made = Made::published(Cache::Warm, |_, _| 0.5);
    let chapter = made.chapter(Options::full());
    let raid_5 = table(&chapter, "RAID 5, warm cache");
    let head = ["JOB", "MB/s", "published", "IOPS", "published", "of no RAID", "published"];
    assert_eq!(raid_5.head[..7], head);
    let row = raid_5.rows.iter().find(|row| row[0] == RANDOM).expect("the job");
    assert_eq!(row[..8], [RANDOM, "107", "214", "26750", "53501", "0.37", "0.37", "0.41"]);
    assert_eq!(row[9], "3.50");
    assert!(raid_5.note.contains("took 1.25 cores"), "{}", raid_5.note);
    let all = table(&chapter, "Rate by that without RAID, warm cache");
    assert_eq!(all.rows.len(), 8);
    assert_eq!(entry(all, "SEQ128KQ32T1-Write", 6), "0.33");
    let bare = chapter.tables.iter().find(|table| table.title.starts_with("bare"));
    assert!(bare.is_none(), "the host's own file system is no case with a warm cache");
    assert_eq!(chapter.plots.len(), 4, "only what was measured is drawn");
    let names = Scale::Names(published::JOBS.map(|(name, ..)| name.to_owned()).to_vec());
    assert_eq!(chapter.plots[0].x.scale, names);
    let cell = chapter.cells.iter().find(|cell| {
        (cell.case.as_str(), cell.job.as_str()) == ("RAID 5, warm", RANDOM)
            && cell.metric == "bandwidth"
    });
    let cell = cell.expect("its cell");
    assert_eq!((cell.spread.median, cell.published), (107.0, Some(214.0)));
    assert_eq!(cell.raw, [made.found.runs[3].files[0].clone()]);
}

#[test]
fn sentences_follow_the_numbers() {
    let options = Options::full;
    let as_published = Made::published(Cache::Warm, |_, _| 0.1).chapter(options());
    let text = as_published.says.join("\n");
    assert!(text.contains("RAID 5 loses as much as was published."), "{text}");
    assert!(text.contains("No ratio lies below a published one (warm cache)."), "{text}");
    let better = Made::published(Cache::Warm, |built, job| match (built, job) {
        (RAID_5, RANDOM) => 2.0,
        (Built::Braid(Level::Near2), "SEQ1MQ8T1-Read") => 0.1,
        _ => 1.0,
    });
    let text = better.chapter(options()).says.join("\n");
    assert!(text.contains("keep 0.73 on RAID 5 and 0.29 on RAID 6"), "{text}");
    assert!(text.contains("RAID 5 loses less than was published. RAID 6 loses as much"), "{text}");
    assert!(text.contains("Where Braid loses: 1 of 32 ratios"), "{text}");
    assert!(text.contains("RAID 10 near2 on SEQ1MQ8T1-Read (0.09 for 0.91)"), "{text}");
    let cold = Made::published(Cache::Cold, |_, _| 1.0).chapter(options()).says.join("\n");
    assert!(cold.contains("cold cache") && !cold.contains("warm cache"), "{cold}");
    assert_eq!(Made::new().chapter(options()).says, Vec::<String>::new());
}

#[test]
fn rounds_are_compared_one_by_one_and_marked_when_far_apart() {
    let mut made = Made::new();
    let options = Options { against: vec![Rival::Btrfs], ..Options::full() };
    let case = |built| Case { built, cache: Cache::Cold };
    for (round, drift) in [1.0, 2.0, 3.0].into_iter().enumerate() {
        let round = u16::try_from(round).expect("few");
        for (built, rate) in [(Built::Plain, 100.0), (RAID_5, 50.0)] {
            made.run(case(built), round, &said(|_| Some(rate * drift)));
        }
        made.run(case(Built::Btrfs(Level::Raid5)), round, &said(|_| Some(25.0 * drift)));
    }
    let chapter = made.chapter(options);
    let raid_5 = table(&chapter, "RAID 5, cold cache");
    assert_eq!(entry(raid_5, RANDOM, 1), "100~", "three rounds far apart");
    let of_plain = raid_5.head.iter().position(|title| title == "of no RAID").expect("a column");
    assert_eq!(entry(raid_5, RANDOM, of_plain), "0.50", "drift falls on both alike");
    let btrfs = table(&chapter, "Braid by btrfs, cold cache");
    assert_eq!(btrfs.rows.len(), 8);
    assert_eq!(
        btrfs.rows[5][..],
        ["RAID 5, RND4KQ32T16-Write", "100~", "50.0~", "2.00", "2.00", "2.00"]
    );
    let text = chapter.says.join("\n");
    assert!(text.contains("Against btrfs (cold cache) Braid is faster in 8 of 8"), "{text}");
}

#[test]
fn members_in_memory_are_told_from_a_cache() {
    let said_of = |warm: f64| {
        let mut made = Made::new();
        for (cache, rate) in [(Cache::Cold, 100.0), (Cache::Warm, warm)] {
            made.run(Case { built: Built::Plain, cache }, 0, &said(|_| Some(rate)));
        }
        made.chapter(Options::quick()).says.join("\n")
    };
    assert!(said_of(600.0).contains("6.00 times as fast as it is cold"));
    assert!(said_of(600.0).contains("those of a cache, there and here"));
    assert!(said_of(120.0).contains("about as fast as a cache"));
}

#[test]
fn a_job_file_of_ones_own_stands_for_itself() {
    let job = super::JobFile::new("cdm", "[a]\nrw=read\n").expect("a job file");
    let options = Options { job: Some(job), ..Options::full() };
    let made = Made::published(Cache::Warm, |_, _| 1.0);
    let chapter = made.chapter(options);
    let raid_5 = table(&chapter, "RAID 5, warm cache");
    assert!(!raid_5.head.contains(&"published".to_owned()), "{:?}", raid_5.head);
    assert!(chapter.published.is_empty());
    let text = chapter.says.join("\n");
    assert!(text.contains("RAID 5 keeps from 0.37 (RND4KQ32T16-Write) to 1.02"), "{text}");
    assert!(!text.contains("published"), "{text}");
}

#[test]
fn options_outlive_the_run() {
    for options in [Options::quick(), Options { members: Some(6), ..Options::full() }] {
        let comparison = Levels(options.clone());
        let again: Options = serde_json::from_value(comparison.options()).expect("options");
        assert_eq!(again, options);
        for case in comparison.groups().into_iter().flat_map(|group| group.cases) {
            assert_eq!(options.case(&case).map(Case::name), Some(case));
        }
    }
    let quick = Levels(Options::quick()).groups();
    let takes: f64 = quick.iter().map(|group| group.takes().as_secs_f64()).sum();
    assert!(takes < 65.0, "{takes} s");
    let wide = Options { members: Some(3), ..Options::full() };
    assert_eq!(Level::ALL.map(|level| wide.members(level)), [3, 3, 4, 4, 4, 4, 3]);
}

#[test]
fn what_makes_no_sense_is_refused_beforehand() {
    let gluster = Options { against: vec![Rival::Gluster], ..Options::quick() };
    let wide = Options { members: Some(500), ..Options::quick() };
    let small = Options { size_bytes: 4096, ..Options::quick() };
    for options in [gluster, wide, small] {
        let refused = Levels::of(options.clone()).expect_err("no sense");
        assert_eq!(refused.ends, crate::Ends::Usage, "{options:?}");
    }
    Levels::of(Options::full()).expect("the published one");
}

/// What is too large for a disk is halved until it fits, or cannot be smaller.
#[test]
fn it_becomes_smaller_until_it_is_as_small_as_it_can_be() {
    let mut levels: Box<dyn Comparison> = Box::new(Levels(Options::full()));
    let mut sizes = Vec::new();
    while let Some(smaller) = levels.smaller() {
        assert!(smaller.needs_bytes() < levels.needs_bytes());
        levels = smaller;
        sizes.push(levels.options()["size_bytes"].as_u64().expect("a size"));
    }
    assert_eq!((sizes[0], *sizes.last().expect("some")), (512 << 20, 4 << 20));
}
