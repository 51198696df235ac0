//! Nodes that were lost and come back.

use super::*;

/// What a node asks for when it is connected to others, by role.
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

/// Node 0 was lost, and is being wired to the others: by role, what it is asked with; it itself
/// goes by the number of its peer.
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
    hear(client, role, &Message::Meta { tag, bytes: superblock.encode() });
    connects(&run(client, |_, message| wired(message)))
}

#[test]
fn a_node_that_refuses_to_be_wired_and_is_lost_is_counted_once() {
    let mut client = client(Planner::Encoder { node: 0 });
    run(&mut client, |_, _| false);
    lose(&mut client, 0);
    run(&mut client, |_, _| false);
    let asked = wiring(&mut client);
    let own = client.links[0].peer.0 as u16;
    let tag = |role| asked[&role];
    assert_eq!(asked.len(), 3, "{asked:?}");
    hear(&mut client, 0, &refusal(tag(own), "cannot connect to node 1"));
    lose(&mut client, 0);
    hear(&mut client, 1, &Message::Ok { tag: tag(1) });
    assert!(client.wiring.is_some(), "node 2 has not answered");
    hear(&mut client, 2, &Message::Ok { tag: tag(2) });
    assert!(client.wiring.is_none() && !client.alive(0));
}
