//! Hanging nodes: no command waits for them longer than the timeout.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Child;
use std::time::{Duration, Instant};

use crate::support::nodes::{Node, in_memory, members};
use crate::support::{Lab, patience, until};
use rustix::process::{Pid, Signal, kill_process};

/// Passes connections on to a node: the first ones whole, and of all others nothing after the
/// greeting. Its address.
fn half_deaf(node: &Node, whole: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let node = node.address.clone();
    let pass = |mut from: TcpStream, mut to: TcpStream, first: usize| {
        let mut left = first;
        let mut buffer = [0; 4096];
        while let Ok(got @ 1..) = from.read(&mut buffer) {
            let passed = got.min(left);
            left -= passed;
            if to.write_all(&buffer[..passed]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Write);
    };
    std::thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate() {
            let client = client.unwrap();
            let node = TcpStream::connect(&node).unwrap();
            let client_too = client.try_clone().unwrap();
            let node_too = node.try_clone().unwrap();
            let hello = braid_host::fabric::frame::HELLO_BYTES;
            let first = if number < whole { usize::MAX } else { hello };
            std::thread::spawn(move || pass(client, node, first));
            std::thread::spawn(move || pass(node_too, client_too, usize::MAX));
        }
    });
    address
}

/// Forty seconds of a machine with nothing else to do. Machines are slow at times; for ever is
/// longer.
fn soon() -> Duration {
    patience() * 2 / 3
}

/// Creates an array over nodes whose last one is reached through a proxy that is deaf to the
/// serving process. Returns the members to assemble.
fn half_deaf_array(lab: &Lab, nodes: &[Node]) -> String {
    lab.ok(&format!("create x -l 5 -n 4 --size 1M --assume-clean{}", members(nodes, "")), &[]);
    // A command looks at it, and holds it while it looks at the others.
    let deaf = half_deaf(&nodes[3], 2);
    format!("{} node://{deaf}/x", members(&nodes[..3], "/x"))
}

fn set_up(lab: &Lab, words: &str) -> Child {
    let words = format!("assemble x{words} --foreground --node-timeout 600");
    let child = lab.braid().args(words.split_whitespace()).spawn().expect("a server");
    // It answers although it waits.
    until("an array in set-up", || lab.run("status x", &[]).status.success());
    child
}

#[test]
fn a_node_that_hangs_counts_as_missing_when_the_array_can_do_without() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 4);
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 5 -n 4 --size 1M --assume-clean{all}"), &[]);
    lab.ok(&format!("create y -l 0 -n 4 --size 1M{all}"), &[]);
    nodes[2].signal(Signal::STOP);
    let begun = Instant::now();
    let output = lab.run(&format!("assemble x{all} --node-timeout 1"), &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && begun.elapsed() < soon(), "{said}");
    assert!(said.contains(&format!("{}/x is missing", nodes[2].address)), "{said}");
    assert_eq!(lab.run("detail x --test", &[]).status.code(), Some(1));
    lab.ok("stop x", &[]);
    let line = lab.refused(1, &format!("assemble y{all} --node-timeout 1"), &[], &[]);
    assert!(line.contains(&nodes[2].address), "{line}");
    nodes[2].signal(Signal::CONT);
    lab.ok(&format!("assemble y{all}"), &[]);
}

#[test]
fn a_node_that_hangs_while_the_array_is_served_is_lost() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 4);
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 5 -n 4 --size 1M --assume-clean{all}"), &[]);
    lab.ok(&format!("assemble x{all} --node-timeout 1"), &[]);
    nodes[1].signal(Signal::STOP);
    let content = lab.ok("cat x", &[]);
    assert_eq!(content.len(), 3 << 20, "what it had comes from the others");
    let code = lab.run("detail x --test", &[]).status.code();
    assert!(matches!(code, Some(1 | 2)), "{code:?}");
    let log = std::fs::read_to_string(lab.path("run").join("x.log")).unwrap();
    assert!(log.contains("has not answered for 1 s"), "{log}");
    let begun = Instant::now();
    lab.ok("stop x", &[]);
    assert!(begun.elapsed() < soon());
}

/// The time of day, in seconds, at which each line of a log was written that says this.
fn said_at(log: &str, what: &str) -> Vec<f64> {
    let time = |line: &str| {
        let (_, time) = line.split_once('T')?;
        let time = time.split_once('Z')?.0.split(':').map(|part| part.parse().ok());
        time.collect::<Option<Vec<f64>>>()
            .map(|parts| parts[0] * 3600.0 + parts[1] * 60.0 + parts[2])
    };
    log.lines().filter(|line| line.contains(what)).filter_map(time).collect()
}

#[test]
fn two_nodes_that_hang_at_the_same_time_are_lost_at_the_same_time() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 5);
    let all = members(&nodes, "");
    let words = "-l 6 --layout xor2d -n 5 --size 1M --assume-clean";
    lab.ok(&format!("create x {words}{all}"), &[]);
    lab.ok(&format!("assemble x{all} --node-timeout 4"), &[]);
    nodes[..2].iter().for_each(|node| node.signal(Signal::STOP));
    // One block after the other: the first that lies on either of them waits for that one alone.
    for block in 0..64 {
        let offset = block * 4096;
        assert_eq!(lab.ok(&format!("cat x --offset {offset} --length 4K"), &[]), [0; 4096]);
    }
    let log = std::fs::read_to_string(lab.path("run").join("x.log")).unwrap();
    let lost = said_at(&log, "has not answered for 4 s");
    assert_eq!(lost.len(), 2, "{log}");
    // Otherwise the second would be lost a timeout later.
    let apart = (lost[1] - lost[0]).rem_euclid(86_400.0);
    assert!(apart < 2.0, "{apart} s apart: {log}");
    nodes[..2].iter().for_each(|node| node.signal(Signal::CONT));
    lab.ok("stop x", &[]);
}

#[test]
fn a_node_that_hangs_in_set_up_counts_as_missing() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 4);
    let words = half_deaf_array(&lab, &nodes);
    let output = lab.run(&format!("assemble x{words} --node-timeout 1"), &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("is missing: it has not answered for 1 s"), "{said}");
    lab.ok("stop x", &[]);
}

#[test]
fn a_signal_ends_an_array_that_waits_for_its_nodes() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 4);
    let words = half_deaf_array(&lab, &nodes);
    let mut child = set_up(&lab, &words);
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    assert!(!child.wait().expect("an end").success());
    lab.ok(&format!("assemble x{}", members(&nodes, "")), &[]);
    lab.ok("stop x", &[]);
}

#[test]
fn a_stop_ends_an_array_that_waits_for_its_nodes() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 4);
    let words = half_deaf_array(&lab, &nodes);
    let mut child = set_up(&lab, &words);
    lab.ok("stop x", &[]);
    assert!(!child.wait().expect("an end").success());
    lab.ok(&format!("assemble x{}", members(&nodes, "")), &[]);
}
