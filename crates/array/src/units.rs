//! Units. A sector is 512 bytes everywhere; lengths carry their unit in the name.

use std::fmt;

/// Bytes in a sector, md's and the block layer's unit.
pub const SECTOR_BYTES: u64 = 512;

/// Rows of a unit of background work, or of a write with parity, at most: 64 KiB, so that a whole
/// stripe of a usual array stays in a core's second-level cache.
pub const UNIT_SECTORS: u32 = 128;

/// The greatest common divisor.
pub(crate) const fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Nanoseconds since the executor started. Time is an argument, never asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(pub u64);

impl Instant {
    /// Returns this instant plus so many milliseconds.
    #[must_use]
    pub const fn plus_millis(self, millis: u64) -> Self {
        Self(self.0 + millis * 1_000_000)
    }
}

/// The id of a member device: an index into the array's table of members. Not a role: a spare has
/// an id too, and a member keeps its id for as long as it is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemberId(pub u16);

impl MemberId {
    /// The first id of an array within an array; ids below are those of devices.
    pub(crate) const FIRST_ARRAY: u16 = 63 << 10;

    /// The id of an array that is this member of another.
    pub(crate) const fn of_array(number: u16) -> Self {
        Self(Self::FIRST_ARRAY + number)
    }

    /// Returns the number of this array within an array; `None` for a device.
    #[must_use]
    pub fn array_number(self) -> Option<usize> {
        self.0.checked_sub(Self::FIRST_ARRAY).map(usize::from)
    }
}

/// A place in the array's level that a member takes: roles count from 0. Any member may be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Role(pub u16);

impl Role {
    /// The roles of an array that has so many.
    #[must_use]
    pub fn all(count: u16) -> impl DoubleEndedIterator<Item = Self> + ExactSizeIterator + Clone {
        (0..count).map(Self)
    }

    /// Returns the role of an entry in a list by role.
    #[must_use]
    pub const fn at(index: usize) -> Self {
        debug_assert!(index <= u16::MAX as usize, "more entries than roles");
        Self(index as u16)
    }

    /// Returns its index in a list by role.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The machine's name for an I/O or computation in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IoId(pub u64);
