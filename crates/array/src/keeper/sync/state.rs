//! The state of background work, and what every part of it needs to know of that.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::FULL_MS;
use super::copying::Copying;
use super::moving::{Moving, MovingStage};
use super::scrub::Scrub;
use super::speed::Speed;
use super::unread::UnreadPlaces;
use super::unsynced::Unsynced;
use crate::events::SyncAction;
use crate::format::superblock::MAX_SECTOR;
use crate::keeper::core::Core;
use crate::keeper::members::{Members, State};
use crate::keeper::{LaneCommand, Unit, Work};
use crate::status::SyncStatus;
use crate::{Instant, MemberId, Role, SECTOR_BYTES};

/// The phase of background work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WorkPhase {
    #[default]
    Idle,
    Running,
    /// All units are done; waits for the update that makes that durable.
    Finishing(u64),
    /// Written units are read back, from this place on.
    Verifying(u64),
    /// Members rebuilt have taken their roles over; waits for the update that says so.
    TakingOver(u64),
}

/// Background work: at most one action at a time. The work is idle, then runs unit by unit; when
/// all units are done the progress is made durable; what was rebuilt is read back; members take
/// their roles over; then it is idle again. An interruption ends it at the next of these steps.
///
/// [`drive`](Self::drive) takes every step that is due, after each event. The lane answers each
/// unit by [`work_done`](Self::work_done). [`member_lost`](Self::member_lost) and
/// [`retry`](Self::retry) say what has changed.
#[derive(Debug, Default)]
pub(in crate::keeper) struct Sync {
    pub(in crate::keeper) action: SyncAction,
    pub(super) phase: WorkPhase,
    pub(super) cursor: u64,
    pub(super) end: u64,
    /// Parts asked for and not answered, by the place of their unit.
    pub(super) units: BTreeMap<u64, usize>,
    /// The members a recovery rebuilds: those that were waiting for it when it began.
    pub(super) targets: Vec<MemberId>,
    /// The recovery began with several of them.
    pub(super) several: bool,
    /// The recovery rebuilds none of them, but is a pass over a member that is copied.
    pub(super) copies: bool,
    /// Sectors that the latest recovery has given them, in all.
    pub(super) copied_sectors: u64,
    pub(super) paused: bool,
    /// The reason why the action is to end before its end.
    pub(super) interrupted: Option<Cow<'static, str>>,
    pub(in crate::keeper) unsynced: Unsynced,
    pub(in crate::keeper) copying: Option<Copying>,
    /// Members may have room again.
    pub(super) retry_at: Option<Instant>,
    /// Recovery met something it cannot get past: why. Tried again when something changes.
    pub(super) recovery_waits: Option<String>,
    pub(in crate::keeper) unread: UnreadPlaces,
    pub(in crate::keeper) scrub: Scrub,
    pub(in crate::keeper) moving: Option<Moving>,
    pub(super) speed: Speed,
    pub(super) checkpoint_at: Instant,
}

impl Sync {
    /// Everything below is done.
    pub(super) fn low_water(&self) -> u64 {
        if self.verifies() {
            return self.cursor;
        }
        let low = self.units.keys().next().copied().unwrap_or(self.cursor).min(self.cursor);
        match &self.moving {
            Some(moving) if moving.is_saving() => moving.done(moving.front),
            Some(moving) if self.action == SyncAction::Reshape => moving.done(low),
            _ => low,
        }
    }

    /// Returns whether the action is over but for what is read back.
    pub(super) const fn verifies(&self) -> bool {
        matches!(self.phase, WorkPhase::Verifying(_))
    }

    /// Returns where the first unit lies that such work is at.
    pub(in crate::keeper) fn first_at(&self, action: SyncAction) -> Option<u64> {
        if self.action != action || self.verifies() {
            return None;
        }
        self.units.keys().next().copied()
    }

    /// Returns how far the recovery of this member has been asked for, if it is one of those under
    /// way.
    pub(in crate::keeper) fn recovered(&self, id: MemberId) -> Option<u64> {
        let recovering = !self.is_idle() && self.action == SyncAction::Recovery;
        (recovering && self.targets.contains(&id)).then_some(self.cursor)
    }

