//! Single steps of a session: connecting, requests, the end.

use braid_array::events::ArrayEvent;
use braid_array::keeper::LaneReport;
use braid_array::{Refusal, Role};

use super::negotiation::{Negotiation, NegotiationStep, Purpose, message};
use super::presence::Presence;
use super::session::{Before, Session, SessionState};
use super::wiring::{Wiring, others};
use super::{Net, SessionEvent, Sessions};
use crate::client::ClientMember;
use crate::client::out::RequestKind;
use crate::client::retry::{PATIENCE_MILLIS, pause_millis};
use crate::client::session_key::SessionKey;
use crate::member::VolumeAddress;
use crate::node::PARTING_TAG;
use crate::wire::{Message, PeerAddress};

/// Patience with refusals at the start. A volume that its last client has just left may be in use
/// for a moment, and one of two nodes that do not see each other may turn out to be lost.
const START_MILLIS: u64 = 3000;

impl Sessions {
    pub(super) fn tell(&mut self, event: SessionEvent) {
        self.events.push_back(event);
    }

    /// Connects to the node of a session.
    pub(in crate::client) fn dial(&mut self, net: &mut Net<'_>, key: SessionKey, purpose: Purpose) {
        let Some(address) = self.list.get(key).address().map(str::to_owned) else { return };
        let departed = SessionKey::DepartedVisit;
        if !purpose.is_visit() && self.list.get(departed).address() == Some(&address) {
            // It is about to become a member again: a grant would end its new connection.
            self.fail(net, departed, None);
        }
        let peer = net.out.connect(address);
        let due = net.now().plus_millis(PATIENCE_MILLIS);
        let session = self.list.get_mut(key);
        session.peer = Some(peer);
        session.state =
            SessionState::Negotiating(Negotiation { purpose, step: NegotiationStep::Connecting });
        session.due = (!purpose.is_start()).then_some(due);
    }

    /// Connects to a node on one of the sessions for visits.
    pub(in crate::client) fn visit(
        &mut self,
        net: &mut Net<'_>,
        visit: SessionKey,
        place: VolumeAddress,
    ) {
        let absent = visit == SessionKey::AbsentVisit;
        self.list.get_mut(visit).visited = Some(place);
        self.dial(net, visit, if absent { Purpose::Absent } else { Purpose::Departed });
    }

    /// Connects to a node that is to have this role, instead of the member of the session.
    pub(in crate::client) fn recover(
        &mut self,
        net: &mut Net<'_>,
        key: SessionKey,
        place: Role,
        member: ClientMember,
        purpose: Purpose,
    ) {
        if self.list.get(key).is_coming() {
            self.end(net, key);
        }
        let session = self.list.get_mut(key);
        let due = session.due;
        let before = session.member.replace(member);
        session.before = before.map(|member| Before { member, id: session.id.take(), due });
        session.lost_at = net.facts.version;
        session.refused = None;
        session.copy_of = (purpose == Purpose::Copy).then_some(place);
        self.dial(net, key, purpose);
    }

    /// Sets the step of a session.
    pub(in crate::client) fn hold(&mut self, key: SessionKey, step: NegotiationStep) {
        let session = self.list.get_mut(key);
        if let SessionState::Negotiating(negotiation) = &mut session.state {
            negotiation.step = step;
        }
    }

    /// Sets the step of a session, which rests there for any time.
    pub(in crate::client) fn rest(&mut self, key: SessionKey, step: NegotiationStep) {
        self.hold(key, step);
        self.list.get_mut(key).due = None;
    }

    /// Continues a session at a step, and sends its request.
    pub(in crate::client) fn go_on(
        &mut self,
        net: &mut Net<'_>,
        key: SessionKey,
        step: NegotiationStep,
    ) {
        self.hold(key, step);
        let until = net.now().plus_millis(START_MILLIS);
        let session = self.list.get_mut(key);
        if session.alive() {
            session.patient_until = until;
            session.retry_at = None;
        }
        if session.alive() && step == NegotiationStep::Opening {
            // It puts what is read into any buffer of a request.
            net.out.admit(session.peer);
        }
        self.ask(net, key);
    }

    /// Returns the nodes that a node connects to: all that are there. A copy target gets the copied
    /// member's node alone, without an address: it waits for that node to connect.
    fn peers_of(&self, key: SessionKey) -> Vec<PeerAddress> {
        if let Some(role) = key.role() {
            return others(&self.list, role);
        }
        let Some(old) = self.list.place(key) else { return Vec::new() };
        let ring = self.list.get(old).ring;
        vec![PeerAddress { role: old, address: String::new(), ring }]
    }

    /// Sends the request of the session's step. Every message of a negotiation is sent here.
    pub(super) fn ask(&self, net: &mut Net<'_>, key: SessionKey) {
        let session = self.list.get(key);
        let Some(negotiation) = session.negotiation() else { return };
        let wires = negotiation.step == NegotiationStep::Wiring;
        let peers = if wires { self.peers_of(key) } else { Vec::new() };
        let peer = session.peer;
        let id = if session.alive() { session.id } else { None };
        let question = session.question(self.list.place(key), peers);
        let asked = |tag| message(negotiation, tag, &net.facts, question);
        if negotiation.purpose.is_visit() {
            // One question at a time, and nobody waits for the answer.
            asked(0).into_iter().for_each(|message| net.out.send(peer, &message));
            return;
        }
        let tag = net.out.tag();
        let Some(message) = asked(tag) else { return };
        if let Some(id) = id {
            net.out.report(LaneReport::Asked(id));
        }
        net.out.await_answer(key, tag, RequestKind::Negotiate);
        net.out.send(peer, &message);
    }

