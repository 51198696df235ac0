//! Content and place of superblocks: created versions, names of arrays, and removal of devices from
//! arrays. Compared with mdadm where it is installed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::export::{fill, noise};
use crate::support::nodes::{in_memory, members as nodes_of};
use crate::support::{Lab, fingerprint, skip};
use serde_json::Value;

fn examined(lab: &Lab, member: &Path) -> Value {
    let text = lab.ok("examine --json", &[member.to_owned()]);
    let all: Value = serde_json::from_slice(&text).expect("JSON");
    all[0].clone()
}

/// Returns mdadm's report of a member; `None` where mdadm is not installed.
fn by_mdadm(member: &Path) -> Option<String> {
    let output = match Command::new("mdadm").arg("--examine").arg(member).output() {
        Ok(output) => output,
        Err(error) => {
            skip("mdadm --examine", &error.to_string());
            return None;
        }
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn every_version_is_made_and_assembled() {
    let options = [
        "-l 5 -n 3",
        "-l 1 -n 3 --bitmap internal",
        "-l 5 -n 3 --consistency-policy ppl",
        "-l 0 -n 3 --chunk 64K",
        "-l 5 -n 3 --data-offset 4M",
    ];
    for version in ["1.0", "1.1", "1.2"] {
        for options in options {
            let what = format!("create x {options} --metadata {version}");
            let lab = Lab::new();
            let members = lab.members("m", 3, 16);
            let assemble = lab.ok_text(&what, &members);
            for member in &members {
                let sb = examined(&lab, member);
                assert_eq!(sb["version"], version, "{what}");
                if options.contains("4M") {
                    assert_eq!(sb["data_offset_sectors"], 8192, "{what}");
                }
                if let Some(text) = by_mdadm(member) {
                    assert!(text.contains(&format!("Version : {version}\n")), "{what}: {text}");
                    assert!(text.contains(" - correct\n"), "{what}: {text}");
                }
            }
            let start = assemble.trim_end().strip_prefix("braid ").unwrap();
            lab.ok(&format!("{start} --export nbd:unix:x.sock"), &[]);
            let seen: Value = serde_json::from_slice(&lab.ok("status x --json", &[])).unwrap();
            assert_eq!(seen["metadata"], version, "{what}");
            let content = noise(seen["size_bytes"].as_u64().unwrap() as usize);
            fill(&lab.path("x.sock"), "x", &content);
            lab.ok("status x --watch", &[]);
            lab.ok("stop x", &[]);
            assert!(lab.ok("cat", &members) == content, "{what}");
            lab.ok(start, &[]);
            lab.ok("stop x", &[]);
        }
    }
}

#[test]
fn data_begins_where_there_is_room() {
    let lab = Lab::new();
    let members = lab.members("m", 3, 16);
    for (options, said) in [
        ("--data-offset 3K", "use a multiple of 4K"),
        ("--data-offset 8K", "use --data-offset 16K or more"),
        ("--data-offset 16M", "too few"),
        ("--metadata 1.0 --data-offset 16M", "too few"),
        ("--metadata 0.90", "0.90"),
    ] {
        let words = format!("create x -l 5 -n 3 {options}");
        let output = lab.run(&words, &members);
        let line = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && line.contains(said), "{words}: {line}");
    }
    lab.ok("create x -l 5 -n 3 --data-offset 16K --assume-clean", &members);
    lab.ok("assemble x", &members);
    lab.ok("check x --wait", &[]);
}

#[test]
fn a_dry_run_shows_what_would_be_made_and_writes_nothing() {
    let lab = Lab::new();
    let members = lab.members("m", 4, 16);
    let before: Vec<u64> = members.iter().map(|member| fingerprint(member)).collect();
    let text = lab.ok_text("create x -l 5 -n 3 -x 1 --dry-run --metadata 1.0", &members);
    assert!(text.starts_with("x: raid5, left-symmetric, 3 members, chunk 512K, metadata 1.0"));
    assert!(text.contains("capacity 31.00 MiB (32505856 bytes)"), "{text}");
    assert!(text.contains("  role 2: ") && text.contains("  spare: "), "{text}");
    let after: Vec<u64> = members.iter().map(|member| fingerprint(member)).collect();
    assert_eq!(before, after);
    lab.refused(2, "create x -l 5 -n 3 --dry-run", &members, &members);
    // It is as large as was said.
    lab.ok("create x -l 5 -n 3 -x 1 --metadata 1.0", &members);
    lab.refused(1, "create x -l 5 -n 3 -x 1 --dry-run", &members, &members);
    lab.ok("assemble x", &members);
    let seen: Value = serde_json::from_slice(&lab.ok("status x --json", &[])).unwrap();
    assert_eq!(seen["size_bytes"], 32_505_856);
}

#[test]
fn superblocks_are_removed_and_nothing_else() {
    let lab = Lab::new();
    let members = lab.members("m", 4, 16);
    lab.ok("create x -l 1 -n 3 --assume-clean", &members[..3]);
    lab.ok("assemble x", &members[..3]);
    let line = lab.refused(1, "zero-superblock", &members[..1], &[]);
    assert!(line.contains("in use by array x"), "{line}");
    lab.ok("stop x", &[]);
    // All or none: the last one has no superblock.
    let line = lab.refused(1, "zero-superblock", &members, &members);
    assert!(line.contains("m3: has no superblock"), "{line}");

    // Another version at the end, as a device has that was in two arrays.
    let other = lab.members("o", 1, 16);
    lab.ok("create y -l 1 -n 1 --force --metadata 1.0", &other);
    let at = examined(&lab, &other[0])["super_offset_sectors"].as_u64().unwrap() * 512;
    let mut superblock = vec![0; 4096];
    File::open(&other[0]).unwrap().read_exact_at(&mut superblock, at).unwrap();
    let first = File::options().read(true).write(true).open(&members[0]).unwrap();
    first.write_all_at(&superblock, at).unwrap();
    let text = lab.ok_text("zero-superblock", &members[..1]);
    assert!(text.contains("removed superblock 1.2 at byte 4096 (array "), "{text}");
    assert!(text.contains(&format!("removed superblock 1.0 at byte {at} (array ")), "{text}");
    lab.refused(1, "zero-superblock", &members[..1], &members[..1]);
    if by_mdadm_is_there() {
        let output = Command::new("mdadm").arg("--examine").arg(&members[0]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("No md superblock detected"), "{said}");
    }

    // What cannot be trusted goes by force.
    let damaged = File::options().write(true).open(&members[1]).unwrap();
    damaged.write_all_at(&[0x5a], 4096 + 40).unwrap();
    let line = lab.refused(1, "zero-superblock", &members[1..2], &members[1..2]);
    assert!(line.contains("at byte 4096") && line.contains("--force"), "{line}");
    let text = lab.ok_text("zero-superblock --force", &members[1..]);
    assert_eq!(text.matches("removed superblock 1.2").count(), 2, "{text}");
    assert!(text.contains("m3: no superblock"), "{text}");
    lab.refused(2, "zero-superblock node://h:1/x", &[], &[]);
}

fn by_mdadm_is_there() -> bool {
    let there = Command::new("mdadm").arg("--version").output().is_ok();
    if !there {
        skip("mdadm --examine", "mdadm is not installed");
    }
    there
}

#[test]
fn an_array_has_another_name_for_good() {
    let lab = Lab::new();
    let members = lab.members("m", 3, 16);
    lab.ok("create old -l 5 -n 3 --assume-clean", &members);
    let name = |member: &PathBuf| examined(&lab, member)["name"].as_str().unwrap().to_owned();
    let host = name(&members[0]).strip_suffix("old").unwrap().to_owned();
    lab.ok("assemble old", &members);
    let line = lab.refused(1, "rename old new", &members, &[]);
    assert!(line.contains("in use by array old") && line.contains("braid stop old"), "{line}");
    let line = lab.refused(1, "rename old new", &[], &[]);
    assert!(line.contains("the array runs; stop it, and name its members: braid stop"), "{line}");
    lab.ok("stop old", &[]);
    for (words, paths, code, said) in [
        ("rename old a/b", &members[..], 2, "cannot contain '/'"),
        ("rename other new", &members[..], 1, "the members are those of"),
        ("rename old new", &members[..2], 1, "1 of its members is not named"),
        ("rename old new node://h:1/x", &members[..1], 2, "all of its members on nodes"),
    ] {
        let line = lab.refused(code, words, paths, &members);
        assert!(line.contains(said), "{words}: {line}");
    }
    let assemble = lab.ok_text("rename old new", &members);
    assert!(members.iter().all(|member| name(member) == format!("{host}new")));
    if let Some(text) = by_mdadm(&members[0]) {
        assert!(text.contains(&format!("Name : {host}new")), "{text}");
        assert!(text.contains(" - correct\n"), "{text}");
    }
    lab.ok(assemble.trim_end().strip_prefix("braid ").unwrap(), &[]);
    lab.ok("status new", &[]);
    lab.ok("check new --wait", &[]);
    lab.ok("stop new", &[]);
}

#[test]
fn an_array_over_nodes_has_another_name_for_good() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 3);
    let all = nodes_of(&nodes, "");
    lab.ok(&format!("create old -l 5 -n 3 --size 4M{all}"), &[]);
    lab.ok(&format!("assemble old{all}"), &[]);
    let line = lab.refused(1, &format!("rename old new{all}"), &[], &[]);
    assert!(line.contains("in use by another client"), "{line}");
    lab.ok("stop old", &[]);
    let line = lab.refused(1, &format!("rename old new{}", nodes_of(&nodes[1..], "")), &[], &[]);
    assert!(line.contains("1 of its members is not named"), "{line}");
    let assemble = lab.ok_text(&format!("rename old new{all}"), &[]);
    assert!(assemble.contains("/old"), "volumes keep their names: {assemble}");
    lab.ok(assemble.trim_end().strip_prefix("braid ").unwrap(), &[]);
    lab.ok("check new --wait", &[]);
    lab.ok("stop new", &[]);
}
