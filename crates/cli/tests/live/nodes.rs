//! Members on nodes, with few or no nodes: errors are reported in one line, without a long wait.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType};

use crate::support::Lab;
use crate::support::nodes::in_memory;

/// Returns this number of members on distinct nodes that are never contacted.
fn nodes(count: usize) -> String {
    (0..count).map(|number| format!(" node://host{number}:7000")).collect()
}

#[test]
fn wrong_words_for_members_on_nodes_are_refused_before_any_node_is_asked() {
    let lab = Lab::new();
    let members = lab.members("m", 1, 8);
    let four = nodes(4);
    let five = nodes(5);
    let table = [
        ("create x -l 5 -n 1 node://host", "port"),
        ("create x -l 5 -n 1 node://host:0/v", "port"),
        ("create x -l 5 -n 1 node://host:1/.v", "name of a volume"),
        ("create x -l 5 -n 1 node://::1:7000", "brackets"),
        (&format!("create x -l 5 -n 5 --size 1G m0{four}"), "all of its members on nodes"),
        (&format!("create x -l 5 -n 5 --size 1G{four} missing"), "missing"),
        (&format!("create x -l 5 -n 5 --size 1G{four}"), "5 are needed; name a node for each"),
        (&format!("create x -l 5 -n 5 -x 1 --size 1G{five}"), "5 and 1 spares are needed"),
        (&format!("create x -l 6 -p xor2d -n 5 --chunk 8G --size 1G{five}"), "8589934592"),
        (&format!("create x -l 5 -n 5{five}"), "--size"),
        (&format!("create x -l 5 -n 5 --size 4K{five}"), "less than a stripe"),
        (&format!("create x -l 5 -n 5 --size 1G --chunk 6K{five}"), "chunk"),
        (&format!("create x -l 0 -n 5 --size 1G --bitmap internal{five}"), "bitmap"),
        (&format!("create x -l 0 -n 4 -x 1 --size 1G{five}"), "spares"),
        (&format!("create x -l linear -n 5 --size 1G{five}"), "linear"),
        (&format!("create x -l 10 -p f2 -n 5 --size 1G{five}"), "far"),
        (&format!("create x -l 5 -p xor2d -n 5 --size 1G{five}"), "no layout xor2d"),
        (&format!("create x -l 6 -p xor2d -n 3 --size 1G{}", nodes(3)), "4 to 34"),
        (&format!("create x -l 6 -p xor2d -n 35 --size 1G{}", nodes(35)), "4 to 34"),
        (&format!("create a:b -l 5 -n 5 --size 1G{five}"), "name"),
        (&format!("create über -l 5 -n 5 --size 1G{five}"), "name of a volume"),
        (&format!("create x -l 5 -n 5 --size 1G{five} --export nbd:tcp:h:1"), "memory"),
        ("create x -l 1 -n 2 --size 1G node://h:1 node://h:1", "twice"),
        ("create x -l 1 -n 2 --size 1G node://h:1/a node://h:1/b", "lost together"),
        ("create x -l 1 -n 2 mem:1M m0", "in memory"),
        ("create x -l 1 -n 2 mem:1M mem:x", "not a size"),
        ("assemble node://h:1", "which volume"),
        ("assemble x node://h:1 m0", "all of its members on nodes"),
        ("assemble x node://h:1 node://h:1/x", "twice"),
        ("assemble x node://h:1 --schedule fast", "fast"),
        ("assemble x m0 --schedule mix", "over nodes"),
        ("assemble --scan node://h:1/x", "--scan"),
        ("assemble x mem:1M", "memory"),
        ("examine node://h:1", "which volume"),
        ("examine mem:1M", "holds nothing"),
    ];
    for (words, said) in table {
        let line = lab.refused(2, words, &[], &members);
        assert!(line.contains(said), "braid {words}: {line}");
    }
}

