//! The client against nodes that answer as the tests say.

use braid_array::Op;
use braid_array::events::ArrayEvent;
use braid_array::fabric::{FabricEvent, PeerId};
use braid_array::format::Superblock;
use braid_array::format::superblock::MAX_SECTOR;
use braid_array::level::{Layout, Level};

mod compare;
mod decision;
mod departed;
mod lease;
mod reread;
mod returning;
mod room;
mod silence;
mod start;
mod trim;

use std::collections::{BTreeMap, BTreeSet};

use braid_array::fabric::FabricOp;
use braid_array::{Buf, Outcome, Refusal, RequestId, Role};

use super::*;
use crate::Planner;
use crate::family::Family;
use crate::ids::{Epoch, Generation, NodeId, Position, Slot};
use crate::pipeline::Slots;
use crate::set::{Roles, Set, WriteStrategy};
use crate::view::View;
use crate::wire::Message;

const NODES: u16 = 3;
/// One stripe's data: two blocks of 4 KiB.
const STRIPE_SECTORS: u64 = 16;

/// A raid5 over three nodes, of which each carries a superblock that says clean.
fn client(planner: Planner) -> Client {
    made(config(planner))
}

fn made(config: ClientConfig) -> Client {
    let bytes = Client::scratch_bytes(&config);
    Client::new(config, Scratch { offset: 1 << 20, bytes }).expect("a raid5")
}

fn config(planner: Planner) -> ClientConfig {
    let slots = |count| Slots { count, bytes: 4096 };
    let params = Params {
        session: 1,
        epoch: Epoch(1),
        family: Family::Md { level: Level::Raid5, layout: Layout::default_for(Level::Raid5) },
        nodes: NODES,
        chunk_bytes: 4096,
        stripes: 10,
        planner,
        wide: slots(3),
        narrow: slots(3),
        reads: slots(2),
        silence_ms: 4000,
    };
    let superblock = Superblock {
        raid_disks: NODES.into(),
        data_offset: 64,
        resync_offset: MAX_SECTOR,
        ..Superblock::blank()
    };
    let member = |role: Role| {
        let address = format!("n{role}");
        let volume = "v".to_owned();
        let superblock = Superblock { dev_number: role.0.into(), ..superblock.clone() };
        Some(ClientMember { address, volume, superblock })
    };
    ClientConfig::new(params, Role::all(NODES).map(member).collect())
}

fn actions(client: &mut Client) -> Vec<Action> {
    std::iter::from_fn(|| client.poll()).collect()
}

fn hear(client: &mut Client, role: Role, message: &Message) {
    let peer = client.parts.sessions.list.get(role).peer.expect("a connection");
    let bytes = message.encode(Epoch(1));
    client.handle(Instant(2), Event::Fabric(FabricEvent::Message { peer, bytes }));
}

const fn incarnation(role: Role) -> u64 {
    9 + role.0 as u64
}

/// What a node says to a message, when all is well.
fn answer(role: Role, message: &Message) -> Option<Message> {
    match *message {
        Message::OpenVolume { tag, .. } => {
            Some(Message::Volume { tag, bytes: 1 << 30, node: NodeId(1), used: false })
        }
        Message::Grant { tag, .. } => {
            let view = View::default();
            let incarnation = incarnation(role);
            Some(Message::Granted { tag, view, incarnation, node: NodeId(role.0.into()) })
        }
        Message::OpenPipeline { tag, .. } => {
            Some(Message::PipelineReady { tag, ring: 0, journal_bytes: 0, parts_only: false })
        }
        Message::ListLeftovers { tag, .. } => {
            Some(Message::Leftovers { tag, params: None, items: Vec::new(), next: 0 })
        }
        Message::ResolveLeftovers { tag, .. }
        | Message::StoreView { tag, .. }
        | Message::Connect { tag, .. }
        | Message::WriteMeta { tag, .. }
        | Message::Flush { tag } => Some(Message::Ok { tag }),
        Message::Ping { tag } => Some(Message::Pong { tag, storage_silent_ms: 0 }),
        _ => None,
    }
}

