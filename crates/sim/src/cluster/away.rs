//! An array whose nodes go away, more of them than it can do without, and come back while its
//! programs wait.

use std::sync::{Arc, Mutex, PoisonError};

use braid_array::action::{Command, CommandId, Event};
use braid_array::array::Scratch;
use braid_array::events::SyncAction;
use braid_array::format::superblock::MAX_SECTOR;
use braid_array::{Action, AnyMachine, Buf, Op, Refusal, Request, RequestError, RequestId};
use braid_cluster::VolumeAddress;
use braid_cluster::client::{Client, ClientConfig};
use braid_cluster::failover::{FailoverClient, Finder};

use super::process::Process;
use super::scenario::Scenario;
use super::session::{ARRAY, Session};
use super::{content, sequenced_blocks};
use crate::report::Failure;
use crate::rng::Rng;

mod past;

/// Requests in flight.
const DEPTH: usize = 8;
const BLOCK_SECTORS: u64 = 8;
/// The largest of them, in blocks.
const MAX_BLOCKS: u64 = 32;
/// Beyond so many events it is said to hang.
const MAX_STEPS: u64 = 400_000;
/// Longer than anything takes.
const FAIL_TIMEOUT_MS: u64 = 3_600_000;

/// What the world and the client's search tell each other.
#[derive(Debug, Default)]
struct Board {
    asked: bool,
    found: Option<ClientConfig>,
}

#[derive(Clone, Debug, Default)]
struct Search(Arc<Mutex<Board>>);

impl Search {
    fn with<T>(&self, look: impl FnOnce(&mut Board) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Finder for Search {
    fn look(&mut self, _: Vec<VolumeAddress>) {
        self.with(|board| *board = Board { asked: true, found: None });
    }

    fn found(&mut self) -> Option<Result<ClientConfig, Refusal>> {
        self.with(|board| board.found.take()).map(Ok)
    }
}

/// A block of the array.
#[derive(Clone, Debug, Default)]
struct Block {
    /// What it may hold: what is durable, and what was written since, the latest last.
    values: Vec<u64>,
    /// A write of it is under way.
    busy: bool,
    /// The latest was answered, and no flush since.
    unflushed: bool,
    /// Nodes may have forgotten the latest.
    unsure: bool,
}

impl Block {
    /// A flush of values below this one is over; if something was `told` that was in doubt, then by
    /// this.
    fn flushed(&mut self, before: u64, ok: bool, told: bool) {
        let Some(last) = self.values.iter().rposition(|value| *value < before) else { return };
        let unflushed = self.unflushed && last + 1 == self.values.len();
        // One that failed has made nothing durable; else what was in doubt is there.
        self.unsure |= unflushed && !ok;
        self.unsure &= !(told && unflushed && ok);
        self.unflushed &= !unflushed;
        if ok && !self.unsure {
            self.values.drain(..last);
        }
    }
}

#[derive(Clone, Debug)]
enum Flight {
    Write {
        first: u64,
        values: Vec<u64>,
        fua: bool,
    },
    /// Of values below this one, which were all answered.
    Flush {
        before: u64,
    },
}

/// A run with one client that outlives its nodes ([`FailoverClient`]): nodes go away, and come back while
/// requests wait. None of the requests fails, and what was answered is there. What nodes forgot
/// that lost their memories, the next flush tells of: it has to fail, once. [`run`] makes it, has
/// nodes lost and regained, stops the client, and judges every block.
struct Away<'a> {
    session: &'a mut Session,
    client: usize,
    search: Search,
    blocks: Vec<Block>,
    flights: Vec<Option<Flight>>,
    next_value: u64,
    /// Nodes are kept away.
    held_back: bool,
    /// Nodes have lost their memories, and the client does not know yet.
    dying: bool,
    /// The next flush has to fail.
    owed: bool,
    /// The next flush fails unless what whole stripes were given is there: no journal has it.
    in_doubt: bool,
    stopped: bool,
}

/// Is it an array that always starts when all of its nodes are there?
pub(super) fn fits(scenario: &Scenario) -> bool {
    let known = scenario.params.chunk_bytes.is_power_of_two();
    // Witnesses stay, and may note who died first of all nodes that die.
    known && !scenario.dirty && !scenario.bad_sectors && scenario.witnesses == 0
}

/// Has nodes go away and come back, and looks at what is there in the end.
///
/// # Errors
/// What is wrong.
pub(super) fn run(session: &mut Session) -> Result<(), Failure> {
    let search = Search::default();
    let mut away = Away {
        client: start(session, &search)?,
        blocks: vec![
            Block { values: vec![0], ..Block::default() };
            (session.layout.sectors() / BLOCK_SECTORS) as usize
        ],
        session,
        search,
        flights: vec![None; DEPTH],
        next_value: 1,
        held_back: false,
        dying: false,
        owed: false,
        in_doubt: false,
        stopped: false,
    };
    let redundant = away.session.scenario.survives(&[0]);
    if redundant && away.session.rng.percent(40) {
        past::run(&mut away)?;
    } else {
        away.lose_and_regain()?;
    }
    away.finish()?;
    away.judge()
}

fn start(session: &mut Session, search: &Search) -> Result<usize, Failure> {
    let all: Vec<u16> = (0..session.scenario.params.nodes).collect();
    let none = || Failure("there is no array".to_owned());
    let config = session.assembled(&all).ok_or_else(none)?;
    let slots = DEPTH as u64 * MAX_BLOCKS * BLOCK_SECTORS * 512;
    let bytes = Client::scratch_bytes(&config);
    let scratch = Scratch { offset: slots, bytes };
    let finder = Box::new(search.clone());
    let client = FailoverClient::new(config, scratch, finder, FAIL_TIMEOUT_MS).map_err(Failure)?;
    let client = AnyMachine::Block(Box::new(client));
    let limit = session.scenario.limited.then_some(ARRAY);
    let process = Process::new("lasting".to_owned(), client, (slots + bytes) as usize, None);
    Ok(session.world.start(process.limited_to(limit)))
}

impl Away<'_> {
    fn lose_and_regain(&mut self) -> Result<(), Failure> {
        for _ in 0..3 {
            self.be_whole()?;
            let before = self.session.rng.between(1, 30);
            self.work(before)?;
            // Drawn aside: who is lost before is who would be without.
            let mut aside = Rng::new(self.session.rng.clone().next() ^ 0x0061_6761_696e);
            let died = self.lose(true)?;
            // Without whole journals nobody vouches for sums where nodes forgot and others are
            // missing.
            let Scenario { journal_bytes, parts_only, params, .. } = &self.session.scenario;
            let kept = *journal_bytes > 0 && !parts_only || !params.family.has_parities();
            while (kept || !died) && aside.percent(40) {
                self.lose_while_it_starts(&mut aside, kept)?;
            }
        }
        self.work(30)
    }

