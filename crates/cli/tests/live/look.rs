//! Arrays over nodes are read without being assembled.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use crate::support::export::{ask, connect, fill, noise};
use crate::support::nodes::{Node, in_stores, members};
use crate::support::{Lab, fingerprint, until};

/// Returns the files of the nodes for the array, votes included, with fingerprints.
fn kept(stores: &[PathBuf]) -> Vec<(PathBuf, u64)> {
    let files = stores.iter().flat_map(|store| std::fs::read_dir(store).unwrap());
    let paths = files.map(|file| file.unwrap().path()).filter(|path| !path.ends_with(".lock"));
    let mut all: Vec<_> = paths.map(|path| (path.clone(), fingerprint(&path))).collect();
    all.sort();
    all
}

#[test]
fn an_array_over_nodes_is_read_without_being_assembled() {
    let lab = Lab::new();
    let (mut nodes, stores) = in_stores(&lab);
    let all = members(&nodes, "");
    let named = members(&nodes, "/x");
    lab.ok(&format!("create x -l 5 -n 4 -c 64K --size 2M{all}"), &[]);
    lab.ok(&format!("assemble x{all} --export nbd:unix:x.sock"), &[]);
    let content = noise(6 << 20);
    fill(&lab.path("x.sock"), "x", &content);
    let line = lab.refused(1, &format!("cat{named}"), &[], &[]);
    assert!(line.contains("a client writes to it; read the array where it is served"), "{line}");
    lab.ok("stop x", &[]);

    let before = kept(&stores);
    assert!(lab.ok(&format!("cat{named}"), &[]) == content);
    let part = lab.ok(&format!("cat x{all} --offset 70001 --length 5000000"), &[]);
    assert!(part == content[70_001..5_070_001]);
    // And a node may be missing.
    nodes.pop().into_iter().for_each(Node::kill);
    let output = lab.run(&format!("cat{named}"), &[]);
    let warned = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && warned.contains("is missing: it refuses"), "{warned}");
    assert!(output.stdout == content);
    nodes.pop().into_iter().for_each(Node::kill);
    let line = lab.refused(1, &format!("cat{}", &members(&nodes, "/x")), &[], &[]);
    assert!(line.contains("2 of the 4 members"), "{line}");
    assert!(kept(&stores) == before, "something was written");
}

#[test]
fn what_was_not_stopped_cleanly_is_said() {
    let lab = Lab::new();
    let (nodes, _) = in_stores(&lab);
    let all = members(&nodes, "");
    let named = members(&nodes, "/x");
    lab.ok(&format!("create x -l 5 -n 4 -c 64K --size 2M{all}"), &[]);
    let words = format!("assemble x{all} --export nbd:unix:x.sock --foreground");
    let mut client = lab.braid().args(words.split_whitespace()).spawn().expect("a client");
    let socket = lab.path("x.sock");
    // Its file is there before anybody listens on it.
    until("an export", || UnixStream::connect(&socket).is_ok());
    let content = noise(4096);
    let mut export = connect(&socket, "x", 6 << 20);
    ask(&mut export, 1, 0, &content).unwrap();
    ask(&mut export, 3, 0, &[]).unwrap();
    // The nodes store it with what comes next.
    (0..20).for_each(|_| ask(&mut export, 1, 8192, &[1; 4096]).unwrap());
    // Whoever does not write for a moment says so.
    let writes = std::thread::spawn(move || while ask(&mut export, 1, 8192, &[1; 4096]).is_ok() {});
    client.kill().and_then(|()| client.wait()).expect("an end");
    writes.join().unwrap();
    until("volumes that are free", || lab.run(&format!("cat{named}"), &[]).status.success());
    let output = lab.run(&format!("cat{named} --length 4096"), &[]);
    let warned = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(warned.contains("it was not stopped cleanly"), "{warned}");
    assert!(output.stdout == content);
}
