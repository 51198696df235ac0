//! Background work: resync, recovery, check and repair. A cursor moves through sync space (device
//! sectors; array sectors for a raid10 resync or check) with a few units in flight.
//!
//! What has been done counts only after a flush: superblocks say how far recovery has come as of
//! the last flush, and a member is called in sync in a superblock only after one.

mod finish;
mod pace;
mod ranges;
mod units;
mod unread;
mod unvouched;
mod verify;

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::members::State;
use super::{Keeper, Redundancy};
use crate::events::{ArrayEvent, SyncAction};
use crate::format::superblock::MAX_SECTOR;
use crate::status::SyncStatus;
use crate::{Instant, MemberId, SECTOR_BYTES};
use pace::Pace;
pub(crate) use ranges::Ranges;
pub use units::{Done, Fix, Unit, Unread, Work};
use unread::Places;

/// Until a write is tried again for which members had no room.
const FULL_MS: u64 = 60_000;
/// Why something waits for a resync that was in sync.
const TORN: &str = "a write found no room on a member";
/// Units that need nothing and may be passed over in one go.
const SKIP: usize = 4096;
/// How often progress is put on the members.
const CHECKPOINT_MS: u64 = 10_000;
/// Foreground I/O this recent makes background work fall back to the minimum speed.
const BUSY_MS: u64 = 100;

/// Where background work stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    Running,
    /// All units are done; waits for the update that makes that durable.
    Finishing(u64),
    /// What was written is read back, from this place on.
    Verifying(u64),
    /// Members rebuilt have taken their roles over; waits for the update that says so.
    TakingOver(u64),
}

/// Background work.
#[derive(Debug)]
pub(crate) struct Sync {
    pub(crate) action: SyncAction,
    phase: Phase,
    cursor: u64,
    end: u64,
    /// Parts asked for and not answered, by the place of their unit.
    units: BTreeMap<u64, usize>,
    /// The members a recovery rebuilds: those that were waiting for it when it began.
    targets: Vec<MemberId>,
    /// It began with several of them.
    several: bool,
    /// It rebuilds none of them, but is a pass over a member that is copied.
    copies: bool,
    /// What the latest recovery has given them, in all.
    copied_sectors: u64,
    /// Asked for by the administrator.
    requested: Option<SyncAction>,
    paused: bool,
    /// Why it is to end before its end.
    interrupted: Option<Cow<'static, str>>,
    /// What waits for a resync, sector by sector; `None` as long as offset and bitmap say it all.
    pub(crate) left: Option<Ranges>,
    /// A resync has been there, and could not bring it in line.
    pub(crate) left_behind: bool,
    /// What is lost of it cannot be noted, before something changes.
    unmarkable: bool,
    /// What the running resync could not bring in line so far.
    missed: Ranges,
    /// What was left is not tried again before something changes: why.
    resync_waits: Option<Cow<'static, str>>,
    /// Members may have room again.
    retry_at: Option<Instant>,
    /// Recovery met something it cannot get past: why. Tried again when something changes.
    recovery_waits: Option<String>,
    pub(crate) unread: Places,
    pub(crate) mismatch_sectors: u64,
    /// Of the array, which the latest check or repair had nothing to compare with.
    pub(crate) uncompared_sectors: u64,
    pub(crate) checked_once: bool,
    /// What the latest repair took from parity where that may not fit.
    pub(crate) trusted: Places,
    pace: Pace,
    checkpoint_at: Instant,
}

impl Default for Sync {
    fn default() -> Self {
        Self {
            action: SyncAction::Idle,
            phase: Phase::Idle,
            cursor: 0,
            end: 0,
            units: BTreeMap::new(),
            targets: Vec::new(),
            several: false,
            copies: false,
            copied_sectors: 0,
            requested: None,
            paused: false,
            interrupted: None,
            left: None,
            left_behind: false,
            unmarkable: false,
            missed: Ranges::default(),
            resync_waits: None,
            retry_at: None,
            recovery_waits: None,
            unread: Places::default(),
            mismatch_sectors: 0,
            uncompared_sectors: 0,
            checked_once: false,
            trusted: Places::default(),
            pace: Pace::default(),
            checkpoint_at: Instant::default(),
        }
    }
}

impl Sync {
    /// Everything below is done.
    fn low_water(&self) -> u64 {
        if self.verifies() {
            return self.cursor;
        }
        self.units.keys().next().copied().unwrap_or(self.cursor).min(self.cursor)
    }