    /// Writes and flushes so many times.
    fn work(&mut self, mut requests: u64) -> Result<(), Failure> {
        let begun = self.session.world.steps;
        while requests > 0 {
            if self.session.rng.percent(30) && self.submit() {
                requests -= 1;
            }
            self.step(begun)?;
        }
        Ok(())
    }

    fn submit(&mut self) -> bool {
        let Some(slot) = self.flights.iter().position(Option::is_none) else { return false };
        let rng = &mut self.session.rng;
        let blocks = self.blocks.len() as u64;
        let first = rng.below(blocks);
        let count = rng.between(1, (blocks - first).min(MAX_BLOCKS));
        let range = first as usize..(first + count) as usize;
        let idle = self.flights.iter().all(Option::is_none);
        let (op, flight) = if idle && rng.percent(30) {
            (Op::Flush, Flight::Flush { before: self.next_value })
        } else if self.blocks[range.clone()].iter().any(|block| block.busy) {
            return false;
        } else {
            let values: Vec<u64> = (self.next_value..).take(count as usize).collect();
            let fua = rng.percent(20);
            (Op::Write { fua }, Flight::Write { first, values, fua })
        };
        let (sector, sectors) = match op {
            Op::Flush => (0, 0),
            _ => (first * BLOCK_SECTORS, count * BLOCK_SECTORS),
        };
        let offset = slot as u64 * MAX_BLOCKS * BLOCK_SECTORS * 512;
        let buf = Buf { offset, len: (sectors * 512) as u32 };
        let world = &mut self.session.world;
        if let Flight::Write { values, .. } = &flight {
            let bytes = world.processes[self.client].bytes(buf);
            sequenced_blocks::fill(bytes, values[0]);
        }
        let request = Request { id: RequestId(slot as u64), op, sector, sectors, buf };
        let now = world.now();
        if world.processes[self.client].client().submit(now, request).is_err() {
            return false;
        }
        if let Flight::Write { .. } = flight {
            self.next_value += count;
            self.blocks[range].iter_mut().for_each(|block| block.busy = true);
        }
        self.flights[slot] = Some(flight);
        world.drain(self.client);
        true
    }

