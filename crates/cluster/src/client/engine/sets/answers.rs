//! Answers of nodes on their parts of slice-sets, and handling of their losses.

use braid_array::figures::OperationKind;
use braid_array::{Refusal, Role};

use super::{MAX_TRIES, SetStage, Sets};
use crate::client::engine::context::Cx;
use crate::client::latency::{Done, TimedOperation};
use crate::ids::{Generation, Position};
use crate::set::{Roles, Set};
use crate::wire::{Message, no_room};

const SEE_ITS_LOG: &str = "see the log of its node";

/// Failure of a node's store that a slice-set needs.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) struct StoreFault {
    /// The store has no room.
    pub(in crate::client) no_room: bool,
}

/// Answer of a node on its part of a slice-set: prepared, or failed.
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
    /// Takes the answer of a node that has prepared its part of a slice-set, or cannot.
    pub(in crate::client) fn prepared(&mut self, cx: &mut Cx<'_>, prepared: Prepared) {
        let Prepared { role, position, generation, ok, fault, cut_off } = prepared;
        if !self.said(cx, role, position, generation, SetStage::Preparing) {
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

    /// Handles a failure of a node's store. The node is failed, unless the array needs it. A node
    /// that is needed is failed only for lack of room: then the array waits for it, as for an
    /// absent node. An unreadable block stays unreadable, and only the write fails.
    fn has_a_fault(&mut self, cx: &mut Cx<'_>, role: Role, position: Position, fault: StoreFault) {
        if cx.members.id(role).is_some_and(|id| cx.keeper.needs(id)) && !fault.no_room {
            if let Some(open) = self.open.get_mut(&position) {
                open.job.tries = MAX_TRIES;
            }
            return;
        }
        let why = if fault.no_room {
            no_room()
        } else {
            Refusal::new("its store fails what is to be changed", SEE_ITS_LOG)
        };
        cx.out.lose_store(role, why);
    }

    /// Fails one of the nodes that are not connected to each other: the one that most others do not
    /// see, so that the rest all see each other. If two are equal, a node that is being rebuilt
    /// goes first. Nodes that the array needs are spared. One node is failed at a time, as the next
    /// choice depends on the members that the array needs then.
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

    /// Forgets complaints about a role whose node is wired anew.
    pub(in crate::client) fn is_connected(&mut self, role: Role) {
        self.cut_off.retain(|&(a, b)| a != role && b != role);
    }

    /// Takes the answer of a node that has finished its part.
    pub(in crate::client) fn finished(
        &mut self,
        cx: &mut Cx<'_>,
        role: Role,
        position: Position,
        generation: Generation,
        result: Result<(), StoreFault>,
    ) {
        let ok = result.is_ok();
        let committing = self.said(cx, role, position, generation, SetStage::Committing);
        if !committing && !self.said(cx, role, position, generation, SetStage::Aborted) {
            return cx.out.violates(role, "it finishes what is not open");
        }
        let now = cx.now();
        let stored = self.open.get(&position).map_or(0, |open| open.stored_bytes(role));
        let done =
            Done { member: cx.members.id(role), kind: OperationKind::Write, bytes: stored, ok };
        cx.out.latency.end(role, TimedOperation::Store(position), Some(done), now);
        match result {
            Err(StoreFault { no_room: true }) if committing => cx.out.lose_store(role, no_room()),
            Err(_) if committing => {
                let why = Refusal::new("what was written cannot be stored", SEE_ITS_LOG);
                cx.out.lose_store(role, why);
            }
            _ => {}
        }
        self.advance(cx, position);
    }

    /// Notes the answer of a node at this stage. Returns whether it was awaited.
    fn said(
        &mut self,
        cx: &mut Cx<'_>,
        role: Role,
        position: Position,
        generation: Generation,
        stage: SetStage,
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

    /// Stops waiting for a lost node.
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

    /// Handles a lost connection between two nodes: a relayed message may not have reached the
    /// other. Each of the two reports it, and the one that does not relay may report before the
    /// relayed message is due.
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

    /// Sends `BeginSet` directly to the nodes that have not answered, if this node relays the
    /// slice-set. Some of them may have received it already.
    fn without_relay(&mut self, cx: &mut Cx<'_>, position: Position, relay: Role) {
        let Some(open) = self.open.get_mut(&position) else { return };
        if open.stage != SetStage::Preparing || open.relay != Some(relay) {
            return;
        }
        open.relay = None;
        let set = Set { relay: false, ..open.set.clone() };
        let begin = Message::BeginSet { set };
        for role in open.waits.iter().filter(|&role| role != relay && cx.members.alive(role)) {
            cx.out.send(cx.members.entry(role).peer, &begin);
        }
    }

    /// Returns whether anything waits until all losses are carried out.
    pub(in crate::client) const fn wait_for_losses(&self) -> bool {
        self.waits_for_losses || self.cut_off_due
    }

    /// Returns whether slice-sets may wait until superblocks record the losses.
    pub(in crate::client::engine) const fn wait_until_told(&self) -> bool {
        self.waits_until_told
    }

    /// Continues slice-sets after all losses are carried out. Returns whether any waited for that.
    pub(in crate::client::engine) fn losses_carried_out(&mut self, cx: &mut Cx<'_>) -> bool {
        if !std::mem::take(&mut self.waits_for_losses) {
            return false;
        }
        let positions: Vec<Position> = self.positions().collect();
        positions.into_iter().for_each(|position| self.advance(cx, position));
        true
    }

    /// Commits or ends the slice-sets that waited for superblocks to record the losses. Returns
    /// whether there are any.
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
