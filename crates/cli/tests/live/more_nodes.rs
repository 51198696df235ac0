//! `braid grow --add` of arrays over nodes: all data move to an array over more nodes while it is
//! served, and back.

mod at_once;
mod deaths;
mod full;
mod limits;
mod owner;
mod read_only;
mod writer;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::export::{ask, connect, connect_any, fill, noise, read};
use crate::support::nodes::{
    Node, all_in_sync, count_in_stores, detail, members, names, server, size,
};
use crate::support::{Lab, until};

/// Nodes with stores, and an array `x` over the first of them, full of noise.
struct Served {
    lab: Lab,
    nodes: Vec<Node>,
    stores: Vec<PathBuf>,
    server: Child,
    content: Vec<u8>,
}

impl Served {
    /// `shape`: options of `create`, for this number of four nodes with 24 MiB each.
    fn new(shape: &str, count: usize) -> Self {
        Self::with_nodes(shape, count, 4, 24)
    }

    /// `shape`: options of `create`, for this number of nodes with so much each, and one more.
    fn over(shape: &str, count: usize, mib: u32) -> Self {
        Self::with_nodes(shape, count, count + 1, mib)
    }

    fn with_nodes(shape: &str, count: usize, nodes: usize, mib: u32) -> Self {
        Self::in_lab(Lab::new(), shape, count, nodes, mib)
    }

    fn in_lab(lab: Lab, shape: &str, count: usize, nodes: usize, mib: u32) -> Self {
        let (nodes, stores) = count_in_stores(&lab, nodes);
        let first = members(&nodes[..count], "");
        lab.ok(&format!("create x {shape} -n {count} --size {mib}M{first}"), &[]);
        let server = server(&lab, &first);
        let content = noise(size(&lab));
        fill(&lab.path("x.sock"), "x", &content);
        Self { lab, nodes, stores, server, content }
    }

    /// Begins to move data, slowly.
    fn grow(&self) -> String {
        self.lab.ok("limit x --max 1M", &[]);
        let last = self.nodes.last().expect("nodes");
        let count = self.nodes.len();
        self.lab.ok_text(&format!("grow x --raid-devices {count} --add {}", last.address), &[])
    }

    /// Kills the process that serves it, and starts another one.
    fn crash(&mut self) {
        self.server.kill().and_then(|()| self.server.wait()).expect("an end");
        self.server = server(&self.lab, &members(&self.nodes, ""));
    }

    fn compare(&self, what: &str) {
        let mut export = export(&self.lab);
        for (number, part) in self.content.chunks(1 << 20).enumerate() {
            let found = read(&mut export, (number as u64) << 20, part.len());
            assert!(found.as_deref() == Some(part), "{what}: MiB {number}");
        }
    }

    /// Returns whether a store has a volume of the array that was there first.
    fn has_old(&self) -> bool {
        self.stores.iter().any(|store| has_plain(store))
    }

