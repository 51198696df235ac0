//! Power is lost everywhere while whole stripes are written, and the array goes on without some of
//! its members; everything is written anew, and the members come back, or others in their place.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use braid_array::action::CommandId;
use braid_array::array::Scratch;
use braid_array::events::{ArrayEvent, SyncAction, SyncEnd};
use braid_array::format::superblock::MAX_SECTOR;
use braid_array::{Action, Role};
use braid_cluster::client::{Client, ClientConfig};
use braid_cluster::failover::FailoverClient;

use self::unknown::Unknown;
use super::away::{FAIL_TIMEOUT_MS, Search};
use super::nodes::Cluster;
use super::process::Process;
use super::recovery_target::RecoveryTarget;
use super::suspects::Map;
use crate::judge::{self, Flight, Judge, Read};
use crate::oracle::{LogicalTime, Range};
use crate::report::Failure;
use crate::rng::Rng;
use crate::workload::Kind;

pub(super) mod array;
mod finish;
mod life;
mod loss;
mod unknown;

/// Requests in flight.
const DEPTH: usize = 8;
const BLOCK_SECTORS: u64 = 8;
/// The largest request, in blocks.
const MAX_BLOCKS: u64 = 64;
/// A request's buffer.
const SLOT_BYTES: u64 = MAX_BLOCKS * BLOCK_SECTORS * 512;
const STOP: CommandId = CommandId(1);

/// A run in which power is lost under writes, again and again.
///
/// [`run`] makes it. In each round there is a [loss](Self::lose): of everything, the client
/// included, or of more nodes than the array can do without, while the client lives. Some nodes
/// come back, and the array continues without the others ([`live`](Self::live)): blocks are written
/// anew and flushed, nodes come back or are replaced, and more are lost meanwhile. In the end
/// ([`finish`](Self::finish)) all nodes are present, and the array stops and starts again.
///
/// A block reads as data written to it, and never as older data than the last flush. I/O errors are
/// allowed only by [`Unknown`]: while the block lies on a member that is away, or came back without
/// it, and no write to the block was flushed since power was lost.
struct Torn<'a> {
    cluster: &'a mut Cluster,
    client: usize,
    search: Search,
    /// Allowed contents of the blocks.
    judge: Judge,
    /// Blocks that may be I/O errors.
    unknown: Unknown,
    /// Number of the array's blocks.
    blocks: u64,
    /// Blocks that might be errors when the request was submitted, by request.
    doubtful: BTreeSet<(LogicalTime, u64)>,
    /// Writes that might fail when they were submitted.
    risky: BTreeSet<LogicalTime>,
    /// Writes submitted while a resync was due: if a member is lost meanwhile, its lost blocks are
    /// not known yet.
    early: BTreeSet<LogicalTime>,
    /// Only whole stripes are written.
    whole: bool,
    /// Set if all writes since were of whole stripes, with all members present: no record tells
    /// what a member lacks.
    unrecorded: bool,
    /// Nodes that do not run.
    dead: BTreeSet<Role>,
    /// Set if the client is told of nodes only after all are present.
    waits_for_all: bool,
    /// Writes answered before this moment may be lost, and the next flush may fail.
    forgotten: Option<LogicalTime>,
    /// Set if members are in sync that no view lists as such yet.
    joining: bool,
    /// A node that is being added.
    new: Option<RecoveryTarget>,
    began_at: u64,
    stopped: bool,
}

/// Returns whether the seed is such a run. Drawn from a generator of its own, so that other seeds
/// are unchanged.
pub(super) fn is_due(seed: u64) -> bool {
    Rng::new(seed ^ 0x746f_000a).percent(15)
}

/// Runs rounds of power loss, and judges the content.
pub(super) fn run(cluster: &mut Cluster) -> Result<(), Failure> {
    let params = cluster.scenario.params;
    let losses = params.family.losses(params.nodes).map_err(|why| Failure(why.to_string()))?;
    let map = Map::new(&params, cluster.layout.data_blocks());
    let sectors = cluster.layout.sectors();
    let mut torn = Torn {
        client: usize::MAX,
        search: Search::default(),
        judge: Judge::new(sectors),
        unknown: Unknown::new(map, &cluster.layout, losses),
        blocks: sectors / BLOCK_SECTORS,
        doubtful: BTreeSet::new(),
        risky: BTreeSet::new(),
        early: BTreeSet::new(),
        whole: cluster.rng.percent(50),
        unrecorded: true,
        dead: BTreeSet::new(),
        waits_for_all: false,
        forgotten: None,
        joining: false,
        new: None,
        began_at: 0,
        stopped: false,
        cluster,
    };
    torn.begin()?;
    torn.write_all()?;
    for _ in 0..torn.cluster.rng.between(1, 3) {
        torn.lose()?;
        torn.live()?;
    }
    torn.finish()
}

