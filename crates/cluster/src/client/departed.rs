//! Nodes whose members have left the array are told to drop the slice-sets that they keep of it.

use braid_array::fabric::{FabricEvent, PeerId};

use super::rejoin::pause_millis;
use super::{Client, Instant, Message, PATIENCE_MILLIS};

/// About ten minutes.
const MAX_TRIES: u32 = 60;

/// How far a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Connecting,
    /// Which node is it?
    Asking,
    Granting,
    Granted {
        incarnation: u64,
    },
    Settling,
}

/// The one that is being told.
#[derive(Debug)]
struct Visit {
    peer: PeerId,
    address: String,
    step: Step,
    until: Instant,
}

/// One of them.
#[derive(Debug)]
struct Node {
    address: String,
    /// Attempts that failed.
    tries: u32,
    due: Instant,
}

/// Nodes whose members were replaced, failed or removed. They may keep slice-sets prepared, with
/// their rings and volumes, until a client resolves these, and no takeover asks them any more. So
/// each is told to drop them, on a connection of its own, one node at a time, once no view that a
/// later client may take for the newest has its member in sync.
///
/// ```text
/// Connecting ─► Asking ─► Granting ─► Granted ── out of all views ──► Settling ─► over
///     ▲ └─────────┴──────────┴───────────┴──────────────────────────────┴── lost, refuses, or late
///     └── later, and later, so many times
/// ```
/// A node that was away all that time keeps them until it starts again, or is added again.
#[derive(Debug, Default)]
pub(super) struct Departed {
    nodes: Vec<Node>,
    visit: Option<Visit>,
}

impl Departed {
    pub(super) fn is_visited_by(&self, peer: PeerId) -> bool {
        self.visit.as_ref().is_some_and(|visit| visit.peer == peer)
    }

    fn forget(&mut self, address: &str) {
        self.nodes.retain(|node| node.address != address);
    }

    fn postpone(&mut self, address: &str, now: Instant) {
        for node in self.nodes.iter_mut().filter(|node| node.address == address) {
            node.due = now.plus_millis(pause_millis(node.tries));
            node.tries += 1;
        }
        self.nodes.retain(|node| node.tries < MAX_TRIES);
    }
}

impl Client {
    /// The member on this node has left the array.
    pub(super) fn departs(&mut self, address: String) {
        self.departed.forget(&address);
        if braid_array::broken("departed-told") {
            return;
        }
        self.departed.nodes.push(Node { address, tries: 0, due: self.keeper.now() });
    }

    pub(super) fn departed_deadline(&self) -> Option<Instant> {
        let until = self.departed.visit.as_ref().map(|visit| visit.until);
        let due = || self.departed.nodes.iter().map(|node| node.due).min();
        until.or_else(|| due().filter(|_| self.may_return()))
    }

    /// Connects to the next one whose time has come, and gives up what takes too long.
    pub(super) fn look_for_departed(&mut self) {
        let now = self.keeper.now();
        if self.departed.visit.as_ref().is_some_and(|visit| visit.until <= now) {
            self.leave_departed();
        }
        while self.departed.visit.is_none() && self.may_return() {
            let next = self.departed.nodes.iter().find(|node| node.due <= now);
            let Some(address) = next.map(|node| node.address.clone()) else { return };
            self.visit(address);
        }
    }

    fn visit(&mut self, address: String) {
        let is_there = |session: &super::Session| {
            session.member.as_ref().is_some_and(|member| member.address == address)
        };
        match (0..).zip(&self.sessions).find(|(_, session)| is_there(session)) {
            Some((role, _)) if self.is_newcomer(role) => {
                return self.departed.postpone(&address, self.keeper.now());
            }
            // It is told on its way back.
            Some((_, session)) if session.alive() || session.due.is_some() => {
                return self.departed.forget(&address);
            }
            _ => {}
        }
        let peer = self.out.connect(address.clone());
        let until = self.keeper.now().plus_millis(PATIENCE_MILLIS);
        self.departed.visit = Some(Visit { peer, address, step: Step::Connecting, until });
    }

    /// The node is about to become a member again: a grant would end its new connection.
    pub(super) fn leave_if_visited(&mut self, address: &str) {
        if self.departed.visit.as_ref().is_some_and(|visit| visit.address == address) {
            self.leave_departed();
        }
    }

    /// Hangs up on one that is being told; it is tried again later.
    pub(super) fn leave_departed(&mut self) {
        if let Some(visit) = self.departed.visit.take() {
            self.out.hang_up(visit.peer);
            self.departed.postpone(&visit.address, self.keeper.now());
        }
    }

    /// It needs to be told nothing more.
    fn departed_is_over(&mut self) {
        let Some(visit) = self.departed.visit.take() else { return };
        self.departed.forget(&visit.address);
        self.out.hang_up(visit.peer);
    }

    /// What comes over the connection.
    pub(super) fn departed_event(&mut self, event: FabricEvent) {
        let Some(step) = self.departed.visit.as_ref().map(|visit| visit.step) else { return };
        let message = match event {
            FabricEvent::Connected { .. } => {
                return self.say_to_departed(Step::Asking, &Message::Identify { tag: 0 });
            }
            FabricEvent::Message { bytes, .. } => Message::decode(&bytes).map(|(_, said)| said),
            FabricEvent::Lost { .. } => {
                let visit = self.departed.visit.take();
                let now = self.keeper.now();
                return visit.into_iter().for_each(|v| self.departed.postpone(&v.address, now));
            }
            FabricEvent::Accepted { .. } | FabricEvent::Placed { .. } => return,
        };
        match (step, message) {
            (Step::Asking, Ok(Message::Identity { node, .. })) if self.has_part(node) => {
                self.departed_is_over();
            }
            (Step::Asking, Ok(Message::Identity { .. })) => {
                let grant = self.grant();
                self.say_to_departed(Step::Granting, &grant(0));
            }
            (Step::Granting, Ok(Message::Granted { incarnation, .. })) => {
                self.departed_goes_on(Step::Granted { incarnation });
                self.settle_departed();
            }
            // Whoever has the array after this client decides.
            (Step::Granting, Ok(Message::Outvoted { .. })) => self.departed_is_over(),
            (Step::Settling, Ok(Message::Ok { .. })) => self.departed_is_over(),
            _ => self.leave_departed(),
        }
    }

    fn departed_goes_on(&mut self, step: Step) {
        if let Some(visit) = &mut self.departed.visit {
            visit.step = step;
        }
    }

    fn say_to_departed(&mut self, step: Step, message: &Message) {
        self.departed_goes_on(step);
        if let Some(peer) = self.departed.visit.as_ref().map(|visit| visit.peer) {
            self.out.send(peer, message);
        }
    }

    /// Has it drop what it keeps, once no takeover may ask it for that.
    pub(super) fn settle_departed(&mut self) {
        let step = self.departed.visit.as_ref().map(|visit| visit.step);
        if let Some(Step::Granted { incarnation }) = step
            && self.is_out(incarnation)
        {
            let settle = Message::ResolveLeftovers { tag: 0, commit: Vec::new() };
            self.say_to_departed(Step::Settling, &settle);
        }
    }

    /// Is this the node of a member that is there or comes back, or of a witness?
    fn has_part(&self, node: u64) -> bool {
        let nodes = self.shared.params().nodes;
        let connected =
            |voter: u16| voter >= nodes || self.sessions[usize::from(voter)].is_connected();
        self.takeover.grants.iter().any(|(&voter, grant)| grant.node == node && connected(voter))
    }
}
