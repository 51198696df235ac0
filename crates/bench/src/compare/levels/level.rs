//! The levels and layouts that are compared.

use std::fmt;
use std::str::FromStr;

use braid_array::refusal::Refusal;
use serde::{Deserialize, Serialize};

/// One level in one layout, by its place among [`FACTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Level(usize);

/// Facts of a level.
pub(super) struct Facts {
    /// Name as it is typed.
    word: &'static str,
    pub(super) name: &'static str,
    /// Words for `--level`, and for `--layout` where it is not the usual one.
    pub(super) level: &'static str,
    pub(super) layout: Option<&'static str>,
    /// The profile of btrfs that does the same.
    pub(super) profile: Option<&'static str>,
    /// Members, as many as were published; without that, as few as do.
    pub(super) members: u16,
    /// Members' worth of parity.
    pub(super) parities: u16,
    /// Copies of each byte of data, parity apart; `None`: on each member.
    copies: Option<u16>,
}

const fn raid(word: &'static str, name: &'static str, members: u16, copies: u16) -> Facts {
    let profile = None;
    let layout = None;
    let parities = 0;
    Facts { word, name, level: word, layout, profile, members, parities, copies: Some(copies) }
}

const fn raid10(word: &'static str, name: &'static str, layout: Option<&'static str>) -> Facts {
    Facts { level: "10", layout, ..raid(word, name, 4, 2) }
}

/// All there are, those that were published first.
const FACTS: [Facts; 7] = [
    Facts { profile: Some("raid1"), copies: None, ..raid("1", "RAID 1", 2, 2) },
    Facts { profile: Some("raid5"), parities: 1, ..raid("5", "RAID 5", 3, 1) },
    Facts { profile: Some("raid6"), parities: 2, ..raid("6", "RAID 6", 4, 1) },
    Facts { profile: Some("raid10"), ..raid10("10", "RAID 10 near2", None) },
    raid10("10f2", "RAID 10 far2", Some("f2")),
    raid10("10o2", "RAID 10 offset2", Some("o2")),
    Facts { profile: Some("raid0"), ..raid("0", "RAID 0", 2, 1) },
];

impl Level {
    pub(super) const RAID_5: Self = Self(1);
    pub(super) const RAID_6: Self = Self(2);
    pub(super) const NEAR_2: Self = Self(3);
    /// All there are, those that were published first.
    pub const ALL: [Self; 7] = [Self(0), Self(1), Self(2), Self(3), Self(4), Self(5), Self(6)];

    pub(super) const fn facts(self) -> &'static Facts {
        &FACTS[self.0]
    }

    /// Returns whether there are published figures of it.
    pub(super) const fn is_published(self) -> bool {
        self.0 <= Self::NEAR_2.0
    }

    /// Bytes stored for each byte of data.
    pub(super) fn stored(self, members: u16) -> f64 {
        let Facts { parities, copies, .. } = self.facts();
        let data = f64::from(members.saturating_sub(*parities).max(1));
        f64::from(copies.unwrap_or(members)) * f64::from(members) / data
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.facts().word)
    }
}

impl From<Level> for String {
    fn from(level: Level) -> Self {
        level.to_string()
    }
}

impl TryFrom<String> for Level {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        text.parse()
    }
}

impl FromStr for Level {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let text = if text == "10n2" { "10" } else { text };
        FACTS.iter().position(|facts| facts.word == text).map(Self).ok_or_else(|| {
            let words = FACTS.map(|facts| facts.word).join(" ");
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
            assert_eq!(level.to_string().parse(), Ok(level));
            assert_eq!(serde_json::to_value(level).expect("JSON"), level.to_string());
        }
        assert_eq!("10n2".parse(), Ok(Level::NEAR_2));
        assert!("7".parse::<Level>().is_err());
        let named = [Level::ALL[0], Level::RAID_5, Level::RAID_6].map(|level| level.facts().name);
        assert_eq!(named, ["RAID 1", "RAID 5", "RAID 6"]);
    }

    #[test]
    fn bytes_are_stored_as_often_as_the_level_says() {
        let stored = |level: Level| level.stored(level.facts().members);
        assert_eq!(Level::ALL.map(stored), [2.0, 1.5, 2.0, 2.0, 2.0, 2.0, 1.0]);
        assert_eq!(Level::ALL[0].stored(3), 3.0);
        assert_eq!(Level::RAID_6.stored(10), 1.25);
    }
}
