//! Nodes that an administrator adds while the array runs.

use super::departed::{sent, tell};
use super::*;
use braid_array::action::{Command, CommandId, NewMember};

/// Has the members' nodes answer, and the witness, which is this node; what comes besides.
fn run_with_witness(client: &mut Client, node: NodeId) -> Vec<Action> {
    loop {
        let rest = run(client, |_, _| false);
        let votes = |message: &Message| {
            matches!(message, Message::Grant { .. } | Message::StoreView { .. })
        };
        let asked = sent(&rest, votes);
        for (peer, message) in &asked {
            let answer = match *message {
                Message::Grant { tag, .. } => {
                    Message::Granted { tag, view: View::default(), incarnation: 0, node }
                }
                Message::StoreView { tag, .. } => Message::Ok { tag },
                _ => continue,
            };
            tell(client, *peer, &answer);
        }
        if asked.is_empty() {
            return rest;
        }
    }
}

#[test]
fn no_member_is_taken_in_on_the_node_of_a_witness() {
    let witnesses = vec!["w:7000".to_owned()];
    let mut client = made(ClientConfig { witnesses, ..config(Planner::Encoder { node: Role(0) }) });
    run_with_witness(&mut client, NodeId(9));
    lose(&mut client, Role(0));
    run_with_witness(&mut client, NodeId(9));

    let new = NewMember {
        member: MemberId(7),
        device: "node://w:7000/v".to_owned(),
        device_sectors: 1 << 20,
        device_uuid: [7; 16],
        superblock: None,
        bad_blocks: None,
        readd: false,
    };
    let id = CommandId(1);
    client.handle(Instant(3), Event::Command { id, command: Command::Add(Box::new(new)) });
    let asked = run_with_witness(&mut client, NodeId(9));
    let who = sent(&asked, |message| matches!(message, Message::Identify { .. }));
    let [(peer, Message::Identify { tag })] = who[..] else { panic!("{asked:?}") };
    tell(&mut client, peer, &Message::Identity { tag, node: NodeId(9) });
    let after = run_with_witness(&mut client, NodeId(9));
    let refused = after.iter().find_map(|action| match action {
        Action::Reply { result: Err(why), .. } => Some(why.reason.clone()),
        _ => None,
    });
    assert_eq!(refused.as_deref(), Some("is on the node of a witness"), "{after:?}");
}
