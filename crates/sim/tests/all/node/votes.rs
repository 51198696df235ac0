//! Grants, and the sessions that they end.

use std::num::NonZeroU64;

use braid_array::Role;
use braid_array::fabric::PeerId;
use braid_cluster::Family;
use braid_cluster::ids::{Epoch, NodeId};
use braid_cluster::node::PARTING_TAG;
use braid_cluster::view::{View, Vote};
use braid_cluster::wire::Message;

use super::array::{ARRAY, Array, ENCODER};
use super::world::World;

fn ask(world: &mut World, peer: PeerId, message: &Message) -> Option<Message> {
    world.send(peer, message);
    world.run();
    let answer = world.heard.iter().rposition(|(from, _)| *from == peer)?;
    Some(world.heard.remove(answer).1)
}

const fn grant(epoch: u32) -> Message {
    Message::Grant { tag: 7, array: ARRAY, epoch: Epoch(epoch), client: epoch as u64 }
}

fn view(epoch: u32, count: u32) -> View {
    let members = [100, 101].map(NonZeroU64::new).to_vec();
    let voters = [0, 1].map(NodeId).to_vec();
    View { epoch: Epoch(epoch), count, members, voters, ..View::default() }
}

const fn record(view: View) -> Message {
    Message::StoreView { tag: 8, view }
}

fn note(world: &World) -> Option<Vote> {
    let (_, file) = world.notes(0).into_iter().next()?;
    Vote::newest(&ARRAY, file).map(|(_, vote)| vote)
}

#[test]
fn only_a_higher_epoch_is_granted_and_that_outlives_the_node() {
    let mut world = World::new(1, 1 << 20, 1);
    let a = world.dial(0);
    let b = world.dial(0);
    let granted = |view| Some(Message::Granted { tag: 7, view, incarnation: 100, node: NodeId(0) });
    let outvoted = |granted| Some(Message::Outvoted { tag: 7, granted: Epoch(granted) });
    assert_eq!(ask(&mut world, a, &grant(5)), granted(View::default()));
    let other = Message::Grant { tag: 7, array: ARRAY, epoch: Epoch(5), client: 6 };
    assert_eq!(ask(&mut world, b, &other), outvoted(5));
    assert_eq!(ask(&mut world, a, &record(view(5, 2))), Some(Message::Ok { tag: 8 }));
    // Not one that is older, nor one of another client.
    for late in [view(5, 2), view(5, 1), view(6, 1)] {
        assert_eq!(
            ask(&mut world, a, &record(late)),
            Some(Message::Outvoted { tag: 8, granted: Epoch(5) })
        );
    }
    assert_eq!(note(&world), Some(Vote { granted: Epoch(5), to: 5, view: Some(view(5, 2)) }));
    assert_eq!(world.notes(0)[0].0, "03030303-0303-0303-0303-030303030303.vote");
    world.crash();
    let c = world.dial(0);
    assert_eq!(ask(&mut world, c, &grant(4)), outvoted(5));
    // It may try again, higher.
    let granted = Message::Granted { tag: 7, view: view(5, 2), incarnation: 200, node: NodeId(0) };
    assert_eq!(ask(&mut world, c, &grant(6)), Some(granted));
    assert_eq!(note(&world), Some(Vote { granted: Epoch(6), to: 6, view: Some(view(5, 2)) }));
}

#[test]
fn who_only_asks_how_a_vote_stands_changes_nothing() {
    let mut world = World::new(1, 1 << 20, 1);
    let a = world.dial(0);
    let b = world.dial(0);
    let read = Message::ReadVote { tag: 6, array: ARRAY };
    let is = |granted, view| {
        let granted = Epoch(granted);
        Some(Message::VoteIs { tag: 6, granted, view, incarnation: 100, node: NodeId(0) })
    };
    assert_eq!(ask(&mut world, b, &read), is(0, View::default()));
    assert_eq!(note(&world), None);
    assert!(ask(&mut world, a, &grant(5)).is_some());
    assert_eq!(ask(&mut world, a, &record(view(5, 2))), Some(Message::Ok { tag: 8 }));
    let before = note(&world);
    assert_eq!(ask(&mut world, b, &read), is(5, view(5, 2)));
    assert_eq!(note(&world), before);
    // The client goes on, and so may the other.
    assert_eq!(ask(&mut world, a, &record(view(5, 3))), Some(Message::Ok { tag: 8 }));
    assert!(matches!(ask(&mut world, b, &grant(6)), Some(Message::Granted { .. })));
}

#[test]
fn who_is_granted_ends_who_was_before_and_nothing_of_that_lands() {
    for seed in 0..50 {
        let mut array = Array::writing(2, 150, seed);
        let next = array.world.dial(0);
        array.world.send(next, &grant(2));
        let heard = |array: &Array, wanted: PeerId, is: fn(&Message) -> bool| {
            array.world.heard.iter().any(|(peer, message)| *peer == wanted && is(message))
        };
        let granted = |m: &Message| matches!(m, Message::Granted { .. });
        while !heard(&array, next, granted) {
            assert!(array.world.step(), "seed {seed}: it is never granted");
        }
        assert!(!array.world.uses_memory(0), "seed {seed}");
        let volume = array.world.volume(0, "v").to_vec();
        array.world.run();
        assert_eq!(array.world.volume(0, "v"), volume, "seed {seed}");
        assert!(array.world.lost.contains(&array.peers[0]));
        let parting =
            |m: &Message| matches!(m, Message::Outvoted { tag: PARTING_TAG, granted: Epoch(2) });
        assert!(heard(&array, array.peers[0], parting), "seed {seed}");
    }
}

#[test]
fn a_client_without_a_grant_has_no_pipeline_to_write_through() {
    let mut world = World::new(1, 3 << 20, 1);
    let peer = world.dial(0);
    let create = Message::CreateVolume { tag: 1, name: "v".to_owned(), bytes: 1 << 20 };
    assert!(ask(&mut world, peer, &create).is_some());
    let params = super::array::params(Family::Xor2d, 5, ENCODER);
    let prepare = Message::OpenPipeline { tag: 4, role: Role(0), data_sector: 16, params };
    let answer = ask(&mut world, peer, &prepare);
    assert!(matches!(answer, Some(Message::Refused { tag: PARTING_TAG, .. })), "{answer:?}");
    assert_eq!(world.lost, [peer]);
}

#[test]
fn questions_about_arrays_that_are_none_take_no_room() {
    let mut world = World::new(1, 1 << 20, 1);
    let peer = world.dial(0);
    for number in 0..5000_u128 {
        world.send(peer, &Message::ReadVote { tag: 6, array: number.to_be_bytes() });
        world.run();
    }
    let client = world.dial(0);
    world.grant(client, ARRAY, 5);
}
