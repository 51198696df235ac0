//! The units of background work: which are issued, and what they mean when they are done.

use super::compare::goes_on_in_blocks;
use super::{BUSY_MS, FULL_MS, TORN};
use crate::array::Array;
use crate::array::job::{Fix, Job, Kind, Unit};
use crate::array::members::State;
use crate::array::requests::BLOCK_SECTORS;
use crate::events::SyncAction;
use crate::format::superblock::MAX_SECTOR;
use crate::geometry::Strip;
use crate::level::Level;
use crate::{MemberId, RequestError};

impl Array {
    /// Issues the unit at the cursor. False when it needs nothing.
    pub(super) fn issue_unit(&mut self) -> bool {
        let start = self.sync.cursor;
        if self.sync.action == SyncAction::Recovery && self.geometry.level() == Level::Raid10 {
            return self.issue_raid10_recovery(start);
        }
        let height = self.unit_height(start);
        let sectors = height.min(self.sync.end - start);
        self.sync.cursor = start + sectors;
        let unit = Unit { start, sectors: sectors as u32 };
        let kind = match self.sync.action {
            SyncAction::Resync => {
                let end = unit.end();
                let intent = self.intent.as_ref();
                let left = self.sync.left.as_ref();
                if intent.is_some_and(|intent| !intent.needs_resync(start, end))
                    || left.is_some_and(|left| !left.overlaps(start, end))
                {
                    return false;
                }
                Kind::Check { unit, fix: Fix::Resync }
            }
            SyncAction::Check => Kind::Check { unit, fix: Fix::Nothing },
            SyncAction::Repair => Kind::Check { unit, fix: Fix::Repair },
            SyncAction::Recovery => {
                let targets = self.targets_at(unit.end(), start, unit.end());
                if targets.is_empty() {
                    return false;
                }
                Kind::Rebuild { unit, targets }
            }
            SyncAction::Idle => return false,
        };
        self.add_unit_job(kind, start, false);
        true
    }

    /// How far a unit at this place of sync space may reach.
    fn unit_height(&self, start: u64) -> u64 {
        let unit = self.unit_sectors();
        unit - start % unit
    }

    /// Recovery targets not yet rebuilt up to `end` of their data area, where `[from, to)` is the
    /// range of sync space that the bitmap would mark.
    fn targets_at(&self, end: u64, from: u64, to: u64) -> Vec<MemberId> {
        let dirty = self.intent.as_ref().is_none_or(|intent| intent.dirty(from, to));
        self.members
            .iter()
            .filter(|(id, _)| self.sync.targets.contains(id))
            .filter(|(_, member)| match member.state {
                State::Rebuilding { offset, by_bitmap, .. } => {
                    (dirty || !by_bitmap) && offset < end
                }
                _ => false,
            })
            .map(|(id, _)| id)
            .collect()
    }

    /// raid10 recovers in device space: a target's strip is a different part of the array for each
    /// target, so each is a unit of its own, and they go one after another at the same height.
    fn issue_raid10_recovery(&mut self, start: u64) -> bool {
        let height = self.unit_height(start);
        let sectors = height.min(self.sync.end - start);
        self.sync.cursor = start + sectors;
        let mut issued = false;
        for (id, _) in self.recovery_targets() {
            let Some(role) = self.members.get(id).and_then(|m| m.state.role()) else { continue };
            let Some(array) = self.geometry.array_sector_at(Strip { role, sector: start }) else {
                continue;
            };
            let room = self.geometry.array_sectors().saturating_sub(array);
            let unit = Unit { start: array, sectors: sectors.min(room) as u32 };
            let wanted = self.targets_at(start + sectors, array, unit.end());
            if unit.sectors == 0 || !wanted.contains(&id) {
                continue;
            }
            let kind = Kind::Rebuild { unit, targets: vec![id] };
            self.add_unit_job(kind, start, false);
            issued = true;
        }
        issued
    }

    /// Holds the next unit back as the speed limits ask.
    pub(super) fn charge_speed(&mut self) {
        let busy = self.last_request.is_some_and(|at| self.now < at.plus_millis(BUSY_MS));
        self.sync.pace.charge(self.now, self.unit_sectors(), busy);
    }

    /// A job of background work is done.
    pub(crate) fn sync_unit_done(&mut self, job: &Job, result: Result<(), RequestError>) {
        let (Kind::Rebuild { unit, .. } | Kind::Check { unit, .. }) = job.kind else { return };
        match result {
            Ok(()) if job.incomplete => self.add_unit_job(job.kind.clone(), job.place, true),
            Ok(()) => self.note_in_line(job, unit),
            Err(RequestError::Medium) if self.sync.interrupted.is_none() => {
                if goes_on_in_blocks(job) {
                    self.take_apart(job, unit);
                } else {
                    self.note_unread(job, unit);
                    self.note_missed(job, unit);
                }
            }
            Err(RequestError::NoSpace) if self.sync.interrupted.is_none() => self.note_full(job),
            // Nothing from here on is done.
            Err(_) => self.sync.cursor = self.sync.cursor.min(job.place),
        }
        if let Some(jobs) = self.sync.units.get_mut(&job.place) {
            *jobs -= 1;
            if *jobs == 0 {
                self.sync.units.remove(&job.place);
            }
        }
        self.note_progress();
    }

    fn add_unit_job(&mut self, kind: Kind, place: u64, again: bool) {
        *self.sync.units.entry(place).or_default() += 1;
        self.start_job(Job { place, again, ..Job::new(kind, false) });
    }

