//! The positions of a pipeline, and the slice-sets that are open there.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::open_set::{OpenSet, OpenSetStage, TaskState};
use super::part::Part;
use super::seat::Seat;
use crate::ids::{Generation, Position};
use crate::node::ids::Violation;
use crate::pipeline::PlacedSchedule;
use crate::schedule::Endpoint;
use crate::set::{Imm, Pattern, Set};

/// Number of parts that are kept: as many as the largest array needs while no node is missing.
const KEPT_PARTS: usize = 1 << 12;

/// Early news of a slice for a slice-set that is not open yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Early {
    pub(super) imm: Imm,
    pub(super) from: Endpoint,
    /// The slice came; otherwise it will not come.
    pub(super) placed: bool,
}

/// A place for one slice-set.
#[derive(Debug, Default)]
struct PositionState {
    /// Generation of the latest slice-set.
    generation: Option<Generation>,
    open: Option<OpenSet>,
    /// The version of the latest slice-set that was committed, and whether all of it is stored.
    stored: Option<(u64, bool)>,
    /// Kept for its memory.
    states: Vec<TaskState>,
    early: Vec<Early>,
}

/// The positions by number, with their state, and the parts that many slice-sets share.
#[derive(Debug)]
pub(super) struct PipelineSets {
    positions: Vec<PositionState>,
    /// Positions with a slice-set.
    open: usize,
    /// Parts that many slice-sets share.
    parts: BTreeMap<Pattern, Arc<Part>>,
}

impl PipelineSets {
    pub(super) fn new(positions: u16) -> Self {
        let positions = (0..positions).map(|_| PositionState::default()).collect();
        Self { positions, open: 0, parts: BTreeMap::new() }
    }

    pub(super) fn get(&self, number: Position) -> Option<&OpenSet> {
        self.positions.get(number.index())?.open.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: Position) -> Option<&mut OpenSet> {
        self.positions.get_mut(number.index())?.open.as_mut()
    }

    /// Returns the open slice-sets.
    pub(super) fn iter(&self) -> impl Iterator<Item = &OpenSet> {
        self.positions.iter().filter_map(|position| position.open.as_ref())
    }

    /// Returns all positions.
    pub(super) fn all(&self) -> impl Iterator<Item = Position> + use<> {
        Position::all(0..self.positions.len() as u16)
    }

    /// Returns the versions that were stored last, by position, and whether all of each is stored.
    pub(super) fn stored(&self) -> impl Iterator<Item = (u64, bool)> {
        self.positions.iter().filter_map(|position| position.stored)
    }

    /// Returns the positions with a slice-set, or with early slices of one.
    pub(super) fn busy(&self) -> impl Iterator<Item = Position> {
        let busy = |position: &PositionState| position.open.is_some() || !position.early.is_empty();
        let numbered = self.all().zip(&self.positions);
        numbered.filter(move |(_, position)| busy(position)).map(|(number, _)| number)
    }

    /// Returns whether all open slice-sets wait for this client, or a later one, to decide.
    pub(super) fn is_idle(&self) -> bool {
        let waits =
            |set: &OpenSet| matches!(set.stage, OpenSetStage::Prepared | OpenSetStage::Starved);
        self.open == 0 || self.iter().all(waits)
    }

    /// Checks the invariants. Returns the number of tasks that are started and not over.
    pub(super) fn check(&self) -> Result<usize, String> {
        if self.iter().count() != self.open {
            return Err(format!("{} sets, counted {}", self.iter().count(), self.open));
        }
        self.iter().map(OpenSet::check).sum()
    }

    /// Returns whether this node has been told of a slice-set before.
    pub(super) fn knows(&self, set: &Set) -> bool {
        let position = self.positions.get(set.position.index());
        position.is_some_and(|position| position.generation >= Some(set.generation))
    }

    /// Opens a slice-set. Returns its early slices.
    pub(super) fn open(
        &mut self,
        set: Set,
        plan: Arc<PlacedSchedule>,
        seat: &Seat,
    ) -> Result<Vec<Early>, Violation> {
        let part = self.part(&set, plan, seat);
        let position = &mut self.positions[set.position.index()];
        let newer = position.generation.is_none_or(|generation| generation < set.generation);
        if position.open.is_some() || !newer {
            return Err(Violation("a slice-set at a position that is not free"));
        }
        position.generation = Some(set.generation);
        let early = std::mem::take(&mut position.early);
        if early.iter().any(|early| early.imm.generation != Imm::generation(set.generation)) {
            return Err(Violation("a slice of another generation"));
        }
        let states = std::mem::take(&mut position.states);
        position.open = Some(OpenSet::new(set, part, states));
        self.open += 1;
        Ok(early)
    }

    /// Returns the part of this node in a slice-set.
    fn part(&mut self, set: &Set, plan: Arc<PlacedSchedule>, seat: &Seat) -> Arc<Part> {
        let new = || Arc::new(Part::new(plan, seat.role, set.strategy, &set.touched));
        let variant = seat.pipeline.variant(set.stripe);
        let Some(pattern) = set.pattern(variant) else { return new() };
        if self.parts.len() >= KEPT_PARTS {
            self.parts.clear();
        }
        Arc::clone(self.parts.entry(pattern).or_insert_with(new))
    }

    /// Keeps an early slice, if the pipeline may expect it.
    pub(super) fn keep(&mut self, early: Early, may: bool, seat: &Seat) -> Result<(), Violation> {
        let number = early.imm.position;
        let position = self.positions.get_mut(number.index());
        let position = position.ok_or(Violation("a slice for no position"))?;
        let most = seat.pipeline.arrivals(number, seat.role) as usize;
        let known = position.early.iter().any(|other| other.imm == early.imm);
        if !may || known || position.early.len() >= most {
            return Err(Violation("a slice that nobody waits for"));
        }
        position.early.push(early);
        Ok(())
    }

    /// Closes a slice-set. `stored`: whether all of it is stored, when it was committed.
    pub(super) fn close(&mut self, number: Position, stored: Option<bool>) -> Option<Set> {
        let position = self.positions.get_mut(number.index())?;
        let open = position.open.take()?;
        self.open -= 1;
        let set = open.set.clone();
        position.states = open.into_states();
        if let Some(ok) = stored {
            position.stored = Some((set.number, ok));
        }
        Some(set)
    }
}