    /// Is it over but for what is read back?
    const fn verifies(&self) -> bool {
        matches!(self.phase, Phase::Verifying(_))
    }

    /// Where the first unit lies that such work is at.
    pub(super) fn first_at(&self, action: SyncAction) -> Option<u64> {
        let at = self.action == action && !self.verifies();
        self.units.keys().next().copied().filter(|_| at)
    }

    /// How far the recovery of this member has been asked for, if it is one of those under way.
    pub(super) fn recovered(&self, id: MemberId) -> Option<u64> {
        let recovering = !self.is_idle() && self.action == SyncAction::Recovery;
        (recovering && self.targets.contains(&id)).then_some(self.cursor)
    }

    /// Is this the only one that a recovery rebuilds, ever since it began? Of several, some may
    /// have been further.
    pub(super) fn rebuilds_only(&self, id: MemberId) -> bool {
        self.targets == [id] && !self.several
    }

    /// Parts asked for and not answered.
    pub(super) fn in_flight(&self) -> usize {
        self.units.values().sum()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// Is it under way, and not held?
    pub(crate) fn goes_on(&self) -> bool {
        !self.is_idle() && !self.paused && self.pace.next_at().is_some()
    }

    /// When the speed limit or the next checkpoint wants attention.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        if self.phase == Phase::Idle {
            return self.retry_at;
        }
        if self.phase != Phase::Running || self.paused {
            return None;
        }
        Some(self.pace.next_at().filter(|at| *at > now).unwrap_or(self.checkpoint_at))
    }

    /// Changes the limits that are given, in bytes per second and member.
    pub(crate) fn set_limits(&mut self, now: Instant, min: Option<u64>, max: Option<u64>) {
        self.pace.min_bytes_s = min.unwrap_or(self.pace.min_bytes_s);
        self.pace.max_bytes_s = max.unwrap_or(self.pace.max_bytes_s);
        self.pace.restart(now, self.low_water());
    }

    pub(crate) const fn is_paused(&self) -> bool {
        self.paused
    }

    pub(crate) fn pause(&mut self, now: Instant, paused: bool) {
        self.paused = paused;
        self.pace.restart(now, self.low_water());
    }

    pub(crate) fn status(&self, now: Instant) -> SyncStatus {
        let limits = SyncStatus {
            paused: self.paused,
            copied_sectors: self.copied_sectors,
            min_bytes_per_s: self.pace.min_bytes_s,
            max_bytes_per_s: Some(self.pace.max_bytes_s).filter(|max| *max != u64::MAX),
            ..SyncStatus::default()
        };
        if self.phase == Phase::Idle {
            return limits;
        }
        let done = self.low_water();
        let bytes_per_s = if self.paused { 0 } else { self.pace.bytes_per_s(now, done) };
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
}

impl Keeper {
    /// Starts, continues or ends background work.
    pub fn drive_sync(&mut self) {
        if self.read_only || !self.is_redundant() {
            return;
        }
        if self.failed {
            self.interrupt_sync("too many members are gone");
        } else if self.stop.asked.is_some() {
            self.interrupt_sync("the array is being stopped");
        } else if self.writes_over {
            self.interrupt_sync("a member is gone");
        }
        match self.sync.phase {
            Phase::Idle => self.choose_sync(),
            Phase::Running => self.pump_sync(),
            Phase::Finishing(ticket) if self.meta.is_done(ticket) => self.begin_to_verify(),
            Phase::Verifying(next) => self.pump_verify(next),
            Phase::TakingOver(ticket) if self.meta.is_done(ticket) => self.taken_over(),
            Phase::Finishing(_) | Phase::TakingOver(_) => {}
        }
    }

