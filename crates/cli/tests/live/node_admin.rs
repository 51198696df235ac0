//! Administration of storage nodes: their volumes, leftovers, and stop.

use std::fs::File;
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::{Value, json};

use crate::support::export::{fill, noise};
use crate::support::nodes::{Node, detail, in_memory, in_stores, members};
use crate::support::{Lab, until};

fn status(lab: &Lab, address: &str) -> Value {
    let output = lab.run(&format!("node status {address} --json"), &[]);
    let all: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(all["schema"], 1);
    all["nodes"][0].clone()
}

#[test]
fn nodes_say_what_they_keep_and_volumes_in_use_stay() {
    let lab = Lab::new();
    let (nodes, stores) = in_stores(&lab);
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 5 -n 4 --size 1M{all}"), &[]);
    lab.ok(&format!("assemble x{all}"), &[]);
    let node = &nodes[0].address;
    let seen = status(&lab, node);
    assert_eq!((&seen["state"], &seen["clients"]), (&json!("ready"), &json!(1)));
    let session = &seen["sessions"][0];
    assert_eq!((&session["has"], &session["granted_epoch"]), (&json!("pipeline"), &json!(1)));
    assert_eq!(session["array_uuid"], detail(&lab, "x")["uuid"]);
    // A journal has memory beside it.
    let leased = session["ring_bytes"].as_u64().expect("bytes");
    assert!(leased > 0 && Some(leased) <= seen["ring_used_bytes"].as_u64(), "{seen}");
    let volume = &seen["volumes"][0];
    assert_eq!((&volume["name"], &volume["array"]), (&json!("x"), &json!("x")));
    assert!(!volume["client"].is_null() && volume["leftover"] == false, "{volume}");
    assert!(volume["granted_epoch"].as_u64() > Some(0), "{volume}");
    let used = |seen: &Value| seen["ring_used_bytes"].as_u64().expect("bytes");
    assert!(used(&seen) > 0 && used(&seen) <= seen["ring_bytes"].as_u64().expect("bytes"));
    let line = lab.refused(1, &format!("node delete {node} x"), &[], &[]);
    assert!(line.contains("in use"), "{line}");
    assert!(stores[0].join("x").exists());
    lab.ok("stop x", &[]);
    until("a volume that is free", || status(&lab, node)["volumes"][0]["client"].is_null());
    lab.ok(&format!("volume delete {node} x --array x"), &[]);
    assert!(!stores[0].join("x").exists());
    let line = lab.refused(1, &format!("node delete {node} x"), &[], &[]);
    assert!(line.contains("no volume"), "{line}");
}

#[test]
fn a_vote_is_forgotten_when_somebody_says_so_and_nothing_stands_against_it() {
    let lab = Lab::new();
    let (nodes, stores) = in_stores(&lab);
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 5 -n 4 --size 1M{all}"), &[]);
    lab.ok(&format!("assemble x{all}"), &[]);
    let uuid = detail(&lab, "x")["uuid"].as_str().expect("a UUID").to_owned();
    let node = &nodes[0].address;
    let forget = format!("node forget {node} {uuid}");
    assert_eq!(status(&lab, node)["votes_without_member"], json!([]));
    let line = lab.refused(1, &forget, &[], &[]);
    assert!(line.contains("volume x carries a member of the array"), "{line}");
    lab.ok("stop x", &[]);
    until("a volume that is free", || status(&lab, node)["volumes"][0]["client"].is_null());

    let output = lab.run(&format!("node delete {node} x --array {uuid}"), &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.ends_with(&format!("braid {forget}\n")), "{said}");
    let votes = || {
        let names = std::fs::read_dir(&stores[0]).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".vote")).count()
    };
    assert_eq!(votes(), 1);
    let vote = status(&lab, node)["votes_without_member"][0].clone();
    assert_eq!(
        (&vote["array_uuid"], &vote["forget"]),
        (&json!(uuid), &json!(format!("braid {forget}")))
    );
    assert!(vote["granted_epoch"].as_u64() > Some(0), "{vote}");
    let text = lab.ok_text(&format!("node status {node}"), &[]);
    assert!(text.contains(&format!("votes for array {uuid}, epoch ")), "{text}");
    assert!(text.ends_with(&format!(": braid {forget}\n")), "{text}");

    lab.ok(&forget, &[]);
    assert_eq!(votes(), 0);
    assert_eq!(status(&lab, node)["votes_without_member"], json!([]));
    let line = lab.refused(1, &forget, &[], &[]);
    assert!(line.contains("has no vote of this array"), "{line}");
    let line = lab.refused(2, &format!("node forget {node} x"), &[], &[]);
    assert!(line.contains("is no UUID of an array"), "{line}");
}

