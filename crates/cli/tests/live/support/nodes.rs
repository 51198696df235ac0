//! Storage nodes as processes of their own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::export::{ask, connect};
use super::{Lab, until};

/// A node, which ends with this.
pub(crate) struct Node {
    child: Child,
    pub(crate) address: String,
}

impl Node {
    pub(crate) fn start(lab: &Lab, listen: &str, storage: &str) -> Self {
        let words = format!("node --listen {listen} --foreground {storage}");
        let mut command = lab.braid();
        command.args(words.split_whitespace()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a node");
        let mut address = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut address).expect("an address");
        let address = address.trim_end().to_owned();
        assert!(!address.is_empty(), "the node did not start");
        Self { child, address }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it in order: its files are closed after this. The kernel may hold those of a process
    /// that was killed a little longer.
    pub(crate) fn stop(mut self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).expect("it runs");
        assert!(self.child.wait().expect("an end").success());
    }

    /// Sends it a signal: after `STOP` it hangs until `CONT`.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Starts a node that listens at this address, with this store.
    pub(crate) fn start_at(lab: &Lab, listen: &str, store: &Path) -> Self {
        Self::start(lab, listen, &format!("--store {} --ring 64M", store.display()))
    }

    /// Restarts the node as after a crash: its memory is lost.
    pub(crate) fn start_again(self, lab: &Lab, store: &Path) -> Self {
        let address = self.address.clone();
        self.kill();
        Self::start_at(lab, &address, store)
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("an end");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

pub(crate) fn in_memory(lab: &Lab, count: usize) -> Vec<Node> {
    (0..count).map(|_| Node::start(lab, "127.0.0.1:0", "--memory --ring 64M")).collect()
}

/// Four, and where they keep their volumes.
pub(crate) fn in_stores(lab: &Lab) -> (Vec<Node>, Vec<PathBuf>) {
    count_in_stores(lab, 4)
}

/// So many, and where they keep their volumes.
pub(crate) fn count_in_stores(lab: &Lab, count: usize) -> (Vec<Node>, Vec<PathBuf>) {
    let start = |number| {
        let store = lab.path(&format!("s{number}"));
        std::fs::create_dir_all(&store).unwrap();
        let storage = format!("--store {} --ring 64M", store.display());
        (Node::start(lab, "127.0.0.1:0", &storage), store)
    };
    (0..count).map(start).unzip()
}

pub(crate) fn members(nodes: &[Node], volume: &str) -> String {
    nodes.iter().map(|node| format!(" node://{}{volume}", node.address)).collect()
}

pub(crate) fn detail(lab: &Lab, name: &str) -> Value {
    serde_json::from_slice(&lab.ok(&format!("detail {name} --json"), &[])).expect("JSON")
}

/// Waits until nothing of `x` is missing any more.
pub(crate) fn all_in_sync(lab: &Lab) {
    until("all in sync", || {
        let members = detail(lab, "x")["members"].clone();
        members.as_array().is_some_and(|all| all.iter().all(|m| m["state"][0] == "in-sync"))
    });
}

/// Writes the first block of `x` again and again until the process that serves it is killed, in the
/// middle of that.
pub(crate) fn kill_while_writing(lab: &Lab, server: &mut Child, content: &[u8]) {
    let mut stream = connect(&lab.path("x.sock"), "x", content.len());
    let block = content[..4096].to_vec();
    let (tell, begun) = std::sync::mpsc::channel();
    let writer = std::thread::spawn(move || {
        while ask(&mut stream, 1, 0, &block).is_ok() {
            // Nobody listens after the first.
            let _ = tell.send(());
        }
    });
    begun.recv().expect("a write");
    until("an active array", || {
        detail(lab, "x")["state"].as_array().unwrap().contains(&json!("active"))
    });
    server.kill().and_then(|()| server.wait()).expect("an end");
    writer.join().expect("no wrong answer");
}

/// A process that serves `x`.
pub(crate) fn server(lab: &Lab, all: &str) -> Child {
    let words = format!("assemble x{all} --export nbd:unix:x.sock --foreground");
    let server = lab.braid().args(words.split_whitespace()).spawn().expect("a server");
    until("a running array", || lab.run("status x", &[]).status.success());
    server
}

/// Names of the files in a node's store.
pub(crate) fn names(store: &Path) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(store).expect("a store").flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

/// Size of the running array `x`.
pub(crate) fn size(lab: &Lab) -> usize {
    detail(lab, "x")["size_bytes"].as_u64().expect("a size") as usize
}
