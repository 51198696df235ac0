//! The machine that serves one array over nodes, [`Client`].
//!
//! It plans everything. The [`engine`] carries out requests and background work as slice-sets and
//! reads, over the members that [`membership`] names at a moment. The sessions with the nodes are
//! the other half: [`sessions`]. Who holds the array, by votes and views, is in [`ownership`]. Who
//! the members are, what the superblocks say, background work and commands are the keeper's;
//! [`carry_out`] does what it asks.

mod carry_out;
mod config;
mod engine;
mod foretell;
mod invariants;
mod latency;
mod membership;
mod messages;
mod out;
mod ownership;
mod retire;
mod retry;
mod sessions;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};

use braid_array::action::{Command, CommandId, Event};
use braid_array::array::Scratch;
use braid_array::fabric::FabricEvent;
use braid_array::keeper::{Keeper, MetaWrite, Rules};
use braid_array::request::Full;
use braid_array::status::Status;
use braid_array::{
    Action, BlockMachine, Instant, Machine, MemberId, Refusal, Request, RequestError, SECTOR_BYTES,
};

use crate::ids::SliceKey;
use crate::member;
pub use crate::member::{ClientMember, Found};
use crate::pipeline::{Params, Pipeline};
use crate::wire::Message;
pub use config::{ClientConfig, NODE_TIMEOUT_MS, SPARE_PATIENCE_MS};
use engine::{Cx, Engine, Mix, Shared, Space};
pub use foretell::{Voter, foretell, witnesses as witnesses_of};
use membership::{Entry, Membership, writes_over};
use out::{LossKind, Out, RequestKind};
pub use ownership::MAX_WITNESSES;
use ownership::{Facts, Ownership, OwnershipEvent};
use sessions::returning;
use sessions::setup::{Session, SessionState};
use sessions::step::Step;
use sessions::{absent, departed, recovery, spare};

/// Requests are multiples of this.
const BLOCK_BYTES: u32 = 4096;

/// What the keeper has to know; a quarter of the positions is left to users whatever it does.
fn rules(params: &Params, forced: bool) -> Rules {
    Rules::over_nodes(4.max(usize::from(params.wide.count) * 3 / 4), forced)
}

type Key = SliceKey;

/// How far the array is.
#[derive(Clone, Debug)]
enum Phase {
    /// Nodes are being connected.
    Setup,
    /// Requests are served.
    Running,
    /// Nothing is served any more.
    Stopped,
}

/// One array over nodes, in the process that assembled it and serves it. It owns the keeper of the
/// array, a session with each node, the requests of exports, the slice-sets that are open, and the
/// background work under way. It does no I/O itself: it sends messages and puts slices into the
/// nodes' rings by the fabric, and adds slices up in its part of the executor's arena.
///
/// It goes through three phases. In *setup* it connects, takes the array over (it gets the votes,
/// records a view, and resolves what the last client left), opens the volumes and wires the
/// pipelines; requests are not taken yet: `submit` returns [`Full`]. Then it is *running*, and goes
/// on without nodes that are lost, as far as the code allows; nodes that come back are taken in
/// again. In the end it is *stopped*. A client that another one has taken the array from serves
/// nothing any more.
///
/// Order of calls: [`scratch_bytes`](Self::scratch_bytes) says how much memory to set aside, in
/// bytes; [`new`](Self::new) queues the first connections; [`set_epoch`](Self::set_epoch) tells the
/// time of day. Then follow the calls of [`Machine`] and [`BlockMachine`]: `poll` until it is
/// empty, `handle` for what comes over the fabric, results, commands and ticks, `submit` for
/// requests.
///
/// A write becomes part of a slice-set, which is opening, preparing (every node that has a part in
/// it makes the new content in memory), committing, and finished; or aborted, and then tried again
/// or failed. The request is answered when the slice-set is committing, with FUA when it is
/// finished. So a stripe is old or new, as a whole, whoever is lost. Two slice-sets never change
/// the same slice of a stripe at once, and nothing is decoded from a slice that is being written.
#[derive(Debug)]
pub struct Client {
    phase: Phase,
    keeper: Keeper,
    out: Out,
    members: Membership,
    shared: Shared,
    engine: Engine,
    /// By role; that with the copy target comes last.
    sessions: Vec<Session>,
    /// An event was not for the engine alone: members are looked at anew when it is handled.
    sessions_touched: bool,
    ownership: Ownership,
    /// It takes the array over from nobody, and changes nothing.
    looks: bool,
    node_timeout_ms: u64,
    /// What members are told when voters have noted who was lost.
    untold: VecDeque<MetaWrite>,
    /// A node that comes back is being wired to the others.
    wiring: Option<returning::Wiring>,
    /// A node that is to be of the array.
    recovery: Option<recovery::Recovery>,
    absents: absent::Absents,
    departed: departed::Departed,
    spares: spare::Spares,
}