    /// A unit that could not be done as a whole is done block by block.
    fn take_apart(&mut self, job: &Job, unit: Unit) {
        let mut start = unit.start;
        while start < unit.end() {
            let end = unit.end().min(start - start % BLOCK_SECTORS + BLOCK_SECTORS);
            let block = Unit { start, sectors: (end - start) as u32 };
            let mut kind = job.kind.clone();
            if let Kind::Rebuild { unit, .. } | Kind::Check { unit, .. } = &mut kind {
                *unit = block;
            }
            self.add_unit_job(kind, job.place, false);
            start = end;
        }
    }

    /// A unit was compared and nothing differs any more: a resync has nothing left to do there.
    fn note_in_line(&mut self, job: &Job, unit: Unit) {
        let Kind::Check { fix, .. } = job.kind else { return };
        let equal = job.checked.iter().all(|checked| checked.differs() == 0);
        if (fix == Fix::Repair || fix == Fix::Nothing && equal)
            && let Some(left) = &mut self.sync.left
        {
            left.remove(unit.start, unit.end());
        }
    }

    /// What it means that a block could not be done: it stays out of sync after a resync; a member
    /// that was to get it has a bad block, so that the rest goes on. Without room for that,
    /// recovery cannot be completed.
    fn note_missed(&mut self, job: &Job, unit: Unit) {
        let targets = match &job.kind {
            Kind::Rebuild { targets, .. } => targets.as_slice(),
            Kind::Check { fix: Fix::Resync, .. } => {
                self.sync.missed.insert(unit.start, unit.end());
                return;
            }
            _ => return,
        };
        for id in targets.iter().copied() {
            let Some(sector) = self.strip_of(id, unit) else { continue };
            let Some(member) = self.members.get_mut(id) else { continue };
            let has_log = member.superblock.bblog_size_sectors != 0;
            if has_log && member.bad_blocks.insert(sector, unit.sectors.into()) {
                self.wish_bad_blocks(id);
                continue;
            }
            let what = if has_log { "a full bad-block log" } else { "no bad-block log" };
            let reason = format!(
                "{} has {what} to take sector {sector}, which could not be read elsewhere",
                member.device
            );
            self.sync.cursor = self.sync.cursor.min(job.place);
            self.interrupt_sync(reason.clone());
            self.sync.recovery_waits = Some(reason);
        }
    }

    /// A member has no room for what the work has to write: it waits until something changes.
    fn note_full(&mut self, job: &Job) {
        let reason = "the members have no room";
        self.sync.cursor = self.sync.cursor.min(job.place);
        self.interrupt_sync(reason);
        match self.sync.action {
            SyncAction::Resync => self.wait_for_room(reason),
            SyncAction::Recovery => {
                self.sync.recovery_waits = Some(reason.into());
                self.sync.retry_at = Some(self.now.plus_millis(FULL_MS));
            }
            SyncAction::Check | SyncAction::Repair | SyncAction::Idle => {}
        }
    }

    /// A write reached some members and not others: until a resync has been there, they may differ.
    /// Members being rebuilt get it again.
    pub(crate) fn note_torn(&mut self, start: u64, end: u64) {
        if self.resynced == MAX_SECTOR {
            self.sync.left.get_or_insert_default();
        }
        if let Some(left) = &mut self.sync.left {
            left.insert(start, end);
        }
        self.resynced = self.resynced.min(start);
        self.durable_resynced = self.durable_resynced.min(start);
        let row = self.first_row(start);
        for id in self.members.iter_live().map(|(id, _)| id).collect::<Vec<_>>() {
            if let Some(member) = self.members.get_mut(id)
                && let State::Rebuilding { offset, .. } = &mut member.state
            {
                *offset = (*offset).min(row);
            }
        }
        match self.sync.action {
            SyncAction::Resync => {
                // It may have passed, and goes there again.
                self.sync.missed.insert(start, end);
                self.interrupt_sync(TORN);
            }
            SyncAction::Recovery => {
                self.sync.cursor = self.sync.cursor.min(row);
                self.wait_for_room(TORN);
            }
            SyncAction::Check | SyncAction::Repair | SyncAction::Idle => self.wait_for_room(TORN),
        }
        self.wish_superblock(false);
    }

    /// A resync is due, and not before members may have room again.
    pub(super) fn wait_for_room(&mut self, why: &'static str) {
        self.sync.resync_waits = Some(why.into());
        self.sync.retry_at = Some(self.now.plus_millis(FULL_MS));
    }

    /// The first sector of the members' data areas that holds a place of sync space.
    fn first_row(&self, start: u64) -> u64 {
        if self.geometry.level() != Level::Raid10 {
            return start;
        }
        let copies = 0..self.geometry.copies();
        copies.map(|copy| self.geometry.copy(start, copy).sector).min().unwrap_or(0)
    }

    /// Moves the marks below which everything is done.
    pub(super) fn note_progress(&mut self) {
        let done = self.sync.low_water();
        match self.sync.action {
            SyncAction::Resync => {
                let missed = self.sync.missed.first().unwrap_or(MAX_SECTOR);
                if self.resynced != MAX_SECTOR {
                    self.resynced = self.resynced.max(done.min(missed));
                }
            }
            SyncAction::Recovery => {
                for id in self.sync.targets.clone() {
                    if let Some(member) = self.members.get_mut(id)
                        && let State::Rebuilding { offset, .. } = &mut member.state
                    {
                        *offset = (*offset).max(done);
                    }
                }
            }
            SyncAction::Check | SyncAction::Repair | SyncAction::Idle => {}
        }
    }
}
