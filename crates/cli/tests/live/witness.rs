//! Nodes that vote and hold nothing.

use std::path::{Path, PathBuf};
use std::process::Child;

use crate::support::export::{fill, noise};
use crate::support::nodes::{Node, detail, in_stores, kill_while_writing, members, server};
use crate::support::{Lab, until};
use serde_json::json;

const BYTES: usize = 4 << 20;

/// A mirror of two that is served, its witness, and where that keeps its votes.
struct Mirror {
    lab: Lab,
    nodes: Vec<Node>,
    stores: Vec<PathBuf>,
    all: String,
    witness: Node,
    votes: PathBuf,
    server: Child,
    content: Vec<u8>,
}

fn witness(lab: &Lab, listen: &str, store: &Path) -> Node {
    Node::start(lab, listen, &format!("--witness --store {}", store.display()))
}

fn mirror() -> Mirror {
    let lab = Lab::new();
    let (mut nodes, stores) = in_stores(&lab);
    nodes.truncate(2);
    let votes = lab.path("votes");
    let witness = witness(&lab, "127.0.0.1:0", &votes);
    let all = members(&nodes, "");
    let create = format!("create x -l 1 -n 2 --size 4M{all} --witness");
    let line = lab.refused(2, &format!("{create} {}", nodes[0].address), &[], &[]);
    assert!(line.contains("votes anyway"), "{line}");
    let assemble = format!("assemble x{all} --witness {}", nodes[0].address);
    let line = lab.refused(2, &assemble, &[], &[]);
    assert!(line.contains("has a member of the array, and votes anyway"), "{line}");
    lab.ok(&format!("{create} node://{}", witness.address), &[]);
    let server = server(&lab, &all);
    let content = noise(BYTES);
    fill(&lab.path("x.sock"), "x", &content);
    Mirror { lab, nodes, stores, all, witness, votes, server, content }
}

#[test]
fn a_mirror_starts_with_one_node_and_the_witness_and_not_with_one_node_alone() {
    let Mirror { lab, mut nodes, all, witness: seen, votes, mut server, content, .. } = mirror();
    let said = detail(&lab, "x");
    let expected = json!([{ "address": seen.address, "reachable": true }]);
    assert_eq!(said["witnesses"], expected, "{said}");
    assert_eq!(said["voters"].as_array().map(Vec::len), Some(3), "{said}");
    nodes.pop().expect("two nodes").kill();
    kill_while_writing(&lab, &mut server, &content);
    let address = seen.address.clone();
    seen.kill();
    let refused = lab.run(&format!("assemble x{all}"), &[]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("1 nodes that vote are there, and 2 are needed"), "{said}");
    assert!(said.contains(&format!("start the witness at {address}")), "{said}");
    let _back = witness(&lab, &address, &votes);
    lab.ok(&format!("assemble x{all}"), &[]);
    assert!(lab.ok("cat x", &[]) == content);
    assert!(lab.ok_text("status x", &[]).contains(&format!("witness {address}: reachable")));
    lab.ok("stop x", &[]);
}

#[test]
fn a_member_that_missed_writes_is_not_started_with_the_witness() {
    let Mirror { lab, mut nodes, stores, all, witness: _seen, mut server, content, .. } = mirror();
    let late = nodes.pop().expect("two nodes");
    let address = late.address.clone();
    late.kill();
    until("a view without it", || detail(&lab, "x")["view"]["in_sync"] == json!([0]));
    let content: Vec<u8> = content.iter().map(|byte| byte ^ 0x5a).collect();
    fill(&lab.path("x.sock"), "x", &content);
    server.kill().and_then(|()| server.wait()).expect("an end");
    let first = nodes.pop().expect("a node");
    let first_address = first.address.clone();
    first.kill();
    let storage = |number: usize| format!("--store {} --ring 64M", stores[number].display());
    let _late = Node::start(&lab, &address, &storage(1));
    let refused = lab.run(&format!("assemble x{all}"), &[]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("missed writes"), "{said}");
    let _first = Node::start(&lab, &first_address, &storage(0));
    lab.ok(&format!("assemble x{all}"), &[]);
    assert!(lab.ok("cat x", &[]) == content);
    lab.ok("stop x", &[]);
}

#[test]
fn a_member_is_not_replaced_while_its_vote_is_needed() {
    let Mirror { lab, nodes, all: _, witness: seen, votes, server: _server, content, .. } =
        mirror();
    let third = Node::start(&lab, "127.0.0.1:0", "--memory --ring 64M");
    let address = seen.address.clone();
    seen.kill();
    let reaches = |lab: &Lab, reachable: bool| {
        until("the witness", || detail(lab, "x")["witnesses"][0]["reachable"] == json!(reachable));
    };
    reaches(&lab, false);
    let replace = format!("replace x node://{} --with node://{}", nodes[1].address, third.address);
    let said = lab.refused(1, &replace, &[], &[]);
    assert!(said.contains("start the witness"), "{said}");
    let content: Vec<u8> = content.iter().map(|byte| byte ^ 0x5a).collect();
    fill(&lab.path("x.sock"), "x", &content);
    let _back = witness(&lab, &address, &votes);
    reaches(&lab, true);
    lab.ok(&replace, &[]);
    until("the exchange", || {
        let members = detail(&lab, "x")["members"].clone();
        let of = |one: &serde_json::Value| one["device"].to_string().contains(&third.address);
        members
            .as_array()
            .is_some_and(|all| all.iter().any(|m| of(m) && m["state"][0] == "in-sync"))
    });
    assert!(lab.ok("cat x", &[]) == content);
    lab.ok("stop x", &[]);
}

#[test]
fn a_witness_keeps_no_volumes() {
    let lab = Lab::new();
    let node = witness(&lab, "127.0.0.1:0", &lab.path("votes"));
    let create = format!("create y -l 0 -n 1 --force --size 1M node://{}", node.address);
    let line = lab.refused(1, &create, &[], &[]);
    assert!(line.contains("is a witness"), "{line}");
    let line = lab.ok_text(&format!("node status {}", node.address), &[]);
    assert!(line.contains("a witness"), "{line}");
    let line = lab.refused(2, "node --listen 127.0.0.1:0 --memory --witness", &[], &[]);
    assert!(line.contains("--witness"), "{line}");
}
