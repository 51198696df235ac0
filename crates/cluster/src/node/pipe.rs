//! This node's end of one pipeline: the slice-sets that are open, and the tasks of each.

mod left;
mod stages;
mod tasks;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use braid_array::fabric::PeerId;
use braid_array::{Buf, MemberId};

use super::ids::{ClientId, Violation};
use super::journal::Journal;
use super::out::Out;
use super::part::{Part, Place};
use super::slot::{ReadSlot, Taking};
use crate::pipeline::Pipeline;
use crate::schedule::{Endpoint, Planner};
use crate::set::{Imm, Roles, Set, WriteStrategy};

/// So many parts are kept: what the largest array needs while nobody is missing.
const KEPT_PARTS: usize = 1 << 12;

/// A connection to another node of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// Not yet.
    Absent,
    /// We are connecting.
    Dialing(PeerId),
    /// It stands.
    Up(PeerId),
    /// It is over.
    Lost,
}

/// Another node of the array.
#[derive(Clone, Debug)]
pub(super) struct Neighbour {
    pub(super) link: Link,
    /// Its ring in its arena, and its address, once the client has told.
    pub(super) told: Option<(u64, String)>,
}

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Started,
    Over,
}

/// A task of an open slice-set.
#[derive(Clone, Copy, Debug)]
struct State {
    /// How many others it still waits for.
    needs: u16,
    /// One of them ended badly.
    spoiled: bool,
    phase: Phase,
}

/// An open slice-set.
#[derive(Debug)]
struct Live {
    set: Set,
    part: Arc<Part>,
    /// Tasks before the stores that are not over.
    before: usize,
    /// Stores that are not over.
    stores: usize,
    stage: Stage,
    ok: bool,
    /// What cannot be done here is the fault of this node's store.
    own_fault: bool,
    /// Nodes to which no connection stands that is needed.
    cut_off: Roles,
}

/// How far a slice-set is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its new content is being made.
    Running,
    /// It is being recorded.
    Recording,
    /// It is there, or cannot be had; the client decides.
    Staged,
    /// It is being recorded that it is void.
    Dropped,
    /// It is being stored.
    Going,
}

/// What came for a slice-set that is not open yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Early {
    imm: Imm,
    from: Endpoint,
    /// It came; otherwise it will not come.
    placed: bool,
}

/// A place for one slice-set.
#[derive(Debug, Default)]
struct Position {
    /// Of the latest slice-set.
    generation: Option<u32>,
    running: Option<Live>,
    /// The version of the latest slice-set that went, and whether all of it is stored.
    stored: Option<(u64, bool)>,
    /// By task; kept for its memory.
    states: Vec<State>,
    early: Vec<Early>,
}

/// A client gives memory back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Giving {
    pub(super) tag: u32,
    /// It uses nothing at all until it is answered; otherwise nothing beyond the base.
    pub(super) all: bool,
}

/// A pipeline at this node, from `OpenPipeline` until its client is gone and what it left is
/// resolved.
/// It owns the node's part of each open slice-set, the slots for reads, the connections to the
/// other nodes and the journal; its ring is a part of the node's arena.
///
/// ```text
/// position:  Idle ── Open ──► running ── all but stores over, Staged sent ──► staged
///            staged ── Go ──► stores ── all over, Closed sent ──► Idle
///            staged ── Drop ──► Closed sent, nothing stored ──► Idle
/// task:      waits for others ──► started ──► over, well or not
/// ```
/// A slice-set that is to be recorded is durable in the journal before `Prepared` is sent.
///
/// A task that cannot be done ends badly, and so do those that wait for it; the node that misses
/// something because of that is told by `Missing`. So every slice-set comes to its stores at every
/// living node, and nothing in the store has changed until then: the client decides whether the new
/// content takes the place of the old, everywhere or nowhere.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) client: ClientId,
    /// The connection to the client.
    pub(super) peer: PeerId,
    pub(super) role: u16,
    pub(super) member: MemberId,
    /// Whether slice-sets may be opened.
    pub(super) write: bool,
    /// First sector of the data on the member.
    pub(super) data_sector: u64,
    /// Where the ring begins in the arena.
    pub(super) ring: u64,
    /// All of it may be used; otherwise the base.
    pub(super) whole: bool,
    /// The client gives memory back, and waits for that.
    pub(super) giving: Option<Giving>,
    pub(super) pipeline: Pipeline,
    /// The other nodes, by role; then the one of the same role, if it is copied.
    pub(super) neighbours: Vec<Neighbour>,
    /// The tag of a `Connect` that is not answered yet, and which neighbours it names.
    pub(super) connecting: Option<(u32, Vec<u16>)>,
    pub(super) reads: Vec<ReadSlot>,
    /// By slot for reads.
    pub(super) takes: Vec<Taking>,
    positions: Vec<Position>,
    /// Positions with a slice-set.
    open: usize,
    /// Of slice-sets that are common, by what they depend on.
    parts: BTreeMap<(Roles, u16, Planner, WriteStrategy), Arc<Part>>,
    pub(super) journal: Option<Box<Journal>>,
    /// The store had no room for something of it.
    pub(super) no_room: bool,
}

