//! Units of background work that the keeper asks for, as slice-sets and comparisons.

use std::collections::{BTreeMap, VecDeque};

use braid_array::keeper::{Done, LaneReport, Unit, Unread, Work as What};
use braid_array::{MemberId, Role, SECTOR_BYTES};

use super::context::Cx;
use crate::client::Key;
use crate::ids::Position;
use crate::pipeline::lost_blocks;
use crate::set::Roles;

/// A unit that has been asked for.
#[derive(Clone, Debug)]
pub(super) struct Task {
    place: u64,
    pub(super) unit: Unit,
    pub(super) what: What,
    /// Slice-sets of it that are not over.
    sets: u32,
    /// All that are over went well.
    ok: bool,
}

impl Task {
    /// Is it to give this member what it lacks?
    fn rebuilds(&self, id: MemberId) -> bool {
        matches!(&self.what, What::Rebuild(targets) if targets.contains(&id))
    }

    /// Tells the keeper what became of it.
    pub(super) fn end(self, cx: &mut Cx<'_>, done: Done) {
        let Self { place, unit, what: work, .. } = self;
        cx.report(LaneReport::WorkDone { place, unit, work, done });
    }
}

/// Background work whose slices are not free yet, and what is under way, by its slice.
#[derive(Debug, Default)]
pub(super) struct Work {
    waiting: VecDeque<Task>,
    working: BTreeMap<Key, Task>,
}

impl Work {
    pub(super) fn add(&mut self, place: u64, unit: Unit, what: What) {
        self.waiting.push_back(Task { place, unit, what, sets: 1, ok: true });
    }

    /// Units that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Units that the keeper has asked for and that are not over.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.working.len()
    }

    pub(super) fn next(&mut self) -> Option<Task> {
        self.waiting.pop_front()
    }

    /// The slice of a task is in use, or buffers are.
    pub(super) fn wait(&mut self, task: Task) {
        self.waiting.push_back(task);
    }

    pub(super) fn begin(&mut self, key: Key, task: Task) {
        self.working.insert(key, task);
    }

    /// The slice-set of a task was cut in two.
    pub(super) fn has_one_set_more(&mut self, key: Key) {
        if let Some(task) = self.working.get_mut(&key) {
            task.sets += 1;
        }
    }

    /// The roles that have no part in a slice-set there: their nodes are lost, or do not hold what
    /// belongs there yet. Background work is there to give it to them.
    pub(super) fn missing(&self, cx: &Cx<'_>, key: Key, background: bool) -> Roles {
        let (start, end) = cx.shared.space.range(key);
        let waiting = self.waiting.iter().filter(|task| task.unit.start == start);
        let tasks: Vec<&Task> = waiting.chain(self.working.get(&key)).collect();
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

    /// The slice-set of background work in this slice is over. One that could not be made lacks
    /// what lost nodes hold, and will until they are back: the rest goes on. Is all of it over?
    pub(super) fn set_over(&mut self, cx: &mut Cx<'_>, key: Key, ok: bool) -> Option<Done> {
        let mut ok = ok;
        if let Some(task) = self.working.get_mut(&key) {
            task.sets -= 1;
            task.ok &= ok;
            ok = task.ok;
            if task.sets > 0 {
                return None;
            }
        }
        Some(if ok {
            Done::Well { equal: false }
        } else if cx.writes_over() {
            Done::Failed
        } else {
            Done::Unread(lost_of(cx, key))
        })
    }

    /// The work on this slice is over.
    pub(super) fn over(&mut self, cx: &mut Cx<'_>, key: Key, done: Done) {
        if let Some(task) = self.working.remove(&key) {
            task.end(cx, done);
        }
    }
}

/// What of the array lies in this slice on nodes that are lost.
fn lost_of(cx: &mut Cx<'_>, key: Key) -> Vec<Unread> {
    let planner = cx.shared.pipeline.planner(Position(0));
    let Some(plan) = cx.shared.pipeline.plan(key.stripe, planner) else { return Vec::new() };
    let slice = cx.shared.whole_slice(key);
    let unread = |index: u32| Unread {
        array_sector: cx.shared.array_sector(key.stripe, index, slice.at),
        sectors: u64::from(slice.len) / SECTOR_BYTES,
        members: Vec::from_iter(cx.members.id(plan.code.data()[index as usize].node)),
    };
    lost_blocks(&plan.code, cx.lost()).map(unread).collect()
}

/// The roles of members to be given what they lack of a slice, if the others tell what that is.
pub(super) fn restorable(cx: &Cx<'_>, key: Key, targets: &[MemberId]) -> Roles {
    if !cx.sums_count(key) {
        return Roles::NONE;
    }
    let wanted = |role: &Role| cx.members.entry(*role).id.is_some_and(|id| targets.contains(&id));
    Role::all(cx.members.nodes()).filter(wanted).collect()
}
