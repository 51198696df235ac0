//! A client that outlives its nodes, [`FailoverClient`].

mod answered;
mod growth;
mod machine;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;

use braid_array::action::{Command, CommandId, Event};
use braid_array::array::Scratch;
use braid_array::events::ArrayEvent;
use braid_array::request::Full;
use braid_array::status::{Status, SyncStatus};
use braid_array::{
    Action, BlockMachine, Instant, Machine, Op, Refusal, Request, RequestError, RequestId,
};

use crate::client::{Client, ClientConfig};
use crate::ids::Epoch;
use crate::member::VolumeAddress;
use answered::Answered;
use growth::Growth;

/// Pause between two queries for the nodes.
const LOOK_MS: u64 = 200;
/// The same where all nodes are there, as the array only gets another size.
const SHORT_LOOK_MS: u64 = 10;
/// Number of clients that are begun until one serves: changes of another client are resolved once
/// this one has the votes.
const FIRST_CLIENTS: u32 = 3;
/// Id of this machine's own commands to a client, whose answers nobody waits for.
const OWN: CommandId = CommandId(u64::MAX - 4);

/// Looks for the nodes of an array that are away.
pub trait Finder: Debug + Send {
    /// Begins to look at all members of the array, once all connections of the last client are
    /// given up.
    fn look(&mut self, places: Vec<VolumeAddress>);
    /// Returns the configuration to start the array from, or the refusal; `None` as long as there
    /// is nothing new.
    fn found(&mut self) -> Option<Result<ClientConfig, Refusal>>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailoverState {
    /// The first client connects, or one in its place; a refusal is reported to the process that
    /// started it.
    First,
    Serving,
    /// The client abandons everything in flight.
    Ending,
    /// The nodes are looked for; the time of the next query.
    Looking(Instant),
    Starting,
}

/// State while nodes are away that the array needs.
#[derive(Debug)]
struct Away {
    /// Requests fail from then on.
    until: Instant,
    over: bool,
    /// Status of the array when the nodes went away: the members that are away, and those that were
    /// there.
    seen: Status,
    /// Latest reason why the array could not go on, as logged.
    why: Option<Refusal>,
}

/// Serves an array over nodes for as long as its process lives. When more nodes are away than the
/// array can do without, requests wait, and a new [`Client`] goes on once the nodes are back. The
/// failover client owns the client, a [`Finder`], which looks for the nodes, and all unanswered
/// requests.
///
/// ```text
/// First ── nodes are connected ──► Serving
/// Serving ── too many away, or volumes longer ──► Ending
/// Ending ── nothing in flight ──► Looking ── found ──► Starting
///                                    ▲                    │
/// Serving ◄── nodes are connected ───┼────────────────────┤
///                                    └── too few once more, or refused
/// ```
/// The first client, too, is followed by another one when a client of another process has changed
/// the members before the first one was granted the array.
///
/// Order of calls: [`new`](Self::new), [`set_epoch`](Self::set_epoch), then the calls of
/// [`Machine`] and [`BlockMachine`], as of a client. Between two clients `submit` takes requests
/// and holds them, and commands of the last client are refused when the next one begins. Once nodes
/// have been away for `fail_timeout_ms` milliseconds the held requests fail, and further ones at
/// once, until a client serves again.
///
/// The client abandons the array in the same way as one that dies, and the next one takes it over
/// by the same rules ([`takeover`](crate::client)), so nothing here decides which data is kept. In
/// addition, requests outlive the client: unanswered ones are given to the next client. Answered
/// requests that were not flushed may be gone, if nodes have lost their memories. Then the next
/// flush that came after all of these fails, once, as does any flush that waited meanwhile. If a
/// client of another process has had the array meanwhile, this one ends: programs above rely on
/// data that the other one may have changed.
#[derive(Debug)]
pub struct FailoverClient {
    client: Client,
    scratch: Scratch,
    finder: Box<dyn Finder>,
    fail_timeout_ms: u64,
    now: Instant,
    epoch_micros: u64,
    state: FailoverState,
    away: Option<Away>,
    /// Requests that waited when this client began to serve. If the client ends before they are
    /// answered, they get no more time than before: the time limit, and the reason for the wait.
    late: BTreeSet<RequestId>,
    before: Option<(Instant, Option<Refusal>)>,
    /// Before the array is served for the first time: the number of clients that may begin anew,
    /// and the time limit.
    anew: (u32, Instant),
    /// Events of the client before it served; dropped if it never does.
    unsaid: Vec<ArrayEvent>,
    /// Requests that the client has taken.
    taken: BTreeMap<RequestId, TakenRequest>,
    /// Requests that wait for a client, each with the number of requests answered before it came.
    held: VecDeque<(Request, u64)>,
    commands: Vec<CommandId>,
    actions: VecDeque<Action>,
    answered: Answered,
    /// Epochs of clients that found a loss of answered requests, and ended before they served. A
    /// later client finds all nodes as such a client has recorded them.
    lossy: BTreeSet<Epoch>,
    growth: Growth,
}

/// A request under way.
#[derive(Debug)]
struct TakenRequest {
    request: Request,
    /// Number of requests answered before it came.
    before: u64,
    /// Number of requests answered before the client took it.
    answered: u64,
}

impl FailoverClient {
    /// Serves an array; see [`Client::new`]. Once nodes have been away for this long, waiting and
    /// new requests fail.
    ///
    /// # Errors
    /// As `Client::new`.
    pub fn new(
        config: ClientConfig,
        scratch: Scratch,
        finder: Box<dyn Finder>,
        fail_timeout_ms: u64,
    ) -> Result<Self, String> {
        Ok(Self {
            client: Client::new(config, scratch)?,
            scratch,
            finder,
            fail_timeout_ms,
            now: Instant::default(),
            epoch_micros: 0,
            state: FailoverState::First,
            away: None,
            late: BTreeSet::new(),
            before: None,
            anew: (FIRST_CLIENTS - 1, Instant::default()),
            unsaid: Vec::new(),
            taken: BTreeMap::new(),
            held: VecDeque::new(),
            commands: Vec::new(),
            actions: VecDeque::new(),
            answered: Answered::default(),
            lossy: BTreeSet::new(),
            growth: Growth::Rest,
        })
    }

