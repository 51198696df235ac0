//! Arrays over nodes that all died while whole stripes were being written: lost blocks are errors
//! until they are written again, and never wrong data.

use std::path::PathBuf;
use std::process::Child;

use crate::support::export::{ask, connect, fill, noise, read};
use crate::support::nodes::{Node, all_in_sync, detail, in_stores, members, server};
use crate::support::{Lab, until};

const BLOCK: usize = 4096;
/// A write that is whole stripes of three data blocks.
const LONG: usize = 768 << 10;
const BYTES: usize = 12 << 20;

/// An array over four nodes, of which three were started again after all and the client had died.
struct Torn {
    lab: Lab,
    nodes: Vec<Node>,
    stores: Vec<PathBuf>,
    last_address: String,
    /// The client that has started it with the three.
    server: Child,
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Torn {
    fn new() -> Self {
        let lab = Lab::new();
        let (mut nodes, stores) = in_stores(&lab);
        let all = members(&nodes, "");
        lab.ok(&format!("create x -l 5 -n 4 --size 4M --journal-size 16M{all}"), &[]);
        let mut client = server(&lab, &all);
        let before = noise(BYTES);
        fill(&lab.path("x.sock"), "x", &before);
        let after: Vec<u8> = before.iter().map(|byte| byte ^ 0xa5).collect();
        die_under_whole_stripes(&lab, &mut client, &after);
        let last = nodes.pop().expect("four nodes");
        let nodes: Vec<Node> = nodes
            .into_iter()
            .zip(&stores)
            .map(|(node, store)| node.start_again(&lab, store))
            .collect();
        let last_address = last.address.clone();
        last.kill();
        // It is looked for at its address.
        let server = server(&lab, &all);
        Self { lab, nodes, stores, last_address, server, before, after }
    }

    /// Returns the number of unreadable blocks. Each other block must hold its first or last
    /// content.
    fn errors(&self) -> usize {
        let mut stream = connect(&self.lab.path("x.sock"), "x", BYTES);
        let known = self.before.chunks(BLOCK).zip(self.after.chunks(BLOCK));
        let mut errors = 0;
        for (number, (before, after)) in known.enumerate() {
            match read(&mut stream, (number * BLOCK) as u64, BLOCK) {
                Some(found) => assert!(found == before || found == after, "block {number}"),
                None => errors += 1,
            }
        }
        errors
    }

    fn stop(&mut self) {
        self.lab.ok("stop x", &[]);
        self.server.wait().expect("an end");
    }
}

/// Kills the client while it writes everything anew, a whole stripe and more at a time.
fn die_under_whole_stripes(lab: &Lab, client: &mut Child, content: &[u8]) {
    let mut stream = connect(&lab.path("x.sock"), "x", content.len());
    let content = content.to_vec();
    let (tell, begun) = std::sync::mpsc::channel();
    let writer = std::thread::spawn(move || {
        let parts = content.chunks(LONG).enumerate();
        for (number, part) in parts {
            if ask(&mut stream, 1, (number * LONG) as u64, part).is_err() {
                return;
            }
            // Nobody listens after some.
            let _ = tell.send(());
        }
    });
    (0..3).for_each(|_| begun.recv().expect("a write"));
    client.kill().and_then(|()| client.wait()).expect("an end");
    writer.join().expect("no wrong answer");
}

#[test]
fn what_is_written_anew_stays_when_the_node_comes_back() {
    let mut torn = Torn::new();
    let content: Vec<u8> = torn.before.iter().map(|byte| byte ^ 0x3c).collect();
    fill(&torn.lab.path("x.sock"), "x", &content);
    assert!(torn.lab.ok("cat x", &[]) == content, "without the node");
    let last = Node::start_at(&torn.lab, &torn.last_address, &torn.stores[3]);
    torn.nodes.push(last);
    all_in_sync(&torn.lab);
    assert!(torn.lab.ok("cat x", &[]) == content, "with the node");
    torn.lab.ok("check x --wait", &[]);
    assert_eq!(detail(&torn.lab, "x")["mismatches"], 0);
    torn.stop();
    torn.lab.ok(&format!("assemble x{}", members(&torn.nodes, "")), &[]);
    assert!(torn.lab.ok("cat x", &[]) == content, "assembled again");
    torn.lab.ok("stop x", &[]);
}

#[test]
fn the_node_that_comes_back_to_the_same_client_brings_what_it_held() {
    let mut torn = Torn::new();
    let last = Node::start_at(&torn.lab, &torn.last_address, &torn.stores[3]);
    torn.nodes.push(last);
    all_in_sync(&torn.lab);
    assert_eq!(torn.errors(), 0);
    until("sums that fit", || detail(&torn.lab, "x")["sync"]["action"] == "idle");
    torn.lab.ok("check x --wait", &[]);
    assert_eq!(detail(&torn.lab, "x")["mismatches"], 0);
    torn.stop();
}

#[test]
fn a_new_node_makes_nothing_up_and_all_is_known_that_is_written_again() {
    let mut torn = Torn::new();
    let errors = torn.errors();
    let store = torn.lab.path("s4");
    std::fs::create_dir(&store).unwrap();
    let new = Node::start_at(&torn.lab, "127.0.0.1:0", &store);
    torn.lab.ok(&format!("add x node://{}", new.address), &[]);
    torn.nodes.push(new);
    all_in_sync(&torn.lab);
    assert_eq!(torn.errors(), errors);
    torn.stop();
    torn.server = server(&torn.lab, &members(&torn.nodes, ""));
    assert_eq!(torn.errors(), errors, "assembled again");
    let content: Vec<u8> = torn.before.iter().map(|byte| byte ^ 0x3c).collect();
    fill(&torn.lab.path("x.sock"), "x", &content);
    assert!(torn.lab.ok("cat x", &[]) == content);
    torn.stop();
    // A node that had bad blocks knows all now, whoever is lost.
    torn.nodes.remove(0).kill();
    torn.server = server(&torn.lab, &members(&torn.nodes, ""));
    assert!(torn.lab.ok("cat x", &[]) == content, "without another node");
    torn.stop();
}
