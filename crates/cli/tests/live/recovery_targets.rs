//! Members of an array over nodes that fail, go, and are replaced while it runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::support::export::{ask, connect, fill, noise};
use crate::support::nodes::{Node, detail, in_memory, in_stores, members};
use crate::support::{Lab, patience, until};
use serde_json::{Value, json};

/// All members of `x` are in sync again, and their sums fit.
fn is_whole(lab: &Lab, content: &[u8]) {
    until("a whole array", || {
        let seen = detail(lab, "x");
        seen["members"].as_array().is_some_and(|all| all.iter().all(|m| m["state"][0] == "in-sync"))
    });
    assert!(lab.ok("cat x", &[]) == content);
    lab.ok("check x --wait", &[]);
    assert_eq!(detail(lab, "x")["mismatches"], 0);
}

#[test]
fn another_node_takes_the_place_of_one_that_died() {
    let lab = Lab::new();
    let (mut nodes, stores) = in_stores(&lab);
    let spare = nodes.pop().unwrap();
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 5 -n 3 --size 4M{all}"), &[]);
    lab.ok(&format!("assemble x{all} --export nbd:unix:x.sock"), &[]);
    let content = noise(8 << 20);
    fill(&lab.path("x.sock"), "x", &content);
    let lost = nodes.remove(1);
    let address = lost.address.clone();
    lost.kill();
    until("the loss", || {
        detail(&lab, "x")["state"].as_array().unwrap().contains(&json!("degraded"))
    });
    lab.ok(&format!("add x node://{}", spare.address), &[]);
    let content: Vec<u8> = content.iter().map(|byte| byte ^ 0x5a).collect();
    fill(&lab.path("x.sock"), "x", &content);
    is_whole(&lab, &content);
    let named = detail(&lab, "x")["members"].to_string();
    assert!(named.contains(&spare.address) && !named.contains(&address), "{named}");
    let said = detail(&lab, "x");
    assert_eq!(said["view"]["in_sync"], json!([0, 1, 2]), "{said}");
    assert_eq!(said["epoch"], said["view"]["epoch"], "{said}");
    assert_eq!(said["sync"]["copied_bytes"], 4 << 20, "{said}");
    let votes = |address: &str| said["voters"].as_array().unwrap().contains(&json!(address));
    until("the vote of the new node", || {
        let voters = detail(&lab, "x")["voters"].to_string();
        voters.contains(&spare.address) && !voters.contains(&address)
    });
    assert!(votes(&nodes[0].address), "{said}");
    lab.ok("stop x", &[]);

    // The one whose place was taken is back, and is left out.
    let storage = format!("--store {} --ring 64M", stores[1].display());
    let back = Node::start(&lab, &address, &storage);
    let old = members(std::slice::from_ref(&back), "");
    let new = members(std::slice::from_ref(&spare), "");
    let all = format!("{}{new}{old}", members(&nodes, ""));
    let output = lab.run(&format!("assemble x{all}"), &[]);
    let warned = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{warned}");
    assert!(warned.contains(&format!("{address}/x is left out")), "{warned}");
    is_whole(&lab, &content);
    lab.ok("stop x", &[]);
}

#[test]
fn a_member_is_failed_taken_off_and_added_again() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 4);
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 6 -p xor2d -n 4 --size 4M{all}"), &[]);
    lab.ok(&format!("assemble x{all} --export nbd:unix:x.sock"), &[]);
    let content = noise(8 << 20);
    fill(&lab.path("x.sock"), "x", &content);
    let first = members(&nodes[..1], "");
    lab.ok(&format!("fail x{first}/x"), &[]);
    let line = lab.refused(1, &format!("add x{first}"), &[], &[]);
    let next = "already a member of x, a faulty one; remove it first: braid remove x node://";
    assert!(line.contains(next), "{line}");
    let content: Vec<u8> = content.iter().map(|byte| byte ^ 0x5a).collect();
    fill(&lab.path("x.sock"), "x", &content);
    lab.ok(&format!("remove x{first}"), &[]);
    lab.ok(&format!("add x{first}"), &[]);
    is_whole(&lab, &content);
    lab.ok("stop x", &[]);
}

