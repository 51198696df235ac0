//! Background work: resync, recovery, check and repair. A cursor moves through sync space (device
//! sectors; array sectors for a raid10 resync or check) with a few units in flight.
//!
//! Finished work counts only after a flush: superblocks say how far recovery has come as of the
//! last flush, and a member is called in sync in a superblock only after one.

mod copying;
mod finish;
pub(super) mod kept;
mod moving;
mod ranges;
mod scrub;
mod speed;
mod state;
mod units;
mod unread;
mod unsynced;
mod verify;
pub(super) mod window;

use std::borrow::Cow;

use super::Redundancy;
use super::core::{Core, Service};
use super::members::{Members, State};
use crate::assemble::Had;
use crate::events::{ArrayEvent, SyncAction};
use crate::format::superblock::MAX_SECTOR;
use crate::refusal::Refusal;
use crate::{MemberId, Role};
pub(super) use copying::Copying;
pub(super) use moving::Moving;
pub(crate) use ranges::Ranges;
pub(super) use state::Sync;
use state::WorkPhase;
use unread::UnreadPlaces;

/// Until a write is tried again for which members had no room.
const FULL_MS: u64 = 60_000;
/// The reason why something waits for a resync that was in sync.
const TORN: &str = "a write found no room on a member";
/// Units that need nothing and may be passed over in one go.
const SKIP: usize = 4096;
/// Time between two updates that put progress on the members.
const CHECKPOINT_MS: u64 = 10_000;
/// Foreground I/O this recent makes background work fall back to the minimum speed.
const BUSY_MS: u64 = 100;

impl Sync {
    /// Starts, continues or ends background work.
    pub(in crate::keeper) fn drive(&mut self, core: &mut Core) {
        if core.service.read_only || !core.service.redundant {
            return;
        }
        if core.service.failed {
            self.interrupt("too many members are gone");
        } else if core.service.stopping {
            self.interrupt("the array is being stopped");
        } else if core.service.writes_over {
            self.interrupt("a member is gone");
        }
        let waits = |moving: &Moving| moving.moves_saved() && moving.waits.is_some();
        if core.service.stopping && self.moving.as_ref().is_some_and(waits) {
            // Requests wait where neither map holds.
            core.service.writes_over = true;
        }
        match self.phase {
            WorkPhase::Idle => self.choose(core),
            WorkPhase::Running => self.go_on(core),
            WorkPhase::Finishing(ticket) if core.metadata.is_done(ticket) => {
                self.begin_to_verify(core)
            }
            WorkPhase::Verifying(next) => self.pump_verify(core, next),
            WorkPhase::TakingOver(ticket) if core.metadata.is_done(ticket) => self.taken_over(core),
            WorkPhase::Finishing(_) | WorkPhase::TakingOver(_) => {}
        }
    }

    fn choose(&mut self, core: &mut Core) {
        if self.retry_at.take_if(|at| *at <= core.now).is_some() {
            self.retry(&core.members);
        }
        let Service { failed, writes_over, stopping, growing, .. } = core.service;
        if failed || writes_over || stopping || growing {
            return;
        }
        if let Some(moving) = &self.moving {
            // Everything else waits until each row is where it is to be.
            let rests = moving.is_over() || moving.turns && moving.can_turn();
            if moving.waits.is_none() && !rests {
                // All of a window that could not be moved from where it is saved moves again.
                let (first, _) = moving.span();
                let first = if crate::broken("spill-again") { moving.front } else { first };
                let end = moving.end;
                self.begin(core, SyncAction::Reshape, first, end);
            }
            return;
        }
        self.assign_spares(core);
        self.copies = false;
        let targets = core.members.first_to_rebuild();
        if core.metadata.clean.resynced != MAX_SECTOR {
            if core.members.degraded() > 0 && !core.rules.resync_vouches {
                // Before anything is written anew that a later owner would have to doubt.
                self.unsynced.write_off(core);
            }
            if core.metadata.has_to_resync()
                && can_resync(core)
                && self.unsynced.resync_waits.is_none()
            {
                let from = core.metadata.clean.resynced;
                self.begin(core, SyncAction::Resync, from, core.space.sync_sectors());
                return;
            }
            // Nothing redundant is left to bring in line. Members being rebuilt are brought in line
            // when they are: below their offset they may differ, too.
            if targets.is_empty() && !can_resync(core) && self.unsynced.vouched {
                self.unsynced.all_resynced(core);
                core.metadata.queue_superblock(true);
            }
            if !can_resync(core) {
                self.unsynced.write_off(core);
            }
            self.unsynced.end_if_nothing_waits(core);
        }
        let from = targets.iter().map(|(_, offset)| *offset).min();
        if let Some(from) = from
            && self.recovery_waits.is_none()
        {
            self.begin(core, SyncAction::Recovery, from, core.space.member_sectors());
        } else if self.copying.as_ref().is_some_and(|copying| copying.is_due(core)) {
            self.copies = true;
            self.begin(core, SyncAction::Recovery, 0, core.space.member_sectors());
        } else if let Some(action) = self.scrub.requested.take() {
            self.scrub.begin(action);
            self.begin(core, action, 0, core.space.sync_sectors());
        }
    }

