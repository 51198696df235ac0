//! A pipeline: what one client and the nodes of one array agree on before the first slice flows.
//! It fixes, for every node, where in its ring each slice of each slice-set goes; nothing has to be
//! asked while slices flow, and no slice ever waits for room.
//!
//! A pipeline has positions, each for one open slice-set. `wide` positions take whole slices,
//! `narrow` ones short ranges, for small writes. The encoder belongs to the position: it is
//! `position mod nodes`. The right to open a slice-set is a free position (the credit): it comes
//! back when every node that has a part has closed its part. So memory is bounded by the positions,
//! and a slow node slows its writers.
//!
//! A node's ring holds for each position, in this order: a slot for every slice that can arrive, a
//! slot for every sum that cannot be formed in place, and a slot for the old content of every row.
//! At the end lie the slots from which reads are answered; the client gives those out itself.

mod params;
#[cfg(test)]
mod tests;

pub use params::Params;

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_array::refusal::{Advised, Next};
use braid_array::{Buf, SECTOR_BYTES};

use crate::family::FamilyError;
use crate::program::{Operation, Program};
use crate::schedule::{Planner, Schedule};
use crate::set::{MAX_POSITIONS, MAX_TRANSFERS, Mode, Set, Touched};
use braid_array::code::StripeCode;

/// Slots of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// How many.
    pub count: u16,
    /// Length of each; a multiple of 4096.
    pub bytes: u32,
}

/// Why there is no such pipeline.
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

/// A schedule with all that nodes have to know of it.
#[derive(Debug)]
pub struct Course {
    /// The code of the stripe.
    pub code: StripeCode,
    /// The schedule.
    pub schedule: Schedule,
    /// By transfer: its slot among those that arrive at its node.
    ranks: Vec<u32>,
    /// By node: slices that arrive.
    received: Vec<u32>,
    /// By node: sums that are not formed in place.
    fresh: Vec<u32>,
}

impl Course {
    fn new(code: StripeCode, schedule: Schedule) -> Self {
        let mut received = vec![0; usize::from(code.nodes())];
        let rank = |to: u16| {
            let next: &mut u32 = &mut received[usize::from(to)];
            *next += 1;
            *next - 1
        };
        let ranks = schedule.transfers().iter().map(|transfer| transfer.to).map(rank).collect();
        let fresh = |node| {
            let program = Program::of(&schedule, &code, node);
            // With some blocks untouched, the slot that a sum takes may not be among its inputs.
            let sums = program.steps().iter().filter(|step| step.operation == Operation::Sum);
            sums.count() as u32
        };
        let fresh = (0..code.nodes()).map(fresh).collect();
        Self { code, schedule, ranks, received, fresh }
    }

    /// Does this transfer take place in such a slice-set?
    #[must_use]
    pub fn live(&self, transfer: usize, mode: Mode, touched: &Touched) -> bool {
        if mode == Mode::Reconstruct || touched.is_all() {
            return true;
        }
        let terms = &self.schedule.transfers()[transfer].terms;
        terms.iter().any(|(index, _)| touched.contains(index))
    }

    /// What a node does in such a slice-set; nothing when it has no part in it. The inputs that
    /// are data indices below the number of blocks are values in the sense of [`Mode`]. An input
    /// that the node gets from its own store does not arrive: see [`Course::arrives`].
    #[must_use]
    pub fn part(&self, node: u16, mode: Mode, touched: &Touched) -> Program {
        if touched.is_all() {
            return Program::of(&self.schedule, &self.code, node);
        }
        let live = |transfer| self.live(transfer, mode, touched);
        let stored = |index: u32| touched.contains(index);
        Program::partial(&self.schedule, &self.code, node, &live, &stored)
    }

    /// Does a live transfer arrive over the network? Not so blocks without new content.
    #[must_use]
    pub fn arrives(&self, transfer: usize, touched: &Touched) -> bool {
        let data = self.code.data().len();
        transfer >= data || touched.contains(transfer as u32)
    }

    /// The nodes with a part in such a slice-set.
    #[must_use]
    pub fn involved(&self, mode: Mode, touched: &Touched) -> Vec<u16> {
        let nodes = 0..self.code.nodes();
        if touched.is_all() {
            return nodes.collect();
        }
        let mut receives = vec![false; nodes.len()];
        for (number, transfer) in self.schedule.transfers().iter().enumerate() {
            receives[usize::from(transfer.to)] |= self.live(number, mode, touched);
        }
        let takes_part = |&node: &u16| {
            receives[usize::from(node)] && !self.part(node, mode, touched).steps().is_empty()
        };
        nodes.filter(takes_part).collect()
    }
}

/// Slots of one node at one position.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    received: u32,
    fresh: u32,
}

