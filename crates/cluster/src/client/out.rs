//! Outputs of the client: actions for the executor, messages that await an answer, reports for the
//! keeper, and nodes that are to be failed.

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

/// Advice against a node that violates the protocol.
pub(super) const SAME_VERSION: &str = "use the same version of braid everywhere";

/// Purpose of an I/O in flight.
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
    /// A step of the verification of a copy.
    ReadBack,
}

/// Purpose of a message to a node.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestKind {
    Grant,
    /// The order of the view among views.
    StoreView((Epoch, u32)),
    ListLeftovers,
    /// Reads the current content of the volume.
    Reread,
    ResolveLeftovers,
    /// A step of a negotiation.
    Negotiate,
    /// The number of the flush.
    Flush(u32),
    /// A superblock update of the keeper.
    Meta,
    /// The volume becomes longer.
    Lengthen,
    LeaseRing,
    ReturnRing,
    /// A member is wired to a node that comes back.
    Rewire,
    /// Lists, replays or trims the journal.
    Journal,
    /// Stores a copied block: its number.
    StoreCopied(u32),
    Ping,
}

/// A node that the array is to continue without.
#[derive(Debug)]
pub(super) struct Loss {
    pub(super) key: SessionKey,
    pub(super) why: Refusal,
    pub(super) kind: LossKind,
}

/// Consequence of a loss, besides the loss itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LossKind {
    /// Nothing: the node does not do its part.
    Fault,
    /// The node is tried again after a while.
    Returns,
    /// The store fails. If the array needs the node, this is the reason for the refusal.
    Store,
}

/// Queues for the outputs of all machines of the client. The actions go to the executor in order.
/// Before anything else is done, reports are passed to the keeper and losses are carried out by the
/// client, so that no machine changes beneath another one.
#[derive(Debug)]
pub(super) struct ClientOut {
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
    /// Reports for the keeper, in order.
    reports: VecDeque<LaneReport>,
}

impl ClientOut {
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

    /// Connects to a node, under a connection number that was not used before.
    pub(super) fn connect(&mut self, address: String) -> PeerId {
        let peer = PeerId(self.next_peer);
        self.next_peer = (self.next_peer + 1) % PeerId::FIRST_ACCEPTED;
        self.push(Action::Fabric(FabricOp::Connect { peer, address }));
        peer
    }

    /// Returns the number of the next connection.
    pub(super) const fn next_peer(&self) -> u32 {
        self.next_peer
    }

    pub(super) fn hang_up(&mut self, peer: Option<PeerId>) {
        let Some(peer) = peer else { return };
        self.push(Action::Fabric(FabricOp::HangUp { peer }));
    }

    /// Cuts a connection without waiting for sent data.
    pub(super) fn cut(&mut self, peer: Option<PeerId>) {
        let Some(peer) = peer else { return };
        self.push(Action::Fabric(FabricOp::Cut { peer }));
    }

    /// Lets a node put content that it reads into any buffer of a request.
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

    /// Returns a new number for a message and its answer.
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

    /// Notes that a message with this tag awaits an answer.
    pub(super) fn await_answer(&mut self, key: SessionKey, tag: u32, kind: RequestKind) {
        self.requests.insert(tag, (key, kind));
    }

    /// Removes the requests that a lost node has not answered, and returns them.
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

    /// Fails a node that is there but does not do its part. A failed flush counts, too: the next
    /// flush may succeed without the data that this one should have made durable.
    pub(super) fn lose(&mut self, key: impl Into<SessionKey>, why: Refusal) {
        self.losses.push_back(Loss { key: key.into(), why, kind: LossKind::Fault });
    }

    /// Fails a node that is tried again later.
    pub(super) fn lose_for_now(&mut self, role: Role, why: Refusal) {
        self.losses.push_back(Loss { key: role.into(), why, kind: LossKind::Returns });
    }

    /// Fails a node whose store fails.
    pub(super) fn lose_store(&mut self, role: Role, why: Refusal) {
        self.losses.push_back(Loss { key: role.into(), why, kind: LossKind::Store });
    }

    /// Fails a node that violates the protocol.
    pub(super) fn violates(&mut self, key: impl Into<SessionKey>, reason: &'static str) {
        self.lose(key, Refusal::new(reason, SAME_VERSION));
    }

    /// Queues a report for the keeper, which gets it before anything else is done.
    pub(super) fn report(&mut self, report: LaneReport) {
        self.reports.push_back(report);
    }

    /// Queues a report about a member, if the role has one.
    pub(super) fn report_of(
        &mut self,
        member: Option<MemberId>,
        report: impl FnOnce(MemberId) -> LaneReport,
    ) {
        if let Some(member) = member {
            self.report(report(member));
        }
    }

    /// Passes the reports to the keeper. Called after each call of the engine or of the votes,
    /// before anything else: the keeper is thus never read or driven before it is up to date.
    pub(super) fn report_to(&mut self, keeper: &mut Keeper) {
        while let Some(report) = self.reports.pop_front() {
            keeper.hear(report);
        }
    }

    /// Returns whether reports for the keeper are pending.
    pub(super) fn has_reports(&self) -> bool {
        !self.reports.is_empty()
    }

    pub(super) fn next_loss(&mut self) -> Option<Loss> {
        self.losses.pop_front()
    }

    /// Returns whether a loss is pending that the keeper does not know of yet.
    pub(super) fn has_losses(&self) -> bool {
        !self.losses.is_empty()
    }
}