impl Client {
    /// Bytes of the arena that the machine needs for itself.
    #[must_use]
    pub fn scratch_bytes(config: &ClientConfig) -> u64 {
        let params = &config.params;
        let Ok(code) = params.family.code(params.nodes, 0) else { return 0 };
        let data = code.data().len() as u64;
        let sums = code.equations().len() as u64;
        let buffers = u64::from(params.wide.count) * sums + 2 * (data + sums) + 64;
        (buffers + 1) * u64::from(params.wide.bytes)
    }

    /// Begins to connect.
    ///
    /// # Errors
    /// When there is no such array, as a line for people.
    pub fn new(config: ClientConfig, scratch: Scratch) -> Result<Self, String> {
        let mix = Mix::new(config.params.planner, config.mix, config.params.nodes);
        let params = config.pipeline_params();
        let pipeline = Pipeline::new(params).map_err(|error| error.to_string())?;
        if config.members.len() != usize::from(params.nodes) {
            return Err("the number of members is not that of the array".to_owned());
        }
        let space = Space::new(&pipeline).map_err(|error| error.to_string())?;
        let forced = (config.force || config.looks) && member::vouched_for(&config.members);
        let kept = config.kept().ok_or("an array has members")?;
        let ownership = Ownership::new(kept.superblock.set_uuid, &config);
        let engine = Engine::new(&pipeline, mix, &kept.superblock);
        let keeper = member::keeper(kept, Box::new(space.clone()), rules(&params, forced))?;
        let sessions = Session::all(config.members);
        let mut client = Self {
            phase: Phase::Setup,
            keeper,
            out: Out::new(params.nodes, params.epoch, config.first_peer),
            members: Membership::of(sessions.iter().map(Session::entry)),
            shared: Shared::new(pipeline, space, forced, scratch),
            engine,
            sessions,
            sessions_touched: false,
            ownership,
            looks: config.looks,
            node_timeout_ms: config.node_timeout_ms,
            untold: VecDeque::new(),
            wiring: None,
            recovery: None,
            absents: absent::Absents::new(config.absent, config.not_in),
            departed: departed::Departed::default(),
            spares: spare::Spares::new(config.spare_patience_ms),
        };
        client.begin();
        client.drain();
        client.refresh();
        Ok(client)
    }

    /// Tells what time `Instant(0)` was, in microseconds since 1970.
    pub const fn set_epoch(&mut self, micros: u64) {
        self.keeper.set_epoch(micros);
    }

    /// The engine, and what it is called with: the members as they are now.
    fn engine(&mut self) -> (&mut Engine, Cx<'_>) {
        self.refresh();
        self.engine_as_is()
    }

    /// The same where no session has changed since the members were last looked at: whenever the
    /// client has nothing to do at once, they are as they were then.
    fn engine_as_is(&mut self) -> (&mut Engine, Cx<'_>) {
        let Self { keeper, members, out, shared, engine, .. } = self;
        (engine, Cx { keeper, members, out, shared })
    }

    /// The votes and views, what they are called with, and what they go by.
    fn ownership(&mut self) -> (&mut Ownership, Cx<'_>, Facts) {
        self.refresh();
        let journals = &self.engine.journals;
        let facts = Facts {
            starting: matches!(self.phase, Phase::Setup),
            may_return: self.may_return(),
            recorded: journals.all_is_recorded(),
            live: journals.live,
            ppl: journals.live && journals.parts.were_only,
        };
        let Self { keeper, members, out, shared, ownership, .. } = self;
        (ownership, Cx { keeper, members, out, shared }, facts)
    }

    /// If the node of this role were lost, could the others take note of that?
    fn votes_suffice_without(&mut self, role: u16) -> bool {
        let (ownership, cx, _) = self.ownership();
        ownership.votes_suffice_without(&cx, role)
    }

