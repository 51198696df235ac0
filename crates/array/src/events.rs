//! Events for logs, monitors and people.

use std::borrow::Cow;

use crate::MemberId;
use crate::outline::Outline;
use crate::refusal::{Next, Refusal};

/// Something that happened to the array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArrayEvent {
    /// A member was made faulty.
    MemberFailed {
        /// The member.
        member: MemberId,
        /// The reason, for people.
        reason: Cow<'static, str>,
        /// Its answer.
        fault: Fault,
        /// The next step; empty where there is nothing but to replace the member.
        next: Next,
    },
    /// A spare or rebuilt member is now in sync.
    MemberActive(MemberId),
    /// A read error was repaired: what was rewritten could be read again.
    ReadCorrected {
        /// The member.
        member: MemberId,
        /// Its answer before that.
        fault: Fault,
    },
    /// Sectors could not be read, and not be repaired.
    ReadFailed {
        /// The member.
        member: MemberId,
        /// Its answer.
        fault: Fault,
    },
    /// A block of a member does not fit its checksum: it is not handed on, and counts as a bad
    /// sector.
    ChecksumMismatch {
        /// The member.
        member: MemberId,
        /// First sector of the device.
        sector: u64,
        /// Number of sectors.
        sectors: u64,
    },
    /// The store beside a member fails, or does not answer: its checksums are given up.
    ChecksumsGivenUp {
        /// The member.
        member: MemberId,
        /// The answer of the store; `None` if there was none for long.
        fault: Option<Fault>,
    },
    /// A member had no room for what was to be written: the write was refused, the member stays.
    MemberFull {
        /// The member.
        member: MemberId,
        /// Its answer.
        fault: Fault,
    },
    /// A member takes much longer than the others, and with it all that waits for it.
    MemberSlow {
        /// The member.
        member: MemberId,
        /// Time that its answers take of late, in milliseconds.
        ms: u64,
        /// Time that the answers of the others take.
        others_ms: u64,
    },
    /// A member was being copied to a spare, and is not any longer; both stay what they are.
    NotReplaced {
        /// The member.
        member: MemberId,
        /// The reason, for people.
        reason: Cow<'static, str>,
        /// The next step.
        next: Next,
    },
    /// A member that was lost is there again, and is not taken back.
    MemberRefused {
        /// The member.
        member: MemberId,
        /// The reason.
        why: Refusal,
    },
    /// A client was hung up on: it took no replies for long, and others needed their memory.
    ClientDropped {
        /// The client, for people.
        client: Cow<'static, str>,
    },
    /// A node has something to say of its clients or its volumes, for the log.
    Remark {
        /// Lines of one kind are alike.
        kind: &'static str,
        /// The line.
        text: Cow<'static, str>,
    },
    /// A node was asked to stop.
    StopAsked,
    /// Too many members are gone.
    ArrayFailed,
    /// The array does not start: too many members are away, or something else stands against it.
    /// The start is tried again and again.
    Waits {
        /// The reason, for people.
        reason: Cow<'static, str>,
        /// The next step.
        next: Next,
    },
    /// Another client has the array now: this one is of no use any more.
    TakenOver,
    /// Another client has changed the members while this one was being started: it has changed
    /// nothing, and is to be started anew from what they hold now.
    MembersChanged,
    /// Data of members that are gone cannot be read any more: no resync had made parity fit there.
    DataLost {
        /// Sectors of each member.
        sectors: u64,
    },
    /// A repair rewrote what could not be read from parity that no resync had made fit.
    ParityTrusted {
        /// Sectors of the array.
        sectors: u64,
    },
    /// The array has another shape: its members know.
    ShapeChanged {
        /// The shape before.
        from: Outline,
        /// The shape now.
        to: Outline,
    },
    /// Background work began.
    SyncStarted(SyncAction),
    /// Background work ended.
    SyncFinished {
        /// The action.
        action: SyncAction,
        /// Sectors that differed, md's way of counting.
        mismatch_sectors: u64,
        /// The way in which it ended.
        end: SyncEnd,
    },
    /// Something that happened to an array which is a member of this one.
    Within {
        /// The member.
        array: MemberId,
        /// The event.
        event: Box<Self>,
    },
    /// A check found a stripe whose redundancy does not fit.
    Mismatch {
        /// First array sector of the stripe or block.
        array_sector: u64,
        /// Sectors that differ, md's way of counting.
        sectors: u32,
        /// The member that is wrong, where that can be told.
        member: Option<MemberId>,
        /// The block of the stripe, for an array over nodes.
        block: Option<StripeBlock>,
    },
}

