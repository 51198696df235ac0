//! Storage nodes of a test: `braid node` processes on this machine.

use crate::support::{Run, braid};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A running node. Dropped, it is killed.
pub(crate) struct Node {
    process: Child,
    /// Where it listens, `HOST:PORT`.
    pub(crate) address: String,
}

impl Node {
    /// A node that stores in this directory, which is made when it is not there.
    pub(crate) fn start(store: &Path) -> Self {
        fs::create_dir_all(store).expect("a directory");
        let mut command = braid();
        command.args(["node", "--listen", "127.0.0.1:0", "--foreground", "--store"]).arg(store);
        Self::spawn(&mut command)
    }

    fn spawn(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("braid starts");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let address = line.split_whitespace().find(|word| word.starts_with("127.0.0.1:"));
        let address = address.unwrap_or_else(|| panic!("no address in {line:?}")).to_owned();
        Self { process, address }
    }

    /// The member it stores.
    pub(crate) fn member(&self) -> PathBuf {
        PathBuf::from(format!("node://{}", self.address))
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.end();
    }
}

/// Several nodes, each with a directory of its own below this one.
pub(crate) fn nodes(base: &Path, count: usize) -> Vec<Node> {
    (0..count).map(|number| Node::start(&base.join(format!("node{number}")))).collect()
}

/// Their members, in order.
pub(crate) fn members(nodes: &[Node]) -> Vec<PathBuf> {
    nodes.iter().map(Node::member).collect()
}

/// `braid create` over these nodes, which must succeed.
pub(crate) fn create(name: &str, nodes: &[Node], arguments: &[&str]) {
    let mut command = braid();
    command.args(["create", name, "--raid-devices", &nodes.len().to_string()]).args(arguments);
    Run::of(command.args(members(nodes))).expect_success("create");
}
