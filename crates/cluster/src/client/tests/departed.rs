//! Members that leave the array, or are lost, and the time when their nodes are told to drop their
//! slice-sets.

use super::*;
use crate::client::session_key::SessionKey;
use crate::ids::{Epoch, NodeId};
use braid_array::Role;
use braid_array::format::DevRole;

/// Returns the messages of this kind, with their connections.
pub(super) fn sent(actions: &[Action], such: impl Fn(&Message) -> bool) -> Vec<(PeerId, Message)> {
    let message = |action: &Action| match action {
        Action::Fabric(FabricOp::Send { peer, bytes }) => {
            let (_, message) = Message::decode(bytes).expect("a message");
            such(&message).then_some((*peer, message))
        }
        _ => None,
    };
    actions.iter().filter_map(message).collect()
}

pub(super) fn tell(client: &mut Client, peer: PeerId, message: &Message) {
    let bytes = message.encode(Epoch(1));
    client.handle(Instant(2), Event::Fabric(FabricEvent::Message { peer, bytes }));
}

fn is_record(message: &Message) -> bool {
    matches!(message, Message::StoreView { .. })
}

fn is_resolve(message: &Message) -> bool {
    matches!(message, Message::ResolveLeftovers { .. })
}

/// Voters note the view that they were asked to.
fn record(client: &mut Client, asked: &[(PeerId, Message)]) {
    assert_eq!(asked.len(), 2, "{asked:?}");
    for (peer, message) in asked {
        let Message::StoreView { tag, .. } = message else { unreachable!("it is one") };
        tell(client, *peer, &Message::Ok { tag: *tag });
    }
}

/// Visits the node of role 0 until it has granted the array. Returns the connection and the actions
/// after that.
fn visit(client: &mut Client) -> (PeerId, Vec<Action>) {
    let due = client.deadline().expect("it is told");
    client.handle(due, Event::Tick);
    let asked = run(client, |_, message| is_record(message));
    let who = sent(&asked, |message| matches!(message, Message::Identify { .. }));
    let &[(peer, Message::Identify { tag })] = &who[..] else { panic!("{asked:?}") };
    tell(client, peer, &Message::Identity { tag, node: NodeId(0) });
    let asked = run(client, |_, message| is_record(message));
    let grants = sent(&asked, |message| matches!(message, Message::Grant { .. }));
    let &[(to, Message::Grant { tag, epoch: Epoch(1), client: 1, .. })] = &grants[..] else {
        panic!("{asked:?}")
    };
    assert_eq!(to, peer);
    let view = View::default();
    tell(
        client,
        peer,
        &Message::Granted { tag, view, incarnation: incarnation(Role(0)), node: NodeId(0) },
    );
    (peer, run(client, |_, message| is_record(message)))
}

/// Returns whether no node is being told, or is to be told later.
fn nobody_is_told(client: &Client) -> bool {
    let list = &client.parts.sessions.list;
    let told = list.get(SessionKey::DepartedVisit).is_connected();
    !told && client.parts.keeper_side.departed.deadline().is_none()
}

#[test]
fn a_failed_member_drops_what_it_has_once_voters_have_noted_that() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    let command = Command::Fail(MemberId(0));
    client.handle(Instant(3), Event::Command { id: CommandId(1), command });
    let records = sent(&run(&mut client, |_, message| is_record(message)), is_record);
    let (peer, after) = visit(&mut client);
    assert_eq!(sent(&after, is_resolve), [], "a takeover may still ask for it");
    record(&mut client, &records);
    let after = run(&mut client, |_, _| false);
    let resolve = Message::ResolveLeftovers { tag: 0, commit: Vec::new() };
    assert_eq!(sent(&after, is_resolve), [(peer, resolve)]);
    tell(&mut client, peer, &Message::Ok { tag: 0 });
    let hung_up = |action: &Action| match action {
        Action::Fabric(FabricOp::HangUp { peer: from }) => *from == peer,
        _ => false,
    };
    assert!(run(&mut client, |_, _| false).iter().any(hung_up));
    assert!(nobody_is_told(&client));
    // Nobody tells it once more when it is removed after that.
    client.handle(
        Instant(4),
        Event::Command { id: CommandId(2), command: Command::Remove(MemberId(0)) },
    );
    run(&mut client, |_, _| false);
    assert!(client.parts.sessions.list.get(Role(0)).member.is_none());
}

