//! Volumes, metadata, pipelines and connections, before and after slices flow.

use braid_array::action::{Command, CommandId, Event};
use braid_array::array::Scratch;
use braid_array::events::ArrayEvent;
use braid_array::fabric::{FabricEvent, FabricOp, PeerId, Volume};
use braid_array::{Action, Instant, Machine, MemberId, Outcome, Role};
use braid_cluster::Family;
use braid_cluster::Node;
use braid_cluster::ids::{Epoch, NodeId, Slot};
use braid_cluster::node::PARTING_TAG;
use braid_cluster::wire::{Message, PeerAddress};

use super::array::{Array, DATA_SECTOR, ENCODER, params};
use super::world::World;

fn create(tag: u32, name: &str) -> Message {
    Message::CreateVolume { tag, name: name.to_owned(), bytes: 1 << 20 }
}

fn open(tag: u32, name: &str, write: bool) -> Message {
    Message::OpenVolume { tag, name: name.to_owned(), write }
}

/// Sends a request. Returns the answer, if any.
fn ask(world: &mut World, peer: PeerId, message: &Message) -> Option<Message> {
    world.send(peer, message);
    world.run();
    let mut heard = std::mem::take(&mut world.heard);
    assert!(heard.len() <= 1, "{heard:?}");
    heard.pop().map(|(from, message)| {
        assert_eq!(from, peer);
        message
    })
}

#[track_caller]
fn refused(answer: Option<Message>, words: &str) {
    match answer {
        Some(Message::Refused { reason, advice, .. }) => {
            let said = format!("{reason}; {advice}");
            assert!(said.contains(words) && !advice.is_empty(), "{said}");
        }
        other => panic!("{other:?}"),
    }
}

/// Returns the answer to the opening of a volume of node 0; `used` tells whether another client
/// writes to it.
const fn opened(tag: u32, used: bool) -> Message {
    Message::Volume { tag, bytes: 1 << 20, node: NodeId(0), used }
}

#[test]
fn both_ends_of_a_connection_of_nodes_bear_what_the_client_says() {
    let array = Array::connected(Family::Xor2d, 5, ENCODER, 1);
    assert_eq!(array.world.silences(), [array.pipeline.params().silence_ms; 5 * 4]);
}

#[test]
fn one_client_writes_and_others_read() {
    let mut world = World::new(1, 1 << 20, 1);
    let a = world.dial(0);
    let b = world.dial(0);
    let c = world.dial(0);
    let volume = |tag, used| Some(opened(tag, used));
    assert_eq!(ask(&mut world, a, &create(5, "v")), volume(5, false));
    refused(ask(&mut world, b, &create(6, "v")), "exists");
    refused(ask(&mut world, b, &open(7, "v", true)), "volume v is in use by another client");
    assert_eq!(ask(&mut world, b, &open(8, "v", false)), volume(8, true));
    refused(ask(&mut world, c, &open(9, "w", true)), "there is no volume w");
    refused(ask(&mut world, c, &open(9, "../w", true)), "no volume can be called this");
    refused(ask(&mut world, a, &Message::DeleteVolume { tag: 1 }), "in use by another client");
    refused(ask(&mut world, b, &Message::DeleteVolume { tag: 1 }), "did not make");
    // When the last has gone it is closed, and only then.
    world.hang_up(a);
    world.run();
    assert_eq!((world.open_volumes(0), world.counts(0).flushes), (1, 0));
    assert_eq!(ask(&mut world, c, &open(2, "v", true)), volume(2, false));
    world.hang_up(b);
    world.hang_up(c);
    world.run();
    assert_eq!((world.open_volumes(0), world.counts(0).flushes), (0, 1));
    assert!(world.node(0, Machine::idle) && world.volumes(0) == ["v"]);
}

