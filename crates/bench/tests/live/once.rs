//! bonnie++ over limited members and qemu-img on disks of arrays: a case of each, once.

use std::fs;
use std::path::Path;

use crate::support::{program, skip};
use braid_bench::compare::{Plan, chunk, members};
use braid_bench::folder::Folder;
use braid_bench::model::Comparison;
use braid_bench::rig::Room;
use braid_bench::tool::Tool;

use super::turns::measure;

/// Measures these cases; the metrics that each job has then.
fn metrics(comparison: &dyn Comparison, cases: &[&str], jobs: &[&str]) -> Vec<String> {
    let directory = tempfile::tempdir().expect("a directory");
    let scratch = directory.path().join("scratch");
    fs::create_dir(&scratch).expect("a directory");
    let room = Room::new(scratch.clone(), Vec::new(), Tool::at("braid", program()));
    let folder = Folder::open(&directory.path().join("report")).expect("a folder");
    let cases: Vec<String> = cases.iter().map(|&case| case.to_owned()).collect();
    measure(comparison, &room, &folder, &cases, jobs);
    let left: Vec<_> = fs::read_dir(&scratch).expect("a directory").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    let chapter = comparison.chapter(&folder.found(comparison.name()));
    assert!(chapter.cells.iter().all(|cell| cell.spread.median > 0.0), "{:?}", chapter.cells);
    chapter.cells.into_iter().map(|cell| format!("{}: {}", cell.job, cell.metric)).collect()
}

fn missing(programs: &[(&str, &str)]) -> Option<String> {
    let needs = ["/dev/loop-control", "/dev/fuse"];
    if !rustix::process::geteuid().is_root() || !needs.iter().all(|it| Path::new(it).exists()) {
        return Some("it needs root, loop devices and FUSE".to_owned());
    }
    let missing = programs.iter().find(|(name, package)| Tool::find(name, package).is_err());
    missing.map(|(name, package)| format!("it needs {name}: install {package}"))
}

#[test]
fn bonnie_runs_on_two_limited_members() {
    let programs =
        [("bonnie++", "bonnie++"), ("fio", "fio"), ("mkfs.xfs", "xfsprogs"), ("blockdev", "mount")];
    if let Some(reason) = missing(&programs) {
        return skip("bonnie_runs_on_two_limited_members", &reason);
    }
    let members = members::MembersOptions { write_ms: 540, read_ms: 50, whole: false, runs: 1 };
    let jobs = ["bonnie++ begins", "bonnie++", "warm read", "cold read"];
    let found = metrics(&members, &["t1.micro x2"], &jobs);
    for metric in ["bonnie++: write", "bonnie++: seeks", "bonnie++: write, CPU", "cold read: read"]
    {
        assert!(found.iter().any(|one| one == metric), "{metric} is not in {found:?}");
    }
}

#[test]
fn chunks_are_swept_and_counted_and_disks_are_images() {
    if let Some(reason) = missing(&[("fio", "fio"), ("qemu-img", "qemu-utils")]) {
        return skip("chunks_are_swept_and_counted_and_disks_are_images", &reason);
    }
    let small = chunk::ChunkOptions {
        levels: vec!["5".to_owned()],
        chunks_bytes: vec![256 << 10],
        requests_bytes: vec![4 << 10],
        streams: vec![2],
        area_bytes: 16 << 20,
        image_bytes: 16 << 20,
        seconds: 0.02,
        ..chunk::ChunkOptions::usual(true)
    };
    let jobs = ["random writes, depth 32", "read streams"];
    let swept = metrics(&small, &["RAID 5, chunk 256K"], &jobs);
    let expected = ["4K random write, depth 32: bandwidth", "2 sequential reads: bandwidth"];
    assert_eq!(swept, expected);
    let counted = metrics(&small, &["RAID 5, chunk 256K, counted"], &["4K writes"]);
    assert_eq!(counted, ["4K writes: moved"]);
    let disks = ["array", "qcow2 image on ext4", "array over NBD"];
    assert_eq!(metrics(&small, &disks, &["4K write"]).len(), disks.len());
}
