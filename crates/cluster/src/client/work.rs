//! Units of background work that the keeper asks for, as slice-sets and comparisons.

use braid_array::keeper::{Done, Fix, Unit, Unread, Work};

use super::{BTreeMap, Client, Key, MemberId, SECTOR_BYTES};
use crate::pipeline::lost_blocks;
use crate::set::Roles;

/// A unit that has been asked for.
#[derive(Clone, Debug)]
pub(super) struct Task {
    place: u64,
    unit: Unit,
    work: Work,
    /// Slice-sets of it that are not over.
    pub(super) sets: u32,
    /// All that are over went well.
    ok: bool,
}

impl Task {
    /// Does it begin at this place of the sync space?
    pub(super) const fn is_at(&self, start: u64) -> bool {
        self.unit.start == start
    }

    /// Is it to give this member what it lacks?
    pub(super) fn rebuilds(&self, id: MemberId) -> bool {
        matches!(&self.work, Work::Rebuild(targets) if targets.contains(&id))
    }
}

impl Client {
    pub(super) fn add_work(&mut self, place: u64, unit: Unit, work: Work) {
        self.waiting_work.push_back(Task { place, unit, work, sets: 1, ok: true });
    }

    /// Begins with the units whose slices are free.
    pub(super) fn start_work(&mut self) {
        for _ in 0..self.waiting_work.len() {
            let Some(task) = self.waiting_work.pop_front() else { return };
            if self.writes_over() {
                self.work_over(&task, Done::Failed);
                continue;
            }
            let key = self.space.key(task.unit.start);
            if self.areas.get(&key).is_some_and(|area| area.sets > 0 || area.readers > 0) {
                self.waiting_work.push_back(task);
                continue;
            }
            match task.work {
                Work::Copy if self.copy_slice(key) => {
                    self.working.insert(key, task);
                }
                // Spares are no members here before they hold a role: they are copied to.
                Work::Copy | Work::Verify(_) => self.work_over(&task, Done::Failed),
                Work::Rebuild(ref targets) => {
                    let restores = self.restorable(key, targets).unwrap_or_default();
                    self.working.insert(key, task);
                    self.add_background_job(key, BTreeMap::new(), restores);
                }
                // Sums are made anew of what is there.
                Work::Compare(Fix::Resync) => {
                    self.working.insert(key, task);
                    self.add_background_job(key, BTreeMap::new(), Roles::NONE);
                }
                // Nothing can be compared with what is not there.
                Work::Compare(_) if !self.lost().is_empty() => self.work_over(&task, Done::Failed),
                Work::Compare(fix) if self.compare(key, fix) => {
                    self.working.insert(key, task);
                }
                Work::Compare(_) => self.waiting_work.push_back(task),
            }
        }
    }

    /// The slice-set of background work in this slice is over. One that could not be made lacks
    /// what lost nodes hold, and will until they are back: the rest goes on.
    pub(super) fn work_set_over(&mut self, key: Key, mut ok: bool) {
        if let Some(task) = self.working.get_mut(&key) {
            task.sets -= 1;
            task.ok &= ok;
            ok = task.ok;
            if task.sets > 0 {
                return;
            }
        }
        self.forget_compare(key);
        let done = match ok {
            true => Done::Well { equal: false },
            false if self.writes_over() => Done::Failed,
            false => Done::Unread(self.lost_of(key)),
        };
        self.task_over(key, done);
    }

    /// What of the array lies in this slice on nodes that are lost.
    fn lost_of(&mut self, key: Key) -> Vec<Unread> {
        let planner = self.pipeline.planner(0);
        let Some(plan) = self.pipeline.plan(key.0, planner) else { return Vec::new() };
        let (at, len) = (key.1 * self.slice_bytes(), self.slice_len(key.1));
        let lost = self.lost();
        let unread = |index: u32| Unread {
            array_sector: self.array_sector(key.0, index, at),
            sectors: u64::from(len) / SECTOR_BYTES,
            members: vec![self.member_id(plan.code.data()[index as usize].node)],
        };
        lost_blocks(&plan.code, lost.into_iter().collect()).map(unread).collect()
    }

    /// The work on this slice is over.
    pub(super) fn task_over(&mut self, key: Key, done: Done) {
        if let Some(task) = self.working.remove(&key) {
            self.work_over(&task, done);
        }
    }

    fn work_over(&mut self, task: &Task, done: Done) {
        self.keeper.work_done(task.place, task.unit, &task.work, done);
        self.carry_out();
    }
}
