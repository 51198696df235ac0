//! NTFS, as mkfs.ntfs and ntfscp of ntfs-3g make it.

use std::fs;

use braid_array::level::Level;

use super::{assert_found, assert_stale};
use crate::support::{Folder, have, run};

const PROGRAMS: [&str; 2] = ["mkfs.ntfs", "ntfscp"];

/// An NTFS of 48 MiB without files.
fn ntfs(folder: &Folder) {
    folder.file("ntfs", 48 << 20);
    run(folder, "mkfs.ntfs -F -Q -q ntfs", "");
    fs::write(folder.path("source"), vec![7; 9000]).unwrap();
}

/// With these files, each of which has a record in the table.
fn add(folder: &Folder, files: std::ops::Range<usize>) -> Vec<u8> {
    for file in files {
        run(folder, &format!("ntfscp -q -f ntfs source f{file}"), "");
    }
    fs::read(folder.path("ntfs")).unwrap()
}

#[test]
fn ntfs_is_found() {
    if !have("ntfs_is_found", &PROGRAMS) {
        return;
    }
    let folder = Folder::new("recover-ntfs");
    ntfs(&folder);
    let content = add(&folder, 0..500);
    let all = [
        (Level::Raid0, "", 16, vec![2, 0, 1], "1@2048 2@2048 0@2048"),
        (Level::Raid5, "ls", 16, vec![2, 0, 1], "1@2048 2@2048 0@2048"),
        (Level::Raid5, "ra", 8, vec![1, 3, 0], "2@2048 0@2048 - 1@2048"),
        (Level::Raid6, "ls", 16, vec![3, 0, 2, 1], "1@2048 3@2048 2@2048 0@2048"),
        (Level::Raid6, "ls", 4, vec![3, 0, 1, 4], "1@2048 2@2048 - 0@2048 3@2048"),
    ];
    // Records lie side by side in one part of it, which leaves more open than metadata all over.
    assert_found(&[content], &all, &["high", "likely"]);
}

#[test]
fn a_stale_member_of_an_ntfs_is_left_out() {
    if !have("a_stale_member_of_an_ntfs_is_left_out", &PROGRAMS) {
        return;
    }
    let folder = Folder::new("recover-ntfs-stale");
    ntfs(&folder);
    let old = add(&folder, 0..400);
    assert_stale(&old, &add(&folder, 400..440), 8);
}