    /// Sets the time of `Instant(0)`, in microseconds since 1970.
    pub const fn set_epoch(&mut self, micros: u64) {
        self.epoch_micros = micros;
        self.client.set_epoch(micros);
    }

    fn complete(&mut self, id: RequestId, result: Result<(), RequestError>) {
        self.not_late(id);
        self.actions.push_back(Action::Complete { id, result });
    }

    /// Notes that a request is answered.
    fn not_late(&mut self, id: RequestId) {
        self.late.remove(&id);
        self.before.take_if(|_| self.late.is_empty());
    }

    /// Passes an action of the client on, if it concerns others.
    fn pass_on(&mut self, action: Action) -> Option<Action> {
        match action {
            Action::Complete { id, result } => {
                let taken = self.taken.remove(&id)?;
                let result = self.completed(taken, result)?;
                self.not_late(id);
                Some(Action::Complete { id, result })
            }
            Action::Reply { id: OWN, .. } => None,
            Action::Reply { id, result } => {
                self.commands.retain(|command| *command != id);
                let grown = matches!(self.growth, Growth::Asked(asked) if asked == id);
                if grown && self.client.is_at_rest() && !self.client.is_stopping() {
                    self.growth = Growth::Over(id, result);
                    return None;
                }
                if grown {
                    self.growth = Growth::Rest;
                }
                Some(Action::Reply { id, result })
            }
            // It was said when they went away.
            Action::Notify(ArrayEvent::ArrayFailed) if self.away.is_some() => None,
            Action::Notify(ArrayEvent::TakenOver) => Some(action),
            Action::Notify(event) if self.begins_anew() || self.starts_again() => {
                self.unsaid.push(event);
                None
            }
            _ => Some(action),
        }
    }

    /// Takes the client's result of a request; returns `None` when the request waits for the next
    /// client.
    fn completed(
        &mut self,
        TakenRequest { request, before, answered }: TakenRequest,
        result: Result<(), RequestError>,
    ) -> Option<Result<(), RequestError>> {
        let away = match self.state {
            FailoverState::First => false,
            FailoverState::Serving => self.client.has_too_few(),
            FailoverState::Ending | FailoverState::Looking(_) | FailoverState::Starting => true,
        };
        if away && result == Err(RequestError::Failed) {
            if self.has_waited_long() {
                return Some(result);
            }
            self.held.push_back((request, before));
            return None;
        }
        match request.op {
            Op::Flush if result.is_ok() => self.answered.flushed(answered),
            Op::Write { fua: false } | Op::WriteZeroes { fua: false, .. } | Op::Discard => {
                self.answered.add();
            }
            _ => {}
        }
        Some(result)
    }

