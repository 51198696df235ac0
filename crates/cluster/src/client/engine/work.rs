//! Units of background work that the keeper asks for, as slice-sets and comparisons.

use std::collections::{BTreeMap, VecDeque};

use braid_array::keeper::{Done, Fix, LaneReport, Unit, Unread, Work as What};
use braid_array::{MemberId, Role, SECTOR_BYTES};

use super::context::Cx;
use super::extent::Extent;
use crate::client::Key;
use crate::ids::Position;
use crate::set::Roles;

/// A unit that has been asked for.
#[derive(Clone, Debug)]
pub(super) struct WorkTask {
    place: u64,
    pub(super) unit: Unit,
    pub(super) what: What,
    /// Slice-sets of it that are not over.
    sets: u32,
    /// All finished slice-sets succeeded.
    ok: bool,
    /// Later blocks of the unit, where it was cut into several. The slice is not written before all
    /// are done: a rebuilt member then has a part in all of the slice, or in none.
    rest: VecDeque<Unit>,
}

/// Next step after a slice-set of background work has ended.
pub(super) enum Follows {
    /// Other slice-sets of the part are still open.
    Nothing,
    /// Slice-sets for the part of the slice that the task is about now.
    Sets,
    /// The part is over.
    Over(Done),
}

impl WorkTask {
    /// Returns whether the task rebuilds this member.
    fn rebuilds(&self, id: MemberId) -> bool {
        matches!(&self.what, What::Rebuild(targets) if targets.contains(&id))
    }

    /// Returns the part of a slice that the task covers now.
    pub(super) fn part(&self, cx: &Cx<'_>) -> Extent {
        let (at, len) = cx.shared.space.bytes_of(self.unit.start, self.unit.end());
        let stripe = cx.shared.space.key(self.unit.start).stripe;
        Extent { stripe, index: 0, at, len }
    }

    /// Returns whether a member does not know some of its content there.
    pub(super) fn is_in_part_unknown(&self, cx: &mut Cx<'_>) -> bool {
        let part = self.part(cx);
        let planner = cx.shared.pipeline.planner(Position(0));
        let plan = cx.shared.pipeline.plan(part.stripe, planner);
        plan.is_some_and(|plan| cx.any_unknown(&part, &plan.code, Roles::NONE))
    }

    /// Cuts the unit into blocks, if it has several and each may fail on its own. Returns their
    /// number.
    fn cut_into_blocks(&mut self, cx: &Cx<'_>) -> usize {
        let one_by_one = matches!(self.what, What::Rebuild(_) | What::Compare(Fix::Resync));
        if !one_by_one || !cx.keeper.work_goes_on() {
            return 0;
        }
        let Some(step) = cx.shared.space.places_of_block() else { return 0 };
        let Unit { start, .. } = self.unit;
        let end = self.unit.end();
        if end - start <= step {
            return 0;
        }
        let starts = (start..end).step_by(step as usize);
        let block = |start: u64| Unit { start, sectors: step.min(end - start) as u32 };
        self.rest.extend(starts.map(block));
        let blocks = self.rest.len();
        self.begin_next();
        blocks
    }

    /// Continues with the next block, if there is one.
    fn begin_next(&mut self) -> bool {
        let Some(next) = self.rest.pop_front() else { return false };
        self.unit = next;
        self.sets = 1;
        self.ok = true;
        true
    }

    /// Tells the keeper the result of the current part.
    fn tell(&self, cx: &mut Cx<'_>, done: Done) {
        let Self { place, unit, what, .. } = self;
        cx.report(LaneReport::WorkDone { place: *place, unit: *unit, work: what.clone(), done });
    }

    /// Tells the keeper the result of the task.
    pub(super) fn end(self, cx: &mut Cx<'_>, done: Done) {
        self.tell(cx, done);
    }
}

/// Background work whose slices are not free yet, and work under way, by its slice.
#[derive(Debug, Default)]
pub(super) struct BackgroundWork {
    waiting: VecDeque<WorkTask>,
    working: BTreeMap<Key, WorkTask>,
}

impl BackgroundWork {
    pub(super) fn add(&mut self, place: u64, unit: Unit, what: What) {
        self.waiting.push_back(WorkTask {
            place,
            unit,
            what,
            sets: 1,
            ok: true,
            rest: VecDeque::new(),
        });
    }

    /// Returns the number of units that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of units that the keeper has asked for, and parts of them, that are not
    /// over.
    pub(super) fn len(&self) -> usize {
        let working = self.working.values().map(|task| 1 + task.rest.len());
        self.waiting.len() + working.sum::<usize>()
    }

    pub(super) fn next(&mut self) -> Option<WorkTask> {
        self.waiting.pop_front()
    }

