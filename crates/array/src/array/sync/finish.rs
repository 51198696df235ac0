//! The end of background work: members rebuilt take their roles over, the array is in sync.

use super::Phase;
use crate::array::Array;
use crate::array::members::State;
use crate::events::{ArrayEvent, SyncAction};
use crate::format::superblock::MAX_SECTOR;

impl Array {
    /// What was done is durable: members rebuilt to the end hold their roles now.
    pub(super) fn take_over(&mut self) {
        let complete = !self.sync.interrupted && !self.failed;
        if complete && self.sync.action == SyncAction::Recovery && self.activate_recovered() {
            self.sync.phase = Phase::TakingOver(self.wish_superblock(true));
        } else {
            self.sync_finished();
        }
    }

    /// Members rebuilt to the end hold their roles now; those they replace are leaving. Are there
    /// any?
    fn activate_recovered(&mut self) -> bool {
        let end = self.geometry.member_sectors();
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
            }
        }
        self.sync_finished();
    }

    /// Members became in sync, the array clean.
    fn sync_finished(&mut self) {
        let action = std::mem::take(&mut self.sync.action);
        self.sync.phase = Phase::Idle;
        let complete = !self.sync.interrupted && !self.failed;
        if !complete && matches!(action, SyncAction::Check | SyncAction::Repair) {
            // What was not looked at is not known to be right.
            self.sync.checked_once = false;
        }
        if complete {
            if action == SyncAction::Resync {
                self.resynced = MAX_SECTOR;
                self.durable_resynced = MAX_SECTOR;
            }
            let in_step = match action {
                SyncAction::Resync | SyncAction::Recovery => self.resynced == MAX_SECTOR,
                _ => false,
            };
            if in_step
                && self.members.degraded() == 0
                && let Some(intent) = &mut self.intent
            {
                intent.resynced();
            }
            self.wish_superblock(true);
        }
        self.notify(ArrayEvent::SyncFinished { action, complete });
    }
}
