//! A run of clients and nodes, [`Session`]: requests in flight and their judgement.

use braid_array::action::{Command, CommandId, Event};
use braid_array::events::{ArrayEvent, SyncAction, SyncEnd};
use braid_array::{Action, RequestError, RequestId};
use braid_cluster::pipeline::Params;

use super::content::{self, Layout};
use super::fenced_client::FencedClient;
use super::guest::{self, Guest};
use super::kill_point::Signs;
use super::newcomer::{ADD, Newcomer};
use super::nodes::Cluster;
use super::promises::{Happened, Promises};
use super::replacement::REPLACED;
use super::scenario::Scenario;
use super::spare::SPARE;
use super::suspects::{Map, Suspects};
use crate::disk::Disk;
use crate::judge::{Draft, Flight, Judge, Read};
use crate::oracle::Range;
use crate::report::Failure;
use crate::rng::Rng;
use crate::trace::Trace;
use crate::workload::{Kind, Workload};

/// The array's id.
pub(super) const ARRAY: [u8; 16] = [7; 16];

/// The name of every node's volume.
pub const VOLUME: &str = "data";

/// More events than any life needs: beyond, the array is said to hang.
const MAX_STEPS: u64 = 400_000;

const STOP: CommandId = CommandId(1);
const SCRUB: CommandId = CommandId(2);

/// How far the client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It has taken no request yet.
    Starting,
    /// What it was made from was changed by somebody else: it has given up.
    Outdated,
    /// It has taken a request.
    Serving,
    /// It has answered the command to stop.
    Stopped,
}

/// All that a seed needs: the scenario, the world with the processes of nodes, witnesses and
/// clients, and what must be there by what was answered so far (`oracle`, `suspects`). At any time
/// at most one client is *the* client; clients that were taken over are kept as fenced. Nodes and
/// witnesses are named by role or number here, and by the number of their process in the world.
///
/// Order of calls: [`new`](Self::new) creates the volumes and starts nodes and witnesses. For each
/// life `start_client`; then [`submit`](Self::submit) while there is room, and [`step`](Self::step)
/// until nothing is due, which judges each answer, and fails where an answer is wrong, a machine
/// breaks a rule, or nothing moves though a request is in flight. A life ends by
/// [`ask_to_stop`](Self::ask_to_stop), [`crash`](Self::crash), a takeover
/// ([`leave_running`](Self::leave_running)) or a power cut, after which
/// [`take_disks`](Self::take_disks) and [`start_nodes`](Self::start_nodes) bring the nodes back.
/// `run` has the lives of a seed one after the other.
///
/// The flags say what has happened so far, and with that what is excused: a failed request, a
/// sector that cannot be told.
pub struct Session {
    /// The nodes.
    pub cluster: Cluster,
    /// What may be read, and the requests in flight.
    pub judge: Judge,
    /// Where parities may not fit.
    pub suspects: Suspects,
    /// What the protocol promises.
    pub promises: Promises,
    /// A node that the client is to take in.
    pub newcomer: Option<Newcomer>,
    /// A node that is a spare, or is to be one.
    pub spare: Option<Newcomer>,
    /// Processes of nodes whose members were replaced by the client that runs.
    pub(super) departed: Vec<usize>,
    /// Roles of nodes that are to be lost in this life.
    pub planned: Vec<u16>,
    /// Nobody answers for it that nodes that are missing are off.
    pub(super) unforced: bool,
    /// The process of the client.
    pub client: usize,
    /// How far it is.
    pub(super) phase: Phase,
    /// Without which nodes it was started, and whether somebody answers for those.
    pub(super) begun: (Vec<u16>, bool),
    /// Another array's client on the same nodes.
    pub guest: Option<Guest>,
    /// What was told so far.
    pub(super) signs: Signs,
    /// What checks and repairs have told.
    pub scrubs: Vec<ArrayEvent>,
    /// Clients whose array was taken over, and which are there still.
    pub(super) fenced: Vec<FencedClient>,
    pub(super) waiting: Option<(Kind, Range)>,
    pub(super) began_at_step: u64,
}

