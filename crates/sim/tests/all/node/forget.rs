//! Forgetting of votes, and the reasons against it.

use std::num::NonZeroU64;

use braid_array::fabric::PeerId;
use braid_cluster::Node;
use braid_cluster::assemble::SUPERBLOCK_SECTOR;
use braid_cluster::ids::{Epoch, NodeId};
use braid_cluster::view::View;
use braid_cluster::wire::Message;

use super::array::ARRAY;
use super::world::World;

const FORGET: Message = Message::Forget { tag: 9, array: ARRAY };
const FORGOTTEN: Message = Message::Ok { tag: 9 };

fn ask(world: &mut World, peer: PeerId, message: &Message) -> Message {
    world.heard.clear();
    world.send(peer, message);
    world.run();
    world.heard.pop().expect("an answer").1
}

/// A node that has granted epoch 5, and recorded a view. The client is gone.
fn world(seed: u64) -> World {
    let mut world = World::new(1, 1 << 20, seed);
    let client = world.dial(0);
    world.grant(client, ARRAY, 5);
    let view = View {
        epoch: Epoch(5),
        count: 2,
        members: vec![NonZeroU64::new(100)],
        voters: vec![NodeId(0)],
        ..View::default()
    };
    let recorded = ask(&mut world, client, &Message::StoreView { tag: 8, view });
    assert_eq!(recorded, Message::Ok { tag: 8 });
    world.hang_up(client);
    world.run();
    world
}

fn superblock(array: [u8; 16]) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    bytes[..4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
    bytes[4] = 1;
    bytes[16..32].copy_from_slice(&array);
    bytes
}

/// With this array's superblock on it.
fn volume(array: [u8; 16]) -> Vec<u8> {
    let mut volume = vec![0; 4096];
    volume.extend(superblock(array));
    volume
}

