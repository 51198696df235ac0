//! The machine that serves one array over nodes, [`Client`]: its keeper, and the lane *nodes*.
//!
//! It plans everything. Writes are gathered by slice of a stripe ([`gather`]) and go out as
//! slice-sets ([`write`], [`sets`]); reads go to the nodes that hold the data, or to others whose
//! sum gives it back ([`read`], [`decode`]). [`setup`] connects. Who the members are, what the
//! superblocks say, background work and commands are the keeper's; [`carry_out`], [`work`] and
//! [`compare`] carry that out.

mod absent;
mod carry_out;
mod compare;
mod config;
mod decision;
mod decode;
mod departed;
mod extent;
mod filling;
mod flush;
mod foretell;
mod gather;
mod invariants;
mod journal;
mod letting_go;
mod losing;
mod messages;
mod mix;
mod newcomer;
mod pace;
mod parts;
mod presence;
mod read;
mod read_back;
mod refused;
mod rejoin;
mod requests;
mod reread;
mod restore;
mod sets;
mod setup;
mod share;
mod silence;
mod space;
mod spare;
mod staging;
mod step;
mod takeover;
#[cfg(test)]
mod tests;
mod voters;
mod witnesses;
mod work;
mod write;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use braid_array::action::{Command, CommandId, Event};
use braid_array::array::Scratch;
use braid_array::fabric::{FabricEvent, FabricOp};
use braid_array::keeper::{Keeper, MetaWrite, Redundancy, Rules, SyncSpace};
use braid_array::request::Full;
use braid_array::status::Status;
use braid_array::{
    Action, BlockMachine, Buf, Compute, Instant, IoError, IoId, Machine, MemberId, Outcome,
    Refusal, Request, RequestError, RequestId, SECTOR_BYTES,
};

use crate::member;
pub use crate::member::{ClientMember, Found};
use crate::pipeline::{Params, Pipeline};
use crate::schedule::Planner;
use crate::set::WriteStrategy;
use crate::wire::Message;
use braid_array::code::Cell;
use compare::Compare;
pub use config::{ClientConfig, NODE_TIMEOUT_MS, SPARE_PATIENCE_MS};
use decode::Decodes;
use extent::Piece;
use flush::Flush;
pub use foretell::{Voter, foretell, witnesses as witnesses_of};
use gather::Gather;
use journal::Journals;
use mix::Mix;
use pace::{LatencyTracker, TimedOperation};
use requests::{Pending, Zeroing};
use sets::OpenSet;
use setup::Link;
use share::Share;
use space::Space;
use staging::Staging;
use takeover::Takeover;
pub use witnesses::MAX_WITNESSES;
use witnesses::Witnesses;
use work::Task;
use write::PendingSet;

/// Requests are multiples of this.
const BLOCK_BYTES: u32 = 4096;

/// What the keeper has to know; a quarter of the positions is left to users whatever it does.
fn rules(params: &Params, forced: bool) -> Rules {
    Rules::over_nodes(4.max(usize::from(params.wide.count) * 3 / 4), forced)
}

/// A slice of a stripe: the stripe, and the number of the slice in its blocks.
type Key = (u64, u32);

/// What goes on in a slice of a stripe.
#[derive(Debug, Default)]
struct Area {
    /// Slice-sets that are open or wait to be opened.
    sets: u32,
    /// It is one of the whole stripe.
    whole: bool,
    /// Decodings under way.
    readers: u32,
    /// Slice-sets that are being stored: their requests are answered.
    going: u32,
    /// Reads that wait until they are stored.
    late_reads: Vec<Piece>,
    /// Writes that come next, in order.
    gathers: VecDeque<Gather>,
    /// It is in the list of areas to look at.
    listed: bool,
}

/// What an I/O in flight is for.
#[derive(Clone, Copy, Debug)]
enum IoPurpose {
    /// A slice is being sent.
    Put { position: u16 },
    /// The pieces of a slice are being put together.
    Copy { position: u16 },
    /// A parity is being formed: the number of its equation.
    Sum { position: u16, equation: usize },
    /// A step of a decoding.
    Decode { job: u32 },
    /// A step of a comparison.
    Compare { key: Key },
    /// The same of what was copied.
    ReadBack,
}