impl Session {
    /// Nodes with fresh volumes, and no client yet.
    #[must_use]
    pub fn new(scenario: Scenario, rng: Rng, trace: Trace) -> Self {
        let cluster = Cluster::new(scenario, rng, trace);
        let Cluster { scenario, layout, .. } = &cluster;
        let params = scenario.params;
        let mut judge = Judge::new(layout.sectors());
        let mut suspects = Suspects::new(Map::new(&params, layout.data_blocks()));
        if scenario.dirty {
            suspects.all(params.stripes);
            if !params.family.has_parities() {
                // Whichever copy is left is what the others are made like.
                (0..layout.sectors()).for_each(|sector| judge.exempt(sector));
            }
        }
        Self {
            cluster,
            judge,
            suspects,
            promises: Promises::default(),
            newcomer: None,
            spare: None,
            departed: Vec::new(),
            planned: Vec::new(),
            unforced: false,
            client: usize::MAX,
            begun: (Vec::new(), false),
            guest: None,
            phase: Phase::Starting,
            signs: Signs::default(),
            scrubs: Vec::new(),
            fenced: Vec::new(),
            waiting: None,
            began_at_step: 0,
        }
    }

    /// Makes another array on the nodes, and starts its client.
    ///
    /// # Errors
    /// When the client refuses the array.
    pub fn start_guest(&mut self) -> Result<(), Failure> {
        let params =
            Params { session: self.cluster.rng.next(), epoch: 1, ..self.cluster.scenario.params };
        let disks = content::create(
            &self.cluster.layout,
            [8; 16],
            false,
            None,
            (0, false),
            &mut self.cluster.rng,
        );
        for (&node, disk) in self.cluster.nodes.iter().zip(&disks) {
            self.cluster.world.processes[node].keep(guest::VOLUME, disk.clone());
        }
        let rng = self.cluster.rng.fork();
        let guest = Guest::start(&mut self.cluster.world, &disks, params, rng).map_err(Failure)?;
        self.guest = Some(guest);
        Ok(())
    }

    /// The other array is given up: its nodes are.
    pub fn drop_guest(&mut self) {
        if let Some(guest) = self.guest.take() {
            self.promises.heard(Happened::ClientGone);
            self.cluster.world.kill(guest.process);
        }
    }

    /// The other array comes to its end, and is looked at.
    ///
    /// # Errors
    /// What is wrong.
    pub fn end_guest(&mut self) -> Result<(), Failure> {
        if let Some(guest) = &mut self.guest {
            guest.finish();
        }
        while self.guest.as_ref().is_some_and(|guest| !guest.stopped()) {
            if !self.step()? {
                return Err(Failure("the guest does not stop".to_owned()));
            }
        }
        let Some(mut guest) = self.guest.take() else { return Ok(()) };
        let disks: Vec<&Disk> =
            self.cluster.nodes.iter().map(|&node| self.cluster.guest_disk(node)).collect();
        guest.judge(&disks, self.cluster.scenario.params.stripes)
    }