#[test]
fn what_others_keep_in_a_store_is_not_offered_for_removal() {
    let lab = Lab::new();
    let (nodes, stores) = in_stores(&lab);
    let text = "these are notes\n".repeat(4096);
    std::fs::write(stores[1].join("notes.txt"), text).unwrap();
    std::fs::write(stores[1].join("small"), "a few words").unwrap();
    let text = lab.ok_text(&format!("nodes {}", nodes[1].address), &[]);
    assert!(text.contains("notes.txt: ") && text.contains("holds something else"), "{text}");
    assert!(!text.contains("delete"), "{text}");
    let all = members(&nodes, "");
    let line = lab.refused(1, &format!("create notes.txt -l 5 -n 4 --size 1M{all}"), &[], &[]);
    assert!(line.contains("is no volume") && !line.contains("delete"), "{line}");
}

#[test]
fn a_node_outlives_the_limit_of_the_size_of_files() {
    let lab = Lab::new();
    let (nodes, _stores) = in_stores(&lab);
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 5 -n 4 -c 64K --size 8M{all}"), &[]);
    lab.ok(&format!("assemble x{all} --export nbd:unix:x.sock"), &[]);
    let pid = Pid::from_raw(nodes[1].pid().cast_signed());
    let limit = Rlimit { current: Some(1 << 20), maximum: Some(1 << 20) };
    prlimit(pid, Resource::Fsize, limit).expect("it is ours");
    fill(&lab.path("x.sock"), "x", &noise(24 << 20));
    assert_eq!(status(&lab, &nodes[1].address)["state"], "ready");
    assert!(lab.ok_text("status x", &[]).contains("[U_UU]"));
    lab.ok("stop x", &[]);
}

/// A descriptor that this process opens has this number at least.
fn lowest_free(pid: i32) -> u64 {
    let open = |number: &u64| !Path::new(&format!("/proc/{pid}/fd/{number}")).exists();
    (0..).find(open).expect("a number")
}

#[test]
fn a_node_without_descriptors_says_so_and_goes_on_when_some_are_free() {
    let lab = Lab::new();
    let address = lab.ok_text("node --listen 127.0.0.1:0 --memory --ring 64M", &[]);
    let address = address.trim_end();
    let run = lab.path("run");
    let pid = std::fs::read_to_string(run.join(format!("node-{address}.pid"))).expect("a pid");
    let pid: i32 = pid.trim_end().parse().expect("a number");
    assert_eq!(status(&lab, address)["state"], "ready");
    // What the last one used is given back after the answer.
    let maximum = getrlimit(Resource::Nofile).maximum;
    let few = Rlimit { current: Some(lowest_free(pid) + 8), maximum };
    prlimit(Pid::from_raw(pid), Resource::Nofile, few).expect("it is ours");
    let log = run.join(format!("node-{address}.log"));
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    let many: Vec<TcpStream> = (0..32).filter_map(|_| TcpStream::connect(address).ok()).collect();
    until("a node without descriptors", || {
        said().contains("no connection can be taken: too many open files")
    });
    assert!(said().contains("LimitNOFILE"), "{}", said());
    drop(many);
    until("a node with some", || status(&lab, address)["state"] == "ready");
}

#[test]
fn what_an_interrupted_create_left_is_named_with_what_removes_it() {
    let lab = Lab::new();
    let (nodes, stores) = in_stores(&lab);
    let volume = File::create(stores[1].join("x")).unwrap();
    volume.set_len(4 << 20).unwrap();
    let all = members(&nodes, "");
    let line = lab.refused(1, &format!("create x -l 5 -n 4 --size 1M{all}"), &[], &[]);
    let command = format!("node delete {} x", nodes[1].address);
    assert!(line.contains("interrupted") && line.contains(&command), "{line}");
    let text = lab.ok_text(&format!("nodes {}", nodes[1].address), &[]);
    assert!(text.contains("interrupted") && text.contains(&command), "{text}");
    lab.ok(&command, &[]);
    lab.ok(&format!("create x -l 5 -n 4 --size 1M{all}"), &[]);
}

#[test]
fn a_node_that_is_told_to_ends_and_is_a_row_that_says_so() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 2);
    let gone = &nodes[0].address;
    let stays = &nodes[1].address;
    lab.ok(&format!("node stop {gone}"), &[]);
    until("the end of a node", || status(&lab, gone)["state"] == "silent");
    let output = lab.run(&format!("node status {gone} {stays}"), &[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1));
    let rows: Vec<&str> = text.lines().collect();
    assert!(rows[0].contains("refuses the connection"), "{text}");
    assert!(rows[1].starts_with(stays) && rows[1].contains("version"), "{text}");
}

