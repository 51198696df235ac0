//! What goes out of the client: actions for the executor, messages that are to be answered, reports
//! for the keeper, and the nodes that are to be lost.

use std::collections::{BTreeMap, VecDeque};

use braid_array::action::{Coefs, CommandId, Inputs};
use braid_array::events::ArrayEvent;
use braid_array::fabric::{FabricOp, PeerId};
use braid_array::keeper::{Keeper, LaneReport};
use braid_array::{Action, Buf, Compute, Instant, IoId, MemberId, Refusal, Role};
use smallvec::smallvec;

use super::Key;
use super::latency::{LatencyTracker, TimedOperation};
use super::session_key::SessionKey;
use crate::ids::{Epoch, Position};
use crate::wire::Message;

/// What helps when a node does not keep to the protocol.
pub(super) const SAME_VERSION: &str = "use the same version of braid everywhere";

/// What an I/O in flight is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum IoPurpose {
    /// A slice is being sent.
    Put { position: Position },
    /// The pieces of a slice are being put together.
    Copy { position: Position },
    /// A parity is being formed: the number of its equation.
    Sum { position: Position, equation: usize },
    /// A step of a decoding.
    Decode { job: u32 },
    /// A step of a comparison.
    Compare { key: Key },
    /// The same of what was copied.
    ReadBack,
}

/// What a message to a node requests.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestKind {
    Grant,
    /// The order of the view among views.
    StoreView((Epoch, u32)),
    ListLeftovers,
    /// What lies on its volume now.
    Reread,
    ResolveLeftovers,
    /// What a step of a negotiation asks.
    Negotiate,
    /// The number of the flush.
    Flush(u32),
    /// For the keeper's update.
    Meta,
    LeaseRing,
    ReturnRing,
    /// A member is wired to a node that comes back.
    Rewire,
    /// What the journal holds, or to store or forget that.
    Journal,
    /// To store a block that is copied: its number.
    StoreCopied(u32),
    Ping,
}

/// A node that the array is to go on without.
#[derive(Debug)]
pub(super) struct Loss {
    pub(super) key: SessionKey,
    pub(super) why: Refusal,
    pub(super) kind: LossKind,
}

/// What follows from a loss, besides that the array goes on without the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LossKind {
    /// Nothing: the node does not do its part.
    Fault,
    /// It is tried again after a while.
    Returns,
    /// Its store fails. If the array cannot go on without it, that is why.
    Store,
}

/// Where all machines of the client put what they want done. The actions go to the executor in
/// order. Before anything else is done, the keeper hears what is reported, and losses are carried
/// out by the client, so that no machine changes beneath another one.
#[derive(Debug)]
pub(super) struct Out {
    pub(super) epoch: Epoch,
    actions: VecDeque<Action>,
    pub(super) ios: BTreeMap<IoId, IoPurpose>,
    next_io: u64,
    next_tag: u32,
    next_peer: u32,
    /// By tag: the node's session, and the request that it has not answered.
    pub(super) requests: BTreeMap<u32, (SessionKey, RequestKind)>,
    pub(super) latency: LatencyTracker,
    losses: VecDeque<Loss>,
    /// For the keeper, in order.
    reports: VecDeque<LaneReport>,
}

impl Out {
    pub(super) fn new(nodes: u16, epoch: Epoch, next_peer: u32) -> Self {
        Self {
            epoch,
            actions: VecDeque::new(),
            ios: BTreeMap::new(),
            next_io: 0,
            next_tag: 1,
            next_peer,
            requests: BTreeMap::new(),
            latency: LatencyTracker::new(nodes),
            losses: VecDeque::new(),
            reports: VecDeque::new(),
        }
    }