    /// Returns whether this is the only member that a recovery rebuilds, ever since it began. Among
    /// several, some may have been further.
    pub(in crate::keeper) fn rebuilds_only(&self, id: MemberId) -> bool {
        self.targets == [id] && !self.several
    }

    /// Parts asked for and not answered.
    pub(in crate::keeper) fn in_flight(&self) -> usize {
        self.units.values().sum()
    }

    pub(in crate::keeper) fn is_idle(&self) -> bool {
        self.phase == WorkPhase::Idle
    }

    /// Returns whether the action is under way, and not held.
    pub(in crate::keeper) fn goes_on(&self) -> bool {
        !self.is_idle() && !self.paused && self.speed.next_at().is_some()
    }

    /// Returns when the speed limit or the next checkpoint wants attention.
    pub(in crate::keeper) fn deadline(&self, now: Instant) -> Option<Instant> {
        if self.phase == WorkPhase::Idle {
            return self.retry_at;
        }
        if let Some(Moving { stage: MovingStage::Undropped(at), .. }) = self.moving {
            return Some(at);
        }
        if self.phase != WorkPhase::Running || self.paused {
            return None;
        }
        if self.action == SyncAction::Reshape {
            return self.speed.next_at().filter(|at| *at > now);
        }
        Some(self.speed.next_at().filter(|at| *at > now).unwrap_or(self.checkpoint_at))
    }

    /// Changes the limits that are given, in bytes per second and member.
    pub(in crate::keeper) fn set_limits(
        &mut self,
        now: Instant,
        min: Option<u64>,
        max: Option<u64>,
    ) {
        self.speed.min_bytes_s = min.unwrap_or(self.speed.min_bytes_s);
        self.speed.max_bytes_s = max.unwrap_or(self.speed.max_bytes_s);
        self.speed.restart(now, self.low_water());
    }

    pub(in crate::keeper) const fn is_paused(&self) -> bool {
        self.paused
    }

    pub(in crate::keeper) fn pause(&mut self, now: Instant, paused: bool) {
        self.paused = paused;
        self.speed.restart(now, self.low_water());
    }

    pub(in crate::keeper) fn status(&self, now: Instant) -> SyncStatus {
        let limits = SyncStatus {
            next: self.scrub.requested,
            paused: self.paused,
            copied_sectors: self.copied_sectors,
            min_bytes_per_s: self.speed.min_bytes_s,
            max_bytes_per_s: Some(self.speed.max_bytes_s).filter(|max| *max != u64::MAX),
            ..SyncStatus::default()
        };
        if self.phase == WorkPhase::Idle {
            return limits;
        }
        let done = self.low_water();
        let bytes_per_s = if self.paused { 0 } else { self.speed.bytes_per_s(now, done) };
        let left = (self.end - done.min(self.end)) * SECTOR_BYTES;
        SyncStatus {
            action: self.action,
            done_sectors: done,
            total_sectors: self.end,
            bytes_per_s,
            finish_s: left.checked_div(bytes_per_s),
            ..limits
        }
    }

    /// Ends background work before its end: why.
    pub(super) fn interrupt(&mut self, reason: impl Into<Cow<'static, str>>) {
        let running = self.phase == WorkPhase::Running || self.verifies();
        if running && self.interrupted.is_none() {
            self.interrupted = Some(reason.into());
        }
    }

    /// Something changed: what did not work may work now.
    pub(in crate::keeper) fn retry(&mut self, members: &Members) {
        self.unsynced.resync_waits = None;
        self.recovery_waits = None;
        if let Some(moving) = &mut self.moving {
            moving.waits = None;
        }
        self.unsynced.unmarkable = false;
        // It goes on with the others where it was.
        let first = members.first_to_rebuild();
        let begun = |(id, _): &(MemberId, u64)| self.targets.contains(id);
        if self.action == SyncAction::Recovery && !first.is_empty() && !first.iter().any(begun) {
            self.interrupt("a member that lacks less goes first");
        }
    }