    /// More nodes go away than the array can do without, in one way or another, and come back.
    /// Do they die?
    fn lose(&mut self, may_die: bool) -> Result<bool, Failure> {
        let nodes = self.session.scenario.params.nodes;
        let mut roles: Vec<u16> = (0..nodes).collect();
        // With all of them at once none is lost without which it has gone on.
        let die = self.session.rng.percent(40) && may_die;
        while !die && self.session.rng.percent(80) {
            let mut fewer = roles.clone();
            fewer.remove(self.session.rng.below(roles.len() as u64) as usize);
            if self.session.scenario.survives(&fewer) {
                break;
            }
            roles = fewer;
        }
        if !die {
            // A client that starts is not connected to all yet.
            roles.retain(|&role| !self.connections(role).is_empty());
        }
        if self.session.scenario.survives(&roles) {
            return Ok(false);
        }
        self.held_back = true;
        // Journals of parts of stripes do not keep what whole stripes were given.
        let Scenario { journal_bytes, parts_only, .. } = self.session.scenario;
        self.dying = die && (journal_bytes == 0 || parts_only);
        for &role in &roles {
            if die {
                self.session.world.kill(self.session.nodes[usize::from(role)]);
                continue;
            }
            for connection in self.connections(role) {
                self.session.world.break_connection(connection);
            }
        }
        if self.dying {
            self.blocks.iter_mut().for_each(|block| block.unsure |= block.unflushed);
        }
        let begun = self.session.world.steps;
        while !self.search.with(|board| board.asked) {
            self.sometimes_submit(10);
            self.step(begun)?;
        }
        if self.dying && self.blocks.iter().any(|block| block.unflushed) {
            self.owed |= !parts_only;
            self.in_doubt |= parts_only;
        }
        self.dying = false;
        for _ in 0..self.session.rng.below(200) {
            self.sometimes_submit(50);
            self.step(begun)?;
        }
        if die {
            roles.iter().for_each(|&role| self.session.reboot(role));
        }
        self.held_back = false;
        Ok(die)
    }

    /// The nodes are back, and more go away again while the client takes the array over.
    fn lose_while_it_starts(&mut self, rng: &mut Rng, may_die: bool) -> Result<(), Failure> {
        let begun = self.session.world.steps;
        while self.search.with(|board| board.asked || board.found.is_some()) {
            self.step(begun)?;
        }
        let most = rng.pick(&[1, 10, 60, 200, 600]);
        for _ in 0..rng.below(most) {
            self.step(begun)?;
            if self.session.world.processes[self.client].client().status().waiting.is_none() {
                // Without sums that fit some writes might fail now.
                return Ok(());
            }
        }
        self.lose(may_die)?;
        Ok(())
    }

    fn connections(&self, role: u16) -> Vec<usize> {
        let node = self.session.nodes[usize::from(role)];
        self.session.world.connections_between(node, self.client)
    }

    fn sometimes_submit(&mut self, percent: u64) {
        if self.session.rng.percent(percent) {
            self.submit();
        }
    }

    /// Tells the client how it starts again, once all nodes are there.
    fn answer_search(&mut self) {
        if self.held_back || !self.search.with(|board| std::mem::take(&mut board.asked)) {
            return;
        }
        let all: Vec<u16> = (0..self.session.scenario.params.nodes).collect();
        let config = self.session.assembled(&all);
        self.search.with(|board| match config {
            Some(config) => board.found = Some(config),
            None => board.asked = true,
        });
    }

