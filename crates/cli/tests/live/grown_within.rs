//! Arrays whose members are arrays, one of which gets more disks.

use std::fs::File;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::export::{connect, fill, noise, read};
use crate::support::{Lab, until};

const HALVES: [&str; 2] = ["left", "right"];

fn status(lab: &Lab, name: &str) -> Value {
    serde_json::from_slice(&lab.ok(&format!("status {name} --json"), &[])).expect("JSON")
}

fn size(lab: &Lab, name: &str) -> usize {
    status(lab, name)["size_bytes"].as_u64().expect("a size") as usize
}

/// The members of two arrays with parity, which the mirror `top` is made of.
fn mirrored_stripes(lab: &Lab) -> [Vec<PathBuf>; 2] {
    let halves = lab.members("h", 2, 0);
    let members = HALVES.map(|name| {
        let members = lab.members(name, 3, 8);
        lab.ok(&format!("create {name} -l 5 -n 3 --chunk 64K --assume-clean"), &members);
        lab.ok(&format!("assemble {name} --export nbd:unix:{name}.sock"), &members);
        members
    });
    for half in &halves {
        let bytes = size(lab, "left") as u64;
        File::create(half).and_then(|file| file.set_len(bytes)).expect("a half");
    }
    lab.ok("create top -l 1 -n 2 --assume-clean", &halves);
    for (name, half) in HALVES.iter().zip(&halves) {
        let content = std::fs::read(half).expect("a half");
        fill(&lab.path(&format!("{name}.sock")), name, &content);
        lab.ok(&format!("stop {name}"), &[]);
    }
    members
}

fn assemble(lab: &Lab, members: &[Vec<PathBuf>; 2]) {
    lab.ok("assemble top --export nbd:unix:top.sock", &members.concat());
}

fn compare(lab: &Lab, content: &[u8], what: &str) {
    let mut stream = connect(&lab.path("top.sock"), "top", size(lab, "top"));
    for (number, part) in content.chunks(1 << 20).enumerate() {
        let found = read(&mut stream, (number << 20) as u64, part.len()).expect("readable");
        assert!(found == part, "{what}: MiB {number} differs");
    }
}

#[test]
fn arrays_within_get_more_disks_and_the_one_around_them_uses_it() {
    let lab = Lab::new();
    let mut members = mirrored_stripes(&lab);
    assemble(&lab, &members);
    let before = size(&lab, "top");
    let content = noise(before);
    fill(&lab.path("top.sock"), "top", &content);
    lab.ok("stop top", &[]);
    for (name, members) in HALVES.iter().zip(&mut members) {
        let added = lab.members(&format!("{name}-more"), 1, 8);
        lab.ok(&format!("assemble {name}"), members);
        lab.ok(&format!("limit {name} --max 2M"), &[]);
        let words = format!("grow {name} --raid-devices 4 --add {}", added[0].display());
        lab.ok(&words, &[]);
        let moved = || status(&lab, name)["sync"]["position_bytes"].as_u64() > Some(1 << 20);
        until("a part has moved", moved);
        lab.ok(&format!("stop {name}"), &[]);
        members.extend(added);
    }
    // Both go on in the process of the array around them.
    assemble(&lab, &members);
    let children = status(&lab, "top")["children"].clone();
    let moves = |child: &Value| child["sync"]["from"]["raid_devices"] == 3;
    assert!(children.as_array().expect("two").iter().any(moves), "{children}");
    compare(&lab, &content, "while data move");
    until("all has moved", || {
        let status = status(&lab, "top");
        let children = status["children"].as_array().expect("two");
        children.iter().all(|child| child["sync"]["from"].is_null())
    });
    compare(&lab, &content, "moved");
    lab.ok("stop top", &[]);
    assemble(&lab, &members);
    lab.ok("grow top --size max --wait", &[]);
    assert!(size(&lab, "top") > before + before / 4, "{} of {before}", size(&lab, "top"));
    compare(&lab, &content, "grown");
    lab.ok("check top --wait", &[]);
    lab.ok("stop top", &[]);
}