impl Pipe {
    pub(super) fn new(
        (client, peer): (ClientId, PeerId),
        role: u16,
        (member, data_sector, write): (MemberId, u64, bool),
        (ring, whole): (u64, bool),
        pipeline: Pipeline,
    ) -> Self {
        let neighbour = Neighbour { link: Link::Absent, told: None };
        let positions = (0..pipeline.positions()).map(|_| Position::default()).collect();
        Self {
            client,
            peer,
            role,
            member,
            write,
            data_sector,
            ring,
            whole,
            giving: None,
            neighbours: vec![neighbour; usize::from(pipeline.params().nodes) + 1],
            connecting: None,
            reads: vec![ReadSlot::Free; usize::from(pipeline.params().reads.count)],
            takes: vec![Taking::Nothing; usize::from(pipeline.params().reads.count)],
            positions,
            open: 0,
            parts: BTreeMap::new(),
            journal: None,
            no_room: false,
            pipeline,
        }
    }

    /// What is not as it has to be between two events.
    pub(super) fn check(&self, out: &Out) -> Result<(), String> {
        let running = || self.positions.iter().filter_map(|p| Some((p, p.running.as_ref()?)));
        if running().count() != self.open {
            return Err(format!("{} sets, counted {}", running().count(), self.open));
        }
        let mut started = 0;
        for (position, set) in running() {
            let phases = || position.states.iter().map(|state| state.phase);
            let left = phases().filter(|phase| *phase != Phase::Over).count();
            let (before, stores) = (set.before, set.stores);
            if left != before + stores || (before > 0) != (set.stage == Stage::Running) {
                return Err(format!("{left} tasks left of a set, counted {before} + {stores}"));
            }
            started += phases().filter(|phase| *phase == Phase::Started).count();
        }
        let tasks = out.tasks(self.client);
        if started != tasks { Err(format!("{started} tasks, {tasks} under way")) } else { Ok(()) }
    }

    /// Positions with a slice-set, or something of one that comes.
    pub(super) fn busy_positions(&self) -> impl Iterator<Item = u16> {
        let busy = |position: &Position| position.running.is_some() || !position.early.is_empty();
        (0..).zip(&self.positions).filter(move |(_, position)| busy(position)).map(|(at, _)| at)
    }

    /// All that is open waits for the client to decide.
    pub(super) fn is_idle(&self) -> bool {
        let mut running = self.positions.iter().filter_map(|position| position.running.as_ref());
        self.open == 0 || running.all(|live| live.stage == Stage::Staged)
    }

    /// What of the ring may be used, as part of the arena: where client and neighbours may put.
    pub(super) fn window(&self) -> Range<u64> {
        self.ring..self.ring + self.granted_bytes()
    }

    pub(super) const fn epoch(&self) -> u32 {
        self.pipeline.params().epoch
    }

    /// The client opens a slice-set.
    pub(super) fn open(&mut self, set: Set, out: &mut Out) -> Result<(), Violation> {
        let may = self.write && self.may_use(set.position);
        let plan = self.pipeline.plan_of(&set).filter(|_| may);
        let plan = plan.ok_or(Violation("a slice-set that may not be opened"))?;
        let part = if set.is_common() {
            let params = self.pipeline.params();
            let variant = set.stripe % u64::from(params.family.period(params.nodes));
            let new = || Arc::new(Part::new(plan, self.role, set.strategy, &set.touched));
            if self.parts.len() >= KEPT_PARTS {
                self.parts.clear();
            }
            let key = (set.missing, variant as u16, set.planner, set.strategy);
            Arc::clone(self.parts.entry(key).or_insert_with(new))
        } else {
            Arc::new(Part::new(plan, self.role, set.strategy, &set.touched))
        };
        let number = set.position;
        let position = &mut self.positions[usize::from(number)];
        if position.running.is_some()
            || position.generation.is_some_and(|generation| generation >= set.generation)
        {
            return Err(Violation("a slice-set at a position that is not free"));
        }
        position.generation = Some(set.generation);
        let early = std::mem::take(&mut position.early);
        if early.iter().any(|early| early.imm.generation != Imm::generation(set.generation)) {
            return Err(Violation("a slice of another generation"));
        }
        position.states.clear();
        let waiting = |needs| State { needs, spoiled: false, phase: Phase::Waiting };
        position.states.extend(part.tasks.iter().map(|task| waiting(task.needs)));
        let stores = part.tasks.iter().filter(|task| task.work.is_store()).count();
        let before = part.tasks.len() - stores;
        self.open += 1;
        position.running = Some(Live {
            set,
            part: Arc::clone(&part),
            before,
            stores,
            stage: Stage::Running,
            ok: true,
            own_fault: false,
            cut_off: Roles::default(),
        });
        if before == 0 {
            self.staged(number, out);
        }
        for early in early {
            self.resolve(early.imm, early.from, early.placed, out)?;
        }
        self.begin(number, &part, out);
        Ok(())
    }

    pub(super) fn running(&self, number: u16) -> Option<(&Set, &Part)> {
        let running = self.positions[usize::from(number)].running.as_ref()?;
        Some((&running.set, &running.part))
    }

    /// In the arena.
    pub(super) fn slot(&self, part: &Part, set: &Set, place: Place) -> Buf {
        let buf = match place {
            Place::Arrival(transfer) => self.pipeline.arrival(&part.plan, set, transfer),
            Place::Idle(rank) => self.pipeline.idle(set, self.role, rank),
            Place::Fresh(fresh) => self.pipeline.fresh(set, self.role, fresh),
            Place::Old(row) => self.pipeline.old(set, self.role, row),
        };
        Buf { offset: self.ring + buf.offset, ..buf }
    }
}
