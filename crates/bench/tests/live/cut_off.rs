//! Two nodes that are cut off from each other, and both see the client: the array goes on without
//! one of them. As root, in network namespaces.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::spaces::{Spaces, can_be_made};
use crate::support::export::{ask, connect, noise};
use crate::support::{Lab, skip, until};

const BYTES: usize = 3 << 20;
/// Nodes bear 4 s of each other's silence unless the array says otherwise, so nobody who does not
/// know of that goes on any earlier than this after they were cut off.
const TOLD: Duration = Duration::from_millis(3500);
/// A machine may be slow for once.
const TRIES: u32 = 3;

impl Spaces<'_> {
    /// A node on a host; its address.
    fn node(&mut self, number: u16) -> String {
        let listen = format!("10.77.1.{}:7000", number + 1);
        let words = format!("node --listen {listen} --foreground --memory --ring 64M --no-key");
        let mut command = self.exec(&format!("n{number}"), &words);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("a node");
        let mut said = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut said).expect("an address");
        self.running.push(child);
        assert_eq!(said.trim_end(), listen);
        listen
    }

    /// Cuts the first two nodes off from each other, or puts that right.
    fn cut(&self, cut: bool) {
        for port in ["p-n0", "p-n1"] {
            let mut command = Command::new("bridge");
            command.args(["-n", &format!("{}-sw", self.name), "link", "set", "dev", port]);
            let set = command.args(["isolated", if cut { "on" } else { "off" }]).status();
            assert!(set.expect("bridge of iproute2").success());
        }
    }
}

#[test]
fn nodes_that_do_not_see_each_other_hold_writes_up_for_less_than_the_array_says() {
    if !can_be_made(&["ip", "bridge"]) {
        return skip("nodes_that_do_not_see_each_other", "it needs root and iproute2");
    }
    let lab = Lab::new();
    let name = format!("cut{}", std::process::id());
    lab.ok(&format!("bench lab up {name} --nodes 4"), &[]);
    let mut spaces = Spaces { lab: &lab, name, running: Vec::new() };
    let nodes: String = (0..4).map(|number| format!(" node://{}", spaces.node(number))).collect();
    for words in [
        format!("create x -l 5 -n 4 --size 1M --assume-clean{nodes}"),
        format!("assemble x{nodes} --node-timeout 2 --export nbd:unix:x.sock"),
    ] {
        assert!(spaces.exec("c0", &words).status().expect("braid runs").success(), "{words}");
    }
    let mut stream = connect(&lab.path("x.sock"), "x", BYTES);
    let mut content = noise(BYTES);
    let mut held_up = Vec::new();
    for _ in 0..TRIES {
        // All nodes talk to each other until then.
        ask(&mut stream, 1, 0, &content).unwrap();
        spaces.cut(true);
        let begun = Instant::now();
        content.iter_mut().for_each(|byte| *byte ^= 0x55);
        ask(&mut stream, 1, 0, &content).unwrap();
        ask(&mut stream, 3, 0, &[]).unwrap();
        held_up.push(begun.elapsed());
        assert_eq!(lab.run("detail x --test", &[]).status.code(), Some(1), "one is lost");
        assert!(lab.ok("cat x", &[]) == content, "what was written is there");
        spaces.cut(false);
        until("a whole array", || lab.run("detail x --test", &[]).status.success());
        if held_up.iter().any(|held_up| *held_up < TOLD) {
            break;
        }
    }
    assert!(held_up.iter().any(|held_up| *held_up < TOLD), "{held_up:?}");
    lab.ok("check x --wait", &[]);
    drop(stream);
    until("a stop, once nobody uses it", || lab.run("stop x", &[]).status.success());
}