#[test]
fn nodes_that_were_not_there_at_the_start_come_in_by_themselves() {
    let lab = Lab::new();
    let (mut nodes, stores) = in_stores(&lab);
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 6 -n 4 --size 4M{all}"), &[]);
    lab.ok(&format!("assemble x{all} --export nbd:unix:x.sock"), &[]);
    let content = noise(8 << 20);
    fill(&lab.path("x.sock"), "x", &content);
    lab.ok("stop x", &[]);
    let address = nodes[2].address.clone();
    nodes.remove(2).stop();
    let output = lab.run(&format!("assemble x{all} --export nbd:unix:x.sock"), &[]);
    let warned = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && warned.contains(&format!("{address}/x is missing")),
        "{warned}"
    );
    let content: Vec<u8> = content.iter().map(|byte| byte ^ 0x5a).collect();
    fill(&lab.path("x.sock"), "x", &content);
    assert_eq!(lab.run("detail x --test", &[]).status.code(), Some(1));
    assert_eq!(in_state(&lab, "absent"), [format!("node://{address}/x")]);
    let storage = format!("--store {} --ring 64M", stores[2].display());
    let _late = Node::start(&lab, &address, &storage);
    until("a fourth member", || in_state(&lab, "absent").is_empty());
    is_whole(&lab, &content);
    lab.ok("stop x", &[]);
}

/// Where members of `x` are that are in this state.
fn in_state(lab: &Lab, state: &str) -> Vec<String> {
    let seen = detail(lab, "x");
    let members = seen["members"].as_array().unwrap().iter();
    let such = members.filter(|member| member["state"][0] == state);
    such.map(|member| member["device"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_spare_takes_the_place_of_one_that_does_not_come_back() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 4);
    let three = members(&nodes[..3], "");
    let spare = format!("node://{}", nodes[3].address);
    lab.ok(&format!("create x -l 5 -n 3 --size 4M{three}"), &[]);
    lab.ok(&format!("assemble x{three} --export nbd:unix:x.sock"), &[]);
    let content = noise(8 << 20);
    fill(&lab.path("x.sock"), "x", &content);
    lab.ok(&format!("add x {spare}"), &[]);
    assert_eq!(in_state(&lab, "spare"), [format!("{spare}/x")]);
    lab.ok("stop x", &[]);
    // It is one still, is taken off, and added again.
    lab.ok(&format!("assemble x{three} {spare} --export nbd:unix:x.sock"), &[]);
    assert_eq!(in_state(&lab, "spare"), [format!("{spare}/x")]);
    lab.ok(&format!("remove x {spare}"), &[]);
    lab.ok(&format!("add x {spare}"), &[]);
    lab.ok(&format!("fail x{}", members(&nodes[1..2], "")), &[]);
    until("the spare in its place", || in_state(&lab, "spare").is_empty());
    lab.ok(&format!("remove x{}", members(&nodes[1..2], "")), &[]);
    is_whole(&lab, &content);
    assert!(in_state(&lab, "in-sync").contains(&format!("{spare}/x")));
    lab.ok("stop x", &[]);
}

#[test]
fn an_array_may_be_created_with_spares() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 4);
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 5 -n 3 --spare-devices 1 --size 4M{all}"), &[]);
    lab.ok(&format!("assemble x{all} --export nbd:unix:x.sock"), &[]);
    let content = noise(8 << 20);
    fill(&lab.path("x.sock"), "x", &content);
    assert_eq!(in_state(&lab, "spare"), [format!("node://{}/x", nodes[3].address)]);
    lab.ok(&format!("fail x{}", members(&nodes[..1], "")), &[]);
    until("the spare in its place", || in_state(&lab, "spare").is_empty());
    lab.ok(&format!("remove x{}", members(&nodes[..1], "")), &[]);
    is_whole(&lab, &content);
    lab.ok("stop x", &[]);
}

#[test]
fn what_cannot_be_added_leaves_no_volume_behind() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 4);
    let all = members(&nodes[..3], "");
    lab.ok(&format!("create x -l 5 -n 3 --size 4M{all}"), &[]);
    lab.ok(&format!("create other -l 0 -n 1 --force --size 1M{}", members(&nodes[3..], "")), &[]);
    lab.ok(&format!("assemble x{all}"), &[]);
    let refused = |words: &str, said: &str| {
        let line = lab.refused(1, words, &[], &[]);
        assert!(line.contains(said), "braid {words}: {line}");
    };
    let fourth = &nodes[3].address;
    // Of members that are all there, too.
    refused(&format!("add x node://{}/new", nodes[1].address), "on the node of another member");
    let first = format!("replace x node://{}", nodes[0].address);
    refused(&first, "no spare");
    refused(&format!("{first} --with node://{}/new", nodes[1].address), "another member");
    lab.ok(&format!("fail x node://{}", nodes[0].address), &[]);
    refused(&format!("add x node://{fourth}/other"), "another array");
    refused(&format!("re-add x node://{fourth}/new"), "was no member of x");
    refused("add x /dev/null", "over nodes");
    // On the node of another member, under a name of its own.
    refused(&format!("add x node://{}/new", nodes[1].address), "on the node of another member");
    let status = lab.run(&format!("node status {} {fourth} --json", nodes[1].address), &[]);
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(!status.contains("\"new\""), "{status}");
    lab.ok("stop x", &[]);
}

