//! Arrays over nodes, as processes on this machine: what they hold survives two dead nodes, and
//! what they leave is what md assembles, for the levels that md knows.

use crate::braid_to_md::available;
use crate::handoff::{Left, to_md_and_back};
use crate::nodes::{self, Node, create, nodes};
use crate::served::Served;
use crate::support::{self, Run, braid, program, skip};
use braid_judges::Content;
use std::path::{Path, PathBuf};
use std::process::Command;

/// level, layout, number of nodes, chunk
type Shape = (&'static str, &'static str, usize, &'static str);

const OF_MD: &[Shape] = &[
    ("0", "", 3, "64K"),
    ("1", "", 2, ""),
    ("4", "", 3, "64K"),
    ("5", "left-symmetric", 4, "64K"),
    ("5", "right-asymmetric", 3, "16K"),
    ("6", "left-symmetric", 5, "64K"),
    ("6", "ddf-N-continue", 5, "64K"),
    ("10", "n2", 4, "64K"),
    ("10", "o2", 3, "64K"),
];

#[test]
fn md_assembles_what_nodes_store() {
    let test = "md_assembles_what_nodes_store";
    if let Err(reason) = available() {
        return skip(test, &reason);
    }
    let mut left = Vec::new();
    let mut findings = Vec::new();
    for (number, shape) in support::drawn(OF_MD.iter().enumerate()) {
        let name = format!("cluster-{}-{}-{}", shape.0, shape.1, shape.2);
        match support::attempt(|| live(&name, shape, number as u64)) {
            Ok(array) => left.push(array),
            Err(finding) => findings.push(format!("{name}: {finding}")),
        }
    }
    if let Err(finding) = support::attempt(|| to_md_and_back(test, left.clone())) {
        findings.push(finding);
    }
    // And back onto nodes.
    for array in &left {
        if let Err(finding) = support::attempt(|| again(array)) {
            findings.push(format!("{}, back on nodes: {finding}", array.name));
        }
    }
    support::report(&findings);
}

/// Made, filled, written in small pieces, read, stopped; the members lie in the nodes' stores.
fn live(name: &str, &(level, layout, count, chunk): &Shape, number: u64) -> Left {
    let base = support::directory(name);
    let nodes = nodes(&base, count);
    let mut arguments = vec!["--level", level, "--size", "12M"];
    for (option, value) in [("--layout", layout), ("--chunk", chunk)] {
        if !value.is_empty() {
            arguments.extend([option, value]);
        }
    }
    create(name, &nodes, &arguments);
    let served = Served::start(name, &nodes::members(&nodes), &[]);
    let content = write_and_read(&served, 2000 + number);
    let size_bytes = served.size_bytes();
    served.stop();
    let members = (0..count).map(|node| base.join(format!("node{node}")).join(name));
    Left { name: name.into(), members: flat(&base, members), content, size_bytes }
}

/// The members under different names in one directory, as the guest wants them.
fn flat(base: &Path, members: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let link = |(number, member): (usize, PathBuf)| {
        let path = base.join(format!("m{number}.img"));
        std::fs::hard_link(&member, &path).unwrap_or_else(|error| {
            panic!("{} is not there: {error}", member.display());
        });
        path
    };
    members.enumerate().map(link).collect()
}

fn write_and_read(served: &Served, seed: u64) -> Content {
    let content = Content::of(seed);
    served.fill(&content);
    served.expect(&content, "after the fill");
    // Within a block, across blocks, across stripes, and most of a stripe.
    let content = content
        .then(seed + 100, 4096, 4096)
        .then(seed + 101, (1 << 20) - 8192, 20480)
        .then(seed + 102, (2 << 20) + 12288, 400 << 10)
        .then(seed + 103, (4 << 20) + 65536, 131_072);
    for write in &content.over {
        served.write(&content, write.offset, write.length);
    }
    served.expect(&content, "after small writes");
    content
}

/// Other nodes, the same stores.
fn again(array: &Left) {
    let base = array.members[0].parent().expect("a directory");
    let nodes = nodes(base, array.members.len());
    let served = Served::start(&array.name, &nodes::members(&nodes), &[]);
    let seed = 77;
    let offset = 3 << 20;
    let length = 128 << 10;
    served.expect(&array.content.clone().then(seed, offset, length), "after md wrote");
    served.stop();
}

#[test]
fn two_nodes_die_and_every_byte_is_read() {
    let test = "two_nodes_die_and_every_byte_is_read";
    let needed = ["nbdcopy", "nbdinfo", "nbdsh"];
    if let Err(reason) = needed.into_iter().try_for_each(program) {
        return skip(test, &reason);
    }
    let pairs = [(4, 0, 1), (5, 0, 4), (5, 1, 2), (6, 2, 5), (9, 3, 7)];
    let mut findings = Vec::new();
    for (count, first, second) in support::drawn(pairs) {
        let name = format!("dying-{count}-{first}-{second}");
        if let Err(finding) = support::attempt(|| dying(&name, count, first, second)) {
            findings.push(format!("{name}: {finding}"));
        }
    }
    support::report(&findings);
}

fn dying(name: &str, count: usize, first: usize, second: usize) {
    let base = support::directory(name);
    let mut nodes: Vec<Option<Node>> = nodes(&base, count).into_iter().map(Some).collect();
    let members: Vec<PathBuf> = nodes.iter().flatten().map(Node::member).collect();
    {
        let all: Vec<Node> = nodes.drain(..).flatten().collect();
        create(name, &all, &["--level", "6", "--layout", "xor2d", "--size", "16M"]);
        nodes.extend(all.into_iter().map(Some));
    }
    let served = Served::start(name, &members, &[]);
    let content = write_and_read(&served, 3000 + count as u64);
    // Idle for a moment, so that the superblocks say clean again.
    support::until("a clean array", || served.is("clean"));
    for dead in [first, second] {
        nodes[dead].take().expect("a node").kill();
        served.expect(&content, &format!("node {dead} is dead"));
    }
    assert!(served.is("degraded"), "two nodes are dead: {}", served.status());
    served.stop();
    // Assembled without them.
    let alive: Vec<PathBuf> = nodes.iter().flatten().map(Node::member).collect();
    let served = Served::start(name, &alive, &["--readonly"]);
    served.expect(&content, "assembled without two nodes");
    served.stop();
    // And with them again, which missed that it was stopped, and have their votes.
    let again = [first, second].map(|dead| Node::start(&base.join(format!("node{dead}"))));
    let all: Vec<PathBuf> = nodes.iter().flatten().chain(&again).map(Node::member).collect();
    let served = Served::start(name, &all, &[]);
    let content = content.then(9, 1 << 20, 1 << 20);
    served.write(&content, 1 << 20, 1 << 20);
    served.expect(&content, "all nodes are back");
    served.stop();
}

/// md must not run what it would misread.
#[test]
fn md_refuses_the_two_dimensional_code() {
    let test = "md_refuses_the_two_dimensional_code";
    if let Err(reason) = program("mdadm") {
        return skip(test, &reason);
    }
    let base = support::directory(test);
    let nodes = nodes(&base, 5);
    create("plane", &nodes, &["--level", "6", "--layout", "xor2d", "--size", "8M"]);
    drop(nodes);
    let member = base.join("node0").join("plane");
    let mdadm = Run::of(Command::new("/sbin/mdadm").arg("--examine").arg(&member));
    assert!(mdadm.stdout.contains("- correct"), "mdadm reads the checksum: {mdadm}");
    assert!(!mdadm.stdout.contains("raid6"), "mdadm takes it for its own raid6: {mdadm}");
    let examine = Run::of(braid().arg("examine").arg(&member)).expect_success("examine");
    assert!(examine.stdout.contains("xor2d"), "{examine}");
}
