use std::fs;
use std::path::Path;

use super::course::Phase;
use super::*;
use crate::model::Cell;
use crate::model::Run;

/// A folder in which each run says what it is told to.
struct Report {
    folder: tempfile::TempDir,
    found: Found,
}

impl Report {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let found = Found { folder: folder.path().to_owned(), ..Found::default() };
        Self { folder, found }
    }

    fn run(&mut self, case: Case, task: Task, files: &[(&str, String)]) {
        let number = self.found.runs.len();
        let mut names = Vec::new();
        for (name, content) in files {
            let path = format!("{number}.{name}");
            fs::write(self.folder.path().join(&path), content).expect("written");
            names.push(path);
        }
        self.found.runs.push(Run {
            case: case.name(),
            job: task.name(),
            round: 0,
            commands: Vec::new(),
            files: names,
            seconds: 1.0,
            server_cpu_s: Some(0.25),
        });
    }

    fn dd(&mut self, case: Case, task: Task, mb_s: &[u64]) {
        let line = |mb_s: &u64| format!("{}000000 bytes (x) copied, 1 s, x\n0u 0s 1 10%\n", mb_s);
        let text = mb_s.iter().map(line).collect();
        let members = "80000000 bytes/s each\n".to_owned();
        self.run(case, task, &[("dd.txt", text), ("members.txt", members)]);
    }

    /// dd in the three states that it is in, and the recovery alone, with it and after it.
    fn trace(&mut self, case: Case, task: Task, dd: [u64; 3], recovery: [u64; 3]) {
        let mut text = String::new();
        let mut dds = dd.into_iter();
        let mut speeds = recovery.into_iter();
        let mut done = 0;
        for (at, phase) in Phase::ALL.into_iter().enumerate() {
            text.push_str(&format!("# {at}.000 phase {}\n", phase.name()));
            if !matches!(phase, Phase::Alone | Phase::After) {
                let mb_s = dds.next().expect("three");
                text.push_str(&format!("# {at}.1 dd\n{mb_s}000000 bytes (x) copied, 1 s, x\n"));
            }
            if !matches!(phase, Phase::InSync | Phase::Degraded) {
                let speed = speeds.next().expect("three") * 1_000_000 / 1024;
                for half in ["0", "5"] {
                    let sample = format!("recovery = 0% ({done}/1000000) finish=0.0min");
                    text.push_str(&format!("# {at}.{half}\u{20}mdstat\n{sample} speed=9K/sec\n"));
                    done += if half == "0" { speed / 2 } else { 0 };
                }
            }
        }
        text.push_str("# 9.0 mdstat\nunused devices: <none>\n");
        self.run(case, task, &[("trace.txt", text)]);
    }

    fn chapter(&self) -> Chapter {
        States(Options::quick()).chapter(&self.found)
    }
}

fn full(alone: u64, in_sync: u64, dd: [u64; 3], recovery: [u64; 3]) -> Chapter {
    let mut report = Report::new();
    let level = Level::ALL[0];
    let case = |state| Case::Array { level, state };
    for (case, mb_s) in [
        (case(State::InSync), in_sync),
        (case(State::Degraded), alone),
        (case(State::Recovering), 60),
        (Case::Alone, alone),
    ] {
        for &mb in &Options::quick().sizes_mb {
            report.dd(case, Task::Write(mb), &[mb_s]);
            report.dd(case, Task::Read(mb), &[mb_s]);
            report.dd(case, Task::Cached(mb), &[if mb < 64 { 900 } else { 90 }]);
        }
        report.dd(case, Task::TwoReaders, &[in_sync / 2, in_sync / 2]);
    }
    for flow in Flow::ALL {
        report.trace(Case::Trace { level }, Task::Trace(flow), dd, recovery);
    }
    report.trace(Case::Limited, Task::Limits(0), dd, recovery);
    report.chapter()
}

