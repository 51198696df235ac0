//! The units of background work: which are asked for, and what they mean when they are done.

use super::{BUSY_MS, FULL_MS, TORN};
use crate::MemberId;
use crate::events::{ArrayEvent, StripeBlock, SyncAction};
use crate::format::superblock::MAX_SECTOR;
use crate::keeper::copying::Copying;
use crate::keeper::members::State;
use crate::keeper::{Keeper, LaneCommand};

/// A range of sync space that one operation works on, within one chunk; at most as high as
/// [`SyncSpace::unit_sectors`](crate::keeper::SyncSpace::unit_sectors) says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// First sector.
    pub start: u64,
    /// How many.
    pub sectors: u32,
}

impl Unit {
    /// First sector behind it.
    #[must_use]
    pub fn end(self) -> u64 {
        self.start + u64::from(self.sectors)
    }
}

/// What a comparison does about differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fix {
    /// Tell of them.
    Nothing,
    /// Make parity or copies follow the data: after an unclean stop.
    Resync,
    /// As resync, but what the redundancy agrees is wrong is rewritten instead.
    Repair,
}

/// What is to be done with a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Compare its redundancy with its data.
    Compare(Fix),
    /// Give these members what they are to hold of it.
    Rebuild(Vec<MemberId>),
    /// Copy what the member that is being copied holds of it.
    Copy,
    /// Compare what this member was given of it with what the others say.
    Verify(MemberId),
}

/// Sectors of the array that could not be read.
#[derive(Clone, Debug)]
pub struct Unread {
    /// First sector of the array.
    pub array_sector: u64,
    /// How many.
    pub sectors: u64,
    /// The members that were to hold them, or what gives them back.
    pub members: Vec<MemberId>,
}

/// What became of a unit, or of a part of it.
#[derive(Clone, Debug)]
pub enum Done {
    /// It was done. `equal`: nothing differed.
    Well {
        /// See above; of a rebuilding it means nothing.
        equal: bool,
    },
    /// There was nothing to compare it with.
    Alone,
    /// Something of it could not be read, and was left as it is.
    Unread(Vec<Unread>),
    /// A member has no room for what was to be written.
    Full,
    /// Not at all, for want of members.
    Failed,
}

impl Keeper {
    /// Issues the unit at the cursor. False when it needs nothing.
    pub(super) fn issue_unit(&mut self) -> bool {
        let start = self.sync.cursor;
        if self.sync.copies {
            return self.issue_copy(start);
        }
        if self.sync.action == SyncAction::Recovery && self.space.is_by_role() {
            return self.issue_recovery_by_role(start);
        }
        let height = self.space.unit_left(start);
        let sectors = height.min(self.sync.end - start);
        self.sync.cursor = start + sectors;
        let unit = Unit { start, sectors: sectors as u32 };
        let work = match self.sync.action {
            SyncAction::Resync => {
                let end = unit.end();
                let intent = self.intent.as_ref();
                let left = self.sync.left.as_ref();
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
                let targets = self.targets_at(unit.end(), start, unit.end());
                if targets.is_empty() {
                    return false;
                }
                Work::Rebuild(targets)
            }
            SyncAction::Idle => return false,
        };
        self.ask_for(start, unit, work);
        true
    }

    /// Recovery targets not yet rebuilt up to `end` of their data area, where `[from, to)` is the
    /// range of sync space that the bitmap would mark.
    fn targets_at(&self, end: u64, from: u64, to: u64) -> Vec<MemberId> {
        let dirty = self.intent.as_ref().is_none_or(|intent| {
            if crate::broken("catch-up-from-loss") {
                intent.needs_resync(from, to)
            } else {
                intent.dirty(from, to)
            }
        });
        self.members
            .iter()
            .filter(|(id, _)| self.sync.targets.contains(id))
            .filter(|(_, member)| match member.state {
                State::Rebuilding { offset, marked_below, .. } => {
                    (dirty || end > marked_below) && offset < end
                }
                _ => false,
            })
            .map(|(id, _)| id)
            .collect()
    }

