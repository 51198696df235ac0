//! A run of clients and nodes, [`Session`]: requests in flight and their judgement.

use braid_array::action::{Command, CommandId, Event};
use braid_array::array::Scratch;
use braid_array::events::{ArrayEvent, SyncAction, SyncEnd};
use braid_array::format::superblock::feature;
use braid_array::{Action, AnyMachine, RequestError, RequestId};
use braid_cluster::node::Node;
use braid_cluster::pipeline::Params;
use braid_cluster::view::{View, Vote};
use braid_cluster::{Pipeline, Planner};

use super::content::{self, Layout};
use super::fenced_client::FencedClient;
use super::guest::{self, Guest};
use super::kill_point::Signs;
use super::newcomer::{ADD, Newcomer};
use super::process::{Process, Stored};
use super::promises::{Happened, Promises};
use super::replacement::REPLACED;
use super::scenario::Scenario;
use super::spare::SPARE;
use super::suspects::{Map, Suspects};
use super::world::World;
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
    /// What the seed is about.
    pub scenario: Scenario,
    /// Draws troubles.
    pub rng: Rng,
    /// Processes and network.
    pub world: World,
    /// Where blocks lie.
    pub layout: Layout,
    /// What may be read, and the requests in flight.
    pub judge: Judge,
    /// Where parities may not fit.
    pub suspects: Suspects,
    /// The processes of the nodes, by role.
    pub nodes: Vec<usize>,
    /// Their numbers as nodes, by role.
    pub(super) ids: Vec<u64>,
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
    /// By role, which start of the node this is.
    pub(super) incarnations: Vec<u64>,
    /// The processes of the witnesses.
    pub witnesses: Vec<usize>,
    /// Nobody answers for it that nodes that are missing are off.
    pub(super) unforced: bool,
    /// The process of the client.
    pub client: usize,
    /// Without which nodes it was started, and whether somebody answers for those.
    pub(super) begun: (Vec<u16>, bool),
    /// The members have changed while it was started: it has given up.
    outdated: bool,
    /// Another array's client on the same nodes.
    pub guest: Option<Guest>,
    /// The command to stop was answered.
    pub stopped: bool,
    /// What was told so far.
    pub(super) signs: Signs,
    /// What checks and repairs have told.
    pub scrubs: Vec<ArrayEvent>,
    pub(super) epoch: u32,
    /// The client has taken a request.
    pub(super) serves: bool,
    /// Clients whose array was taken over, and which are there still.
    pub(super) fenced: Vec<FencedClient>,
    pub(super) waiting: Option<(Kind, Range)>,
    pub(super) began_at_step: u64,
}

impl Session {
    /// Nodes with fresh volumes, and no client yet.
    #[must_use]
    pub fn new(scenario: Scenario, mut rng: Rng, trace: Trace) -> Self {
        let mut world = World::new(rng.fork(), scenario.profile, trace);
        world.journal_sectors = scenario.journal_bytes / 4096 * 8;
        let params = scenario.params;
        let layout = Layout::new(params);
        let mut suspects = Suspects::new(Map::new(&params, layout.data_blocks()));
        if scenario.dirty {
            suspects.all(params.stripes);
        }
        let disks = content::create(
            &layout,
            ARRAY,
            scenario.dirty,
            scenario.bitmap_chunk_bytes,
            scenario.journals(),
            &mut rng,
        );
        let mut session = Self {
            scenario,
            rng,
            world,
            judge: Judge::new(layout.sectors()),
            layout,
            suspects,
            nodes: Vec::new(),
            ids: (0..u64::from(params.nodes)).collect(),
            promises: Promises::default(),
            newcomer: None,
            spare: None,
            departed: Vec::new(),
            planned: Vec::new(),
            incarnations: vec![0; usize::from(params.nodes)],
            witnesses: Vec::new(),
            unforced: false,
            client: usize::MAX,
            begun: (Vec::new(), false),
            outdated: false,
            guest: None,
            stopped: false,
            signs: Signs::default(),
            scrubs: Vec::new(),
            epoch: 0,
            serves: false,
            fenced: Vec::new(),
            waiting: None,
            began_at_step: 0,
        };
        if session.scenario.dirty && !params.family.has_parities() {
            // Whichever copy is left is what the others are made like.
            (0..session.layout.sectors()).for_each(|sector| session.judge.exempt(sector));
        }
        session.start_nodes(disks);
        session.start_witnesses();
        session
    }

