//! The units of background work: which are asked for, and what they mean when they are done.

use super::state::note_unsaved;
use super::{BUSY_MS, FULL_MS, Moving, Sync, TORN};
use crate::MemberId;
use crate::events::{Fault, SyncAction};
use crate::keeper::core::Core;
use crate::keeper::members::State;
use crate::keeper::{Done, Fix, Redundancy, Unit, Unread, Work};

/// A member that does not hold what it was given.
#[derive(Clone, Copy, Debug)]
pub(in crate::keeper) struct Untrue {
    pub(in crate::keeper) member: MemberId,
    pub(in crate::keeper) reason: &'static str,
    pub(in crate::keeper) fault: Fault,
}

impl Sync {
    /// Issues the unit at the cursor. False when it needs nothing.
    pub(super) fn issue_unit(&mut self, core: &mut Core) -> bool {
        let start = self.cursor;
        if self.copies {
            return self.issue_copy(core, start);
        }
        if self.action == SyncAction::Recovery && core.space.is_by_role() {
            return self.issue_recovery_by_role(core, start);
        }
        let height = core.space.unit_left(start);
        let sectors = height.min(self.end - start);
        self.cursor = start + sectors;
        let unit = Unit { start, sectors: sectors as u32 };
        let work = match self.action {
            SyncAction::Resync => {
                let end = unit.end();
                let intent = core.metadata.intent.as_ref();
                let left = self.unsynced.left.as_ref();
                if intent.is_some_and(|intent| !intent.needs_resync(start, end))
                    || left.is_some_and(|left| !left.overlaps(start, end))
                {
                    return false;
                }
                Work::Compare(Fix::Resync)
            }
            SyncAction::Check => Work::Compare(Fix::Nothing),
            SyncAction::Repair => Work::Compare(Fix::Repair),
            SyncAction::Recovery => {
                let targets = self.targets_at(core, unit.end(), start, unit.end());
                if targets.is_empty() {
                    return false;
                }
                Work::Rebuild(targets)
            }
            SyncAction::Reshape if self.moving.as_ref().is_some_and(Moving::is_saving) => {
                Work::Save
            }
            SyncAction::Reshape => Work::Move,
            SyncAction::Idle => return false,
        };
        self.ask_for(core, start, unit, work);
        true
    }

    /// Recovery targets not yet rebuilt up to `end` of their data area, where `[from, to)` is the
    /// range of sync space that the bitmap would mark.
    fn targets_at(&self, core: &Core, end: u64, from: u64, to: u64) -> Vec<MemberId> {
        let dirty = core.metadata.intent.as_ref().is_none_or(|intent| {
            if crate::broken("catch-up-from-loss") {
                intent.needs_resync(from, to)
            } else {
                intent.dirty(from, to)
            }
        });
        core.members
            .iter()
            .filter(|(id, _)| self.targets.contains(id))
            .filter(|(_, member)| match member.state {
                State::Rebuilding { offset, had, .. } => {
                    (dirty || had.ends_before(end)) && offset < end
                }
                _ => false,
            })
            .map(|(id, _)| id)
            .collect()
    }

    /// Issues units of a recovery by rows, where each role's rows lie elsewhere in the space: a
    /// target's strip is a different part of the array for each target, so each is a unit of its
    /// own, and they go one after another at the same height.
    fn issue_recovery_by_role(&mut self, core: &mut Core, start: u64) -> bool {
        let height = core.space.rows_left(start);
        let sectors = height.min(self.end - start);
        self.cursor = start + sectors;
        let mut issued = false;
        for (id, _) in core.members.rebuilding() {
            let Some(role) = core.members.get(id).and_then(|m| m.state.role()) else { continue };
            let Some((first, room)) = core.space.of_row(role, start) else { continue };
            let unit = Unit { start: first, sectors: sectors.min(room) as u32 };
            let wanted = self.targets_at(core, start + sectors, first, unit.end());
            if unit.sectors == 0 || !wanted.contains(&id) {
                continue;
            }
            self.ask_for(core, start, unit, Work::Rebuild(vec![id]));
            issued = true;
        }
        issued
    }

    /// The same of a pass over a member that is copied.
    fn issue_copy(&mut self, core: &mut Core, start: u64) -> bool {
        let Some(copying) = &self.copying else {
            self.cursor = self.end;
            return false;
        };
        let (unit, sectors) = self.unit_of_role(core, copying.role, start);
        let lacks = copying.lacks_of_unit(core, unit.start, unit.end());
        self.cursor = start + sectors;
        if lacks {
            self.ask_for(core, start, unit, Work::Copy);
        }
        lacks
    }

    /// Holds the next unit back as the speed limits ask.
    pub(super) fn charge_speed(&mut self, core: &Core) {
        self.speed.charge(core.now, core.space.unit_sectors(), is_busy(core));
    }

