//! The end of background work: members rebuilt take their roles over, the array is in sync.

use super::{Ranges, Sync, TORN, WorkPhase};
use crate::events::{ArrayEvent, SyncAction, SyncEnd};
use crate::format::superblock::MAX_SECTOR;
use crate::keeper::LaneCommand;
use crate::keeper::core::Core;
use crate::keeper::members::State;

impl Sync {
    /// Gives members rebuilt to the end their roles: all that was written to them is durable.
    pub(super) fn take_over(&mut self, core: &mut Core) {
        let complete = self.interrupted.is_none() && !core.service.failed;
        if complete && self.action == SyncAction::Recovery && Self::activate_recovered(core) {
            self.phase = WorkPhase::TakingOver(core.metadata.queue_superblock(true));
        } else {
            self.finish(core);
        }
    }

    /// Makes members rebuilt to the end the holders of their roles; those they replace retire.
    /// Returns whether any were replaced.
    fn activate_recovered(core: &mut Core) -> bool {
        let end = core.space.member_sectors();
        let mut replaced = false;
        for (id, offset) in core.members.rebuilding() {
            let Some(member) = core.members.get(id) else { continue };
            let State::Rebuilding { role, replacement, .. } = member.state else { continue };
            if offset < end {
                continue;
            }
            if replacement && let Some(old) = core.members.role(role).holder {
                core.members.set_state(old, State::Retiring { role });
                replaced = true;
            }
            core.members.set_state(id, State::InSync { role });
            if let Some(member) = core.members.get_mut(id) {
                member.arriving = true;
            }
            core.out.notify(ArrayEvent::MemberActive(id));
        }
        replaced
    }

    /// The members know who has taken over: those replaced get no more writes.
    pub(super) fn taken_over(&mut self, core: &mut Core) {
        let members: Vec<_> = core.members.iter().map(|(id, m)| (id, m.state)).collect();
        for (id, state) in members {
            if let State::Retiring { role } = state {
                core.members.set_state(id, State::Faulty { role: Some(role) });
                core.out.push(LaneCommand::GiveUp(id));
            }
        }
        self.finish(core);
    }

    /// Members became in sync, the array clean.
    pub(super) fn finish(&mut self, core: &mut Core) {
        let action = std::mem::take(&mut self.action);
        self.phase = WorkPhase::Idle;
        if core.service.failed && self.interrupted.is_none() {
            self.interrupted = Some("too many members are gone".into());
        }
        let scrub = matches!(action, SyncAction::Check | SyncAction::Repair);
        let mismatch_sectors = if scrub { self.scrub.mismatch_sectors } else { 0 };
        let complete = self.interrupted.is_none();
        let end = match self.interrupted.take() {
            Some(reason) => SyncEnd::Interrupted { reason },
            None if self.unread.sectors > 0 => SyncEnd::Unread { sectors: self.unread.sectors },
            None if action == SyncAction::Resync && !self.unsynced.missed.is_empty() => {
                SyncEnd::Interrupted { reason: TORN.into() }
            }
            None => SyncEnd::Complete,
        };
        match action {
            SyncAction::Resync if complete => self.resync_ended(core),
            // With what a member holds that is in sync now, more may come back.
            SyncAction::Recovery if complete => self.retry(&core.members),
            // What was not looked at is not known to be right.
            SyncAction::Check | SyncAction::Repair => self.scrub.checked_once = complete,
            _ => {}
        }
        // A repair, too, may have done what a resync had left.
        if !core.service.failed && self.unsynced.left.as_ref().is_some_and(Ranges::is_empty) {
            self.unsynced.all_resynced(core);
            core.metadata.queue_superblock(true);
        }
        if action == SyncAction::Repair && self.scrub.trusted.sectors > 0 {
            core.out.notify(ArrayEvent::ParityTrusted { sectors: self.scrub.trusted.sectors });
        }
        if complete {
            if self.copies
                && let Some(copying) = &mut self.copying
            {
                copying.end_passes();
            }
            if core.metadata.clean.resynced == MAX_SECTOR && !scrub {
                self.unsynced.note_bits_in_line(core);
            }
            core.metadata.queue_superblock(true);
        }
        core.out.notify(ArrayEvent::SyncFinished { action, mismatch_sectors, end });
    }

    /// Everything is in line but for what the resync could not read.
    fn resync_ended(&mut self, core: &mut Core) {
        let left = std::mem::take(&mut self.unsynced.missed);
        core.metadata.clean.resynced = left.first().unwrap_or(MAX_SECTOR);
        self.unsynced.resync_waits = None;
        if self.unread.sectors > 0 {
            self.unsynced.resync_waits = Some("a resync could not read what they need".into());
        } else if !left.is_empty() {
            self.wait_for_room(core.now, TORN);
        }
        self.unsynced.left = Some(left);
        self.unsynced.left_behind = true;
        self.unsynced.note_bits_in_line(core);
        // What nobody can tell a member that is there, no other resync brings in line either.
        let known_lost = core.members.degraded() > 0 || !core.rules.resync_vouches;
        if self.unread.sectors > 0 && known_lost {
            self.unsynced.write_off(core);
        }
    }
}
