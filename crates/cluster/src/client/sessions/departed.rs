//! Nodes whose members have left the array are told to drop the slice-sets that they keep of it.

use braid_array::fabric::{FabricEvent, PeerId};

use super::setup::Session;
use crate::client::out::Out;
use crate::client::retry::PATIENCE_MILLIS;
use crate::client::retry::pause_millis;
use crate::client::{Client, Instant, Message};

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
    Resolving,
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
/// Connecting ─► Asking ─► Granting ─► Granted ── out of all views ──► Resolving ─► over
///     ▲ └─────────┴──────────┴───────────┴──────────────────────────────┴── lost, refuses, or late
///     └── later, and later, so many times
/// ```
/// A node that was away all that time keeps them until it starts again, or is added again.
#[derive(Debug, Default)]
pub(in crate::client) struct Departed {
    nodes: Vec<Node>,
    visit: Option<Visit>,
}

impl Departed {
    pub(in crate::client) fn is_visited_by(&self, peer: PeerId) -> bool {
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

    /// The member on this node has left the array.
    pub(in crate::client) fn add(&mut self, address: String, now: Instant) {
        self.forget(&address);
        if !braid_array::broken("departed-told") {
            self.nodes.push(Node { address, tries: 0, due: now });
        }
    }

    pub(in crate::client) fn deadline(&self, may_return: bool) -> Option<Instant> {
        match &self.visit {
            Some(visit) => Some(visit.until),
            None if may_return => self.nodes.iter().map(|node| node.due).min(),
            None => None,
        }
    }

    /// Gives up what takes too long. The next one whose time has come, if none is visited.
    pub(in crate::client) fn next(&mut self, out: &mut Out, now: Instant) -> Option<String> {
        if self.visit.as_ref().is_some_and(|visit| visit.until <= now) {
            self.close(out, now);
        }
        if self.visit.is_some() {
            return None;
        }
        let next = self.nodes.iter().find(|node| node.due <= now);
        next.map(|node| node.address.clone())
    }

    /// Connects to a node, to tell it.
    pub(in crate::client) fn visit(&mut self, address: String, out: &mut Out, now: Instant) {
        let peer = out.connect(address.clone());
        let until = now.plus_millis(PATIENCE_MILLIS);
        self.visit = Some(Visit { peer, address, step: Step::Connecting, until });
    }

    /// The node is about to become a member again: a grant would end its new connection.
    pub(in crate::client) fn close_if_visited(
        &mut self,
        address: &str,
        out: &mut Out,
        now: Instant,
    ) {
        if self.visit.as_ref().is_some_and(|visit| visit.address == address) {
            self.close(out, now);
        }
    }

    /// Hangs up on one that is being told; it is tried again later.
    pub(in crate::client) fn close(&mut self, out: &mut Out, now: Instant) {
        if let Some(visit) = self.visit.take() {
            out.hang_up(visit.peer);
            self.postpone(&visit.address, now);
        }
    }

    /// It needs to be told nothing more.
    fn end(&mut self, out: &mut Out) {
        let Some(visit) = self.visit.take() else { return };
        self.forget(&visit.address);
        out.hang_up(visit.peer);
    }

    /// What comes over the connection; the node, when it has said which it is.
    fn event(&mut self, event: FabricEvent, out: &mut Out, now: Instant) -> Option<u64> {
        let step = self.visit.as_ref()?.step;
        let message = match event {
            FabricEvent::Connected { .. } => {
                self.say(Step::Asking, &Message::Identify { tag: 0 }, out);
                return None;
            }
            FabricEvent::Message { bytes, .. } => Message::decode(&bytes).map(|(_, said)| said),
            FabricEvent::Lost { .. } => {
                let visit = self.visit.take()?;
                self.postpone(&visit.address, now);
                return None;
            }
            FabricEvent::Accepted { .. } | FabricEvent::Placed { .. } => return None,
        };
        match (step, message) {
            (Step::Asking, Ok(Message::Identity { node, .. })) => return Some(node),
            (Step::Granting, Ok(Message::Granted { incarnation, .. })) => {
                self.go_on(Step::Granted { incarnation });
            }
            // Whoever has the array after this client decides.
            (Step::Granting, Ok(Message::Outvoted { .. })) => self.end(out),
            (Step::Resolving, Ok(Message::Ok { .. })) => self.end(out),
            _ => self.close(out, now),
        }
        None
    }

    fn go_on(&mut self, step: Step) {
        if let Some(visit) = &mut self.visit {
            visit.step = step;
        }
    }

    fn say(&mut self, step: Step, message: &Message, out: &mut Out) {
        self.go_on(step);
        if let Some(visit) = &self.visit {
            out.send(visit.peer, message);
        }
    }

    /// As which member of old views it has granted the array, while it waits to be told.
    fn granted(&self) -> Option<u64> {
        match self.visit.as_ref()?.step {
            Step::Granted { incarnation } => Some(incarnation),
            _ => None,
        }
    }
}

impl Client {
    /// The member on this node has left the array.
    pub(in crate::client) fn departs(&mut self, address: String) {
        self.departed.add(address, self.keeper.view().now());
    }

    /// Connects to the next one whose time has come.
    pub(in crate::client) fn look_for_departed(&mut self) {
        let now = self.keeper.view().now();
        while let Some(address) = self.departed.next(&mut self.out, now)
            && self.may_return()
        {
            let is_there = |session: &Session| {
                session.member.as_ref().is_some_and(|member| member.address == address)
            };
            match (0..).zip(&self.sessions).find(|(_, session)| is_there(session)) {
                Some((role, _)) if self.is_recovery_target(role) => {
                    self.departed.postpone(&address, now);
                }
                // It is told on its way back.
                Some((_, session)) if session.alive() || session.due.is_some() => {
                    self.departed.forget(&address);
                }
                _ => self.departed.visit(address, &mut self.out, now),
            }
        }
    }

    /// What comes over the connection to one that is being told.
    pub(in crate::client) fn departed_event(&mut self, event: FabricEvent) {
        let now = self.keeper.view().now();
        let Some(node) = self.departed.event(event, &mut self.out, now) else {
            return self.resolve_departed();
        };
        if self.has_part(node) {
            return self.departed.end(&mut self.out);
        }
        let grant = self.ownership.grant(self.shared.params());
        self.departed.say(Step::Granting, &grant(0), &mut self.out);
    }

    /// Has it drop what it keeps, once no takeover may ask it for that.
    pub(in crate::client) fn resolve_departed(&mut self) {
        if let Some(incarnation) = self.departed.granted()
            && self.is_out(incarnation)
        {
            let resolve = Message::ResolveLeftovers { tag: 0, commit: Vec::new() };
            self.departed.say(Step::Resolving, &resolve, &mut self.out);
        }
    }

    /// Is this the node of a member that is there or comes back, or of a witness?
    fn has_part(&self, node: u64) -> bool {
        let nodes = self.shared.params().nodes;
        let connected =
            |voter: u16| voter >= nodes || self.sessions[usize::from(voter)].is_connected();
        self.ownership.voters_on(node).any(connected)
    }
}