#[test]
fn a_departed_node_that_is_away_is_tried_again_so_many_times() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    let command = Command::Fail(MemberId(0));
    client.handle(Instant(3), Event::Command { id: CommandId(1), command });
    run(&mut client, |_, _| false);
    let mut tries = 0;
    while let Some(due) = client.parts.keeper_side.departed.deadline() {
        client.handle(due, Event::Tick);
        for action in actions(&mut client) {
            if let Action::Fabric(FabricOp::Connect { peer, .. }) = action {
                let why = Refusal::new("nobody is there", "");
                client.handle(due, Event::Fabric(FabricEvent::Lost { peer, why }));
                tries += 1;
            }
        }
    }
    assert_eq!(tries, 60);
}

#[test]
fn a_node_that_is_a_member_again_is_not_told() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    client.parts.join(|side| side.departs("another name of n1".to_owned()));
    let due = client.deadline().expect("it is told");
    client.handle(due, Event::Tick);
    let asked = run(&mut client, |_, _| false);
    let who = sent(&asked, |message| matches!(message, Message::Identify { .. }));
    let &[(peer, Message::Identify { tag })] = &who[..] else { panic!("{asked:?}") };
    tell(&mut client, peer, &Message::Identity { tag, node: NodeId(1) });
    let after = run(&mut client, |_, _| false);
    assert_eq!(sent(&after, |message| matches!(message, Message::Grant { .. })), []);
    assert!(nobody_is_told(&client));
}

#[test]
fn a_returning_node_drops_what_it_has_once_voters_have_noted_its_loss() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    lose(&mut client, Role(0));
    let records = sent(&run(&mut client, |_, message| is_record(message)), is_record);
    let due = client.deadline().expect("it is tried again");
    client.handle(due, Event::Tick);
    let after = run(&mut client, |_, message| is_record(message) || is_resolve(message));
    assert_eq!(sent(&after, is_resolve), [], "a takeover may still ask for it");
    record(&mut client, &records);
    let after = run(&mut client, |_, message| is_resolve(message));
    let own = client.parts.sessions.list.get(Role(0)).peer.expect("a connection");
    let resolves = sent(&after, is_resolve);
    assert!(matches!(resolves[..], [(peer, _)] if peer == own), "{resolves:?}");
}

/// Without role 0, and with a member on another node that could not be reached.
fn with_an_absent_one() -> Client {
    let mut config = config(Planner::Encoder { node: Role(0) });
    config.members[0] = None;
    config.absent = vec![("n9".to_owned(), "v".to_owned())];
    let mut client = made(config);
    run(&mut client, |_, _| false);
    client
}

#[test]
fn an_absent_member_whose_role_another_has_is_told() {
    let mut client = with_an_absent_one();
    let list = &client.parts.sessions.list;
    let member = list.get(Role(1)).member.as_ref().expect("a member");
    let found = Superblock {
        super_offset: 8,
        data_size: 1 << 10,
        roles: Role::all(NODES).map(DevRole::Active).collect(),
        ..member.superblock.clone()
    };
    let mut asked = Vec::new();
    while asked.is_empty() {
        let due = client.deadline().expect("it is looked for");
        client.handle(due, Event::Tick);
        let opens = |message: &Message| matches!(message, Message::OpenVolume { .. });
        asked = sent(&run(&mut client, |_, _| false), opens);
    }
    let [(peer, Message::OpenVolume { tag, .. })] = asked[..] else { panic!("{asked:?}") };
    let volume = Message::Volume { tag, bytes: 1 << 30, node: NodeId(9), used: false };
    tell(&mut client, peer, &volume);
    let after = run(&mut client, |_, _| false);
    let reads = sent(&after, |message| matches!(message, Message::ReadMeta { .. }));
    let [(_, Message::ReadMeta { tag, .. })] = reads[..] else { panic!("{after:?}") };
    assert!(nobody_is_told(&client));
    tell(&mut client, peer, &Message::Meta { tag, bytes: found.encode() });
    run(&mut client, |_, _| false);
    assert!(!nobody_is_told(&client));
}
