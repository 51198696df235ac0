//! Nodes that were lost and come back.

use super::*;
use braid_array::Role;
use braid_array::format::DevRole;

/// Returns the tags of `Connect` messages, by role.
fn connects(actions: &[Action]) -> BTreeMap<u16, u32> {
    let connect = |action: &Action| match action {
        Action::Fabric(FabricOp::Send { peer, bytes }) => match Message::decode(bytes) {
            Ok((_, Message::Connect { tag, .. })) => Some((peer.0 as u16, tag)),
            _ => None,
        },
        _ => None,
    };
    actions.iter().filter_map(connect).collect()
}

/// Wires node 0, which was lost, to the others. Returns the tags of the requests, by role; node
/// 0 itself goes by the number of its peer.
fn wiring(client: &mut Client) -> BTreeMap<u16, u32> {
    let due = client.deadline().expect("it is tried again");
    client.handle(due, Event::Tick);
    let wired = |message: &Message| matches!(message, Message::Connect { .. });
    let asked = run(client, |_, message| wired(message));
    let (role, tag) = asked
        .iter()
        .find_map(|action| match action {
            Action::Fabric(FabricOp::Send { bytes, .. }) => match Message::decode(bytes) {
                Ok((_, Message::ReadMeta { tag, .. })) => Some((0, tag)),
                _ => None,
            },
            _ => None,
        })
        .expect("it is looked at");
    let superblock = Superblock {
        raid_disks: NODES.into(),
        super_offset: 8,
        data_offset: 64,
        data_size: 1 << 10,
        resync_offset: MAX_SECTOR,
        ..Superblock::blank()
    };
    hear(client, Role(role), &Message::Meta { tag, bytes: superblock.encode() });
    connects(&run(client, |_, message| wired(message)))
}

#[test]
fn a_node_that_refuses_to_be_wired_and_is_lost_is_counted_once() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    lose(&mut client, Role(0));
    run(&mut client, |_, _| false);
    let asked = wiring(&mut client);
    let own = client.parts.sessions.list.get(Role(0)).peer.expect("a connection").0 as u16;
    let tag = |role| asked[&role];
    assert_eq!(asked.len(), 3, "{asked:?}");
    hear(&mut client, Role(0), &refusal(tag(own), "cannot connect to node 1"));
    lose(&mut client, Role(0));
    hear(&mut client, Role(1), &Message::Ok { tag: tag(1) });
    assert!(client.parts.sessions.is_wiring(), "node 2 has not answered");
    hear(&mut client, Role(2), &Message::Ok { tag: tag(2) });
    assert!(!client.parts.sessions.is_wiring() && !client.parts.alive(Role(0)));
}

/// Superblock on the node of role 0.
fn own() -> Superblock {
    Superblock {
        raid_disks: NODES.into(),
        super_offset: 8,
        data_offset: 64,
        data_size: 1 << 10,
        resync_offset: MAX_SECTOR,
        roles: Role::all(NODES).map(DevRole::Active).collect(),
        ..Superblock::blank()
    }
}

/// Node 0 was lost and is there again, with this superblock on its volume, or without a volume.
fn come_back(client: &mut Client, superblock: Option<&[u8]>) -> Vec<Action> {
    let due = client.deadline().expect("it is tried again");
    client.handle(due, Event::Tick);
    let is_asked = |message: &Message| match superblock {
        Some(_) => matches!(message, Message::ReadMeta { .. }),
        None => matches!(message, Message::OpenVolume { .. }),
    };
    let asked = run(client, |_, message| is_asked(message));
    let tag = |action: &Action| match action {
        Action::Fabric(FabricOp::Send { bytes, .. }) => match Message::decode(bytes) {
            Ok((_, Message::ReadMeta { tag, .. } | Message::OpenVolume { tag, .. })) => Some(tag),
            _ => None,
        },
        _ => None,
    };
    let tag = asked.iter().find_map(tag).expect("it is looked at");
    let answer = match superblock {
        Some(bytes) => Message::Meta { tag, bytes: bytes.to_vec() },
        None => refusal(tag, "there is no such volume"),
    };
    hear(client, Role(0), &answer);
    run(client, |_, _| false)
}

/// Returns the reported reasons why nodes are not taken back.
fn refusals(actions: &[Action]) -> Vec<String> {
    let told = |action: &Action| match action {
        Action::Notify(ArrayEvent::MemberRefused { member: MemberId(0), why }) => {
            Some(why.reason.clone())
        }
        _ => None,
    };
    actions.iter().filter_map(told).collect()
}

#[test]
fn why_a_node_is_not_taken_back_is_told_once_for_each_reason() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    lose(&mut client, Role(0));
    run(&mut client, |_, _| false);
    let foreign = Superblock { set_uuid: [5; 16], ..own() }.encode();
    let another = Superblock { device_uuid: [6; 16], ..own() }.encode();
    let nothing = vec![0; 4096];
    let parting = crate::node::PARTING_TAG;
    let causes: [(Option<&[u8]>, &str); 4] = [
        (None, "there is no such volume"),
        (Some(&nothing), "its volume is empty: it has no superblock"),
        (Some(&another), "its volume is that of another member of the array"),
        (Some(&foreign), "its volume is of another array, 05050505:05050505:05050505:05050505"),
    ];
    for (found, reason) in causes {
        let after = come_back(&mut client, found);
        assert_eq!(refusals(&after), [reason]);
        // The node hears of it, too, for its log.
        let is_told = |message: &Message| match message {
            Message::Refused { tag, reason: told, .. } => *tag == parting && told == reason,
            _ => false,
        };
        assert_eq!(said(&after, is_told), 1);
        let again = come_back(&mut client, found);
        assert_eq!((refusals(&again), said(&again, is_told)), (vec![], 0));
        let refused = client.status().members[0].refused.clone().expect("it is told");
        assert_eq!(refused.reason, reason);
        assert!(refused.next.advice.contains("the store that it had"), "{refused}");
    }
    come_back(&mut client, Some(&own().encode()));
    assert!(client.parts.alive(Role(0)));
    assert_eq!(client.status().members[0].refused, None);
}
