//! Levels and layouts: md's numbers, mdadm's names, and which of them go together. The numbers are
//! the kernel's (`md_u.h`, `raid5.h`, `raid0.h`, `raid10.c`), the names mdadm's (`maps.c`).

mod layout;

pub use layout::{FarSets, Layout, LayoutError, ParityLayout, Raid0Layout, Raid10Layout};

use std::fmt;
use std::str::FromStr;

use crate::refusal::{Advised, Next};

/// Level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// Concatenation (-1).
    Linear,
    /// Striping.
    Raid0,
    /// Mirror.
    Raid1,
    /// Dedicated parity.
    Raid4,
    /// Rotating parity.
    Raid5,
    /// P and Q.
    Raid6,
    /// Striped mirrors.
    Raid10,
}

impl Level {
    /// Every level, in the order of md's numbers.
    pub const ALL: [Self; 7] = [
        Self::Linear,
        Self::Raid0,
        Self::Raid1,
        Self::Raid4,
        Self::Raid5,
        Self::Raid6,
        Self::Raid10,
    ];

    /// The level with this number in a superblock; `None` for multipath, faulty, container and
    /// numbers that mean nothing.
    #[must_use]
    pub fn from_md(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.to_md() == number)
    }

    /// md's number.
    #[must_use]
    pub const fn to_md(self) -> i32 {
        match self {
            Self::Linear => -1,
            Self::Raid0 => 0,
            Self::Raid1 => 1,
            Self::Raid4 => 4,
            Self::Raid5 => 5,
            Self::Raid6 => 6,
            Self::Raid10 => 10,
        }
    }

    /// The name that mdadm and `/proc/mdstat` print.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Raid0 => "raid0",
            Self::Raid1 => "raid1",
            Self::Raid4 => "raid4",
            Self::Raid5 => "raid5",
            Self::Raid6 => "raid6",
            Self::Raid10 => "raid10",
        }
    }

    /// Parity strips of a stripe: 1 for raid4 and raid5, 2 for raid6, otherwise 0.
    #[must_use]
    pub const fn parity_disks(self) -> u32 {
        match self {
            Self::Raid4 | Self::Raid5 => 1,
            Self::Raid6 => 2,
            _ => 0,
        }
    }

    /// The fewest members with which md runs this level.
    #[must_use]
    pub const fn min_members(self) -> u32 {
        match self {
            Self::Linear | Self::Raid0 | Self::Raid1 => 1,
            Self::Raid4 | Self::Raid5 | Self::Raid10 => 2,
            Self::Raid6 => 4,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no level's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown level '{0}'")]
pub struct UnknownLevel(pub String);

impl Advised for UnknownLevel {
    fn next(&self) -> Next {
        "use linear, 0, 1, 4, 5, 6 or 10".into()
    }
}

impl FromStr for Level {
    type Err = UnknownLevel;

    /// Takes what mdadm takes: `raid5` or `5`, and `linear`, `stripe`, `mirror`; and what people
    /// write: `RAID5`, `raid-5`, `RAID 5`, `1+0`.
    fn from_str(name: &str) -> Result<Self, UnknownLevel> {
        let lower = name.to_ascii_lowercase();
        let number = match lower.strip_prefix("raid") {
            Some(rest) => rest.strip_prefix(['-', ' ']).unwrap_or(rest),
            None => &lower,
        };
        match number {
            "stripe" => Ok(Self::Raid0),
            "mirror" => Ok(Self::Raid1),
            "1+0" => Ok(Self::Raid10),
            _ => Self::ALL
                .into_iter()
                .find(|level| level.name().strip_prefix("raid").unwrap_or("linear") == number)
                .ok_or_else(|| UnknownLevel(name.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_mds() {
        let numbers = Level::ALL.map(Level::to_md);
        assert_eq!(numbers, [-1, 0, 1, 4, 5, 6, 10]);
        for level in Level::ALL {
            assert_eq!(Level::from_md(level.to_md()), Some(level));
        }
        for other in [i32::MIN, -5, -4, -2, 2, 3, 7, 11, 100, i32::MAX] {
            assert_eq!(Level::from_md(other), None);
        }
    }

    #[test]
    fn names_are_mdadms() {
        for level in Level::ALL {
            assert_eq!(level.name().parse(), Ok(level));
            assert_eq!(level.to_string(), level.name());
        }
        assert_eq!("0".parse(), Ok(Level::Raid0));
        assert_eq!("10".parse(), Ok(Level::Raid10));
        assert_eq!("stripe".parse(), Ok(Level::Raid0));
        assert_eq!("mirror".parse(), Ok(Level::Raid1));
        for (written, level) in [
            ("RAID5", Level::Raid5),
            ("Raid-6", Level::Raid6),
            ("raid 1", Level::Raid1),
            ("1+0", Level::Raid10),
            ("RAID1+0", Level::Raid10),
            ("Linear", Level::Linear),
        ] {
            assert_eq!(written.parse(), Ok(level), "{written}");
        }
        for wrong in ["", "raid", "raid2", "-1", "05", "raid--5", "0+1", "raidz", "multipath"] {
            assert_eq!(wrong.parse::<Level>(), Err(UnknownLevel(wrong.to_owned())));
        }
    }
}