    /// Executes a step that is due; returns false when none was.
    fn advance(&mut self) -> bool {
        match self.state {
            FailoverState::Serving
                if self.client.has_too_few() || matches!(self.growth, Growth::Over(..)) =>
            {
                let first = || (self.now.plus_millis(self.fail_timeout_ms), None);
                let (until, why) = self.before.take().unwrap_or_else(first);
                let over = false;
                let seen = self.client.status();
                self.away = Some(Away { until, over, seen, why });
                self.end_client();
            }
            FailoverState::First if self.begins_anew() => {
                self.anew = (self.anew.0 - 1, self.now.plus_millis(self.fail_timeout_ms));
                self.retire();
            }
            FailoverState::First if self.client.is_set_up() && !self.client.has_too_few() => {
                self.state = FailoverState::Serving;
            }
            FailoverState::First | FailoverState::Serving => {
                return !self.client.holds_requests() && self.submit_held();
            }
            FailoverState::Ending | FailoverState::Looking(_) if self.client.is_stopping() => {
                let any = !self.held.is_empty();
                self.actions.extend(self.growth.answer());
                self.fail_held();
                return any;
            }
            FailoverState::Ending if self.client.has_retired() => {
                self.finder.look(self.client.places());
                self.state = FailoverState::Looking(self.next_look());
            }
            FailoverState::Starting if self.client.has_too_few() => {
                if !braid_array::broken("loss-passed-on") {
                    self.lossy.extend(self.client.lossy_epoch(&self.lossy));
                }
                self.end_client();
            }
            FailoverState::Starting if self.client.is_set_up() => {
                let lossy = std::mem::take(&mut self.lossy);
                if !self.client.has_kept_all(&lossy) {
                    self.answered.forget_memory();
                }
                self.state = FailoverState::Serving;
                self.late = self.held.iter().map(|(request, _)| request.id).collect();
                let before = self.away.take().map(|away| (away.until, away.why));
                self.before = if self.late.is_empty() { None } else { before };
                self.say_unsaid();
                self.actions.extend(self.growth.answer());
            }
            FailoverState::Ending | FailoverState::Looking(_) | FailoverState::Starting => {
                return false;
            }
        }
        true
    }

    /// Returns whether another client has changed the members before this one was granted the
    /// array, so that a new client has to begin.
    const fn begins_anew(&self) -> bool {
        self.client.is_outdated() && (self.away.is_some() || self.anew.0 > 0)
    }

    /// Returns whether it is still uncertain that this client continues where the last one ended.
    fn starts_again(&self) -> bool {
        self.away.is_some() && (!self.client.is_set_up() || self.client.has_too_few())
    }

    /// Ends a client that cannot go on; its refusal may have another reason than absent nodes.
    fn end_client(&mut self) {
        if let Some(why) = self.client.refused().cloned() {
            self.waits(why);
        }
        self.retire();
    }

    fn retire(&mut self) {
        self.client.retire();
        self.state = FailoverState::Ending;
    }

    /// Fails waiting requests whose time is up, and asks for the nodes.
    fn tick(&mut self) {
        if let Some(away) = self.away.as_mut().filter(|away| !away.over && away.until <= self.now) {
            away.over = true;
            self.actions.extend(self.growth.answer());
            self.fail_held();
        }
        if matches!(self.state, FailoverState::Looking(_))
            && self.away.is_none()
            && self.anew.1 <= self.now
        {
            // Whoever waits for the array hears what stood against it.
            self.say_unsaid();
            (self.state, self.anew.0) = (FailoverState::First, 0);
        }
        if matches!(self.state, FailoverState::Looking(at) if at <= self.now) {
            self.state = FailoverState::Looking(self.next_look());
            match self.finder.found() {
                Some(Ok(config)) => self.start(config),
                Some(Err(why)) => self.waits(why),
                None => {}
            }
        }
    }

    fn grow(&mut self, id: CommandId, sectors: u64) {
        if !self.is_serving() {
            self.commands.retain(|command| *command != id);
            let why = Refusal::new("the array waits for its nodes", "try again when they are back");
            self.actions.push_back(Action::Reply { id, result: Err(why) });
            return;
        }
        self.growth.ask(id);
        self.client.grow(self.now, id, sectors);
    }

