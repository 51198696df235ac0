//! The sessions with the nodes, [`Sessions`].

mod answer;
pub(super) mod judge;
mod list;
mod moves;
pub(super) mod negotiation;
mod presence;
pub(super) mod session;
#[cfg(test)]
mod tests;
mod wiring;

use std::collections::VecDeque;
use std::sync::Arc;

use braid_array::fabric::FabricEvent;
use braid_array::figures::OperationKind;
use braid_array::keeper::{KeeperView, LaneReport};
use braid_array::{Instant, Refusal, Role};

use super::ClientMember;
use super::latency::{Done, TimedOperation};
use super::out::{ClientOut, RequestKind};
use super::retry::{PATIENCE_MILLIS, RETRY_MILLIS};
use super::session_key::SessionKey;
use crate::ids::{Epoch, SetVersion};
use crate::pipeline::Params;
use crate::wire::Message;
pub(super) use answer::Answer;
use list::List;
use negotiation::{AnswerKind, Negotiation, NegotiationStep, Next, Purpose, next};
use presence::silent;
use session::{Before, Session, SessionState};
use wiring::Wiring;

/// Additional silence that is tolerated at the start. When two nodes do not see each other, the one
/// that dials reports that and is failed. The other may be silent for this much longer, and answers
/// once it learns of the failure.
const SILENT_MILLIS: u64 = 1000;
const NETWORK: &str = "look at the network between the nodes";

/// Facts that negotiations depend on.
#[derive(Clone, Debug)]
pub(super) struct NegotiationFacts {
    /// The array's id.
    pub(super) array: [u8; 16],
    pub(super) params: Params,
    /// Version up to which journals need not hold records.
    pub(super) mark: SetVersion,
    /// Records of the last client that count: those above a version, without these.
    pub(super) decided: Option<Arc<(SetVersion, Vec<SetVersion>)>>,
    /// The latest version of a slice-set.
    pub(super) version: u64,
    /// The array is being started.
    pub(super) starting: bool,
    /// Nodes may come back now.
    pub(super) may_return: bool,
}

/// Context of each call of the sessions: the queue for messages, and the keeper, which counts the
/// answers that members owe.
#[derive(Debug)]
pub(super) struct Net<'a> {
    pub(super) keeper: KeeperView<'a>,
    pub(super) out: &'a mut ClientOut,
    pub(super) facts: NegotiationFacts,
}

impl Net<'_> {
    pub(super) fn now(&self) -> Instant {
        self.keeper.now()
    }
}

/// Event of the sessions for other machines.
#[derive(Debug)]
pub(super) enum SessionEvent {
    /// A session rests at a step; others decide when it continues.
    Holds { key: SessionKey, step: NegotiationStep },
    /// An answer in a negotiation needs a judgement.
    Judge { key: SessionKey, answer: Answer },
    /// A member is ready.
    Ready,
    /// A joining node is wired to the others, or is not.
    Wired { key: SessionKey, ok: bool },
    /// The visit of a node is over.
    Over,
    /// An attempt to add a node has failed: the reason, if there is one.
    Failed { key: SessionKey, why: Option<Refusal> },
    /// The connection to a member is over.
    Lost { role: Role, why: Refusal },
    /// A member, or its storage, does not answer.
    Silent { key: SessionKey, why: Refusal },
    /// A node answers a request of another machine.
    Answered { key: SessionKey, kind: RequestKind, answer: Answer },
    /// Another client was granted this epoch; with the request that this answers, if there is one.
    Outvoted { key: SessionKey, kind: Option<RequestKind>, granted: Epoch },
}

/// The sessions with all nodes: one for each role, one with a node to which a member is copied, and
/// two for visits, to a node whose member is absent and to one whose member has left. This machine
/// negotiates ([`negotiation`]), wires the nodes to each other, and pings them. Others decide the
/// nodes and the purpose of negotiations; the results leave as [`SessionEvent`]s.
///
/// Order of calls: `begin`; `event` and `message` for input from a node, and `tick` at `deadline`;
/// `next_event` after each, until there is none.
#[derive(Debug)]
pub(super) struct Sessions {
    pub(super) list: List,
    /// Only inspects: asks for no votes, takes nothing over, and changes nothing.
    looks: bool,
    /// A node that owes an answer is failed after this much silence, in milliseconds.
    timeout_ms: u64,
    wiring: Option<Wiring>,
    events: VecDeque<SessionEvent>,
}

