//! Lease of the nodes' rings: how much of them the client uses.

use std::ops::Range;

use braid_array::{Instant, Role};

use super::context::{Cx, Shared};
use super::sets::Sets;
use crate::client::membership::Membership;
use crate::client::out::RequestKind;
use crate::ids::{Position, Slot};
use crate::pipeline::{Pipeline, PlacedSchedule};
use crate::set::{Roles, Set};
use crate::wire::Message;

/// Memory is returned after this much time without traffic.
const IDLE_MILLIS: u64 = 5_000;
/// Time before a refused client asks again.
const RETRY_MILLIS: u64 = 5_000;

/// Positions of which the memory is granted; `None` is all of them.
type Granted = Option<Range<Position>>;

/// The client's lease of the nodes' rings: the base of each ring, or all of it. The whole rings are
/// used only while every node that is there has granted that.
///
/// ```text
///  base ── no position or slot is free ──► asks all nodes ── all grant it ──► all
///   ▲                                            │ one refuses                 │
///   ├──────── returned by those that did ◄───────┘                             │
///   └──────── returned, with what lies in the base ◄───── idle for a while ◄───┘
/// ```
/// A node that comes back grants its base: until it has granted the rest, the base is used
/// everywhere.
#[derive(Debug, Default)]
pub(super) struct RingsLease {
    /// Nodes that have granted all of their rings.
    granted: Roles,
    /// Nodes that were asked and have not answered.
    asked: Roles,
    /// Nodes that have not confirmed the return of memory.
    returning: Roles,
    /// Nothing is used until all returns are confirmed.
    resting: bool,
    /// A node has refused: the grants of the others are of no use.
    refused: bool,
    /// Something found no free position or slot.
    short: bool,
    /// No node is asked before this time.
    retry_at: Instant,
    /// The rings have been used since they were returned, and when they were last.
    used: bool,
    used_at: Instant,
}

impl RingsLease {
    /// Notes that no free position or slot was found.
    pub(super) const fn is_short(&mut self) {
        self.short = true;
    }

    /// Forgets the grants of a lost node.
    pub(super) fn forget(&mut self, role: Role) {
        self.granted.remove(role);
        self.asked.remove(role);
        self.returning.remove(role);
        self.resting &= !self.returning.is_empty();
    }

    /// Returns whether all nodes that are there have granted all of their rings.
    fn has_all(&self, members: &Membership) -> bool {
        !self.refused && members.alive_roles().all(|role| self.granted.contains(role))
    }

    /// The positions of which the memory is granted; `None` is all of them.
    fn granted_positions(&self, members: &Membership, pipeline: &Pipeline) -> Granted {
        if self.has_all(members) { None } else { Some(pipeline.base().clone()) }
    }

    /// Returns the number of positions that may be used.
    pub(super) fn positions(&self, cx: &Cx<'_>) -> usize {
        match self.granted_positions(cx.members, &cx.shared.pipeline) {
            None => usize::from(cx.shared.pipeline.positions()),
            Some(base) => usize::from(base.end.0 - base.start.0),
        }
    }

    /// Returns the test for positions that may be used.
    pub(super) fn usable(&self, cx: &Cx<'_>) -> impl Fn(Position) -> bool + use<> {
        let rests = self.resting;
        let granted = self.granted_positions(cx.members, &cx.shared.pipeline);
        move |position| !rests && has_memory(&granted, position)
    }

