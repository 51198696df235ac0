//! An array that only an administrator may start: every request for it gets the same answer.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::export::{ask, connect, noise};
use crate::support::nodes::{Node, detail, in_stores, members};
use crate::support::{Lab, until};
use rustix::process::Signal;

/// Writes the first block of `x` again and again, until it is told to end or that fails.
fn write_on(lab: &Lab, over: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let mut stream = connect(&lab.path("x.sock"), "x", 8 << 20);
    let block = noise(4096);
    let over = Arc::clone(over);
    std::thread::spawn(move || {
        while !over.load(Ordering::Relaxed) && ask(&mut stream, 1, 0, &block).is_ok() {}
    })
}

/// Returns the epoch that a node has granted for the array.
fn granted(store: &PathBuf) -> u32 {
    let files = std::fs::read_dir(store).unwrap().map(|file| file.unwrap().path());
    let votes = files.filter(|path| path.extension().is_some_and(|end| end == "vote"));
    let word = |path: PathBuf, at: u64| {
        let mut bytes = [0; 4];
        std::fs::File::open(path).unwrap().read_exact_at(&mut bytes, at).unwrap();
        u32::from_le_bytes(bytes)
    };
    let highest = |path: PathBuf| word(path.clone(), 40).max(word(path, 4096 + 40));
    votes.map(highest).max().expect("a vote file")
}

#[test]
fn who_asks_whether_an_array_starts_hears_what_its_start_says() {
    let lab = Lab::new();
    let (mut nodes, stores) = in_stores(&lab);
    nodes.truncate(3);
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 5 -n 3 --size 4M --consistency-policy bitmap{all}"), &[]);
    let words = format!("assemble x{all} --export nbd:unix:x.sock");
    lab.ok(&format!("{words} --node-timeout 1 --fail-timeout 0"), &[]);
    let addresses: Vec<String> = nodes.iter().map(|node| node.address.clone()).collect();
    // One is away for longer; the others die while they are written to.
    nodes.pop().into_iter().for_each(Node::kill);
    let over = Arc::new(AtomicBool::new(false));
    let writer = write_on(&lab, &over);
    until("a degraded array that is written to", || {
        let state = detail(&lab, "x")["state"].clone();
        state.to_string().contains("degraded") && state.to_string().contains("active")
    });
    // Else the node that is away is taken back as if nothing had been.
    until("the others to have it on record that one is away", || {
        lab.ok_text(&format!("examine node://{}/x", addresses[0]), &[]).contains("AA. (")
    });
    nodes.iter().for_each(|node| node.signal(Signal::STOP));
    nodes.into_iter().for_each(Node::kill);
    until("an array that waits", || !detail(&lab, "x")["waiting"].is_null());
    over.store(true, Ordering::Relaxed);
    // The last write may have failed.
    drop(writer.join());
    let start = |(address, store): (&String, &PathBuf)| {
        Node::start(&lab, address, &format!("--store {} --ring 64M", store.display()))
    };
    let _nodes: Vec<Node> = addresses.iter().zip(&stores).map(start).collect();

    let why = "parity that is needed to compute the missing data may be wrong";
    until("the reason", || lab.ok_text("status x", &[]).contains(why));
    let said = lab.ok_text("status x", &[]);
    assert!(said.contains("reads and writes fail") && said.contains("--force"), "{said}");
    assert!(!said.contains("away"), "all are there: {said}");
    let waiting = detail(&lab, "x")["waiting"].clone();
    assert!(waiting["reason"].to_string().contains(why), "{waiting}");
    assert!(waiting["next"].to_string().contains("--force"), "{waiting}");
    let before = granted(&stores[0]);
    until("more attempts", || granted(&stores[0]) > before + 3);
    let log = std::fs::read_to_string(lab.path("run/x.log")).unwrap();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(why)).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("--force"), "{log}");
    lab.ok("stop x --force", &[]);

    let explained = lab.told(&format!("assemble x{all} --explain"), &[]);
    assert!(explained.contains("cannot start: ") && explained.contains(why), "{explained}");
    let next = explained.lines().find_map(|line| line.strip_prefix("next: ")).expect("a step");
    let refused = lab.run(&words, &[]);
    let line = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{line}");
    assert!(line.contains(why) && line.contains("--force"), "{line}");
    let (_, command) = next.split_once(": braid ").expect("a command");
    assert!(command.contains(" --force"), "{next}");
    let explained = lab.ok_text(&format!("{command} --explain"), &[]);
    assert!(explained.contains("can start: "), "{explained}");
    lab.ok(command, &[]);
    lab.ok("stop x", &[]);
}