/// See the module.
#[derive(Debug)]
pub struct Pipeline {
    params: Params,
    rows: u16,
    data_blocks: u32,
    /// By encoder, then node.
    rooms: Vec<Vec<Room>>,
    /// By position, then node: where its slots begin in the ring.
    starts: Vec<Vec<u64>>,
    /// By node: where the slots for reads begin.
    read_starts: Vec<u64>,
    plans: BTreeMap<(u16, u32), Arc<Course>>,
}

impl Pipeline {
    /// The pipeline with these parameters.
    ///
    /// # Errors
    /// [`PipelineError`].
    pub fn new(params: Params) -> Result<Self, PipelineError> {
        check(&params)?;
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
            read_starts: Vec::new(),
            plans: BTreeMap::new(),
        };
        pipeline.lay_out()?;
        Ok(pipeline)
    }

    fn lay_out(&mut self) -> Result<(), PipelineError> {
        for encoder in 0..self.params.nodes {
            let rooms = self.rooms_of(encoder)?;
            self.rooms.push(rooms);
        }
        let mut ends = vec![0; usize::from(self.params.nodes)];
        for position in 0..self.positions() {
            self.starts.push(ends.clone());
            let bytes = u64::from(self.position_bytes(position));
            let encoder = usize::from(position % self.params.nodes);
            for (end, room) in ends.iter_mut().zip(&self.rooms[encoder]) {
                *end += u64::from(room.received + room.fresh + u32::from(self.rows)) * bytes;
            }
        }
        self.read_starts = ends;
        Ok(())
    }

    /// What a position with this encoder needs at each node.
    fn rooms_of(&mut self, encoder: u16) -> Result<Vec<Room>, PipelineError> {
        let (rows, data) = (u32::from(self.rows), self.data_blocks);
        let sums = rows * u32::from(self.params.nodes) - data;
        let nodes = 0..self.params.nodes;
        if let Planner::Encoder { .. } = self.params.planner {
            // The encoder may get all the data; everybody gets what he stores, or its value.
            let room = |node| match node == encoder {
                true => Room { received: data.max(rows), fresh: sums },
                false => Room { received: rows, fresh: 0 },
            };
            return Ok(nodes.map(room).collect());
        }
        let mut rooms = vec![Room { received: rows, fresh: 0 }; nodes.len()];
        if encoder > 0 {
            return Ok(self.rooms[0].clone());
        }
        for stripe in 0..u64::from(self.params.family.period(self.params.nodes)) {
            let plan = self.plan(stripe, self.params.planner);
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
    pub const fn position_bytes(&self, position: u16) -> u32 {
        if position < self.params.wide.count {
            self.params.wide.bytes
        } else {
            self.params.narrow.bytes
        }
    }

    /// By whom parities are added up at this position, unless the client does it.
    #[must_use]
    pub const fn planner(&self, position: u16) -> Planner {
        match self.params.planner {
            Planner::Encoder { .. } => Planner::Encoder { node: position % self.params.nodes },
            other => other,
        }
    }

    /// The plan for a stripe; `None` when the family has no such schedule.
    pub fn plan(&mut self, stripe: u64, planner: Planner) -> Option<Arc<Course>> {
        let Params { family, nodes, .. } = self.params;
        let variant = (stripe % u64::from(family.period(nodes))) as u16;
        let key = match planner {
            Planner::Client => 0,
            Planner::Chain => 1,
            Planner::Static => 2,
            Planner::Encoder { node } => 3 + u32::from(node),
        };
        if let Some(plan) = self.plans.get(&(variant, key)) {
            return Some(Arc::clone(plan));
        }
        let schedule = family.schedule(nodes, u64::from(variant), planner)?;
        let code = family.code(nodes, u64::from(variant)).ok()?;
        if schedule.transfers().len() > MAX_TRANSFERS {
            return None;
        }
        let plan = Arc::new(Course::new(code, schedule));
        self.plans.insert((variant, key), Arc::clone(&plan));
        Some(plan)
    }

    /// The plan of a slice-set that a client may open here; `None` when it may not.
    pub fn plan_of(&mut self, set: &Set) -> Option<Arc<Course>> {
        let Params { chunk_bytes, stripes, .. } = self.params;
        let fits = set.position < self.positions()
            && set.stripe < stripes
            && (1..=self.position_bytes(set.position)).contains(&set.len)
            && set.offset.checked_add(set.len).is_some_and(|end| end <= chunk_bytes)
            && (set.offset | set.len).is_multiple_of(SECTOR_BYTES as u32)
            && set.touched.blocks() == self.data_blocks
            && set.missing.is_empty();
        let known = match set.planner {
            Planner::Client => set.mode == Mode::Full && set.touched.is_all(),
            other => other == self.planner(set.position),
        };
        let plan = if fits && known { self.plan(set.stripe, set.planner)? } else { return None };
        let parities = plan.code.equations().iter().any(|equation| equation.terms.len() > 1);
        let whole = set.mode != Mode::Full || set.touched.is_all() || !parities;
        let some = set.touched.count() > 0 || set.mode == Mode::Reconstruct;
        (whole && some).then_some(plan)
    }

    /// Bytes of a node's ring.
    #[must_use]
    pub fn ring_bytes(&self, node: u16) -> u64 {
        let reads = self.params.reads;
        self.read_starts[usize::from(node)] + u64::from(reads.count) * u64::from(reads.bytes)
    }

    /// The slot for an arriving transfer, in the ring of the node it goes to; as long as the set.
    #[must_use]
    pub fn arrival(&self, plan: &Course, set: &Set, transfer: usize) -> Buf {
        let to = plan.schedule.transfers()[transfer].to;
        self.slot(set, to, plan.ranks[transfer])
    }

    /// Slices that can arrive at a node for one slice-set at this position.
    #[must_use]
    pub fn arrivals(&self, position: u16, node: u16) -> u32 {
        self.rooms[usize::from(position % self.params.nodes)][usize::from(node)].received
    }

    /// The slot for the sum that is the `number`th not formed in place.
    #[must_use]
    pub fn fresh(&self, set: &Set, node: u16, number: u32) -> Buf {
        self.slot(set, node, self.room(set, node).received + number)
    }

    /// The slot for the old content of a row.
    #[must_use]
    pub fn old(&self, set: &Set, node: u16, row: u16) -> Buf {
        let room = self.room(set, node);
        self.slot(set, node, room.received + room.fresh + u32::from(row))
    }

    /// A slot for reads.
    ///
    /// # Panics
    /// When there is none of that number.
    #[must_use]
    pub fn read_slot(&self, node: u16, number: u16) -> Buf {
        let reads = self.params.reads;
        assert!(number < reads.count, "read slot {number} of {}", reads.count);
        let start = self.read_starts[usize::from(node)];
        Buf { offset: start + u64::from(number) * u64::from(reads.bytes), len: reads.bytes }
    }

    /// First byte of a row's range of a slice-set, from where the member's data begin.
    #[must_use]
    pub fn member_byte(&self, stripe: u64, row: u16, offset: u32) -> u64 {
        let block = stripe * u64::from(self.rows) + u64::from(row);
        block * u64::from(self.params.chunk_bytes) + u64::from(offset)
    }

    /// Bytes of the array.
    #[must_use]
    pub fn array_bytes(&self) -> u64 {
        let Params { stripes, chunk_bytes, .. } = self.params;
        stripes * u64::from(self.data_blocks) * u64::from(chunk_bytes)
    }

    fn room(&self, set: &Set, node: u16) -> Room {
        self.rooms[usize::from(set.position % self.params.nodes)][usize::from(node)]
    }

    fn slot(&self, set: &Set, node: u16, number: u32) -> Buf {
        let bytes = self.position_bytes(set.position);
        let start = self.starts[usize::from(set.position)][usize::from(node)];
        Buf { offset: start + u64::from(number) * u64::from(bytes), len: set.len }
    }
}

/// The most nodes of an array.
pub const MAX_NODES: u16 = 64;
/// The longest block.
pub const MAX_CHUNK_BYTES: u32 = 1 << 30;
/// The longest slot.
pub const MAX_SLOT_BYTES: u32 = 1 << 20;

fn check(params: &Params) -> Result<(), PipelineError> {
    let aligned = |bytes: u32| bytes > 0 && bytes.is_multiple_of(4096);
    let Params { nodes, chunk_bytes, stripes, wide, narrow, reads, .. } = *params;
    let slot = |slots: Slots| aligned(slots.bytes) && slots.bytes <= MAX_SLOT_BYTES;
    let checks = [
        ((1..=MAX_NODES).contains(&nodes), "the number of nodes"),
        (aligned(chunk_bytes) && chunk_bytes <= MAX_CHUNK_BYTES, "the chunk"),
        (stripes > 0, "the size"),
        (slot(wide) && wide.bytes <= chunk_bytes && wide.count > 0, "the slice"),
        (slot(narrow) && narrow.bytes <= wide.bytes, "the size of narrow positions"),
        (wide.count.saturating_add(narrow.count) <= MAX_POSITIONS, "the number of positions"),
        (slot(reads) && (1..=4096).contains(&reads.count), "the slots for reads"),
    ];
    match checks.into_iter().find(|(fine, _)| !fine) {
        Some((_, what)) => Err(PipelineError::Range(what)),
        None => Ok(()),
    }
}
