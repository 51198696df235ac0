//! An array with more nodes absent than it can do without. The nodes come back while its programs
//! wait.

use std::sync::{Arc, Mutex, PoisonError};

use braid_array::action::{Command, CommandId};
use braid_array::array::Scratch;
use braid_array::events::SyncAction;
use braid_array::format::superblock::MAX_SECTOR;
use braid_array::{Action, Refusal, RequestError, Role};
use braid_cluster::VolumeAddress;
use braid_cluster::client::{Client, ClientConfig};
use braid_cluster::failover::{FailoverClient, Finder};

use super::content::{self, VOLUME};
use super::nodes::Cluster;
use super::scenario::ClusterScenario;
use crate::judge::{Flight, Judge};
use crate::oracle::{LogicalTime, Range};
use crate::report::Failure;
use crate::rng::Rng;
use crate::workload::Kind;
use crate::world::process::Process;

pub(super) mod full;
pub(super) mod larger;
mod past;

/// Requests in flight.
const DEPTH: usize = 8;
const BLOCK_SECTORS: u64 = 8;
/// The largest of them, in blocks.
const MAX_BLOCKS: u64 = 32;
/// A request's buffer.
const SLOT_BYTES: u64 = MAX_BLOCKS * BLOCK_SECTORS * 512;
/// Longer than anything takes.
const FAIL_TIMEOUT_MS: u64 = 3_600_000;

/// Messages between the world and the client's search.
#[derive(Debug, Default)]
struct Board {
    asked: bool,
    found: Option<ClientConfig>,
}

/// Search of a client for its nodes, with the answer of the world.
#[derive(Clone, Debug, Default)]
pub(super) struct Search(Arc<Mutex<Board>>);

