//! A move between two arrays, against nodes that answer as the tests say.

use std::collections::BTreeMap;

use braid_array::fabric::{FabricEvent, FabricOp, PeerId};
use braid_array::format::MoveNote;
use braid_array::{Op, Refusal, RequestError, RequestId, Role};

use super::*;
use crate::Planner;
use crate::client::tests::{answer, config};
use crate::client::{Client, ClientConfig};
use crate::failover::Finder;
use crate::ids::Epoch;
use crate::member::VolumeAddress;
use crate::wire::Message;

const FAIL_TIMEOUT_MS: u64 = 20_000;

/// Finds nobody.
#[derive(Debug)]
struct Nobody;

impl Finder for Nobody {
    fn look(&mut self, _: Vec<VolumeAddress>) {}

    fn found(&mut self) -> Option<Result<ClientConfig, Refusal>> {
        None
    }
}

/// A move, and the nodes that it is connected to.
struct Moves {
    client: MovingClient,
    nodes: BTreeMap<PeerId, Role>,
    now: Instant,
    /// Answered requests.
    over: Vec<(RequestId, Result<(), RequestError>)>,
}

impl Moves {
    /// Both arrays say that data are in both of them.
    fn new() -> Self {
        let mut scratch = Scratch { offset: 1 << 20, bytes: 0 };
        let mut client = |note: MoveNote, first_peer| {
            let mut config = ClientConfig { first_peer, ..config(Planner::Client) };
            for member in config.members.iter_mut().flatten() {
                member.superblock.feature_map |= note.features();
                member.superblock.reshape.position = note.position();
            }
            let offset = scratch.offset + scratch.bytes;
            scratch = Scratch { offset, bytes: Client::scratch_bytes(&config) };
            FailoverClient::new(config, scratch, Box::new(Nobody), FAIL_TIMEOUT_MS).unwrap()
        };
        let old = client(MoveNote::Source, 0);
        let new = client(MoveNote::Target { front: 8, back: false }, NEW_PEERS);
        let offset = scratch.offset + scratch.bytes;
        let scratch = Scratch { offset, bytes: MovingClient::scratch_bytes() };
        let client = MovingClient::new(old, new, scratch, FAIL_TIMEOUT_MS);
        Self { client, nodes: BTreeMap::new(), now: Instant(0), over: Vec::new() }
    }

    fn hear(&mut self, event: FabricEvent) {
        self.client.handle(self.now, Event::Fabric(event));
    }

    /// Has the nodes answer until nothing more is asked, except where `ignores` is true.
    fn run(&mut self, ignores: impl Fn(&Message) -> bool) {
        while let Some(action) = self.client.poll() {
            match action {
                Action::Fabric(FabricOp::Connect { peer, address }) => {
                    let role = address.strip_prefix('n').and_then(|role| role.parse().ok());
                    self.nodes.insert(peer, Role(role.expect("a node's address")));
                    self.hear(FabricEvent::Connected { peer });
                }
                Action::Fabric(FabricOp::Send { peer, bytes }) => {
                    let (_, message) = Message::decode(&bytes).expect("a message");
                    if let Some(role) = self.nodes.get(&peer)
                        && !ignores(&message)
                        && let Some(answer) = answer(*role, &message)
                    {
                        let bytes = answer.encode(Epoch(1));
                        self.hear(FabricEvent::Message { peer, bytes });
                    }
                }
                Action::Complete { id, result } => self.over.push((id, result)),
                _ => {}
            }
        }
    }

    /// Loses the nodes of the old array that have these roles.
    fn lose(&mut self, roles: &[Role]) {
        let is_lost = |(peer, role): &(&PeerId, &Role)| peer.0 < NEW_PEERS && roles.contains(role);
        let lost = self.nodes.iter().filter(is_lost).map(|(peer, _)| *peer);
        let lost: Vec<PeerId> = lost.collect();
        for peer in lost {
            self.nodes.remove(&peer);
            self.hear(FabricEvent::Lost { peer, why: Refusal::new("gone", "") });
        }
    }

    /// Lets time pass, with all that is due until then.
    fn pass_time(&mut self, until: Instant, ignores: impl Fn(&Message) -> bool) {
        while let Some(at) = self.client.deadline().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.client.handle(self.now, Event::Tick);
            self.run(&ignores);
        }
        self.now = until;
    }

    fn submit(&mut self) -> Result<(), Full> {
        let buf = Buf { offset: 0, len: 4096 };
        let request = Request { id: RequestId(7), op: Op::Read, sector: 0, sectors: 8, buf };
        self.client.submit(self.now, request)
    }
}

/// Nodes are lost while the superblocks are told anew how far the move is: no request waits for
/// longer than was asked for.
#[test]
fn requests_fail_in_time_where_nodes_are_away_before_the_move_goes_on() {
    let is_told = |message: &Message| matches!(message, Message::WriteMeta { .. });
    let mut moves = Moves::new();
    moves.run(is_told);
    assert_eq!(*moves.client.moving.step(), Step::Confirming(Side::Old));
    moves.lose(&[Role(0), Role(1)]);
    moves.run(is_told);
    assert!(moves.client.arrays.are_away());
    let late = moves.now.plus_millis(FAIL_TIMEOUT_MS);
    moves.pass_time(Instant(late.0 - 1), is_told);
    assert!(moves.submit().is_err(), "it waits");
    moves.pass_time(late, is_told);
    assert!(moves.submit().is_ok(), "it waits for longer than was asked for");
    moves.run(is_told);
    assert_eq!(moves.over, [(RequestId(7), Err(RequestError::Failed))]);
    assert_eq!(*moves.client.moving.step(), Step::Confirming(Side::Old));
}
