//! Bad members: refused with one line and the next step, and not a byte changes.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::support::Lab;
use rustix::fs::FlockOperation;

fn created(lab: &Lab, name: &str, level: &str, count: usize) -> Vec<PathBuf> {
    let members = lab.members(name, count, 8);
    let words =
        format!("create {name} --level {level} --raid-devices {count} --assume-clean --chunk 64K");
    let words = if level == "1" { words.replace(" --chunk 64K", "") } else { words };
    lab.ok(&words, &members);
    members
}

fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
}

/// Both ways to get at an array refuse these members.
fn both_refuse(lab: &Lab, members: &[PathBuf], said: &str) {
    for words in ["cat", "assemble"] {
        let line = lab.refused(1, words, members, members);
        assert!(line.contains(said), "braid {words}: {line}");
    }
}

#[test]
fn members_that_do_not_fit_are_refused() {
    let lab = Lab::new();
    let blank = lab.members("blank", 1, 8);
    both_refuse(&lab, &blank, "no md superblock");

    let few = created(&lab, "few", "5", 3);
    both_refuse(&lab, &few[..1], "members");
    let foreign = created(&lab, "foreign", "5", 3);
    both_refuse(&lab, &[&few[..2], &foreign[2..]].concat(), "another array");
    let mixed = [&few[..], &blank[..]].concat();
    both_refuse(&lab, &mixed, "no md superblock");
    let twice = [&few[..], &few[..1]].concat();
    both_refuse(&lab, &twice, "named twice");
    let link = lab.path("link");
    std::os::unix::fs::symlink(&few[0], &link).unwrap();
    let linked = [&few[..], std::slice::from_ref(&link)].concat();
    let said = format!("{}: is the same device as {};", link.display(), few[0].display());
    both_refuse(&lab, &linked, &said);

    let cut = created(&lab, "cut", "5", 3);
    OpenOptions::new().write(true).open(&cut[0]).unwrap().set_len(4 << 20).unwrap();
    let line = lab.refused(1, "assemble", &cut[..2], &cut);
    assert!(line.contains("cut off"), "{line}");
    // What is left of it is read.
    let output = lab.run("cat", &cut[..2]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("is cut off: "), "{said}");
    let nowhere = [lab.path("nowhere")];
    assert!(lab.refused(1, "cat", &nowhere, &[]).contains("no such file"));
}

#[test]
fn flipped_bits_in_a_superblock_are_noticed() {
    let lab = Lab::new();
    let members = created(&lab, "flip", "5", 3);
    // One bit in each field of the superblock, then right again.
    for offset in [0, 4, 16, 40, 72, 76, 88, 92, 128, 136, 144, 160, 168, 200, 216, 220, 256] {
        flip(&members[0], 4096 + offset);
        let line = lab.refused(1, "cat", &members[..2], &members);
        assert!(line.contains("superblock") || line.contains("members"), "{offset}: {line}");
        lab.refused(1, "examine", &members[..1], &members);
        flip(&members[0], 4096 + offset);
    }
    lab.ok("cat --length 1", &members[..2]);
}

#[test]
fn a_member_in_use_is_left_alone() {
    let lab = Lab::new();
    let members = created(&lab, "used", "5", 3);
    let holder = File::open(&members[1]).unwrap();
    rustix::fs::flock(&holder, FlockOperation::LockExclusive).unwrap();
    both_refuse(&lab, &members, "in use");
    let words = "create x --force --level 5 --raid-devices 3";
    assert!(lab.refused(1, words, &members, &members).contains("in use"));
    // Said, for a process that another test has just forked may have the file as well.
    rustix::fs::flock(&holder, FlockOperation::Unlock).unwrap();
    lab.ok("cat --length 1", &members);
}