    fn step(&mut self, begun: u64) -> Result<bool, Failure> {
        self.answer_search();
        let moved = self.session.world.step();
        for (process, action) in std::mem::take(&mut self.session.world.outputs) {
            if process == self.client {
                self.hear(action)?;
            }
        }
        if let Some(fault) = self.session.world.faults.first() {
            return Err(Failure(fault.clone()));
        }
        let waits = self.flights.iter().flatten().count();
        if !moved && waits > 0 || self.session.world.steps - begun > MAX_STEPS {
            return Err(Failure(format!("hangs, with {waits} requests unanswered")));
        }
        Ok(moved)
    }

    fn hear(&mut self, action: Action) -> Result<(), Failure> {
        match action {
            Action::Complete { id, result } => {
                let flight = self.flights[id.0 as usize].take();
                let flight = flight.ok_or_else(|| Failure("completed twice".to_owned()))?;
                self.completed(flight, result)
            }
            Action::Reply { result, .. } => {
                self.stopped = true;
                result.map_err(|why| Failure(format!("stop refused: {why}")))
            }
            Action::Notify(event) => {
                self.session.world.note(&[81], || format!("EVENT {event:?}"));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn completed(
        &mut self,
        flight: Flight,
        result: Result<(), RequestError>,
    ) -> Result<(), Failure> {
        match flight {
            Flight::Write { first, values, fua } => {
                result.map_err(|error| Failure(format!("a write failed: {error}")))?;
                for (block, value) in self.blocks[first as usize..].iter_mut().zip(values) {
                    block.busy = false;
                    (block.unflushed, block.unsure) = (!fua, !fua && self.dying);
                    if fua {
                        block.values.clear();
                    }
                    block.values.push(value);
                }
            }
            Flight::Flush { .. } if result.is_ok() && self.owed => {
                return Err(Failure("a flush says nothing of what nodes forgot".to_owned()));
            }
            // What was answered before may be gone; it is said once.
            Flight::Flush { before } if result.is_ok() || self.owed || self.in_doubt => {
                let told = std::mem::take(&mut self.in_doubt) || std::mem::take(&mut self.owed);
                for block in &mut self.blocks {
                    block.flushed(before, result.is_ok(), told);
                }
            }
            Flight::Flush { .. } => {
                return Err(Failure("a flush failed for nothing".to_owned()));
            }
        }
        Ok(())
    }

    /// All nodes are there and have all that they should, and nothing waits.
    fn be_whole(&mut self) -> Result<(), Failure> {
        let begun = self.session.world.steps;
        loop {
            let status = self.session.world.processes[self.client].client().status();
            let idle = status.sync.action == SyncAction::Idle && status.waiting.is_none();
            let idle = idle && status.superblock.resync_offset == MAX_SECTOR;
            let answered = self.flights.iter().all(Option::is_none);
            if answered && idle && status.degraded == 0 && status.view.is_some() {
                return Ok(());
            }
            if !self.step(begun)? {
                return Err(Failure(format!("comes to rest as {status:?}")));
            }
        }
    }

    fn finish(&mut self) -> Result<(), Failure> {
        self.be_whole()?;
        let begun = self.session.world.steps;
        let event = Event::Command { id: CommandId(1), command: Command::Stop };
        self.session.world.handle(self.client, event);
        while !self.stopped {
            self.step(begun)?;
        }
        Ok(())
    }

    /// Every block holds what it may, and the sums fit.
    fn judge(&self) -> Result<(), Failure> {
        let disks = self.session.disks();
        let layout = &self.session.layout;
        if let Some(misfit) = content::misfit(layout, &disks) {
            return Err(Failure(misfit));
        }
        let stripes = 0..self.session.scenario.params.stripes;
        let data: Vec<u8> =
            stripes.flat_map(|stripe| content::data(layout, &disks, stripe, &[])).collect();
        for (number, block) in data.chunks_exact(4096).enumerate() {
            let may = &self.blocks[number];
            // Of what was not flushed a node may have stored a part.
            for sector in block.chunks_exact(512) {
                let found = sequenced_blocks::write_of(sector);
                let known =
                    if may.unsure { &may.values } else { &may.values[may.values.len() - 1..] };
                if !found.is_some_and(|found| known.contains(&found)) {
                    return Err(Failure(format!(
                        "block {number} holds {found:?}, may hold {known:?}"
                    )));
                }
            }
        }
        Ok(())
    }
}
