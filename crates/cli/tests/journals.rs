//! Arrays over nodes with journals.

mod support;

use support::export::{fill, noise};
use support::nodes::{Node, detail, in_stores, kill_while_writing, members, server};
use support::{Lab, until};

#[test]
fn everything_dies_and_a_node_never_comes_back() {
    let lab = Lab::new();
    let (mut nodes, stores) = in_stores(&lab);
    let all = members(&nodes, "");
    let policy = "--consistency-policy journal --journal-size 16M";
    lab.ok(&format!("create x -l 5 -n 4 --size 4M {policy}{all}"), &[]);
    let mut server = server(&lab, &all);
    let content = noise(12 << 20);
    fill(&lab.path("x.sock"), "x", &content);
    kill_while_writing(&lab, &mut server, &content);
    let last = nodes.pop().expect("four nodes");
    let nodes = nodes.into_iter().zip(&stores).map(|(node, store)| node.start_again(&lab, store));
    let mut nodes: Vec<Node> = nodes.collect();
    // Nobody has to vouch for anything.
    lab.ok(&format!("assemble x{}", members(&nodes, "")), &[]);
    assert!(lab.ok("cat x", &[]) == content);
    lab.ok("stop x", &[]);

    nodes.push(last.start_again(&lab, &stores[3]));
    lab.ok(&format!("assemble x{all}"), &[]);
    until("all in sync", || {
        let members = detail(&lab, "x")["members"].clone();
        members.as_array().is_some_and(|all| all.iter().all(|m| m["state"][0] == "in-sync"))
    });
    lab.ok("check x --wait", &[]);
    assert_eq!(detail(&lab, "x")["mismatches"], 0);
    assert!(lab.ok("cat x", &[]) == content);
    lab.ok("stop x", &[]);
}