impl Search {
    fn with<T>(&self, look: impl FnOnce(&mut Board) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns whether the client is searching for its nodes.
    pub(super) fn is_on(&self) -> bool {
        self.with(|board| board.asked)
    }

    /// Answers the search with the configuration for a start.
    pub(super) fn ends_with(&self, config: ClientConfig) {
        self.with(|board| *board = Board { asked: false, found: Some(config) });
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

/// Nodes lost their memories while something was not flushed.
#[derive(Clone, Copy, Debug)]
struct Forgotten {
    /// Writes answered before this moment may be lost.
    until: LogicalTime,
    /// Set if the next flush must fail. Otherwise the flush fails only if a whole stripe was lost:
    /// the journals do not record whole stripes.
    surely: bool,
}

/// A run with one client that outlives its nodes ([`FailoverClient`]): nodes go away, and come back
/// while requests wait. Writes do not fail, and answered writes are kept. If nodes lost their
/// memories and forgot writes, the next flush reports the loss: it must fail, once. [`run`] makes
/// it, has nodes lost and regained, stops the client, and judges every block.
struct Away<'a> {
    cluster: &'a mut Cluster,
    client: usize,
    search: Search,
    /// Allowed contents of the blocks.
    judge: Judge,
    /// Number of the array's blocks.
    blocks: u64,
    /// Set while nodes are kept away.
    held_back: bool,
    /// Set if nodes have lost their memories, and the client has not noticed.
    dying: bool,
    /// Losses that the next flush reports.
    forgotten: Option<Forgotten>,
    stopped: bool,
    /// Answer to the command that gives the array another size.
    grown: Option<Result<(), Refusal>>,
}

/// Returns whether the array always starts when all of its nodes are present.
pub(super) fn fits(scenario: &ClusterScenario) -> bool {
    let known = scenario.params.chunk_bytes.is_power_of_two();
    // Witnesses stay, and may note who died first of all nodes that die.
    known && !scenario.dirty && !scenario.bad_sectors && scenario.witnesses == 0
}

/// Runs rounds in which nodes go away and come back, then judges the content.
pub(super) fn run(cluster: &mut Cluster) -> Result<(), Failure> {
    let sectors = cluster.layout.sectors();
    let mut away = Away::of(cluster, sectors)?;
    let redundant = away.cluster.scenario.survives(&[Role(0)]);
    if redundant && away.cluster.rng.percent(40) {
        past::run(&mut away)?;
    } else {
        away.lose_and_regain()?;
    }
    away.finish()?;
    away.judge_volumes()
}

fn start(cluster: &mut Cluster, search: &Search) -> Result<usize, Failure> {
    let all: Vec<Role> = Role::all(cluster.scenario.params.nodes).collect();
    let none = || Failure("there is no array".to_owned());
    let config = cluster.assembled(&all).ok_or_else(none)?;
    start_lasting(cluster, config, search, DEPTH as u64 * SLOT_BYTES).map_err(Failure)
}

/// Starts a client that outlives its nodes, with so many bytes of buffers.
pub(super) fn start_lasting(
    cluster: &mut Cluster,
    config: ClientConfig,
    search: &Search,
    buffers_bytes: u64,
) -> Result<usize, String> {
    let scratch = Scratch { offset: buffers_bytes, bytes: Client::scratch_bytes(&config) };
    let finder = Box::new(search.clone());
    let client = FailoverClient::new(config, scratch, finder, FAIL_TIMEOUT_MS)?;
    let process = Process::of_client("lasting", Box::new(client), scratch, cluster.limit());
    Ok(cluster.world.start(process))
}

impl<'a> Away<'a> {
    /// Starts the client. `sectors`: the greatest size of the array.
    fn of(cluster: &'a mut Cluster, sectors: u64) -> Result<Self, Failure> {
        let search = Search::default();
        let mut away = Away {
            client: start(cluster, &search)?,
            judge: Judge::new(sectors),
            blocks: cluster.layout.sectors() / BLOCK_SECTORS,
            cluster,
            search,
            held_back: false,
            dying: false,
            forgotten: None,
            stopped: false,
            grown: None,
        };
        away.judge.client_begins(away.client, DEPTH, SLOT_BYTES);
        Ok(away)
    }

    /// Starts another client after the last one has ended.
    fn begin_another(&mut self) -> Result<(), Failure> {
        self.client = start(self.cluster, &self.search)?;
        self.judge.client_begins(self.client, DEPTH, SLOT_BYTES);
        self.judge.oracle.decided();
        Ok(())
    }
}

impl Away<'_> {
    fn lose_and_regain(&mut self) -> Result<(), Failure> {
        for _ in 0..3 {
            self.be_whole()?;
            let before = self.cluster.rng.between(1, 30);
            self.work(before)?;
            // Drawn aside: who is lost before is who would be without.
            let mut aside = self.cluster.rng.aside(0x0061_6761_696e);
            let died = self.lose(true)?;
            // Without whole journals nobody vouches for sums where nodes forgot and others are
            // missing.
            let ClusterScenario { journal_bytes, parts_only, params, .. } = &self.cluster.scenario;
            let kept = *journal_bytes > 0 && !parts_only || !params.family.has_parities();
            while (kept || !died) && aside.percent(40) {
                self.lose_while_it_starts(&mut aside, kept)?;
            }
        }
        self.work(30)
    }

    /// Writes and flushes so many times.
    fn work(&mut self, mut requests: u64) -> Result<(), Failure> {
        self.cluster.world.begin();
        while requests > 0 {
            if self.cluster.rng.percent(30) && self.submit() {
                requests -= 1;
            }
            self.step()?;
        }
        Ok(())
    }

    fn submit(&mut self) -> bool {
        if self.judge.free_slot(self.client).is_none() {
            return false;
        }
        let rng = &mut self.cluster.rng;
        let first = rng.below(self.blocks);
        let count = rng.between(1, (self.blocks - first).min(MAX_BLOCKS));
        let mut range = Range { sector: first * BLOCK_SECTORS, sectors: count * BLOCK_SECTORS };
        let idle = self.judge.in_flight(self.client) == 0;
        let kind = if idle && rng.percent(30) {
            range = Range::default();
            Kind::Flush
        } else if self.judge.touches(self.client, range) {
            return false;
        } else {
            Kind::Write { fua: rng.percent(20) }
        };
        let world = &mut self.cluster.world;
        let draft = world.ask(&mut self.judge, self.client, kind, range);
        let Some(draft) = draft else { return false };
        self.judge.submitted(self.client, draft, false);
        world.drain(self.client);
        true
    }

    /// Loses more nodes than the array can do without: nodes die, or their connections break.
    /// Returns whether they died.
    fn lose(&mut self, may_die: bool) -> Result<bool, Failure> {
        // With all of them at once none is lost without which it has gone on.
        let die = self.cluster.rng.percent(40) && may_die;
        let mut roles = self.cluster.too_many(!die);
        if !die {
            // A client that starts is not connected to all yet.
            roles.retain(|&role| !self.connections(role).is_empty());
        }
        if self.cluster.scenario.survives(&roles) {
            return Ok(false);
        }
        self.held_back = true;
        // Journals of parts of stripes do not keep what whole stripes were given.
        let ClusterScenario { journal_bytes, parts_only, .. } = self.cluster.scenario;
        self.dying = die && (journal_bytes == 0 || parts_only);
        for &role in &roles {
            if die {
                self.cluster.kill(role);
                continue;
            }
            self.cluster.world.disconnect(self.cluster.node(role), self.client);
        }
        self.cluster.world.begin();
        while !self.search.with(|board| board.asked) {
            self.sometimes_submit(10);
            self.step()?;
        }
        if std::mem::take(&mut self.dying) && !self.judge.oracle.answers_are_durable() {
            let until = self.judge.moment();
            self.forgotten = Some(Forgotten { until, surely: !parts_only });
        }
        for _ in 0..self.cluster.rng.below(200) {
            self.sometimes_submit(50);
            self.step()?;
        }
        if die {
            for &role in &roles {
                self.cluster.reboot(role);
            }
        }
        self.held_back = false;
        Ok(die)
    }

    /// The nodes are back, and more go away again while the client takes the array over.
    fn lose_while_it_starts(&mut self, rng: &mut Rng, may_die: bool) -> Result<(), Failure> {
        self.cluster.world.begin();
        while self.search.with(|board| board.asked || board.found.is_some()) {
            self.step()?;
        }
        let most = rng.pick(&[1, 10, 60, 200, 600]);
        for _ in 0..rng.below(most) {
            self.step()?;
            if self.cluster.status_of(self.client).waiting.is_none() {
                // Without sums that fit some writes might fail now.
                return Ok(());
            }
        }
        self.lose(may_die)?;
        Ok(())
    }

    fn connections(&self, role: Role) -> Vec<usize> {
        self.cluster.world.network.between(self.cluster.node(role), self.client)
    }

    fn sometimes_submit(&mut self, percent: u64) {
        if self.cluster.rng.percent(percent) {
            self.submit();
        }
    }

    /// Tells the client how it starts again, once all nodes are there.
    fn answer_search(&mut self) {
        if self.held_back || !self.search.with(|board| std::mem::take(&mut board.asked)) {
            return;
        }
        let all = Role::all(self.cluster.scenario.params.nodes);
        let (here, gone): (Vec<Role>, Vec<Role>) =
            all.partition(|&role| self.cluster.is_alive(role));
        let absent = gone.into_iter().map(|role| (self.cluster.address(role), VOLUME.to_owned()));
        let absent = absent.collect();
        let config = self.cluster.assembled(&here);
        let config = config.map(|config| ClientConfig { absent, ..config });
        self.search.with(|board| match config {
            Some(config) => board.found = Some(config),
            None => board.asked = true,
        });
    }

    fn step(&mut self) -> Result<bool, Failure> {
        self.answer_search();
        let moved = self.cluster.world.step();
        for (process, action) in std::mem::take(&mut self.cluster.world.outputs) {
            if process == self.client {
                self.hear(action)?;
            }
        }
        self.cluster.world.goes_on(moved, &self.judge, self.client)?;
        Ok(moved)
    }

    fn hear(&mut self, action: Action) -> Result<(), Failure> {
        match action {
            Action::Complete { id, result } => {
                let flight = self.judge.answered(self.client, id)?;
                self.completed(flight, result)
            }
            Action::Reply { id: larger::GROW, result } => {
                self.cluster.note(&[82], || format!("GROWN {result:?}"));
                self.grown = Some(result);
                Ok(())
            }
            Action::Reply { result, .. } => {
                self.stopped = true;
                result.map_err(|why| Failure(format!("stop refused: {why}")))
            }
            Action::Notify(event) => {
                self.cluster.note(&[81], || format!("EVENT {event:?}"));
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
        if flight.kind != Kind::Flush {
            result.map_err(|error| Failure(format!("a write failed: {error}")))?;
            return self.judge.conclude(&flight, result, None);
        }
        match (self.forgotten.take(), result) {
            (Some(Forgotten { surely: true, .. }), Ok(())) => {
                return Err(Failure("a flush says nothing of what nodes forgot".to_owned()));
            }
            // What was answered before may be gone; it is said once, and to who asked before some
            // of that was answered as well.
            (Some(forgotten), Err(_)) => {
                self.judge.oracle.lose_before(flight.moment);
                if flight.moment < forgotten.until {
                    self.forgotten = Some(Forgotten { surely: false, ..forgotten });
                }
            }
            (None, Err(_)) => return Err(Failure("a flush failed for nothing".to_owned())),
            (_, Ok(())) => {}
        }
        self.judge.conclude(&flight, result, None)
    }

    /// All nodes are there and have all that they should, and nothing waits.
    fn be_whole(&mut self) -> Result<(), Failure> {
        self.cluster.world.begin();
        while !self.is_whole() {
            if !self.step()? {
                let status = self.cluster.status_of(self.client);
                return Err(Failure(format!("comes to rest as {status:?}")));
            }
        }
        Ok(())
    }

    fn is_whole(&mut self) -> bool {
        let status = self.cluster.status_of(self.client);
        let idle = status.sync.action == SyncAction::Idle && status.waiting.is_none();
        let idle = idle && status.superblock.resync_offset == MAX_SECTOR;
        let answered = self.judge.in_flight(self.client) == 0;
        answered && idle && status.degraded == 0 && status.view.is_some()
    }

    fn finish(&mut self) -> Result<(), Failure> {
        self.be_whole()?;
        self.cluster.world.begin();
        self.cluster.world.command(self.client, CommandId(1), Command::Stop);
        while !self.stopped {
            self.step()?;
        }
        Ok(())
    }

    /// Checks that every block has an allowed content, and that the parities fit.
    fn judge_volumes(&mut self) -> Result<(), Failure> {
        if let Some(Forgotten { until, .. }) = self.forgotten {
            self.judge.oracle.lose_before(until);
        }
        content::judge(&self.cluster.layout, &self.cluster.disks(), &[&[]], &mut self.judge)
    }
}