    /// Queues a task again: its slice or the buffers are in use.
    pub(super) fn wait(&mut self, task: WorkTask) {
        self.waiting.push_back(task);
    }

    pub(super) fn begin(&mut self, key: Key, task: WorkTask) {
        self.working.insert(key, task);
    }

    /// Notes that the slice-set of a task was cut in two.
    pub(super) fn has_one_set_more(&mut self, key: Key) {
        if let Some(task) = self.working.get_mut(&key) {
            task.sets += 1;
        }
    }

    /// Returns the roles without a part in a slice-set there: their nodes are lost, or do not hold
    /// their content yet. Background work is there to restore that content.
    pub(super) fn missing(&self, cx: &Cx<'_>, key: Key, background: bool) -> Roles {
        let (start, end) = cx.shared.space.range(key);
        let is_there = |task: &&WorkTask| cx.shared.space.key(task.unit.start) == key;
        let waiting = self.waiting.iter().filter(is_there);
        let tasks: Vec<&WorkTask> = waiting.chain(self.working.get(&key)).collect();
        let is_given =
            |role| cx.members.id(role).is_some_and(|id| tasks.iter().any(|task| task.rebuilds(id)));
        let has = |role| {
            cx.keeper.is_in_sync(role)
                || background
                || !is_given(role) && cx.keeper.is_rebuilt(role, start, end)
        };
        Role::all(cx.members.nodes())
            .filter(|&role| !cx.members.alive(role) || !has(role))
            .collect()
    }

    /// Returns the part of a slice that needs slice-sets, and their purpose.
    pub(super) fn part_of(&self, cx: &Cx<'_>, key: Key) -> Option<(Extent, What)> {
        self.working.get(&key).map(|task| (task.part(cx), task.what.clone()))
    }

    /// Ends a slice-set of background work in this slice. A slice-set that could not be made lacks
    /// content of lost nodes, and will until they are back. The part is then tried block by block,
    /// and the rest continues.
    pub(super) fn set_over(&mut self, cx: &mut Cx<'_>, key: Key, ok: bool) -> Follows {
        let Some(task) = self.working.get_mut(&key) else { return Follows::Nothing };
        task.sets -= 1;
        task.ok &= ok;
        if task.sets > 0 {
            return Follows::Nothing;
        }
        if task.ok {
            return Follows::Over(Done::Well { equal: false });
        }
        if cx.writes_over() {
            return Follows::Over(Done::Failed);
        }
        let blocks = task.cut_into_blocks(cx);
        if blocks > 0 {
            cx.report(LaneReport::WorkParted(task.place, blocks - 1));
            return Follows::Sets;
        }
        let part = task.part(cx);
        Follows::Over(Done::Unread(unread_of(cx, &part)))
    }

    /// Ends the work on the current part of a task. Returns whether the task continues with another
    /// part. After a part that could not be tried at all, no other part is tried.
    pub(super) fn over(&mut self, cx: &mut Cx<'_>, key: Key, done: Done) -> bool {
        let Some(task) = self.working.get_mut(&key) else { return false };
        let failed = matches!(done, Done::Failed);
        task.tell(cx, done);
        while task.begin_next() {
            if !failed {
                return true;
            }
            task.tell(cx, Done::Failed);
        }
        self.working.remove(&key);
        false
    }
}

/// Lists the data in a part of a slice on nodes that are lost or do not know it.
pub(super) fn unread_of(cx: &mut Cx<'_>, part: &Extent) -> Vec<Unread> {
    let planner = cx.shared.pipeline.planner(Position(0));
    let Some(plan) = cx.shared.pipeline.plan(part.stripe, planner) else { return Vec::new() };
    let unread = |index: u32| Unread {
        array_sector: cx.shared.array_sector(part.stripe, index, part.at),
        sectors: u64::from(part.len) / SECTOR_BYTES,
        members: Vec::from_iter(cx.members.id(plan.code.data()[index as usize].node)),
    };
    cx.unreadable(part, &plan.code).into_iter().map(unread).collect()
}

/// Returns the roles of `targets` whose content of a part of a slice can be restored from the other
/// nodes; none if another node does not know its own content there.
pub(super) fn restorable(cx: &mut Cx<'_>, part: &Extent, targets: &[MemberId]) -> Roles {
    let planner = cx.shared.pipeline.planner(Position(0));
    let plan = cx.shared.pipeline.plan(part.stripe, planner);
    let wanted = |role: &Role| cx.members.entry(*role).id.is_some_and(|id| targets.contains(&id));
    let restores: Roles = Role::all(cx.members.nodes()).filter(wanted).collect();
    let known = plan.is_some_and(|plan| !cx.any_unknown(part, &plan.code, restores));
    if known && cx.sums_count(part) { restores } else { Roles::NONE }
}
