//! Verdicts on candidates.

use crate::Role;
use std::fmt;

use crate::condition::Condition;
use crate::format::Unsupported;

/// The standing of a candidate in the array that is assembled. `Display` says it to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Holds its role.
    Active {
        /// Role.
        role: Role,
    },
    /// Out of date, and holds its role all the same, because `force` was asked for.
    Forced {
        /// Role.
        role: Role,
        /// Its event count.
        events: u64,
        /// The newest event count.
        newest: u64,
    },
    /// Holds its role in part; recovery goes on.
    Rebuilding {
        /// Role.
        role: Role,
        /// Sectors of its data area below this are rebuilt.
        offset_sectors: u64,
    },
    /// Replacement of the holder of a role, which holds it in part.
    Replacement {
        /// Role.
        role: Role,
        /// Sectors of its data area below this are copied.
        offset_sectors: u64,
    },
    /// Spare.
    Spare,
    /// Its own superblock says that it is faulty.
    Faulty,
    /// A write journal.
    Journal,
    /// The array went on without it.
    Stale {
        /// Its event count.
        events: u64,
        /// The newest event count.
        newest: u64,
        /// The bitmap knows all that has changed since it left: `re-add` copies only that.
        re_add_possible: bool,
    },
    /// Same event count, another history: the array ran in two halves.
    Split {
        /// A device of the other half.
        other: String,
        /// The event count of both.
        events: u64,
    },
    /// Older, and another history: it ran without those that are current now.
    WentAlone {
        /// A device that is current.
        other: String,
        /// Its event count.
        events: u64,
        /// The newest event count.
        newest: u64,
    },
    /// A member of another array.
    Foreign {
        /// UUID of that array, as mdadm prints it.
        uuid: String,
        /// Its name.
        name: String,
    },
    /// No superblock, or none that can be trusted.
    Unreadable {
        /// The reason.
        reason: String,
    },
    /// Its superblock asks for features that are not run here.
    Unsupported(Unsupported),
    /// The same device, or a copy of it, is there already.
    Duplicate {
        /// The device that counts.
        of: String,
    },
    /// The device ends before its data.
    TooSmall {
        /// Sectors that its superblock needs.
        needed_sectors: u64,
        /// Sectors that there are.
        device_sectors: u64,
    },
}

impl Verdict {
    /// Returns whether the candidate is attached when the array starts.
    #[must_use]
    pub const fn attached(&self) -> bool {
        matches!(
            self,
            Self::Active { .. }
                | Self::Forced { .. }
                | Self::Rebuilding { .. }
                | Self::Replacement { .. }
                | Self::Spare
                | Self::Journal
        )
    }

    /// Returns the condition of the array that leaves the candidate out.
    #[must_use]
    pub const fn condition(&self) -> Option<Condition> {
        Some(match self {
            Self::Active { .. }
            | Self::Rebuilding { .. }
            | Self::Replacement { .. }
            | Self::Spare
            | Self::Journal => return None,
            Self::Faulty => Condition::MemberFailed,
            Self::Forced { .. } | Self::Stale { .. } => Condition::Stale,
            Self::Split { .. } | Self::WentAlone { .. } => Condition::Split,
            Self::Foreign { .. } => Condition::Foreign,
            Self::Duplicate { .. } => Condition::Copies,
            Self::Unreadable { .. } | Self::TooSmall { .. } => Condition::Damaged,
            Self::Unsupported(_) => Condition::NotSupported,
        })
    }

    /// The role it holds completely.
    pub(super) const fn in_sync_role(&self) -> Option<Role> {
        match self {
            Self::Active { role } | Self::Forced { role, .. } => Some(*role),
            _ => None,
        }
    }

    /// The role it holds or is being rebuilt for.
    pub(super) const fn role(&self) -> Option<Role> {
        match self {
            Self::Active { role }
            | Self::Forced { role, .. }
            | Self::Rebuilding { role, .. }
            | Self::Replacement { role, .. } => Some(*role),
            _ => None,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Active { role } => write!(f, "active, role {role}"),
            Self::Forced { role, events, newest } => {
                write!(f, "stale (event count {events}, newest {newest}), forced into role {role}")
            }
            Self::Rebuilding { role, offset_sectors } => {
                write!(f, "rebuilding role {role}, done up to sector {offset_sectors}")
            }
            Self::Replacement { role, offset_sectors } => {
                write!(f, "replacing role {role}, done up to sector {offset_sectors}")
            }
            Self::Spare => f.write_str("spare"),
            Self::Faulty => f.write_str("marked faulty in its own superblock"),
            Self::Journal => f.write_str("write journal"),
            Self::Stale { events, newest, re_add_possible } => {
                write!(f, "stale (event count {events}, newest {newest})")?;
                if *re_add_possible { f.write_str(", can be caught up by re-add") } else { Ok(()) }
            }
            Self::Split { other, events } => {
                write!(f, "split from {other}: each side went on alone to event count {events}")
            }
            Self::WentAlone { other, events, newest } => write!(
                f,
                "split from {other}: each side went on alone (event count {events}, newest \
                 {newest}), only a full recovery brings it back"
            ),
            Self::Foreign { uuid, name } if name.is_empty() => {
                write!(f, "belongs to another array, {uuid}")
            }
            Self::Foreign { uuid, name } => {
                write!(f, "belongs to another array, {name} ({uuid})")
            }
            Self::Unreadable { reason } => f.write_str(reason),
            Self::Unsupported(unsupported) => unsupported.fmt(f),
            Self::Duplicate { of } => write!(f, "the same member as {of}, or a copy of it"),
            Self::TooSmall { needed_sectors, device_sectors } => {
                write!(
                    f,
                    "cut off: has {device_sectors} sectors, its superblock needs {needed_sectors}"
                )
            }
        }
    }
}
