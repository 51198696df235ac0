//! The machine that serves one array over nodes, [`Client`].
//!
//! The client makes all plans. The [`engine`] carries out requests and background work as
//! slice-sets and reads, over the members of the current [`membership`]. The other half is the
//! sessions with the nodes: [`sessions`]. Ownership of the array, by votes and views, is in
//! [`ownership`]. The keeper decides the members, the content of superblocks, background work and
//! commands; [`carry_out`] executes its commands. [`keeper_side`] chooses the nodes to be members;
//! [`adding`] executes its commands.

mod adding;
mod carry_out;
mod config;
mod engine;
mod foretell;
mod invariants;
mod joining;
mod judging;
mod keeper_side;
mod latency;
mod lengthening;
mod losing;
mod membership;
mod messages;
mod out;
mod ownership;
mod parts;
mod retire;
mod retry;
mod session_key;
mod sessions;
mod start;
#[cfg(test)]
pub(crate) mod tests;
mod turn;

use std::collections::VecDeque;

use braid_array::action::{Command, CommandId, Event, NewMember};
use braid_array::array::Scratch;
use braid_array::assemble::Config;
use braid_array::figures::MemberFigures;
use braid_array::keeper::{MetaWrite, Rules};
use braid_array::request::Full;
use braid_array::status::Status;
use braid_array::{
    Action, BlockMachine, Instant, Machine, MemberId, Request, RequestError, Role, SECTOR_BYTES,
};

use crate::ids::SliceKey;
use crate::member;
pub use crate::member::{ClientMember, Found};
use crate::pipeline::{Params, Pipeline};
pub use config::{ClientConfig, LONG_WRITE_BYTES, NODE_TIMEOUT_MS, SPARE_PATIENCE_MS};
use engine::{Engine, Mix, Shared, Space};
pub use foretell::{Voter, foretell, witnesses as witnesses_of};
use keeper_side::KeeperSide;
use membership::Membership;
use out::ClientOut;
pub use ownership::MAX_WITNESSES;
use ownership::Ownership;
use parts::Parts;
use sessions::Sessions;
use sessions::session::Session;

/// Requests are multiples of this.
const BLOCK_BYTES: u32 = 4096;

/// Returns the keeper's rules. A quarter of the positions is always left to users.
fn rules(params: &Params) -> Rules {
    Rules::over_nodes(4.max(usize::from(params.wide.count) * 3 / 4))
}

type Key = SliceKey;

/// Phase of the client.
#[derive(Clone, Debug)]
enum ClientPhase {
    /// Nodes are being connected.
    Setup,
    /// Requests are served.
    Running,
    /// Nothing is served any more.
    Stopped,
}

/// One array over nodes, in the process that assembled it and serves it. The client owns the keeper
/// of the array, a session with each node, the requests of exports, the open slice-sets, and the
/// background work under way, each in a state machine of its own. I/O is left to the executor: the
/// client sends messages, puts slices into the nodes' rings through the fabric, and adds slices up
/// in its part of the executor's arena.
///
/// The client goes through three phases. In *setup* it connects, takes the array over (gets the
/// votes, records a view, and resolves the leftovers of the last client), opens the volumes and
/// wires the pipelines. Requests are not taken yet: `submit` returns [`Full`]. When *running*, the
/// client continues without lost nodes, as far as the code allows, and takes returning nodes in
/// again. In the end it is *stopped*. A client that has lost the array to another one serves
/// nothing any more.
///
/// Order of calls: [`scratch_bytes`](Self::scratch_bytes) returns the memory to set aside, in
/// bytes; [`new`](Self::new) queues the first connections; [`set_epoch`](Self::set_epoch) sets the
/// time of day. Next are the calls of [`Machine`] and [`BlockMachine`]: `poll` until it is empty,
/// `handle` for fabric events, results, commands and ticks, `submit` for requests.
///
/// A write becomes part of a slice-set. The slice-set is opening, preparing (every node with a part
/// in the slice-set makes the new content in memory), committing, and finished; or aborted, and
/// then tried again or failed. The request is answered when the slice-set is committing, with FUA
/// when it is finished. So a stripe is old or new as a whole, whichever nodes are lost. Two
/// slice-sets never change the same slice of a stripe at once, and no decoding reads a slice that
/// is being written.
#[derive(Debug)]
pub struct Client {
    parts: Parts,
    /// The event being handled was not for the engine alone: the membership is refreshed
    /// afterwards.
    sessions_touched: bool,
    /// Superblock writes that wait until voters have noted the losses.
    untold: VecDeque<MetaWrite>,
}