    fn action(&self) -> String {
        detail(&self.lab, "x")["sync"]["action"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits until all has moved, and what was there before is removed.
    fn all_moved(&self, volume: &str, nodes: usize) {
        until("the end of the move", || self.action() == "idle");
        let stores = |name: &str| {
            self.stores.iter().filter(|store| names(store).any(|it| it.starts_with(name))).count()
        };
        until("the volumes of the array that is left alone", || match volume {
            "x" => stores("x.2") == 0 && stores("x") == nodes,
            _ => stores("x.2") == nodes && !self.has_old(),
        });
        assert_eq!(detail(&self.lab, "x")["raid_devices"], nodes);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.server.kill().and_then(|()| self.server.wait());
    }
}

/// Opens the export, which gets larger when all has moved.
fn export(lab: &Lab) -> UnixStream {
    connect_any(&lab.path("x.sock"), "x").0
}

/// Returns whether nodes of either array are missing.
fn degraded(lab: &Lab) -> bool {
    detail(lab, "x")["state"].to_string().contains("degraded")
}

/// Waits until data have moved; not all have.
fn in_the_middle(lab: &Lab, what: &str) {
    let sync = || detail(lab, "x")["sync"].clone();
    until(what, || sync()["done_bytes"] != 0 || sync()["action"] != "reshape");
    assert_eq!(sync()["action"], "reshape", "{what}: all has moved already");
}

/// Returns whether the store has a file of the volume `x`.
fn has_plain(store: &Path) -> bool {
    names(store).any(|name| name.starts_with('x') && !name.starts_with("x.2"))
}

/// The content of a write, which is another one each time.
fn block(count: usize) -> [u8; 4096] {
    let mut block = [7; 4096];
    block[..8].copy_from_slice(&count.to_be_bytes());
    block
}

fn moves_to_one_more(shape: &str, count: usize) {
    let mut served = Served::new(shape, count);
    served.nodes.truncate(count + 1);
    served.stores.truncate(count + 1);
    let before = size(&served.lab);
    let mut export = connect(&served.lab.path("x.sock"), "x", before);
    let progress = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let progress = &progress;
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let (tell, begun) = std::sync::mpsc::channel();
        scope.spawn(move || {
            let mut count = 0;
            while stopped.try_recv().is_err() {
                let at = (count << 20) % before;
                ask(&mut export, 1, at as u64, &block(count)).expect("no write fails");
                count += 1;
                progress.store(count, Ordering::Relaxed);
                // Nobody listens after the first.
                let _ = tell.send(());
            }
        });
        begun.recv().expect("a write");
        let said = served.grow();
        assert!(said.contains("x: becomes "), "{said}");
        assert_eq!(served.action(), "reshape");
        until("a window", || detail(&served.lab, "x")["sync"]["done_bytes"] != 0);
        let before_that = progress.load(Ordering::Relaxed);
        until("writes to all, also behind the front", || {
            progress.load(Ordering::Relaxed) > before_that + (before >> 20)
        });
        // The writer has ended only if a write has failed.
        let _ = stop.send(());
    });
    let written = progress.into_inner();
    for count in written.saturating_sub(before >> 20)..written {
        let at = (count << 20) % before;
        served.content[at..at + 4096].copy_from_slice(&block(count));
    }
    assert_eq!(size(&served.lab), before, "until all has moved");
    served.crash();
    served.compare("after a crash in the middle");
    served.all_moved("x.2", count + 1);
    // A node that was away all the time must not start the array as it was.
    let votes = |store: &PathBuf| names(store).filter(|name| name.ends_with(".vote")).count();
    assert!(served.stores[..count].iter().all(|store| votes(store) == 2), "votes for the old one");
    assert!(size(&served.lab) >= before);
    served.compare("all has moved");
    served.lab.ok("check x --wait", &[]);
    assert_eq!(detail(&served.lab, "x")["mismatches"], 0, "{shape}");
    served.nodes.remove(0).kill();
    until("the loss", || detail(&served.lab, "x")["state"].to_string().contains("degraded"));
    served.compare("without a node");
    served.lab.ok("stop x", &[]);
    served.server.wait().expect("an end");
    // It is found by the name that it always had.
    served.server = server(&served.lab, &members(&served.nodes, ""));
    served.compare("assembled again");
}

#[test]
fn an_array_with_partial_parity_logs_moves_to_one_more_node() {
    moves_to_one_more("-l 5 --chunk 64K --consistency-policy ppl --journal-size 16M", 3);
}

#[test]
fn a_mirror_gets_one_more_copy() {
    moves_to_one_more("-l 1", 2);
}