    /// Where each role's rows lie elsewhere there, recovery goes by rows: a target's strip is
    /// a different part of the array for each target, so each is a unit of its own, and they go
    /// one after another at the same height.
    fn issue_recovery_by_role(&mut self, start: u64) -> bool {
        let height = self.space.rows_left(start);
        let sectors = height.min(self.sync.end - start);
        self.sync.cursor = start + sectors;
        let mut issued = false;
        for (id, _) in self.recovery_targets() {
            let Some(role) = self.members.get(id).and_then(|m| m.state.role()) else { continue };
            let Some((first, room)) = self.space.of_row(role, start) else { continue };
            let unit = Unit { start: first, sectors: sectors.min(room) as u32 };
            let wanted = self.targets_at(start + sectors, first, unit.end());
            if unit.sectors == 0 || !wanted.contains(&id) {
                continue;
            }
            self.ask_for(start, unit, Work::Rebuild(vec![id]));
            issued = true;
        }
        issued
    }

    /// The same of a pass over a member that is copied.
    fn issue_copy(&mut self, start: u64) -> bool {
        let role = self.copying.as_ref().map_or(0, Copying::role);
        let (unit, sectors) = self.unit_of_role(role, start);
        self.sync.cursor = start + sectors;
        let lacks = self.copy_lacks(unit.start, unit.end());
        if lacks {
            self.ask_for(start, unit, Work::Copy);
        }
        lacks
    }

    /// The unit that this place of a role is in, and how much of the role it takes.
    pub(super) fn unit_of_role(&self, role: u16, start: u64) -> (Unit, u64) {
        let by_role = self.space.is_by_role();
        let height =
            if by_role { self.space.rows_left(start) } else { self.space.unit_left(start) };
        let sectors = height.min(self.sync.end - start);
        let first = self.space.of_row(role, start).filter(|_| by_role);
        let (first, room) = first.unwrap_or((start, sectors));
        (Unit { start: first, sectors: sectors.min(room) as u32 }, sectors)
    }

    /// Holds the next unit back as the speed limits ask.
    pub(super) fn charge_speed(&mut self) {
        let busy = self.clean.last_request.is_some_and(|at| self.now < at.plus_millis(BUSY_MS));
        self.sync.pace.charge(self.now, self.space.unit_sectors(), busy);
    }

    pub(super) fn ask_for(&mut self, place: u64, unit: Unit, work: Work) {
        *self.sync.units.entry(place).or_default() += 1;
        self.out.push_back(LaneCommand::Work { place, unit, work });
    }

    /// The lane does a unit in so many more parts than one; each is answered for itself.
    pub fn work_parted(&mut self, place: u64, more: usize) {
        *self.sync.units.entry(place).or_default() += more;
    }

    /// May a unit that was not done as a whole be tried in parts?
    #[must_use]
    pub const fn work_goes_on(&self) -> bool {
        self.sync.interrupted.is_none()
    }

    /// A unit of background work, or a part of one, is over.
    pub fn work_done(&mut self, place: u64, unit: Unit, work: &Work, done: Done) {
        match (work, done) {
            (Work::Verify(id), done) => self.verified(*id, unit, &done),
            (_, Done::Well { equal }) => {
                self.note_in_line(unit, work, equal);
                let copies = match work {
                    Work::Rebuild(targets) => targets.len() as u64,
                    Work::Copy => 1,
                    Work::Compare(_) | Work::Verify(_) => 0,
                };
                self.sync.copied_sectors += u64::from(unit.sectors) * copies;
                if *work == Work::Copy {
                    self.note_copied(unit.start, unit.end());
                }
            }
            (_, Done::Alone) => self.sync.uncompared_sectors += u64::from(unit.sectors),
            (_, Done::Unread(lost)) if self.work_goes_on() => {
                for Unread { array_sector, sectors, members } in lost {
                    self.sync.unread.add(array_sector, sectors, &members);
                }
                self.note_missed(place, unit, work);
            }
            (_, Done::Full) if self.work_goes_on() => self.note_full(place),
            // Nothing from here on is done.
            (_, Done::Unread(_) | Done::Full | Done::Failed) => {
                self.sync.cursor = self.sync.cursor.min(place);
            }
        }
        if let Some(parts) = self.sync.units.get_mut(&place) {
            *parts -= 1;
            if *parts == 0 {
                self.sync.units.remove(&place);
            }
        }
        self.note_progress();
    }

