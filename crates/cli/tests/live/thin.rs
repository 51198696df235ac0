//! Thin volumes: volumes on nodes and rebuilt files take space only for written data.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use crate::support::export::{ask, connect, fill, noise, trim};
use crate::support::nodes::{detail, in_stores, members};
use crate::support::{Lab, until};
use serde_json::json;

/// Bytes that the volumes take, all together.
fn taken(stores: &[PathBuf]) -> u64 {
    let blocks = |store: &PathBuf| std::fs::metadata(store.join("x")).unwrap().blocks();
    stores.iter().map(blocks).sum::<u64>() * 512
}

#[test]
fn a_resync_leaves_volumes_thin_and_a_trim_makes_them_thin_again() {
    const MIB: u64 = 1 << 20;
    let lab = Lab::new();
    let (nodes, stores) = in_stores(&lab);
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 5 -n 4 -c 64K --size 16M -k bitmap{all}"), &[]);
    lab.ok(&format!("assemble x{all} --export nbd:unix:x.sock"), &[]);
    until("the end of the resync", || detail(&lab, "x")["sync"]["action"] == json!("idle"));
    assert_eq!(detail(&lab, "x")["state"], json!(["clean"]));
    let empty = taken(&stores);
    assert!(empty < 2 * MIB, "{empty}");

    let content = noise(48 << 20);
    let socket = lab.path("x.sock");
    fill(&socket, "x", &content);
    assert!(taken(&stores) >= 64 * MIB, "{}", taken(&stores));
    let mut export = connect(&socket, "x", content.len());
    // All but a little at either end, which stays as it is or reads as zeroes.
    trim(&mut export, 4096, content.len() - 8192);
    ask(&mut export, 3, 0, &[]).unwrap();
    let left = taken(&stores);
    assert!(left < empty + 3 * MIB, "{left}");
    let read = lab.ok("cat x", &[]);
    assert!(
        read[..4096] == content[..4096]
            && read[(48 << 20) - 4096..] == content[(48 << 20) - 4096..]
    );
    assert!(read[1 << 20..47 << 20].iter().all(|&byte| byte == 0));
    // And parities fit.
    lab.ok("check x --wait", &[]);
    assert_eq!(detail(&lab, "x")["mismatches"], 0);
    drop(export);
    lab.ok("stop x", &[]);
}

/// Checks each kind of background work that fills a member: a mirror's copy, reconstruction from
/// parity, and the replacement of a serving member.
#[test]
fn what_is_rebuilt_keeps_its_holes() {
    for (level, count, replaced) in [("1", 2, false), ("5", 3, false), ("6", 4, true)] {
        let lab = Lab::new();
        let members = lab.members("m", count, 128);
        let shape = format!("create x --level {level} --chunk 64K --raid-devices {count}");
        let shape = if level == "1" { shape.replace("--chunk 64K ", "") } else { shape };
        lab.ok(&format!("{shape} --assume-clean"), &members);
        let socket = lab.path("nbd");
        lab.ok(&format!("assemble x --export nbd:unix:{}", socket.display()), &members);
        let status: serde_json::Value =
            serde_json::from_slice(&lab.ok("status x --json", &[])).unwrap();
        let size = status["size_bytes"].as_u64().unwrap() as usize;
        let mut export = connect(&socket, "x", size);
        let content = noise(1 << 20);
        ask(&mut export, 1, 40 << 20, &content).unwrap();
        let new = lab.members("new", 1, 128);
        // Data of before, in a place that is zero in the array.
        let file = File::options().write(true).open(&new[0]).unwrap();
        file.write_all_at(&content, 100 << 20).unwrap();
        if replaced {
            lab.ok("add x", &new);
            lab.ok("replace x", &members[1..2]);
        } else {
            lab.ok("fail x", &members[1..2]);
            lab.ok("remove x", &members[1..2]);
            lab.ok("add x", &new);
        }
        let in_sync = || {
            let text = lab.ok_text("detail x", &[]);
            let name = new[0].display().to_string();
            let line = text.lines().find(|line| line.contains(&name)).unwrap_or_default();
            line.contains("active sync")
        };
        until("the rebuild", in_sync);
        assert_eq!(lab.run("check x --wait", &[]).status.code(), Some(0), "level {level}");
        drop(export);
        lab.ok("stop x", &[]);
        // What was written, what had been there, and metadata.
        let used = std::fs::metadata(&new[0]).unwrap().blocks() * 512;
        assert!(used < 8 << 20, "level {level}: {used} bytes of 128 MiB");
    }
}