/// Has the nodes answer, save what `ignores` says, until nothing more comes; what comes besides.
fn run(client: &mut Client, ignores: impl Fn(u16, &Message) -> bool) -> Vec<Action> {
    let mut rest = Vec::new();
    loop {
        let batch = actions(client);
        if batch.is_empty() {
            return rest;
        }
        for action in batch {
            match &action {
                Action::Fabric(FabricOp::Connect { peer, .. }) => {
                    let peer = *peer;
                    client.handle(Instant(2), Event::Fabric(FabricEvent::Connected { peer }));
                }
                Action::Fabric(FabricOp::Send { peer, bytes }) => {
                    let (_, message) = Message::decode(bytes).expect("a message");
                    let of_peer = |link: &Session| link.peer == Some(*peer);
                    // Nobody answers on a connection that is no member's.
                    let role =
                        client.parts.sessions.list.members().iter().position(of_peer).map(Role::at);
                    let says = |role: Role| {
                        if ignores(role.0, &message) { None } else { answer(role, &message) }
                    };
                    match role.and_then(|role| Some((role, says(role)?))) {
                        Some((role, answer)) => hear(client, role, &answer),
                        None => rest.push(action),
                    }
                }
                _ => rest.push(action),
            }
        }
    }
}

fn lose(client: &mut Client, role: Role) {
    let peer = client.parts.sessions.list.get(role).peer.expect("a connection");
    let why = Refusal::new("gone", "");
    client.handle(Instant(3), Event::Fabric(FabricEvent::Lost { peer, why }));
}

fn submit(client: &mut Client, op: Op, sector: u64, sectors: u64) {
    let buf = Buf { offset: 0, len: sectors as u32 * 512 };
    let request = Request { id: RequestId(7), op, sector, sectors, buf };
    client.submit(Instant(2), request).expect("the array runs");
}

fn completed(actions: &[Action]) -> Option<Result<(), RequestError>> {
    actions.iter().find_map(|action| match action {
        Action::Complete { result, .. } => Some(*result),
        _ => None,
    })
}

fn refusal(tag: u32, reason: &str) -> Message {
    Message::Refused { tag, busy: false, reason: reason.to_owned(), advice: "look".to_owned() }
}

#[test]
fn a_parity_formed_after_its_node_was_lost_is_not_sent() {
    let mut client = client(Planner::Client);
    run(&mut client, |_, _| false);
    submit(&mut client, Op::Write { fua: false }, 0, STRIPE_SECTORS);
    let under_way = run(&mut client, |_, _| false);
    let mut sum = None;
    for action in under_way {
        match action {
            Action::Compute { io, .. } => sum = Some(io),
            Action::Fabric(FabricOp::Put { io, .. }) => {
                let result = Ok(Outcome::Done);
                client.handle(Instant(2), Event::Done { io, result });
            }
            _ => {}
        }
    }
    // The parity of stripe 0 lies on the last node.
    lose(&mut client, Role(2));
    let io = sum.expect("the client forms the parity");
    client.handle(Instant(3), Event::Done { io, result: Ok(Outcome::Done) });
    let after = run(&mut client, |_, _| false);
    let puts = |action: &&Action| matches!(action, Action::Fabric(FabricOp::Put { .. }));
    assert_eq!((after.iter().filter(puts).count(), completed(&after)), (0, None));
    let position = client.parts.engine.open_positions()[0];
    for role in [0, 1] {
        prepared(&mut client, Role(role), (position, Generation(0)), true);
    }
    // The others have all that is theirs: it goes without the parity.
    let goes = |message: &Message| matches!(message, Message::Commit { .. });
    let went = run(&mut client, |_, _| false);
    assert_eq!((said(&went, goes), completed(&went)), (2, Some(Ok(()))));
}

#[test]
fn a_stop_while_nodes_are_asked_leaves_nothing_to_wait_for() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |role, _| role == 1);
    let id = CommandId(1);
    let command = Command::Stop;
    client.handle(Instant(3), Event::Command { id, command });
    let after = run(&mut client, |_, _| false);
    assert!(after.iter().any(|action| matches!(action, Action::Reply { result: Ok(()), .. })));
    assert!(client.idle());
}