impl Sessions {
    pub(super) fn new(members: Vec<Option<ClientMember>>, looks: bool, timeout_ms: u64) -> Self {
        let list = List::new(members);
        Self { list, looks, timeout_ms, wiring: None, events: VecDeque::new() }
    }

    /// Returns whether the client only inspects: changes nothing, and takes the array over from no
    /// client.
    pub(super) const fn looks(&self) -> bool {
        self.looks
    }

    pub(super) const fn is_wiring(&self) -> bool {
        self.wiring.is_some()
    }

    pub(super) fn next_event(&mut self) -> Option<SessionEvent> {
        self.events.pop_front()
    }

    /// Connects to every member.
    pub(super) fn begin(&mut self, net: &mut Net<'_>) {
        let purpose = if self.looks { Purpose::Look } else { Purpose::Start };
        for key in self.list.roles().map(SessionKey::Member) {
            self.dial(net, key, purpose);
        }
    }

    /// Wires all nodes, which are prepared. A client that only inspects needs no wires.
    pub(super) fn wire_all(&mut self, net: &mut Net<'_>) {
        for key in self.list.roles().map(SessionKey::Member) {
            if self.list.alive(key) && self.looks {
                self.list.get_mut(key).state = SessionState::Ready;
                self.tell(SessionEvent::Ready);
            } else if self.list.alive(key) {
                self.go_on(net, key, NegotiationStep::Wiring);
            }
        }
    }

    /// Wires the next prepared node; nodes are wired one after the other. `over` returns whether no
    /// slice-set up to a version can reach the node any more.
    pub(super) fn wire_next(&mut self, net: &mut Net<'_>, over: impl Fn(u64) -> bool) {
        if self.wiring.is_some() {
            return;
        }
        let may = |session: &Session| {
            session.is_coming_at(NegotiationStep::Prepared) && over(session.lost_at)
        };
        let Some(key) = self.list.member_keys().find(|&key| may(self.list.get(key))) else {
            return;
        };
        let place = self.list.place(key);
        if key == SessionKey::CopyTarget && !place.is_some_and(|place| self.list.alive(place)) {
            return self.fail(net, key, None);
        }
        self.wire(net, key);
    }

    /// Handles a fabric event of a session.
    pub(super) fn event(&mut self, net: &mut Net<'_>, key: SessionKey, event: FabricEvent) {
        let session = self.list.get(key);
        match event {
            FabricEvent::Connected { .. } => {
                let Some(negotiation) = session.negotiation() else { return };
                if session.is_coming() && !key.is_visit() {
                    // It puts what is read into any buffer of a request.
                    net.out.admit(session.peer);
                }
                let next = next(negotiation, AnswerKind::Connected);
                self.carry_out(net, key, next, Answer::Done);
            }
            FabricEvent::Lost { why, .. } => match self.list.alive_role(key) {
                Some(role) => self.tell(SessionEvent::Lost { role, why }),
                None => {
                    self.ended(net, key);
                    self.tell(SessionEvent::Failed { key, why: Some(why) });
                }
            },
            _ => {}
        }
    }

    /// Handles a message of a node, other than on slice-sets and reads.
    pub(super) fn message(&mut self, net: &mut Net<'_>, key: SessionKey, message: Message) {
        let Some((tag, answer)) = Answer::of(message) else {
            return net.out.violates(key, "it does not keep to the protocol");
        };
        if key.is_visit() {
            return self.negotiate(net, key, answer);
        }
        let kind = self.asked(net, key, tag, !matches!(answer, Answer::Refused(_)));
        match (kind, answer) {
            (kind, Answer::Outvoted(granted))
                if self.list.alive(key) || granted > net.facts.params.epoch =>
            {
                self.tell(SessionEvent::Outvoted { key, kind, granted });
            }
            (None, Answer::Outvoted(_)) => self.fail(net, key, None),
            (None, answer) => net.out.violates(key, answer.unasked()),
            (Some(RequestKind::Negotiate), answer) => self.negotiate(net, key, answer),
            (Some(RequestKind::Rewire), answer) => {
                self.rewired(net, key, answer.refusal().is_none());
            }
            (Some(RequestKind::Ping), Answer::Pong(silent_ms)) => {
                let now = net.now();
                let timeout_ms = self.timeout_ms;
                if self.list.get_mut(key).presence.answered(now, silent_ms, timeout_ms) {
                    self.is_silent(key, "its storage has not answered");
                }
            }
            (Some(kind), answer) => self.tell(SessionEvent::Answered { key, kind, answer }),
        }
    }

