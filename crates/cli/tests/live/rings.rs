//! The memory of nodes that lies idle is there for others.

use std::path::PathBuf;

use crate::support::export::{fill, noise};
use crate::support::nodes::{Node, members};
use crate::support::{Lab, until};

const MIB: u64 = 1 << 20;
/// Four times as many as have room with all that each may come to use.
const ARRAYS: usize = 12;

/// Returns the resident memory of a node.
fn resident(node: &Node) -> u64 {
    let text = std::fs::read_to_string(PathBuf::from(format!("/proc/{}/status", node.pid())));
    let text = text.expect("a running node");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the field");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

#[test]
fn arrays_that_are_idle_leave_the_nodes_memory_to_others() {
    let lab = Lab::new();
    let store = |number: u32| {
        let store = lab.path(&format!("s{number}"));
        std::fs::create_dir(&store).unwrap();
        format!("--store {} --ring 64M", store.display())
    };
    let start = |number| Node::start(&lab, "127.0.0.1:0", &store(number));
    let nodes: Vec<Node> = (0..5).map(start).collect();
    let all = |number: usize| members(&nodes, &format!("/a{number}"));
    let create = "-l 6 --layout xor2d -n 5 --size 8M --assume-clean -k bitmap";
    for number in 0..ARRAYS {
        lab.ok(&format!("create a{number} {create}{}", all(number)), &[]);
        let export = format!("--export nbd:unix:a{number}.sock");
        lab.ok(&format!("assemble a{number}{} {export}", all(number)), &[]);
    }
    let content = noise(24 << 20);
    let socket = lab.path("a0.sock");
    // While it is written to, for soon after that the memory is given back.
    let busy = std::thread::scope(|scope| {
        let filled = scope.spawn(|| fill(&socket, "a0", &content));
        let mut most = 0;
        while !filled.is_finished() {
            most = most.max(resident(&nodes[0]));
        }
        most
    });
    until("memory given back", || resident(&nodes[0]) + MIB < busy);
    assert!(lab.ok("cat a0", &[])[..24 << 20] == content);
    for number in 0..ARRAYS {
        lab.ok(&format!("stop a{number}"), &[]);
    }
}
