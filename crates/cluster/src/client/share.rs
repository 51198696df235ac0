//! How much of the nodes' rings the client uses.

use super::setup::LinkState;
use super::{Client, Instant, Message, OpenSet, RequestKind};
use crate::pipeline::PlacedSchedule;
use crate::set::{Roles, Set};

/// After so long without traffic memory is given back.
const IDLE_MILLIS: u64 = 5_000;
/// Who was refused asks again after that.
const RETRY_MILLIS: u64 = 5_000;

/// What the client may use of the nodes' rings: the base of each, or all of it. All of it is used
/// only while every node that is there has granted that.
///
/// ```text
///  base ── no position or slot is free ──► asks all nodes ── all grant it ──► all
///   ▲                                            │ one refuses                 │
///   ├──────── given back by those that did ◄─────┘                             │
///   └──────── given back, with what lies in the base ◄─── idle for a while ◄───┘
/// ```
/// A node that comes back grants its base: until it has granted the rest, the base is used
/// everywhere.
#[derive(Debug, Default)]
pub(super) struct Share {
    /// They have granted all of their rings.
    granted: Roles,
    /// They have been asked to.
    asked: Roles,
    /// They have not answered that they have got it back.
    giving: Roles,
    /// Nothing is used until they have.
    resting: bool,
    /// One has refused: what the others have granted is of no use.
    refused: bool,
    /// Something found no free position or slot.
    short: bool,
    /// Nobody is asked before.
    retry_at: Instant,
    /// The rings have been used since they were given back, and when they were last.
    used: bool,
    used_at: Instant,
}

impl Share {
    /// Something finds no free position or slot.
    pub(super) const fn is_short(&mut self) {
        self.short = true;
    }

    /// A node is lost, and with it what it has granted.
    pub(super) fn forget(&mut self, role: u16) {
        self.granted.remove(role);
        self.asked.remove(role);
        self.giving.remove(role);
        self.resting &= !self.giving.is_empty();
    }
}

impl Client {
    fn rests(&self) -> bool {
        self.share.resting
    }

    /// Have all nodes that are there granted all of their rings?
    fn has_all(&self) -> bool {
        let granted = |role| !self.alive(role) || self.share.granted.contains(role);
        !self.share.refused && (0..self.params().nodes).all(granted)
    }

    /// Of which positions the memory is granted.
    fn have_memory(&self) -> impl Fn(u16) -> bool {
        let (base, all) = (self.pipeline.base(), self.has_all());
        move |position| all || base.contains(&position)
    }

    /// Which positions may be used.
    pub(super) fn usable(&self) -> impl Fn(u16) -> bool {
        let (rests, have_memory) = (self.rests(), self.have_memory());
        move |position| !rests && have_memory(position)
    }

    /// Which positions have their memory, and their encoder.
    fn serves(&self, missing: Roles) -> impl Fn(u16) -> bool {
        let have_memory = self.have_memory();
        move |position| {
            have_memory(position) && self.pipeline.planner_without(position, missing).is_some()
        }
    }

    /// Behind the slots for reads that may be used.
    pub(super) fn slots_end(&self) -> u16 {
        match () {
            () if self.rests() => 0,
            () if self.has_all() => self.params().reads.count,
            () => self.pipeline.base_reads(),
        }
    }

    fn positions_of(&self, kind: usize) -> std::ops::Range<u16> {
        let wide = self.params().wide.count;
        if kind == 0 { 0..wide } else { wide..self.pipeline.positions() }
    }

    /// Of which kind the positions are that jobs of a kind get: those of the other kind when all
    /// of their own rest.
    pub(super) fn positions_for(&self, kind: usize, missing: Roles) -> usize {
        if self.positions_of(kind).any(self.serves(missing)) { kind } else { 1 - kind }
    }

    /// Is one of this kind free?
    pub(super) fn has_position(&self, kind: usize, missing: Roles) -> bool {
        let serves = self.serves(missing);
        !self.rests() && self.free[kind].iter().any(|&position| serves(position))
    }

    /// Where another node than its home encodes a lone block, more travels: more is wanted.
    pub(super) fn miss_home(&mut self, set: &Set, plan: &PlacedSchedule) {
        let home = || set.touched.iter().next().map(|i| plan.code.data()[i as usize].node);
        let nodes = self.params().nodes;
        self.share.short |= set.touched.count() == 1 && home() != Some(set.position % nodes);
    }