    /// Starts every node anew on its volume.
    pub fn start_nodes(&mut self, disks: Vec<Disk>) {
        let before = std::mem::take(&mut self.nodes);
        for (role, disk) in (0u16..).zip(disks) {
            let node = self.start_node(role, disk, before.get(usize::from(role)).copied());
            self.nodes.push(node);
        }
    }

    /// A node on this volume, with what the one `before` has noted.
    fn start_node(&mut self, role: u16, disk: Disk, before: Option<usize>) -> usize {
        let (node, incarnation) = self.start_node_as(self.ids[usize::from(role)], disk, before);
        self.incarnations[usize::from(role)] = incarnation;
        node
    }

    /// Where the node of a role listens.
    pub(super) fn address(&self, role: u16) -> String {
        format!("n{}", self.ids[usize::from(role)])
    }

    pub(super) fn start_node_as(
        &mut self,
        id: u64,
        disk: Disk,
        before: Option<usize>,
    ) -> (usize, u64) {
        let (bytes, limit) = self.node_bytes();
        let incarnation = 1 + self.rng.below(u64::MAX - 1);
        let node = Node::new(Scratch { offset: 0, bytes }, id, incarnation);
        let node = match limit {
            Some(limit) => node.with_limit(limit),
            None => node,
        };
        let machine = AnyMachine::Plain(Box::new(node));
        let name = format!("n{id}");
        let mut process = Process::new(name.clone(), machine, bytes as usize, Some(name));
        process.keep(VOLUME, disk);
        if let Some(before) = before {
            process.notes = std::mem::take(&mut self.world.processes[before].notes);
        }
        (self.world.start(process), incarnation)
    }

    /// Starts a node anew that has died, maybe of a power cut.
    pub fn reboot(&mut self, role: u16) {
        let mut disk = self.disk(role).clone();
        if self.rng.percent(70) {
            disk.power_cut(&mut self.rng);
            self.judge.power_cut();
            self.suspects.power_cut();
        }
        let before = self.nodes[usize::from(role)];
        self.nodes[usize::from(role)] = self.start_node(role, disk, Some(before));
    }

    /// What nodes and witnesses have noted of the array.
    pub(super) fn votes(&self) -> impl Iterator<Item = Vote> {
        let voters = self.nodes.iter().chain(&self.witnesses);
        let notes = voters.flat_map(|&node| self.world.processes[node].notes.values());
        notes.filter_map(|note| Some(Vote::newest(&ARRAY, note)?.1))
    }

    /// The newest view that nodes were told of.
    pub(super) fn newest_view(&self) -> Option<View> {
        let views = self.votes().map(|vote| vote.view).filter(|view| view.epoch > 0);
        views.max_by_key(View::order)
    }

    /// Have enough of those who hold the array been there ever since?
    pub(super) fn have_kept_enough(&self, view: &View, missing: &[u16]) -> bool {
        let kept = |role: &u16| {
            let at = usize::from(*role);
            !missing.contains(role) && view.has(*role) && view.members[at] == self.incarnations[at]
        };
        let lost: Vec<u16> = (0..self.scenario.params.nodes).filter(|r| !kept(r)).collect();
        self.scenario.survives(&lost)
    }

    /// Do the newest superblocks, but for those of the `missing`, say that slice-sets may be stored
    /// in part, and no journal holds them?
    pub(super) fn some_are_unrecorded(&self, missing: &[u16]) -> bool {
        self.newest_says(missing, feature::NODE_UNRECORDED)
    }

    /// Have the newest superblocks this feature, but for those of the `missing`?
    pub(super) fn newest_says(&self, missing: &[u16], feature: u32) -> bool {
        let there = (0..self.scenario.params.nodes).filter(|role| !missing.contains(role));
        let found = there.filter_map(|role| content::superblock(self.disk(role)).ok());
        let newest = found.max_by_key(|superblock| superblock.events);
        newest.is_some_and(|superblock| superblock.has(feature))
    }

    /// Roles that the newest view leaves out.
    #[must_use]
    pub fn left_out(&self) -> Vec<u16> {
        let roles = 0..self.scenario.params.nodes;
        self.newest_view()
            .map_or(Vec::new(), |view| roles.filter(|&role| !view.has(role)).collect())
    }

