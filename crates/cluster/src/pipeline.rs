//! A pipeline: the agreement of one client and the nodes of one array, made before the first slice
//! flows. While slices flow nothing has to be negotiated, and no slice ever waits for room.

mod params;
mod placed;
mod restore;
mod ring;
mod strategy;
#[cfg(test)]
mod tests;

pub use params::{MAX_CHUNK_BYTES, MAX_NODES, MAX_SLOT_BYTES, Params};
pub use placed::PlacedSchedule;
pub use strategy::{Knowledge, Way, lost_blocks, write_strategy};

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use braid_array::refusal::{Advised, Next};
use braid_array::{Role, SECTOR_BYTES};

use crate::family::FamilyError;
use crate::ids::{Epoch, Position, StripeNo};
use crate::schedule::{Planner, Schedule};
use crate::set::{MAX_TRANSFERS, Roles, Set, WriteStrategy};
use braid_array::code::Losses;

/// Slots of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Number of slots.
    pub count: u16,
    /// Length of each; a multiple of 4096.
    pub bytes: u32,
}

/// Reason why there is no such pipeline.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PipelineError {
    /// The code does not exist.
    #[error(transparent)]
    Family(#[from] FamilyError),
    /// The family has no such schedule.
    #[error("there is no {0} schedule for this layout and number of nodes")]
    Planner(&'static str),
    /// A number is out of range.
    #[error("{0} is out of range")]
    Range(&'static str),
}

impl Advised for PipelineError {
    fn next(&self) -> Next {
        match self {
            Self::Family(error) => error.next(),
            Self::Planner(_) => "use encoder".into(),
            Self::Range(_) => "use a smaller one".into(),
        }
    }
}

/// Slots of one node at one position.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    received: u32,
    fresh: u32,
}

/// Plans by variant of the stripe, by planner, and by the role that gets its blocks back.
type Plans = BTreeMap<(u16, Planner, Option<Role>), Arc<PlacedSchedule>>;

/// Slots for reads in the base.
const BASE_READS: u16 = 2;

/// Number of sets of missing roles whose plans are kept.
const KEPT_PLANS: usize = 4;

/// Layout of the nodes' rings: the place of each slice of each slice-set. The layout follows from
/// the [`Params`] alone: the client makes them, sends them to the nodes, and all derive the same
/// layout.
///
/// Order of calls: [`new`](Self::new) checks the parameters and lays the rings out.
/// [`plan_of`](Self::plan_of) returns the plan of a slice-set, with its transfers, if it may be
/// opened. With that plan, [`arrival`](Self::arrival), [`fresh`](Self::fresh) and
/// [`old`](Self::old) return the slots of its slices, and [`read_slot`](Self::read_slot) the slot
/// that a read is answered from. Slots are offsets and lengths in bytes from the beginning of a
/// ring. The plans of the last few sets of missing roles are kept.
///
/// A pipeline has positions, each for one open slice-set. `wide` positions take whole slices,
/// `narrow` ones short ranges, for small writes. The encoder belongs to the position: it is
/// `position mod nodes`. The right to open a slice-set is a free position (the credit), which comes
/// back when every node that has a part has closed its part. So memory is bounded by the positions,
/// and a slow node slows its writers.
///
/// A node's ring holds for each position, in this order: a slot for every slice that can arrive, a
/// slot for every sum that cannot be formed in place, and a slot for the old content of every row.
/// Slots for answers to reads follow the positions; the client allocates these itself.
///
/// In front lies the *base*, the part that a client may use at any time. The base is as small as
/// possible: enough positions that one is left with its encoder, whichever nodes are missing, and
/// few slots for reads. The other positions and slots follow; the client asks for them while it
/// needs them.
///
/// The layout is the same whichever roles are missing in a slice-set: an encoder has room for all
/// data, and every other node gets the content that it stores.
#[derive(Debug)]
pub struct Pipeline {
    params: Params,
    rows: u16,
    data_blocks: u32,
    /// By encoder, then node.
    rooms: Vec<Vec<Room>>,
    /// By position, then node: where its slots begin in the ring.
    starts: Vec<Vec<u64>>,
    /// Positions that may be used at any time.
    base: Range<Position>,
    /// By node: where the slots for reads of the base begin, and all others.
    read_starts: [Vec<u64>; 2],
    losses: Losses,
    /// By missing roles, the latest first.
    plans: VecDeque<(Roles, Plans)>,
}

impl Pipeline {
    /// Creates the pipeline with these parameters.
    ///
    /// # Errors
    /// [`PipelineError`].
    pub fn new(params: Params) -> Result<Self, PipelineError> {
        params.check()?;
        let code = params.family.code(params.nodes, 0)?;
        let cells = u128::from(code.rows()) * u128::from(params.nodes);
        if cells * u128::from(params.chunk_bytes) * u128::from(params.stripes) >= 1 << 62 {
            return Err(PipelineError::Range("the size"));
        }
        let mut pipeline = Self {
            params,
            rows: code.rows(),
            data_blocks: code.data().len() as u32,
            rooms: Vec::new(),
            starts: Vec::new(),
            base: Position(0)..Position(0),
            read_starts: [Vec::new(), Vec::new()],
            losses: params.family.losses(params.nodes)?,
            plans: VecDeque::new(),
        };
        pipeline.lay_out()?;
        Ok(pipeline)
    }

    fn lay_out(&mut self) -> Result<(), PipelineError> {
        for encoder in Role::all(self.params.nodes) {
            let rooms = self.rooms_of(encoder)?;
            self.rooms.push(rooms);
        }
        self.base = self.smallest_base();
        self.starts = vec![Vec::new(); usize::from(self.positions())];
        let mut ends = vec![0; usize::from(self.params.nodes)];
        for position in Position::all(self.base.start.0..self.base.end.0) {
            self.place(position, &mut ends);
        }
        self.read_starts[0].clone_from(&ends);
        let bytes = u64::from(self.base_reads()) * u64::from(self.params.reads.bytes);
        ends.iter_mut().for_each(|end| *end += bytes);
        for position in Position::all(0..self.positions()) {
            if !self.base.contains(&position) {
                self.place(position, &mut ends);
            }
        }
        self.read_starts[1] = ends;
        Ok(())
    }

    /// Places a position behind the present ones.
    fn place(&mut self, position: Position, ends: &mut Vec<u64>) {
        self.starts[position.index()].clone_from(ends);
        let bytes = u64::from(self.position_bytes(position));
        let encoder = position.encoder(self.params.nodes).index();
        for (end, room) in ends.iter_mut().zip(&self.rooms[encoder]) {
            *end += u64::from(room.received + room.fresh + u32::from(self.rows)) * bytes;
        }
    }

    /// Returns the fewest positions whose encoders cannot all be missing; narrow ones if there are
    /// enough.
    fn smallest_base(&self) -> Range<Position> {
        let Params { nodes, wide, .. } = self.params;
        let fewest = |all: Range<u16>| {
            let enough = |&end: &u16| {
                let encodes =
                    |role| Position::all(all.start..end).any(|at| at.encoder(nodes) == role);
                !self.losses.survives(encodes)
            };
            (all.start + 1..=all.end).find(enough).map(|end| all.start..end)
        };
        let short = fewest(wide.count..self.positions());
        let base = short.or_else(|| fewest(0..wide.count)).unwrap_or(0..self.positions());
        Position(base.start)..Position(base.end)
    }

    /// Returns the slots that a position with this encoder needs at each node, whichever roles are
    /// missing.
    fn rooms_of(&mut self, encoder: Role) -> Result<Vec<Room>, PipelineError> {
        let rows = u32::from(self.rows);
        let data = self.data_blocks;
        let sums = rows * u32::from(self.params.nodes) - data;
        // The encoder may get all the data; everybody gets what he stores, or its value.
        let room = |node| {
            if node == encoder {
                Room { received: data.max(rows), fresh: sums }
            } else {
                Room { received: rows, fresh: 0 }
            }
        };
        let mut rooms: Vec<Room> = Role::all(self.params.nodes).map(room).collect();
        if let Planner::Encoder { .. } = self.params.planner {
            return Ok(rooms);
        }
        for stripe in 0..u64::from(self.params.family.period(self.params.nodes)) {
            let plan = self.plan(StripeNo(stripe), self.params.planner);
            let plan = plan.ok_or(PipelineError::Planner(self.params.planner.name()))?;
            for (node, room) in rooms.iter_mut().enumerate() {
                room.received = room.received.max(plan.received[node]);
                room.fresh = room.fresh.max(plan.fresh[node]);
            }
        }
        Ok(rooms)
    }

    /// The parameters.
    #[must_use]
    pub const fn params(&self) -> &Params {
        &self.params
    }

    /// Changes the epoch, on which nothing else depends.
    pub const fn set_epoch(&mut self, epoch: Epoch) {
        self.params.epoch = epoch;
    }

    /// Blocks of a stripe on each node.
    #[must_use]
    pub const fn rows(&self) -> u16 {
        self.rows
    }

    /// Data blocks of a stripe.
    #[must_use]
    pub const fn data_blocks(&self) -> u32 {
        self.data_blocks
    }

    /// All positions: first the wide ones.
    #[must_use]
    pub const fn positions(&self) -> u16 {
        self.params.wide.count + self.params.narrow.count
    }

    /// The longest range of a slice-set at this position.
    #[must_use]
    pub const fn position_bytes(&self, position: Position) -> u32 {
        if position.0 < self.params.wide.count {
            self.params.wide.bytes
        } else {
            self.params.narrow.bytes
        }
    }

    /// Returns the planner at this position when all nodes are there, unless the client makes the
    /// parities.
    #[must_use]
    pub const fn planner(&self, position: Position) -> Planner {
        match self.params.planner {
            Planner::Encoder { .. } => self.encoder(position),
            other => other,
        }
    }

    /// Returns the same without some roles: always an encoder, as chains may lead through the
    /// missing ones. `None` when the encoder is missing: then the position is not used.
    #[must_use]
    pub fn planner_without(&self, position: Position, missing: Roles) -> Option<Planner> {
        let there = !missing.contains(position.encoder(self.params.nodes));
        let planner =
            if missing.is_empty() { self.planner(position) } else { self.encoder(position) };
        there.then_some(planner)
    }

    const fn encoder(&self, position: Position) -> Planner {
        Planner::Encoder { node: position.encoder(self.params.nodes) }
    }

    /// Returns the number of this stripe's layout, among those that a family's stripes take in
    /// turn.
    pub(crate) fn variant(&self, stripe: StripeNo) -> u16 {
        (stripe.0 % u64::from(self.params.family.period(self.params.nodes))) as u16
    }

    /// Returns the plan for a stripe when all nodes are there; `None` when the family has no such
    /// schedule.
    pub fn plan(&mut self, stripe: StripeNo, planner: Planner) -> Option<Arc<PlacedSchedule>> {
        self.plan_without(stripe, planner, Roles::NONE)
    }

    fn plan_without(
        &mut self,
        stripe: StripeNo,
        planner: Planner,
        missing: Roles,
    ) -> Option<Arc<PlacedSchedule>> {
        let Params { family, nodes, .. } = self.params;
        let variant = self.variant(stripe);
        if let Some(plan) = self.plans_of(missing).get(&(variant, planner, None)) {
            return Some(Arc::clone(plan));
        }
        let code = family.code(nodes, u64::from(variant)).ok()?;
        let schedule = match planner {
            Planner::Encoder { node } => {
                Schedule::encoded(&code, node, |role| missing.contains(role)).ok()?
            }
            _ => family.schedule(nodes, u64::from(variant), planner)?,
        };
        if schedule.transfers().len() > MAX_TRANSFERS {
            return None;
        }
        let plan = Arc::new(PlacedSchedule::new(code, schedule, missing));
        self.plans_of(missing).insert((variant, planner, None), Arc::clone(&plan));
        Some(plan)
    }

    /// Returns the plan of a slice-set that gives this role its blocks back; `None` when it may not
    /// be opened, or the nodes with a part in it cannot restore them.
    fn plan_restore(&mut self, set: &Set, role: Role) -> Option<Arc<PlacedSchedule>> {
        let params = self.params;
        let lost = restore::lost(params.nodes, set, role)?;
        if !self.losses.survives(|role| lost.contains(role)) {
            return None;
        }
        let variant = self.variant(set.stripe);
        let key = (variant, Planner::Chain, Some(role));
        if let Some(plan) = self.plans_of(set.missing).get(&key) {
            return Some(Arc::clone(plan));
        }
        let plan = Arc::new(restore::schedule(&params, variant, role, (set.missing, lost))?);
        self.plans_of(set.missing).insert(key, Arc::clone(&plan));
        Some(plan)
    }

    fn plans_of(&mut self, missing: Roles) -> &mut Plans {
        let known = self.plans.iter().position(|(roles, _)| *roles == missing);
        let at = known.unwrap_or_else(|| {
            self.plans.truncate(KEPT_PLANS - 1);
            self.plans.push_front((missing, Plans::new()));
            0
        });
        &mut self.plans[at].1
    }

    /// Returns the plan of a slice-set; `None` when a client may not open it here.
    pub fn plan_of(&mut self, set: &Set) -> Option<Arc<PlacedSchedule>> {
        let Params { chunk_bytes, stripes, nodes, .. } = self.params;
        let fits = set.position.0 < self.positions()
            && set.stripe.0 < stripes
            && (1..=self.position_bytes(set.position)).contains(&set.len)
            && set.offset.checked_add(set.len).is_some_and(|end| end <= chunk_bytes)
            && (set.offset | set.len).is_multiple_of(SECTOR_BYTES as u32)
            && set.touched.blocks() == self.data_blocks;
        let fits = fits && set.missing.iter().all(|role| role.0 < nodes);
        if let WriteStrategy::Restore(role) = set.strategy {
            return if fits { self.plan_restore(set, role) } else { None };
        }
        let survived = self.losses.survives(|role| set.missing.contains(role));
        let known = match set.planner {
            Planner::Client => set.strategy == WriteStrategy::FullStripe && set.touched.is_all(),
            other => Some(other) == self.planner_without(set.position, set.missing),
        };
        if !(fits && survived && known) {
            return None;
        }
        let plan = self.plan_without(set.stripe, set.planner, set.missing)?;
        strategy::allowed(&plan.code, set.strategy, &set.touched, set.missing).then_some(plan)
    }

    /// The positions that may be used at any time.
    #[must_use]
    pub const fn base(&self) -> &Range<Position> {
        &self.base
    }

    /// Slots for reads that may be used at any time: the first.
    #[must_use]
    pub fn base_reads(&self) -> u16 {
        self.params.reads.count.min(BASE_READS)
    }

    /// First byte of a row's range of a slice-set, from where the member's data begin.
    #[must_use]
    pub fn member_byte(&self, stripe: StripeNo, row: u16, offset: u32) -> u64 {
        let block = stripe.0 * u64::from(self.rows) + u64::from(row);
        block * u64::from(self.params.chunk_bytes) + u64::from(offset)
    }

    /// Bytes of the data of a member.
    #[must_use]
    pub fn member_bytes(&self) -> u64 {
        self.member_byte(StripeNo(self.params.stripes), 0, 0)
    }

    /// Bytes of the array.
    #[must_use]
    pub fn array_bytes(&self) -> u64 {
        let Params { stripes, chunk_bytes, .. } = self.params;
        stripes * u64::from(self.data_blocks) * u64::from(chunk_bytes)
    }
}