impl Client {
    /// Returns the arena bytes that the client needs for itself.
    #[must_use]
    pub fn scratch_bytes(config: &ClientConfig) -> u64 {
        let params = &config.params;
        let Ok(code) = params.family.code(params.nodes, 0) else { return 0 };
        let data = code.data().len() as u64;
        let sums = code.equations().len() as u64;
        let buffers = u64::from(params.wide.count) * sums + 2 * (data + sums) + 64;
        (buffers + 1) * u64::from(params.wide.bytes)
    }

    /// Creates a client and begins to connect.
    ///
    /// # Errors
    /// A line for people, when the configuration describes no valid array.
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
        let kept = Config { force: forced, ..kept };
        let ownership = Ownership::new(kept.superblock.set_uuid, &config);
        let long_bytes = config.long_write_bytes;
        let engine = Engine::new(&pipeline, mix, &kept.superblock, long_bytes);
        let keeper = member::keeper(kept, Box::new(space.clone()), rules(&params))?;
        let sessions = Sessions::new(config.members, config.looks, config.node_timeout_ms);
        let parts = Parts {
            phase: ClientPhase::Setup,
            keeper,
            out: ClientOut::new(params.nodes, params.epoch, config.first_peer),
            members: Membership::of(sessions.list.members().iter().map(Session::entry)),
            shared: Shared::new(pipeline, space, scratch, long_bytes),
            engine,
            sessions,
            ownership,
            keeper_side: KeeperSide::new(config.absent, config.not_in, config.spare_patience_ms),
        };
        let untold = VecDeque::new();
        let mut client = Self { parts, sessions_touched: false, untold };
        client.parts.begin_start(config.looks);
        client.drain();
        client.parts.refresh();
        Ok(client)
    }

    /// Sets the time of `Instant(0)`, in microseconds since 1970.
    pub const fn set_epoch(&mut self, micros: u64) {
        self.parts.keeper.set_epoch(micros);
    }

    fn command(&mut self, id: CommandId, command: Command) {
        let parts = &mut self.parts;
        if matches!(command, Command::Stop) && parts.is_starting() {
            // Nothing has been written, and nothing needs to be.
            parts.keeper_mut().freeze();
            parts.phase = ClientPhase::Running;
        }
        match command {
            Command::Add(new) => return self.add(id, new),
            Command::Replace(old) => return self.replace(id, old, None),
            Command::ReplaceWith { old, spare } => return self.replace(id, old, Some(spare)),
            // No answer of a member whose node is gone is waited for.
            Command::Remove(member) if parts.alive_role_of(member).is_none() => {
                parts.keeper_mut().nothing_asked(member);
            }
            _ => {}
        }
        parts.with_traffic(|keeper, traffic| keeper.command(id, command, traffic));
    }

    /// Begins to take a node in; the command is answered when it is a member.
    fn add(&mut self, id: CommandId, new: Box<NewMember>) {
        if let Err(why) = self.parts.may_change() {
            return self.parts.out.reply(id, Err(why));
        }
        let facts = self.parts.join_facts();
        self.parts.join(|side| side.add(&facts, id, new));
    }

    /// Begins to replace a member by a spare; by this one if it is named.
    fn replace(&mut self, id: CommandId, old: MemberId, spare: Option<MemberId>) {
        let parts = &mut self.parts;
        let may = parts.may_change().and_then(|()| parts.keeper.view().may_be_copied(old));
        if let Err(why) = may {
            return parts.out.reply(id, Err(why));
        }
        let is_meant = |one: &NewMember| spare.is_none_or(|spare| spare == one.member);
        let new = parts.keeper.view().spares().find(is_meant);
        let role = parts.sessions.list.role_of(old);
        let votes = role.is_some_and(|role| parts.votes_suffice_without(role));
        parts.join(|side| side.replace(id, old, role, votes, new));
    }

    fn takes(&self, request: &Request) -> Result<(), RequestError> {
        let keeper = &self.parts.keeper;
        if !matches!(self.parts.phase, ClientPhase::Running) || keeper.view().is_stopping() {
            return Err(RequestError::Failed);
        }
        request.fits(self.array_sectors(), BLOCK_BYTES)?;
        keeper.view().admits(request.op)
    }
}

