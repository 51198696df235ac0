//! Nodes that are added to an array over nodes while it runs.

use braid_array::action::{Command, NewMember};
use braid_array::events::{ArrayEvent, SyncAction, SyncEnd};
use braid_array::status::MemberState;
use braid_array::{MemberId, Role};

use crate::members::array::Array;
use crate::members::lane::{Code, DATA_SECTOR, DATA_SECTORS, Lane, Setup};
use crate::members::nodes::{Nodes, codes};

const BITMAP: Setup = Setup { dirty: false, bitmap: true, spares: 0 };
const LOST: usize = 1;

/// A running array that has lost a node for good.
fn without(code: Code) -> Array<Nodes> {
    let mut array = Array::<Nodes>::start(code, BITMAP);
    array.write(0, 1024);
    array.pass(60_000);
    array.lane.set_broken(LOST, true);
    array.until("the loss", |array| array.status().degraded == 1);
    array
}

fn offered(array: &mut Array<Nodes>) -> (MemberId, Command) {
    let member = array.lane.machine().free_member().expect("room for a member");
    (member, Command::Add(Box::new(array.lane.offer(member, None))))
}

#[track_caller]
fn is_rebuilt(array: &mut Array<Nodes>) {
    assert_eq!(array.sync_ends(SyncAction::Recovery), (0, SyncEnd::Complete), "{:?}", array.code);
    assert_eq!(array.status().degraded, 0);
    array.content_is_right();
    array.members_agree();
}

#[test]
fn a_node_takes_the_place_of_one_that_died_and_votes_in_its_place() {
    for code in codes() {
        let mut array = without(code);
        let before = array.lane.voters(0);
        assert!(before.contains(&(LOST as u64)), "{code:?}: {before:?}");
        let (id, add) = offered(&mut array);
        array.order(add);
        assert!(array.member(MemberId(LOST as u16)).is_none(), "{code:?}: the old one is there");
        is_rebuilt(&mut array);
        assert_eq!(array.member(id).and_then(|member| member.role), Some(Role::at(LOST)));
        let mut voters: Vec<u64> = (0..=u64::from(code.members)).collect();
        voters.remove(LOST);
        for node in voters.clone() {
            assert_eq!(array.lane.voters(node as usize), voters, "{code:?}: node {node}");
        }
    }
}

#[test]
fn whose_place_was_taken_stays_out() {
    for code in codes() {
        let mut array = without(code);
        let (_, add) = offered(&mut array);
        array.order(add);
        array.lane.set_broken(LOST, false);
        array.write(256, 128);
        is_rebuilt(&mut array);
        array.pass(30_000);
        assert_eq!(array.status().members.len(), usize::from(code.members));
        array.stop();
        // It is named with the others, and left out.
        array.assemble();
        assert_eq!(array.status().degraded, 0, "{code:?}");
        let old = format!("node://n{LOST}/");
        let members = array.status().members;
        assert!(members.iter().all(|member| !member.device.starts_with(&old)), "{code:?}");
        array.content_is_right();
    }
}

#[test]
fn a_node_that_cannot_be_had_changes_nothing() {
    for code in codes() {
        let mut array = without(code);
        let (_, add) = offered(&mut array);
        let Command::Add(new) = add else { unreachable!() };
        let away = NewMember { device: "node://nowhere/data".to_owned(), ..*new.clone() };
        let refusal = array.refused(Command::Add(Box::new(away)));
        assert!(!refusal.reason.contains("get ready"), "{code:?}: {refusal}");
        let here = NewMember { device: "d5".to_owned(), ..*new };
        assert!(array.refused(Command::Add(Box::new(here))).reason.contains("over nodes"));
        // Who was lost comes back all the same.
        array.lane.set_broken(LOST, false);
        is_rebuilt(&mut array);
        assert!(array.events.contains(&ArrayEvent::MemberActive(MemberId(LOST as u16))));
    }
}