#[test]
fn a_node_lost_while_they_are_wired_costs_no_other() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    let wiring = |message: &Message| match message {
        Message::Connect { tag, .. } => Some(*tag),
        _ => None,
    };
    let asked = run(&mut client, |_, message| wiring(message).is_some());
    let tag = |peer: u32| {
        asked.iter().find_map(|action| match action {
            Action::Fabric(FabricOp::Send { peer: to, bytes }) if to.0 == peer => {
                wiring(&Message::decode(bytes).expect("a message").1)
            }
            _ => None,
        })
    };
    lose(&mut client, Role(2));
    let refused = refusal(tag(0).expect("asked"), "cannot connect to node 2");
    hear(&mut client, Role(0), &refused);
    hear(&mut client, Role(1), &Message::Ok { tag: tag(1).expect("asked") });
    assert!(client.parts.alive(Role(0)) && client.parts.alive(Role(1)));
    // It is asked once more, now that it is known who is not there.
    let due = client.deadline().expect("a deadline");
    client.handle(due, Event::Tick);
    run(&mut client, |_, _| false);
    submit(&mut client, Op::Read, 0, 8);
    let reads = run(&mut client, |_, _| false);
    assert_eq!(completed(&reads), None, "it is on its way");
    submit(&mut client, Op::Write { fua: false }, STRIPE_SECTORS, 8);
    let writes = run(&mut client, |_, _| false);
    let without = |message: &Message| match message {
        Message::BeginSet { set } => set.missing == Roles(1 << 2),
        _ => false,
    };
    assert!(said(&writes, without) > 0, "{writes:?}");
}

/// Begins to write the first stripe: position and generation of its slice-set, of which all is
/// sent.
fn begin_write(client: &mut Client) -> (Position, Generation) {
    begin(client, false)
}

fn begin(client: &mut Client, fua: bool) -> (Position, Generation) {
    submit(client, Op::Write { fua }, 0, STRIPE_SECTORS);
    let mut place = None;
    for action in run(client, |_, _| false) {
        match action {
            Action::Fabric(FabricOp::Put { io, .. }) => {
                client.handle(Instant(2), Event::Done { io, result: Ok(Outcome::Done) });
            }
            Action::Fabric(FabricOp::Send { bytes, .. }) => {
                if let Ok((_, Message::BeginSet { set })) = Message::decode(&bytes) {
                    place = Some((set.position, set.generation));
                }
            }
            _ => {}
        }
    }
    place.expect("a slice-set is opened")
}

/// A node says that it has its part of a slice-set.
fn prepared(
    client: &mut Client,
    role: Role,
    (position, generation): (Position, Generation),
    ok: bool,
) {
    let own_fault = !ok;
    let cut_off = Roles::NONE;
    let no_room = false;
    let received_bytes = 0;
    hear(
        client,
        role,
        &Message::Prepared {
            position,
            generation,
            ok,
            own_fault,
            no_room,
            cut_off,
            received_bytes,
        },
    );
}

/// All nodes have a slice-set prepared, and store it.
fn store(client: &mut Client, place: (Position, Generation)) {
    for role in 0..NODES {
        prepared(client, Role(role), place, true);
    }
    let (position, generation) = place;
    let goes = said(&run(client, |_, _| false), |message| match message {
        Message::Commit { sets } => sets.contains(&place),
        _ => false,
    });
    assert_eq!(goes, usize::from(NODES));
    for role in 0..NODES {
        hear(client, Role(role), &Message::Finished { position, generation, ok: true });
    }
}

/// How many such messages are sent.
fn said(actions: &[Action], such: impl Fn(&Message) -> bool) -> usize {
    let is_such = |action: &&Action| match action {
        Action::Fabric(FabricOp::Send { bytes, .. }) => {
            Message::decode(bytes).is_ok_and(|(_, message)| such(&message))
        }
        _ => false,
    };
    actions.iter().filter(is_such).count()
}

/// An array of which the first stripe was written, and that was answered.
fn written() -> Client {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    let place = begin_write(&mut client);
    store(&mut client, place);
    run(&mut client, |_, _| false);
    client
}

#[test]
fn a_write_is_answered_once_all_have_it_and_read_once_it_is_stored() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    let (position, generation) = begin_write(&mut client);
    for role in 0..NODES {
        let so_far = run(&mut client, |_, _| false);
        assert_eq!((completed(&so_far), said(&so_far, |_| true)), (None, 0));
        prepared(&mut client, Role(role), (position, generation), true);
    }
    let answered = run(&mut client, |_, _| false);
    let goes = |message: &Message| matches!(message, Message::Commit { .. });
    assert_eq!((said(&answered, goes), completed(&answered)), (usize::from(NODES), Some(Ok(()))));
    read_block(&mut client, 0);
    submit(&mut client, Op::Flush, 0, 0);
    let waiting = run(&mut client, |_, _| false);
    assert_eq!((reads(&waiting), said(&waiting, |_| true)), (vec![], 0));
    for role in 0..NODES {
        hear(&mut client, Role(role), &Message::Finished { position, generation, ok: true });
    }
    let after = run(&mut client, |_, _| false);
    assert_eq!(reads(&after).len(), 1);
    assert_eq!(completed(&after), Some(Ok(())), "the flush");

    // One that is to be durable is not answered before it is stored.
    let (position, generation) = begin(&mut client, true);
    for role in 0..NODES {
        prepared(&mut client, Role(role), (position, generation), true);
    }
    let gone = run(&mut client, |_, _| false);
    assert_eq!((said(&gone, goes), completed(&gone)), (usize::from(NODES), None));
    for role in 0..NODES {
        hear(&mut client, Role(role), &Message::Finished { position, generation, ok: true });
    }
    assert_eq!(completed(&run(&mut client, |_, _| false)), Some(Ok(())));
}

