//! Where things end that were made by their own programs, and what is advised to make them smaller.

use braid_array::Role;
use braid_array::format::superblock::Version;
use braid_array::format::{DevRole, Superblock};
use braid_rescue::kind::Kind;
use braid_rescue::reach::{Reach, Thing, look};

use crate::support::{FileImage, Folder, have, run, write_at};

const DISK: u64 = 400 << 20;
const LESS: u64 = 300 << 20;

fn reaches(folder: &Folder) -> Vec<Reach> {
    look(&mut FileImage::open(&folder.path("disk")))
}

fn one(kind: Kind, end_bytes: Option<u64>) -> [Reach; 1] {
    [Reach { thing: Thing::Known(kind), end_bytes }]
}

/// A command line that makes a thing of a number of KiB on the file `disk`.
type Line = fn(u64) -> String;

fn makers() -> Vec<(Kind, Line)> {
    vec![
        (Kind::Ext2, |kib| format!("mkfs.ext4 -q -b 1024 -t ext2 disk {kib}K")),
        (Kind::Ext4, |kib| format!("mkfs.ext4 -q disk {kib}K")),
        (Kind::Ext4, |kib| format!("mkfs.ext4 -q -O ^64bit disk {kib}K")),
        (Kind::Xfs, |kib| format!("mkfs.xfs -q -d size={kib}k disk")),
        (Kind::Btrfs, |kib| format!("mkfs.btrfs -q -b {kib}K disk")),
        (Kind::Ntfs, |kib| format!("mkfs.ntfs -q -F -f -s 512 -p 0 -H 1 -S 1 disk {}", 2 * kib)),
        (Kind::Fat, |kib| format!("mkfs.fat -F 16 disk {kib}")),
        (Kind::Fat, |kib| format!("mkfs.fat -F 32 disk {kib}")),
        (Kind::Swap, |kib| format!("mkswap -q disk {kib}")),
        (Kind::Swap, |kib| format!("mkswap -q --pagesize 65536 disk {kib}")),
    ]
}

#[test]
fn file_systems_end_where_their_programs_had_them_end() {
    let test = "file_systems_end_where_their_programs_had_them_end";
    let programs =
        ["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "mkfs.ntfs", "mkfs.fat", "mkswap", "cryptsetup"];
    if !have(test, &programs) {
        return;
    }
    let folder = Folder::new("reach");
    for (kind, line) in makers() {
        for bytes in [DISK, LESS + (1 << 20)] {
            folder.file("disk", DISK);
            let line = line(bytes >> 10);
            run(&folder, &line, "");
            let found = reaches(&folder);
            let [Reach { thing, end_bytes: Some(end) }] = &found[..] else {
                panic!("{line}: {found:?}")
            };
            assert_eq!(*thing, Thing::Known(kind), "{line}");
            // Some round down to their units, none up.
            assert!(*end <= bytes && *end > bytes - (64 << 10), "{line}: {end} of {bytes}");
        }
    }
    folder.file("disk", DISK);
    assert_eq!(reaches(&folder), []);
    let options = "--batch-mode --pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    run(&folder, &format!("cryptsetup luksFormat --type luks2 {options} disk"), "secret");
    assert_eq!(reaches(&folder), one(Kind::Luks2, None));
}

/// The commands that are advised lead to an end that is there.
#[test]
fn what_is_advised_makes_things_smaller() {
    let test = "what_is_advised_makes_things_smaller";
    if !have(test, &["mkfs.ext4", "resize2fs", "e2fsck", "mkswap", "sfdisk", "mkfs.ntfs"]) {
        return;
    }
    let folder = Folder::new("advised");
    let makers: [(Kind, &str); 3] = [
        (Kind::Ext4, "mkfs.ext4 -q disk"),
        (Kind::Swap, "mkswap -q disk"),
        (Kind::Ntfs, "mkfs.ntfs -q -F -f disk"),
    ];
    for (kind, line) in makers {
        folder.file("disk", DISK);
        run(&folder, line, "");
        let advice = Thing::Known(kind).way_to_shrink(LESS);
        let lines = advice.split([',', ';']).flat_map(|part| part.split(" and "));
        for line in lines.map(|line| line.trim().trim_start_matches("then ")) {
            let line = line.replace("DEVICE", "disk").replace("e2fsck -f", "e2fsck -f -p");
            if !line.starts_with("unmount") && !line.starts_with("swapoff") {
                run(&folder, &line.replace("ntfsresize", "ntfsresize -f -f"), "y\n");
            }
        }
        let found = reaches(&folder);
        assert!(found[0].end_bytes <= Some(LESS), "{kind}: {found:?}");
    }
    folder.file("disk", DISK);
    run(&folder, "sfdisk -q disk", "label: gpt\n,100M\n,100M\n");
    let ends = |folder: &Folder| {
        let ends = reaches(folder).into_iter().map(|reach| (reach.thing, reach.end_bytes));
        ends.collect::<Vec<_>>()
    };
    let partitions = [
        (Thing::Partition(1), Some(101 << 20)),
        (Thing::Partition(2), Some(201 << 20)),
        (Thing::BackupTable, Some(DISK)),
    ];
    assert_eq!(ends(&folder), partitions);
    let advice = Thing::BackupTable.way_to_shrink(LESS).replace("DEVICE", "disk");
    run(&folder, &advice, "");
    let [.., (table, Some(end))] = &ends(&folder)[..] else { panic!("no table") };
    assert_eq!(*table, Thing::BackupTable);
    assert!(*end > 201 << 20 && *end < 202 << 20, "{end}");
    folder.file("disk", DISK);
    run(&folder, "sfdisk -q disk", "label: dos\n,100M\n");
    assert_eq!(ends(&folder), [(Thing::Partition(1), Some(101 << 20))]);
}

#[test]
fn volumes_and_members_of_md_end_where_they_say() {
    let test = "volumes_and_members_of_md_end_where_they_say";
    if !have(test, &["tar", "gzip"]) {
        return;
    }
    let folder = Folder::new("reach-volumes");
    let archive = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lvm/volumes.tar.gz");
    run(&folder, &format!("tar xzf {archive}"), "");
    run(&folder, "mv pv0 disk", "");
    let bytes = std::fs::metadata(folder.path("disk")).expect("a file").len();
    let [Reach { thing: Thing::Known(Kind::Lvm2), end_bytes: Some(end) }] = &reaches(&folder)[..]
    else {
        panic!("no volume")
    };
    assert!(*end <= bytes && *end > bytes / 2, "{end} of {bytes}");
    for version in [Version::V1_2, Version::V1_0] {
        let sector = version.location(DISK / 512).expect("a place");
        let superblock = Superblock {
            version,
            level: 1,
            raid_disks: 1,
            data_offset: if version == Version::V1_0 { 0 } else { 2048 },
            data_size: LESS / 512,
            size_sectors: 4096,
            super_offset: sector,
            roles: vec![DevRole::Active(Role(0))],
            ..Superblock::blank()
        };
        write_at(&folder.file("disk", DISK), sector * 512, &superblock.encode());
        let found = reaches(&folder);
        let [Reach { thing: Thing::Member(_), end_bytes }] = &found[..] else {
            panic!("{version:?}: {found:?}")
        };
        // A superblock at the end is of the member.
        let end = if version == Version::V1_0 { DISK } else { LESS + (1 << 20) };
        assert_eq!(*end_bytes, Some(end), "{version:?}");
    }
}
