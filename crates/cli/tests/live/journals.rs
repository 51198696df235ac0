//! Arrays over nodes with journals.

use crate::support::export::{fill, noise};
use crate::support::nodes::{
    Node, all_in_sync, detail, in_stores, kill_while_writing, members, server,
};
use crate::support::{Lab, until};

const POLICY: &str = "--consistency-policy journal --journal-size 16M";
const PPL: &str = "--consistency-policy ppl --journal-size 16M";

#[test]
fn everything_dies_and_a_node_never_comes_back() {
    let lab = Lab::new();
    let (mut nodes, stores) = in_stores(&lab);
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 5 -n 4 --size 4M {POLICY}{all}"), &[]);
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
    all_in_sync(&lab);
    lab.ok("check x --wait", &[]);
    assert_eq!(detail(&lab, "x")["mismatches"], 0);
    assert!(lab.ok("cat x", &[]) == content);
    lab.ok("stop x", &[]);
}

#[test]
fn a_node_that_is_added_has_a_journal_which_makes_up_for_a_lost_node() {
    let lab = Lab::new();
    let (mut nodes, stores) = in_stores(&lab);
    let spare = nodes.pop().expect("four nodes");
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 5 -n 3 --size 4M {POLICY}{all}"), &[]);
    let mut first = server(&lab, &all);
    let content = noise(8 << 20);
    fill(&lab.path("x.sock"), "x", &content);
    let died = nodes.pop().expect("three nodes");
    died.kill();
    until("the loss", || detail(&lab, "x")["state"].to_string().contains("degraded"));
    lab.ok(&format!("add x node://{}", spare.address), &[]);
    all_in_sync(&lab);
    nodes.push(spare);
    let content: Vec<u8> = content.iter().map(|byte| byte ^ 0x5a).collect();
    fill(&lab.path("x.sock"), "x", &content);
    kill_while_writing(&lab, &mut first, &content);
    // One of those that were there from the beginning stays away.
    let stores = [&stores[1], &stores[3]];
    let nodes = nodes.into_iter().skip(1).zip(stores);
    let nodes: Vec<Node> = nodes.map(|(node, store)| node.start_again(&lab, store)).collect();
    lab.ok(&format!("assemble x{}", members(&nodes, "")), &[]);
    assert!(lab.ok("cat x", &[]) == content);
    lab.ok("stop x", &[]);
}

/// Whole stripes that were written before are durable, and a part of one is recorded.
#[test]
fn everything_dies_while_a_part_of_a_stripe_is_written_and_a_node_never_comes_back() {
    let lab = Lab::new();
    let (mut nodes, stores) = in_stores(&lab);
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 5 -n 4 --size 4M {PPL}{all}"), &[]);
    let mut first = server(&lab, &all);
    let content = noise(12 << 20);
    fill(&lab.path("x.sock"), "x", &content);
    assert_eq!(detail(&lab, "x")["consistency_policy"], "ppl");
    until("a clean array", || detail(&lab, "x")["state"].to_string().contains("clean"));
    kill_while_writing(&lab, &mut first, &content);
    nodes.pop().expect("four nodes").kill();
    let nodes = nodes.into_iter().zip(&stores).map(|(node, store)| node.start_again(&lab, store));
    let nodes: Vec<Node> = nodes.collect();
    // Nobody has to vouch for anything.
    lab.ok(&format!("assemble x{}", members(&nodes, "")), &[]);
    assert!(lab.ok("cat x", &[]) == content);
    lab.ok("stop x", &[]);
}

#[test]
fn only_levels_with_parity_have_ppl() {
    let lab = Lab::new();
    let (nodes, _) = in_stores(&lab);
    let all = members(&nodes, "");
    let words = format!("create x -l 1 -n 4 --size 4M {PPL}{all}");
    let said = lab.refused(2, &words, &[], &[]);
    assert!(said.contains("levels with parity"), "{said}");
}