    /// Returns the test for positions that have their memory and an encoder.
    fn serves<'a>(
        &self,
        members: &Membership,
        pipeline: &'a Pipeline,
        missing: Roles,
    ) -> impl Fn(Position) -> bool + use<'a> {
        let granted = self.granted_positions(members, pipeline);
        move |position| {
            has_memory(&granted, position) && pipeline.planner_without(position, missing).is_some()
        }
    }

    /// Returns the end of the usable read slots.
    pub(super) fn slots_end(&self, cx: &Cx<'_>) -> u16 {
        if self.resting {
            0
        } else if self.has_all(cx.members) {
            cx.shared.params().reads.count
        } else {
            cx.shared.pipeline.base_reads()
        }
    }

    /// Returns the kind of positions that jobs of a kind get: the other kind when none of their own
    /// can serve.
    pub(super) fn positions_for(&self, cx: &Cx<'_>, kind: usize, missing: Roles) -> usize {
        if positions_of(cx, kind).any(self.serves(cx.members, &cx.shared.pipeline, missing)) {
            kind
        } else {
            1 - kind
        }
    }

    /// Returns whether one of these free positions can be used.
    pub(super) fn has_position(
        &self,
        cx: &Cx<'_>,
        mut free: impl Iterator<Item = Position>,
        missing: Roles,
    ) -> bool {
        !self.resting && free.any(self.serves(cx.members, &cx.shared.pipeline, missing))
    }

    /// Notes a shortage when another node than its home encodes a lone block, which costs more
    /// traffic.
    pub(super) fn miss_home(&mut self, nodes: u16, set: &Set, plan: &PlacedSchedule) {
        let home = || set.touched.iter().next().map(|i| plan.code.data()[i as usize].node);
        self.short |= set.touched.count() == 1 && home() != Some(set.position.encoder(nodes));
    }

    /// Requests more memory, or returns it.
    pub(super) fn advance(&mut self, cx: &mut Cx<'_>, sets: &Sets, idle: bool) {
        let now = cx.now();
        if !idle {
            self.used = true;
            self.used_at = now;
        }
        let short = std::mem::take(&mut self.short);
        if !self.asked.is_empty() || !self.returning.is_empty() {
            return;
        }
        if self.refused {
            if !is_in_use(cx.shared, sets, false) {
                self.refused = false;
                self.give_back(cx, self.granted, false);
            }
        } else if short && now >= self.retry_at && !self.has_all(cx.members) {
            self.request_all(cx);
        } else if self.rest_due(idle && !cx.keeper.is_stopping()).is_some_and(|due| due <= now) {
            self.used = false;
            let nodes = cx.members.nodes();
            let all = Role::all(nodes).filter(|&role| cx.members.entry(role).ready).collect();
            self.give_back(cx, all, true);
        }
    }

    fn request_all(&mut self, cx: &mut Cx<'_>) {
        let lacks = |role: &Role| !self.granted.contains(*role);
        self.asked = cx.members.alive_roles().filter(lacks).collect();
        for role in self.asked.iter() {
            cx.request(role, RequestKind::LeaseRing, |tag| Message::LeaseRing { tag });
        }
    }

    fn give_back(&mut self, cx: &mut Cx<'_>, roles: Roles, all: bool) {
        self.granted = Roles::NONE;
        self.returning = roles;
        self.resting = all && !roles.is_empty();
        for role in roles.iter() {
            cx.request(role, RequestKind::ReturnRing, |tag| Message::ReturnRing { tag, all });
        }
    }

    /// Notes whether a node has granted all of its ring.
    pub(super) fn answered(&mut self, role: Role, ok: bool, now: Instant) {
        self.asked.remove(role);
        if ok {
            self.granted.insert(role);
        } else {
            self.refused = true;
            self.retry_at = now.plus_millis(RETRY_MILLIS);
        }
    }

    /// Notes that a node has got memory back.
    pub(super) fn returned(&mut self, role: Role) {
        self.returning.remove(role);
        self.resting &= !self.returning.is_empty();
    }

    /// Returns the time when memory is returned if nothing else happens.
    pub(super) fn rest_due(&self, idle: bool) -> Option<Instant> {
        let answered = self.asked.is_empty() && self.returning.is_empty();
        let rests = self.used && answered && idle;
        rests.then(|| self.used_at.plus_millis(IDLE_MILLIS))
    }

    /// Checks the invariants of the lease.
    pub(super) fn check(
        &self,
        members: &Membership,
        shared: &Shared,
        sets: &Sets,
        running: bool,
    ) -> Result<(), String> {
        let beyond = is_in_use(shared, sets, false) && !self.returning.is_empty();
        if beyond || self.resting && is_in_use(shared, sets, true) {
            return Err("what is given back is in use".to_owned());
        }
        let mut named = self.granted.iter().chain(self.asked.iter());
        if running && named.any(|role| !members.alive(role)) {
            return Err("a node that is gone grants its ring".to_owned());
        }
        Ok(())
    }
}

fn has_memory(granted: &Granted, position: Position) -> bool {
    granted.as_ref().is_none_or(|granted| granted.contains(&position))
}

/// The positions of a kind.
fn positions_of(cx: &Cx<'_>, kind: usize) -> impl Iterator<Item = Position> + use<> {
    let wide = cx.shared.params().wide.count;
    Position::all(if kind == 0 { 0..wide } else { wide..cx.shared.pipeline.positions() })
}

/// Returns whether anything is in use beyond the base, or with `base` anything at all.
pub(super) fn is_in_use(shared: &Shared, sets: &Sets, base: bool) -> bool {
    let first = Slot(if base { 0 } else { shared.pipeline.base_reads() });
    let in_base = shared.pipeline.base();
    shared.reads.any_from(first)
        || sets.positions().any(|position| base || !in_base.contains(&position))
}