/// Checks that the request is refused and the vote is unchanged.
fn refused(world: &mut World, words: &str) {
    let peer = world.dial(0);
    match ask(world, peer, &FORGET) {
        Message::Refused { tag: 9, reason, .. } => assert!(reason.contains(words), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(granted(world), Epoch(5), "{words}");
}

/// The highest epoch granted, as the node tells it.
fn granted(world: &mut World) -> Epoch {
    let peer = world.dial(0);
    match ask(world, peer, &Message::ReadVote { tag: 6, array: ARRAY }) {
        Message::VoteIs { granted, .. } => granted,
        other => panic!("{other:?}"),
    }
}

#[test]
fn after_it_a_grant_begins_from_nothing_also_when_the_node_starts_again() {
    for again in [false, true] {
        let mut world = world(1);
        let peer = world.dial(0);
        assert_eq!(ask(&mut world, peer, &FORGET), FORGOTTEN);
        assert!(world.notes(0).is_empty());
        if again {
            world.crash();
        }
        let client = world.dial(0);
        let grant = Message::Grant { tag: 7, array: ARRAY, epoch: Epoch(1), client: 1 };
        let granted = ask(&mut world, client, &grant);
        let nothing = View::default();
        assert!(matches!(granted, Message::Granted { view, .. } if view == nothing));
        assert_eq!(world.notes(0).len(), 1);
    }
}

#[test]
fn what_was_never_granted_is_not_forgotten() {
    let mut world = world(1);
    let peer = world.dial(0);
    let other = Message::Forget { tag: 9, array: [4; 16] };
    let answer = ask(&mut world, peer, &other);
    let Message::Refused { reason, .. } = answer else { panic!("{answer:?}") };
    assert!(reason.contains("has no vote of this array"), "{reason}");
    assert_eq!(granted(&mut world), Epoch(5));
}

#[test]
fn a_client_that_has_the_array_stands_against_it() {
    let mut world = world(1);
    let client = world.dial(0);
    world.send(client, &Message::Grant { tag: 7, array: ARRAY, epoch: Epoch(6), client: 1 });
    world.run();
    let peer = world.dial(0);
    let answer = ask(&mut world, peer, &FORGET);
    let Message::Refused { reason, busy: true, .. } = answer else { panic!("{answer:?}") };
    assert!(reason.contains("a client has the array"), "{reason}");
    assert_eq!(granted(&mut world), Epoch(6));
    world.hang_up(client);
    world.run();
    assert_eq!(ask(&mut world, peer, &FORGET), FORGOTTEN);
}

#[test]
fn a_volume_with_a_member_stands_against_it_wherever_it_is_listed() {
    for name in ["a", "m", "z"] {
        let mut world = world(1);
        // So many that they are listed in several parts. Some have no room for a superblock.
        for number in 0..150 {
            let held = if number % 3 == 0 { vec![0; 512] } else { volume([9; 16]) };
            world.keep(0, &format!("n{number}"), &held);
        }
        world.keep(0, name, &volume(ARRAY));
        refused(&mut world, &format!("volume {name} carries a member"));
        world.process_mut(0).volumes.remove(name);
        let peer = world.dial(0);
        assert_eq!(ask(&mut world, peer, &FORGET), FORGOTTEN);
        assert_eq!(world.open_volumes(0), 0);
    }
}

#[test]
fn a_volume_that_cannot_be_read_stands_against_it() {
    let mut world = world(1);
    world.keep(0, "v", &volume([9; 16]));
    world.disk(0, "v").break_sector(SUPERBLOCK_SECTOR);
    refused(&mut world, "volume v cannot be read");
}

#[test]
fn a_vote_that_cannot_be_removed_still_holds() {
    let mut world = world(1);
    world.process_mut(0).keeps_notes = true;
    refused(&mut world, "cannot remove the vote file");
    let client = world.dial(0);
    let grant = Message::Grant { tag: 7, array: ARRAY, epoch: Epoch(4), client: 1 };
    assert_eq!(ask(&mut world, client, &grant), Message::Outvoted { tag: 7, granted: Epoch(5) });
}

/// A volume that was looked at, and becomes a member before the vote file goes.
#[test]
fn a_volume_that_becomes_a_member_meanwhile_stands_against_it() {
    let noticed = (0..100).filter(|seed| becomes_a_member(*seed, 3, 0)).count();
    assert!(noticed > 0);
}

/// The same, also while more volumes are being listed.
#[test]
fn a_volume_that_becomes_a_member_during_a_list_stands_against_it() {
    let noticed = (0..600).filter(|steps| becomes_a_member(1, 80, *steps)).count();
    assert!(noticed > 100, "{noticed}");
}

/// Volume `a` is written to by one client, so many steps after another began to have the vote
/// forgotten. Returns whether it became a member during the search.
fn becomes_a_member(seed: u64, others: u32, steps: u32) -> bool {
    let mut world = world(seed);
    world.keep(0, "a", &volume([9; 16]));
    for number in 0..others {
        world.keep(0, &format!("n{number}"), &volume([9; 16]));
    }
    let writer = world.dial(0);
    let peer = world.dial(0);
    let open = Message::OpenVolume { tag: 1, name: "a".to_owned(), write: true };
    assert!(matches!(ask(&mut world, writer, &open), Message::Volume { .. }));
    world.heard.clear();
    world.send(peer, &FORGET);
    for _ in 0..steps {
        world.step();
    }
    let write = Message::WriteMeta { tag: 2, sector: SUPERBLOCK_SECTOR, bytes: superblock(ARRAY) };
    world.send(writer, &write);
    let mut member = false;
    while world.step() {
        let searches = world.node(0, Node::is_forgetting);
        member |= searches && world.volume(0, "a")[4096..][..4096] == superblock(ARRAY);
    }
    let refused = |(_, said): &(_, Message)| matches!(said, Message::Refused { tag: 9, .. });
    assert!(!member || world.heard.iter().any(refused), "seed {seed}, {steps} steps");
    member
}

/// Checks that a vote reported as forgotten never comes back, and that a crash leaves the whole
/// vote or none.
#[test]
fn a_crash_at_any_step_leaves_the_vote_or_nothing() {
    let mut kept = 0;
    let mut gone = 0;
    for steps in 0.. {
        let mut world = world(3);
        world.keep(0, "v", &volume([9; 16]));
        let peer = world.dial(0);
        world.heard.clear();
        world.send(peer, &FORGET);
        let goes_on = (0..steps).all(|_| world.step());
        let told = world.heard.iter().any(|(_, said)| *said == FORGOTTEN);
        world.crash();
        match granted(&mut world) {
            Epoch(5) => kept += 1,
            Epoch::BEFORE_ANY => gone += 1,
            other => panic!("{other}"),
        }
        assert!(!told || world.notes(0).is_empty(), "{steps} steps");
        if !goes_on {
            break;
        }
        let peer = world.dial(0);
        // Who was not told tries again.
        ask(&mut world, peer, &FORGET);
        assert!(world.notes(0).is_empty());
    }
    assert!(kept > 0 && gone > 1, "{kept} {gone}");
}

#[test]
fn it_is_said_alone() {
    for first in [
        Message::Grant { tag: 7, array: [4; 16], epoch: Epoch(1), client: 1 },
        Message::CreateVolume { tag: 1, name: "v".to_owned(), bytes: 8192 },
    ] {
        let mut world = world(1);
        let peer = world.dial(0);
        ask(&mut world, peer, &first);
        world.send(peer, &FORGET);
        world.run();
        assert_eq!(world.lost, [peer], "{first:?}");
        assert_eq!(granted(&mut world), Epoch(5));
    }
}
