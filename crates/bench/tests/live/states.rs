//! The states of an array, set up and measured with the real command, on a very small scale.

use std::fs;
use std::path::Path;

use crate::support::{program, skip};
use braid_bench::compare::Plan;
use braid_bench::compare::states::StateOptions;
use braid_bench::folder::Folder;
use braid_bench::model::{Comparison, Note, Run};
use braid_bench::rig::Room;
use braid_bench::tool::Tool;

const JOBS: [(&str, &str); 5] = [
    ("RAID 1 UI", "write-4"),
    ("RAID 1 UI", "read-4"),
    ("no RAID", "write-4"),
    ("no RAID", "read-4"),
    ("RAID 1", "trace-write"),
];

#[test]
fn a_recovery_goes_on_while_it_is_measured_and_a_leg_is_readable_alone() {
    let name = "a_recovery_goes_on_while_it_is_measured_and_a_leg_is_readable_alone";
    let needs = ["/dev/loop-control", "/dev/fuse"];
    if !rustix::process::geteuid().is_root() || !needs.iter().all(|it| Path::new(it).exists()) {
        return skip(name, "it needs root, loop devices and FUSE");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let scratch = directory.path().join("scratch");
    fs::create_dir(&scratch).expect("a directory");
    let braid = Tool::at("braid", program());
    let room = Room::new(scratch.clone(), Vec::new(), braid);
    let folder = Folder::open(&directory.path().join("report")).expect("a folder");
    let member_bytes = 96 << 20;
    let states = StateOptions {
        sizes_mb: vec![4],
        swept_member_bytes: member_bytes,
        traced_member_bytes: member_bytes,
        phase_s: 0.3,
        ..StateOptions::usual(true)
    };
    for case in ["RAID 1 UI", "no RAID", "RAID 1"] {
        let mut standing = states.set_up(case, &room).expect(case);
        for (_, job) in JOBS.into_iter().filter(|(of, _)| *of == case) {
            let mut note = Note { scratch: scratch.clone(), ..Note::default() };
            standing.run(job, &mut note).expect(job);
            folder.keep("states", Run::new(case, job, 0), &note).expect("kept");
        }
    }
    let chapter = states.chapter(&folder.found("states"));
    let value = |case: &str, job: &str, metric: &str| {
        let same = |cell: &&braid_bench::model::Cell| {
            (cell.case.as_str(), cell.job.as_str(), cell.metric.as_str()) == (case, job, metric)
        };
        chapter.cells.iter().find(same).unwrap_or_else(|| panic!("{case} {job}")).spread.median
    };
    for (case, job) in &JOBS[..4] {
        // The limit lets 20 ms through at once.
        let mb_s = value(case, job, "bandwidth");
        assert!((1.0..=160.0).contains(&mb_s), "{case} {job}: {mb_s} MB/s");
    }
    let alone = value("RAID 1", "trace-write", "recovery-alone");
    let in_use = value("RAID 1", "trace-write", "recovery-in-use");
    assert!(in_use < alone && alone < 100.0, "{in_use} and {alone} MB/s");
    let left: Vec<_> = fs::read_dir(&scratch).expect("a directory").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}
