//! Holders of file locks, as listed in /proc/locks (proc(5)).

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{major, minor};

/// The processes that hold a lock of flock's on this file, by the text of /proc/locks.
pub(super) fn holders(locks: &str, file: &Metadata) -> Vec<u32> {
    let device = file.dev();
    let inode = file.ino();
    let id = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let mut pids: Vec<u32> = locks.lines().filter_map(|line| holder(line, &id)).collect();
    pids.dedup();
    pids
}

/// `1: FLOCK  ADVISORY  WRITE 27270 fe:00:5537874 0 EOF`; with `->` before the kind it waits.
fn holder(line: &str, id: &str) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    let [kind, _, _, pid] = [words.next()?, words.next()?, words.next()?, words.next()?];
    (kind == "FLOCK" && words.next()? == id).then(|| pid.parse().ok()).flatten()
}