    /// Tries again what did not fit the bad-block logs: less is to be noted than before.
    pub(in crate::keeper) fn logs_have_room(&mut self) {
        self.recovery_waits = None;
        self.unsynced.unmarkable = false;
    }

    /// Returns the reason why background work that is due does not go on.
    pub(in crate::keeper) fn held_up(&self) -> Option<String> {
        let resync = self.unsynced.resync_waits.as_ref().map(|why| match &self.unsynced.left {
            Some(left) => format!("{} sectors are not in sync: {why}", left.sectors()),
            None => format!("the resync waits: {why}"),
        });
        let moves = self.moving.as_ref().and_then(|moving| moving.waits.clone());
        let moves = moves.map(|why| format!("the reshape waits: {why}"));
        if self.is_idle() { moves.or(self.recovery_waits.clone()).or(resync) } else { None }
    }

    /// The unit that this place of a role is in, and how much of the role it takes.
    pub(super) fn unit_of_role(&self, core: &Core, role: Role, start: u64) -> (Unit, u64) {
        let by_role = core.space.is_by_role();
        let space = &core.space;
        let height = if by_role { space.rows_left(start) } else { space.unit_left(start) };
        let sectors = height.min(self.end - start);
        let place = if by_role { space.of_row(role, start) } else { None };
        let (first, room) = place.unwrap_or((start, sectors));
        (Unit { start: first, sectors: sectors.min(room) as u32 }, sectors)
    }

    /// Asks the lane for a unit.
    pub(super) fn ask_for(&mut self, core: &mut Core, place: u64, unit: Unit, work: Work) {
        *self.units.entry(place).or_default() += 1;
        core.out.push(LaneCommand::Work { place, unit, work });
    }

    /// Returns whether a unit that was not done as a whole may be tried in parts.
    pub(in crate::keeper) const fn work_goes_on(&self) -> bool {
        self.interrupted.is_none()
    }

    /// A resync is due, and not before members may have room again.
    pub(super) fn wait_for_room(&mut self, now: Instant, why: &'static str) {
        self.unsynced.resync_waits = Some(why.into());
        self.retry_at = Some(now.plus_millis(FULL_MS));
    }

    /// A unit could not be moved: the array stays as it is until something changes.
    pub(super) fn note_unmoved(&mut self, place: u64, reason: String) {
        self.cursor = self.cursor.min(place);
        self.interrupt(reason.clone());
        if let Some(moving) = &mut self.moving {
            moving.waits = Some(reason);
        }
    }

    /// Moves the marks below which everything is done.
    pub(super) fn note_progress(&mut self, core: &mut Core) {
        let low = self.low_water();
        let done = match self.action {
            SyncAction::Recovery => core.space.rows_done_below(low),
            _ => core.space.done_below(low),
        };
        match self.action {
            SyncAction::Resync => {
                let missed = self.unsynced.missed.first().unwrap_or(MAX_SECTOR);
                let clean = &mut core.metadata.clean;
                if clean.resynced != MAX_SECTOR {
                    clean.resynced = clean.resynced.max(done.min(missed));
                    self.unsynced.note_resynced(core);
                }
            }
            SyncAction::Recovery => {
                for id in self.targets.clone() {
                    if let Some(member) = core.members.get_mut(id)
                        && let State::Rebuilding { offset, .. } = &mut member.state
                    {
                        *offset = (*offset).max(done);
                    }
                }
            }
            SyncAction::Check | SyncAction::Repair | SyncAction::Reshape | SyncAction::Idle => {}
        }
    }
}

/// Notes that the content which is about to be overwritten could not be saved, or not be read back:
/// it is tried again after a while.
pub(super) fn note_unsaved(sync: &mut Sync, core: &Core, place: u64) {
    let device = core.spill.as_ref().map_or("", |spill| &spill.device);
    sync.note_unmoved(place, format!("{device} cannot be written or read"));
    sync.retry_at = Some(core.now.plus_millis(FULL_MS));
}