#[test]
fn what_is_said_follows_from_what_was_found() {
    let chapter = full(80, 160, [80, 76, 66], [80, 10, 60]);
    let says = chapter.says.join("\n");
    for part in [
        "2.00 (published 0.9",
        "keeps 0.87 of its speed (published 0.95)",
        "keeps 0.12 of its own (published 0.13)",
        "Both together would take 1.20 of a member, of which dd alone takes 0.95",
        "Two readers of a mirror get 2.00",
        "both legs serve",
        "falls from 900 to 90.0 MB/s between 16 and 64 MB",
        "Most is lost with write 2 MB, RAID 1 UI: 0.75",
    ] {
        assert!(says.contains(part), "{part:?} is not in\n{says}");
    }
    let says = full(60, 60, [40, 40, 39], [80, 40, 80]).says.join("\n");
    assert!(says.contains("keeps 0.97 of its speed"), "{says}");
    assert!(!says.contains("were wanted") && says.contains("the legs do not add up"), "{says}");
}

#[test]
fn tables_and_cells_have_what_was_published_beside_what_was_found() {
    let chapter = full(80, 160, [80, 76, 66], [80, 10, 60]);
    for table in &chapter.tables {
        let same = table.rows.iter().all(|row| row.len() == table.head.len());
        assert!(same, "{}", table.title);
    }
    let row = |title: &str, first: &str| {
        let table = chapter.tables.iter().find(|table| table.title.starts_with(title));
        let rows = table.expect(title).rows.iter();
        rows.clone().find(|row| row[0] == first).expect(first).join(" ")
    };
    assert_eq!(row("Written with", "64"), "64 160 25.5 80.0 26.8 60.0 25.8 80.0 25.4");
    assert_eq!(row("Written with", "2048"), "2048 - 27.2 - 27.4 - 26.6 - 28.1");
    assert_eq!(row("Read after", "2"), "2 160 34.2 80.0 46.0 60.0 31.5 80.0 46.2");
    let both = "RAID 1, write 80.0 76.0 66.0 0.87 80.0 10.0 0.12 14.0 60.0 0.75";
    assert_eq!(row("What a recovery", "RAID 1, write"), both);
    let cell = |job: &str, metric: &str| {
        let same = |cell: &&Cell| cell.job == job && cell.metric == metric;
        chapter.cells.iter().find(same).expect(metric).clone()
    };
    let write = cell("write-64", "bandwidth");
    assert_eq!((write.published, write.ratio, write.bound), (Some(25.5), Some(2.0), Some(80.0)));
    assert_eq!(write.server_cores, Some(0.25));
    let recovery = cell("trace-write", "recovery-in-use");
    assert!(recovery.ratio.is_some_and(|ratio| (ratio - 0.125).abs() < 0.001));
    assert!(recovery.published_ratio.is_some_and(|ratio| (ratio - 0.126).abs() < 0.001));
    // Two charts of writes and reads, the page cache, two traces, limits.
    assert!(chapter.plots.len() >= 6 && chapter.plots[0].series.len() == 8);
}

#[test]
fn nothing_found_is_nothing_said() {
    let chapter = Report::new().chapter();
    assert!(chapter.says.is_empty() && chapter.cells.is_empty() && chapter.plots.is_empty());
    let mut report = Report::new();
    report.run(Case::Alone, Task::Write(4), &[("dd.txt", "dd: no space\n".to_owned())]);
    fs::remove_file(report.folder.path().join("0.dd.txt")).expect("a file");
    assert!(report.chapter().cells.is_empty());
    assert!(!Path::new("0.dd.txt").exists());
}

#[test]
fn short_it_takes_less_than_a_minute_and_options_come_back() {
    let quick = States(Options::quick());
    let takes: Duration = quick.groups().iter().map(Group::takes).sum();
    assert!(takes < Duration::from_secs(60), "{takes:?}");
    let again: Options = serde_json::from_value(quick.options()).expect("options");
    assert_eq!(States(again), quick);
    let jobs = States(Options::full()).groups();
    let jobs: Vec<&str> = jobs[0].jobs.iter().map(|job| job.name.as_str()).collect();
    for size in [4, 16, 64, 256, 512, 1024, 2048] {
        for kind in ["write", "cached", "read"] {
            assert!(jobs.contains(&format!("{kind}-{size}").as_str()), "{kind}-{size}");
        }
    }
    assert!(jobs.contains(&"read-2") && !jobs.contains(&"write-2"));
}
