//! More nodes are away than the array can do without: requests wait, and it goes on by itself.

use crate::support::export::{fill, noise};
use crate::support::nodes::{Node, detail, in_memory, in_stores, members};
use crate::support::{Lab, until};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Serves an array over the first three nodes. Returns its first content.
fn serve(lab: &Lab, nodes: &[Node], options: &str) -> Vec<u8> {
    let all = members(&nodes[..3], "");
    lab.ok(&format!("create x -l 5 -n 3 --size 4M{all}"), &[]);
    let words = format!("assemble x{all} --export nbd:unix:x.sock --node-timeout 1 {options}");
    lab.ok(&words, &[]);
    let content = noise(8 << 20);
    fill(&lab.path("x.sock"), "x", &content);
    content
}

fn waiting(lab: &Lab) -> Value {
    detail(lab, "x")["waiting"].clone()
}

/// Checks that the array is served again, is not degraded, and takes writes.
fn goes_on(lab: &Lab, content: &[u8]) {
    until("an array that goes on", || waiting(lab).is_null());
    until("a whole array", || lab.run("detail x --test", &[]).status.success());
    assert!(lab.ok("cat x", &[]) == content);
    let other: Vec<u8> = content.iter().map(|byte| byte ^ 0x33).collect();
    fill(&lab.path("x.sock"), "x", &other);
    assert!(lab.ok("cat x", &[]) == other);
    lab.ok("check x --wait", &[]);
    assert_eq!(detail(lab, "x")["mismatches"], 0);
    lab.ok("stop x", &[]);
}

#[test]
fn requests_wait_for_nodes_that_hang_and_none_fails() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 3);
    serve(&lab, &nodes, "");
    nodes[1..].iter().for_each(|node| node.signal(Signal::STOP));
    let socket = lab.path("x.sock");
    let content = noise(8 << 20);
    let content: Vec<u8> = content.iter().map(|byte| byte ^ 0x11).collect();
    let other = content.clone();
    let writer = std::thread::spawn(move || fill(&socket, "x", &other));
    until("a request that waits", || waiting(&lab)["requests"].as_u64() > Some(0));
    let said = lab.ok_text("status x", &[]);
    assert!(said.contains(" wait") && said.contains(" s more: "), "{said}");
    assert_eq!(lab.run("detail x --test", &[]).status.code(), Some(2));
    nodes[1..].iter().for_each(|node| node.signal(Signal::CONT));
    writer.join().expect("no error");
    goes_on(&lab, &content);
}

#[test]
fn requests_that_have_waited_long_enough_fail_and_the_array_goes_on_all_the_same() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 3);
    let content = serve(&lab, &nodes, "--fail-timeout 0");
    nodes[..2].iter().for_each(|node| node.signal(Signal::STOP));
    assert!(!lab.run("cat x", &[]).status.success(), "two of three do not answer");
    let said = lab.ok_text("status x", &[]);
    assert!(said.contains("  reads and writes fail: "), "{said}");
    nodes[..2].iter().for_each(|node| node.signal(Signal::CONT));
    goes_on(&lab, &content);
}

#[test]
fn an_array_outlives_all_of_its_nodes() {
    let lab = Lab::new();
    let (mut nodes, stores) = in_stores(&lab);
    let content = serve(&lab, &nodes, "");
    nodes.truncate(3);
    lab.ok("limit x --min 3M --max 5M", &[]);
    lab.ok("limit x --pause", &[]);
    // At the same moment: none is lost before the others.
    nodes.iter().for_each(|node| node.signal(Signal::STOP));
    let addresses: Vec<String> = nodes.iter().map(|node| node.address.clone()).collect();
    nodes.into_iter().for_each(Node::kill);
    until("an array that waits", || !waiting(&lab).is_null());
    let start = |(address, store): (&String, &std::path::PathBuf)| {
        Node::start(&lab, address, &format!("--store {} --ring 64M", store.display()))
    };
    let nodes: Vec<Node> = addresses.iter().zip(&stores).map(start).collect();
    until("an array that goes on", || waiting(&lab).is_null());
    let sync = detail(&lab, "x")["sync"].clone();
    let limits = ["min_bytes_per_s", "max_bytes_per_s", "paused"].map(|key| sync[key].clone());
    assert_eq!(limits, [json!(3 << 20), json!(5 << 20), json!(true)], "as they were set");
    lab.ok("limit x --resume", &[]);
    goes_on(&lab, &content);
    drop(nodes);
}

#[test]
fn an_array_that_waits_is_stopped() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 3);
    let content = serve(&lab, &nodes, "");
    nodes[1..].iter().for_each(|node| node.signal(Signal::STOP));
    until("an array that waits", || !waiting(&lab).is_null());
    lab.ok("stop x", &[]);
    nodes[1..].iter().for_each(|node| node.signal(Signal::CONT));
    lab.ok(&format!("assemble x{}", members(&nodes, "")), &[]);
    assert!(lab.ok("cat x", &[]) == content);
    lab.ok("stop x", &[]);
}