    /// The lane does a unit in so many more parts than one; each is answered for itself.
    pub(in crate::keeper) fn work_parted(&mut self, place: u64, more: usize) {
        *self.units.entry(place).or_default() += more;
    }

    /// A unit of background work, or a part of one, is done.
    /// Returned is the member that it shows not to hold what it was given: it is to fail.
    pub(in crate::keeper) fn work_done(
        &mut self,
        core: &mut Core,
        place: u64,
        unit: Unit,
        work: &Work,
        done: Done,
    ) -> Option<Untrue> {
        let mut failed = None;
        let moves_saved = self.moving.as_ref().is_some_and(Moving::moves_saved);
        match (work, done) {
            (Work::Verify(id), done) => failed = untrue(core, *id, unit, &done),
            (_, Done::Well { equal }) => {
                self.note_in_line(unit, work, equal);
                let copies = match work {
                    Work::Rebuild(targets) => targets.len() as u64,
                    Work::Copy => 1,
                    Work::Compare(_) | Work::Verify(_) | Work::Save | Work::Move => 0,
                };
                self.copied_sectors += u64::from(unit.sectors) * copies;
                if *work == Work::Copy
                    && let Some(copying) = &mut self.copying
                {
                    copying.note_copied(core, unit.start, unit.end());
                }
            }
            (Work::Move, _) if moves_saved && !core.service.failed => {
                note_unsaved(self, core, place);
            }
            (Work::Save, Done::Full) if self.work_goes_on() => {
                note_unsaved(self, core, place);
            }
            (Work::Move | Work::Save, Done::Unread(lost)) if self.work_goes_on() => {
                for Unread { array_sector, sectors, members } in lost {
                    self.unread.add(array_sector, sectors, &members);
                }
                let copies = core.space.redundancy() == Redundancy::Copies;
                let what = if copies { "sector {} of the array" } else { "row {} of the members" };
                let what = what.replace("{}", &place.to_string());
                self.note_unmoved(place, format!("{what} cannot be read"));
            }
            (_, Done::Alone) => self.scrub.uncompared_sectors += u64::from(unit.sectors),
            (Work::Rebuild(targets), Done::Unread(_)) if self.all_keep(core, targets, unit) => {
                self.note_missed(core, place, unit, work);
            }
            (_, Done::Unread(lost)) if self.work_goes_on() => {
                for Unread { array_sector, sectors, members } in lost {
                    self.unread.add(array_sector, sectors, &members);
                }
                self.note_missed(core, place, unit, work);
            }
            (_, Done::Full) if self.work_goes_on() => self.note_full(core, place),
            // Nothing from here on is done.
            (_, Done::Unread(_) | Done::Full | Done::Failed) => {
                self.cursor = self.cursor.min(place);
            }
        }
        if let Some(parts) = self.units.get_mut(&place) {
            *parts -= 1;
            if *parts == 0 {
                self.units.remove(&place);
            }
        }
        self.note_progress(core);
        failed
    }

    /// Tells whether all these members keep what they held of a unit.
    fn all_keep(&self, core: &Core, targets: &[MemberId], unit: Unit) -> bool {
        let keeps = |id: &MemberId| self.unsynced.not_kept(core, *id, unit).is_some();
        self.work_goes_on() && targets.iter().all(keeps)
    }

    /// A unit was compared and nothing differs any more: a resync has nothing left to do there.
    fn note_in_line(&mut self, unit: Unit, work: &Work, equal: bool) {
        let in_line = match work {
            Work::Compare(Fix::Repair) => true,
            Work::Compare(Fix::Nothing) => equal,
            Work::Compare(Fix::Resync)
            | Work::Rebuild(_)
            | Work::Copy
            | Work::Verify(_)
            | Work::Save
            | Work::Move => false,
        };
        if in_line && let Some(left) = &mut self.unsynced.left {
            left.remove(unit.start, unit.end());
        }
    }

    /// Takes note that a block could not be done: it stays out of sync after a resync; a member
    /// that was to get it has a bad block, so that the rest goes on. Without room for that,
    /// recovery cannot be completed.
    fn note_missed(&mut self, core: &mut Core, place: u64, unit: Unit, work: &Work) {
        let targets = match work {
            Work::Rebuild(targets) => targets.as_slice(),
            Work::Compare(Fix::Resync) => {
                self.unsynced.missed.insert(unit.start, unit.end());
                return;
            }
            Work::Compare(_) | Work::Verify(_) | Work::Save | Work::Move => return,
            Work::Copy => {
                if let Some(copying) = &self.copying {
                    copying.note_not_copied(core, unit.start, unit.end());
                }
                return;
            }
        };
        for id in targets.iter().copied() {
            let Some(role) = core.members.get(id).and_then(|member| member.state.role()) else {
                continue;
            };
            let rest = self.unsynced.not_kept(core, id, unit);
            if rest.is_some() {
                self.unsynced.note_kept(core, unit);
            }
            let all = || core.space.rows_of(role, unit.start, unit.end());
            let unknown = rest.unwrap_or_else(all);
            if let Err(reason) = note_unknown(core, id, &unknown) {
                self.cursor = self.cursor.min(place);
                self.interrupt(reason.clone());
                self.recovery_waits = Some(reason);
            }
        }
    }