#[test]
fn memory_becomes_a_member_only_of_a_new_array() {
    let lab = Lab::new();
    let members = created(&lab, "plain", "1", 2);
    lab.ok("assemble", &members);
    let line = lab.refused(1, "add plain mem:16M", &[], &[]);
    let said = "add plain mem:16M: memory is no device that can be added; \
                add a file or block device\n";
    assert!(line.ends_with(said), "{line}");
    lab.refused(1, "re-add plain mem:16M", &[], &[]);
}

#[test]
fn two_halves_of_a_split_mirror_are_not_joined() {
    let lab = Lab::new();
    let members = created(&lab, "split", "1", 2);
    for half in &members {
        lab.ok("assemble split --run", std::slice::from_ref(half));
        lab.ok("stop split", &[]);
    }
    both_refuse(&lab, &members, "split");
    lab.ok("cat --length 1", &members[..1]);
}

#[test]
fn create_overwrites_nothing_unasked() {
    let lab = Lab::new();
    let members = created(&lab, "old", "5", 3);
    let new = "create new --level 1 --raid-devices 3";
    let line = lab.refused(1, new, &members, &members);
    assert!(line.contains("superblock") && line.contains("--force"), "{line}");
    lab.ok(&format!("{new} --force"), &members);

    let disks = lab.members("fs", 2, 8);
    let file = OpenOptions::new().write(true).open(&disks[1]).unwrap();
    file.write_all_at(b"XFSB", 0).unwrap();
    let mirror = "create new --level 1 --raid-devices 2";
    assert!(lab.refused(1, mirror, &disks, &disks).contains("xfs"));
    let tiny = lab.members("tiny", 2, 1);
    assert!(lab.refused(1, mirror, &tiny, &tiny).contains("too few"));
    let same = [disks[0].clone(), disks[0].clone()];
    assert!(lab.refused(1, mirror, &same, &disks).contains("named twice"));
}

#[test]
fn create_warns_of_what_may_be_a_mistake() {
    let lab = Lab::new();
    let small = lab.members("s", 2, 16);
    let large = lab.members("l", 1, 64);
    let warned = |words: &str, members: &[PathBuf]| {
        let output = lab.run(words, members);
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let unequal = [&small[..], &large].concat();
    assert!(warned("create x -l 5 -n 3", &unequal).contains("l0: 48 of 64 MiB stay unused"));
    let open = warned("create x -l 5 -n 3 --size 8M --force", &unequal);
    let told = "warning: create x: a power cut together with a lost member";
    assert!(open.starts_with(told), "{open}");
    assert!(open.contains("--consistency-policy ppl") && open.lines().count() == 1, "{open}");
    for asked in ["resync", "ppl"] {
        let words = format!("create x -l 5 -n 3 --size 8M --force --consistency-policy {asked}");
        assert_eq!(warned(&words, &unequal), "", "what was asked for is known");
    }
    assert_eq!(warned("create x -l 0 -n 3 --force", &unequal), "");

    lab.ok("create home -l 1 -n 2 --assume-clean --force", &small);
    lab.ok("assemble home", &small);
    let line = warned("add home --force", &large);
    assert!(line.contains("l0: ") && line.contains(" of 64 MiB stay unused"), "{line}");
    let members = lab.members("m", 2, 16);
    assert_eq!(warned("create y -l 1 -n 2 --force", &members), "");
    let full = lab.members("d", 2, 64);
    let file = OpenOptions::new().write(true).open(&full[1]).unwrap();
    file.write_all_at(&vec![7; 8 << 20], 24 << 20).unwrap();
    let said = "d1: holds data of no known kind, at byte 25165824 for one; it is overwritten";
    let line = warned("create z -l 1 -n 2", &full);
    assert!(line.contains(said) && line.lines().count() == 1, "{line}");
}

#[test]
fn names_from_superblocks_cannot_forge_lines() {
    let lab = Lab::new();
    let members = created(&lab, "forge", "1", 2);
    let broken = lab.path("a\nbraid: all is well; go on");
    std::fs::copy(&members[0], &broken).unwrap();
    flip(&broken, 4096 + 72);
    lab.refused(1, "cat", &[broken], &members);
}
