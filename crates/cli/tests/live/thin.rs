//! Volumes on nodes take the space of what is written to them.

use std::os::unix::fs::MetadataExt;
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
