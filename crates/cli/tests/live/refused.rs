//! A node that is there again with another volume than the array knows: why it is not taken back.

use std::path::Path;

use crate::support::nodes::{Node, detail, in_stores, members};
use crate::support::{Lab, until};
use serde_json::Value;

#[test]
fn why_a_node_is_not_taken_back_is_told() {
    let lab = Lab::new();
    let (mut nodes, stores) = in_stores(&lab);
    let all = members(&nodes[..3], "");
    lab.ok(&format!("create x -l 5 -n 3 --size 4M{all}"), &[]);
    let fourth = members(&nodes[3..], "/x");
    lab.ok(&format!("create other -l 0 -n 1 --force --size 4M{fourth}"), &[]);
    lab.ok(&format!("assemble x{all}"), &[]);
    let address = nodes[1].address.clone();
    nodes.remove(1).kill();
    let start = |store: &Path| {
        Node::start(&lab, &address, &format!("--store {} --ring 64M", store.display()))
    };
    let refused = || {
        let all = detail(&lab, "x")["members"].as_array().expect("members").clone();
        let member = all.into_iter().find(|member| member["state"][0] == "faulty");
        member.map_or(Value::Null, |member| member["refused"].clone())
    };
    let told = |reason: &str| {
        until(reason, || refused().as_str().is_some_and(|why| why.contains(reason)));
        for words in ["status x", "detail x"] {
            let text = lab.ok_text(words, &[]);
            assert!(text.contains("not taken back: ") && text.contains(reason), "{text}");
        }
        let log = std::fs::read_to_string(lab.path("run").join("x.log")).unwrap();
        let lines = log.lines().filter(|line| line.contains(reason));
        let lines: Vec<&str> = lines.collect();
        assert!(lines.len() == 1 && lines[0].contains("is not taken back"), "{log}");
    };
    assert!(refused().is_null());
    let holding = |name: &str, volume: Option<&Path>| {
        let store = lab.path(name);
        std::fs::create_dir(&store).unwrap();
        volume.map(|volume| std::fs::copy(volume, store.join("x")).unwrap());
        start(&store)
    };
    let node = holding("empty", None);
    told("there is no volume of this name");
    node.kill();
    let node = holding("swapped", Some(&stores[0].join("x")));
    told("its volume is that of another member of the array");
    node.kill();
    let node = holding("foreign", Some(&stores[3].join("x")));
    told("its volume is of another array");
    node.kill();
    let node = start(&stores[1]);
    until("a whole array", || {
        let seen = detail(&lab, "x");
        seen["members"].as_array().is_some_and(|all| all.iter().all(|m| m["state"][0] == "in-sync"))
    });
    lab.ok("stop x", &[]);

    // The same of one that is not the member from the start.
    node.kill();
    let _node = start(&lab.path("foreign"));
    lab.ok(&format!("assemble x{all}"), &[]);
    let members = detail(&lab, "x")["members"].as_array().expect("members").clone();
    let absent: Vec<&Value> = members.iter().filter(|m| m["state"][0] == "absent").collect();
    assert_eq!(absent.len(), 1, "{members:?}");
    assert_eq!(absent[0]["device"], format!("node://{address}/x"));
    let told = absent[0]["refused"].as_str().expect("a reason");
    assert!(told.contains("other") && told.contains("in its place"), "{told}");
    assert!(lab.ok_text("status x", &[]).contains("not taken in: "));
    lab.ok("stop x", &[]);
}
