//! Clients that follow one another on a small array, many of them, each for a short while.

use std::ops::Range;

use braid_array::action::CommandId;
use braid_array::events::ArrayEvent;
use braid_array::status::ArrayState;
use braid_array::{Action, Role};
use braid_cluster::client::ClientConfig;
use braid_cluster::ids::Epoch;
use braid_cluster::view::View;

use self::focus::Focus;
use super::nodes::Cluster;
use crate::judge::{self, Judge, Read};
use crate::oracle::Range as Sectors;
use crate::report::Failure;
use crate::rng::Rng;
use crate::workload::Kind;

pub(super) mod array;
mod between;
mod finish;
pub(super) mod focus;
mod life;
mod starts;

/// Requests of a client in flight.
const DEPTH: usize = 6;
const BLOCK_SECTORS: u64 = 8;
/// The largest request, in blocks.
const MAX_BLOCKS: u64 = 64;
/// A request's buffer.
const SLOT_BYTES: u64 = MAX_BLOCKS * BLOCK_SECTORS * 512;
const STOP: CommandId = CommandId(1);

/// A client.
#[derive(Debug)]
struct Runner {
    process: usize,
    /// The roles that it was started with.
    roles: Vec<Role>,
    serves: bool,
    /// Set if all leftovers were resolved when it began, and nothing has failed since.
    sure: bool,
    /// Set if the metadata it was started from have changed.
    outdated: bool,
    stopped: bool,
}

/// A run of many short-lived clients. Clients die, are cut off or taken over from at any moment,
/// most often when a node is lost. Each reaches other nodes than its predecessor. Nodes lose their
/// memories and come back at once, and at times all lose power. A serving client reads the answered
/// writes, or after a loss of power the flushed ones. In the end, with all nodes present, the
/// content and the parities fit.
///
/// [`run`] makes it. A client begins ([`begin`](Self::begin)), is asked for things and heard
/// ([`life`](Self::life)), and ends; [`pass_on`](Self::pass_on) selects the roles with which the
/// next client begins. After the last one [`finish`](Self::finish) reads all. The flags record
/// possible losses, from which the judge's exceptions follow.
struct Relay<'a> {
    cluster: &'a mut Cluster,
    /// Where most of the clients die.
    focus: Focus,
    /// Allowed contents of the blocks.
    judge: Judge,
    /// Number of the array's blocks.
    blocks: u64,
    client: Option<Runner>,
    /// The previous client, which is still running.
    fenced: Option<Runner>,
    /// The highest epoch granted before the client came.
    granted: Epoch,
    /// Roles that were lost since.
    gone: Vec<Role>,
    /// Set if enough members of the view have kept running since.
    kept: bool,
    /// Set if some nodes are absent, or some members were out of sync.
    missing: bool,
    /// Set if the array continued without some members after a loss of power: unrecorded whole
    /// stripes on them are lost.
    short: bool,
    /// Set if clients found a loss, and ended before they served: the next client finds the state
    /// as they recorded it. True if members were missing.
    untold: Option<bool>,
    /// Set if the client has served, and thus recorded the losses that it found.
    told: bool,
    /// The last client has served.
    served: bool,
}

/// Returns whether the seed is a relay. Drawn from a generator of its own, so that other seeds are
/// unchanged.
pub(super) fn is_due(seed: u64) -> bool {
    Rng::new(seed ^ 0x0072_656c_6179).percent(33)
}

/// Runs clients one after the other, and judges the content in the end.
pub(super) fn run(cluster: &mut Cluster, focus: Focus) -> Result<(), Failure> {
    let sectors = cluster.layout.sectors();
    let mut relay = Relay {
        judge: Judge::new(sectors).of_whole_blocks(),
        blocks: sectors / BLOCK_SECTORS,
        client: None,
        fenced: None,
        granted: Epoch::BEFORE_ANY,
        gone: Vec::new(),
        kept: true,
        missing: false,
        short: false,
        untold: None,
        told: true,
        served: false,
        focus,
        cluster,
    };
    let all: Vec<Role> = Role::all(relay.cluster.scenario.params.nodes).collect();
    let mut roles = all.clone();
    for _ in 0..relay.cluster.rng.between(4, 16) {
        let just_then = relay.life(&roles)?;
        roles = relay.pass_on(just_then, &all);
    }
    relay.finish(&all)
}

