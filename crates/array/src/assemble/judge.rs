//! Judgement of each candidate, measured against the newest superblock.

use super::check::{EVENT_MARGIN, check_shape, missed_a_shape, unreadable};
use super::{Candidate, Verdict};
use crate::format::superblock::{MAX_DEV, feature};
use crate::format::suspended::is_that_journal;
use crate::format::{DevRole, Superblock};

/// The candidates, and the superblock that they are measured against.
pub(super) struct Judge<'a> {
    pub(super) candidates: &'a [Candidate],
    /// The newest superblock.
    pub(super) newest: &'a Superblock,
    /// The device that has it.
    pub(super) device: &'a str,
}

impl Judge<'_> {
    /// Returns the verdict on a candidate, seen for itself.
    pub(super) fn judge(&self, candidate: &Candidate) -> Verdict {
        let superblock = match &candidate.superblock {
            Ok(superblock) => superblock,
            Err(error) => return unreadable(error.to_string()),
        };
        if !same_array(superblock, self.newest) {
            return Verdict::Foreign { uuid: superblock.uuid_text(), name: superblock.name() };
        }
        if let Err(unsupported) = candidate.supported() {
            return Verdict::Unsupported(unsupported);
        }
        let verdict = self.standing(superblock);
        if !verdict.attached() {
            return verdict;
        }
        let shape = match check_shape(superblock, self.newest) {
            Err(_) if missed_a_shape(superblock, self.newest) => Ok(()),
            Err(_) if is_that_journal(superblock, self.newest) => Ok(()),
            checked => checked,
        };
        let checked = shape.and_then(|()| match &candidate.bad_blocks {
            Ok(_) => Ok(()),
            Err(error) => Err(unreadable(error.to_string())),
        });
        checked.err().unwrap_or(verdict)
    }

    /// Returns the verdict by the superblock alone, if all it says is possible.
    fn standing(&self, superblock: &Superblock) -> Verdict {
        let number = superblock.dev_number;
        if number >= MAX_DEV {
            return unreadable(format!("its device number is {number}, not below {MAX_DEV}"));
        }
        let missed = missed_a_shape(superblock, self.newest);
        let role = match superblock.role() {
            // Its bytes stayed where they are, and the role of the new shape is theirs.
            DevRole::Active(_) if missed => self.newest.role_of(number),
            role => role,
        };
        let role = match role {
            DevRole::Faulty => return Verdict::Faulty,
            // It was left behind, and has its place again afterwards.
            DevRole::Journal if is_that_journal(superblock, self.newest) => {
                return Verdict::Journal;
            }
            DevRole::Journal
                if superblock.events.saturating_add(EVENT_MARGIN) < self.newest.events =>
            {
                return self.stale(superblock);
            }
            // It has failed, or was taken away.
            DevRole::Journal if self.newest.role_of(number) != DevRole::Journal => {
                return self.stale(superblock);
            }
            DevRole::Journal => return Verdict::Journal,
            DevRole::Spare => return Verdict::Spare,
            DevRole::Active(role) => role,
        };
        let raid_disks = self.newest.raid_disks;
        if u32::from(role.0) >= raid_disks {
            return unreadable(format!("its role is {role}, the array has {raid_disks} members"));
        }
        if self.split(superblock) {
            let events = superblock.events;
            return Verdict::Split { other: self.device.to_owned(), events };
        }
        let listed = self.newest.role_of(superblock.dev_number) == DevRole::Active(role);
        if !listed || superblock.events.saturating_add(EVENT_MARGIN) < self.newest.events {
            return self.stale(superblock);
        }
        // Rebuilt to the end is in sync: the power went off before that was written.
        let recovers = superblock.has(feature::RECOVERY_OFFSET);
        let offset_sectors = if recovers { superblock.recovery_offset } else { u64::MAX };
        let offset_sectors = offset_sectors.min(superblock.size_sectors);
        if superblock.has(feature::REPLACEMENT) {
            Verdict::Replacement { role, offset_sectors }
        } else if offset_sectors < superblock.size_sectors {
            Verdict::Rebuilding { role, offset_sectors }
        } else {
            Verdict::Active { role }
        }
    }

    /// With the same event count, an active member must know the newest one. Where that does not
    /// know it, it went on alone from a moment in which only this one heard of the last update;
    /// unless it went on nowhere.
    fn split(&self, superblock: &Superblock) -> bool {
        superblock.events == self.newest.events
            && matches!(self.newest.role(), DevRole::Active(_))
            && !knows(superblock, self.newest)
            && went_on(superblock, self.candidates)
    }

    fn stale(&self, superblock: &Superblock) -> Verdict {
        let events = superblock.events;
        let newest = self.newest.events;
        Verdict::Stale { events, newest, re_add_possible: false }
    }
}

/// Returns whether the array may have gone on without those equals of this superblock that it does
/// not know. A member that is active by it, has only heard of the update before, and knows those
/// equals by that rules this out: all members are told before anything else is done, and a member
/// that cannot be told is active no more.
pub(super) fn went_on(superblock: &Superblock, candidates: &[Candidate]) -> bool {
    let active = || {
        let found = candidates.iter().filter_map(|candidate| candidate.superblock.as_ref().ok());
        let ours = found.filter(|other| same_array(superblock, other));
        ours.filter(|other| matches!(other.role(), DevRole::Active(_)))
    };
    let left_out =
        |other: &&Superblock| other.events == superblock.events && !knows(superblock, other);
    let untold = |other: &Superblock| {
        knows(superblock, other)
            && other.events < superblock.events
            && other.events.saturating_add(EVENT_MARGIN) >= superblock.events
            && active().filter(left_out).all(|equal| knows(other, equal))
    };
    !active().any(untold)
}

/// Returns whether this superblock has the other member in the role that it has.
pub(super) fn knows(superblock: &Superblock, other: &Superblock) -> bool {
    superblock.role_of(other.dev_number) == other.role()
}

/// Returns whether these are superblocks of members of one array.
pub(super) fn same_array(a: &Superblock, b: &Superblock) -> bool {
    a.set_uuid == b.set_uuid && a.version == b.version
}