#[test]
fn who_is_no_node_is_told_by_name() {
    let lab = Lab::new();
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = stranger.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in stranger.incoming() {
            // Who asked may have seen enough already.
            let _ = stream.unwrap().write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n");
        }
    });
    // Nobody listens on this socket, and it keeps others from its port.
    let deaf = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&deaf, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let deaf = TcpListener::from(deaf);
    let nobody = deaf.local_addr().unwrap();
    for (address, said) in [(address, "not a braid node"), (nobody, "refuses the connection")] {
        for command in ["create x -l 0 -n 1 --force --size 1G", "assemble x", "examine"] {
            let words = format!("{command} node://{address}/x");
            let line = lab.refused(1, &words, &[], &[]);
            assert!(line.contains(said), "braid {words}: {line}");
            assert!(line.contains(&format!("node://{address}/x: ")), "braid {words}: {line}");
        }
    }
    let text = lab.told(&format!("assemble --explain x node://{nobody}/x"), &[]);
    assert!(text.contains("out  node://") && text.contains("refuses the connection"), "{text}");
    assert!(text.contains("cannot start"), "{text}");
}

/// Starts a proxy of this node that delays its answers.
fn slow(node: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let node = node.to_owned();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let node = TcpStream::connect(&node).unwrap();
            let said = client.try_clone().unwrap();
            let heard = node.try_clone().unwrap();
            std::thread::spawn(move || pass_on(said, heard, Duration::ZERO));
            std::thread::spawn(move || pass_on(node, client, Duration::from_millis(600)));
        }
    });
    address
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, after: Duration) {
    let mut bytes = vec![0; 1 << 16];
    // Either may be gone.
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        std::thread::sleep(after);
        if to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// Is each asked before any of them is given up? They say nothing.
fn all_at_once(silent: &[TcpListener]) -> bool {
    let mut asked: Vec<TcpStream> = silent.iter().map(|node| node.accept().unwrap().0).collect();
    asked.iter_mut().all(is_open)
}

/// Takes what it was told. It is open when there is no end to that.
fn is_open(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    loop {
        match stream.read(&mut [0; 4096]) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

#[test]
fn nodes_that_answer_late_or_never_are_not_waited_for_one_after_the_other() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 1);
    // Each of them takes three seconds and more to look at.
    for number in 0..5 {
        let member = format!("node://{}", nodes[0].address);
        lab.ok(&format!("create a{number} -l 0 -n 1 --force --size 1M {member}"), &[]);
    }
    let silent: Vec<TcpListener> =
        (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let addresses = silent.iter().map(|node| node.local_addr().unwrap().to_string());
    let slow = slow(&nodes[0].address);
    let all: Vec<String> = addresses.chain([slow.clone(), nodes[0].address.clone()]).collect();
    let waits = std::thread::spawn(move || all_at_once(&silent));
    let output = lab.run(&format!("nodes {} --json", all.join(" ")), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(waits.join().unwrap(), "one was given up before another was asked");
    let seen: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let states: Vec<&str> = seen["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["silent", "silent", "silent", "ready", "ready"]);
    let known = |node: usize| {
        let volumes = seen["nodes"][node]["volumes"].as_array().unwrap().clone();
        volumes.iter().filter(|volume| !volume["array"].is_null()).count()
    };
    assert_eq!(known(4), 5);
    assert!(known(3) < 5, "it was slow, and cut short");
}

#[test]
fn an_array_in_memory_is_served_at_once() {
    let lab = Lab::new();
    lab.ok("create x --level 6 --raid-devices 4 mem:8M mem:8M mem:8M mem:8M", &[]);
    let json: serde_json::Value =
        serde_json::from_slice(&lab.ok("detail x --json", &[])).expect("JSON");
    assert_eq!((&json["level"], &json["state"]), (&"raid6".into(), &serde_json::json!(["clean"])));
    assert_eq!(json["sync"]["action"], "idle");
    assert_eq!(json["members"][3]["device"], "mem:3");
    let content = lab.ok("cat x", &[]);
    assert_eq!(content.len() as u64, json["size_bytes"].as_u64().unwrap());
    assert!(content.iter().all(|&byte| byte == 0));
    // New memory agrees with itself.
    lab.ok("check x --wait", &[]);
    let json: serde_json::Value =
        serde_json::from_slice(&lab.ok("detail x --json", &[])).expect("JSON");
    assert_eq!(json["mismatches"], 0);
    lab.ok("fail x mem:1", &[]);
    assert_eq!(lab.run("detail x --test", &[]).status.code(), Some(1));
    lab.ok("stop x", &[]);
    let line = lab.refused(1, "create y -l 5 -n 3 mem:512 mem:1M mem:1M", &[], &[]);
    assert!(line.contains("too few"), "{line}");
}