    /// What a node's arena needs: room for the rings of a client, of the one before it, which may
    /// not be gone yet, and of a guest. And how much of that it may use, if not all.
    fn node_bytes(&self) -> (u64, Option<u64>) {
        let mut params = self.scenario.params;
        if params.planner == Planner::Client {
            params.planner = Planner::Encoder { node: 0 };
        }
        let pipeline = Pipeline::new(params).expect("a scenario's pipeline");
        let most = |bytes: fn(&Pipeline, u16) -> u64| {
            (0..params.nodes).map(|role| bytes(&pipeline, role)).max().unwrap_or(0)
        };
        let (ring, base) = (most(Pipeline::ring_bytes), most(Pipeline::base_bytes));
        let pages = u64::from(pipeline.positions() + 2) * 4096;
        // Nodes keep half of it for bases.
        let limit = |whole| 2 * (3 * (base + pages)).max(whole * (ring - base));
        (3 * (ring + pages) + (1 << 20), self.scenario.whole_rings.map(limit))
    }

    /// Makes another array on the nodes, and starts its client.
    ///
    /// # Errors
    /// When the client refuses the array.
    pub fn start_guest(&mut self) -> Result<(), Failure> {
        let params = Params { session: self.rng.next(), epoch: 1, ..self.scenario.params };
        let disks = content::create(&self.layout, [8; 16], false, None, (0, false), &mut self.rng);
        for (&node, disk) in self.nodes.iter().zip(&disks) {
            self.world.processes[node].keep(guest::VOLUME, disk.clone());
        }
        let rng = self.rng.fork();
        let guest = Guest::start(&mut self.world, &disks, params, rng).map_err(Failure)?;
        self.guest = Some(guest);
        Ok(())
    }

    /// The other array is given up: its nodes are.
    pub fn drop_guest(&mut self) {
        if let Some(guest) = self.guest.take() {
            self.promises.heard(Happened::ClientGone);
            self.world.kill(guest.process);
        }
    }

    /// A node's volume of the other array.
    fn guest_disk(&self, node: usize) -> &Disk {
        &self.world.processes[node].volumes[guest::VOLUME].disk
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
        let disks: Vec<&Disk> = self.nodes.iter().map(|&node| self.guest_disk(node)).collect();
        guest.judge(&disks, self.scenario.params.stripes)
    }

    pub(super) const fn slot_bytes(&self) -> u64 {
        self.scenario.largest_sectors * 512
    }

    /// A node's volume.
    #[must_use]
    pub fn disk(&self, role: u16) -> &Disk {
        &self.world.processes[self.nodes[usize::from(role)]].volumes[VOLUME].disk
    }

    /// All volumes, by role.
    #[must_use]
    pub fn disks(&self) -> Vec<&Disk> {
        (0..self.scenario.params.nodes).map(|role| self.disk(role)).collect()
    }

    /// Takes the volumes out of the nodes, which are dead.
    pub fn take_disks(&mut self) -> Vec<Disk> {
        let mut disks = Vec::new();
        for &node in &self.nodes {
            let stored: Option<Stored> = self.world.processes[node].volumes.remove(VOLUME);
            disks.extend(stored.map(|stored| stored.disk));
        }
        disks
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
        if !self.fenced.is_empty() && matches!(kind, Kind::Write { .. }) && self.rng.percent(10) {
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
        let offset = slot as u64 * self.slot_bytes();
        let now = self.world.now();
        let client = &mut self.world.processes[self.client];
        let draft = self.judge.draft(slot, kind, range, offset, &mut client.arena);
        if client.client().submit(now, draft.request).is_err() {
            return false;
        }
        if !std::mem::replace(&mut self.serves, true) {
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
        self.world.note(&[40, slot as u64, sector, sectors, u64::from(serial)], || {
            format!("SUBMIT #{slot} {kind:?} {sector}+{sectors} serial {serial}")
        });
        let equal = !self.suspects.any() && self.promises.lost.is_empty();
        self.begin(self.client, draft, equal);
        self.world.drain(self.client);
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
        let moved = self.world.step();
        self.outputs()?;
        self.look_at_spare();
        if let Some(guest) = &mut self.guest {
            guest.go_on(&mut self.world);
            self.outputs()?;
        }
        if !moved && self.in_flight() > 0 {
            let kinds: Vec<String> =
                self.judge.flights(self.client).map(|f| format!("{:?}", f.kind)).collect();
            return Err(Failure(format!("hangs: {} unanswered", kinds.join(", "))));
        }
        if self.world.steps - self.began_at_step > MAX_STEPS {
            return Err(Failure(format!("no end after {MAX_STEPS} events")));
        }
        Ok(moved)
    }

    /// Sees to everything that came out of the machines.
    ///
    /// # Errors
    /// What is wrong.
    pub fn outputs(&mut self) -> Result<(), Failure> {
        for (process, action) in std::mem::take(&mut self.world.outputs) {
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
                    self.stopped = true;
                    result.map_err(|error| Failure(format!("stop refused: {error}")))?;
                }
                Action::Reply { id: ADD, result } if process == self.client => {
                    self.world.note(&[47, u64::from(result.is_ok())], || format!("{result:?}"));
                    self.added();
                }
                Action::Reply { id: SPARE, result } if process == self.client => {
                    self.world.note(&[56, u64::from(result.is_ok())], || format!("{result:?}"));
                    self.spare_added(result.is_ok());
                }
                Action::Reply { result, .. } if process == self.client => {
                    self.world.note(&[44, u64::from(result.is_ok())], || format!("{result:?}"));
                }
                Action::Notify(event) => self.notified(process, &event),
                other
                    if process == self.client
                        || self.nodes.contains(&process)
                        || self.witnesses.contains(&process) =>
                {
                    return Err(Failure(format!("unexpected {other:?}")));
                }
                _ => {}
            }
        }
        if std::mem::take(&mut self.outdated) {
            self.start_again()?;
        }
        match self.world.faults.first() {
            Some(fault) => Err(Failure(fault.clone())),
            None => Ok(()),
        }
    }