    pub(super) fn push(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    pub(super) fn pop(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    pub(super) fn notify(&mut self, event: ArrayEvent) {
        self.push(Action::Notify(event));
    }

    pub(super) fn reply(&mut self, id: CommandId, result: Result<(), Refusal>) {
        self.push(Action::Reply { id, result });
    }

    /// Numbers an operation of the executor.
    pub(super) fn io(&mut self, purpose: IoPurpose) -> IoId {
        let io = IoId(self.next_io);
        self.next_io += 1;
        self.ios.insert(io, purpose);
        io
    }

    pub(super) fn compute(&mut self, purpose: IoPurpose, compute: Compute) {
        let io = self.io(purpose);
        self.push(Action::Compute { io, compute });
    }

    pub(super) fn sum(&mut self, purpose: IoPurpose, inputs: Inputs, coefs: Coefs, output: Buf) {
        let outputs = smallvec![output];
        self.compute(purpose, Compute::Sum { inputs, coefs, outputs, accumulate: false });
    }

    /// Adds a buffer to another.
    pub(super) fn sum_into(&mut self, purpose: IoPurpose, input: Buf, to: Buf) {
        let inputs = smallvec![input];
        let coefs = smallvec![1];
        let outputs = smallvec![to];
        self.compute(purpose, Compute::Sum { inputs, coefs, outputs, accumulate: true });
    }

    /// Connects to a node; the connection has a number that no other had.
    pub(super) fn connect(&mut self, address: String) -> PeerId {
        let peer = PeerId(self.next_peer);
        self.next_peer = (self.next_peer + 1) % PeerId::FIRST_ACCEPTED;
        self.push(Action::Fabric(FabricOp::Connect { peer, address }));
        peer
    }

    /// The number of the next connection.
    pub(super) const fn next_peer(&self) -> u32 {
        self.next_peer
    }

    pub(super) fn hang_up(&mut self, peer: Option<PeerId>) {
        let Some(peer) = peer else { return };
        self.push(Action::Fabric(FabricOp::HangUp { peer }));
    }

    /// Hangs up, and what was sent is not waited for.
    pub(super) fn cut(&mut self, peer: Option<PeerId>) {
        let Some(peer) = peer else { return };
        self.push(Action::Fabric(FabricOp::Cut { peer }));
    }

    /// Lets a node put what is read into any buffer of a request.
    pub(super) fn admit(&mut self, peer: Option<PeerId>) {
        let Some(peer) = peer else { return };
        self.push(Action::Fabric(FabricOp::Admit { peer, window: 0..u64::MAX }));
    }

    /// Sends a message to a node, if it was ever connected.
    pub(super) fn send(&mut self, peer: Option<PeerId>, message: &Message) {
        let Some(peer) = peer else { return };
        let bytes = message.encode(self.epoch);
        self.push(Action::Fabric(FabricOp::Send { peer, bytes }));
    }

    /// A number that the answer to a message carries.
    pub(super) fn tag(&mut self) -> u32 {
        let tag = self.next_tag;
        self.next_tag = self.next_tag.wrapping_add(1);
        tag
    }

    /// Sends a message that is answered with its tag.
    pub(super) fn request(
        &mut self,
        (key, peer): (SessionKey, Option<PeerId>),
        kind: RequestKind,
        now: Instant,
        message: impl FnOnce(u32) -> Message,
    ) {
        let tag = self.tag();
        if matches!(kind, RequestKind::Flush(_) | RequestKind::Meta)
            && let Some(role) = key.role()
        {
            self.latency.begin(role, TimedOperation::Request(tag), now);
        }
        self.await_answer(key, tag, kind);
        self.send(peer, &message(tag));
    }

    /// A message with this tag is sent to a node.
    pub(super) fn await_answer(&mut self, key: SessionKey, tag: u32, kind: RequestKind) {
        self.requests.insert(tag, (key, kind));
    }

    /// A node is gone: the requests that it has not answered.
    pub(super) fn forget(&mut self, role: Role) -> Vec<RequestKind> {
        self.latency.forget(role);
        let mut kinds = Vec::new();
        self.requests.retain(|_, &mut (asked, kind)| {
            let gone = asked == role.into();
            if gone {
                kinds.push(kind);
            }
            !gone
        });
        kinds
    }

    /// The array goes on without a node that is there and does not do its part. That holds for a
    /// flush, too: the next may succeed without what this one should have made durable.
    pub(super) fn lose(&mut self, key: impl Into<SessionKey>, why: Refusal) {
        self.losses.push_back(Loss { key: key.into(), why, kind: LossKind::Fault });
    }

    /// The same, and it is tried again.
    pub(super) fn lose_for_now(&mut self, role: Role, why: Refusal) {
        self.losses.push_back(Loss { key: role.into(), why, kind: LossKind::Returns });
    }

    /// The same of one whose store fails.
    pub(super) fn lose_store(&mut self, role: Role, why: Refusal) {
        self.losses.push_back(Loss { key: role.into(), why, kind: LossKind::Store });
    }

    /// A node does not keep to the protocol.
    pub(super) fn violates(&mut self, key: impl Into<SessionKey>, reason: &'static str) {
        self.lose(key, Refusal::new(reason, SAME_VERSION));
    }

    /// Tells the keeper something: it hears it before anything else is done.
    pub(super) fn report(&mut self, report: LaneReport) {
        self.reports.push_back(report);
    }

    /// Tells the keeper something of a member, where a role has one.
    pub(super) fn report_of(
        &mut self,
        member: Option<MemberId>,
        report: impl FnOnce(MemberId) -> LaneReport,
    ) {
        if let Some(member) = member {
            self.report(report(member));
        }
    }

    /// The keeper hears what it is told: after each call of the engine or of the votes, before
    /// anything else is done, so that it is never looked at, or driven, before it knows.
    pub(super) fn report_to(&mut self, keeper: &mut Keeper) {
        while let Some(report) = self.reports.pop_front() {
            keeper.hear(report);
        }
    }

    /// Is there anything that the keeper has not heard?
    pub(super) fn has_reports(&self) -> bool {
        !self.reports.is_empty()
    }

    pub(super) fn next_loss(&mut self) -> Option<Loss> {
        self.losses.pop_front()
    }

    /// Is a node to be lost that the keeper does not know of yet?
    pub(super) fn has_losses(&self) -> bool {
        !self.losses.is_empty()
    }
}
