//! How much of the nodes' rings the client uses.

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

/// After so long without traffic memory is given back.
const IDLE_MILLIS: u64 = 5_000;
/// Who was refused asks again after that.
const RETRY_MILLIS: u64 = 5_000;

/// Positions of which the memory is granted; `None` is all of them.
type Granted = Option<Range<Position>>;

/// What the client may use of the nodes' rings: the base of each, or all of it. All of it is used
/// only while every node that is there has granted that.
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
pub(super) struct Lease {
    /// They have granted all of their rings.
    granted: Roles,
    /// They have been asked to.
    asked: Roles,
    /// They have not answered that they have got it back.
    returning: Roles,
    /// Nothing is used until they have.
    resting: bool,
    /// One has refused: what the others have granted is of no use.
    refused: bool,
    /// Something found no free position or slot.
    short: bool,
    /// Nobody is asked before.
    retry_at: Instant,
    /// The rings have been used since they were returned, and when they were last.
    used: bool,
    used_at: Instant,
}

impl Lease {
    /// Something finds no free position or slot.
    pub(super) const fn is_short(&mut self) {
        self.short = true;
    }

    /// A node is lost, and with it what it has granted.
    pub(super) fn forget(&mut self, role: Role) {
        self.granted.remove(role);
        self.asked.remove(role);
        self.returning.remove(role);
        self.resting &= !self.returning.is_empty();
    }

    /// Have all nodes that are there granted all of their rings?
    fn has_all(&self, members: &Membership) -> bool {
        !self.refused && members.alive_roles().all(|role| self.granted.contains(role))
    }

    /// The positions of which the memory is granted; `None` is all of them.
    fn granted_positions(&self, members: &Membership, pipeline: &Pipeline) -> Granted {
        if self.has_all(members) { None } else { Some(pipeline.base().clone()) }
    }

    /// How many positions may be used.
    pub(super) fn positions(&self, cx: &Cx<'_>) -> usize {
        match self.granted_positions(cx.members, &cx.shared.pipeline) {
            None => usize::from(cx.shared.pipeline.positions()),
            Some(base) => usize::from(base.end.0 - base.start.0),
        }
    }

    /// Which positions may be used.
    pub(super) fn usable(&self, cx: &Cx<'_>) -> impl Fn(Position) -> bool + use<> {
        let rests = self.resting;
        let granted = self.granted_positions(cx.members, &cx.shared.pipeline);
        move |position| !rests && has_memory(&granted, position)
    }

    /// Which positions have their memory, and their encoder.
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

    /// Behind the slots for reads that may be used.
    pub(super) fn slots_end(&self, cx: &Cx<'_>) -> u16 {
        if self.resting {
            0
        } else if self.has_all(cx.members) {
            cx.shared.params().reads.count
        } else {
            cx.shared.pipeline.base_reads()
        }
    }

    /// Of which kind the positions are that jobs of a kind get: those of the other kind when all
    /// of their own rest.
    pub(super) fn positions_for(&self, cx: &Cx<'_>, kind: usize, missing: Roles) -> usize {
        if positions_of(cx, kind).any(self.serves(cx.members, &cx.shared.pipeline, missing)) {
            kind
        } else {
            1 - kind
        }
    }

    /// Is one of these positions free to be used?
    pub(super) fn has_position(
        &self,
        cx: &Cx<'_>,
        mut free: impl Iterator<Item = Position>,
        missing: Roles,
    ) -> bool {
        !self.resting && free.any(self.serves(cx.members, &cx.shared.pipeline, missing))
    }

    /// Where another node than its home encodes a lone block, more travels: more is wanted.
    pub(super) fn miss_home(&mut self, nodes: u16, set: &Set, plan: &PlacedSchedule) {
        let home = || set.touched.iter().next().map(|i| plan.code.data()[i as usize].node);
        self.short |= set.touched.count() == 1 && home() != Some(set.position.encoder(nodes));
    }

    /// Requests more, or returns it.
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

    /// A node has granted all of its ring, or not.
    pub(super) fn answered(&mut self, role: Role, ok: bool, now: Instant) {
        self.asked.remove(role);
        if ok {
            self.granted.insert(role);
        } else {
            self.refused = true;
            self.retry_at = now.plus_millis(RETRY_MILLIS);
        }
    }

    /// A node has got memory back.
    pub(super) fn returned(&mut self, role: Role) {
        self.returning.remove(role);
        self.resting &= !self.returning.is_empty();
    }

    /// When memory is returned if nothing comes in between.
    pub(super) fn rest_due(&self, idle: bool) -> Option<Instant> {
        let answered = self.asked.is_empty() && self.returning.is_empty();
        let rests = self.used && answered && idle;
        rests.then(|| self.used_at.plus_millis(IDLE_MILLIS))
    }

    /// What is not as it has to be.
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

/// Is anything in use beyond the base; or anything at all?
pub(super) fn is_in_use(shared: &Shared, sets: &Sets, base: bool) -> bool {
    let first = Slot(if base { 0 } else { shared.pipeline.base_reads() });
    let in_base = shared.pipeline.base();
    shared.reads.any_from(first)
        || sets.positions().any(|position| base || !in_base.contains(&position))
}
