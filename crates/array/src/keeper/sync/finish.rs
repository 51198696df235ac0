//! The end of background work: members rebuilt take their roles over, the array is in sync.

use super::{Phase, Ranges, TORN};
use crate::events::{ArrayEvent, SyncAction, SyncEnd};
use crate::format::superblock::MAX_SECTOR;
use crate::keeper::members::State;
use crate::keeper::{Keeper, LaneCommand};

impl Keeper {
    /// What was done is durable: members rebuilt to the end hold their roles now.
    pub(super) fn take_over(&mut self) {
        let complete = self.sync.interrupted.is_none() && !self.failed;
        if complete && self.sync.action == SyncAction::Recovery && self.activate_recovered() {
            self.sync.phase = Phase::TakingOver(self.wish_superblock(true));
        } else {
            self.sync_finished();
        }
    }

    /// Members rebuilt to the end hold their roles now; those they replace are leaving. Are there
    /// any?
    fn activate_recovered(&mut self) -> bool {
        let end = self.space.member_sectors();
        let mut replaced = false;
        for (id, offset) in self.recovery_targets() {
            let Some(member) = self.members.get(id) else { continue };
            let State::Rebuilding { role, replacement, .. } = member.state else { continue };
            if offset < end {
                continue;
            }
            if replacement && let Some(old) = self.members.role(role).holder {
                self.members.set_state(old, State::Leaving { role });
                replaced = true;
            }
            self.members.set_state(id, State::InSync { role });
            if let Some(member) = self.members.get_mut(id) {
                member.arriving = true;
            }
            self.notify(ArrayEvent::MemberActive(id));
        }
        replaced
    }

    /// The members know who has taken over: those replaced get no more writes.
    pub(super) fn taken_over(&mut self) {
        let members: Vec<_> = self.members.iter().map(|(id, m)| (id, m.state)).collect();
        for (id, state) in members {
            if let State::Leaving { role } = state {
                self.members.set_state(id, State::Faulty { role: Some(role) });
                self.out.push_back(LaneCommand::GiveUp(id));
            }
        }
        self.sync_finished();
    }

    /// Members became in sync, the array clean.
    fn sync_finished(&mut self) {
        let action = std::mem::take(&mut self.sync.action);
        self.sync.phase = Phase::Idle;
        if self.failed && self.sync.interrupted.is_none() {
            self.sync.interrupted = Some("too many members are gone".into());
        }
        let scrub = matches!(action, SyncAction::Check | SyncAction::Repair);
        let mismatch_sectors = if scrub { self.sync.mismatch_sectors } else { 0 };
        let complete = self.sync.interrupted.is_none();
        let end = match self.sync.interrupted.take() {
            Some(reason) => SyncEnd::Interrupted { reason },
            None if self.sync.unread.sectors > 0 => {
                SyncEnd::Unread { sectors: self.sync.unread.sectors }
            }
            None if action == SyncAction::Resync && !self.sync.missed.is_empty() => {
                SyncEnd::Interrupted { reason: TORN.into() }
            }
            None => SyncEnd::Complete,
        };
        match action {
            SyncAction::Resync if complete => self.resync_ended(),
            // What was not looked at is not known to be right.
            SyncAction::Check | SyncAction::Repair => self.sync.checked_once = complete,
            _ => {}
        }
        // A repair, too, may have done what a resync had left.
        if !self.failed && self.sync.left.as_ref().is_some_and(Ranges::is_empty) {
            self.all_resynced();
            self.wish_superblock(true);
        }
        if action == SyncAction::Repair && self.sync.trusted.sectors > 0 {
            self.notify(ArrayEvent::ParityTrusted { sectors: self.sync.trusted.sectors });
        }
        if complete {
            if self.sync.copies {
                self.passes_are_over();
            }
            if self.clean.resynced == MAX_SECTOR && !scrub {
                self.note_bits_in_line();
            }
            self.wish_superblock(true);
        }
        self.notify(ArrayEvent::SyncFinished { action, mismatch_sectors, end });
    }

    /// Everything is in line but for what the resync could not read.
    fn resync_ended(&mut self) {
        let left = std::mem::take(&mut self.sync.missed);
        self.clean.resynced = left.first().unwrap_or(MAX_SECTOR);
        self.sync.resync_waits = None;
        if self.sync.unread.sectors > 0 {
            self.sync.resync_waits = Some("a resync could not read what they need".into());
        } else if !left.is_empty() {
            self.wait_for_room(TORN);
        }
        self.sync.left = Some(left);
        self.sync.left_behind = true;
        self.note_bits_in_line();
        if self.sync.unread.sectors > 0 && self.members.degraded() > 0 {
            self.write_off();
        }
    }

    /// What was under way at an unclean stop has been brought to its end: nothing waits for a
    /// resync, and the superblocks may say so after the next flush.
    pub fn nothing_to_resync(&mut self) {
        if self.has_to_resync() {
            self.all_resynced();
        }
    }

    /// No part of the array waits for a resync any more.
    pub(super) fn all_resynced(&mut self) {
        self.nothing_waits();
        self.clean.durable_resynced = MAX_SECTOR;
    }

    /// The same, as far as memory goes.
    pub(super) fn nothing_waits(&mut self) {
        self.sync.left = None;
        self.sync.left_behind = false;
        self.sync.resync_waits = None;
        self.vouched = false;
        self.clean.resynced = MAX_SECTOR;
        self.note_bits_in_line();
    }

    /// Bits of the bitmap are needed for what is not in line alone, once no role is missing.
    fn note_bits_in_line(&mut self) {
        if self.members.degraded() == 0
            && let Some(intent) = &mut self.intent
        {
            let left = self.sync.left.as_ref();
            intent.resynced(|start, end| left.is_some_and(|left| left.overlaps(start, end)));
        }
    }
}