impl Relay<'_> {
    /// Starts a client on the volumes of these roles.
    fn begin(&mut self, roles: &[Role]) {
        self.granted = self.cluster.votes().map(|vote| vote.granted).max().unwrap_or_default();
        if !self.kept && !self.told {
            self.untold = Some(self.missing || self.untold == Some(true));
        }
        self.told = false;
        self.kept = true;
        self.missing = false;
        self.cluster.world.begin();
        let config = self.cluster.assembled(roles);
        let process = config.and_then(|config| self.start(config, roles));
        let begun = process.is_some();
        self.cluster.note(&[70], || format!("CLIENT with {roles:?}: {begun}"));
        if let Some(process) = process {
            self.judge.client_begins(process, DEPTH, SLOT_BYTES);
        }
        self.client = process.map(|process| Runner {
            process,
            roles: roles.to_vec(),
            serves: false,
            sure: false,
            outdated: false,
            stopped: false,
        });
    }

    fn start(&mut self, config: ClientConfig, roles: &[Role]) -> Option<usize> {
        let cluster = &mut *self.cluster;
        let mut others = Vec::new();
        if cluster.rng.percent(50) {
            others.extend(
                Role::all(cluster.scenario.params.nodes).filter(|role| !roles.contains(role)),
            );
        }
        let config = ClientConfig { absent: cluster.absent(&others, false), ..config };
        let limit = cluster.limit();
        // Those who came back to it may not be enough.
        cluster.world.start_client("runner", config, DEPTH as u64 * SLOT_BYTES, limit).ok()
    }

    /// Updates the flags until the client serves: whether it finds enough of the members that held
    /// the array before.
    fn look_at_those_before(&mut self) {
        let Some(client) = self.client.as_ref().filter(|client| !client.serves) else { return };
        let views = self.cluster.votes().filter_map(|vote| vote.view);
        let before = views.filter(|view| (Epoch(1)..=self.granted).contains(&view.epoch));
        let newest = before.max_by_key(View::order);
        let away = |role: &Role| !client.roles.contains(role) || self.gone.contains(role);
        let nodes = self.cluster.scenario.params.nodes;
        let away: Vec<Role> = Role::all(nodes).filter(away).collect();
        let lacks = |view: &View| Role::all(nodes).any(|role| !view.has(role));
        self.missing |= !away.is_empty() || newest.as_ref().is_some_and(lacks);
        let kept = newest.is_some_and(|v| !v.torn && self.cluster.have_kept_enough(&v, &away));
        self.kept &= kept;
        self.short |= !self.kept && self.missing && self.cluster.scenario.parts_only;
    }

    /// Submits a request to the client, unless another one is in flight there. Returns whether the
    /// client takes it.
    fn request(&mut self, kind: Kind, blocks: Range<u64>) -> bool {
        self.look_at_those_before();
        if self.is_refused() {
            return false;
        }
        let Some(process) = self.client.as_ref().map(|client| client.process) else { return false };
        let range = Sectors {
            sector: blocks.start * BLOCK_SECTORS,
            sectors: (blocks.end - blocks.start) * BLOCK_SECTORS,
        };
        let waits = self.cluster.scenario.depth == 1 && self.judge.in_flight(process) > 0;
        if waits || self.judge.touches(process, range) {
            return false;
        }
        let world = &mut self.cluster.world;
        let draft = world.ask(&mut self.judge, process, kind, range);
        let Some(draft) = draft else { return false };
        let slot = draft.request.id.0;
        let Sectors { sector, sectors } = range;
        world.note(&[75, slot, sector, sectors], || {
            format!("SUBMIT {slot} {kind:?} {blocks:?} serial {}", draft.serial)
        });
        self.it_serves();
        self.judge.submitted(process, draft, true);
        self.cluster.world.drain(process);
        true
    }

    /// A client dies.
    fn kill(&mut self, process: usize) {
        self.cluster.world.kill(process);
        self.judge.client_ends(process);
    }

    /// Returns whether the client was refused the array.
    fn is_refused(&mut self) -> bool {
        let Some(client) = self.client.as_ref().filter(|client| !client.serves) else {
            return false;
        };
        let status = self.cluster.status_of(client.process);
        status.state == ArrayState::Failed
    }

    /// Records that the client serves: its losses are now decided, and known to the judge.
    fn it_serves(&mut self) {
        let Some(client) = self.client.as_mut().filter(|client| !client.serves) else { return };
        let untold = self.untold.take();
        let kept = self.kept && untold.is_none();
        let missing = self.missing || untold == Some(true);
        self.told = true;
        client.serves = true;
        client.sure = kept;
        self.served = true;
        self.cluster.note(&[76], || format!("SERVES kept {kept} missing {missing}"));
        self.judge.oracle.decided();
        if kept {
            return;
        }
        // What no journal has is lost where members are missing.
        let unrecorded = missing && self.cluster.scenario.parts_only;
        let lost = if unrecorded { self.judge.oracle.not_durable() } else { Vec::new() };
        self.judge.oracle.power_cut();
        lost.into_iter().for_each(|sector| self.judge.oracle.exempt(sector));
    }

    fn step(&mut self) -> Result<bool, Failure> {
        self.look_at_those_before();
        let moved = self.cluster.world.step();
        for (process, action) in std::mem::take(&mut self.cluster.world.outputs) {
            self.hear(process, action)?;
        }
        self.cluster.world.faultless()?;
        let Some(client) = &self.client else { return Ok(moved) };
        self.cluster.world.goes_on(moved, &self.judge, client.process)?;
        if client.outdated {
            let process = client.process;
            let roles = client.roles.clone();
            self.kill(process);
            self.begin(&roles);
        }
        Ok(moved)
    }

    /// Steps until this is so.
    fn until(&mut self, what: &str, mut is: impl FnMut(&mut Self) -> bool) -> Result<(), Failure> {
        while !is(self) {
            if !self.step()? {
                return Err(Failure(what.to_owned()));
            }
        }
        Ok(())
    }

    fn hear(&mut self, process: usize, action: Action) -> Result<(), Failure> {
        let serves = self.client.as_ref().is_some_and(|client| client.serves);
        let is_own = self.client.as_ref().is_some_and(|client| client.process == process);
        // One that is none any more may answer what it wrote before the next one served.
        let runner = if is_own { &mut self.client } else { &mut self.fenced };
        let heard = |runner: &&mut Runner| runner.process == process && (is_own || !serves);
        let Some(runner) = runner.as_mut().filter(heard) else { return Ok(()) };
        match action {
            Action::Complete { id, result } => {
                let flight = self.judge.answered(process, id)?;
                runner.sure &= result.is_ok();
                let stays = runner.sure;
                // A flush of nothing tells nobody anything.
                let due = flight.kind == Kind::Flush && !self.judge.oracle.answers_are_durable();
                let lasts = result.is_ok() && (flight.kind.fua() || due);
                self.cluster.world.signs.flushed += u64::from(lasts);
                let world = &mut self.cluster.world;
                world.note(&[77, process as u64, id.0, u64::from(result.is_ok())], || {
                    format!("COMPLETE {process} {} {:?} {result:?}", id.0, flight.kind)
                });
                let bytes = world.processes[process].found(flight.request.buf);
                let read = Read { bytes, stays, excused: &judge::nothing };
                self.judge.conclude(&flight, result, is_own.then_some(read))
            }
            Action::Notify(ArrayEvent::MembersChanged) => {
                runner.outdated = true;
                Ok(())
            }
            Action::Reply { id: STOP, result } => {
                runner.stopped = true;
                result.map_err(|why| Failure(format!("stop refused: {why}")))
            }
            Action::Notify(event) => {
                let joined = matches!(event, ArrayEvent::MemberActive { .. });
                self.cluster.world.signs.joined += u64::from(joined);
                self.cluster.note(&[78], || format!("EVENT {process} {event:?}"));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
