//! Stores without room: writes wait until there is some.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;

use crate::support::export::{ask, connect, noise};
use crate::support::nodes::{Node, detail, members};
use crate::support::{Lab, skip, until};
use serde_json::Value;

const STRIPE_BYTES: u64 = 3 * (64 << 10);
/// After so many writes the journals, of 16 MiB each, have been written all over.
const ALL_OVER: usize = 500;

/// File systems of memory, unmounted with this.
pub(crate) struct Stores(Vec<PathBuf>);

impl Stores {
    /// So many of this size, if we may mount any.
    pub(crate) fn mount(lab: &Lab, count: usize, mib: u32) -> Option<Self> {
        let mut stores = Self(Vec::new());
        for number in 0..count {
            let store = lab.path(&format!("s{number}"));
            std::fs::create_dir(&store).unwrap();
            let size = format!("size={mib}M");
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", &size, "braid-test"]).arg(&store);
            if !mount.output().is_ok_and(|output| output.status.success()) {
                return None;
            }
            stores.0.push(store);
        }
        Some(stores)
    }

    fn ballast(store: &Path) -> PathBuf {
        store.join(".ballast")
    }

    /// Takes so much of the room of one.
    pub(crate) fn fill_one(store: &Path, mib: u32) {
        std::fs::write(Self::ballast(store), vec![0x11; (mib as usize) << 20]).unwrap();
    }

    /// Takes all the room there is.
    pub(crate) fn fill(&self) {
        for store in &self.0 {
            let mut file = File::create(Self::ballast(store)).unwrap();
            while file.write_all(&[0x11; 4096]).is_ok() {}
        }
    }

    pub(crate) fn make_room(&self) {
        self.0.iter().for_each(|store| Self::make_room_in(store));
    }

    pub(crate) fn make_room_in(store: &Path) {
        std::fs::remove_file(Self::ballast(store)).unwrap();
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        for store in &self.0 {
            // The nodes may have files there that are still open.
            let _ = Command::new("umount").arg("-l").arg(store).output();
        }
    }
}

fn waiting(lab: &Lab) -> Value {
    detail(lab, "x")["waiting"].clone()
}

/// Serves an array on nodes whose stores become full. Returns the flushed content.
fn full(lab: &Lab, stores: &Stores, options: &str) -> (Vec<Node>, Vec<u8>) {
    let nodes = created(lab, stores, "--journal-size 16M");
    let flushed = filled(lab, stores, &nodes, options, 1);
    (nodes, flushed)
}

fn created(lab: &Lab, stores: &Stores, policy: &str) -> Vec<Node> {
    let start = |store: &PathBuf| {
        Node::start(lab, "127.0.0.1:0", &format!("--store {} --ring 64M", store.display()))
    };
    let nodes: Vec<Node> = stores.0.iter().map(start).collect();
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 6 -n 5 -c 64K --size 16M {policy}{all}"), &[]);
    nodes
}

/// Serves the array, writes to its first stripes so many times, and fills the stores. Returns the
/// flushed content of the first one.
fn filled(lab: &Lab, stores: &Stores, nodes: &[Node], options: &str, times: usize) -> Vec<u8> {
    let all = members(nodes, "");
    lab.ok(&format!("assemble x{all} --export nbd:unix:x.sock {options}"), &[]);
    let size = detail(lab, "x")["size_bytes"].as_u64().unwrap();
    let mut stream = connect(&lab.path("x.sock"), "x", usize::try_from(size).unwrap());
    let flushed = noise(64 << 10);
    for number in 0..times as u64 {
        ask(&mut stream, 1, number % 5 * STRIPE_BYTES, &flushed).expect("an answer");
    }
    ask(&mut stream, 3, 0, &[]).expect("an answer");
    stores.fill();
    flushed
}

/// Small writes where nothing was written so far.
fn write_more(lab: &Lab) -> JoinHandle<()> {
    let size = detail(lab, "x")["size_bytes"].as_u64().unwrap();
    let mut stream = connect(&lab.path("x.sock"), "x", usize::try_from(size).unwrap());
    std::thread::spawn(move || {
        for number in 0..24 {
            ask(&mut stream, 1, (8 << 20) + number * (1 << 20), &[0x77; 4096]).expect("an answer");
        }
        ask(&mut stream, 3, 0, &[]).expect("an answer");
    })
}