    /// A check or repair has found sectors that do not fit; the member that is wrong, where that
    /// can be told, and for arrays over nodes which of its blocks.
    pub fn mismatch(
        &mut self,
        array_sector: u64,
        sectors: u32,
        member: Option<MemberId>,
        block: Option<StripeBlock>,
    ) {
        self.sync.mismatch_sectors += u64::from(sectors);
        self.notify(ArrayEvent::Mismatch { array_sector, sectors, member, block });
    }

    /// A repair made these readable from parity, and no resync has made that fit.
    pub(crate) fn note_trusted(&mut self, trusted: Vec<Unread>) {
        for Unread { array_sector, sectors, members } in trusted {
            self.sync.trusted.add(array_sector, sectors, &members);
        }
    }

    /// A unit was compared and nothing differs any more: a resync has nothing left to do there.
    fn note_in_line(&mut self, unit: Unit, work: &Work, equal: bool) {
        let in_line = match work {
            Work::Compare(Fix::Repair) => true,
            Work::Compare(Fix::Nothing) => equal,
            Work::Compare(Fix::Resync) | Work::Rebuild(_) | Work::Copy | Work::Verify(_) => false,
        };
        if in_line && let Some(left) = &mut self.sync.left {
            left.remove(unit.start, unit.end());
        }
    }

    /// What it means that a block could not be done: it stays out of sync after a resync; a member
    /// that was to get it has a bad block, so that the rest goes on. Without room for that,
    /// recovery cannot be completed.
    fn note_missed(&mut self, place: u64, unit: Unit, work: &Work) {
        let targets = match work {
            Work::Rebuild(targets) => targets.as_slice(),
            Work::Compare(Fix::Resync) => {
                self.sync.missed.insert(unit.start, unit.end());
                return;
            }
            Work::Compare(_) | Work::Verify(_) => return,
            Work::Copy => return self.note_not_copied(unit.start, unit.end()),
        };
        for id in targets.iter().copied() {
            let Some(member) = self.members.get_mut(id) else { continue };
            let Some(role) = member.state.role() else { continue };
            let Some(row) = self.space.row_of(role, unit.start) else { continue };
            let sector = member.absolute(row);
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
            self.sync.cursor = self.sync.cursor.min(place);
            self.interrupt_sync(reason.clone());
            self.sync.recovery_waits = Some(reason);
        }
    }

    /// A member has no room for what the work has to write: it waits until something changes.
    fn note_full(&mut self, place: u64) {
        let reason = "the members have no room";
        self.sync.cursor = self.sync.cursor.min(place);
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
    pub fn note_torn(&mut self, start: u64, end: u64) {
        if self.clean.resynced == MAX_SECTOR {
            self.sync.left.get_or_insert_default();
            self.sync.left_behind = true;
        }
        if let Some(left) = &mut self.sync.left {
            left.insert(start, end);
        }
        self.clean.resynced = self.clean.resynced.min(start);
        self.clean.durable_resynced = self.clean.durable_resynced.min(start);
        let row = self.space.first_row(start);
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

    /// Moves the marks below which everything is done.
    pub(super) fn note_progress(&mut self) {
        let low = self.sync.low_water();
        let done = match self.sync.action {
            SyncAction::Recovery => self.space.rows_done_below(low),
            _ => self.space.done_below(low),
        };
        match self.sync.action {
            SyncAction::Resync => {
                let missed = self.sync.missed.first().unwrap_or(MAX_SECTOR);
                if self.clean.resynced != MAX_SECTOR {
                    self.clean.resynced = self.clean.resynced.max(done.min(missed));
                    self.note_resynced();
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