#[test]
fn whoever_made_a_volume_can_take_it_back() {
    for seed in 0..20 {
        let mut world = World::new(1, 1 << 20, seed);
        let a = world.dial(0);
        let b = world.dial(0);
        assert!(ask(&mut world, a, &create(5, "v")).is_some());
        world.send(a, &Message::DeleteVolume { tag: 6 });
        world.send(b, &create(7, "v"));
        world.run();
        let heard = std::mem::take(&mut world.heard);
        assert!(heard.contains(&(a, Message::Ok { tag: 6 })), "{heard:?}");
        // The other was in time or too early.
        assert_eq!(heard.len(), 2);
        let there = world.volumes(0) == ["v"];
        assert_eq!(there, heard.contains(&(b, opened(7, false))));
    }
}

#[test]
fn who_opens_while_another_leaves_gets_a_fresh_volume_only_if_there_was_none() {
    for seed in 0..40 {
        let mut world = World::new(1, 1 << 20, seed);
        world.keep(0, "v", &vec![9; 4096]);
        let a = world.dial(0);
        let b = world.dial(0);
        world.run();
        world.send(a, &open(1, "v", true));
        world.send(b, &create(2, "v"));
        for _ in 0..world.random(4) {
            world.step();
        }
        world.hang_up(a);
        world.run();
        let of_b = world.heard.iter().find(|(peer, _)| *peer == b).map(|(_, m)| m.clone());
        refused(of_b, "exists");
        assert_eq!(world.volume(0, "v"), vec![9; 4096]);
        assert_eq!(world.open_volumes(0), 0);
    }
}

#[test]
fn who_opens_while_the_last_io_of_the_writer_is_under_way_waits() {
    let mut node = Node::new(Scratch { offset: 0, bytes: 1 << 16 }, NodeId(0), 1);
    let a = PeerId(PeerId::FIRST_ACCEPTED);
    let b = PeerId(PeerId::FIRST_ACCEPTED + 1);
    let volume = Volume { member: MemberId(0), bytes: 1 << 20 };
    let mut tell = |event| {
        node.handle(Instant(0), event);
        std::iter::from_fn(|| node.poll()).collect::<Vec<Action>>()
    };
    let mut fabric = |event| tell(Event::Fabric(event));
    let message = |peer, message: Message| {
        let bytes = message.encode(Epoch(1));
        FabricEvent::Message { peer, bytes }
    };
    fabric(FabricEvent::Accepted { peer: a, limit: None });
    fabric(FabricEvent::Accepted { peer: b, limit: None });
    let actions = fabric(message(a, create(1, "v")));
    let [Action::Volume { io, .. }] = actions[..] else { panic!("{actions:?}") };
    tell(Event::Volume { io, result: Ok(volume) });
    let mut fabric = |event| tell(Event::Fabric(event));
    let write = Message::WriteMeta { tag: 2, sector: 0, bytes: vec![1; 512] };
    let actions = fabric(message(a, write));
    let [Action::Store { .. }, Action::Io { io, .. }] = actions[..] else { panic!("{actions:?}") };
    assert_eq!(fabric(FabricEvent::Lost { peer: a, why: braid_array::Refusal::new("", "") }), []);
    assert_eq!(fabric(message(b, open(3, "v", true))), []);
    // It was never closed.
    let bytes = opened(3, false).encode(Epoch(1));
    let actions = tell(Event::Done { io, result: Ok(Outcome::Done) });
    assert_eq!(actions, [Action::Fabric(FabricOp::Send { peer: b, bytes })]);
}

