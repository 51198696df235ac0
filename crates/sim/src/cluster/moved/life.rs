//! The life of such an array: requests and mishaps.

use braid_array::action::{Action, Command, CommandId};
use braid_array::events::{ArrayEvent, SyncAction};
use braid_array::format::MoveNote;
use braid_array::format::superblock::{MAX_SECTOR, feature};
use braid_array::grow::Grow;
use braid_array::status::{ArrayState, Status};
use braid_array::{RequestError, RequestId};

use super::{BLOCK_SECTORS, MAX_BLOCKS, Moved};
use crate::cluster::scenario::ClusterScenario;
use crate::judge::Read;
use crate::oracle::Range;
use crate::report::Failure;
use crate::workload::Kind;

const STOP: CommandId = CommandId(1);
const TURN: CommandId = CommandId(2);

/// Event in the middle of a move.
#[derive(Clone, Copy, Debug)]
enum MoveMishap {
    /// A node dies, and comes back later.
    Node,
    /// So many die that the arrays wait.
    Nodes,
    /// A node cannot be reached for a moment.
    Link,
    /// The client dies, and another one comes.
    Client,
    /// The client dies with a node, another client goes on without that, and dies as well.
    Both,
    /// All lose power.
    Power,
    /// Something is written behind the front as soon as that has moved; then the client dies, or
    /// all lose power.
    Behind,
    /// The data are to go back.
    Turn,
}

impl Moved {
    /// Requests, and some mishaps at any moments.
    pub(super) fn live(&mut self) -> Result<(), Failure> {
        for _ in 0..self.rng.below(5) {
            let longest = self.rng.pick(&[100, 1_000, 4_000, 20_000]);
            self.work(longest)?;
            let mishap = self.rng.pick(&[
                MoveMishap::Node,
                MoveMishap::Nodes,
                MoveMishap::Link,
                MoveMishap::Client,
                MoveMishap::Both,
                MoveMishap::Power,
                MoveMishap::Behind,
                MoveMishap::Behind,
                MoveMishap::Behind,
                MoveMishap::Behind,
                MoveMishap::Turn,
            ]);
            self.world.note(&[90], || format!("MISHAP {mishap:?}"));
            self.happens(mishap)?;
            if self.in_doubt {
                return Ok(());
            }
        }
        self.work(1_000)
    }

    fn work(&mut self, longest: u64) -> Result<(), Failure> {
        for _ in 0..self.rng.below(longest) {
            if self.rng.percent(15) {
                self.submit();
            }
            self.step()?;
        }
        Ok(())
    }

    fn happens(&mut self, mishap: MoveMishap) -> Result<(), Failure> {
        let all = self.nodes.len();
        match mishap {
            MoveMishap::Node => {
                let id = self.rng.index(all);
                self.world.kill(self.nodes[id]);
                self.work(3_000)?;
                self.reboot(id);
            }
            // With all of them at once none is lost before the others.
            MoveMishap::Nodes if self.scenario.journal_bytes > 0 && !self.scenario.parts_only => {
                (0..all).for_each(|id| self.world.kill(self.nodes[id]));
                self.work(300)?;
                (0..all).for_each(|id| self.reboot(id));
            }
            MoveMishap::Nodes | MoveMishap::Link => {
                let id = self.rng.index(all);
                self.world.disconnect(self.nodes[id], self.client);
                // Until that is noticed.
                for _ in 0..2_000 {
                    if self.status().degraded > 0 || !self.step()? {
                        break;
                    }
                }
            }
            MoveMishap::Client => {
                self.begin_another()?;
            }
            MoveMishap::Both => self.lose_client_and_node()?,
            MoveMishap::Power => self.lose_power()?,
            MoveMishap::Behind => {
                self.write_behind_the_front()?;
                if self.rng.percent(50) {
                    self.begin_another()?;
                } else {
                    self.lose_power()?;
                }
            }
            MoveMishap::Turn => self.world.command(self.client, TURN, Command::Grow(Grow::Undo)),
        }
        self.be_whole()
    }

    /// The node may be the only one that has heard what the first client was telling.
    fn lose_client_and_node(&mut self) -> Result<(), Failure> {
        let id = self.rng.index(self.nodes.len());
        self.world.kill(self.nodes[id]);
        self.kill_client();
        if self.may_begin() {
            self.begin_client()?;
            let longest = self.rng.pick(&[50, 500, 3_000]);
            self.work(longest)?;
            self.kill_client();
        }
        self.reboot(id);
        self.begin_client()
    }