    /// Sends a member a message that is answered with its tag.
    pub(in crate::client) fn request(
        &mut self,
        net: &mut Net<'_>,
        key: impl Into<SessionKey>,
        kind: RequestKind,
        message: impl FnOnce(u32) -> Message,
    ) {
        let key = key.into();
        if let Some(id) = self.list.get(key).id {
            net.out.report(LaneReport::Asked(id));
        }
        let peer = self.list.get(key).peer;
        net.out.request((key, peer), kind, net.keeper.now(), message);
    }

    /// Wires a joining node to the others, and them to it.
    pub(super) fn wire(&mut self, net: &mut Net<'_>, key: SessionKey) {
        let Some(place) = self.list.place(key) else { return };
        // Others know it by its role; who is copied knows it by its own.
        let own: Vec<PeerAddress> = self.list.get(key).peer_address(place).into_iter().collect();
        let others: Vec<Role> = match key.role() {
            Some(role) => others(&self.list, role).iter().map(|other| other.role).collect(),
            None => vec![place],
        };
        self.wiring = Some(Wiring::new(key, others.iter().copied()));
        for other in others {
            let peers = own.clone();
            self.request(net, other, RequestKind::Rewire, |tag| Message::Connect { tag, peers });
        }
        self.go_on(net, key, NegotiationStep::Wiring);
    }

    /// Notes that a node that is being wired has answered, or is lost, or both.
    pub(in crate::client) fn rewired(
        &mut self,
        net: &mut Net<'_>,
        one: impl Into<SessionKey>,
        ok: bool,
    ) {
        let Some(wiring) = &mut self.wiring else { return };
        let key = wiring.key;
        // Only the one that is copied is connected to a copy target, and is told by itself.
        if wiring.answered(one.into(), ok)
            && let Some(lost) = key.role()
        {
            // The others need not wait for it.
            self.tell_without(net, lost);
        }
        if let Some(ok) = self.wiring.as_ref().and_then(Wiring::result) {
            self.wiring = None;
            self.tell(SessionEvent::Wired { key, ok });
        }
    }

    /// Tells the nodes to hang up on a lost one, so that no data of it arrives any more.
    pub(in crate::client) fn tell_without(&mut self, net: &mut Net<'_>, lost: Role) {
        let wired = |session: &&Session| {
            session.alive()
                && (session.state == SessionState::Ready || session.is_at(NegotiationStep::Wiring))
        };
        for session in self.list.members().iter().filter(wired) {
            net.out.send(session.peer, &Message::Without { role: lost });
        }
    }

    /// Ends the connection to a member. Returns the requests that it has not answered.
    pub(in crate::client) fn lost(&mut self, net: &mut Net<'_>, role: Role) -> Vec<RequestKind> {
        let now = net.now();
        let session = self.list.get_mut(role);
        session.state = SessionState::Lost;
        session.gone_at.get_or_insert(now);
        session.presence = Presence::default();
        net.out.forget(role)
    }

    /// Schedules another attempt to reach a lost node.
    pub(in crate::client) fn await_return(&mut self, net: &Net<'_>, key: impl Into<SessionKey>) {
        let now = net.now();
        let session = self.list.get_mut(key);
        session.due = Some(now.plus_millis(pause_millis(session.tries)));
        session.tries = (session.tries + 1).min(10);
        session.lost_at = net.facts.version;
    }

    /// Hangs up on a node, and ends its negotiation.
    pub(in crate::client) fn end(&mut self, net: &mut Net<'_>, key: SessionKey) {
        net.out.hang_up(self.list.get(key).peer);
        self.ended(net, key);
    }

    /// Ends the negotiation on a connection that is over.
    pub(super) fn ended(&mut self, net: &mut Net<'_>, key: SessionKey) {
        let session = self.list.get_mut(key);
        let Some(Negotiation { purpose, step }) = session.negotiation() else { return };
        if purpose.is_visit() {
            session.state = SessionState::Missing;
            session.visited = None;
            session.returned = None;
            session.due = None;
            return;
        }
        session.state = SessionState::Lost;
        net.out.requests.retain(|_, (asked, _)| *asked != key);
        self.await_return(net, key);
        if step == NegotiationStep::Wiring {
            self.rewired(net, key, false);
        }
    }

    /// Ends a negotiation, and reports the failure.
    pub(in crate::client) fn fail(
        &mut self,
        net: &mut Net<'_>,
        key: SessionKey,
        why: Option<Refusal>,
    ) {
        if self.list.get(key).is_coming() {
            self.end(net, key);
            self.tell(SessionEvent::Failed { key, why });
        }
    }

    /// Refuses a node that cannot be used as it is. A refusal of a returning member is reported
    /// once for each reason: to the operator, and to the node for its log.
    pub(in crate::client) fn refuse(&mut self, net: &mut Net<'_>, key: SessionKey, why: Refusal) {
        let returns = |negotiation: Negotiation| negotiation.purpose == Purpose::Return;
        let session = self.list.get_mut(key);
        if !session.negotiation().is_some_and(returns) {
            return self.fail(net, key, Some(why));
        }
        if session.refused.as_ref() != Some(&why) {
            let told = Message::Refused {
                tag: PARTING_TAG,
                busy: false,
                reason: why.reason.clone(),
                advice: why.next.advice.to_string(),
            };
            net.out.send(session.peer, &told);
            if let Some(member) = session.id {
                net.out.notify(ArrayEvent::MemberRefused { member, why: why.clone() });
            }
            session.refused = Some(why);
        }
        self.fail(net, key, None);
    }
}