#[test]
fn a_write_whose_last_part_failed_is_written_without_that_node() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    let (position, generation) = begin_write(&mut client);
    for (role, ok) in [(0, true), (1, true), (2, false)] {
        assert_eq!(completed(&run(&mut client, |_, _| false)), None);
        prepared(&mut client, Role(role), (position, generation), ok);
    }
    let after = run(&mut client, |_, _| false);
    let drops = |message: &Message| matches!(message, Message::Abort { .. });
    assert_eq!((said(&after, drops), completed(&after)), (2, None));
    // And it is told whose fault that was.
    let told = |action: &Action| match action {
        Action::Notify(ArrayEvent::MemberFailed { member, .. }) => Some(*member),
        _ => None,
    };
    assert_eq!(after.iter().find_map(told), Some(MemberId(2)));
    for role in [0, 1] {
        hear(&mut client, Role(role), &Message::Finished { position, generation, ok: true });
    }
    let mut again = None;
    for action in run(&mut client, |_, _| false) {
        match action {
            Action::Fabric(FabricOp::Put { io, .. }) => {
                client.handle(Instant(4), Event::Done { io, result: Ok(Outcome::Done) });
            }
            Action::Fabric(FabricOp::Send { bytes, .. }) => {
                if let Ok((_, Message::BeginSet { set })) = Message::decode(&bytes) {
                    assert_eq!((set.missing, set.touched.is_all()), (Roles(1 << 2), true));
                    again = Some((set.position, set.generation));
                }
            }
            _ => {}
        }
    }
    let (position, generation) = again.expect("it is tried again");
    for role in [0, 1] {
        prepared(&mut client, Role(role), (position, generation), true);
    }
    assert_eq!(completed(&run(&mut client, |_, _| false)), Some(Ok(())));
    assert_eq!(client.status().members.iter().map(|m| m.errors).collect::<Vec<_>>(), [0, 0, 1]);
}

/// The slots in which a node is asked to read, and the node.
fn reads(actions: &[Action]) -> Vec<(PeerId, Slot)> {
    let read = |action: &Action| match action {
        Action::Fabric(FabricOp::Send { peer, bytes }) => match Message::decode(bytes) {
            Ok((_, Message::Read { slot, .. })) => Some((*peer, slot)),
            _ => None,
        },
        _ => None,
    };
    actions.iter().filter_map(read).collect()
}

/// Reads a block of stripe 0 into a buffer of its own.
fn read_block(client: &mut Client, block: u64) {
    let buf = Buf { offset: block * 4096, len: 4096 };
    let request =
        Request { id: RequestId(block), op: Op::Read, sector: block * 8, sectors: 8, buf };
    client.submit(Instant(2), request).expect("the array runs");
}

/// Requests that are over, by id.
type Over = Vec<(u64, Result<(), RequestError>)>;

/// Carries out computations; the requests that complete, and what is left.
fn compute(client: &mut Client) -> (Over, Vec<Action>) {
    let mut over = Vec::new();
    let mut rest = Vec::new();
    while let Some(action) = client.poll() {
        match action {
            Action::Compute { io, .. } => {
                client.handle(Instant(4), Event::Done { io, result: Ok(Outcome::Done) });
            }
            Action::Complete { id, result } => over.push((id.0, result)),
            action => rest.push(action),
        }
    }
    (over, rest)
}

fn placed(client: &mut Client, asked: &[(PeerId, Slot)]) {
    for &(peer, slot) in asked {
        let placed = FabricEvent::Placed { peer, imm: slot.0.into() };
        client.handle(Instant(4), Event::Fabric(placed));
    }
}

