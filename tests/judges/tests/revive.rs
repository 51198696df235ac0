//! Arrays of md's that were not left whole: Braid assembles them, brings them in order, writes, and
//! gives them back to a real md kernel, which finds the content and no mismatch.

use crate::braid_to_md::available;
use crate::golden;
use crate::handoff::{Left, to_md_and_back};
use crate::served::Served;
use crate::support::{self, Run, skip};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What brings an array in order, once it is assembled.
type Cure = fn(&Served, &[PathBuf]);

const CASES: &[(&str, Cure)] = &[
    // In order by themselves: an unclean stop, an interrupted recovery, an interrupted resync.
    ("raid5-dirty", nothing),
    ("raid5-resyncing", nothing),
    ("raid1-halfway", nothing),
    ("raid5-halfway", nothing),
    // Stale members come back by the bitmap, or as new ones.
    ("raid1-stale", |served, members| served.manage("re-add", &members[1])),
    ("raid1-stale-nobm", |served, members| served.manage("add", &members[1])),
    ("raid5-degraded", |served, members| served.manage("add", &members[1])),
    ("raid6-degraded2", |served, members| {
        served.manage("add", &members[1]);
        served.manage("add", &members[4]);
    }),
    // A spare takes over.
    ("raid1-spare", |served, members| served.manage("fail", &members[0])),
    ("raid5-spare", |served, members| served.manage("fail", &members[2])),
    // Whole ones of unusual shapes.
    ("raid0-uneven", nothing),
    ("raid0-uneven-alt", nothing),
    ("linear-3", nothing),
    ("raid1-v10-bitmap", nothing),
    ("raid1-badblocks", nothing),
    ("raid5-badblocks", nothing),
    ("raid5-v11", nothing),
    ("raid6-6-bitmap", nothing),
    ("raid10-5-n2f2", nothing),
    ("raid10-v10-bitmap", nothing),
    // The bitmap lies 1 KiB behind the superblock, which is written often.
    ("raid1-bitmap-1k", fail_and_return),
    ("raid1-v10-bitmap-1k", fail_and_return),
    ("raid5-v11-bitmap-1k", fail_and_return),
];

fn nothing(_: &Served, _: &[PathBuf]) {}

fn fail_and_return(served: &Served, members: &[PathBuf]) {
    for operation in ["fail", "remove", "re-add"] {
        served.manage(operation, &members[1]);
    }
}

#[test]
fn what_md_left_in_disorder_is_brought_in_order() {
    let test = "what_md_left_in_disorder_is_brought_in_order";
    if let Err(reason) = available() {
        return skip(test, &reason);
    }
    let mut left = Vec::new();
    let mut findings = Vec::new();
    for (name, cure) in support::drawn(CASES) {
        match support::attempt(|| revive(name, *cure)) {
            Ok(array) => left.push(array),
            Err(finding) => findings.push(format!("{name}: {finding}")),
        }
    }
    if let Err(finding) = support::attempt(|| to_md_and_back(test, left)) {
        findings.push(finding);
    }
    support::report(&findings);
}

fn revive(name: &str, cure: Cure) -> Left {
    let array = golden::named(name);
    let members = golden::copy(array, &support::directory(&format!("revive-{name}")));
    let served = Served::start(name, &members, &[]);
    served.expect(&array.content, "as md left it");
    cure(&served, &members);
    served.wait_until_whole();
    served.expect(&array.content, "in order");
    let content = array.content.clone().then(8, 2 << 20, 512 << 10).then(9, 1024, 7680);
    for write in &content.over {
        served.write(&content, write.offset, write.length);
    }
    if !["0", "linear"].contains(&array.level()) {
        assert_eq!(served.check(), 0, "mismatches");
    }
    served.expect(&content, "written");
    served.stop();
    let left = Left { name: name.into(), members, content, size_bytes: array.size_bytes };
    left.expect_by_cat("after the stop");
    if array.arguments.contains("-binternal") {
        let again = Served::start(name, &left.members, &[]);
        again.expect(&left.content, "assembled again");
        again.stop();
    }
    left
}

/// After an unclean stop, the resync of an array with a bitmap touches what the bitmap marks and
/// nothing else: parity that was wrong elsewhere still is. A check finds it, a repair mends it.
#[test]
fn a_bitmap_bounds_the_resync() {
    if let Err(reason) = available() {
        return skip("a_bitmap_bounds_the_resync", &reason);
    }
    let array = golden::named("raid5-dirtybm");
    let members = golden::copy(array, &support::directory("bitmap-bounds"));
    // Member 2 holds the parity of each third stripe, of 64 KiB chunks; md marked the first ones.
    let chunk_bytes = 64 << 10;
    for stripe in [0, 60] {
        spoil(&members[2], (1 << 20) + stripe * chunk_bytes);
    }
    let served = Served::start("bitmap-bounds", &members, &[]);
    served.wait_until_whole();
    assert_eq!(served.check(), 8, "sectors of parity that nobody marked");
    Run::of(served.braid("repair").arg("--wait")).expect_success("repair");
    assert_eq!(served.check(), 0, "after a repair");
    served.expect(&array.content, "after a repair");
    served.stop();
}

fn spoil(path: &Path, offset: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("a member");
    file.write_all_at(&[0x5a; 4096], offset).expect("a member");
}

/// `assemble --explain` says who is out and why, and what to do, and writes nothing.
#[test]
fn explains_what_it_would_do() {
    if let Err(reason) = available() {
        return skip("explains_what_it_would_do", &reason);
    }
    let cases: &[(&str, &[usize], &[&str])] = &[
        ("raid5-3", &[0, 1, 2], &["clean", "next: braid assemble"]),
        ("raid5-3", &[0, 1], &["cannot start", "--run"]),
        ("raid5-3", &[0], &["cannot start"]),
        ("raid1-stale", &[0, 1], &["stale", "re-add", "degraded"]),
        ("raid5-degraded", &[0, 1, 2], &["stale", "degraded"]),
        ("raid5-dirty", &[0, 1, 2], &["resync"]),
        ("raid5-dirty", &[0, 1], &["cannot start", "--force"]),
        ("raid5-dirtybm", &[0, 1, 2], &["resync", "bitmap"]),
        ("raid5-halfway", &[0, 1, 2], &["rebuilding"]),
        ("raid5-halfway", &[1, 2], &["cannot start"]),
        ("raid5-spare", &[0, 1, 2, 3], &["spare"]),
        ("raid5-resyncing", &[0, 1, 2], &["resync from"]),
    ];
    let mut findings = Vec::new();
    for (name, which, words) in cases {
        let array = golden::named(name);
        let members: Vec<PathBuf> = which.iter().map(|role| array.members[*role].clone()).collect();
        let before = support::fingerprints(&members);
        let mut command = support::braid();
        command.env("BRAID_RUN_DIR", support::directory("explain"));
        let run = Run::of(command.args(["assemble", "--rename", "x", "--explain"]).args(&members));
        for word in words.iter().filter(|word| !run.stdout.contains(**word)) {
            findings.push(format!("{name} {which:?}: does not say '{word}': {run}"));
        }
        if support::fingerprints(&members) != before {
            findings.push(format!("{name} {which:?}: a member changed"));
        }
    }
    support::report(&findings);
}