#[test]
fn a_node_that_was_failed_stays_away_until_it_is_added() {
    for code in codes() {
        let mut array = Array::<Nodes>::start(code, BITMAP);
        array.write(0, 1024);
        let id = MemberId(LOST as u16);
        array.order(Command::Fail(id));
        array.write(64, 200);
        array.pass(60_000);
        assert_eq!(state_of(&mut array, LOST), Some(MemberState::Faulty));
        // Whatever becomes of the client.
        array.stop();
        array.assemble();
        array.write(304, 200);
        array.pass(60_000);
        assert_eq!(state_of(&mut array, LOST), Some(MemberState::Faulty), "{code:?}: stopped");
        array.order(Command::Remove(id));
        array.crash();
        array.assemble();
        array.write(504, 200);
        array.pass(60_000);
        assert_eq!(state_of(&mut array, LOST), Some(MemberState::Faulty), "{code:?}: removed");
        array.order(Command::Remove(id));
        let new = array.lane.offer(id, Some(LOST));
        array.order(Command::Add(Box::new(new)));
        is_rebuilt(&mut array);
        // It is a member as the others are again.
        array.lane.set_broken(LOST, true);
        array.until("the loss", |array| array.status().degraded == 1);
        array.stop();
        array.lane.set_broken(LOST, false);
        array.assemble();
        array.until("it is back", |array| array.status().degraded == 0);
        array.content_is_right();
    }
}

/// Returns the state of the member on a node.
fn state_of(array: &mut Array<Nodes>, node: usize) -> Option<MemberState> {
    let device = format!("node://n{node}/");
    let members = array.status().members;
    members.iter().find(|one| one.device.starts_with(&device)).map(|member| member.state)
}

#[test]
fn who_follows_a_node_that_was_failed_goes_on_when_it_dies_with_the_client() {
    for code in codes().into_iter().filter(|code| code.members > 2) {
        let mut array = Array::<Nodes>::start(code, BITMAP);
        array.write(0, 1024);
        array.limit(128 << 10);
        array.order(Command::Fail(MemberId(LOST as u16)));
        let (_, add) = offered(&mut array);
        array.order(add);
        array.until("half of it", |array| array.status().sync.done_sectors >= DATA_SECTORS / 2);
        let new = usize::from(code.members);
        array.lane.set_broken(new, true);
        array.until("its loss", |array| array.ended(SyncAction::Recovery).is_some());
        array.crash();
        // Nobody else has its role now.
        array.assemble();
        array.write(64, 200);
        array.pass(60_000);
        assert_eq!(state_of(&mut array, LOST), Some(MemberState::Faulty), "{code:?}");
        array.crash();
        array.lane.set_broken(new, false);
        array.assemble();
        array.until("it is whole", |array| array.status().degraded == 0);
        assert_eq!(state_of(&mut array, new), Some(MemberState::InSync), "{code:?}");
        array.content_is_right();
        array.members_agree();
    }
}

/// Starts the rebuild of an added node, and corrupts data on it that are already rebuilt: a
/// repeated copy corrects them.
fn half_rebuilt(code: Code) -> (Array<Nodes>, u64) {
    let mut array = without(code);
    array.limit(128 << 10);
    let (_, add) = offered(&mut array);
    array.order(add);
    array.until("half of it", |array| array.status().sync.done_sectors >= DATA_SECTORS / 2);
    // Never written, so not marked: the last rows of the first quarter.
    let copied = DATA_SECTOR + DATA_SECTORS / 4;
    array.lane.disk(usize::from(code.members)).put(copied, &[0x77; 512]);
    (array, copied)
}

#[track_caller]
fn goes_on(array: &mut Array<Nodes>, copied: u64) {
    let node = usize::from(array.code.members);
    array.unlimited();
    array.until("the rebuild", |array| array.status().degraded == 0);
    let at = copied as usize * 512;
    let found = array.lane.disk(node).image()[at..at + 512].to_vec();
    assert_eq!(found, [0x77; 512], "{:?}: what was copied was copied again", array.code);
    array.lane.disk(node).put(copied, &[0; 512]);
    array.content_is_right();
    array.members_agree();
}

#[test]
fn a_recovery_target_that_dies_goes_on_with_what_it_lacks() {
    for code in codes() {
        let (mut array, copied) = half_rebuilt(code);
        let node = usize::from(code.members);
        array.lane.set_broken(node, true);
        array.until("the loss", |array| array.ended(SyncAction::Recovery).is_some());
        array.write(0, 64);
        array.lane.set_broken(node, false);
        goes_on(&mut array, copied);
    }
}

#[test]
fn a_client_that_dies_leaves_a_rebuild_that_goes_on() {
    for code in codes() {
        let (mut array, copied) = half_rebuilt(code);
        // Superblocks say clean again.
        array.pass(12_000);
        array.crash();
        array.assemble();
        goes_on(&mut array, copied);
    }
}