#[test]
fn with_a_node_lost_a_block_is_read_once_for_all_who_want_it() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    lose(&mut client, Role(0));
    read_block(&mut client, 0);
    let asked = reads(&run(&mut client, |_, _| false));
    assert_eq!(asked.len(), 2, "block 0 is the sum of block 1 and the parity");
    read_block(&mut client, 1);
    assert_eq!(reads(&run(&mut client, |_, _| false)), [], "it is on its way already");
    placed(&mut client, &asked);
    assert_eq!(compute(&mut client).0, [(0, Ok(())), (1, Ok(()))]);
    // Nothing is forgotten as long as there is room.
    for block in [1, 0] {
        read_block(&mut client, block);
        let (over, rest) = compute(&mut client);
        assert_eq!((over, reads(&rest)), (vec![(block, Ok(()))], vec![]));
    }
}

#[test]
fn what_cannot_be_read_fails_only_those_who_need_it() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    lose(&mut client, Role(0));
    read_block(&mut client, 0);
    read_block(&mut client, 1);
    let asked = reads(&run(&mut client, |_, _| false));
    let parity = PeerId(2);
    let (bad, good): (Vec<_>, Vec<_>) = asked.into_iter().partition(|&(peer, _)| peer == parity);
    placed(&mut client, &good);
    hear(&mut client, Role(2), &Message::ReadFailed { slot: bad[0].1 });
    // Each tries again on its own.
    let mut over = Vec::new();
    for _ in 0..3 {
        let (completed, rest) = compute(&mut client);
        over.extend(completed);
        for (peer, slot) in reads(&rest) {
            if peer == parity {
                hear(&mut client, Role(2), &Message::ReadFailed { slot });
            } else {
                placed(&mut client, &[(peer, slot)]);
            }
        }
    }
    over.sort_unstable_by_key(|&(id, _)| id);
    assert_eq!(over, [(0, Err(RequestError::Medium)), (1, Ok(()))]);
}

#[test]
fn what_is_kept_makes_room_for_what_is_read() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    lose(&mut client, Role(0));
    let room = 7;
    client.parts.shared.leave_buffers(room);
    for round in 0..2 {
        // Stripes of three blocks each, two of which have room.
        for block in 0..20 {
            read_block(&mut client, block);
            let (mut over, rest) = compute(&mut client);
            placed(&mut client, &reads(&rest));
            over.extend(compute(&mut client).0);
            assert_eq!(over, [(block, Ok(()))], "round {round}");
        }
    }
    let (engine, cx) = client.parts.engine();
    engine.forget_all_kept(cx.shared);
    assert_eq!(client.parts.shared.free_buffers(), room);
    assert!(client.parts.engine.has_no_decodings());
}

#[test]
fn a_flush_is_answered_when_superblocks_tell_of_who_could_not_take_part() {
    let mark = |_, message: &Message| matches!(message, Message::WriteMeta { .. });
    let tag_of = |actions: &[Action], such: &dyn Fn(&Message) -> Option<u32>| {
        let sent = actions.iter().filter_map(|action| match action {
            Action::Fabric(FabricOp::Send { peer, bytes }) => {
                Some((peer.0 as u16, such(&Message::decode(bytes).ok()?.1)?))
            }
            _ => None,
        });
        sent.collect::<Vec<_>>()
    };
    let flush = |message: &Message| match message {
        Message::Flush { tag } => Some(*tag),
        _ => None,
    };
    let meta = |message: &Message| match message {
        Message::WriteMeta { tag, .. } => Some(*tag),
        _ => None,
    };
    for refuses in [false, true] {
        let mut client = written();
        submit(&mut client, Op::Flush, 0, 0);
        let asked = run(&mut client, |role, message| role == 1 && flush(message).is_some());
        let [(1, tag)] = tag_of(&asked, &flush)[..] else { panic!("{asked:?}") };
        if refuses {
            // The next might succeed without what this one should have made durable.
            hear(&mut client, Role(1), &refusal(tag, "no"));
        } else {
            lose(&mut client, Role(1));
        }
        let mut telling = run(&mut client, mark);
        assert_eq!(completed(&telling), None);
        while completed(&telling).is_none() {
            let marks = tag_of(&telling, &meta);
            assert!(!marks.is_empty(), "nothing is asked, and nothing answered");
            for (role, tag) in marks {
                assert_ne!(role, 1);
                hear(&mut client, Role(role), &Message::Ok { tag });
            }
            telling = run(&mut client, mark);
        }
        assert_eq!(completed(&telling), Some(Ok(())));
    }
}