fn holds(lab: &Lab, flushed: &[u8]) {
    let content = lab.ok("cat x", &[]);
    assert!(content[..flushed.len()] == *flushed, "what was flushed is there");
    for number in 0..24 {
        let at = (8 << 20) + number * (1 << 20);
        assert!(content[at..at + 4096] == [0x77; 4096], "write {number}");
    }
}

#[test]
fn writes_wait_until_there_is_room() {
    let lab = Lab::new();
    let Some(stores) = Stores::mount(&lab, 5, 40) else {
        return skip("writes_wait_until_there_is_room", "tmpfs cannot be mounted");
    };
    let (_nodes, flushed) = full(&lab, &stores, "--fail-timeout 600");
    let writer = write_more(&lab);
    until("a write that waits for room", || {
        let waiting = waiting(&lab);
        waiting["requests"].as_u64() > Some(0) && waiting["reason"].to_string().contains("room")
    });
    assert!(!writer.is_finished(), "it waits");
    goes_on_with_room(&lab, &stores, writer, &flushed);
}

/// Makes room, and checks that all that waited is written.
fn goes_on_with_room(lab: &Lab, stores: &Stores, writer: JoinHandle<()>, flushed: &[u8]) {
    stores.make_room();
    until("the end of the writes", || writer.is_finished());
    writer.join().expect("no error");
    until("an array that goes on", || waiting(lab).is_null());
    holds(lab, flushed);
    lab.ok("stop x", &[]);
}

#[test]
fn writes_that_have_waited_for_room_long_enough_fail() {
    let lab = Lab::new();
    let Some(stores) = Stores::mount(&lab, 5, 40) else {
        return skip("writes_that_have_waited_long_enough_fail", "tmpfs cannot be mounted");
    };
    let (_nodes, flushed) = full(&lab, &stores, "--fail-timeout 3");
    let writer = write_more(&lab);
    until("a write that waits", || waiting(&lab)["requests"].as_u64() > Some(0));
    until("a write that fails", || writer.is_finished());
    assert!(writer.join().is_err());
    stores.make_room();
    // With room, the same is written.
    until("an array that goes on", || waiting(&lab).is_null());
    write_more(&lab).join().expect("there is room");
    holds(&lab, &flushed);
    lab.ok("stop x", &[]);
}

/// Writes that find no room once all nodes have promised to store them; the nodes' journals have
/// their room already. Where a journal has what it forgets, a node starts again meanwhile.
fn waits_once_committed(test: &str, policy: &str, times: usize) {
    let lab = Lab::new();
    let Some(stores) = Stores::mount(&lab, 5, 40) else {
        return skip(test, "tmpfs cannot be mounted");
    };
    let mut nodes = created(&lab, &stores, policy);
    let flushed = filled(&lab, &stores, &nodes, "--fail-timeout 600", times);
    let writer = write_more(&lab);
    let waits = || {
        until("a write that waits for room", || {
            let waiting = waiting(&lab);
            let reason = waiting["reason"].to_string();
            reason.contains("node://") && reason.contains("its store has no room")
        });
    };
    waits();
    assert!(!writer.is_finished(), "it waits");
    if policy.contains("journal ") {
        let node = nodes.pop().expect("a node");
        nodes.push(node.start_again(&lab, &stores.0[4]));
        waits();
    }
    goes_on_with_room(&lab, &stores, writer, &flushed);
}

#[test]
fn what_is_committed_waits_for_room_with_a_bitmap() {
    let test = "what_is_committed_waits_for_room_with_a_bitmap";
    waits_once_committed(test, "--consistency-policy bitmap", 1);
}

#[test]
fn what_is_recorded_waits_for_room_in_its_place() {
    let test = "what_is_recorded_waits_for_room_in_its_place";
    let policy = "--consistency-policy journal --journal-size 16M";
    waits_once_committed(test, policy, ALL_OVER);
}

#[test]
fn parts_that_are_recorded_wait_for_room_in_their_place() {
    let test = "parts_that_are_recorded_wait_for_room_in_their_place";
    let policy = "--consistency-policy ppl --journal-size 16M";
    waits_once_committed(test, policy, ALL_OVER);
}