    /// Begins with an action between these places; with `copies` it is a pass over the member that
    /// is copied.
    fn begin(&mut self, core: &mut Core, action: SyncAction, from: u64, end: u64) {
        self.action = action;
        self.targets.clear();
        if !self.copies {
            self.targets.extend(core.members.first_to_rebuild().into_iter().map(|(id, _)| id));
        }
        self.several = self.targets.len() > 1;
        self.phase = WorkPhase::Running;
        self.cursor = from;
        self.end = end;
        self.interrupted = None;
        self.unsynced.missed = Ranges::default();
        if action == SyncAction::Recovery {
            self.copied_sectors = 0;
        }
        self.unread = UnreadPlaces::default();
        self.speed.restart(core.now, self.low_water());
        self.checkpoint_at = core.now.plus_millis(CHECKPOINT_MS);
        core.out.notify(ArrayEvent::SyncStarted(action));
        self.go_on(core);
    }

    fn go_on(&mut self, core: &mut Core) {
        match self.action {
            SyncAction::Reshape => window::drive(self, core),
            _ => self.pump(core),
        }
    }

    /// Gives spares to roles nobody holds, and to members that want a replacement.
    fn assign_spares(&mut self, core: &mut Core) {
        if core.rules.lane_takes_spares {
            return;
        }
        while let Some(Assignment { spare, role, replacement }) = next_assignment(&core.members) {
            let state = State::Rebuilding { role, offset: 0, replacement, had: Had::NOTHING };
            if let Some(member) = core.members.get_mut(spare) {
                member.superblock.recovery_offset = 0;
            }
            core.members.set_state(spare, state);
            core.metadata.queue_whole_bitmap();
            core.metadata.queue_superblock(false);
        }
    }

    /// Interrupts the pass of a copy: it serves no purpose any more.
    fn interrupt_copying(&mut self, reason: Cow<'static, str>) {
        if self.copies && !self.is_idle() {
            self.interrupt(reason);
        }
    }

    /// Begins to copy a member: asks for units of [`Work::Copy`](crate::keeper::Work::Copy).
    ///
    /// # Errors
    /// The reason why it cannot be copied.
    pub(in crate::keeper) fn begin_copying(
        &mut self,
        core: &mut Core,
        old: MemberId,
    ) -> Result<(), Refusal> {
        let role = self.check_copying(core, old)?;
        self.copying = Some(Copying::begin(core, old, role));
        Ok(())
    }

