//! Contents of superblocks: that of each member, made from its own and from the state of the array.

use super::core::Core;
use super::members::{Member, State};
use crate::assemble::Had;
use crate::format::striped::to_level_4;
use crate::format::superblock::{DevRole, MAX_SECTOR, feature, time_code, time_parts};
use crate::format::{Superblock, Version};

/// Features of the whole array that stay as they are.
const KEPT: u32 = feature::RAID0_LAYOUT | feature::LOGS | feature::RESHAPE | feature::NODE_MOVE;

impl Core {
    /// The superblock of one member as it is to be written now.
    pub(super) fn superblock_of(&self, member: &Member, clean: bool) -> Superblock {
        let metadata = &self.metadata;
        let array = &metadata.superblock;
        let mut image = member.superblock.with_array_of(array);
        image.utime = metadata.wall_clock(self.now);
        if array.has(feature::RESHAPE_ACTIVE) {
            // By its microseconds it is known not to be md's: see `assemble/reshape/goes_on.rs`.
            let (seconds, micros) = time_parts(image.utime);
            image.utime = time_code(seconds, micros.max(1));
        }
        image.resync_offset = metadata.resync_offset(clean);
        image.roles = self.role_table();
        image.feature_map = array.feature_map & KEPT;
        // By what is written here: that nothing waits for a resync may still be on its way.
        let in_line = image.resync_offset == MAX_SECTOR;
        image.feature_map |= metadata.journals.features(clean, in_line);
        if metadata.intent.is_some() {
            image.feature_map |= feature::BITMAP_OFFSET;
        }
        if !member.bad_blocks.is_empty() {
            image.feature_map |= feature::BAD_BLOCKS;
        }
        match member.state {
            State::Rebuilding { .. } if image.version == Version::V0_90 => {}
            State::Rebuilding { replacement, had, .. } => {
                image.feature_map |= feature::RECOVERY_OFFSET;
                if replacement {
                    image.feature_map |= feature::REPLACEMENT;
                }
                if had == Had::All {
                    image.feature_map |= feature::RECOVERY_BITMAP;
                }
            }
            State::Journal => {
                let tail = metadata.journal.and_then(|journal| journal.durable_tail);
                image.recovery_offset = tail.unwrap_or(0);
            }
            _ => image.recovery_offset = 0,
        }
        to_level_4(image)
    }

    /// The superblock of a member that became in sync, as long as nobody is to hear of a loss: with
    /// the event count that all have, who is lost keeps his role and is not stale. If he is found
    /// without this member, and goes on, this one says nothing against that.
    pub(super) fn before_losses(&self, image: &Superblock) -> Superblock {
        let mut image = Superblock { events: image.events - 1, ..image.clone() };
        for (_, lost) in self.members.iter().filter(|(_, member)| member.loss_untold) {
            if let State::Faulty { role: Some(role) } = lost.state
                && self.members.role(role).holder.is_none()
            {
                let number = match image.version {
                    Version::V0_90 => role.index(),
                    _ => lost.superblock.dev_number as usize,
                };
                image.roles[number] = DevRole::Active(role);
            }
        }
        image
    }

    /// Returns the entry of each device number for the superblocks.
    fn role_table(&self) -> Vec<DevRole> {
        let made_faulty = &self.metadata.made_faulty;
        let numbers = self.members.iter().map(|(_, m)| m.superblock.dev_number);
        let numbers = numbers.chain(made_faulty.iter().copied());
        let longest = numbers.map(|number| number as usize + 1).max();
        let len = longest.unwrap_or(0).max(self.metadata.superblock.roles.len());
        let mut roles = vec![DevRole::Spare; len];
        let old = self.metadata.superblock.version == Version::V0_90;
        if old {
            roles.truncate(longest.unwrap_or(0));
        }
        let away = if self.rules.faulty_stay_out { DevRole::Spare } else { DevRole::Faulty };
        for (_, member) in self.members.iter() {
            roles[member.superblock.dev_number as usize] = match member.state {
                State::InSync { role } => DevRole::Active(role),
                // 0.90 cannot say how far it is: it is a spare as long as it is rebuilt.
                State::Rebuilding { .. } if old => DevRole::Spare,
                State::Rebuilding { role, .. } => DevRole::Active(role),
                State::Spare => DevRole::Spare,
                State::Journal if self.metadata.has_journal() => DevRole::Journal,
                State::Journal => DevRole::Spare,
                State::Retiring { .. } | State::Faulty { .. } => away,
            };
        }
        for &number in made_faulty.iter().filter(|number| !self.members.is_live_number(**number)) {
            roles[number as usize] = DevRole::Faulty;
        }
        roles
    }
}
