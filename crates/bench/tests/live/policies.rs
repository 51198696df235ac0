//! Consistency policies over NBD, for a moment.

use std::fs;

use crate::support::{program, skip};
use braid_bench::compare::policies::PolicyOptions;
use braid_bench::folder::Folder;
use braid_bench::model::Comparison;
use braid_bench::rig::Room;
use braid_bench::tool::Tool;
use std::path::Path;

use super::turns::{measure, said_by_fio};

const JOBS: [&str; 2] = ["write 4K x32", "70% read 4K x32"];

#[test]
fn every_policy_is_measured_in_turns_with_resync() {
    let test = "every_policy_is_measured_in_turns_with_resync";
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        return skip(test, "it needs root and FUSE");
    }
    if Tool::find("fio", "fio").is_err() {
        return skip(test, "it needs fio");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let memory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let scratch = directory.path().join("scratch");
    fs::create_dir(&scratch).expect("a directory");
    let braid = Tool::at("braid", program());
    let room = Room::new(scratch.clone(), Vec::new(), braid).with_memory(memory.path().into());
    let folder = Folder::open(&directory.path().join("report")).expect("a folder");
    let policies = PolicyOptions { run_ms: 50, member_bytes: 32 << 20, runs: 1 };
    let mut all = Vec::new();
    for group in policies.groups() {
        measure(&policies, &room, &folder, &group.cases, &JOBS);
        all.extend(group.cases);
    }
    let found = folder.found("policies");
    let chapter = policies.chapter(&found);
    assert_eq!((all.len(), found.runs.len()), (10, 10 * JOBS.len()));
    for run in &found.runs {
        let rate = chapter.cells.iter().find(|cell| {
            (&cell.case, &cell.job, cell.metric.as_str()) == (&run.case, &run.job, "iops")
        });
        let rate = rate.expect("a rate");
        let said = said_by_fio(&found, run).expect("fio said something");
        assert!((rate.spread.median - said).abs() < 1e-6 * said, "{rate:?}: {said}");
        assert!(rate.ratio.is_some_and(|ratio| ratio > 0.0), "{rate:?}");
    }
    for place in ["memory", "files"] {
        let commands = |case: &str| {
            let of_case = found.runs.iter().filter(|run| run.case == format!("{case} on {place}"));
            of_case.flat_map(|run| run.commands.clone()).collect::<Vec<String>>().join("\n")
        };
        for (case, words) in [
            ("resync", "--consistency-policy resync"),
            ("bitmap", "--consistency-policy bitmap"),
            ("ppl", "--consistency-policy ppl"),
            ("journal", "--write-journal"),
            ("journal written back", "--journal-mode write-back"),
        ] {
            assert!(commands(case).contains(words), "{case}: {}", commands(case));
        }
    }
    // Files are flushed, and memory is not.
    let flushes = |place: &str| {
        let case = format!("ppl on {place}");
        let run = found.runs(&case, JOBS[0]).next().expect("a run");
        found.text(run, "job.fio").expect("a job file").contains("fsync=32")
    };
    assert!(flushes("files") && !flushes("memory"));
    for place in [&scratch, memory.path()] {
        let left: Vec<_> = fs::read_dir(place).expect("a directory").flatten().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
