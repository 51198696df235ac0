//! The client against nodes that answer as the tests say.

use braid_array::Op;
use braid_array::events::ArrayEvent;
use braid_array::fabric::{FabricEvent, PeerId};
use braid_array::format::superblock::MAX_SECTOR;
use braid_array::format::{BadBlocks, Superblock};
use braid_array::level::{Layout, Level};

mod adding;
mod compare;
mod decision;
mod decode;
mod departed;
mod lease;
mod lengthening;
mod losses;
mod relay;
mod reread;
mod returning;
mod room;
mod silence;
mod start;
mod stop;
mod trim;
mod write;

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

pub(crate) fn config(planner: Planner) -> ClientConfig {
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
        Some(ClientMember { address, volume, superblock, bad_blocks: BadBlocks::default() })
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

/// Returns the answer of a healthy node.
pub(crate) fn answer(role: Role, message: &Message) -> Option<Message> {
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

/// Lets the nodes answer, except where `ignores` is true, until no more messages come. Returns the
/// other actions.
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
    submit_as(client, RequestId(7), op, sector, sectors);
}

fn submit_as(client: &mut Client, id: RequestId, op: Op, sector: u64, sectors: u64) {
    let buf = Buf { offset: 0, len: sectors as u32 * 512 };
    let request = Request { id, op, sector, sectors, buf };
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
        hear(
            client,
            Role(role),
            &Message::Finished { position, generation, ok: true, no_room: false },
        );
    }
}

/// Returns the number of such messages sent.
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

/// Carries out computations. Returns the requests that complete, and the other actions.
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
