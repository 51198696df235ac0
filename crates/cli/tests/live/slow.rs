//! A node that is slower than the others is named.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::support::nodes::{Node, detail, in_memory, members};
use crate::support::{Lab, until};
use serde_json::json;

/// Delay of a long way to a node, in one direction.
const DELAY: Duration = Duration::from_millis(60);

/// A long way to a node. Its address.
fn far_away(node: &Node) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let node = node.address.clone();
    let pass = |mut from: TcpStream, mut to: TcpStream| {
        let mut buffer = vec![0; 1 << 20];
        while let Ok(got @ 1..) = from.read(&mut buffer) {
            thread::sleep(DELAY);
            if to.write_all(&buffer[..got]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Write);
    };
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let node = TcpStream::connect(&node).unwrap();
            let client_too = client.try_clone().unwrap();
            let node_too = node.try_clone().unwrap();
            thread::spawn(move || pass(client, node));
            thread::spawn(move || pass(node_too, client_too));
        }
    });
    address
}

#[test]
fn a_node_that_sets_the_pace_is_named() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 4);
    lab.ok(&format!("create x -l 5 -n 4 --size 1M --assume-clean{}", members(&nodes, "")), &[]);
    let far = format!("node://{}/x", far_away(&nodes[3]));
    lab.ok(&format!("assemble x{} {far}", members(&nodes[..3], "/x")), &[]);
    assert_eq!(detail(&lab, "x")["members"][3]["state"], json!(["in-sync"]));
    until("a slow node", || {
        lab.ok("cat x", &[]);
        detail(&lab, "x")["members"][3]["state"] == json!(["in-sync", "slow"])
    });
    let all = detail(&lab, "x")["members"].clone();
    for near in 0..3 {
        assert_eq!(all[near]["state"], json!(["in-sync"]), "{all}");
    }
    let line = |text: &str| {
        let found = text.lines().find(|line| line.contains(&far)).map(str::to_owned);
        found.expect("a line of the node")
    };
    assert!(line(&lab.ok_text("detail x", &[])).contains(" slow ("));
    assert!(line(&lab.ok_text("status x", &[])).contains(", slow: answers take "));
    let log = lab.path("run").join("x.log");
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    until("a line of the log", || said().contains("is slow, it takes "));
    lab.ok("cat x", &[]);
    assert_eq!(said().matches("is slow, it takes ").count(), 1, "{}", said());
    lab.ok("stop x", &[]);
}