/// A block of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct StripeBlock {
    /// The stripe, from 0.
    pub stripe: u64,
    /// Index of the block among the member's blocks of that stripe, from 0; where the member is
    /// known.
    pub row: Option<u16>,
}

/// The answer of a member when an I/O on it failed, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// Sector of the device at which the I/O began. A flush has no place.
    pub sector: Option<u64>,
    /// The system's number of the error.
    pub errno: Option<i32>,
}

impl ArrayEvent {
    /// The same event with another numbering of members.
    #[must_use]
    pub fn map_member(self, map: impl Fn(MemberId) -> MemberId) -> Self {
        match self {
            Self::MemberFailed { member, reason, fault, next } => {
                Self::MemberFailed { member: map(member), reason, fault, next }
            }
            Self::MemberActive(member) => Self::MemberActive(map(member)),
            Self::ReadCorrected { member, fault } => {
                Self::ReadCorrected { member: map(member), fault }
            }
            Self::ReadFailed { member, fault } => Self::ReadFailed { member: map(member), fault },
            Self::ChecksumMismatch { member, sector, sectors } => {
                Self::ChecksumMismatch { member: map(member), sector, sectors }
            }
            Self::ChecksumsGivenUp { member, fault } => {
                Self::ChecksumsGivenUp { member: map(member), fault }
            }
            Self::MemberFull { member, fault } => Self::MemberFull { member: map(member), fault },
            Self::MemberSlow { member, ms, others_ms } => {
                Self::MemberSlow { member: map(member), ms, others_ms }
            }
            Self::NotReplaced { member, reason, next } => {
                Self::NotReplaced { member: map(member), reason, next }
            }
            Self::MemberRefused { member, why } => Self::MemberRefused { member: map(member), why },
            Self::Mismatch { array_sector, sectors, member, block } => {
                Self::Mismatch { array_sector, sectors, member: member.map(map), block }
            }
            Self::Within { array, event } => {
                Self::Within { array, event: Box::new(event.map_member(map)) }
            }
            other @ (Self::ArrayFailed
            | Self::Waits { .. }
            | Self::TakenOver
            | Self::MembersChanged
            | Self::ClientDropped { .. }
            | Self::Remark { .. }
            | Self::StopAsked
            | Self::DataLost { .. }
            | Self::ParityTrusted { .. }
            | Self::ShapeChanged { .. }
            | Self::SyncStarted(_)
            | Self::SyncFinished { .. }) => other,
        }
    }
}

/// The way in which background work ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncEnd {
    /// At the end, with everything read.
    Complete,
    /// At the end, with parts left out that could not be read.
    Unread {
        /// Array sectors that could not be read.
        sectors: u64,
    },
    /// Before the end.
    Interrupted {
        /// The reason, for people.
        reason: Cow<'static, str>,
    },
}

/// Background work, by md's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum SyncAction {
    /// Nothing runs.
    #[default]
    Idle,
    /// After an unclean stop.
    Resync,
    /// Onto a spare or replacement.
    Recovery,
    /// Compare only.
    Check,
    /// Compare and rewrite.
    Repair,
    /// Move data to the shape that the array is to have.
    Reshape,
}

impl SyncAction {
    /// md's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Resync => "resync",
            Self::Recovery => "recovery",
            Self::Check => "check",
            Self::Repair => "repair",
            Self::Reshape => "reshape",
        }
    }
}