    /// Returns the kind of the request that a node answers, and ends it; `ok` if the node carried
    /// it out.
    fn asked(&self, net: &mut Net<'_>, key: SessionKey, tag: u32, ok: bool) -> Option<RequestKind> {
        let (_, kind) = net.out.requests.get(&tag).filter(|(asked, _)| *asked == key)?;
        let is_flush = matches!(kind, RequestKind::Flush(_));
        if let Some(role) = self.list.alive_role(key) {
            let member = self.list.id(role);
            net.out.report_of(member, LaneReport::Answered);
            let done = Done { member, kind: OperationKind::Flush, bytes: 0, ok };
            let done = is_flush.then_some(done);
            net.out.latency.end(role, TimedOperation::Request(tag), done, net.keeper.now());
        }
        Some(net.out.requests.remove(&tag)?.1)
    }

    fn negotiate(&mut self, net: &mut Net<'_>, key: SessionKey, answer: Answer) {
        let Some(negotiation) = self.list.get(key).negotiation() else {
            return net.out.violates(key, answer.unasked());
        };
        let said = answer.said();
        let next = next(negotiation, said);
        if negotiation.step == NegotiationStep::Replaying {
            self.list.get_mut(key).replayed = said == AnswerKind::Done;
        }
        self.carry_out(net, key, next, answer);
    }

    /// Executes the next action after an answer.
    fn carry_out(&mut self, net: &mut Net<'_>, key: SessionKey, next: Next, answer: Answer) {
        if let Answer::Volume { bytes, .. } = answer {
            self.list.get_mut(key).volume_bytes = bytes;
        }
        match next {
            Next::Ask(step) => self.go_on(net, key, step),
            Next::Hold(step) => {
                self.hold(key, step);
                self.tell(SessionEvent::Holds { key, step });
            }
            Next::Judge => self.tell(SessionEvent::Judge { key, answer }),
            Next::Ready => {
                self.list.get_mut(key).state = SessionState::Ready;
                self.tell(SessionEvent::Ready);
            }
            Next::Wired(ok) => self.rewired(net, key, ok),
            Next::Over => {
                self.end(net, key);
                self.tell(SessionEvent::Over);
            }
            Next::Fail => self.fail(net, key, None),
            Next::Violation => net.out.violates(key, answer.unasked()),
        }
    }

    /// Repeats the request of a step after a moment.
    pub(super) fn repeat_later(&mut self, net: &Net<'_>, key: SessionKey) {
        self.list.get_mut(key).retry_at = Some(net.now().plus_millis(RETRY_MILLIS));
    }

    /// Returns the time of the next action, during the start or while nodes may return.
    pub(super) fn deadline(
        &self,
        starting: bool,
        may_return: bool,
        keeper: KeeperView<'_>,
    ) -> Option<Instant> {
        let due = |session: &Session| match session.state {
            SessionState::Negotiating(Negotiation { purpose, step }) if purpose.is_start() => {
                let silent = session.patient_until.plus_millis(SILENT_MILLIS);
                let silent = (step == NegotiationStep::Wiring).then_some(silent);
                if starting { session.retry_at.or(silent) } else { None }
            }
            SessionState::Negotiating(_) => session.due,
            SessionState::Lost if may_return => session.due,
            SessionState::Lost | SessionState::Missing | SessionState::Ready => None,
        };
        self.list.all().filter_map(due).chain(self.silence_deadline(keeper)).min()
    }

    /// Repeats requests and attempts whose time has come, and abandons those that take too long.
    pub(super) fn tick(&mut self, net: &mut Net<'_>) {
        let now = net.now();
        for key in self.list.keys() {
            let session = self.list.get_mut(key);
            if session.retry_at.is_some_and(|at| at <= now) && session.alive() {
                session.retry_at = None;
                self.ask(net, key);
            } else if session.due.is_some_and(|due| due <= now) {
                match session.state {
                    SessionState::Lost if net.facts.may_return => {
                        self.dial(net, key, Purpose::Return);
                    }
                    SessionState::Negotiating(_) => self.fail(net, key, None),
                    _ => {}
                }
            }
        }
        if net.facts.starting {
            self.lose_unwired(net);
        }
    }