#[test]
fn what_has_moved_moves_back() {
    let served = Served::new("-l 5 --chunk 64K --journal-size 16M", 3);
    let before = size(&served.lab);
    served.grow();
    let sync = || detail(&served.lab, "x")["sync"].clone();
    assert_eq!(
        (&sync()["from"]["raid_devices"], &sync()["to"]["raid_devices"]),
        (&json!(3), &json!(4))
    );
    until("a window", || sync()["done_bytes"] != 0);
    served.lab.ok("grow x --pause", &[]);
    until("no window is open", || {
        let paused = sync();
        paused["done_bytes"] != 0 && paused["position_bytes"] == paused["done_bytes"]
    });
    let said = served.lab.ok_text("grow x --undo", &[]);
    assert!(said.contains("moves back"), "{said}");
    let back = sync();
    let number = |field: &str| back[field].as_u64().expect("a number");
    assert_eq!(number("position_bytes") + number("done_bytes"), number("total_bytes"));
    assert_eq!(back["to"]["raid_devices"], 3);
    served.lab.ok("grow x --resume", &[]);
    served.lab.ok("limit x --max none", &[]);
    served.all_moved("x", 3);
    assert_eq!(size(&served.lab), before);
    served.compare("all is back");
    let refused = served.lab.refused(1, "grow x --undo", &[], &[]);
    assert!(refused.contains("no data are being moved"), "{refused}");
    // And again.
    served.grow();
    served.lab.ok("limit x --max none", &[]);
    served.all_moved("x.2", 4);
    served.compare("all has moved");
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_made() {
    let mut served = Served::new("-l 5 --chunk 64K --journal-size 16M", 3);
    let fourth = served.nodes[3].address.clone();
    let refused =
        |code: i32, words: &str| served.lab.refused(code, &format!("grow x {words}"), &[], &[]);
    let said = refused(2, &format!("--raid-devices 5 --add {fourth}"));
    assert!(said.contains("4 nodes are named"), "{said}");
    let said = refused(2, &format!("--raid-devices 4 --add {}", served.nodes[0].address));
    assert!(said.contains("has a member of the array already"), "{said}");
    let said = refused(1, "--raid-devices 4 --add 127.0.0.1:1");
    assert!(said.contains("127.0.0.1:1"), "{said}");
    let said = refused(1, "--level 6 --layout preserve");
    assert!(said.contains("the number of its nodes"), "{said}");
    let plan = served.lab.ok(&format!("grow x -n 4 --add {fourth} --dry-run --json"), &[]);
    let plan: Value = serde_json::from_slice(&plan).expect("JSON");
    assert_eq!(plan["steps"][1]["action"], "reshape", "{plan}");
    assert_eq!(plan["to"]["raid_devices"], 4, "{plan}");
    assert_eq!(names(&served.stores[3]).filter(|name| name.starts_with('x')).count(), 0);
    let said =
        served.lab.refused(2, "create y.2 -l 1 -n 2 node://h:1 node://i:1 --size 4M", &[], &[]);
    assert!(said.contains("a name that does not end with .2"), "{said}");
    let away = served.nodes.remove(0);
    away.kill();
    until("the loss", || detail(&served.lab, "x")["state"].to_string().contains("degraded"));
    let said = served.lab.refused(1, &format!("grow x -n 4 --add {fourth}"), &[], &[]);
    assert!(said.contains("missing"), "{said}");
}

/// A node is away when all goes back, and what it has of the new array says that a part is there.
#[test]
fn what_a_node_that_was_away_has_left_keeps_no_array_from_being_started() {
    let mut served = Served::new("-l 5 --chunk 64K --journal-size 16M", 3);
    served.grow();
    until("a window", || detail(&served.lab, "x")["sync"]["done_bytes"] != 0);
    let away = served.nodes.remove(0);
    let address = away.address.clone();
    away.kill();
    until("the loss", || detail(&served.lab, "x")["state"].to_string().contains("degraded"));
    served.lab.ok("limit x --max none", &[]);
    served.lab.ok("grow x --undo", &[]);
    until("all is back", || served.action() == "idle");
    served.nodes.insert(0, Node::start_at(&served.lab, &address, &served.stores[0]));
    all_in_sync(&served.lab);
    served.lab.ok("stop x", &[]);
    served.server.wait().expect("an end");
    served.server = server(&served.lab, &members(&served.nodes, ""));
    served.compare("assembled again");
    served.all_moved("x", 3);
}

#[test]
fn one_of_two_arrays_is_not_served_alone() {
    let mut served = Served::new("-l 5 --chunk 64K --journal-size 16M", 3);
    served.grow();
    until("a window", || detail(&served.lab, "x")["sync"]["done_bytes"] != 0);
    served.server.kill().and_then(|()| served.server.wait()).expect("an end");
    let old = members(&served.nodes[..3], "/x");
    let without = served.nodes.pop().expect("four nodes");
    // Without the new node the new array lacks a member, which it can do without.
    let address = without.address.clone();
    without.kill();
    served.server = server(&served.lab, &old);
    served.compare("without the new node");
    served.nodes.push(Node::start_at(&served.lab, &address, &served.stores[3]));
    served.crash();
    all_in_sync(&served.lab);
    served.all_moved("x.2", 4);
    served.compare("all has moved");
}
