//! The levels and layouts that are compared.

use crate::compare::words::names;

names! {
    /// One level in one layout, as it is typed; those come first that were published.
    pub enum Level {
        /// RAID 1.
        Raid1 = "1",
        /// RAID 5.
        Raid5 = "5",
        /// RAID 6.
        Raid6 = "6",
        /// RAID 10 with near copies.
        #[serde(alias = "10n2")]
        #[value(alias = "10n2")]
        Near2 = "10",
        /// RAID 10 with far copies.
        Far2 = "10f2",
        /// RAID 10 with copies side by side.
        Offset2 = "10o2",
        /// RAID 0.
        Raid0 = "0",
    }
}

/// Facts of a level.
pub(super) struct Facts {
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

const fn raid(level: &'static str, name: &'static str, members: u16, copies: u16) -> Facts {
    let copies = Some(copies);
    Facts { name, level, layout: None, profile: None, members, parities: 0, copies }
}

/// Facts in the order of the levels.
const FACTS: [Facts; Level::ALL.len()] = [
    Facts { profile: Some("raid1"), copies: None, ..raid("1", "RAID 1", 2, 2) },
    Facts { profile: Some("raid5"), parities: 1, ..raid("5", "RAID 5", 3, 1) },
    Facts { profile: Some("raid6"), parities: 2, ..raid("6", "RAID 6", 4, 1) },
    Facts { profile: Some("raid10"), ..raid("10", "RAID 10 near2", 4, 2) },
    Facts { layout: Some("f2"), ..raid("10", "RAID 10 far2", 4, 2) },
    Facts { layout: Some("o2"), ..raid("10", "RAID 10 offset2", 4, 2) },
    Facts { profile: Some("raid0"), ..raid("0", "RAID 0", 2, 1) },
];

impl Level {
    pub(super) const fn facts(self) -> &'static Facts {
        &FACTS[self as usize]
    }

    /// Returns whether there are published figures of it.
    pub(super) const fn is_published(self) -> bool {
        self as usize <= Self::Near2 as usize
    }

    /// Bytes stored for each byte of data.
    pub(super) fn stored(self, members: u16) -> f64 {
        let Facts { parities, copies, .. } = self.facts();
        let data = f64::from(members.saturating_sub(*parities).max(1));
        f64::from(copies.unwrap_or(members)) * f64::from(members) / data
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn words_are_those_that_are_typed_and_stored() {
        for level in Level::ALL {
            let stored = serde_json::to_value(level).expect("JSON");
            assert_eq!(stored, level.name());
            assert_eq!(serde_json::from_value::<Level>(stored).expect("the same"), level);
        }
        assert_eq!(Level::from_str("10n2", false), Ok(Level::Near2));
        assert!(Level::from_str("7", false).is_err());
        let named = [Level::Raid1, Level::Raid5, Level::Offset2].map(|level| level.facts().name);
        assert_eq!(named, ["RAID 1", "RAID 5", "RAID 10 offset2"]);
    }

    #[test]
    fn bytes_are_stored_as_often_as_the_level_says() {
        let stored = |level: Level| level.stored(level.facts().members);
        assert_eq!(Level::ALL.map(stored), [2.0, 1.5, 2.0, 2.0, 2.0, 2.0, 1.0]);
        assert_eq!(Level::Raid1.stored(3), 3.0);
        assert_eq!(Level::Raid6.stored(10), 1.25);
    }
}