#[test]
fn nobody_without_the_key_looks_after_nodes() {
    let lab = Lab::new();
    let [own, other] = ["own", "other"].map(|name| lab.path(name).display().to_string());
    lab.ok(&format!("key new {own}"), &[]);
    lab.ok(&format!("key new {other}"), &[]);
    let store = lab.path("store");
    let storage = format!("--store {} --ring 64M --key {own}", store.display());
    let node = Node::start(&lab, "127.0.0.1:0", &storage);
    let address = &node.address;
    let create = format!("create x -l 0 -n 1 --force --size 1M --key {own} node://{address}");
    lab.ok(&create, &[]);
    let forget = format!("node forget {address} {}", "00112233:".repeat(4).trim_end_matches(':'));
    let delete = format!("node delete {address} x");
    for words in [delete, forget, format!("node stop {address}")] {
        let line = lab.refused(1, &words, &[], &[]);
        assert!(line.contains("wants the cluster key"), "{line}");
        let line = lab.refused(1, &format!("{words} --key {other}"), &[], &[]);
        assert!(line.contains("has another cluster key"), "{line}");
    }
    for key in [String::new(), format!("--key {other}")] {
        let output = lab.run(&format!("node status {address} {key}"), &[]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1));
        // Neither what volumes there are nor how large it is.
        assert!(text.contains("cluster key") && text.lines().count() == 1, "{text}");
    }
    assert!(store.join("x").exists());
    lab.ok(&format!("node delete {address} x --array x --key {own}"), &[]);
    assert!(!store.join("x").exists());
    lab.ok(&format!("node stop {address} --key {own}"), &[]);
    let gone = || !lab.run(&format!("node status {address} --key {own}"), &[]).status.success();
    until("the end of a node", gone);
}

#[test]
fn a_node_logs_the_client_that_it_lost() {
    let lab = Lab::new();
    let address = lab.ok_text("node --listen 127.0.0.1:0 --memory --ring 64M", &[]);
    let address = address.trim_end();
    lab.ok(&format!("create x -l 0 -n 1 --force --size 1M node://{address}"), &[]);
    let words = format!("assemble x node://{address} --foreground");
    let mut client = lab.braid().args(words.split_whitespace()).spawn().expect("a client");
    // It may be asked for while it still connects.
    until("a pipeline", || status(&lab, address)["ring_used_bytes"] != 0);
    client.kill().and_then(|()| client.wait()).expect("an end");
    let log = lab.path("run").join(format!("node-{address}.log"));
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    until("a line", || said().contains("the client of volume x is gone"));
}

/// A stop is no reason to be worried.
#[test]
fn a_clean_stop_leaves_no_warning_in_the_log_of_a_node() {
    let lab = Lab::new();
    let start = |_| lab.ok_text("node --listen 127.0.0.1:0 --memory --ring 64M", &[]);
    let addresses: Vec<String> = (0..3).map(start).collect();
    let all: String = addresses.iter().map(|it| format!(" node://{}", it.trim_end())).collect();
    for (level, bytes) in [(0, 3 << 20), (5, 2 << 20)] {
        let name = format!("x{level}");
        lab.ok(&format!("create {name} -l {level} -n 3 --size 1M{all}"), &[]);
        lab.ok(&format!("assemble {name}{all} --export nbd:unix:x.sock"), &[]);
        fill(&lab.path("x.sock"), &name, &noise(bytes));
        lab.ok(&format!("stop {name}"), &[]);
        for address in &addresses {
            let log = lab.path("run").join(format!("node-{}.log", address.trim_end()));
            let said = || std::fs::read_to_string(&log).unwrap_or_default();
            let line = format!("the client of volume {name} is gone, and left it clean");
            until("a line", || said().contains(&line));
            assert!(said().lines().all(|line| !line.contains("WARN")), "{}", said());
        }
    }
}

#[test]
fn the_service_manager_hears_when_a_node_serves() {
    let lab = Lab::new();
    let socket = UnixDatagram::bind(lab.path("notify")).unwrap();
    let mut command: Command = lab.braid();
    command.args(["node", "--listen", "127.0.0.1:0", "--memory", "--foreground"]);
    command.env("NOTIFY_SOCKET", lab.path("notify")).stdout(Stdio::null());
    let mut node = command.spawn().expect("a node");
    socket.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let mut word = [0; 64];
    let len = socket.recv(&mut word).expect("a word");
    assert_eq!(&word[..len], b"READY=1");
    node.kill().and_then(|()| node.wait()).expect("an end");
}

#[test]
fn room_is_what_is_free_and_not_promised() {
    let lab = Lab::new();
    let store = lab.path("store");
    let node = Node::start(&lab, "127.0.0.1:0", &format!("--store {}", store.display()));
    let free = status(&lab, &node.address)["free_bytes"].as_u64().expect("bytes");
    let create = |name: &str, bytes: u64| {
        let member = format!("node://{}", node.address);
        format!("create {name} -l 0 -n 1 --force --bitmap none --size {bytes} {member}")
    };
    let two_thirds = free / 3 * 2 / (1 << 20) * (1 << 20);
    lab.ok(&create("a", two_thirds), &[]);
    let line = lab.refused(1, &create("b", two_thirds), &[], &[]);
    assert!(line.contains("promised to other volumes"), "{line}");
    lab.ok(&format!("node delete {} a --force", node.address), &[]);
    lab.ok(&create("b", two_thirds), &[]);
}
