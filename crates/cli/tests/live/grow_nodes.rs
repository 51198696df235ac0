//! `braid grow --size` of arrays over nodes: volumes become longer while the array serves.

use std::path::PathBuf;
use std::process::Child;

use serde_json::Value;

use crate::support::export::{ask, connect, fill, noise, read};
use crate::support::nodes::{Node, all_in_sync, detail, in_stores, members, names, server, size};
use crate::support::{Lab, until};

/// An array `x` over nodes with stores, full of noise.
struct Served {
    lab: Lab,
    nodes: Vec<Node>,
    stores: Vec<PathBuf>,
    server: Child,
    content: Vec<u8>,
}

impl Served {
    /// `shape`: options of `create`, for this number of nodes with 4 MiB each.
    fn new(shape: &str, count: usize) -> Self {
        let lab = Lab::new();
        let (mut nodes, mut stores) = in_stores(&lab);
        nodes.truncate(count);
        stores.truncate(count);
        let all = members(&nodes, "");
        lab.ok(&format!("create x {shape} -n {count} --size 4M{all}"), &[]);
        let server = server(&lab, &all);
        let content = noise(size(&lab));
        fill(&lab.path("x.sock"), "x", &content);
        Self { lab, nodes, stores, server, content }
    }

    /// Kills all processes, and starts them again.
    fn power_cut(&mut self) {
        self.server.kill().and_then(|()| self.server.wait()).expect("an end");
        let nodes = std::mem::take(&mut self.nodes).into_iter().zip(&self.stores);
        self.nodes = nodes.map(|(node, store)| node.start_again(&self.lab, store)).collect();
        self.server = server(&self.lab, &members(&self.nodes, ""));
    }

    fn compare(&self, what: &str) {
        let mut export = connect(&self.lab.path("x.sock"), "x", self.content.len());
        for (number, part) in self.content.chunks(1 << 20).enumerate() {
            let found = read(&mut export, (number as u64) << 20, part.len());
            assert!(found.as_deref() == Some(part), "{what}: MiB {number}");
        }
    }

    /// Has the array grow while a client writes. What is new reads as zeroes.
    fn grow(&mut self, size_of_each: &str) {
        let lab = &self.lab;
        let before = self.content.len();
        let planned = lab.ok_text(&format!("grow x --size {size_of_each} --dry-run"), &[]);
        assert!(planned.contains("nothing is to be resynced"), "{planned}");
        assert_eq!(size(lab), before, "{planned}");
        let mut export = connect(&lab.path("x.sock"), "x", before);
        let block = self.content[..4096].to_vec();
        let said = std::thread::scope(|scope| {
            let (stop, stopped) = std::sync::mpsc::channel::<()>();
            let (tell, begun) = std::sync::mpsc::channel();
            scope.spawn(move || {
                while stopped.try_recv().is_err() {
                    ask(&mut export, 1, 0, &block).expect("no write fails");
                    // Nobody listens after the first.
                    let _ = tell.send(());
                }
            });
            begun.recv().expect("a write");
            let said = lab.ok_text(&format!("grow x --size {size_of_each}"), &[]);
            // The writer has ended only if a write has failed.
            let _ = stop.send(());
            said
        });
        assert!(said.contains("x: now "), "{said}");
        assert!(size(lab) > before, "{said}");
        self.content.resize(size(lab), 0);
        self.compare("just grown");
        let notes = |store: &PathBuf| names(store).any(|name| name.ends_with(".longer"));
        assert!(!self.stores.iter().any(notes));
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.server.kill().and_then(|()| self.server.wait());
    }
}

fn grows_and_keeps_all(shape: &str, count: usize) {
    let mut served = Served::new(shape, count);
    served.grow("6M");
    served.lab.ok("check x --wait", &[]);
    assert_eq!(detail(&served.lab, "x")["mismatches"], 0, "{shape}");
    served.power_cut();
    served.compare("after a power cut");
    served.grow("11M");
    served.content = noise(served.content.len());
    fill(&served.lab.path("x.sock"), "x", &served.content);
    served.power_cut();
    all_in_sync(&served.lab);
    served.compare("what was written since");
    // Without journals parities of what was being written are made anew.
    until("an idle array", || detail(&served.lab, "x")["sync"]["action"] == "idle");
    served.lab.ok("check x --wait", &[]);
    assert_eq!(detail(&served.lab, "x")["mismatches"], 0, "{shape}");
    served.lab.ok("stop x", &[]);
    served.server.wait().expect("an end");
}

#[test]
fn levels_with_partial_parity_logs_grow() {
    grows_and_keeps_all("-l 5 --chunk 64K --consistency-policy ppl --journal-size 16M", 4);
}

#[test]
fn the_2d_code_grows_with_its_journals() {
    let policy = "--consistency-policy journal --journal-size 16M";
    grows_and_keeps_all(&format!("-l 6 -p xor2d --chunk 32K {policy}"), 4);
}

#[test]
fn mirrors_grow_with_their_bitmap() {
    grows_and_keeps_all("-l 1", 3);
}

#[test]
fn a_size_that_cannot_be_is_refused_with_what_is_missing() {
    let served = Served::new("-l 5 --chunk 64K", 4);
    let lab = &served.lab;
    let refused = |words: &str| lab.refused(1, &format!("grow x {words}"), &[], &[]);
    let said = refused("--size 4M");
    assert!(said.contains("4194304 bytes of each member are used"), "{said}");
    let said = refused("--size 900T");
    assert!(said.contains("lacks ") && said.contains(" bytes for that; make room"), "{said}");
    let said = refused("--level 6 --layout preserve");
    assert!(said.contains("only the size"), "{said}");
    let plan = lab.ok("grow x --size max --dry-run --json", &[]);
    let plan: Value = serde_json::from_slice(&plan).expect("JSON");
    assert_eq!(plan["steps"][0]["action"], "lengthen");
    assert!(plan["to"]["member_bytes"].as_u64() > plan["from"]["member_bytes"].as_u64(), "{plan}");
    assert_eq!(size(lab), served.content.len());
}

#[test]
fn an_array_that_lacks_a_node_does_not_grow_and_one_that_grew_takes_it_back() {
    let mut served = Served::new("-l 5 --chunk 64K", 4);
    let away = served.nodes.pop().expect("four nodes");
    let address = away.address.clone();
    away.kill();
    until("the loss", || detail(&served.lab, "x")["state"].to_string().contains("degraded"));
    let said = served.lab.refused(1, "grow x --size 6M", &[], &[]);
    assert!(said.contains("missing"), "{said}");
    served.nodes.push(Node::start_at(&served.lab, &address, &served.stores[3]));
    all_in_sync(&served.lab);
    served.grow("6M");
    served.nodes.pop().expect("four nodes").kill();
    until("the loss", || detail(&served.lab, "x")["state"].to_string().contains("degraded"));
    served.compare("without a node");
    served.nodes.push(Node::start_at(&served.lab, &address, &served.stores[3]));
    all_in_sync(&served.lab);
    served.compare("with all nodes again");
}
