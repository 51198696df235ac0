//! Background work, as the keeper asks for it and as the lane answers.

use crate::MemberId;

/// A range of sync space that one operation works on, within one chunk; at most as high as
/// [`SyncSpace::unit_sectors`](crate::keeper::SyncSpace::unit_sectors) says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// First sector.
    pub start: u64,
    /// Number of sectors.
    pub sectors: u32,
}

impl Unit {
    /// First sector behind it.
    #[must_use]
    pub fn end(self) -> u64 {
        self.start + u64::from(self.sectors)
    }
}

/// The way in which a comparison treats differences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fix {
    /// Tell of them.
    Nothing,
    /// Make parity or copies follow the data: after an unclean stop.
    Resync,
    /// The same as resync, but what the redundancy agrees is wrong is rewritten instead.
    Repair,
}

/// Work to be done with a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Compare its redundancy with its data.
    Compare(Fix),
    /// Give these members what they are to hold of it.
    Rebuild(Vec<MemberId>),
    /// Copy what the member that is being copied holds of it.
    Copy,
    /// Compare what this member was given of it with what the others say.
    Verify(MemberId),
    /// Write its data to the device beside the members; the unit is one of the shape that the array
    /// is to have.
    Save,
    /// Bring its data to where they lie in the shape that the array is to have; the unit is one of
    /// that shape.
    Move,
}

/// Sectors of the array that could not be read.
#[derive(Clone, Debug)]
pub struct Unread {
    /// First sector of the array.
    pub array_sector: u64,
    /// Number of sectors.
    pub sectors: u64,
    /// The members that were to hold them, or what gives them back.
    pub members: Vec<MemberId>,
}

/// The outcome of a unit, or of a part of it.
#[derive(Clone, Debug)]
pub enum Done {
    /// The unit was done. `equal`: nothing differed.
    Well {
        /// See above; of a rebuilding it means nothing.
        equal: bool,
    },
    /// Nothing to compare it with was there.
    Alone,
    /// Something of it could not be read, and was left as it is.
    Unread(Vec<Unread>),
    /// A member has no room for what was to be written.
    Full,
    /// Not at all, for want of members.
    Failed,
}