    /// A member has no room for what the work has to write: it waits until something changes.
    fn note_full(&mut self, core: &mut Core, place: u64) {
        let reason = "the members have no room";
        self.cursor = self.cursor.min(place);
        self.interrupt(reason);
        match self.action {
            SyncAction::Resync => self.wait_for_room(core.now, reason),
            SyncAction::Recovery => {
                self.recovery_waits = Some(reason.into());
                self.retry_at = Some(core.now.plus_millis(FULL_MS));
            }
            SyncAction::Reshape => {
                self.note_unmoved(place, reason.into());
                self.retry_at = Some(core.now.plus_millis(FULL_MS));
            }
            SyncAction::Check | SyncAction::Repair | SyncAction::Idle => {}
        }
    }

    /// A write reached some members and not others: until a resync has been there, they may differ.
    /// Members being rebuilt get it again.
    pub(in crate::keeper) fn note_torn(&mut self, core: &mut Core, start: u64, end: u64) {
        self.unsynced.noted.remove(start, end);
        self.unsynced.waits_again(core, start, end);
        let row = core.space.first_row(start);
        for id in core.members.iter_live().map(|(id, _)| id).collect::<Vec<_>>() {
            if let Some(member) = core.members.get_mut(id)
                && let State::Rebuilding { offset, .. } = &mut member.state
            {
                *offset = (*offset).min(row);
            }
        }
        match self.action {
            SyncAction::Resync => {
                // It may have passed, and goes there again.
                self.unsynced.missed.insert(start, end);
                self.interrupt(TORN);
            }
            SyncAction::Recovery => {
                self.cursor = self.cursor.min(row);
                self.wait_for_room(core.now, TORN);
            }
            SyncAction::Check | SyncAction::Repair | SyncAction::Reshape | SyncAction::Idle => {
                self.wait_for_room(core.now, TORN);
            }
        }
        core.metadata.queue_superblock(false);
    }
}

/// Returns whether others use the members.
pub(super) fn is_busy(core: &Core) -> bool {
    let last = core.metadata.clean.last_request;
    last.is_some_and(|at| core.now < at.plus_millis(BUSY_MS))
}

/// Notes rows as bad, of so many sectors each, where nobody can tell a member what it is to hold.
/// These rows are not read before they are written anew.
///
/// # Errors
/// The reason why its bad-block log does not take that.
fn note_unknown(core: &mut Core, id: MemberId, rows: &[(u64, u64)]) -> Result<(), String> {
    let Some(member) = core.members.get_mut(id) else { return Ok(()) };
    if rows.is_empty() || crate::broken("unknown-recorded") {
        return Ok(());
    }
    let has_log = member.superblock.bblog_size_sectors != 0;
    for &(row, sectors) in rows {
        let sector = member.absolute(row);
        if has_log && member.bad_blocks.insert(sector, sectors) {
            continue;
        }
        let what = if has_log { "a full bad-block log" } else { "no bad-block log" };
        return Err(format!(
            "{} has {what} to take sector {sector}, which could not be read elsewhere",
            member.device
        ));
    }
    core.metadata.queue_bad_blocks(id);
    Ok(())
}

/// Judges a unit that was read back, or could not be. Returns the member if it is to fail.
fn untrue(core: &Core, id: MemberId, unit: Unit, done: &Done) -> Option<Untrue> {
    let member = core.members.get(id)?;
    let copied = matches!(member.state, State::Rebuilding { replacement: true, .. });
    let reason = match (done, copied) {
        (Done::Well { equal: false }, true) => "does not hold what was copied to it",
        (Done::Well { equal: false }, false) => "does not hold what was rebuilt on it",
        (Done::Unread(_), true) => "what was copied to it cannot be read back",
        (Done::Unread(_), false) => "what was rebuilt on it cannot be read back",
        // It, or the array, has failed meanwhile.
        (Done::Well { equal: true } | Done::Alone | Done::Full | Done::Failed, _) => return None,
    };
    let row = member.state.role().and_then(|role| core.space.row_of(role, unit.start));
    let sector = row.map(|row| member.absolute(row));
    Some(Untrue { member: id, reason, fault: Fault { sector, errno: None } })
}