    /// Requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.judge.in_flight(self.client)
    }

    /// Is a request waiting to be taken?
    #[must_use]
    pub const fn waits(&self) -> bool {
        self.waiting.is_some()
    }

    /// Submits the next request if there is room. True when one was taken.
    pub fn submit(&mut self, workload: &mut Workload) -> bool {
        let Some(slot) = self.judge.free_slot(self.client) else { return false };
        let (kind, range) = self.waiting.take().unwrap_or_else(|| workload.next_request());
        if !self.fenced.is_empty()
            && matches!(kind, Kind::Write { .. })
            && self.cluster.rng.percent(10)
        {
            self.write_as_fenced(range);
        }
        let taken = self.submit_at(slot, kind, range);
        if !taken {
            self.waiting = Some((kind, range));
        }
        taken
    }

    /// Submits this request if there is room and the client takes it.
    pub fn submit_one(&mut self, kind: Kind, range: Range) -> bool {
        let slot = self.judge.free_slot(self.client);
        slot.is_some_and(|slot| self.submit_at(slot, kind, range))
    }

    fn submit_at(&mut self, slot: usize, kind: Kind, range: Range) -> bool {
        let offset = slot as u64 * self.cluster.slot_bytes();
        let now = self.cluster.world.now();
        let client = &mut self.cluster.world.processes[self.client];
        let draft = self.judge.draft(slot, kind, range, offset, &mut client.arena);
        if client.client().submit(now, draft.request).is_err() {
            return false;
        }
        if self.phase != Phase::Serving {
            self.phase = Phase::Serving;
            // What those wrote before it was granted the array is decided.
            self.judge.decided();
            self.suspects.crash();
        }
        if self.promises.mended && !self.promises.troubled {
            // Every slice-set that the last client left is wholly old or new.
            self.suspects.resynced(self.judge.moment());
        }
        self.promises.heard(Happened::ClientServes);
        let Range { sector, sectors } = range;
        let serial = draft.serial;
        self.cluster.world.note(&[40, slot as u64, sector, sectors, u64::from(serial)], || {
            format!("SUBMIT #{slot} {kind:?} {sector}+{sectors} serial {serial}")
        });
        let equal = !self.suspects.any() && self.promises.lost.is_empty();
        self.begin(self.client, draft, equal);
        self.cluster.world.drain(self.client);
        true
    }

    /// A client has taken a request.
    pub(super) fn begin(&mut self, client: usize, draft: Draft, equal: bool) {
        let (kind, range) = (draft.kind, draft.range);
        let moment = self.judge.submitted(client, draft, equal);
        if !matches!(kind, Kind::Read | Kind::Flush) {
            self.suspects.begins(moment, range);
        }
    }

    /// Lets the next thing happen, and judges what comes out. False when nothing is due.
    ///
    /// # Errors
    /// What is wrong.
    pub fn step(&mut self) -> Result<bool, Failure> {
        let moved = self.cluster.world.step();
        self.outputs()?;
        self.look_at_spare();
        if let Some(guest) = &mut self.guest {
            guest.go_on(&mut self.cluster.world);
            self.outputs()?;
        }
        if !moved && self.in_flight() > 0 {
            let kinds: Vec<String> =
                self.judge.flights(self.client).map(|f| format!("{:?}", f.kind)).collect();
            return Err(Failure(format!("hangs: {} unanswered", kinds.join(", "))));
        }
        if self.cluster.world.steps - self.began_at_step > MAX_STEPS {
            return Err(Failure(format!("no end after {MAX_STEPS} events")));
        }
        Ok(moved)
    }

    /// Sees to everything that came out of the machines.
    ///
    /// # Errors
    /// What is wrong.
    pub fn outputs(&mut self) -> Result<(), Failure> {
        for (process, action) in std::mem::take(&mut self.cluster.world.outputs) {
            if let Some(guest) = self.guest.as_mut().filter(|guest| guest.process == process) {
                guest.hears(&action)?;
                continue;
            }
            if self.fenced_says(process, &action)? {
                continue;
            }
            match action {
                Action::Complete { id, result } if process == self.client => {
                    self.completed(id, result)?;
                }
                Action::Reply { id: STOP, result } if process == self.client => {
                    self.phase = Phase::Stopped;
                    result.map_err(|error| Failure(format!("stop refused: {error}")))?;
                }
                Action::Reply { id: ADD, result } if process == self.client => {
                    self.cluster
                        .world
                        .note(&[47, u64::from(result.is_ok())], || format!("{result:?}"));
                    self.added();
                }
                Action::Reply { id: SPARE, result } if process == self.client => {
                    self.cluster
                        .world
                        .note(&[56, u64::from(result.is_ok())], || format!("{result:?}"));
                    self.spare_added(result.is_ok());
                }
                Action::Reply { result, .. } if process == self.client => {
                    self.cluster
                        .world
                        .note(&[44, u64::from(result.is_ok())], || format!("{result:?}"));
                }
                Action::Notify(event) => self.notified(process, &event),
                other
                    if process == self.client
                        || self.cluster.nodes.contains(&process)
                        || self.cluster.witnesses.contains(&process) =>
                {
                    return Err(Failure(format!("unexpected {other:?}")));
                }
                _ => {}
            }
        }
        if self.phase == Phase::Outdated {
            self.start_again()?;
        }
        match self.cluster.world.faults.first() {
            Some(fault) => Err(Failure(fault.clone())),
            None => Ok(()),
        }
    }

    fn notified(&mut self, process: usize, event: &ArrayEvent) {
        self.cluster.world.note(&[41, process as u64], || format!("EVENT {process} {event:?}"));
        if process == self.client && *event == ArrayEvent::MembersChanged {
            self.phase = Phase::Outdated;
        }
        if process == self.client && self.phase == Phase::Outdated {
            return;
        }
        let resync = matches!(event, ArrayEvent::SyncStarted(SyncAction::Resync));
        if resync && process == self.client && self.promises.all_fits && !self.promises.troubled {
            self.cluster
                .world
                .faults
                .push("a resync after nothing was lost but a client".to_owned());
        }
        if let ArrayEvent::MemberFailed { member, reason, .. } = event
            && process == self.client
            && let Some(role) = self.cluster.role_of(self.client, *member)
        {
            self.signs.lost += 1;
            let replaced = self.cluster.scenario.replaces && REPLACED.contains(&&**reason);
            let parities_fit = !self.suspects.any();
            self.promises.heard(Happened::GoneWithout { role, replaced, parities_fit });
        }
        if let ArrayEvent::MemberActive(member) = event
            && process == self.client
            && let Some(role) = self.cluster.role_of(self.client, *member)
        {
            let readable = !self.cluster.disk(role).damaged();
            self.promises.heard(Happened::HasAll { role, readable });
        }
        let ended = matches!(
            event,
            ArrayEvent::SyncFinished { action: SyncAction::Resync, end: SyncEnd::Complete, .. }
        );
        if ended && process == self.client {
            self.promises.heard(Happened::Resynced);
            // What a lost node had alone is not brought back by that.
            if self.promises.lost.is_empty() {
                self.suspects.resynced(self.judge.moment());
            }
        }
        let scrub = matches!(
            event,
            ArrayEvent::Mismatch { .. }
                | ArrayEvent::SyncFinished { action: SyncAction::Check | SyncAction::Repair, .. }
        );
        if scrub && process == self.client {
            self.scrubs.push(event.clone());
        }
    }

    fn completed(
        &mut self,
        id: RequestId,
        result: Result<(), RequestError>,
    ) -> Result<(), Failure> {
        let flight = self.judge.answered(self.client, id)?;
        let Flight { kind, range, request, .. } = flight;
        self.cluster.world.note(&[42, id.0, u64::from(result.is_ok())], || {
            format!("COMPLETE #{} {kind:?} {}+{}: {result:?}", id.0, range.sector, range.sectors)
        });
        if matches!(kind, Kind::Read | Kind::Write { .. }) {
            let claims = &self.cluster.world.processes[self.client].claims;
            let conflict = claims.conflict(request.buf, super::claims::Use::Write, "a completion");
            if let Some(conflict) = conflict {
                return Err(Failure(conflict));
            }
        }
        if let Err(error) = result
            && !self.may_fail(kind, range)
        {
            let Range { sector, sectors } = range;
            return Err(Failure(format!("{kind:?} {sector}+{sectors} failed: {error}")));
        }
        self.signs.flushed += u64::from((kind.fua() || kind == Kind::Flush) && result.is_ok());
        if result.is_err() && !matches!(kind, Kind::Read | Kind::Flush) {
            self.promises.heard(Happened::WriteFailed);
        }
        self.conclude(&flight, result, Some(self.client))
    }

    /// Judges what a client has answered, and what it has read if it is still the `reader`.
    pub(super) fn conclude(
        &mut self,
        flight: &Flight,
        result: Result<(), RequestError>,
        reader: Option<usize>,
    ) -> Result<(), Failure> {
        let Self { judge, suspects, cluster, promises, .. } = self;
        let Cluster { world, layout, .. } = cluster;
        let half_written = promises.dead || promises.failed;
        let excuses = Excuses { suspects, layout, lost: &promises.lost, half_written };
        let excused = |sector| excuses.cover(sector);
        let read = reader.map(|process| Read {
            bytes: world.processes[process].found(flight.request.buf),
            stays: !suspects.any() && !half_written,
            excused: &excused,
        });
        judge.conclude(flight, result, read)?;
        match flight.kind {
            Kind::Read => {}
            Kind::Flush if result.is_ok() => suspects.flushed(flight.moment),
            Kind::Flush => {}
            kind => suspects.ends(flight.moment, judge.moment(), result.is_ok(), kind.fua()),
        }
        Ok(())
    }

    fn may_fail(&self, kind: Kind, range: Range) -> bool {
        match kind {
            Kind::Read => {
                let mut sectors = range.sector..range.sector + range.sectors;
                sectors.any(|sector| match self.promises.half_synced {
                    true => self.on_lost_node(sector),
                    // One that is about to fail may have torn it already.
                    false => self.suspects.suspect(sector, true) && self.on_lost_node(sector),
                })
            }
            _ => self.promises.troubled && !self.promises.mild,
        }
    }

    fn on_lost_node(&self, sector: u64) -> bool {
        let Self { suspects, cluster: Cluster { layout, .. }, promises, .. } = self;
        Excuses { suspects, layout, lost: &promises.lost, half_written: false }.is_lost(sector)
    }

    /// Compares what was found with what may be there.
    ///
    /// # Errors
    /// The first sector that is wrong.
    pub fn judge_content(&mut self, sector: u64, bytes: &[u8]) -> Result<(), Failure> {
        let Self { judge, suspects, cluster: Cluster { layout, .. }, promises, .. } = self;
        let half_written = promises.dead || promises.failed;
        let excuses = Excuses { suspects, layout, lost: &promises.lost, half_written };
        judge.content(sector, bytes, &|sector| excuses.cover(sector))
    }

    /// Is the array being made right again?
    #[must_use]
    pub fn syncing(&mut self) -> bool {
        let status = self.cluster.status_of(self.client);
        status.sync.action != SyncAction::Idle
    }

    /// Asks the client for a check or repair.
    pub fn scrub(&mut self, repair: bool) {
        let event = Event::Command { id: SCRUB, command: Command::Scrub { repair } };
        self.cluster.world.note(&[45, u64::from(repair)], || format!("SCRUB repair {repair}"));
        self.cluster.world.handle(self.client, event);
    }

    /// Asks the client to stop.
    pub fn ask_to_stop(&mut self) {
        let event = Event::Command { id: STOP, command: Command::Stop };
        self.cluster.world.note(&[43], || "STOP".to_owned());
        self.cluster.world.handle(self.client, event);
    }

    /// The client dies.
    pub fn crash(&mut self) {
        self.promises.heard(Happened::ClientGone);
        self.cluster.world.kill(self.client);
        self.added();
        self.look_at_spare();
        self.not_yet_regained();
        self.suspects.crash();
        self.judge.client_ends(self.client);
    }
}

/// What is excused of what is read: that which would have to be decoded from a slice of which
/// nothing can be decoded.
struct Excuses<'a> {
    suspects: &'a Suspects,
    layout: &'a Layout,
    lost: &'a [u16],
    /// Slices that are being written may be torn.
    half_written: bool,
}

impl Excuses<'_> {
    fn cover(&self, sector: u64) -> bool {
        self.suspects.suspect(sector, self.half_written) && self.is_lost(sector)
    }

    fn is_lost(&self, sector: u64) -> bool {
        let place = self.suspects.map().place(sector);
        let code = self.layout.code(place.slice.0);
        self.lost.contains(&code.data()[place.index as usize].node)
    }
}
