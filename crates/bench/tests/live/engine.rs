//! Levels within the process and over every export, beside servers without RAID, for a moment.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::support::{Lab, program, skip};
use braid_bench::compare::Plan;
use braid_bench::compare::engine::EngineOptions;
use braid_bench::folder::Folder;
use braid_bench::model::{Chapter, Comparison, Found};
use braid_bench::rig::Room;
use braid_bench::tool::Tool;
use serde_json::Value;

use super::turns::{measure, said_by_fio};

/// Two loads of the twelve.
const JOBS: [&str; 2] = ["read 4K x32", "write 1024K x8"];

/// Programs needed beyond root and loop devices.
const PROGRAMS: [(&str, &str); 4] = [
    ("fio", "fio"),
    ("nbdkit", "nbdkit"),
    ("qemu-storage-daemon", "qemu-system-common"),
    ("losetup", "mount"),
];

#[test]
fn every_export_is_measured_in_turns_with_what_it_is_compared_with() {
    let test = "every_export_is_measured_in_turns_with_what_it_is_compared_with";
    let needs = ["/dev/loop-control", "/dev/fuse"];
    if !rustix::process::geteuid().is_root() || !needs.iter().all(|it| Path::new(it).exists()) {
        return skip(test, "it needs root, loop devices and FUSE");
    }
    for (name, package) in PROGRAMS {
        if let Err(missing) = Tool::find(name, package) {
            return skip(test, &format!("{name}: {}", missing.why.next.advice));
        }
    }
    let directory = tempfile::tempdir().expect("a directory");
    let memory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let scratch = directory.path().join("scratch");
    fs::create_dir(&scratch).expect("a directory");
    let braid = Tool::at("braid", program());
    let room = Room::new(scratch.clone(), Vec::new(), braid).with_memory(memory.path().into());
    let folder = Folder::open(&directory.path().join("report")).expect("a folder");
    let engine = EngineOptions {
        levels: vec!["5".to_owned()],
        run_ms: 20,
        area_bytes: 16 << 20,
        ..EngineOptions::usual(true)
    };
    let mut cases = 0;
    for group in engine.groups() {
        assert!(JOBS.iter().all(|job| group.jobs.iter().any(|known| known.name == *job)));
        cases += group.cases.len();
        measure(&engine, &room, &folder, &group.cases, &JOBS);
    }
    let found = folder.found("engine");
    check(&engine.chapter(&found), &found, cases);
    for place in [&scratch, memory.path()] {
        let left: Vec<_> = fs::read_dir(place).expect("a directory").flatten().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Each case and load has a rate, a ratio to what it is compared with, and latencies in order.
fn check(chapter: &Chapter, found: &Found, cases: usize) {
    let number = |case: &str, job: &str, metric: &str| {
        let mut cells = chapter.cells.iter();
        cells.find(|c| (c.case.as_str(), c.job.as_str(), c.metric.as_str()) == (case, job, metric))
    };
    let measured: BTreeSet<&str> = found.runs.iter().map(|run| run.case.as_str()).collect();
    assert_eq!(measured.len(), cases);
    let mut from_fio = 0;
    for run in &found.runs {
        let what = format!("{}, {}", run.case, run.job);
        let of = |metric: &str| {
            let cell = number(&run.case, &run.job, metric);
            cell.unwrap_or_else(|| panic!("no {metric} of {what}"))
        };
        let rate = of("iops");
        assert!(rate.ratio.is_some_and(|ratio| ratio > 0.0), "{what}");
        assert_eq!(of("iops ratio").spread.median, rate.ratio.unwrap_or_default(), "{what}");
        if run.case == "copies by one thread" {
            continue;
        }
        let latencies = ["p50", "p99", "p99.9"].map(|metric| of(metric).spread.median);
        assert!(latencies[0] > 0.0 && latencies.is_sorted(), "{what}: {latencies:?}");
        if let Some(said) = said_by_fio(found, run) {
            assert!((rate.spread.median - said).abs() < 1e-6 * said, "{what}: {said}");
            from_fio += 1;
        }
    }
    let not_by_fio = "copies, RAID 5 within the process four times, two disks over vhost-user";
    assert_eq!(from_fio, (cases - 7) * JOBS.len(), "{not_by_fio}");
    for export in ["NBD", "FUSE", "FUSE and loop", "vhost-user"] {
        let cpu = number(&format!("raid5 over {export}"), JOBS[1], "CPU per request");
        assert!(cpu.is_some(), "the process that serves over {export} is not looked at");
    }
    assert!(chapter.plots.len() == JOBS.len() && chapter.tables.len() == 7 + 2);
}

#[test]
fn a_level_that_is_not_measured_is_refused() {
    let lab = Lab::new();
    let output = lab.run("bench engine --levels 4 --quick", &[]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("'4'"), "{said}");
    let known: Value = serde_json::to_value(EngineOptions::usual(false).levels).expect("JSON");
    assert_eq!(known, serde_json::json!(["0", "1", "5", "6", "10"]));
}