#[test]
fn metadata_is_written_durably_and_comes_back() {
    let mut world = World::new(1, 1 << 20, 2);
    let a = world.dial(0);
    let b = world.dial(0);
    ask(&mut world, a, &create(1, "v"));
    ask(&mut world, b, &open(1, "v", false));
    // More at a time than there are pages.
    let blocks: Vec<Vec<u8>> = (0..40).map(|i| world.bytes([4096, 512][i % 2])).collect();
    for (i, block) in (0..).zip(&blocks) {
        let message = Message::WriteMeta { tag: i, sector: 8 * u64::from(i), bytes: block.clone() };
        world.send(a, &message);
    }
    world.run();
    assert_eq!(world.counts(0).durable_writes, 40);
    let mut answers: Vec<Message> = world.heard.drain(..).map(|(_, answer)| answer).collect();
    answers.sort_by_key(|answer| match answer {
        Message::Ok { tag } => *tag,
        other => panic!("{other:?}"),
    });
    assert_eq!(answers, (0..40).map(|tag| Message::Ok { tag }).collect::<Vec<_>>());
    for (i, block) in (0..).zip(blocks) {
        let bytes = block.len() as u32;
        let message = Message::ReadMeta { tag: 90 + i, sector: 8 * u64::from(i), bytes };
        assert_eq!(ask(&mut world, b, &message), Some(Message::Meta { tag: 90 + i, bytes: block }));
    }
    let write = |sector, len| Message::WriteMeta { tag: 3, sector, bytes: vec![1; len] };
    refused(ask(&mut world, b, &write(0, 512)), "open for reading");
    for (sector, len) in [(2048, 512), (0, 0), (0, 100), (2047, 1024), (u64::MAX, 512), (0, 4608)] {
        refused(ask(&mut world, a, &write(sector, len)), "no metadata");
        let read = Message::ReadMeta { tag: 3, sector, bytes: len as u32 };
        refused(ask(&mut world, a, &read), "no metadata");
    }
    world.disk(0, "v").break_sector(5);
    refused(ask(&mut world, a, &write(0, 4096)), "cannot be written");
    let read = Message::ReadMeta { tag: 3, sector: 0, bytes: 4096 };
    refused(ask(&mut world, a, &read), "cannot be read");
}

#[test]
fn a_pipeline_that_does_not_fit_is_refused() {
    let mut world = World::new(1, 3 << 20, 3);
    let a = world.dial(0);
    let b = world.dial(0);
    for (peer, array, name) in [(a, 1, "v"), (b, 2, "w")] {
        world.grant(peer, [array; 16], 1);
        ask(&mut world, peer, &create(1, name));
    }
    let good = params(Family::Xor2d, 5, ENCODER);
    let prepare =
        |role, data_sector, params| Message::OpenPipeline { tag: 4, role, data_sector, params };
    refused(ask(&mut world, a, &prepare(Role(5), 16, good)), "no role 5 of 5 nodes");
    let large = braid_cluster::pipeline::Params { stripes: 1000, ..good };
    refused(ask(&mut world, a, &prepare(Role(0), 16, large)), "too small");
    refused(ask(&mut world, a, &prepare(Role(0), u64::MAX, good)), "too small");
    let none = braid_cluster::pipeline::Params { chunk_bytes: 1000, ..good };
    refused(ask(&mut world, a, &prepare(Role(0), 16, none)), "the chunk is out of range");
    let reads = braid_cluster::pipeline::Slots { count: 512, bytes: 8192 };
    let hungry = braid_cluster::pipeline::Params { reads, ..good };
    refused(ask(&mut world, a, &prepare(Role(0), 16, hungry)), "larger --ring");
    assert_eq!(world.ring_used(0), 0);
    let answer = ask(&mut world, a, &prepare(Role(0), 16, good));
    assert!(
        matches!(answer, Some(Message::PipelineReady { tag: 4, ring, .. }) if ring % 4096 == 0)
    );
    assert!(world.ring_used(0) > 0);
    refused(ask(&mut world, b, &prepare(Role(0), 16, good)), "session");
    world.hang_up(a);
    world.run();
    assert_eq!(world.ring_used(0), 0);
    let answer = ask(&mut world, b, &prepare(Role(0), 16, good));
    assert!(matches!(answer, Some(Message::PipelineReady { .. })));
}