    fn kill_client(&mut self) {
        self.world.kill(self.client);
        self.judge.client_ends(self.client);
    }

    fn lose_power(&mut self) -> Result<(), Failure> {
        let all = self.nodes.len();
        self.kill_client();
        self.power_was_lost = true;
        (0..all).for_each(|id| self.world.kill(self.nodes[id]));
        for id in 0..all {
            let before = self.nodes[id];
            let mut disks = self.disks_of(before).map(|disk| disk.cloned());
            disks.iter_mut().flatten().for_each(|disk| disk.power_cut(&mut self.rng));
            self.nodes[id] = self.start_node(id, disks, Some(before));
        }
        self.judge.oracle.power_cut();
        self.begin_client()
    }

    /// Waits until the front moves, and writes to what has moved; returns once that is answered.
    fn write_behind_the_front(&mut self) -> Result<(), Failure> {
        let before = self.status().sync;
        if before.action != SyncAction::Reshape {
            return Ok(());
        }
        let mut done = before.done_sectors;
        for _ in 0..20_000 {
            if !self.step()? {
                break;
            }
            done = self.status().sync.done_sectors;
            if done != before.done_sectors {
                break;
            }
        }
        let back = MoveNote::of(&self.status().superblock).features() & feature::NODE_BACK != 0;
        let moved = before.done_sectors..done;
        let total = before.total_sectors;
        let moved = if back { total - moved.end..total - moved.start } else { moved };
        let blocks = moved.start / BLOCK_SECTORS..moved.end / BLOCK_SECTORS;
        if blocks.is_empty() {
            return Ok(());
        }
        let first = self.rng.between(blocks.start, blocks.end - 1);
        let count = (blocks.end - first).min(MAX_BLOCKS);
        let range = Range { sector: first * BLOCK_SECTORS, sectors: count * BLOCK_SECTORS };
        if self.judge.free_slot(self.client).is_none() || self.judge.touches(self.client, range) {
            return Ok(());
        }
        let fua = self.rng.percent(50);
        self.submit_one(Kind::Write { fua }, range);
        while self.judge.touches(self.client, range) && self.step()? {}
        Ok(())
    }

    fn submit(&mut self) {
        if self.judge.free_slot(self.client).is_none() {
            return;
        }
        let rng = &mut self.rng;
        let first = rng.below(self.blocks);
        let count = rng.between(1, (self.blocks - first).min(MAX_BLOCKS));
        let mut range = Range { sector: first * BLOCK_SECTORS, sectors: count * BLOCK_SECTORS };
        let kind = match rng.below(10) {
            0 => {
                range = Range::default();
                Kind::Flush
            }
            1..4 => Kind::Read,
            _ => Kind::Write { fua: rng.percent(20) },
        };
        if self.judge.touches(self.client, range) && kind != Kind::Read {
            return;
        }
        self.submit_one(kind, range);
    }

    pub(super) fn submit_one(&mut self, kind: Kind, range: Range) {
        let draft = self.world.ask(&mut self.judge, self.client, kind, range);
        let Some(draft) = draft else { return };
        // Copies may differ after a loss of power.
        let equal = !self.power_was_lost || self.scenario.params.family.has_parities();
        let moment = self.judge.submitted(self.client, draft, equal);
        self.world.note(&[91], || {
            format!("SUBMIT {:?} {kind:?} {range:?} {} {moment:?}", draft.request.id, draft.serial)
        });
        self.world.drain(self.client);
    }

    /// Answers searches once all nodes are there.
    fn answer_searches(&mut self) {
        for side in 0..2 {
            let all = (0..self.nodes.len()).all(|id| self.is_alive(id));
            if all
                && self.searches[side].is_on()
                && let Some(config) = self.assembled(side)
            {
                self.searches[side].ends_with(config);
            }
        }
    }

    pub(super) fn step(&mut self) -> Result<bool, Failure> {
        self.answer_searches();
        let moved = self.world.step();
        for (process, action) in std::mem::take(&mut self.world.outputs) {
            if process == self.client {
                self.hear(action)?;
            }
        }
        if self.refused && (0..self.nodes.len()).all(|id| self.is_alive(id)) {
            // Members that had missed writes were lost with all others before views had them again.
            let ClusterScenario { params, journal_bytes, .. } = &self.scenario;
            let sums = params.family.has_parities() && *journal_bytes == 0;
            self.in_doubt = sums && self.power_was_lost;
            self.begin_another()?;
            return Ok(true);
        }
        self.world.goes_on(moved, &self.judge, self.client)?;
        Ok(moved)
    }

