//! Leases of ring memory, and the return of the memory.
use braid_array::Role;
use braid_cluster::Family;
use braid_cluster::ids::{Position, Slot};
use braid_cluster::pipeline::Pipeline;
use braid_cluster::wire::Message;
use braid_sim::world::process::POISON;

use super::array::{ARRAY, Array, DATA_SECTOR, ENCODER, params};
use super::world::World;

const NODES: u16 = 5;

/// Bytes of base and ring at node 0.
fn bytes() -> (u64, u64) {
    let pipeline = Pipeline::new(params(Family::Xor2d, NODES, ENCODER)).expect("a pipeline");
    (pipeline.base_bytes(Role(0)), pipeline.ring_bytes(Role(0)))
}

fn used(array: &Array) -> u64 {
    array.world.ring_used(0)
}

/// Sends a message to node 0. Returns its answers.
fn ask(array: &mut Array, message: &Message) -> Vec<Message> {
    array.world.heard.clear();
    array.world.send(array.peers[0], message);
    array.world.run();
    array.world.heard.iter().map(|(_, message)| message.clone()).collect()
}

#[test]
fn a_ring_is_granted_and_given_back() {
    let (base, ring) = bytes();
    assert!(2 * base < ring, "{base} of {ring}");
    let mut array = Array::lean(Family::Xor2d, NODES, 2 * ring);
    assert_eq!(used(&array), base);
    assert_eq!(ask(&mut array, &Message::LeaseRing { tag: 9 }), [Message::Ok { tag: 9 }]);
    assert_eq!(used(&array), ring);
    let start = array.rings[0] as usize;
    array.world.process_mut(0).arena[start..start + ring as usize].fill(7);
    let back = Message::ReturnRing { tag: 10, all: false };
    assert_eq!(ask(&mut array, &back), [Message::Ok { tag: 10 }]);
    assert_eq!(used(&array), base);
    let arena = &array.world.process_mut(0).arena[start..start + ring as usize];
    let (kept, gone) = arena.split_at(base as usize);
    assert!(kept.iter().all(|&byte| byte == 7) && gone.iter().all(|&byte| byte == POISON));
    ask(&mut array, &Message::ReturnRing { tag: 11, all: true });
    assert!(
        array.world.process_mut(0).arena[start..start + base as usize].iter().all(|&b| b == POISON)
    );
    assert_eq!(used(&array), base, "it may be used again without a question");
}

#[test]
fn what_does_not_fit_is_refused_and_the_base_stays() {
    let (base, ring) = bytes();
    let mut array = Array::lean(Family::Xor2d, NODES, ring);
    let answers = ask(&mut array, &Message::LeaseRing { tag: 9 });
    assert!(matches!(answers[..], [Message::Refused { tag: 9, busy: true, .. }]), "{answers:?}");
    assert_eq!(used(&array), base);
}

#[test]
fn what_was_not_granted_must_not_be_used() {
    let ring = bytes().1;
    let lean = || Array::lean(Family::Xor2d, NODES, 2 * ring);
    let position = |array: &Array| {
        let base = array.pipeline.base().clone();
        (0..array.pipeline.positions())
            .find(|&position| !base.contains(&Position(position)))
            .expect("one")
    };
    let open = |array: &mut Array| {
        let set = array.set(position(array), 0);
        ask(array, &Message::BeginSet { set });
    };
    let mut array = lean();
    open(&mut array);
    assert!(array.world.lost.contains(&array.peers[0]));
    assert_eq!(used(&array), 0);
    let mut array = lean();
    let slot = array.pipeline.base_reads();
    ask(&mut array, &Message::Read { slot: Slot(slot), sector: 0, bytes: 4096, to: 0 });
    assert!(array.world.lost.contains(&array.peers[0]));
    // With a grant it may, and then not give back what is open.
    let mut array = lean();
    ask(&mut array, &Message::LeaseRing { tag: 9 });
    open(&mut array);
    assert!(!array.world.lost.contains(&array.peers[0]));
    ask(&mut array, &Message::ReturnRing { tag: 10, all: false });
    assert!(array.world.lost.contains(&array.peers[0]));
}

#[test]
fn a_pipeline_that_is_refused_for_want_of_journal_memory_keeps_no_ring() {
    let params = params(Family::Xor2d, NODES, ENCODER);
    let pipeline = Pipeline::new(params).expect("a pipeline");
    let mut world = World::with_limit(1, 8 << 20, 5, Some(bytes().0));
    let peer = world.dial(0);
    world.grant(peer, ARRAY, 1);
    let bytes = DATA_SECTOR * 512 + pipeline.member_bytes() + (64 << 10);
    world.send(peer, &Message::CreateVolume { tag: 1, name: "v".to_owned(), bytes });
    world.run();
    let role = Role(0);
    // The second time is as the first.
    for tag in [2, 3] {
        world.heard.clear();
        world.send(peer, &Message::OpenPipeline { tag, role, data_sector: DATA_SECTOR, params });
        world.run();
        let heard = &world.heard;
        let [(_, Message::Refused { tag: told, reason, .. })] = &heard[..] else {
            panic!("{heard:?}")
        };
        assert_eq!((*told, &reason[..]), (tag, "no memory is left for a journal"));
        assert_eq!(world.ring_used(0), 0);
    }
    assert!(world.lost.is_empty());
}
