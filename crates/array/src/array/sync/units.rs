//! The units of background work: which are issued, and what they mean when they are done.

use super::BUSY_MS;
use crate::array::Array;
use crate::array::job::{Fix, Job, Kind, Unit};
use crate::array::members::State;
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
                if self.intent.as_ref().is_some_and(|i| !i.needs_resync(start, end)) {
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
        self.sync.units.insert(start);
        self.start_job(Job::new(kind, false));
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
            self.raid10_units.insert((array, id), start);
            self.sync.units.insert(start);
            self.start_job(Job::new(Kind::Rebuild { unit, targets: vec![id] }, false));
            issued = true;
        }
        issued
    }

    /// Holds the next unit back as the speed limits ask.
    pub(super) fn charge_speed(&mut self) {
        let busy = self.last_request.is_some_and(|at| self.now < at.plus_millis(BUSY_MS));
        self.sync.pace.charge(self.now, self.unit_sectors(), busy);
    }

    /// A unit is done.
    pub(crate) fn sync_unit_done(
        &mut self,
        unit: Unit,
        targets: &[MemberId],
        result: Result<(), RequestError>,
    ) {
        let raid10 =
            self.sync.action == SyncAction::Recovery && self.geometry.level() == Level::Raid10;
        let mut start = unit.start;
        if raid10 && let Some(place) = self.raid10_units.remove(&(unit.start, targets[0])) {
            start = place;
        }
        if result.is_err() {
            self.note_unit(unit, start, targets);
        }
        if raid10 && self.raid10_units.values().any(|other| *other == start) {
            return;
        }
        self.sync.units.remove(&start);
        self.note_progress();
    }

    /// What a unit that could not be rebuilt means: a bad block on the target, so that the rest
    /// goes on; without room for it, recovery cannot be completed.
    fn note_unit(&mut self, unit: Unit, start: u64, targets: &[MemberId]) {
        if self.failed {
            // Nothing from here on is done.
            self.sync.cursor = self.sync.cursor.min(start);
            return;
        }
        for id in targets.iter().copied() {
            let Some(sector) = self.strip_of(id, unit) else { continue };
            let Some(member) = self.members.get_mut(id) else { continue };
            let has_log = member.superblock.bblog_size_sectors != 0;
            if has_log && member.bad_blocks.insert(sector, unit.sectors.into()) {
                self.wish_bad_blocks(id);
            } else {
                self.sync.cursor = self.sync.cursor.min(start);
                self.sync.stuck = true;
                self.interrupt_sync();
            }
        }
    }

    /// Moves the marks below which everything is done.
    pub(super) fn note_progress(&mut self) {
        let done = self.sync.low_water();
        match self.sync.action {
            SyncAction::Resync => {
                if self.resynced != MAX_SECTOR {
                    self.resynced = self.resynced.max(done);
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