    fn notified(&mut self, process: usize, event: &ArrayEvent) {
        self.world.note(&[41, process as u64], || format!("EVENT {process} {event:?}"));
        self.outdated |= process == self.client && *event == ArrayEvent::MembersChanged;
        if self.outdated && process == self.client {
            return;
        }
        let resync = matches!(event, ArrayEvent::SyncStarted(SyncAction::Resync));
        if resync && process == self.client && self.promises.all_fits && !self.promises.troubled {
            self.world.faults.push("a resync after nothing was lost but a client".to_owned());
        }
        if let ArrayEvent::MemberFailed { member, reason, .. } = event
            && process == self.client
            && let Some(role) = self.role_of(*member)
        {
            self.signs.lost += 1;
            let replaced = self.scenario.replaces && REPLACED.contains(&&**reason);
            let parities_fit = !self.suspects.any();
            self.promises.heard(Happened::GoneWithout { role, replaced, parities_fit });
        }
        if let ArrayEvent::MemberActive(member) = event
            && process == self.client
            && let Some(role) = self.role_of(*member)
        {
            let readable = !self.disk(role).damaged();
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
        self.world.note(&[42, id.0, u64::from(result.is_ok())], || {
            format!("COMPLETE #{} {kind:?} {}+{}: {result:?}", id.0, range.sector, range.sectors)
        });
        if matches!(kind, Kind::Read | Kind::Write { .. }) {
            let claims = &self.world.processes[self.client].claims;
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
        let Self { judge, suspects, world, layout, promises, .. } = self;
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
        let Self { suspects, layout, promises, .. } = self;
        Excuses { suspects, layout, lost: &promises.lost, half_written: false }.is_lost(sector)
    }

    /// Compares what was found with what may be there.
    ///
    /// # Errors
    /// The first sector that is wrong.
    pub fn judge_content(&mut self, sector: u64, bytes: &[u8]) -> Result<(), Failure> {
        let Self { judge, suspects, layout, promises, .. } = self;
        let half_written = promises.dead || promises.failed;
        let excuses = Excuses { suspects, layout, lost: &promises.lost, half_written };
        judge.content(sector, bytes, &|sector| excuses.cover(sector))
    }

    /// Is the array being made right again?
    #[must_use]
    pub fn syncing(&mut self) -> bool {
        let status = self.world.processes[self.client].client().status();
        status.sync.action != SyncAction::Idle
    }

    /// Asks the client for a check or repair.
    pub fn scrub(&mut self, repair: bool) {
        let event = Event::Command { id: SCRUB, command: Command::Scrub { repair } };
        self.world.note(&[45, u64::from(repair)], || format!("SCRUB repair {repair}"));
        self.world.handle(self.client, event);
    }

    /// Asks the client to stop.
    pub fn ask_to_stop(&mut self) {
        let event = Event::Command { id: STOP, command: Command::Stop };
        self.world.note(&[43], || "STOP".to_owned());
        self.world.handle(self.client, event);
    }

    /// The client dies.
    pub fn crash(&mut self) {
        self.promises.heard(Happened::ClientGone);
        self.world.kill(self.client);
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