    fn next_look(&self) -> Instant {
        let grows = matches!(self.growth, Growth::Over(..));
        self.now.plus_millis(if grows { SHORT_LOOK_MS } else { LOOK_MS })
    }

    fn say_unsaid(&mut self) {
        let unsaid = std::mem::take(&mut self.unsaid).into_iter().map(Action::Notify);
        self.actions.extend(unsaid);
    }

    /// Notes the reason why the array does not go on. A new reason is reported.
    fn waits(&mut self, why: Refusal) {
        let Some(away) = &mut self.away else { return };
        if away.why.as_ref() != Some(&why) {
            away.why = Some(why.clone());
            let Refusal { reason, next } = why;
            let waits = ArrayEvent::Waits { reason: reason.into(), next };
            self.actions.push_back(Action::Notify(waits));
        }
    }

    fn fail_held(&mut self) {
        for (request, _) in std::mem::take(&mut self.held) {
            self.complete(request.id, Err(RequestError::Failed));
        }
    }

    /// Starts a new client, which takes the array over from the last one.
    fn start(&mut self, config: ClientConfig) {
        let config = self.client.followed_by(config);
        let Ok(mut client) = Client::new(config, self.scratch) else {
            return self.finder.look(self.client.places());
        };
        for id in std::mem::take(&mut self.commands) {
            let why = Refusal::new("the array was started anew meanwhile", "ask for it again");
            self.actions.push_back(Action::Reply { id, result: Err(why) });
        }
        if matches!(self.growth, Growth::Asked(_)) {
            self.growth = Growth::Rest;
        }
        client.set_epoch(self.epoch_micros);
        client.handle(self.now, Event::Tick);
        for command in in_force(&self.client.status().sync) {
            client.handle(self.now, Event::Command { id: OWN, command });
        }
        self.client = client;
        self.unsaid.clear();
        self.state =
            if self.away.is_some() { FailoverState::Starting } else { FailoverState::First };
    }

    /// Gives the client the waiting requests.
    fn submit_held(&mut self) -> bool {
        let mut any = false;
        while let Some((request, before)) = self.held.pop_front() {
            if self.pass_in(request, before).is_err() {
                self.held.push_front((request, before));
                break;
            }
            any = true;
        }
        any
    }

    /// Gives the client a request. `before`: the number of requests answered before it came.
    fn pass_in(&mut self, request: Request, before: u64) -> Result<(), Full> {
        if request.op == Op::Flush && self.answered.tell_of_loss(before) {
            self.complete(request.id, Err(RequestError::Failed));
            return Ok(());
        }
        self.client.submit(self.now, request)?;
        let answered = self.answered.count();
        self.taken.insert(request.id, TakenRequest { request, before, answered });
        Ok(())
    }

    const fn is_serving(&self) -> bool {
        matches!(self.state, FailoverState::First | FailoverState::Serving)
    }
}

/// Returns the commands that have the next client keep to the limits of background work, and the
/// pause, that are in force.
fn in_force(sync: &SyncStatus) -> Vec<Command> {
    let limits = Command::SpeedLimits {
        min_bytes_s: Some(sync.min_bytes_per_s),
        max_bytes_s: Some(sync.max_bytes_per_s.unwrap_or(u64::MAX)),
    };
    let pause = sync.paused.then_some(Command::Pause(true));
    [limits].into_iter().chain(pause).collect()
}

/// Answer to whether an array was granted to the client that is to serve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArrayGrant {
    NotYet,
    Yes,
    Never,
}

impl FailoverClient {
    /// Returns whether the array has been granted to a client.
    pub(crate) fn granted(&self) -> ArrayGrant {
        match self.state {
            FailoverState::Serving => ArrayGrant::Yes,
            FailoverState::First if self.client.is_set_up() && !self.begins_anew() => {
                ArrayGrant::Never
            }
            _ => ArrayGrant::NotYet,
        }
    }

    /// Returns whether it waits for its nodes.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.away.is_some()
    }

    /// Returns whether it has waited for them for so long that requests fail.
    pub(crate) fn has_waited_long(&self) -> bool {
        self.away.as_ref().is_some_and(|away| away.over)
    }
}