    /// The longest range that a position of this kind takes.
    pub(super) fn longest(&self, kind: usize) -> u32 {
        if kind == 0 { self.params().wide.bytes } else { self.params().narrow.bytes }
    }

    /// Is anything in use beyond the base; or anything at all?
    fn is_in_use(&self, base: bool) -> bool {
        let first = if base { 0 } else { usize::from(self.pipeline.base_reads()) };
        let mut slots = self.links.iter().flat_map(|link| link.slots.iter().skip(first));
        let beyond = |open: &OpenSet| !self.pipeline.base().contains(&open.set.position);
        slots.any(Option::is_some) || self.open.values().any(|open| base || beyond(open))
    }

    fn is_idle(&self) -> bool {
        self.no_sets() && !self.is_in_use(true) && self.links.iter().all(|l| l.queue.is_empty())
    }

    /// Asks for more, or gives back.
    pub(super) fn look_at_share(&mut self) {
        let now = self.keeper.now();
        if !self.is_idle() {
            (self.share.used, self.share.used_at) = (true, now);
        }
        let short = std::mem::take(&mut self.share.short);
        if !self.share.asked.is_empty() || !self.share.giving.is_empty() {
            return;
        }
        if self.share.refused {
            if !self.is_in_use(false) {
                self.share.refused = false;
                self.give_back(self.share.granted, false);
            }
        } else if short && now >= self.share.retry_at && !self.has_all() {
            self.ask_for_all();
        } else if self.rest_due().is_some_and(|due| due <= now) {
            self.share.used = false;
            let all = (0..self.params().nodes).filter(|&role| self.is_ready(role));
            self.give_back(all.collect(), true);
        }
    }

    fn is_ready(&self, role: u16) -> bool {
        self.links[usize::from(role)].state == LinkState::Ready
    }

    fn ask_for_all(&mut self) {
        let lacks = |&role: &u16| self.alive(role) && !self.share.granted.contains(role);
        let asked: Roles = (0..self.params().nodes).filter(lacks).collect();
        self.share.asked = asked;
        for role in asked.iter() {
            self.ask(role, RequestKind::LeaseRing, |tag| Message::LeaseRing { tag });
        }
    }

    fn give_back(&mut self, roles: Roles, all: bool) {
        self.share.granted = Roles::NONE;
        self.share.giving = roles;
        self.share.resting = all && !roles.is_empty();
        for role in roles.iter() {
            self.ask(role, RequestKind::ReturnRing, |tag| Message::ReturnRing { tag, all });
        }
    }

    /// A node has granted all of its ring, or not.
    pub(super) fn use_answered(&mut self, role: u16, ok: bool) {
        self.share.asked.remove(role);
        if ok {
            self.share.granted.insert(role);
        } else {
            self.share.refused = true;
            self.share.retry_at = self.keeper.now().plus_millis(RETRY_MILLIS);
        }
    }

    /// A node has got memory back.
    pub(super) fn given_back(&mut self, role: u16) {
        self.share.giving.remove(role);
        self.share.resting &= !self.share.giving.is_empty();
    }

    /// When memory is given back if nothing comes in between.
    fn rest_due(&self) -> Option<Instant> {
        let settled = self.share.asked.is_empty() && self.share.giving.is_empty();
        let rests = self.share.used && settled && self.is_idle() && !self.keeper.is_stopping();
        rests.then(|| self.share.used_at.plus_millis(IDLE_MILLIS))
    }

    pub(super) fn share_deadline(&self) -> Option<Instant> {
        let running = matches!(self.phase, super::Phase::Running);
        self.rest_due().filter(|_| running)
    }

    /// What is not as it has to be.
    pub(super) fn check_share(&self) -> Result<(), String> {
        let beyond = self.is_in_use(false) && !self.share.giving.is_empty();
        if beyond || self.rests() && self.is_in_use(true) {
            return Err("what is given back is in use".to_owned());
        }
        let named = self.share.granted.iter().chain(self.share.asked.iter());
        let running = matches!(self.phase, super::Phase::Running);
        if running && named.into_iter().any(|role| !self.alive(role)) {
            return Err("a node that is gone grants its ring".to_owned());
        }
        Ok(())
    }
}
