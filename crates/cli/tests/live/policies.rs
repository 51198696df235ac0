//! Arrays over nodes that are given another consistency policy while they are stopped.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;

use braid_cluster::ids::Epoch;
use braid_host::fabric::frame::TransportKind;
use braid_host::remote::{Remote, RemoteErrorKind};

use crate::support::export::{fill, noise};
use crate::support::nodes::{
    Node, all_in_sync, detail, in_memory, in_stores, kill_while_writing, members, server,
};
use crate::support::{Lab, until};

const WITH_ROOM: &str = "--consistency-policy ppl --journal-size 16M";

fn update(policy: &str, all: &str) -> String {
    format!("update x --consistency-policy {policy}{all}")
}

#[test]
fn a_stopped_array_over_nodes_is_given_another_policy() {
    let lab = Lab::new();
    let (nodes, _) = in_stores(&lab);
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 5 -n 4 --size 4M {WITH_ROOM}{all}"), &[]);
    let mut content = noise(12 << 20);
    let mut running = server(&lab, &all);
    let used = lab.refused(1, &update("bitmap", &all), &[], &[]);
    assert!(used.contains("in use by another client; stop that array first"), "{used}");
    // It goes on as if nothing had been.
    fill(&lab.path("x.sock"), "x", &content);
    assert_eq!(detail(&lab, "x")["consistency_policy"], "ppl");
    lab.ok("stop x", &[]);
    running.wait().expect("a process that ends");
    let few = members(&nodes[..3], "");
    let line = lab.refused(1, &update("bitmap", &few), &[], &[]);
    assert!(line.contains("1 of its members are not named"), "{line}");
    for policy in ["bitmap", "journal", "resync", "ppl", "journal"] {
        let update = update(policy, &all);
        let started = lab.ok_text(&update, &[]);
        assert!(started.starts_with("braid assemble x node://"), "{started}");
        assert_eq!(lab.ok_text(&update, &[]), format!("x: has policy {policy} already\n"));
        lab.ok(&format!("assemble x{all} --export nbd:unix:x.sock"), &[]);
        assert_eq!(detail(&lab, "x")["consistency_policy"], policy);
        assert!(lab.ok("cat x", &[]) == content, "{policy}");
        content[0] ^= 1;
        fill(&lab.path("x.sock"), "x", &content);
        lab.ok("stop x", &[]);
    }
}

/// Checks that the new policy closes the write hole, until the policy is removed.
fn closes_the_hole(policy: &str) {
    let lab = Lab::new();
    let (mut nodes, stores) = in_stores(&lab);
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 5 -n 4 --size 4M {WITH_ROOM}{all}"), &[]);
    lab.ok(&update("bitmap", &all), &[]);
    lab.ok(&update(policy, &all), &[]);
    let content = noise(12 << 20);
    let mut running = server(&lab, &all);
    fill(&lab.path("x.sock"), "x", &content);
    until("a clean array", || detail(&lab, "x")["state"].to_string().contains("clean"));
    kill_while_writing(&lab, &mut running, &content);
    let last = nodes.pop().expect("four nodes");
    let again = nodes.into_iter().zip(&stores).map(|(node, store)| node.start_again(&lab, store));
    let mut nodes: Vec<Node> = again.collect();
    let unclean = lab.refused(1, &update("resync", &all), &[], &[]);
    assert!(unclean.contains("journals of nodes: assemble it over them and stop it"), "{unclean}");
    last.kill();
    // Nobody has to vouch for anything.
    let left = members(&nodes, "");
    lab.ok(&format!("assemble x{left}"), &[]);
    assert!(lab.ok("cat x", &[]) == content);
    lab.ok("stop x", &[]);
    let degraded = lab.refused(1, &update("resync", &left), &[], &[]);
    assert!(degraded.contains("1 of its members are not named"), "{degraded}");

    let store = format!("--store {} --ring 64M", stores[3].display());
    let address = all.rsplit("node://").next().expect("four members");
    nodes.push(Node::start(&lab, address, &store));
    lab.ok(&format!("assemble x{all}"), &[]);
    all_in_sync(&lab);
    lab.ok("stop x", &[]);
    lab.ok(&update("resync", &all), &[]);
    lab.ok(&format!("assemble x{all}"), &[]);
    assert_eq!(detail(&lab, "x")["consistency_policy"], "resync");
    assert!(lab.ok("cat x", &[]) == content);
    lab.ok("check x --wait", &[]);
    assert_eq!(detail(&lab, "x")["mismatches"], 0);
    lab.ok("stop x", &[]);
}

#[test]
fn partial_parity_that_is_given_over_nodes_closes_the_hole() {
    closes_the_hole("ppl");
}

#[test]
fn journals_that_are_given_over_nodes_close_the_hole() {
    closes_the_hole("journal");
}