/// What a message to a node asks.
#[derive(Clone, Copy, Debug)]
enum RequestKind {
    Grant,
    /// What it is in the order of views.
    StoreView((u32, u32)),
    ListLeftovers,
    /// What lies on its volume now.
    Reread,
    ResolveLeftovers,
    OpenVolume,
    OpenPipeline,
    Connect,
    /// The number of the flush.
    Flush(u32),
    /// For the keeper's update.
    Meta,
    /// For the use of all of its ring, or to take memory back.
    LeaseRing,
    ReturnRing,
    /// Of a node that comes back.
    Return,
    /// To take one in that comes back.
    Rewire,
    /// What the journal holds, or to store or forget that.
    Journal,
    /// To store a block that is copied: its number.
    StoreCopied(u32),
    /// Whether it is there.
    Ping,
}

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
    pipeline: Pipeline,
    keeper: Keeper,
    space: Space,
    phase: Phase,
    takeover: Takeover,
    journals: Journals,
    looks: bool,
    actions: VecDeque<Action>,
    links: Vec<Link>,
    node_timeout_ms: u64,
    questions: BTreeMap<u32, (u16, RequestKind)>,
    /// What members are told when voters have noted who was lost.
    untold: VecDeque<MetaWrite>,
    next_peer: u32,
    /// A node that comes back is being wired to the others.
    wiring: Option<rejoin::Wiring>,
    /// A node that is to be of the array.
    newcomer: Option<newcomer::Newcomer>,
    /// What is copied to it, if it is to take the place of a member that serves.
    filling: filling::Filling,
    read_back: read_back::ReadBack,
    absents: absent::Absents,
    departed: departed::Departed,
    spares: spare::Spares,
    witnesses: Witnesses,
    next_tag: u32,
    ios: BTreeMap<IoId, IoPurpose>,
    next_io: u64,
    requests: BTreeMap<RequestId, Pending>,
    zeroing: VecDeque<Zeroing>,
    /// Where the latest writes began and ended.
    latest: VecDeque<(u64, u64)>,
    areas: BTreeMap<Key, Area>,
    /// Areas with writes that may begin.
    listed: VecDeque<Key>,
    /// Slice-sets that wait for a position: whole slices, short ranges.
    jobs: [VecDeque<PendingSet>; 2],
    /// Which of them comes first.
    first_kind: usize,
    /// Free positions of either kind, those longest free first.
    free: [VecDeque<u16>; 2],
    share: Share,
    generations: Vec<u32>,
    open: BTreeMap<u16, OpenSet>,
    version: u64,
    /// Puts that have not been answered.
    unsent: usize,
    mix: Mix,
    pace: LatencyTracker,
    /// Somebody vouches for the sums of what was not stopped cleanly.
    forced: bool,
    /// Pairs of nodes that are not connected and should be.
    cut_off: BTreeSet<(u16, u16)>,
    decodes: Decodes,
    flushes: BTreeMap<u32, Flush>,
    /// Background work whose slices are not free yet, and what is under way, by its slice.
    waiting_work: VecDeque<Task>,
    working: BTreeMap<Key, Task>,
    compares: BTreeMap<Key, Compare>,
    staging: Staging,
    zeroes: Buf,
}

/// What is left behind the first bytes.
fn behind(scratch: Scratch, bytes: u32) -> Scratch {
    let bytes = u64::from(bytes);
    Scratch { offset: scratch.offset + bytes, bytes: scratch.bytes.saturating_sub(bytes) }
}

impl Client {
    /// Bytes of the arena that the machine needs for itself.
    #[must_use]
    pub fn scratch_bytes(config: &ClientConfig) -> u64 {
        let params = &config.params;
        let Ok(code) = params.family.code(params.nodes, 0) else { return 0 };
        let (data, sums) = (code.data().len() as u64, code.equations().len() as u64);
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
        let zeroes = Buf { offset: scratch.offset, len: params.wide.bytes };
        let (wide, narrow) = (0..pipeline.positions()).partition(|&p| p < params.wide.count);
        let space = Space::new(&pipeline).map_err(|error| error.to_string())?;
        let forced = (config.force || config.looks) && member::vouched_for(&config.members);
        let kept = config.kept().ok_or("an array has members")?;
        let takeover = Takeover::new(kept.superblock.set_uuid, &config);
        let journals = Journals::new(params.nodes, &kept.superblock);
        let keeper = member::keeper(kept, Box::new(space.clone()), rules(&params, forced))?;
        let named = if config.read_only || config.looks { Vec::new() } else { config.witnesses };
        let mut client = Self {
            keeper,
            space,
            phase: Phase::Setup,
            takeover,
            journals,
            looks: config.looks,
            actions: VecDeque::new(),
            links: Link::all(config.members, params.reads.count),
            node_timeout_ms: config.node_timeout_ms,
            questions: BTreeMap::new(),
            untold: VecDeque::new(),
            next_peer: config.first_peer,
            wiring: None,
            newcomer: None,
            filling: filling::Filling::default(),
            read_back: read_back::ReadBack::default(),
            absents: absent::Absents::new(config.absent, config.not_in),
            departed: departed::Departed::default(),
            spares: spare::Spares::new(config.spare_patience_ms),
            witnesses: Witnesses::new(params.nodes, named),
            next_tag: 1,
            ios: BTreeMap::new(),
            next_io: 0,
            requests: BTreeMap::new(),
            zeroing: VecDeque::new(),
            latest: VecDeque::new(),
            areas: BTreeMap::new(),
            listed: VecDeque::new(),
            jobs: [VecDeque::new(), VecDeque::new()],
            first_kind: 0,
            free: [wide, narrow],
            share: Share::default(),
            generations: vec![0; usize::from(pipeline.positions())],
            open: BTreeMap::new(),
            version: 0,
            unsent: 0,
            mix,
            pace: LatencyTracker::new(params.nodes),
            forced,
            cut_off: BTreeSet::new(),
            decodes: Decodes::default(),
            flushes: BTreeMap::new(),
            waiting_work: VecDeque::new(),
            working: BTreeMap::new(),
            compares: BTreeMap::new(),
            staging: Staging::new(behind(scratch, zeroes.len), zeroes.len),
            zeroes,
            pipeline,
        };
        client.begin();
        Ok(client)
    }

