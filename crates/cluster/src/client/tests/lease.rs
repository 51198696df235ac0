//! Use, request and return of the nodes' rings.

use super::*;
use braid_array::Role;

/// Tags of messages of a kind, with the roles they go to.
fn told(
    client: &Client,
    after: &[Action],
    tag: impl Fn(&Message) -> Option<u32>,
) -> Vec<(u16, u32)> {
    let sent = |action: &Action| match action {
        Action::Fabric(FabricOp::Send { peer, bytes }) => {
            let (_, message) = Message::decode(bytes).expect("a message");
            let role = client
                .parts
                .sessions
                .list
                .members()
                .iter()
                .position(|link| link.peer == Some(*peer));
            Some((role.expect("a link") as u16, tag(&message)?))
        }
        _ => None,
    };
    after.iter().filter_map(sent).collect()
}

fn asks(client: &Client, after: &[Action]) -> Vec<(u16, u32)> {
    told(client, after, |message| match message {
        Message::LeaseRing { tag } => Some(*tag),
        _ => None,
    })
}

fn gives(client: &Client, after: &[Action], everything: bool) -> Vec<(u16, u32)> {
    told(client, after, |message| match message {
        Message::ReturnRing { tag, all } if *all == everything => Some(*tag),
        _ => None,
    })
}

/// Returns the number of positions that may be used at any time.
fn base_positions(client: &Client) -> usize {
    let base = client.parts.shared.pipeline.base();
    usize::from(base.end.0 - base.start.0)
}

/// Returns a client that has found too few positions, and its requests, by role.
fn short() -> (Client, Vec<(u16, u32)>) {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    for stripe in 0..4 {
        submit_as(&mut client, stripe);
    }
    let after = run(&mut client, |_, _| false);
    let positions = client
        .parts
        .engine
        .open_positions()
        .iter()
        .filter(|at| !client.parts.shared.pipeline.base().contains(at))
        .count();
    assert_eq!(positions, 0, "nothing is granted");
    assert_eq!(client.parts.engine.open_positions().len(), base_positions(&client));
    let asked = asks(&client, &after);
    (client, asked)
}

fn submit_as(client: &mut Client, stripe: u64) {
    let buf = Buf { offset: 0, len: STRIPE_SECTORS as u32 * 512 };
    let sector = stripe * STRIPE_SECTORS;
    let sectors = STRIPE_SECTORS;
    let op = Op::Write { fua: false };
    let request = Request { id: RequestId(100 + stripe), op, sector, sectors, buf };
    client.submit(Instant(2), request).expect("the array runs");
}

#[test]
fn all_is_used_when_all_have_granted_it() {
    let (mut client, asked) = short();
    assert_eq!(asked.len(), usize::from(NODES));
    for &(role, tag) in &asked[1..] {
        hear(&mut client, Role(role), &Message::Ok { tag });
        run(&mut client, |_, _| false);
        assert_eq!(client.parts.engine.open_positions().len(), base_positions(&client));
    }
    hear(&mut client, Role(asked[0].0), &Message::Ok { tag: asked[0].1 });
    run(&mut client, |_, _| false);
    assert!(client.parts.engine.open_positions().len() > base_positions(&client));
}

#[test]
fn one_that_refuses_has_the_others_get_theirs_back() {
    let (mut client, asked) = short();
    hear(&mut client, Role(asked[0].0), &refusal(asked[0].1, "others use it"));
    for &(role, tag) in &asked[1..] {
        hear(&mut client, Role(role), &Message::Ok { tag });
    }
    let after = run(&mut client, |_, _| false);
    let given: Vec<u16> = gives(&client, &after, false).iter().map(|given| given.0).collect();
    assert_eq!(given, asked[1..].iter().map(|asked| asked.0).collect::<Vec<u16>>());
    assert_eq!(asks(&client, &after), [], "not at once");
    assert_eq!(client.parts.engine.open_positions().len(), base_positions(&client));
    assert!(client.parts.alive(Role(asked[0].0)));
}