impl Machine for Client {
    fn handle(&mut self, now: Instant, event: Event) {
        self.parts.keeper.at(now);
        self.sessions_touched = !matches!(event, Event::Done { .. });
        match event {
            Event::Done { io, result } => {
                let (engine, mut cx) = self.parts.engine_as_is();
                engine.io_done(&mut cx, io, result);
            }
            Event::Command { id, command } => self.command(id, command),
            Event::Tick => self.tick(),
            Event::Fabric(event) => self.fabric(event),
            // The client has no volumes, and loads nothing.
            Event::Volume { .. } | Event::Survey { .. } | Event::Loaded { .. } => {}
        }
        self.drain();
        if self.sessions_touched {
            self.parts.refresh();
        }
    }

    fn poll(&mut self) -> Option<Action> {
        if self.parts.out.is_empty() {
            self.run_ready();
        }
        self.parts.out.pop()
    }

    fn deadline(&self) -> Option<Instant> {
        let Parts { keeper, shared, engine, sessions, ownership, keeper_side, .. } = &self.parts;
        let running = matches!(self.parts.phase, ClientPhase::Running);
        let returns = running && !keeper.view().is_stopping();
        let may_return = self.parts.may_return();
        [
            engine.deadline(shared, keeper.view().now(), running, returns),
            if running { keeper.view().deadline() } else { None },
            sessions.deadline(self.parts.is_starting(), may_return, keeper.view()),
            ownership.deadline(may_return),
            keeper_side.deadline(&self.parts.join_facts()),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn idle(&self) -> bool {
        self.parts.are_idle()
    }

    fn invariants(&self) -> Result<(), String> {
        self.check_all(self.deadline())
    }
}

impl BlockMachine for Client {
    fn submit(&mut self, now: Instant, request: Request) -> Result<(), Full> {
        self.parts.keeper.at(now);
        if self.parts.is_starting() {
            return Err(Full);
        }
        if let Err(error) = self.takes(&request) {
            self.parts.out.push(Action::Complete { id: request.id, result: Err(error) });
            return Ok(());
        }
        let (engine, mut cx) = self.parts.engine_as_is();
        engine.submit(&mut cx, &request);
        self.parts.hear_reports();
        Ok(())
    }

    fn expect_writes(&mut self, more: bool) {
        self.parts.shared.requests.expects_writes = more;
    }

    fn status(&self) -> Status {
        let Parts { keeper, out, sessions, ownership, keeper_side, .. } = &self.parts;
        let mut status = keeper.view().status();
        out.latency.mark(&mut status);
        sessions.list.mark_away(&mut status);
        let address = |role: Role| sessions.list.get(role).address().map(str::to_owned);
        status.view = ownership.status(self.parts.shared.params().nodes, address);
        if let Some(view) = &mut status.view {
            view.absent = keeper_side.absent_status(&self.parts.join_facts());
        }
        status
    }

    fn figures(&self) -> Vec<MemberFigures> {
        let Parts { out, sessions, .. } = &self.parts;
        let members = Role::all(self.parts.shared.params().nodes)
            .filter_map(|role| Some((role, sessions.list.id(role)?)));
        members.map(|(role, member)| out.latency.figures(role, member)).collect()
    }

    fn array_sectors(&self) -> u64 {
        self.parts.shared.pipeline.array_bytes() / SECTOR_BYTES
    }

    fn block_bytes(&self) -> u32 {
        BLOCK_BYTES
    }

    fn read_only(&self) -> bool {
        self.parts.keeper.view().is_read_only()
    }

    fn free_member(&self) -> Option<MemberId> {
        self.parts.keeper.view().free_id()
    }
}