    fn choose_sync(&mut self) {
        if self.sync.retry_at.take_if(|at| *at <= self.now).is_some() {
            self.retry_sync();
        }
        if self.failed || self.writes_over || self.stop.asked.is_some() {
            return;
        }
        self.assign_spares();
        let targets = self.first_to_rebuild();
        if self.clean.resynced != MAX_SECTOR {
            if self.can_resync() && self.sync.resync_waits.is_none() {
                let from = self.clean.resynced;
                self.begin_sync(SyncAction::Resync, from, self.space.sync_sectors());
                return;
            }
            // Nothing redundant is left to bring in line. Members being rebuilt are brought in line
            // when they are: below their offset they may differ, too.
            let given_up = self.vouched || !self.rules.keeps_torn;
            if targets.is_empty() && !self.can_resync() && given_up {
                self.all_resynced();
                self.wish_superblock(true);
            }
            if !self.can_resync() {
                self.write_off();
            }
            self.end_if_nothing_waits();
        }
        let from = targets.iter().map(|(_, offset)| *offset).min();
        if let Some(from) = from.filter(|_| self.sync.recovery_waits.is_none()) {
            self.begin_sync(SyncAction::Recovery, from, self.space.member_sectors());
        } else if self.copy_is_due() {
            self.begin_copy();
        } else if let Some(action) = self.sync.requested.take() {
            self.sync.mismatch_sectors = 0;
            self.sync.uncompared_sectors = 0;
            self.sync.checked_once = true;
            if action == SyncAction::Repair {
                self.sync.trusted = Places::default();
            }
            self.begin_sync(action, 0, self.space.sync_sectors());
        }
    }

    fn can_resync(&self) -> bool {
        match self.space.redundancy() {
            Redundancy::None => false,
            Redundancy::Copies => true,
            Redundancy::Parity(parities) => u32::from(self.members.degraded()) < parities,
        }
    }

    fn begin_sync(&mut self, action: SyncAction, from: u64, end: u64) {
        let targets = self.first_to_rebuild().into_iter().map(|(id, _)| id).collect();
        self.sync.copies = false;
        self.begin_with(action, targets, from, end);
    }

    fn begin_with(&mut self, action: SyncAction, targets: Vec<MemberId>, from: u64, end: u64) {
        self.sync.action = action;
        self.sync.several = targets.len() > 1;
        self.sync.targets = targets;
        self.sync.phase = Phase::Running;
        self.sync.cursor = from;
        self.sync.end = end;
        self.sync.interrupted = None;
        self.sync.missed = Ranges::default();
        if action == SyncAction::Recovery {
            self.sync.copied_sectors = 0;
        }
        self.sync.unread = Places::default();
        self.sync.pace.restart(self.now, from);
        self.sync.checkpoint_at = self.now.plus_millis(CHECKPOINT_MS);
        self.notify(ArrayEvent::SyncStarted(action));
        self.pump_sync();
    }

    /// Begins a pass over the member that is copied.
    fn begin_copy(&mut self) {
        let end = self.space.member_sectors();
        self.sync.copies = true;
        self.begin_with(SyncAction::Recovery, Vec::new(), 0, end);
    }

    /// What the copy was for is no more.
    pub(in crate::keeper) fn interrupt_copying(&mut self, reason: Cow<'static, str>) {
        if self.sync.copies && !self.sync.is_idle() {
            self.interrupt_sync(reason);
        }
    }

    /// The members to be rebuilt now, and from where: those that lack only what is marked go before
    /// those that lack everything, so that where both lack something is short of one soon.
    fn first_to_rebuild(&self) -> Vec<(MemberId, u64)> {
        let mut targets = self.recovery_targets();
        let marked = |&(id, _): &(MemberId, u64)| {
            let state = self.members.get(id).map(|member| member.state);
            matches!(state, Some(State::Rebuilding { marked_below: u64::MAX, .. }))
        };
        if targets.iter().any(marked) {
            targets.retain(marked);
        }
        targets
    }

    /// Members being rebuilt, and from where.
    fn recovery_targets(&self) -> Vec<(MemberId, u64)> {
        self.members
            .iter()
            .filter_map(|(id, member)| match member.state {
                State::Rebuilding { offset, .. } => Some((id, offset)),
                _ => None,
            })
            .collect()
    }

    /// Gives spares to roles nobody holds, and to members that want a replacement.
    fn assign_spares(&mut self) {
        if self.rules.lane_takes_spares {
            return;
        }
        loop {
            let spare = self.members.iter().find(|(_, m)| m.state == State::Spare);
            let Some(spare) = spare.map(|(id, _)| id) else { return };
            let empty = self.members.roles().find(|(_, entry)| entry.holder.is_none());
            let wanting = self.members.roles().find(|(_, entry)| {
                entry.beside.is_none()
                    && entry
                        .holder
                        .and_then(|id| self.members.get(id))
                        .is_some_and(|m| m.want_replacement)
            });
            let Some((role, _)) = empty.or(wanting) else { return };
            let replacement = empty.is_none();
            let state = State::Rebuilding { role, offset: 0, replacement, marked_below: 0 };
            if let Some(member) = self.members.get_mut(spare) {
                member.superblock.recovery_offset = 0;
            }
            self.members.set_state(spare, state);
            self.wish_whole_bitmap();
            self.wish_superblock(false);
        }
    }