#[test]
fn connect_is_answered_when_all_are_there() {
    for seed in 0..10 {
        let mut array = Array::new(Family::Xor2d, 5, ENCODER, seed);
        for node in [3, 0, 4] {
            array.connect(Role(node));
        }
        array.world.run();
        // The highest role waits for the others, the lower ones have all they can get.
        assert_eq!(array.world.heard, [(array.peers[0], Message::Ok { tag: 3 })]);
        array.connect(Role(1));
        array.connect(Role(2));
        array.world.run();
        assert_eq!(array.world.heard.len(), 5);
    }
}

#[test]
fn a_node_that_cannot_be_reached_is_named() {
    let mut array = Array::new(Family::Xor2d, 5, ENCODER, 1);
    array.world.process_mut(4).address = None;
    for node in 0..5 {
        array.connect(Role(node));
    }
    array.world.run();
    let heard = std::mem::take(&mut array.world.heard);
    for (peer, message) in heard {
        match message {
            Message::Refused { tag: 3, busy: false, reason, .. } => {
                assert_eq!(reason, "cannot connect to node 4: the connection was closed");
                assert_ne!(peer, array.peers[4]);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn reads_come_and_slots_are_used_again() {
    let mut array = Array::new(Family::Xor2d, 5, ENCODER, 2);
    let peer = array.peers[1];
    let content = array.world.bytes(32768);
    array.world.disk(1, "v").put(DATA_SECTOR, &content);
    for round in 0..100 {
        let slot = Slot(array.world.random(3) as u16);
        let bytes = 512 * (1 + array.world.random(16) as u32);
        let at = 512 * array.world.random(48);
        let sector = DATA_SECTOR + at / 512;
        array.world.send(peer, &Message::Read { slot, sector, bytes, to: 1024 });
        // As soon as it has come the slot is used again.
        while array.world.placed.is_empty() {
            assert!(array.world.step(), "round {round}");
        }
        assert_eq!(array.world.placed.pop(), Some((peer, slot.0.into())));
        let came = &array.world.client_arena(peer)[1024..][..bytes as usize];
        assert_eq!(came, &content[at as usize..][..bytes as usize]);
    }
    array.world.disk(1, "v").break_sector(DATA_SECTOR + 3);
    let read = Message::Read { slot: Slot(0), sector: DATA_SECTOR, bytes: 4096, to: 0 };
    assert_eq!(ask(&mut array.world, peer, &read), Some(Message::ReadFailed { slot: Slot(0) }));
    assert_eq!(
        ask(&mut array.world, peer, &Message::Flush { tag: 9 }),
        Some(Message::Ok { tag: 9 })
    );
}

/// The digest of these bytes, as the client's documentation has it: two pieces of 128, of sums.
fn digest_of(bytes: &[u8]) -> Vec<u8> {
    let pieces: Vec<&[u8]> = bytes.chunks(bytes.len() / 128).collect();
    let ones = vec![1; 126];
    let powers: Vec<u8> = (2..128).map(braid_parity::gf::pow2).collect();
    let mut digest = pieces[..2].concat();
    let (first, second) = digest.split_at_mut(bytes.len() / 128);
    let coefs = [ones, powers].concat();
    braid_parity::combine(&mut [first, second], &coefs, &pieces[2..], true);
    digest
}

#[test]
fn a_digest_is_that_of_what_is_stored_and_takes_a_64th() {
    let mut array = Array::new(Family::Xor2d, 5, ENCODER, 2);
    let peer = array.peers[1];
    for round in 0..50 {
        let slot = Slot(array.world.random(3) as u16);
        let bytes = 4096 * (1 + array.world.random(2) as usize);
        let content = array.world.bytes(bytes);
        array.world.disk(1, "v").put(DATA_SECTOR, &content);
        array.world.client_arena(peer)[1024..1024 + bytes].fill(0xee);
        let bytes = bytes as u32;
        let digest = Message::Digest { slot, sector: DATA_SECTOR, bytes, to: 1024 };
        array.world.send(peer, &digest);
        // As soon as it has come the slot is used again.
        while array.world.placed.is_empty() {
            assert!(array.world.step(), "round {round}");
        }
        assert_eq!(array.world.placed.pop(), Some((peer, slot.0.into())));
        let came = &array.world.client_arena(peer)[1024..][..bytes as usize];
        let (digest, rest) = came.split_at(bytes as usize / 64);
        assert_eq!(digest, digest_of(&content), "round {round}");
        assert!(rest.iter().all(|&byte| byte == 0xee), "round {round}");
    }
    array.world.disk(1, "v").break_sector(DATA_SECTOR + 3);
    let digest = Message::Digest { slot: Slot(0), sector: DATA_SECTOR, bytes: 4096, to: 0 };
    assert_eq!(ask(&mut array.world, peer, &digest), Some(Message::ReadFailed { slot: Slot(0) }));
}

#[test]
fn a_stop_is_answered_when_all_is_closed() {
    for seed in 0..20 {
        let mut array = Array::writing(2, 150, seed);
        let stop = |id| Event::Command { id: CommandId(id), command: Command::Stop };
        array.world.command(2, stop(1));
        array.world.command(2, stop(2));
        array.world.run();
        let replies = array.world.replies(2);
        let flushes = array.world.counts(2).flushes;
        assert_eq!((replies.len(), array.world.open_volumes(2), flushes), (2, 0, 1));
        assert!(replies[0].is_err() && replies[1].is_ok(), "{replies:?}");
        assert_eq!(array.world.lost, [array.peers[2]]);
        let late = array.world.dial(2);
        array.world.run();
        assert!(array.world.lost.contains(&late));
        let pause = Event::Command { id: CommandId(3), command: Command::Pause(true) };
        array.world.command(0, pause);
        array.world.run();
        assert!(array.world.replies(0)[0].is_err());
        assert!(array.world.all_idle());
        assert_eq!(array.world.node(0, Machine::deadline), None::<Instant>);
    }
}

#[test]
fn a_node_that_is_cut_off_from_another_connects_to_a_third() {
    let mut array = Array::connected(Family::Xor2d, 5, ENCODER, 4);
    array.world.break_link(0, 1);
    array.world.run();
    array.world.heard.clear();
    let peer = |role: Role, ring| PeerAddress { role, address: role.to_string(), ring };
    let two = array.peers[2];
    let one = array.peers[1];
    let peers = vec![peer(Role(2), array.rings[2])];
    let answer = ask(&mut array.world, one, &Message::Connect { tag: 5, peers });
    assert_eq!(answer, Some(Message::Ok { tag: 5 }));
    let peers = vec![peer(Role(1), array.rings[1])];
    let answer = ask(&mut array.world, two, &Message::Connect { tag: 6, peers });
    assert_eq!(answer, Some(Message::Ok { tag: 6 }));
}

#[test]
fn why_an_array_does_not_take_the_node_back_is_in_its_log() {
    let mut world = World::new(1, 1 << 20, 1);
    let peer = world.dial(0);
    world.send(peer, &Message::CreateVolume { tag: 1, name: "v".to_owned(), bytes: 1 << 20 });
    world.run();
    let reason = "its volume is empty".to_owned();
    let advice = String::new();
    world.send(peer, &Message::Refused { tag: PARTING_TAG, busy: false, reason, advice });
    world.run();
    let remarks: Vec<&str> = world.said(0).iter().filter_map(remark).collect();
    assert_eq!(remarks, ["an array does not take volume v back: its volume is empty"]);
    assert_eq!(world.lost, []);
}

fn remark(event: &ArrayEvent) -> Option<&str> {
    match event {
        ArrayEvent::Remark { text, .. } => Some(text),
        _ => None,
    }
}
