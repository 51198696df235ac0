//! The lab of network namespaces: as root, what goes over a shaped link takes its time and is
//! counted, and nothing stays when it is taken down.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::spaces::{Spaces, can_be_made};
use crate::support::{Lab, skip};

impl Spaces<'_> {
    /// Returns the bytes sent and received by a host.
    fn bytes(&self, host: &str) -> (u64, u64) {
        let text = self.lab.ok_text(&format!("bench lab bytes {}", self.name), &[]);
        let line = text.lines().find(|line| line.split(' ').next() == Some(host));
        let words: Vec<&str> = line.expect("a line for the host").split(' ').collect();
        let number = |place: usize| words[place].parse().expect("a number");
        (number(2), number(4))
    }
}

#[test]
fn links_are_shaped_and_counted_and_nothing_stays() {
    if !can_be_made(&["ip"]) {
        return skip("links_are_shaped", "it needs root and iproute2");
    }
    let lab = Lab::new();
    let name = format!("test{}", std::process::id());
    let hosts = lab.ok_text(&format!("bench lab up {name} --nodes 2 --link 40M"), &[]);
    let spaces = Spaces { lab: &lab, name: name.clone(), running: Vec::new() };
    assert_eq!(hosts, "c0 10.77.0.1\nn0 10.77.1.1\nn1 10.77.1.2\n");
    let line = lab.refused(1, &format!("bench lab up {name}"), &[], &[]);
    assert!(line.contains("up already"), "{line}");

    let mut receive = spaces.exec("n1", "bench line --listen 10.77.1.2:7700 --seconds 1");
    let mut receiver = receive.stdout(Stdio::piped()).spawn().expect("a receiver");
    let mut said = BufReader::new(receiver.stdout.take().expect("it is piped")).lines();
    assert_eq!(said.next().expect("a line").expect("text"), "10.77.1.2:7700");
    let mut send = spaces.exec("c0", "bench line --connect 10.77.1.2:7700");
    let mut sender = send.spawn().expect("a sender");
    let received = said.next().expect("a line").expect("text");
    let received: Value = serde_json::from_str(&received).expect("JSON");
    let bytes = received["bytes"].as_u64().expect("a number");
    let rate = bytes as f64 / received["seconds"].as_f64().expect("a number");
    // 40 Mbit/s less headers are 4.8 MB/s; more can come only out of the burst.
    assert!((1.0e6..5.5e6).contains(&rate), "{rate} bytes a second");
    receiver.wait().expect("it ends");
    sender.wait().expect("it ends");
    assert!(spaces.bytes("c0").0 > bytes && spaces.bytes("n1").1 > bytes);
    assert!(spaces.bytes("n0").1 < 10_000, "the other node hears nothing of it");

    // What runs inside ends with the lab.
    let mut receive = spaces.exec("n0", "bench line --listen 10.77.1.1:7700");
    let mut receiver = receive.stdout(Stdio::piped()).spawn().expect("a receiver");
    let mut said = BufReader::new(receiver.stdout.take().expect("it is piped")).lines();
    assert_eq!(said.next().expect("a line").expect("text"), "10.77.1.1:7700");
    drop(spaces);
    assert!(!receiver.wait().expect("it ends").success());
    assert!(!Path::new("/run/netns").join(format!("{name}-sw")).exists());
}

#[test]
fn labs_that_cannot_be_are_refused() {
    let lab = Lab::new();
    for (words, expected) in [
        ("bench lab up a/b", "not a name"),
        ("bench lab up toomany --nodes 65", "hosts"),
        ("bench lab bytes nosuchlab", "bring it up"),
        ("bench exec --lab nosuchlab --host n0 -- true", "no such file"),
        ("bench exec --lab nosuchlab --host x0 -- true", "no host"),
    ] {
        let line = lab.refused(1, words, &[], &[]);
        assert!(line.contains(expected), "{words}: {line}");
    }
    let line = lab.refused(2, "bench lab up few --link 10", &[], &[]);
    assert!(line.contains("not a rate"), "{line}");
}
