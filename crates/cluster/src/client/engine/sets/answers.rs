//! What nodes say of their parts of slice-sets, and what becomes of those that are lost.

use braid_array::figures::Kind;
use braid_array::{Refusal, Role};

use super::{MAX_TRIES, Sets, Stage};
use crate::client::engine::context::Cx;
use crate::client::latency::{Done, TimedOperation};
use crate::ids::{Generation, Position};
use crate::set::{Roles, Set};
use crate::wire::Message;

const SEE_ITS_LOG: &str = "see the log of its node";

/// A node's store fails what a slice-set needs of it.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) struct StoreFault {
    /// It has no room.
    pub(in crate::client) no_room: bool,
}

/// What a node says of its part of a slice-set, when that is prepared or cannot be.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) struct Prepared {
    pub(in crate::client) role: Role,
    pub(in crate::client) position: Position,
    pub(in crate::client) generation: Generation,
    /// The node has the new content.
    pub(in crate::client) ok: bool,
    pub(in crate::client) fault: Option<StoreFault>,
    /// Nodes that this one is not connected to and should be.
    pub(in crate::client) cut_off: Roles,
}

impl Sets {
    /// A node has the new content of its part of a slice-set, or cannot have it.
    pub(in crate::client) fn prepared(&mut self, cx: &mut Cx<'_>, prepared: Prepared) {
        let Prepared { role, position, generation, ok, fault, cut_off } = prepared;
        if !self.said(cx, role, position, generation, Stage::Preparing) {
            return cx.out.violates(role, "it has prepared what is not open");
        }
        if let Some(open) = self.open.get_mut(&position) {
            open.ok &= ok;
        }
        if !ok {
            self.without_relay(cx, position, role);
        }
        if let Some(fault) = fault {
            self.has_a_fault(cx, role, position, fault);
        }
        let nodes = cx.members.nodes();
        for other in cut_off.iter().filter(|&other| other.0 < nodes) {
            self.cut_off.insert((role.min(other), role.max(other)));
        }
        self.advance(cx, position);
    }

    /// A node's store fails what a slice-set needs of it. The node goes. If the array could not do
    /// without it, that is so where it has no room alone: then the array waits for that, as for a
    /// node that is away. What cannot be read stays so, and that write alone fails.
    fn has_a_fault(&mut self, cx: &mut Cx<'_>, role: Role, position: Position, fault: StoreFault) {
        if cx.members.id(role).is_some_and(|id| cx.keeper.needs(id)) && !fault.no_room {
            if let Some(open) = self.open.get_mut(&position) {
                open.job.tries = MAX_TRIES;
            }
            return;
        }
        let why = if fault.no_room {
            Refusal::new("its store has no room", "make room there")
        } else {
            Refusal::new("its store fails what is to be changed", SEE_ITS_LOG)
        };
        cx.out.lose_store(role, why);
    }

    /// Some nodes that are there are not connected to each other. The one is lost that most others
    /// do not see, so that the rest all see each other, and of two rather one that is being
    /// rebuilt; unless the array could not do without it. One at a time: who is next depends on
    /// what the array can do without then.
    pub(in crate::client::engine) fn lose_cut_off(&mut self, cx: &mut Cx<'_>) {
        if !self.cut_off_due {
            return;
        }
        self.cut_off.retain(|&(a, b)| cx.members.alive(a) && cx.members.alive(b));
        let ends = || self.cut_off.iter().flat_map(|&(a, b)| [a, b]);
        let complaints = |role: Role| ends().filter(|&other| other == role).count();
        let spared = |role: &Role| cx.members.id(*role).is_none_or(|id| !cx.keeper.needs(id));
        let lacks = |role: Role| !cx.keeper.is_in_sync(role);
        let worst = ends().filter(spared).max_by_key(|&role| (complaints(role), lacks(role), role));
        self.cut_off_due = worst.is_some();
        if let Some(worst) = worst {
            let reason = "it is not connected to another node";
            let why = Refusal::new(reason, "look at the network between the nodes");
            cx.out.lose_for_now(worst, why);
        }
    }

    /// A node is wired anew: of the one before it nobody complains any more.
    pub(in crate::client) fn is_connected(&mut self, role: Role) {
        self.cut_off.retain(|&(a, b)| a != role && b != role);
    }