    /// Will no later client ask this incarnation of a node for what it has prepared?
    fn is_out(&mut self, incarnation: u64) -> bool {
        let (ownership, cx, _) = self.ownership();
        ownership.is_out(&cx, incarnation)
    }

    /// What votes and views have come to.
    fn ownership_event(&mut self, event: OwnershipEvent) {
        match event {
            OwnershipEvent::Resolved { stale, fits } => {
                for role in stale {
                    let why = Refusal::new("has missed writes", "it is given them");
                    self.lose_now(role, why, LossKind::Returns);
                }
                // Not before it is known who misses something: the bitmap still says what.
                if fits {
                    self.keeper.nothing_to_resync();
                }
                for role in 0..self.shared.params().nodes {
                    if self.alive(role) {
                        self.open_volume_of(role);
                    }
                }
            }
            OwnershipEvent::Answered => self.start_journals(),
        }
    }

    fn refresh(&mut self) {
        for (entry, session) in self.members.entries.iter_mut().zip(&self.sessions) {
            *entry = session.entry();
        }
        self.members.claimed = self.ownership.claimed_roles();
        self.members.vouched = self.ownership.vouched;
        self.members.wiring = self.wiring.is_some();
        let prepared = SessionState::Returning(Step::Prepared);
        let prepared = self.sessions.iter().filter(|session| session.state == prepared);
        self.members.prepared_since = prepared.map(|session| session.lost_at).max();
    }

    /// What the keeper calls the member of a role that is there.
    fn member_id(&self, role: u16) -> MemberId {
        self.sessions[usize::from(role)].id.unwrap_or(MemberId(u16::MAX))
    }

    fn alive(&self, role: u16) -> bool {
        self.sessions[usize::from(role)].alive()
    }

    fn role_of(&self, member: MemberId) -> Option<u16> {
        (0..self.shared.params().nodes)
            .find(|&role| self.sessions[usize::from(role)].id == Some(member))
    }

    /// Nothing may change any more.
    fn writes_over(&self) -> bool {
        writes_over(&self.keeper)
    }

    /// Which session is that with a node to which a member is copied.
    fn copy_target(&self) -> u16 {
        self.shared.params().nodes
    }

    fn send(&mut self, role: u16, message: &Message) {
        self.out.send(self.sessions[usize::from(role)].peer, message);
    }

    /// Sends a member a message that is answered with its tag.
    fn request(&mut self, role: u16, kind: RequestKind, message: impl FnOnce(u32) -> Message) {
        self.keeper.asked(self.member_id(role));
        self.request_of_stranger(role, kind, message);
    }

    /// The same of a node that is no member now.
    fn request_of_stranger(
        &mut self,
        role: u16,
        kind: RequestKind,
        message: impl FnOnce(u32) -> Message,
    ) {
        let peer = self.sessions[usize::from(role)].peer;
        self.out.request((role, peer), kind, self.keeper.now(), message);
    }

    fn command(&mut self, id: CommandId, command: Command) {
        if matches!((&command, &self.phase), (Command::Stop, Phase::Setup)) {
            // Nothing has been written, and nothing needs to be.
            self.keeper.freeze();
            self.phase = Phase::Running;
        }
        match command {
            Command::Add(new) => return self.add(id, *new),
            Command::Replace(old) => return self.replace(id, old, None),
            Command::ReplaceWith { old, spare } => return self.replace(id, old, Some(spare)),
            Command::Remove(member) => self.nothing_asked_of(member),
            _ => {}
        }
        self.with_traffic(|keeper, traffic| keeper.command(id, command, traffic));
    }

    /// Does whatever can be done without waiting: what the keeper and the engine can go on with,
    /// then what follows from that for views and nodes that come and go, and in the end what nodes
    /// are told of slice-sets and reads.
    fn run_ready(&mut self) {
        if matches!(self.phase, Phase::Setup | Phase::Stopped) {
            return;
        }
        self.drain();
        let (engine, mut cx) = self.engine_as_is();
        engine.begin(&mut cx);
        loop {
            let (engine, mut cx) = self.engine_as_is();
            engine.start_gathers(&mut cx);
            if self.advance_keeper() {
                continue;
            }
            let (engine, mut cx) = self.engine_as_is();
            let went_on = engine.trim(&mut cx) || engine.start_decodes(&mut cx);
            self.drain();
            if !went_on {
                break;
            }
        }
        self.forget_removed();
        let (ownership, mut cx, _) = self.ownership();
        ownership.record_changes(&mut cx);
        self.drain();
        self.drop_leftovers();
        self.resolve_departed();
        self.look_at_latency();
        let (engine, mut cx) = self.engine();
        engine.send_commits(&mut cx);
        self.wire_returned();
        self.advance_copy();
        self.drain();
        let (engine, mut cx) = self.engine();
        engine.send_reads(&mut cx);
    }