    /// Fails a node that waits for another one to connect: the connection was lost, so neither
    /// answers. The wait of the others ends with that.
    fn lose_unwired(&mut self, net: &mut Net<'_>) {
        let now = net.now();
        let waits = |session: &Session| {
            session.alive() && session.is_at(NegotiationStep::Wiring) && session.retry_at.is_none()
        };
        let overdue = |session: &Session| {
            waits(session) && session.patient_until.plus_millis(SILENT_MILLIS) <= now
        };
        let Some(key) = self.list.keys().find(|&key| overdue(self.list.get(key))) else { return };
        net.out.lose(key, Refusal::new("it does not get connected to the others", NETWORK));
        for session in self.list.all_mut().filter(|session| waits(session)) {
            session.patient_until = session.patient_until.max(now);
        }
    }

    /// Returns the roles of nodes that owe an answer, with the start of their silence.
    fn silent(&self, keeper: KeeperView<'_>) -> impl Iterator<Item = (Role, Instant)> {
        let owing = keeper.owing();
        let owing = owing.filter_map(|(id, since)| Some((self.list.role_of(id)?, since)));
        owing.filter(|&(role, _)| self.list.alive(role))
    }

    fn given_up_at(&self, role: Role, since: Instant) -> Instant {
        self.list.get(role).presence.given_up_at(since, self.timeout_ms)
    }

    /// Returns the times at which nodes are pinged, given the start of a silence.
    fn pings_due(&self, since: Instant) -> impl Iterator<Item = (Role, Instant)> {
        let asked = self.list.roles().filter(|&role| self.list.get(role).can_be_asked());
        asked.filter_map(move |role| {
            Some((role, self.list.get(role).presence.ping_due(since, self.timeout_ms)?))
        })
    }

    fn silence_deadline(&self, keeper: KeeperView<'_>) -> Option<Instant> {
        let silent = self.silent(keeper);
        let silent = silent.map(|(role, since)| (since, self.given_up_at(role, since)));
        let first = |one: (Instant, Instant), other: (Instant, Instant)| {
            (one.0.min(other.0), one.1.min(other.1))
        };
        let (since, given_up) = silent.reduce(first)?;
        self.pings_due(since).map(|(_, due)| due).chain([given_up]).min()
    }

    /// Fails nodes that have been silent for too long.
    pub(super) fn lose_silent(&mut self, net: &Net<'_>) {
        let over = |&(role, since): &(Role, Instant)| self.given_up_at(role, since) <= net.now();
        let over: Vec<(Role, Instant)> = self.silent(net.keeper).filter(over).collect();
        for (role, _) in over {
            self.is_silent(role.into(), "has not answered");
        }
    }

    /// Pings all nodes when one is silent.
    pub(super) fn look_for_silence(&mut self, net: &mut Net<'_>) {
        let Some(first) = self.silent(net.keeper).map(|(_, since)| since).min() else { return };
        let now = net.now();
        let due: Vec<(Role, Instant)> =
            self.pings_due(first).filter(|&(_, due)| due <= now).collect();
        for (role, _) in due {
            self.list.get_mut(role).presence.asked(first);
            self.request(net, role, RequestKind::Ping, |tag| Message::Ping { tag });
        }
    }

    fn is_silent(&mut self, key: SessionKey, what: &str) {
        let why = silent(what, self.timeout_ms);
        self.tell(SessionEvent::Silent { key, why });
    }

    /// Hangs up on visited nodes.
    pub(super) fn close_visits(&mut self, net: &mut Net<'_>) {
        for key in [SessionKey::AbsentVisit, SessionKey::DepartedVisit] {
            self.fail(net, key, None);
        }
    }

    pub(super) fn hang_up_all(&mut self, net: &mut Net<'_>) {
        for session in self.list.all_mut().filter(|session| session.is_connected()) {
            session.state = SessionState::Lost;
            net.out.hang_up(session.peer);
        }
    }

    /// Gives the copy target the role of the copied member.
    pub(super) fn exchange(&mut self, net: &Net<'_>, place: Role) {
        let new = std::mem::replace(self.list.get_mut(SessionKey::CopyTarget), Session::none());
        let old = std::mem::replace(self.list.get_mut(place), new);
        let session = self.list.get_mut(place);
        let prepared = Negotiation { purpose: Purpose::Spare, step: NegotiationStep::Prepared };
        session.state = SessionState::Negotiating(prepared);
        session.copy_of = None;
        session.gone_at = old.gone_at;
        // If it fails, the old one is tried at once.
        let due = Some(net.now());
        session.before = old.member.map(|member| Before { member, id: old.id, due });
        session.due = Some(net.now().plus_millis(PATIENCE_MILLIS));
        session.lost_at = net.facts.version;
    }
}
