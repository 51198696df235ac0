//! Conditions of arrays that need a person, each with an id that stays. The book has a section for
//! each id.

use std::fmt;

macro_rules! conditions {
    ($($(#[$doc:meta])* $number:literal $name:ident,)+) => {
        /// A condition of an array, by the number of its id. A number is never used for another.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum Condition {
            $($(#[$doc])* $name = $number,)+
        }

        impl Condition {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)+];
        }
    };
}

conditions! {
    /// More members are gone than the array can do without.
    101 ArrayFailed,
    /// Requests wait for nodes that the array cannot do without.
    102 ArrayWaits,
    /// The journal is gone, or cannot be used.
    103 JournalLost,
    /// A member on a disk has failed.
    104 MemberFailed,
    /// A node that has a member or a vote cannot be reached, or is not taken in.
    105 NodeLost,
    /// A role has no member.
    106 MemberMissing,
    /// A member that is back is not taken back.
    107 MemberRefused,
    /// Background work that is due does not go on.
    108 WorkHeldUp,
    /// A member takes much longer than the others.
    109 MemberSlow,
    /// A disk reports that it will fail.
    110 DiskWarning,
    /// The array is not served.
    111 NotRunning,
    /// A check found sectors whose redundancy does not fit.
    201 Mismatch,
    /// Background work could not read sectors.
    202 Unreadable,
    /// A repair rewrote sectors from parity that may not fit.
    203 ParityTrusted,
    /// A resync could not bring sectors in line.
    204 Unsynced,
    /// Too few members can be used to start.
    301 TooFewMembers,
    /// Members that were active when the array last ran cannot be used.
    302 MembersLeftOut,
    /// Members are missing, and parity may not fit.
    303 DirtyDegraded,
    /// The array went on without a member.
    304 Stale,
    /// The array ran in two halves.
    305 Split,
    /// A device belongs to another array.
    306 Foreign,
    /// Two devices are the same member.
    307 Copies,
    /// A device has no superblock that can be trusted, or is cut off.
    308 Damaged,
    /// The array needs what only md has.
    309 NotSupported,
    /// The array stopped in the middle of a reshape.
    310 Halfway,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BRAID-{}", *self as u16)
    }
}