    pub(super) fn status(&mut self) -> Status {
        let status = self.world.processes[self.client].client().status();
        self.refused |= status.state == ArrayState::Failed && !self.serves;
        status
    }

    /// The client dies, and another one comes.
    fn begin_another(&mut self) -> Result<(), Failure> {
        self.kill_client();
        self.begin_client()
    }

    fn hear(&mut self, action: Action) -> Result<(), Failure> {
        match action {
            Action::Complete { id, result } => self.completed(id, result),
            Action::Reply { id: TURN, result } => {
                self.world.note(&[92], || format!("TURNED {result:?}"));
                self.turned = Some(result.is_ok());
                Ok(())
            }
            Action::Reply { id: STOP, result } => {
                self.stopped = true;
                result.map_err(|why| Failure(format!("stop refused: {why}")))
            }
            Action::Notify(event) => {
                // It has found out by then what is to be done in each array.
                let begins = ArrayEvent::SyncStarted(SyncAction::Reshape);
                self.begun |= event == begins
                    || matches!(
                        event,
                        ArrayEvent::SyncFinished { action: SyncAction::Reshape, .. }
                    );
                self.world.note(&[93], || format!("EVENT {event:?}"));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn completed(
        &mut self,
        id: RequestId,
        result: Result<(), RequestError>,
    ) -> Result<(), Failure> {
        let flight = self.judge.answered(self.client, id)?;
        self.world.note(&[94], || format!("COMPLETE {id:?} {:?} {result:?}", flight.kind));
        self.serves |= result.is_ok();
        if result.is_err() && !self.serves {
            // Nodes were lost before it was granted the arrays.
            self.refused = true;
        } else if let Err(error) = result {
            if flight.kind != Kind::Flush {
                return Err(Failure(format!("{:?} failed: {error}", flight.kind)));
            }
            self.judge.oracle.lose_before(flight.moment);
        }
        let bytes = self.world.processes[self.client].found(flight.request.buf);
        let read = Read { bytes, stays: true, excused: &|_| false };
        self.judge.conclude(&flight, result, Some(read))
    }

    /// All nodes are there and have all that they should.
    fn be_whole(&mut self) -> Result<(), Failure> {
        self.world.begin();
        // Nodes are looked for every second: without an end to requests that takes too many events.
        let mut requests = self.rng.below(100);
        loop {
            let status = self.status();
            let rests = matches!(status.sync.action, SyncAction::Idle | SyncAction::Reshape);
            let all = usize::try_from(status.superblock.raid_disks).unwrap_or(0);
            let known = status.view.as_ref().is_some_and(|view| view.in_sync.len() == all);
            let synced = status.superblock.resync_offset == MAX_SECTOR;
            let whole = self.begun && rests && status.degraded == 0 && known && synced;
            if self.in_doubt {
                return Ok(());
            }
            // A loss may be on its way.
            let moves = status.sync.action == SyncAction::Reshape;
            if whole && status.waiting.is_none() && self.is_connected(moves) {
                return Ok(());
            }
            if requests > 0 && self.rng.percent(1) {
                self.submit();
                requests -= 1;
            }
            if !self.step()? {
                return Err(Failure(format!(
                    "comes to rest as {:?} {:?}",
                    status.state, status.sync
                )));
            }
        }
    }

    /// Returns whether the client is connected to the nodes of its arrays.
    fn is_connected(&self, moves: bool) -> bool {
        let network = &self.world.network;
        let last = self.nodes.len() - 1;
        let connections = |(id, &node): (usize, &usize)| {
            let count = network.between(node, self.client).len();
            count >= if moves && id < last { 2 } else { 1 } || !moves && id == last
        };
        self.nodes.iter().enumerate().all(connections)
    }

    /// All has moved, and the client stops.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        self.world.begin();
        loop {
            let status = self.status();
            let idle = status.sync.action == SyncAction::Idle && status.waiting.is_none();
            let idle = idle && status.superblock.resync_offset == MAX_SECTOR;
            if self.in_doubt {
                return Ok(());
            }
            if idle && status.degraded == 0 && self.judge.in_flight(self.client) == 0 {
                break;
            }
            if !self.step()? {
                return Err(Failure(format!(
                    "comes to rest as {:?} {:?}",
                    status.state, status.sync
                )));
            }
        }
        self.world.command(self.client, STOP, Command::Stop);
        while !self.stopped {
            if !self.step()? {
                return Err(Failure("a stop is not answered".to_owned()));
            }
        }
        self.judge_volumes()
    }
}