    /// Tells what time `Instant(0)` was, in microseconds since 1970.
    pub const fn set_epoch(&mut self, micros: u64) {
        self.keeper.set_epoch(micros);
    }

    fn params(&self) -> &Params {
        self.pipeline.params()
    }

    const fn slice_bytes(&self) -> u32 {
        self.pipeline.params().wide.bytes
    }

    /// Length of this slice of a block: the last one may be shorter.
    fn slice_len(&self, slice: u32) -> u32 {
        let start = slice * self.slice_bytes();
        (self.params().chunk_bytes - start).min(self.slice_bytes())
    }

    /// What the keeper calls the member of a role that is there.
    fn member_id(&self, role: u16) -> MemberId {
        self.links[usize::from(role)].id.unwrap_or(MemberId(u16::MAX))
    }

    fn alive(&self, role: u16) -> bool {
        self.links[usize::from(role)].alive()
    }

    /// Is the node of this role there, with all that it is to hold?
    fn readable(&self, role: u16) -> bool {
        self.alive(role) && self.keeper.is_in_sync(role)
    }

    /// Can anything be lost?
    fn redundant(&self) -> bool {
        self.space.redundancy() != Redundancy::None
    }

    /// Nothing may change any more.
    fn writes_over(&self) -> bool {
        self.keeper.writes_over() || self.keeper.has_failed()
    }

    /// The roles whose nodes are missing or lost, or do not have all of theirs yet.
    fn lost(&self) -> Vec<u16> {
        (0..self.params().nodes).filter(|&role| !self.readable(role)).collect()
    }

    fn io(&mut self, what: IoPurpose) -> IoId {
        let io = IoId(self.next_io);
        self.next_io += 1;
        self.ios.insert(io, what);
        io
    }

    fn send(&mut self, role: u16, message: &Message) {
        let bytes = message.encode(self.params().epoch);
        let peer = self.links[usize::from(role)].peer;
        self.actions.push_back(Action::Fabric(FabricOp::Send { peer, bytes }));
    }

    /// Sends a message that is answered with its tag.
    fn ask(&mut self, role: u16, question: RequestKind, message: impl FnOnce(u32) -> Message) {
        self.keeper.asked(self.member_id(role));
        self.ask_uncounted(role, question, message);
    }

    /// The same of a node that is no member now.
    fn ask_uncounted(
        &mut self,
        role: u16,
        question: RequestKind,
        message: impl FnOnce(u32) -> Message,
    ) {
        let tag = self.next_tag;
        self.next_tag = self.next_tag.wrapping_add(1);
        self.questions.insert(tag, (role, question));
        if matches!(question, RequestKind::Flush(_) | RequestKind::Meta) {
            self.pace.asked(role, TimedOperation::Request(tag), self.keeper.now());
        }
        self.send(role, &message(tag));
    }

    fn sum(&mut self, what: IoPurpose, inputs: Vec<Buf>, coefs: Vec<u8>, output: Buf) {
        let io = self.io(what);
        let compute = Compute::Sum { inputs, coefs, outputs: vec![output], accumulate: false };
        self.actions.push_back(Action::Compute { io, compute });
    }

    /// Adds a buffer to another.
    fn sum_into(&mut self, what: IoPurpose, input: Buf, to: Buf) {
        let io = self.io(what);
        let (inputs, outputs) = (vec![input], vec![to]);
        let compute = Compute::Sum { inputs, coefs: vec![1], outputs, accumulate: true };
        self.actions.push_back(Action::Compute { io, compute });
    }