impl Torn<'_> {
    /// Returns the roles of running nodes.
    fn there(&self) -> Vec<Role> {
        let roles = Role::all(self.cluster.scenario.params.nodes);
        roles.filter(|role| !self.dead.contains(role)).collect()
    }

    /// Returns the configuration of a client on the running nodes.
    fn config(&mut self) -> Result<ClientConfig, String> {
        let there = self.there();
        let dead: Vec<Role> = self.dead.iter().copied().collect();
        let Some(config) = self.cluster.assembled(&there) else {
            return Err(self.cluster.refusal(&there));
        };
        Ok(ClientConfig { absent: self.cluster.absent(&dead, false), ..config })
    }

    /// A client starts the array with the nodes that run, and serves.
    fn begin(&mut self) -> Result<(), Failure> {
        let dead = self.dead.clone();
        self.cluster.note(&[90], || format!("BEGIN without {dead:?}"));
        let refused = |why: String| Failure(format!("does not start without {dead:?}: {why}"));
        let config = self.config().map_err(&refused)?;
        let scratch =
            Scratch { offset: DEPTH as u64 * SLOT_BYTES, bytes: Client::scratch_bytes(&config) };
        self.search = Search::default();
        let finder = Box::new(self.search.clone());
        let client = FailoverClient::new(config, scratch, finder, FAIL_TIMEOUT_MS);
        let client = client.map_err(&refused)?;
        let process = Process::of_client("torn", Box::new(client), scratch, None);
        self.client = self.cluster.world.start(process);
        self.judge.client_begins(self.client, DEPTH, SLOT_BYTES);
        self.stopped = false;
        self.serves()?;
        // Whoever started it is told what stands against it until it has taken a request.
        self.request_all(Kind::Flush, vec![Range::default()])
    }

    /// Returns whether the client serves, in a view of the nodes' current incarnations.
    fn is_serving(&mut self) -> bool {
        let status = self.cluster.status_of(self.client);
        status.waiting.is_none() && status.view.is_some() && self.is_view_new()
    }

    /// Waits until the client serves.
    fn serves(&mut self) -> Result<(), Failure> {
        self.began_at = self.cluster.world.steps;
        while !self.is_serving() {
            if !self.step()? {
                let state = self.cluster.status_of(self.client).state;
                return Err(Failure(format!("does not serve: {state:?}")));
            }
        }
        self.judge.oracle.decided();
        let away = self.roles_out();
        self.cluster.note(&[91], || format!("SERVES without {away:?}"));
        self.unknown.starts(&away, self.unrecorded);
        Ok(())
    }

    /// Returns whether the newest view lists enough nodes in their current incarnations.
    fn is_view_new(&self) -> bool {
        let nodes = self.cluster.scenario.params.nodes;
        let away: Vec<Role> = Role::all(nodes).filter(|role| !self.is_in(*role)).collect();
        self.cluster.scenario.survives(&away)
    }

    /// Returns whether the node of this role, in its current incarnation, is in the newest view.
    fn is_in(&self, role: Role) -> bool {
        !self.dead.contains(&role) && self.was_in(role)
    }

    /// Returns whether the node of this role, in its last incarnation, is in the newest view.
    fn was_in(&self, role: Role) -> bool {
        let at = role.index();
        let last = NonZeroU64::new(self.cluster.incarnations[at]);
        self.cluster.newest_view().is_some_and(|view| view.members[at] == last)
    }

    fn roles_out(&self) -> Vec<Role> {
        let roles = Role::all(self.cluster.scenario.params.nodes);
        roles.filter(|role| !self.is_in(*role)).collect()
    }

    /// Submits this, if it is taken and nothing else is in flight to the same blocks.
    fn submit(&mut self, kind: Kind, range: Range) -> bool {
        if self.judge.touches(self.client, range) {
            return false;
        }
        let world = &mut self.cluster.world;
        let Some(draft) = world.ask(&mut self.judge, self.client, kind, range) else {
            return false;
        };
        let Range { sector, sectors } = range;
        let serial = draft.serial;
        world.note(&[92, draft.request.id.0, sector, sectors], || {
            format!("SUBMIT {kind:?} {sector}+{sectors} serial {serial}")
        });
        let moment = self.judge.submitted(self.client, draft, true);
        match kind {
            Kind::Read => {
                let doubtful = |block: &u64| self.unknown.may_fail(*block);
                let doubtful: Vec<u64> = blocks_of(range).filter(doubtful).collect();
                self.doubtful.extend(doubtful.into_iter().map(|block| (moment, block)));
            }
            Kind::Flush => {}
            _ => {
                self.unrecorded &= self.whole && self.unknown.away().next().is_none();
                self.unknown.begins(moment, range);
                let superblock = self.cluster.status_of(self.client).superblock;
                if superblock.resync_offset != MAX_SECTOR {
                    self.early.insert(moment);
                }
                if self.unknown.write_may_fail(moment, range) {
                    self.risky.insert(moment);
                }
            }
        }
        self.cluster.world.drain(self.client);
        true
    }

    fn step(&mut self) -> Result<bool, Failure> {
        self.answer_search()?;
        let moved = self.cluster.world.step();
        for (process, action) in std::mem::take(&mut self.cluster.world.outputs) {
            if process == self.client {
                self.hear(action)?;
            }
        }
        self.look_at_view();
        self.cluster.world.faultless()?;
        self.cluster.world.goes_on(moved, &self.judge, self.client, self.began_at)?;
        Ok(moved)
    }

    /// A step, where something is waited for that comes.
    fn await_step(&mut self) -> Result<(), Failure> {
        if self.step()? {
            return Ok(());
        }
        let status = self.cluster.status_of(self.client);
        Err(Failure(format!("nothing goes on: {:?}, held up: {:?}", status.state, status.held_up)))
    }

    /// Members that are in sync by the newest view have joined.
    fn look_at_view(&mut self) {
        if !self.joining {
            return;
        }
        for role in self.unknown.away().collect::<Vec<_>>() {
            if self.is_in(role) {
                self.unknown.joined(role);
            }
        }
        self.joining = self.unknown.away().next().is_some();
    }

    /// Tells the client how it starts again, once enough nodes are there.
    fn answer_search(&mut self) -> Result<(), Failure> {
        let held_back = self.waits_for_all && !self.dead.is_empty();
        if held_back || !self.search.is_on() {
            return Ok(());
        }
        match self.config() {
            Ok(config) => self.search.ends_with(config),
            Err(_) if !self.dead.is_empty() => {}
            Err(why) => return Err(Failure(format!("does not go on with all: {why}"))),
        }
        Ok(())
    }

    fn hear(&mut self, action: Action) -> Result<(), Failure> {
        match action {
            Action::Complete { id, result } => {
                let flight = self.judge.answered(self.client, id)?;
                let Range { sector, sectors } = flight.range;
                self.cluster.note(&[93, id.0, u64::from(result.is_ok())], || {
                    format!("COMPLETE {:?} {sector}+{sectors} {result:?}", flight.kind)
                });
                self.completed(&flight, result.is_ok())?;
                let bytes = self.cluster.world.processes[self.client].found(flight.request.buf);
                let stays = self.forgotten.is_none();
                let read = Read { bytes, stays, excused: &judge::nothing };
                self.judge.conclude(&flight, result, Some(read))
            }
            Action::Reply { id: STOP, result } => {
                self.stopped = true;
                result.map_err(|why| Failure(format!("stop refused: {why}")))
            }
            Action::Reply { result, .. } => {
                self.cluster.note(&[94, u64::from(result.is_ok())], || format!("{result:?}"));
                self.taken_in();
                Ok(())
            }
            Action::Notify(event) => {
                self.cluster.note(&[95], || format!("EVENT {event:?}"));
                self.notified(&event);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn notified(&mut self, event: &ArrayEvent) {
        match event {
            ArrayEvent::MemberActive(_) => {
                self.taken_in();
                self.joining = true;
            }
            ArrayEvent::SyncFinished {
                action: SyncAction::Resync, end: SyncEnd::Complete, ..
            } => self.unknown.resynced(),
            _ => {}
        }
    }

    fn completed(&mut self, flight: &Flight, ok: bool) -> Result<(), Failure> {
        let &Flight { kind, range, moment, .. } = flight;
        let Range { sector, sectors } = range;
        match kind {
            Kind::Read => {
                let doubtful = |&block: &u64| {
                    self.doubtful.contains(&(moment, block)) || self.unknown.may_fail(block)
                };
                if !ok && !blocks_of(range).any(|block| doubtful(&block)) {
                    let expected = self.judge.oracle.may_hold(sector);
                    let away: Vec<Role> = self.unknown.away().collect();
                    return Err(Failure(format!(
                        "a read of {sector}+{sectors} failed without {away:?}: it holds {expected}"
                    )));
                }
                self.doubtful.retain(|(other, _)| *other != moment);
            }
            Kind::Flush => self.flushed(moment, ok)?,
            _ => {
                let early = self.early.remove(&moment) && self.unknown.is_in_doubt(range);
                let risky = self.risky.remove(&moment) || early;
                if !ok && !risky && !self.unknown.write_may_fail(moment, range) {
                    return Err(Failure(format!("a write of {sector}+{sectors} failed")));
                }
                let now = self.judge.moment();
                self.unknown.ends(moment, now, ok, kind.fua());
            }
        }
        Ok(())
    }

    /// A flush may fail where nodes have lost their memories, and says so once.
    fn flushed(&mut self, moment: LogicalTime, ok: bool) -> Result<(), Failure> {
        if ok {
            self.forgotten = None;
            self.unknown.flushed(moment);
            return Ok(());
        }
        let Some(until) = self.forgotten.take() else {
            return Err(Failure("a flush failed for nothing".to_owned()));
        };
        self.unknown.forgotten();
        self.judge.oracle.lose_before(moment);
        // It is said to who asked before some of that was answered as well.
        self.forgotten = (moment < until).then_some(until);
        Ok(())
    }
}

fn blocks_of(range: Range) -> std::ops::Range<u64> {
    range.sector / BLOCK_SECTORS..(range.sector + range.sectors) / BLOCK_SECTORS
}
