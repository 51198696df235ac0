//! The levels and layouts that are compared.

use std::fmt;
use std::str::FromStr;

use braid_array::refusal::Refusal;
use serde::{Deserialize, Serialize};

/// One level in one layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    /// RAID 1.
    #[serde(rename = "1")]
    Raid1,
    /// RAID 5, left-symmetric.
    #[serde(rename = "5")]
    Raid5,
    /// RAID 6, left-symmetric.
    #[serde(rename = "6")]
    Raid6,
    /// RAID 10, two near copies.
    #[serde(rename = "10")]
    Near2,
    /// RAID 10, two far copies.
    #[serde(rename = "10f2")]
    Far2,
    /// RAID 10, two offset copies.
    #[serde(rename = "10o2")]
    Offset2,
    /// RAID 0.
    #[serde(rename = "0")]
    Raid0,
}

impl Level {
    /// All there are, those that were published first.
    pub const ALL: [Self; 7] = [
        Self::Raid1,
        Self::Raid5,
        Self::Raid6,
        Self::Near2,
        Self::Far2,
        Self::Offset2,
        Self::Raid0,
    ];

    /// As it is typed.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Raid1 => "1",
            Self::Raid5 => "5",
            Self::Raid6 => "6",
            Self::Near2 => "10",
            Self::Far2 => "10f2",
            Self::Offset2 => "10o2",
            Self::Raid0 => "0",
        }
    }

    /// There are published figures of it.
    pub(super) const fn is_published(self) -> bool {
        matches!(self, Self::Raid1 | Self::Raid5 | Self::Raid6 | Self::Near2)
    }

    /// For people.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Raid1 => "RAID 1",
            Self::Raid5 => "RAID 5",
            Self::Raid6 => "RAID 6",
            Self::Near2 => "RAID 10 near2",
            Self::Far2 => "RAID 10 far2",
            Self::Offset2 => "RAID 10 offset2",
            Self::Raid0 => "RAID 0",
        }
    }

    /// As `--level` takes it, and `--layout` where it is not the usual one.
    pub(super) const fn words(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Raid0 => ("0", None),
            Self::Raid1 => ("1", None),
            Self::Raid5 => ("5", None),
            Self::Raid6 => ("6", None),
            Self::Near2 => ("10", None),
            Self::Far2 => ("10", Some("f2")),
            Self::Offset2 => ("10", Some("o2")),
        }
    }

    /// The profile of btrfs that does the same.
    pub(super) const fn profile(self) -> Option<&'static str> {
        match self {
            Self::Raid0 => Some("raid0"),
            Self::Raid1 => Some("raid1"),
            Self::Raid5 => Some("raid5"),
            Self::Raid6 => Some("raid6"),
            Self::Near2 => Some("raid10"),
            Self::Far2 | Self::Offset2 => None,
        }
    }

    /// As many as were published; without that, as few as do.
    pub(super) const fn members(self) -> u16 {
        match self {
            Self::Raid0 | Self::Raid1 => 2,
            Self::Raid5 => 3,
            Self::Raid6 | Self::Near2 | Self::Far2 | Self::Offset2 => 4,
        }
    }

    /// Members' worth of parity.
    pub(super) const fn parities(self) -> u16 {
        match self {
            Self::Raid5 => 1,
            Self::Raid6 => 2,
            _ => 0,
        }
    }

    /// How often each byte of data is stored, parity apart.
    pub(super) const fn copies(self, members: u16) -> u16 {
        match self {
            Self::Raid1 => members,
            Self::Near2 | Self::Far2 | Self::Offset2 => 2,
            Self::Raid0 | Self::Raid5 | Self::Raid6 => 1,
        }
    }

    /// Bytes stored for each byte of data.
    pub(super) fn stored(self, members: u16) -> f64 {
        let data = f64::from(members.saturating_sub(self.parities()).max(1));
        f64::from(self.copies(members)) * f64::from(members) / data
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Level {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let text = if text == "10n2" { "10" } else { text };
        Self::ALL.into_iter().find(|level| level.word() == text).ok_or_else(|| {
            let words = Self::ALL.map(Self::word).join(" ");
            Refusal::new("not a level that is compared", format!("name some of {words}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_that_are_typed_and_stored() {
        for level in Level::ALL {
            assert_eq!(level.word().parse(), Ok(level));
            assert_eq!(serde_json::to_value(level).expect("JSON"), level.word());
        }
        assert_eq!("10n2".parse(), Ok(Level::Near2));
        assert!("7".parse::<Level>().is_err());
    }

    #[test]
    fn bytes_are_stored_as_often_as_the_level_says() {
        let stored = |level: Level| level.stored(level.members());
        assert_eq!(Level::ALL.map(stored), [2.0, 1.5, 2.0, 2.0, 2.0, 2.0, 1.0]);
        assert_eq!(Level::Raid1.stored(3), 3.0);
        assert_eq!(Level::Raid6.stored(10), 1.25);
    }
}
