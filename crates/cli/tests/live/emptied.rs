//! Nodes that are there, and have lost the volume, or cannot read it.

use std::path::{Path, PathBuf};

use crate::support::Lab;
use crate::support::export::{fill, noise};
use crate::support::nodes::{Node, detail, members};

/// Five nodes, and where they keep their volumes.
fn five(lab: &Lab) -> (Vec<Node>, Vec<PathBuf>) {
    let start = |number| {
        let store = lab.path(&format!("s{number}"));
        std::fs::create_dir(&store).unwrap();
        (start_on(lab, "127.0.0.1:0", &store), store)
    };
    (0..5).map(start).unzip()
}

fn start_on(lab: &Lab, address: &str, store: &Path) -> Node {
    Node::start(lab, address, &format!("--store {} --ring 64M", store.display()))
}

/// Fills and stops an array, and restarts one of its nodes on a store changed by `spoil`.
fn with_one_spoiled(lab: &Lab, spoil: impl FnOnce(&Path)) -> (Vec<Node>, Vec<PathBuf>, Vec<u8>) {
    let (mut nodes, stores) = five(lab);
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 6 -n 5 -c 64K --size 4M{all}"), &[]);
    lab.ok(&format!("assemble x{all} --export nbd:unix:x.sock"), &[]);
    let content = noise(12 << 20);
    fill(&lab.path("x.sock"), "x", &content);
    lab.ok("stop x", &[]);
    let node = nodes.remove(2);
    let address = node.address.clone();
    node.stop();
    spoil(&stores[2]);
    nodes.insert(2, start_on(lab, &address, &stores[2]));
    (nodes, stores, content)
}

/// Checks that the array starts without the spoiled volume, and reports the volume and the reason.
fn starts_without(spoil: impl FnOnce(&Path), why: &str) {
    let lab = Lab::new();
    let (nodes, _stores, content) = with_one_spoiled(&lab, spoil);
    let all = members(&nodes, "");
    let spoiled = format!("node://{}/x", nodes[2].address);
    let explained = lab.ok_text(&format!("assemble x{all} --explain"), &[]);
    assert!(explained.contains(&format!("out  {spoiled}: {why}")), "{explained}");
    assert!(explained.contains("can start: degraded, a member is missing"), "{explained}");
    let output = lab.run(&format!("assemble x{all}"), &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains(&format!("{spoiled} is ")) && said.contains(why), "{said}");
    assert!(!said.contains("create"), "{said}");
    assert_eq!(detail(&lab, "x")["state"].as_array().unwrap().len(), 2, "clean, degraded");
    let refused = || {
        let all = detail(&lab, "x")["members"].as_array().expect("members").clone();
        let member = all.into_iter().find(|member| member["device"] == *spoiled);
        member.map(|member| (member["state"].clone(), member["refused"].clone()))
    };
    let (state, told) = refused().expect("a row of it");
    assert_eq!(state, serde_json::json!(["absent"]));
    let told = told.as_str().expect("a reason");
    assert!(told.contains(why) && told.contains("in its place"), "{told}");
    for words in ["status x", "detail x"] {
        let text = lab.ok_text(words, &[]);
        assert!(text.contains(&spoiled) && text.contains("not taken in: "), "{text}");
        assert!(text.contains(why), "{text}");
    }
    assert!(lab.ok("cat x", &[]) == content);
    let log = std::fs::read_to_string(lab.path("run/x.log")).unwrap();
    assert!(log.contains(&format!("{spoiled} is ")) && log.contains(why), "{log}");
    lab.ok("stop x", &[]);
    assert!(lab.ok(&format!("cat x{all}"), &[]) == content, "and is read without it");
}

#[test]
fn an_array_starts_without_a_node_whose_store_was_emptied() {
    let empty = |store: &Path| {
        std::fs::remove_dir_all(store).unwrap();
        std::fs::create_dir(store).unwrap();
    };
    starts_without(empty, "there is no volume of this name");
}

#[test]
fn an_array_starts_without_a_node_that_cannot_open_its_volume() {
    let replace = |store: &Path| {
        std::fs::remove_file(store.join("x")).unwrap();
        std::fs::create_dir(store.join("x")).unwrap();
    };
    starts_without(replace, "is a directory");
}

#[test]
fn an_array_starts_without_a_node_whose_volume_was_overwritten() {
    let overwrite = |store: &Path| {
        let bytes = std::fs::metadata(store.join("x")).unwrap().len();
        std::fs::write(store.join("x"), noise(usize::try_from(bytes).unwrap())).unwrap();
    };
    starts_without(overwrite, "no md superblock");
}

#[test]
fn a_volume_that_too_many_nodes_have_lost_is_not_to_be_created_again() {
    let lab = Lab::new();
    let (mut nodes, stores, _) = with_one_spoiled(&lab, |store| {
        std::fs::remove_file(store.join("x")).unwrap();
    });
    for number in [0, 1] {
        let node = nodes.remove(number);
        let address = node.address.clone();
        node.stop();
        std::fs::remove_file(stores[number].join("x")).unwrap();
        nodes.insert(number, start_on(&lab, &address, &stores[number]));
    }
    let all = members(&nodes, "");
    let line = lab.refused(1, &format!("assemble x{all}"), &[], &[]);
    let first = format!("node://{}/x", nodes[0].address);
    assert!(line.contains(&first) && line.contains("there is no volume of this name"), "{line}");
    assert!(line.contains("2 of the 5 members"), "{line}");
    assert!(!line.contains("create"), "{line}");
    // Where nobody has it, it may never have been made.
    let line = lab.refused(1, &format!("assemble y{all}"), &[], &[]);
    assert!(line.contains("check the name, or create it"), "{line}");
}