    /// Ends background work before its end: why.
    fn interrupt_sync(&mut self, reason: impl Into<Cow<'static, str>>) {
        let running = self.sync.phase == Phase::Running || self.sync.verifies();
        if running && self.sync.interrupted.is_none() {
            self.sync.interrupted = Some(reason.into());
        }
    }

    /// Ends a check or repair before its end, as md's `idle` does.
    pub(crate) fn stop_scrub(&mut self, reason: &'static str) {
        self.sync.requested = None;
        if matches!(self.sync.action, SyncAction::Check | SyncAction::Repair) {
            self.interrupt_sync(reason);
        }
    }

    /// An array that this one is part of is checked, and nothing of this one can be.
    pub(crate) fn skip_scrub(&mut self) {
        self.sync.mismatch_sectors = 0;
        self.sync.uncompared_sectors = self.space.array_sectors();
        self.sync.checked_once = true;
    }

    pub(crate) const fn request_scrub(&mut self, repair: bool) {
        self.sync.requested = Some(if repair { SyncAction::Repair } else { SyncAction::Check });
    }

    /// Something changed: what did not work may work now.
    pub(crate) fn retry_sync(&mut self) {
        self.sync.resync_waits = None;
        self.sync.recovery_waits = None;
        self.sync.unmarkable = false;
        // It goes on with the others where it was.
        let first = self.first_to_rebuild();
        let begun = |(id, _): &(MemberId, u64)| self.sync.targets.contains(id);
        if self.sync.action == SyncAction::Recovery && !first.is_empty() && !first.iter().any(begun)
        {
            self.interrupt_sync("a member that lacks less goes first");
        }
    }

    /// Why background work that is due does not go on.
    pub(crate) fn held_up(&self) -> Option<String> {
        let resync = self.sync.resync_waits.as_ref().map(|why| match &self.sync.left {
            Some(left) => format!("{} sectors are not in sync: {why}", left.sectors()),
            None => format!("the resync waits: {why}"),
        });
        let recovery = self.sync.recovery_waits.clone();
        recovery.or(resync).filter(|_| self.sync.is_idle())
    }

    /// A member is gone: work for or with it starts over with those that are left. A check or
    /// repair ends, as md's does: recovery onto a spare must not wait for it.
    pub(crate) fn sync_member_lost(&mut self, id: MemberId, role: Option<u16>) {
        self.retry_sync();
        if self.is_copied(id) {
            self.end_copying("the member that is copied failed");
        }
        self.interrupt_copying("a member failed".into());
        if self.rules.marks_lost && self.sync.action == SyncAction::Resync && !self.can_resync() {
            self.interrupt_sync("a member failed");
        }
        // Its id may come to mean another device, which this recovery has not begun with.
        self.sync.targets.retain(|target| *target != id);
        if role.is_some() {
            self.stop_scrub("a member failed");
        }
        if self.sync.action == SyncAction::Recovery
            && !self.sync.targets.iter().any(|id| self.members.live(*id))
        {
            self.interrupt_sync("the member being rebuilt failed");
        }
    }

    /// Issues units while the window and the speed limit allow.
    fn pump_sync(&mut self) {
        self.sync.pace.mark(self.now, self.sync.low_water());
        let mut skipped = 0;
        while self.sync.interrupted.is_none()
            && !self.sync.paused
            && self.sync.cursor < self.sync.end
            && self.sync.units.len() < self.rules.units_at_once
            && self.sync.pace.next_at().is_some_and(|at| at <= self.now)
        {
            if self.issue_unit() {
                self.charge_speed();
            } else {
                skipped += 1;
                if skipped > SKIP && !self.sync.units.is_empty() {
                    break;
                }
            }
        }
        let at_end = self.sync.cursor >= self.sync.end || self.sync.interrupted.is_some();
        if at_end && self.sync.units.is_empty() {
            if self.sync.copies && self.sync.interrupted.is_none() && self.goes_round() {
                self.sync.cursor = 0;
                self.sync.pace.restart(self.now, 0);
                return;
            }
            self.note_progress();
            let ticket = self.wish_superblock(true);
            self.sync.phase = Phase::Finishing(ticket);
        } else if self.now >= self.sync.checkpoint_at {
            self.sync.checkpoint_at = self.now.plus_millis(CHECKPOINT_MS);
            self.note_progress();
            self.wish_superblock(true);
        }
    }
}