    /// Checks that this member can be copied to another one while it serves. Returns its role.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub(in crate::keeper) fn check_copying(
        &self,
        core: &Core,
        old: MemberId,
    ) -> Result<Role, Refusal> {
        Copying::check(core, old, self.copying.is_some())
    }

    /// Ends the copy of a member, with a reason. The member stays what it is.
    pub(in crate::keeper) fn end_copying(&mut self, core: &mut Core, reason: Cow<'static, str>) {
        let Some(copying) = self.copying.take() else { return };
        copying.end(core);
        core.metadata.look_again();
        self.interrupt_copying(reason);
        // A pass that is about to be concluded says nothing of another copy that begins meanwhile.
        self.copies = false;
    }

    /// Ends the copy once it is durable. Returns the old member, which is to be made faulty, so
    /// that its role is free for the new one, which has nearly all of it. `None` when that cannot
    /// be now, and the copy goes on.
    pub(in crate::keeper) fn complete_copying(&mut self, core: &mut Core) -> Option<MemberId> {
        let copying = self.copying.take_if(|copying| copying.may_end(core))?;
        let old = copying.old;
        copying.end(core);
        Some(old)
    }

    /// Returns whether this member is being copied.
    pub(in crate::keeper) fn is_copied(&self, old: MemberId) -> bool {
        self.copying.as_ref().is_some_and(|copying| copying.old == old)
    }

    /// Ends a check or repair before its end, as md's `idle` does.
    pub(in crate::keeper) fn stop_scrub(&mut self, reason: &'static str) {
        self.scrub.requested = None;
        if matches!(self.action, SyncAction::Check | SyncAction::Repair) {
            self.interrupt(reason);
        }
    }

    /// Ends a recovery, since data are to move first: a member that it rebuilds is a spare then.
    pub(in crate::keeper) fn put_off(&mut self, core: &mut Core) {
        if !self.is_idle() {
            return self.interrupt("the array gets more members first");
        }
        for (id, _) in core.members.rebuilding() {
            core.members.change(id, |member| member.superblock.recovery_offset = 0);
            core.members.set_state(id, State::Spare);
        }
    }

    /// A member is gone: work for or with it starts over with those that are left. A check or
    /// repair ends, as md's does: recovery onto a spare must not wait for it.
    pub(in crate::keeper) fn member_lost(
        &mut self,
        core: &mut Core,
        id: MemberId,
        role: Option<Role>,
    ) {
        self.retry(&core.members);
        if self.is_copied(id) {
            self.end_copying(core, "the member that is copied failed".into());
        }
        self.interrupt_copying("a member failed".into());
        if self.action == SyncAction::Resync && !can_resync(core) {
            self.interrupt("a member failed");
        }
        // Its id may come to mean another device, which this recovery has not begun with.
        self.targets.retain(|target| *target != id);
        if role.is_some() {
            self.stop_scrub("a member failed");
        }
        if self.action == SyncAction::Recovery
            && !self.targets.iter().any(|id| core.members.live(*id))
        {
            self.interrupt("the member being rebuilt failed");
        }
    }

    /// Issues units while the limits allow.
    fn issue_units(&mut self, core: &mut Core) {
        self.speed.mark(core.now, self.low_water());
        let mut skipped = 0;
        while self.cursor < window::limit(self)
            && self.units.len() < core.rules.units_at_once
            && window::may_issue(self, core)
        {
            if self.issue_unit(core) {
                self.charge_speed(core);
            } else {
                skipped += 1;
                if skipped > SKIP && !self.units.is_empty() {
                    break;
                }
            }
        }
    }

    fn pump(&mut self, core: &mut Core) {
        self.issue_units(core);
        let at_end = self.cursor >= self.end || self.interrupted.is_some();
        if at_end && self.units.is_empty() {
            if self.copies
                && self.interrupted.is_none()
                && self.copying.as_mut().is_some_and(|copying| copying.goes_round(core))
            {
                self.cursor = 0;
                self.speed.restart(core.now, 0);
                return;
            }
            self.note_progress(core);
            let ticket = core.metadata.queue_superblock(true);
            self.phase = WorkPhase::Finishing(ticket);
        } else if core.now >= self.checkpoint_at {
            self.checkpoint_at = core.now.plus_millis(CHECKPOINT_MS);
            self.note_progress(core);
            core.metadata.queue_superblock(true);
        }
    }
}

/// The task of a spare.
struct Assignment {
    spare: MemberId,
    role: Role,
    /// The role has a holder, which serves until the spare has all of it.
    replacement: bool,
}

/// Roles that nobody holds come before members that want a replacement. A spare that was named for
/// one of those is taken for something else only where no other is left.
fn next_assignment(members: &Members) -> Option<Assignment> {
    let spares = || members.iter().filter(|(_, m)| m.state == State::Spare).map(|(id, _)| id);
    let is_named = |spare| members.iter().any(|(_, m)| m.wanted_spare == Some(spare));
    let unnamed = spares().find(|spare| !is_named(*spare));
    if let Some((role, _)) = members.roles().find(|(_, entry)| entry.holder.is_none()) {
        let spare = unnamed.or_else(|| spares().next())?;
        return Some(Assignment { spare, role, replacement: false });
    }
    let mut wanting = members.roles().filter(|(_, entry)| entry.beside.is_none());
    wanting.find_map(|(role, entry)| {
        let member = members.get(entry.holder?).filter(|member| member.want_replacement)?;
        let spare = match member.wanted_spare {
            Some(named) => spares().find(|spare| *spare == named)?,
            None => unnamed?,
        };
        Some(Assignment { spare, role, replacement: true })
    })
}

/// Returns whether there are redundant parts to bring in line.
fn can_resync(core: &Core) -> bool {
    match core.space.redundancy() {
        Redundancy::None => false,
        Redundancy::Copies => true,
        Redundancy::Parity(parities) => u32::from(core.members.degraded()) < parities,
    }
}