#[test]
fn volumes_that_were_made_without_room_get_no_journal() {
    let lab = Lab::new();
    let (nodes, _) = in_stores(&lab);
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 5 -n 4 --size 4M --consistency-policy bitmap{all}"), &[]);
    let line = lab.refused(1, &update("journal", &all), &[], &[]);
    assert!(line.contains("ends with its data") && line.contains("copy what"), "{line}");
    lab.ok(&update("resync", &all), &[]);
    lab.ok(&format!("assemble x{all}"), &[]);
    assert_eq!(detail(&lab, "x")["consistency_policy"], "resync");
    lab.ok("stop x", &[]);
}

/// Returns the parts of a volume that a change writes: its superblock, and the headers of a
/// journal.
fn told(store: &Path) -> Vec<u8> {
    let volume = File::open(store.join("x")).expect("a volume");
    let end = volume.metadata().expect("a size").len();
    let mut told = vec![0; 16384];
    volume.read_exact_at(&mut told[..8192], 0).expect("a superblock");
    volume.read_exact_at(&mut told[8192..], end - 8192).expect("headers");
    told
}

#[test]
fn a_change_that_is_cut_off_is_finished_by_the_same_words() {
    let lab = Lab::new();
    let (nodes, stores) = in_stores(&lab);
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 5 -n 4 --size 4M {WITH_ROOM}{all}"), &[]);
    lab.ok(&format!("assemble x{all} --export nbd:unix:x.sock"), &[]);
    let content = noise(12 << 20);
    fill(&lab.path("x.sock"), "x", &content);
    lab.ok("stop x", &[]);
    // The first node is told first of one kind of thing, and the last of everything last.
    for (policy, seen) in [("journal", 1), ("resync", 0), ("ppl", 2), ("bitmap", 0), ("ppl", 0)] {
        let before = told(&stores[seen]);
        let update = update(policy, &all);
        let mut command = lab.braid();
        let command = command.args(update.split_whitespace());
        let mut cut_off = command.stdout(Stdio::null()).spawn().expect("braid runs");
        until("a write", || told(&stores[seen]) != before);
        cut_off.kill().and_then(|()| cut_off.wait()).expect("an end");
        let said = lab.ok_text(&update, &[]);
        let finished = said.starts_with("braid assemble x ") || said.contains("already");
        assert!(finished, "{said}");
        lab.ok(&format!("assemble x{all}"), &[]);
        assert_eq!(detail(&lab, "x")["consistency_policy"], policy);
        assert!(lab.ok("cat x", &[]) == content, "{policy}");
        lab.ok("stop x", &[]);
    }
}

/// Simulates a cut between the superblocks: only the first volume has the change.
#[test]
fn a_change_that_reached_one_superblock_goes_on_and_not_back() {
    let lab = Lab::new();
    let (nodes, stores) = in_stores(&lab);
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 5 -n 4 --size 4M --consistency-policy bitmap{all}"), &[]);
    let before: Vec<Vec<u8>> =
        stores.iter().map(|store| std::fs::read(store.join("x")).expect("a volume")).collect();
    lab.ok(&update("resync", &all), &[]);
    let nodes: Vec<Node> = nodes
        .into_iter()
        .zip(&stores)
        .enumerate()
        .map(|(number, (node, store))| {
            let address = node.address.clone();
            node.stop();
            if number > 0 {
                std::fs::write(store.join("x"), &before[number]).expect("a volume");
            }
            Node::start(&lab, &address, &format!("--store {} --ring 64M", store.display()))
        })
        .collect();
    let back = lab.refused(1, &update("bitmap", &all), &[], &[]);
    assert!(back.contains("was cut off") && back.contains("say that change again"), "{back}");
    lab.ok(&update("resync", &all), &[]);
    assert_eq!(lab.ok_text(&update("resync", &all), &[]), "x: has policy resync already\n");
    lab.ok(&update("bitmap", &all), &[]);
    lab.ok(&format!("assemble x{all}"), &[]);
    assert_eq!(detail(&lab, "x")["state"], serde_json::json!(["clean"]));
    assert_eq!(detail(&lab, "x")["consistency_policy"], "bitmap");
    lab.ok("stop x", &[]);
    drop(nodes);
}

/// Checks that of two clients for one epoch only one is granted it, and that no epoch is granted
/// while a volume is open.
#[test]
fn an_epoch_is_granted_to_one_client() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 4);
    lab.ok(&format!("create x -l 5 -n 4 --size 1M{}", members(&nodes, "")), &[]);
    let connect = || Remote::connect(&nodes[0].address, TransportKind::Tcp).expect("a node");
    let mut first = connect();
    let mut second = connect();
    let mut third = connect();
    let array = [9; 16];
    first.grant(array, Epoch(5), 1).expect("nobody has it");
    let error = second.grant(array, Epoch(5), 2).expect_err("another client has it");
    assert_eq!(error.kind, RemoteErrorKind::Busy);
    first.open_volume("x", true).expect("it goes on");
    third.open_volume("x", false).expect("a volume");
    third.grant(array, Epoch(6), 3).expect_err("too late");
    first.read(8, 4096).expect("nobody has taken it");
}