    /// A node has finished its part.
    pub(in crate::client) fn finished(
        &mut self,
        cx: &mut Cx<'_>,
        role: Role,
        position: Position,
        generation: Generation,
        ok: bool,
    ) {
        let committing = self.said(cx, role, position, generation, Stage::Committing);
        if !committing && !self.said(cx, role, position, generation, Stage::Aborted) {
            return cx.out.violates(role, "it finishes what is not open");
        }
        let now = cx.now();
        let stored = self.open.get(&position).map_or(0, |open| open.stored_bytes(role));
        let done = Done { member: cx.members.id(role), kind: Kind::Write, bytes: stored, ok };
        cx.out.latency.end(role, TimedOperation::Store(position), Some(done), now);
        if !ok && committing {
            let why = Refusal::new("what was written cannot be stored", SEE_ITS_LOG);
            cx.out.lose_store(role, why);
        }
        self.advance(cx, position);
    }

    /// Takes note that a node has said what was waited for at this stage; was it?
    fn said(
        &mut self,
        cx: &mut Cx<'_>,
        role: Role,
        position: Position,
        generation: Generation,
        stage: Stage,
    ) -> bool {
        let Some(open) = self.open.get_mut(&position) else { return false };
        let current = open.set.generation == generation && open.stage == stage;
        let said = current && open.waits.contains(role);
        if said {
            open.waits.remove(role);
            cx.answered(role);
        }
        said
    }

    /// Nothing is waited for any more from a node that is lost.
    pub(in crate::client::engine) fn without(&mut self, cx: &mut Cx<'_>, role: Role) {
        self.commits.forget(role);
        let positions: Vec<Position> = self.positions().collect();
        for position in positions {
            if let Some(open) = self.open.get_mut(&position) {
                open.parts.remove(role);
                if open.waits.contains(role) {
                    open.waits.remove(role);
                    cx.answered(role);
                }
            }
            self.without_relay(cx, position, role);
            self.advance(cx, position);
        }
    }

    /// Two nodes are not connected any more: what the one was to relay may not reach the other.
    /// Each says so when it notices, and the one that does not relay may do so before it is to be
    /// told.
    pub(in crate::client::engine) fn neighbour_lost(
        &mut self,
        cx: &mut Cx<'_>,
        pair: [Option<Role>; 2],
    ) {
        let positions: Vec<Position> = self.positions().collect();
        for position in positions {
            pair.into_iter().flatten().for_each(|relay| self.without_relay(cx, position, relay));
        }
    }

    /// If it is this node that relays a slice-set, those hear of it directly that have not said
    /// anything yet. They may have heard of it.
    fn without_relay(&mut self, cx: &mut Cx<'_>, position: Position, relay: Role) {
        let Some(open) = self.open.get_mut(&position) else { return };
        if open.stage != Stage::Preparing || open.relay != Some(relay) {
            return;
        }
        open.relay = None;
        let set = Set { relay: false, ..open.set.clone() };
        let begin = Message::BeginSet { set };
        for role in open.waits.iter().filter(|&role| role != relay && cx.members.alive(role)) {
            cx.out.send(cx.members.entry(role).peer, &begin);
        }
    }

    /// Does anything wait until all losses are carried out?
    pub(in crate::client) const fn wait_for_losses(&self) -> bool {
        self.waits_for_losses || self.cut_off_due
    }

    /// May any wait until superblocks tell of those who were lost?
    pub(in crate::client::engine) const fn wait_until_told(&self) -> bool {
        self.waits_until_told
    }

    /// All losses are carried out: goes on with what waited for that. Was there any?
    pub(in crate::client::engine) fn losses_carried_out(&mut self, cx: &mut Cx<'_>) -> bool {
        if !std::mem::take(&mut self.waits_for_losses) {
            return false;
        }
        let positions: Vec<Position> = self.positions().collect();
        positions.into_iter().for_each(|position| self.advance(cx, position));
        true
    }

    /// What waited for the superblocks is committed or ends, now that they tell of those who were
    /// lost. Is there any?
    pub(in crate::client::engine) fn losses_told(&mut self, cx: &mut Cx<'_>) -> bool {
        if !std::mem::take(&mut self.waits_until_told) {
            return false;
        }
        let held = self.open.iter().filter(|(_, open)| open.waits_until_told());
        let held: Vec<Position> = held.map(|(&position, _)| position).collect();
        held.iter().for_each(|&position| self.advance(cx, position));
        !held.is_empty()
    }
}
