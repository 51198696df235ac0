//! btrfs, as mkfs.btrfs makes it.

use std::fs;

use braid_array::level::Level;

use super::{UUID, assert_found, assert_stale};
use crate::support::{Folder, have, run};

/// A btrfs of 128 MiB with small files in its trees, and some larger ones.
fn btrfs(folder: &Folder, options: &str) -> Vec<u8> {
    let tree = folder.path("tree");
    let _ = fs::remove_dir_all(&tree);
    for directory in 0..40 {
        let path = tree.join(format!("d{directory}"));
        fs::create_dir_all(&path).unwrap();
        for file in 0..20 {
            fs::write(path.join(format!("f{file}")), vec![file; 1500]).unwrap();
        }
        fs::write(path.join("large"), vec![directory; 200_000]).unwrap();
    }
    let image = folder.file("btrfs", 128 << 20);
    run(folder, &format!("mkfs.btrfs -q -f -U {UUID} {options} --rootdir tree btrfs"), "");
    fs::read(image).unwrap()
}

#[test]
fn btrfs_is_found() {
    if !have("btrfs_is_found", &["mkfs.btrfs"]) {
        return;
    }
    let folder = Folder::new("recover-btrfs");
    let contents = [btrfs(&folder, "-m dup"), btrfs(&folder, "-m single")];
    let all = [
        (Level::Raid0, "", 64, vec![2, 0, 1], "1@2048 2@2048 0@2048"),
        (Level::Raid5, "ls", 64, vec![2, 0, 1], "1@2048 2@2048 0@2048"),
        (Level::Raid5, "ra", 128, vec![1, 3, 0], "2@2048 0@2048 - 1@2048"),
        (Level::Raid6, "ls", 32, vec![3, 0, 2, 1], "1@2048 3@2048 2@2048 0@2048"),
        (Level::Raid6, "ls", 64, vec![3, 0, 1, 4], "1@2048 2@2048 - 0@2048 3@2048"),
    ];
    // Trees lie side by side in one part of it, which leaves more open than metadata all over.
    assert_found(&contents, &all, &["high", "likely"]);
}

#[test]
fn a_stale_member_of_a_btrfs_is_left_out() {
    if !have("a_stale_member_of_a_btrfs_is_left_out", &["mkfs.btrfs", "btrfs"]) {
        return;
    }
    let folder = Folder::new("recover-btrfs-stale");
    let old = btrfs(&folder, "-m dup");
    // That writes a tree anew, elsewhere.
    run(&folder, "btrfs check --repair --force --init-csum-tree btrfs", "");
    assert_stale(&old, &fs::read(folder.path("btrfs")).unwrap(), 16);
}