    /// Nothing that the exports asked for is under way.
    fn quiet(&self) -> bool {
        self.engine.is_quiet(&self.shared)
    }

    fn takes(&self, request: &Request) -> Result<(), RequestError> {
        if !matches!(self.phase, Phase::Running) || self.keeper.is_stopping() {
            return Err(RequestError::Failed);
        }
        request.fits(self.array_sectors(), BLOCK_BYTES)?;
        self.keeper.admits(request.op)
    }
}

impl Machine for Client {
    fn handle(&mut self, now: Instant, event: Event) {
        self.keeper.at(now);
        self.sessions_touched = !matches!(event, Event::Done { .. });
        match event {
            Event::Done { io, result } => {
                let (engine, mut cx) = self.engine_as_is();
                engine.io_done(&mut cx, io, result);
            }
            Event::Command { id, command } => self.command(id, command),
            Event::Tick => {
                self.setup_tick();
                self.return_tick();
                let wanted = self.may_look_for_absent();
                self.absents.tick(wanted, &mut self.out, now);
                self.look_for_departed();
                self.use_spares();
                let (ownership, mut cx, facts) = self.ownership();
                ownership.tick(&mut cx, facts);
                self.look_for_silence();
                if matches!(self.phase, Phase::Running) {
                    self.keeper.tick();
                }
            }
            Event::Fabric(event) => self.fabric(event),
            // The client has no volumes, and loads nothing.
            Event::Volume { .. } | Event::Survey { .. } | Event::Loaded { .. } => {}
        }
        self.drain();
        if self.sessions_touched {
            self.refresh();
        }
    }

    fn poll(&mut self) -> Option<Action> {
        if self.out.is_empty() {
            self.run_ready();
        }
        self.out.pop()
    }

    fn deadline(&self) -> Option<Instant> {
        let running = matches!(self.phase, Phase::Running);
        let returns = running && !self.keeper.is_stopping();
        [
            self.engine.deadline(&self.shared, self.keeper.now(), returns),
            self.keeper.deadline().filter(|_| running),
            self.setup_deadline(),
            self.silence_deadline(),
            self.ownership.deadline(self.may_return()),
            self.return_deadline(),
            self.absents.deadline(self.may_look_for_absent()),
            self.departed.deadline(self.may_return()),
            self.spare_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn idle(&self) -> bool {
        self.out.is_empty()
            && self.out.ios.is_empty()
            && self.out.requests.is_empty()
            && self.engine.holds_nothing(&self.shared)
            && self.keeper.is_idle()
    }

    fn invariants(&self) -> Result<(), String> {
        self.check_all()
    }
}

impl BlockMachine for Client {
    fn submit(&mut self, now: Instant, request: Request) -> Result<(), Full> {
        self.keeper.at(now);
        if matches!(self.phase, Phase::Setup) {
            return Err(Full);
        }
        if let Err(error) = self.takes(&request) {
            self.out.push(Action::Complete { id: request.id, result: Err(error) });
            return Ok(());
        }
        let (engine, mut cx) = self.engine_as_is();
        engine.submit(&mut cx, &request);
        Ok(())
    }

    fn status(&self) -> Status {
        let mut status = self.keeper.status();
        self.mark_slow(&mut status);
        self.mark_refused(&mut status);
        let address =
            |role: u16| Some(self.sessions[usize::from(role)].member.as_ref()?.address.clone());
        status.view = self.ownership.status(self.shared.params().nodes, address);
        if let Some(view) = &mut status.view {
            view.absent = self.absent_status();
        }
        status
    }

    fn array_sectors(&self) -> u64 {
        self.shared.pipeline.array_bytes() / SECTOR_BYTES
    }

    fn block_bytes(&self) -> u32 {
        BLOCK_BYTES
    }

    fn read_only(&self) -> bool {
        self.keeper.is_read_only()
    }

    fn free_member(&self) -> Option<MemberId> {
        self.keeper.free_id()
    }
}
