//! The choice by which a slice-set gets its position, and the opening that follows from it.

use std::sync::Arc;

use braid_array::Buf;

use super::context::Cx;
use super::decode::Decodes;
use super::journals::Journals;
use super::lease::RingsLease;
use super::pending::PendingSet;
use super::position::PositionNeeds;
use super::sets::{NewSet, Sets};
use super::work::BackgroundWork;
use crate::ids::Position;
use crate::pipeline::PlacedSchedule;
use crate::pipeline::{Knowledge, Way, write_strategy};
use crate::schedule::Planner;
use crate::set::{Roles, Set, WriteStrategy};

/// The machines that a slice-set needs to get a position.
pub(super) struct Below<'a> {
    pub(super) sets: &'a mut Sets,
    pub(super) lease: &'a mut RingsLease,
    pub(super) journals: &'a mut Journals,
    pub(super) decodes: &'a mut Decodes,
    pub(super) work: &'a mut BackgroundWork,
}

/// All that a slice-set needs to be opened.
pub(super) struct SetOpening {
    /// The kind of its position, and the index among the free ones.
    at: (usize, usize),
    plan: Arc<PlacedSchedule>,
    planner: Planner,
    way: Way,
    missing: Roles,
    log: bool,
    staged: Vec<Buf>,
    fetched: Vec<u32>,
}

/// Chooses a position of a kind for a slice-set, and takes its buffers. `None` when it has to wait.
pub(super) fn choose(
    cx: &mut Cx<'_>,
    below: &mut Below<'_>,
    first: &mut PendingSet,
    (kind, missing): (usize, Roles),
) -> Option<SetOpening> {
    let redundant = cx.shared.redundant();
    let whole = first.range.touched.is_all();
    let blank = whole && first.range.blank;
    let makes = || whole && redundant && !blank && below.sets.mix.client_makes_next();
    let by_client = *first.by_client.get_or_insert_with(makes);
    let planner = cx.shared.pipeline.planner(Position(0));
    let plan = cx.shared.pipeline.plan(first.key.stripe, planner)?;
    let way = way(cx, &plan, first, missing);
    let scattered = first.range.pieces.values().filter(|pieces| pieces.len() > 1).count();
    let sums = if by_client { plan.code.equations().len() } else { 0 };
    let fetched = way.brought_back(&plan.code, &first.range.touched, missing);
    let len = first.range.len;
    if !fetched.is_empty() && !room_to_fetch(cx, below, &plan, scattered + fetched.len()) {
        return None;
    }
    let partial = &below.journals.parts;
    // What is lost of a stripe that is torn while a node is missing nobody could tell any more.
    let recorded = partial.is_whole_recorded(first.key) || !missing.is_empty();
    let log = !whole || first.background || recorded;
    if !below.journals.may_open(cx, log, len) {
        return None;
    }
    let wanted = PositionNeeds { kind, plan: &plan, touched: &way.put, missing, by_client };
    let (at, planner) = wanted.choose(cx, below.sets, below.lease)?;
    let staged = below.decodes.stage(cx.shared, scattered + sums + fetched.len(), len)?;
    Some(SetOpening { at: (kind, at), plan, planner, way, missing, log, staged, fetched })
}

/// Opens a slice-set at the position that was chosen for it.
pub(super) fn open(cx: &mut Cx<'_>, below: &mut Below<'_>, job: PendingSet, opening: SetOpening) {
    let SetOpening { at: (kind, at), plan, planner, way, missing, log, staged, fetched } = opening;
    let (position, generation, number) = below.sets.use_position(kind, at);
    let set = Set {
        position,
        generation,
        number,
        stripe: job.key.stripe,
        offset: job.range.offset,
        len: job.range.len,
        strategy: way.strategy,
        planner,
        fua: job.range.fua && !(log && below.journals.are_used()),
        touched: way.put,
        missing,
        log,
        relay: false,
    };
    below.lease.miss_home(cx.members.nodes(), &set, &plan);
    below.journals.note_opened(cx.shared, &set);
    let new = NewSet { job, set, staged, fetched, unknown: way.unknown };
    below.sets.open(cx, below.decodes, new);
}

/// Returns the way to write a part of a stripe with the fewest reads and writes of members.
/// Background work makes the parities right, whatever they are, and gives nodes what they lack.
fn way(cx: &Cx<'_>, plan: &PlacedSchedule, pending: &PendingSet, missing: Roles) -> Way {
    let range = &pending.range;
    if range.touched.is_all() && range.blank {
        return Way::new(WriteStrategy::Zero, range.touched.clone());
    }
    let part = pending.extent();
    if !pending.background {
        let unknown = |cell| cx.is_unknown(&part, cell);
        let known = Knowledge { missing, unknown: &unknown, in_step: cx.sums_count(&part) };
        return write_strategy(&plan.code, &range.touched, known);
    }
    let mut put = range.touched.clone();
    let code = &plan.code;
    // Who keeps its own reads that itself.
    let is_kept = |index: u32| cx.is_kept(&part, code, code.data()[index as usize]);
    let unreadable = cx.unreadable(&part, code).into_iter();
    unreadable.filter(|&index| !is_kept(index)).for_each(|index| put.insert(index));
    let all = put.is_all();
    Way::new(if all { WriteStrategy::FullStripe } else { WriteStrategy::Reconstruct }, put)
}

/// Returns whether lost blocks of a stripe can be restored while slice-sets hold buffers for the
/// same reason. This keeps slice-sets from waiting for each other's buffers.
fn room_to_fetch(
    cx: &mut Cx<'_>,
    below: &mut Below<'_>,
    plan: &PlacedSchedule,
    own: usize,
) -> bool {
    let stripe = plan.code.data().len() + plan.code.equations().len();
    let needed = own + stripe * (below.sets.fetching() + 1);
    let Some(taken) = below.decodes.stage(cx.shared, needed, 512) else { return false };
    cx.shared.staging.give(taken);
    true
}