    fn io_done(&mut self, io: IoId, result: Result<Outcome, IoError>) {
        match self.ios.remove(&io) {
            Some(IoPurpose::Put { position }) => self.put_done(position),
            Some(IoPurpose::Copy { position }) => self.copy_done(position),
            Some(IoPurpose::Sum { position, equation }) => self.parity_done(position, equation),
            Some(IoPurpose::Decode { job }) => self.decode_step_done(job),
            Some(IoPurpose::Compare { key }) => self.compare_step_done(key, result),
            Some(IoPurpose::ReadBack) => self.read_back_compared(result),
            None => {}
        }
    }

    /// Goes on with what waited for superblocks to tell of those who were lost; was there any?
    fn go_on_told(&mut self) -> bool {
        if !self.losses_told() {
            return false;
        }
        let went_on = self.advance_held();
        let numbers: Vec<u32> = self.flushes.keys().copied().collect();
        let before = self.flushes.len();
        numbers.into_iter().for_each(|number| self.end_flush(number));
        went_on || self.flushes.len() < before
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

    /// Does whatever can be done without waiting.
    fn run_ready(&mut self) {
        if matches!(self.phase, Phase::Setup | Phase::Stopped) {
            return;
        }
        self.work_on_zeroes();
        loop {
            self.start_gathers();
            if !self.drive_keeper() && !self.trim_journals() && !self.start_decodes() {
                break;
            }
        }
        self.forget_removed();
        self.record_changes();
        self.drop_leftovers();
        self.settle_departed();
        self.look_at_pace();
        self.send_goes();
        self.wire_returned();
        self.fill();
        self.send_reads();
        self.look_at_share();
    }

    /// Nothing that the exports asked for is under way.
    fn quiet(&self) -> bool {
        self.requests.is_empty() && self.no_sets() && self.flushes.is_empty()
    }

    fn no_sets(&self) -> bool {
        self.open.is_empty() && self.jobs.iter().all(VecDeque::is_empty)
    }

    /// No write is under way that has not been answered.
    fn all_answered(&self) -> bool {
        !self.open.values().any(OpenSet::is_unanswered) && self.jobs.iter().all(VecDeque::is_empty)
    }
}

impl Machine for Client {
    fn handle(&mut self, now: Instant, event: Event) {
        self.keeper.at(now);
        match event {
            Event::Done { io, result } => self.io_done(io, result),
            Event::Command { id, command } => self.command(id, command),
            Event::Tick => {
                self.setup_tick();
                self.return_tick();
                self.look_for_absent();
                self.look_for_departed();
                self.use_spares();
                self.look_for_witnesses();
                self.look_for_silence();
                if matches!(self.phase, Phase::Running) {
                    self.keeper.tick();
                    self.carry_out();
                }
            }
            Event::Fabric(event) => self.fabric(event),
            // The client has no volumes, and loads nothing.
            Event::Volume { .. } | Event::Survey { .. } | Event::Loaded { .. } => {}
        }
    }

    fn poll(&mut self) -> Option<Action> {
        if self.actions.is_empty() {
            self.run_ready();
        }
        self.actions.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let due =
            |key: &Key| self.areas.get(key)?.gathers.front()?.patience.next(self.keeper.now());
        let gathers = self.listed.iter().filter_map(due);
        let running = matches!(self.phase, Phase::Running);
        let keeper = self.keeper.deadline().filter(|_| running);
        let returns = self
            .return_deadline()
            .into_iter()
            .chain(self.absent_deadline())
            .chain(self.departed_deadline())
            .chain(self.spare_deadline());
        let own = [self.setup_deadline(), self.silence_deadline(), self.witness_deadline(), keeper];
        let returns = returns.chain(self.share_deadline());
        gathers.chain(own.into_iter().flatten()).chain(returns).min()
    }

    fn idle(&self) -> bool {
        self.actions.is_empty()
            && self.ios.is_empty()
            && self.quiet()
            && self.questions.is_empty()
            && self.read_back.buffers() == 0
            && self.keeper.is_idle()
    }

    fn invariants(&self) -> Result<(), String> {
        self.check_all()
    }
}

impl BlockMachine for Client {
    fn submit(&mut self, now: Instant, request: Request) -> Result<(), Full> {
        self.keeper.at(now);
        match self.phase {
            Phase::Setup => Err(Full),
            _ => {
                self.take_request(request);
                Ok(())
            }
        }
    }

    fn status(&self) -> Status {
        let mut status = self.keeper.status();
        self.mark_slow(&mut status);
        self.mark_refused(&mut status);
        status.view = self.view_status();
        status
    }

    fn array_sectors(&self) -> u64 {
        self.pipeline.array_bytes() / SECTOR_BYTES
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
