//! Nodes failed by a command stay out until they are added again, whichever client serves the
//! array. Nodes that are merely absent come back.

use crate::support::export::{fill, noise};
use crate::support::nodes::{Node, detail, in_stores, kill_while_writing, members, server};
use crate::support::{Lab, program, until};

/// The first word of the state of a member of `x`.
fn state(lab: &Lab, node: &str) -> String {
    let seen = detail(lab, "x");
    let all = seen["members"].as_array().expect("members");
    let is_it = |member: &&serde_json::Value| member["device"] == format!("node://{node}/x");
    let member = all.iter().find(is_it);
    member.map_or_else(String::new, |member| member["state"][0].as_str().expect("a word").into())
}

fn becomes(lab: &Lab, node: &str, word: &str) {
    until(word, || state(lab, node) == word);
}

/// An array over the first three of four nodes, with content.
fn three(lab: &Lab, nodes: &[Node]) -> Vec<u8> {
    let all = members(&nodes[..3], "");
    lab.ok(&format!("create x -l 5 -n 3 --size 8M{all}"), &[]);
    lab.ok(&format!("assemble x{all} --export nbd:unix:x.sock --node-timeout 1"), &[]);
    let content = noise(16 << 20);
    fill(&lab.path("x.sock"), "x", &content);
    content
}

#[test]
fn a_node_that_was_failed_stays_out_until_it_is_added() {
    let lab = Lab::new();
    let (nodes, _stores) = in_stores(&lab);
    let content = three(&lab, &nodes);
    let all = members(&nodes[..3], "");
    let failed = nodes[2].address.clone();
    lab.ok(&format!("fail x node://{failed}"), &[]);
    for end in ["upgrade x", "stop x"] {
        lab.ok(end, &[]);
        if end == "stop x" {
            let output = lab.run(&format!("assemble x{all}"), &[]);
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(told.contains(&format!("{failed}/x stays out")), "{told}");
        }
        assert_eq!(state(&lab, &failed), "faulty", "{end}");
    }
    lab.ok(&format!("remove x node://{failed}"), &[]);
    lab.ok("stop x", &[]);
    lab.ok(&format!("assemble x{all}"), &[]);
    assert_eq!(state(&lab, &failed), "faulty", "it was removed");
    lab.ok(&format!("remove x node://{failed}"), &[]);
    lab.ok(&format!("re-add x node://{failed}"), &[]);
    becomes(&lab, &failed, "in-sync");
    lab.ok("stop x", &[]);
    lab.ok(&format!("assemble x{all}"), &[]);
    becomes(&lab, &failed, "in-sync");
    assert!(lab.ok("cat x", &[]) == content);
}

#[test]
fn who_takes_the_place_of_a_node_that_was_failed_goes_on_when_the_client_dies() {
    let lab = Lab::new();
    let (mut nodes, stores) = in_stores(&lab);
    let content = three(&lab, &nodes);
    lab.ok("stop x", &[]);
    let mut process = server(&lab, &members(&nodes[..3], ""));
    let failed = nodes[2].address.clone();
    let new = nodes[3].address.clone();
    lab.ok("sync x --max 1M", &[]);
    lab.ok(&format!("fail x node://{failed}"), &[]);
    lab.ok(&format!("add x node://{new}"), &[]);
    kill_while_writing(&lab, &mut process, &content);
    let all = members(&nodes, "");
    let last = nodes.pop().unwrap();
    last.kill();
    // Without the new one, nobody has its role.
    lab.ok(&format!("assemble x{all} --node-timeout 1"), &[]);
    assert_eq!(state(&lab, &failed), "faulty");
    lab.ok("stop x", &[]);
    let _last = Node::start_at(&lab, &new, &stores[3]);
    lab.ok(&format!("assemble x{all} --node-timeout 1"), &[]);
    becomes(&lab, &new, "in-sync");
    assert_ne!(state(&lab, &failed), "in-sync");
    assert!(lab.ok("cat x", &[]) == content);
    lab.ok("check x --wait", &[]);
}

#[test]
fn a_node_that_is_away_while_the_program_is_replaced_is_taken_in() {
    let lab = Lab::new();
    let (mut nodes, stores) = in_stores(&lab);
    let content = three(&lab, &nodes);
    let away = nodes[2].address.clone();
    nodes.remove(2).kill();
    becomes(&lab, &away, "faulty");
    lab.ok("upgrade x", &[]);
    let _back = Node::start_at(&lab, &away, &stores[2]);
    becomes(&lab, &away, "in-sync");
    assert!(lab.ok("cat x", &[]) == content);
    lab.ok("check x --wait", &[]);
}

#[test]
fn a_member_that_failed_is_listed_by_the_next_program() {
    let lab = Lab::new();
    let paths = lab.members("m", 3, 32);
    lab.ok("create x -l 5 -n 3 --assume-clean", &paths);
    lab.ok("assemble x --export nbd:unix:x.sock", &paths);
    lab.ok("fail x", &paths[1..2]);
    // As that of a disk that was pulled.
    std::fs::rename(&paths[1], lab.path("elsewhere")).unwrap();
    for _ in 0..2 {
        let output = lab.braid_at(&program()).args(["upgrade", "x"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let seen = detail(&lab, "x");
        let all = seen["members"].as_array().unwrap();
        let faulty = all.iter().filter(|member| member["state"][0] == "faulty");
        let faulty: Vec<&str> = faulty.map(|one| one["device"].as_str().unwrap()).collect();
        assert_eq!(faulty, [paths[1].to_str().unwrap()], "{seen}");
    }
    lab.ok("remove x failed", &[]);
    std::fs::rename(lab.path("elsewhere"), &paths[1]).unwrap();
    lab.ok("add x", &paths[1..2]);
    lab.ok("status x --watch", &[]);
    assert_eq!(lab.run("detail x --test", &[]).status.code(), Some(0));
    lab.ok("check x --wait", &[]);
}

#[test]
fn the_other_half_of_a_mirror_that_was_split_is_overwritten_by_force_alone() {
    let lab = Lab::new();
    let (nodes, _stores) = in_stores(&lab);
    let both = members(&nodes[..2], "");
    lab.ok(&format!("create x -l 1 -n 2 --size 4M{both}"), &[]);
    lab.ok(&format!("assemble x{both} --export nbd:unix:x.sock"), &[]);
    fill(&lab.path("x.sock"), "x", &noise(4 << 20));
    lab.ok("stop x", &[]);
    let content =
        [1, 2].map(|with| -> Vec<u8> { noise(4 << 20).iter().map(|byte| byte ^ with).collect() });
    // Each goes on without the other.
    for (node, content) in nodes[..2].iter().zip(&content) {
        let one = members(std::slice::from_ref(node), "");
        lab.ok(&format!("assemble x{one} --force --export nbd:unix:x.sock"), &[]);
        fill(&lab.path("x.sock"), "x", content);
        lab.ok("stop x", &[]);
    }
    let second = members(&nodes[1..2], "");
    lab.ok(&format!("assemble x{} --force", members(&nodes[..1], "")), &[]);
    let line = lab.refused(1, &format!("add x{second}"), &[], &[]);
    assert!(line.contains("nowhere else") && line.contains("use --force"), "{line}");
    lab.refused(1, &format!("re-add x{second}"), &[], &[]);
    assert!(lab.ok(&format!("cat x{second}"), &[]) == content[1], "it was left as it is");
    lab.ok(&format!("add x{second} --force"), &[]);
    becomes(&lab, &nodes[1].address, "in-sync");
    assert!(lab.ok("cat x", &[]) == content[0]);
}
