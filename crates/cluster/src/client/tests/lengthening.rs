//! An array that gets another size: volumes first, superblocks next.

use super::*;

/// Byte of a superblock at which the used part of each member stands.
const SIZE_BYTE: usize = 80;
/// Sectors of a stripe on each member.
const MEMBER_SECTORS: u64 = 8;

/// A clean array of ten stripes, and the actions that begin to give it a size of 13.
fn begun() -> (Client, Vec<Action>) {
    let mut config = config(Planner::Encoder { node: Role(0) });
    for member in config.members.iter_mut().flatten() {
        let superblock = &mut member.superblock;
        superblock.level = Level::Raid5.to_md();
        superblock.layout = Layout::default_for(Level::Raid5).encode();
        superblock.chunk_sectors = 8;
        superblock.size_sectors = 10 * MEMBER_SECTORS;
        superblock.data_size = 10 * MEMBER_SECTORS;
    }
    let mut client = made(config);
    run(&mut client, |_, _| false);
    // Not a whole stripe more.
    client.grow(Instant(3), CommandId(5), 14 * MEMBER_SECTORS - 1);
    let actions = run(&mut client, |_, _| false);
    (client, actions)
}

/// The tags of the requests for longer volumes, by role.
fn asked(client: &Client, actions: &[Action]) -> Vec<(Role, u32)> {
    let mut asked = Vec::new();
    for action in actions {
        let Action::Fabric(FabricOp::Send { peer, bytes }) = action else { continue };
        let Ok((_, Message::LengthenVolume { tag, data_bytes })) = Message::decode(bytes) else {
            continue;
        };
        assert_eq!(data_bytes, 13 * MEMBER_SECTORS * 512);
        let of_peer = |link: &Session| link.peer == Some(*peer);
        let role = client.parts.sessions.list.members().iter().position(of_peer);
        asked.push((Role::at(role.expect("a member")), tag));
    }
    asked
}

/// The sizes that superblocks are written with.
fn told(actions: &[Action]) -> Vec<u64> {
    let size = |action: &Action| match action {
        Action::Fabric(FabricOp::Send { bytes, .. }) => match Message::decode(bytes) {
            Ok((_, Message::WriteMeta { bytes, .. })) => {
                let size = bytes.get(SIZE_BYTE..)?.first_chunk()?;
                Some(u64::from_le_bytes(*size))
            }
            _ => None,
        },
        _ => None,
    };
    actions.iter().filter_map(size).collect()
}

fn replied(actions: &[Action]) -> Option<Result<(), Refusal>> {
    actions.iter().find_map(|action| match action {
        Action::Reply { id: CommandId(5), result } => Some(result.clone()),
        _ => None,
    })
}

/// Handles no answers to superblock writes, so that these can be seen.
fn unanswered(_: u16, message: &Message) -> bool {
    matches!(message, Message::WriteMeta { .. })
}

#[test]
fn superblocks_tell_of_a_size_when_all_volumes_have_it() {
    let (mut client, actions) = begun();
    let asked = asked(&client, &actions);
    assert_eq!(asked.len(), usize::from(NODES));
    assert!(client.holds_requests());
    for &(role, tag) in &asked[..2] {
        hear(&mut client, role, &Message::Ok { tag });
    }
    let early = run(&mut client, unanswered);
    assert_eq!((told(&early), replied(&early)), (vec![], None));
    let (role, tag) = asked[2];
    hear(&mut client, role, &Message::Ok { tag });
    let mut sizes = Vec::new();
    let mut reply = None;
    // One after the other, as they are answered.
    for _ in 0..4 {
        let actions = run(&mut client, unanswered);
        sizes.extend(told(&actions));
        reply = reply.or(replied(&actions));
        for action in &actions {
            let Action::Fabric(FabricOp::Send { peer, bytes }) = action else { continue };
            let Ok((_, Message::WriteMeta { tag, .. })) = Message::decode(bytes) else { continue };
            let ok = Message::Ok { tag }.encode(Epoch(1));
            let event = FabricEvent::Message { peer: *peer, bytes: ok };
            client.handle(Instant(4), Event::Fabric(event));
        }
    }
    assert_eq!(sizes, [13 * MEMBER_SECTORS; NODES as usize]);
    assert_eq!(reply, Some(Ok(())));
    assert!(client.is_at_rest() && client.holds_requests());
}

#[test]
fn a_node_without_room_is_named_and_no_superblock_tells_of_the_size() {
    let (mut client, actions) = begun();
    let asked = asked(&client, &actions);
    hear(&mut client, asked[0].0, &Message::Ok { tag: asked[0].1 });
    hear(&mut client, asked[1].0, &refusal(asked[1].1, "no room"));
    hear(&mut client, asked[2].0, &Message::Ok { tag: asked[2].1 });
    let actions = run(&mut client, |_, _| false);
    let why = replied(&actions).expect("an answer").unwrap_err();
    assert_eq!(why.to_string(), "node://n1/v: no room; look");
    assert!(told(&actions).is_empty());
    assert!(client.is_at_rest(), "nodes let it store nothing any more");
}

#[test]
fn a_node_that_is_lost_meanwhile_ends_it() {
    let (mut client, actions) = begun();
    let asked = asked(&client, &actions);
    hear(&mut client, asked[0].0, &Message::Ok { tag: asked[0].1 });
    lose(&mut client, asked[1].0);
    hear(&mut client, asked[2].0, &Message::Ok { tag: asked[2].1 });
    let actions = run(&mut client, |_, _| false);
    let why = replied(&actions).expect("an answer").unwrap_err();
    assert!(why.reason.contains("failed meanwhile"), "{why}");
    assert!(!told(&actions).contains(&(13 * MEMBER_SECTORS)));
}

#[test]
fn an_array_that_lacks_a_node_is_left_as_it_is() {
    let (mut client, _) = begun();
    let mut lacking = written();
    lose(&mut lacking, Role(1));
    run(&mut lacking, |_, _| false);
    for client in [&mut client, &mut lacking] {
        client.grow(Instant(4), CommandId(5), 20 * MEMBER_SECTORS);
        let actions = run(client, |_, _| false);
        assert!(matches!(replied(&actions), Some(Err(_))));
        assert!(asked(client, &actions).is_empty());
    }
    assert!(!lacking.holds_requests());
}