#[test]
fn a_node_is_replaced_while_it_serves() {
    let lab = Lab::new();
    let mut nodes = in_memory(&lab, 4);
    let three = members(&nodes[..3], "");
    lab.ok(&format!("create x -l 5 -n 3 --bitmap internal --size 4M{three}"), &[]);
    lab.ok(&format!("assemble x{three} --export nbd:unix:x.sock"), &[]);
    let content = noise(8 << 20);
    fill(&lab.path("x.sock"), "x", &content);
    let old = nodes[1].address.clone();
    let new = nodes[3].address.clone();
    lab.ok("sync x --max 1M", &[]);
    lab.ok(&format!("replace x node://{old} --with node://{new}"), &[]);
    let seen = detail(&lab, "x");
    assert!(!seen["state"].as_array().unwrap().contains(&json!("degraded")), "{seen}");
    // What is written meanwhile is there, too.
    let content: Vec<u8> = content.iter().map(|byte| byte ^ 0x5a).collect();
    fill(&lab.path("x.sock"), "x", &content);
    lab.ok("sync x --max none", &[]);
    until("the exchange", || in_state(&lab, "in-sync").contains(&format!("node://{new}/x")));
    assert_eq!(in_state(&lab, "faulty"), [format!("node://{old}/x")]);
    until("the vote of the new one", || {
        let voters = detail(&lab, "x")["voters"].to_string();
        voters.contains(&new) && !voters.contains(&old)
    });
    nodes.remove(1).stop();
    lab.ok(&format!("remove x node://{old}"), &[]);
    is_whole(&lab, &content);
    lab.ok("stop x", &[]);
}

#[test]
fn a_node_that_was_replaced_under_load_is_free() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 4);
    let three = members(&nodes[..3], "");
    lab.ok(&format!("create x -l 5 -n 3 --bitmap internal --size 4M{three}"), &[]);
    lab.ok(&format!("assemble x{three} --export nbd:unix:x.sock"), &[]);
    let old = nodes[1].address.clone();
    let new = nodes[3].address.clone();
    let over = AtomicBool::new(false);
    let load = |place: usize| {
        let mut stream = connect(&lab.path("x.sock"), "x", 8 << 20);
        let block = noise(4096);
        for number in (0..64).cycle().take_while(|_| !over.load(Ordering::Relaxed)) {
            let at = place * (1 << 20) + number * 4096;
            ask(&mut stream, 1, at as u64, &block).expect("no error");
        }
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..6)
            .map(|place| {
                scope.spawn({
                    let load = &load;
                    move || load(place)
                })
            })
            .collect();
        // Whatever is wrong, they come to an end.
        let end = Ends(&over);
        lab.ok(&format!("replace x node://{old} --with node://{new}"), &[]);
        until("the exchange", || in_state(&lab, "in-sync").contains(&format!("node://{new}/x")));
        lab.ok(&format!("remove x node://{old}"), &[]);
        let holds = || {
            let status = lab.ok(&format!("node status {old} --json"), &[]);
            let status: Value = serde_json::from_slice(&status).expect("JSON");
            status["nodes"][0]["ring_used_bytes"].as_u64()
        };
        until("a node that holds nothing", || holds() == Some(0));
        lab.ok(&format!("add x node://{old}"), &[]);
        lab.ok(&format!("remove x node://{old}"), &[]);
        let begun = Instant::now();
        lab.ok(&format!("node delete {old} x --array x"), &[]);
        // Four seconds of a machine with nothing else to do.
        assert!(begun.elapsed() < patience() / 15, "{:?}", begun.elapsed());
        drop(end);
        writers.into_iter().for_each(|writer| writer.join().expect("no error"));
    });
    lab.ok("check x --wait", &[]);
    assert_eq!(detail(&lab, "x")["mismatches"], 0);
    lab.ok("stop x", &[]);
}

/// Ends the load when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