#[test]
fn a_stop_does_not_wait_for_a_node_that_says_nothing() {
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    let place = begin_write(&mut client);
    let id = CommandId(1);
    let command = Command::Stop;
    client.handle(Instant(3), Event::Command { id, command });
    for role in [0, 2] {
        prepared(&mut client, Role(role), place, true);
    }
    assert_eq!(completed(&run(&mut client, |_, _| false)), None);
    let mut due = Instant(3);
    let mut answer = None;
    while answer.is_none() {
        due = client.deadline().expect("a deadline");
        client.handle(due, Event::Tick);
        answer = completed(&run(&mut client, |role, _| role == 1));
    }
    assert_eq!(answer, Some(Ok(())));
    assert!(due >= Instant(2).plus_millis(5000), "a slow node gets its time");
    for role in [0, 2] {
        let (position, generation) = place;
        hear(&mut client, Role(role), &Message::Finished { position, generation, ok: true });
    }
    let after = run(&mut client, |_, _| false);
    assert!(after.iter().any(|action| matches!(action, Action::Reply { result: Ok(()), .. })));
    assert!(client.idle());
}

#[test]
fn a_part_of_the_stripe_after_a_whole_one_waits_for_the_rest() {
    let opened = |actions: &[Action]| -> Vec<u64> {
        let opens = actions.iter().filter_map(|action| match action {
            Action::Fabric(FabricOp::Send { bytes, .. }) => match Message::decode(bytes) {
                Ok((_, Message::BeginSet { set })) => Some(set.stripe.0),
                _ => None,
            },
            _ => None,
        });
        opens.collect::<std::collections::BTreeSet<u64>>().into_iter().collect()
    };
    let mut client = client(Planner::Encoder { node: Role(0) });
    run(&mut client, |_, _| false);
    let (position, generation) = begin_write(&mut client);
    submit(&mut client, Op::Write { fua: false }, STRIPE_SECTORS, STRIPE_SECTORS / 2);
    // Not because of some time, but because the stripe before it is not answered yet.
    client.handle(Instant(900_000_000), Event::Tick);
    assert_eq!(opened(&run(&mut client, |_, _| false)), [0; 0]);
    for role in 0..NODES {
        let ok = true;
        let own_fault = false;
        let cut_off = Roles::NONE;
        let no_room = false;
        let received_bytes = 0;
        let message = Message::Prepared {
            position,
            generation,
            ok,
            own_fault,
            no_room,
            cut_off,
            received_bytes,
        };
        let peer = client.parts.sessions.list.get(Role(role)).peer.expect("a connection");
        let bytes = message.encode(Epoch(1));
        let event = Event::Fabric(FabricEvent::Message { peer, bytes });
        client.handle(Instant(900_000_001), event);
    }
    let answered = run(&mut client, |_, _| false);
    assert_eq!(completed(&answered), Some(Ok(())));
    assert_eq!(opened(&answered), [0; 0]);
    // Nothing more comes.
    let due = client.deadline().expect("it does not wait for ever");
    assert!(due <= Instant(902_000_000), "{due:?}");
    client.handle(due, Event::Tick);
    assert_eq!(opened(&run(&mut client, |_, _| false)), [1]);
    for role in 0..NODES {
        hear(&mut client, Role(role), &Message::Finished { position, generation, ok: true });
    }

    // A stripe of which a part was written holds up nobody.
    submit(&mut client, Op::Write { fua: false }, 2 * STRIPE_SECTORS, STRIPE_SECTORS / 2);
    client.handle(due.plus_millis(60), Event::Tick);
    assert_eq!(opened(&run(&mut client, |_, _| false)), [2]);
}

/// Whoever looks for the array when the nodes are back must find enough members.
#[test]
fn superblocks_do_not_tell_of_a_loss_that_the_array_does_not_survive() {
    let mut client = written();
    let id = CommandId(1);
    let command = Command::Stop;
    client.handle(Instant(3), Event::Command { id, command });
    let flush = |message: &Message| matches!(message, Message::Flush { .. });
    let asked = run(&mut client, |_, message| flush(message));
    let tag = asked.iter().find_map(|action| match action {
        Action::Fabric(FabricOp::Send { peer: PeerId(0), bytes }) => {
            match Message::decode(bytes).expect("a message").1 {
                Message::Flush { tag } => Some(tag),
                _ => None,
            }
        }
        _ => None,
    });
    lose(&mut client, Role(1));
    lose(&mut client, Role(2));
    hear(
        &mut client,
        Role(0),
        &Message::Ok { tag: tag.expect("a clean stop begins with a flush") },
    );
    let meta = |message: &Message| matches!(message, Message::WriteMeta { .. });
    let after = run(&mut client, |_, message| meta(message));
    assert_eq!(said(&after, meta), 0, "{after:?}");
}
