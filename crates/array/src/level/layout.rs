//! Layouts of levels: the numbers as they stand in superblocks, the names as mdadm takes and prints
//! them.

use super::Level;
use crate::refusal::{Advised, Next};

/// The ways in which raid5 and raid6 rotate parity. The names are mdadm's, the numbers the
/// kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ParityLayout {
    /// 0: parity moves from the last member to the first; data stays in member order.
    LeftAsymmetric = 0,
    /// 1: parity moves from the first member to the last; data stays in member order.
    RightAsymmetric = 1,
    /// 2: parity as in left-asymmetric; data starts after it and wraps around.
    LeftSymmetric = 2,
    /// 3: parity as in right-asymmetric; data starts after it and wraps around.
    RightSymmetric = 3,
    /// 4: parity always on the first members.
    ParityFirst = 4,
    /// 5: parity always on the last members.
    ParityLast = 5,
    /// 8, raid6 only: as right-asymmetric, Q counted by member number as DDF wants it.
    DdfZeroRestart = 8,
    /// 9, raid6 only: as left-asymmetric one stripe on, Q counted by member number.
    DdfNRestart = 9,
    /// 10, raid6 only: as left-symmetric with Q before P, Q counted by member number.
    DdfNContinue = 10,
    /// 16, raid6 only: raid5's rotation over all but the last member, Q on the last.
    LeftAsymmetric6 = 16,
    /// 17, raid6 only: the same of right-asymmetric.
    RightAsymmetric6 = 17,
    /// 18, raid6 only: the same of left-symmetric.
    LeftSymmetric6 = 18,
    /// 19, raid6 only: the same of right-symmetric.
    RightSymmetric6 = 19,
    /// 20, raid6 only: P on the first member, Q on the last.
    ParityFirst6 = 20,
}

impl ParityLayout {
    /// Every layout, by number.
    pub const ALL: [Self; 14] = [
        Self::LeftAsymmetric,
        Self::RightAsymmetric,
        Self::LeftSymmetric,
        Self::RightSymmetric,
        Self::ParityFirst,
        Self::ParityLast,
        Self::DdfZeroRestart,
        Self::DdfNRestart,
        Self::DdfNContinue,
        Self::LeftAsymmetric6,
        Self::RightAsymmetric6,
        Self::LeftSymmetric6,
        Self::RightSymmetric6,
        Self::ParityFirst6,
    ];

    /// Returns whether the level has this layout.
    #[must_use]
    pub const fn fits(self, level: Level) -> bool {
        match level {
            Level::Raid5 => self as u32 <= Self::ParityLast as u32,
            Level::Raid6 => true,
            _ => false,
        }
    }

    /// Returns whether Q is always on the last member, and the rest a raid5.
    #[must_use]
    pub const fn keeps_q_apart(self) -> bool {
        self as u32 >= Self::LeftAsymmetric6 as u32
    }

    /// mdadm's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LeftAsymmetric => "left-asymmetric",
            Self::RightAsymmetric => "right-asymmetric",
            Self::LeftSymmetric => "left-symmetric",
            Self::RightSymmetric => "right-symmetric",
            Self::ParityFirst => "parity-first",
            Self::ParityLast => "parity-last",
            Self::DdfZeroRestart => "ddf-zero-restart",
            Self::DdfNRestart => "ddf-N-restart",
            Self::DdfNContinue => "ddf-N-continue",
            Self::LeftAsymmetric6 => "left-asymmetric-6",
            Self::RightAsymmetric6 => "right-asymmetric-6",
            Self::LeftSymmetric6 => "left-symmetric-6",
            Self::RightSymmetric6 => "right-symmetric-6",
            Self::ParityFirst6 => "parity-first-6",
        }
    }

    /// Takes what mdadm takes. On raid5 the ddf names mean the plain layouts they equal there.
    fn parse(level: Level, name: &str) -> Option<Self> {
        match (name, level) {
            ("default" | "ls", _) | ("ddf-N-continue", Level::Raid5) => Some(Self::LeftSymmetric),
            ("la", _) | ("ddf-N-restart", Level::Raid5) => Some(Self::LeftAsymmetric),
            ("ra", _) | ("ddf-zero-restart", Level::Raid5) => Some(Self::RightAsymmetric),
            ("rs", _) => Some(Self::RightSymmetric),
            _ => Self::ALL.into_iter().find(|layout| layout.name() == name && layout.fits(level)),
        }
    }
}

/// The way in which raid10 spreads copies: `near * far` of each chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Raid10Layout {
    /// Copies side by side.
    pub near: u8,
    /// Copies far apart.
    pub far: u8,
    /// The far copies lie in the next chunk rows (bit 16), not in the next part of the member.
    pub offset: bool,
    /// Among which members the far copies rotate.
    pub far_sets: FarSets,
}

/// Among which members the far copies of a chunk rotate (layout bits 17 and 18). mdadm writes only
/// the first; the others come from device-mapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FarSets {
    /// All of them: layout bits 17 and 18 clear.
    Original,
    /// Bit 17: sets of `members / far`, the kernel's first try.
    Broken,
    /// Bit 18: sets of `near * far`; the last set takes what does not divide.
    Improved,
}

impl Raid10Layout {
    const OFFSET: u32 = 1 << 16;
    const FAR_SETS_SHIFT: u32 = 17;
    const MAX_COPIES: u8 = 200;

    /// Copies of each chunk.
    #[must_use]
    pub fn copies(self) -> u32 {
        u32::from(self.near) * u32::from(self.far)
    }

    /// Returns whether md moves data from and to such a layout.
    pub(crate) fn can_move(self) -> bool {
        self.far == 1 || self.offset && self.far_sets == FarSets::Original
    }

    /// Members in a far set; the last set has also those that do not fill one.
    pub(crate) fn far_set_size(self, raid_disks: u32) -> u32 {
        match self.far_sets {
            FarSets::Original => raid_disks,
            FarSets::Broken => raid_disks / u32::from(self.far.max(1)),
            FarSets::Improved => self.copies(),
        }
    }

    /// Checks that this layout stores every chunk, each copy on a member of its own, on so many
    /// members. md starts some arrays that do not, and they lose data.
    ///
    /// # Errors
    /// The reason.
    pub fn check(self, raid_disks: u32) -> Result<(), LayoutError> {
        let copies = self.copies();
        if copies < 2 || copies > raid_disks {
            return Err(LayoutError::Copies { copies, raid_disks });
        }
        if self.far == 1 {
            return Ok(());
        }
        let set = self.far_set_size(raid_disks);
        let wraps = self.offset && !raid_disks.is_multiple_of(u32::from(self.near));
        let odd_set = self.near > 1 && !raid_disks.is_multiple_of(set) && raid_disks > 2 * set;
        if set < copies || wraps || odd_set {
            return Err(LayoutError::Overlap { name: self.name(), raid_disks });
        }
        Ok(())
    }

    fn decode(number: u32) -> Option<Self> {
        let [near, far, ..] = number.to_le_bytes();
        let far_sets = match number >> Self::FAR_SETS_SHIFT {
            0 => FarSets::Original,
            1 => FarSets::Broken,
            2 => FarSets::Improved,
            _ => return None,
        };
        Some(Self { near, far, offset: number & Self::OFFSET != 0, far_sets })
    }

    fn encode(self) -> u32 {
        let far_sets = match self.far_sets {
            FarSets::Original => 0,
            FarSets::Broken => 1,
            FarSets::Improved => 2,
        };
        let offset = if self.offset { Self::OFFSET } else { 0 };
        u32::from(self.near) | u32::from(self.far) << 8 | offset | far_sets << Self::FAR_SETS_SHIFT
    }

    /// `near=2`, `far=2`, `offset=2`, `near=2, far=2`: as `mdadm --detail` prints it.
    fn name(self) -> String {
        let far = if self.offset { "offset" } else { "far" };
        match (self.near, self.far) {
            (near, 1) => format!("near={near}"),
            (1, copies) => format!("{far}={copies}"),
            (near, copies) => format!("near={near}, {far}={copies}"),
        }
    }

    /// `n2`, `f2`, `o2`.
    fn parse(name: &str) -> Option<Self> {
        let name = if name == "default" { "n2" } else { name };
        let plain = Self { near: 1, far: 1, offset: false, far_sets: FarSets::Original };
        let digits = name.get(1..)?;
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let copies = digits.parse().ok().filter(|n| (1..=Self::MAX_COPIES).contains(n))?;
        match name.as_bytes()[0] {
            b'n' => Some(Self { near: copies, ..plain }),
            b'f' => Some(Self { far: copies, ..plain }),
            b'o' => Some(Self { far: copies, offset: true, ..plain }),
            _ => None,
        }
    }
}

/// raid0 with members of unequal size: how chunks lie in the later zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Raid0Layout {
    /// 1: the first member of a row follows from the chunk's number in the array (before 3.14).
    Original,
    /// 2: it follows from the chunk's number in its zone (since 3.14).
    Alternate,
}

/// The layout that goes with a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// linear, raid1, raid4, and a raid0 that does not say (which is enough for equal members).
    None,
    /// raid0.
    Raid0(Raid0Layout),
    /// raid5 and raid6.
    Parity(ParityLayout),
    /// raid10.
    Raid10(Raid10Layout),
}

/// The reason why a layout cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// A superblock names a layout that its level does not have.
    #[error("{level} has no layout number {number}")]
    Number {
        /// Level.
        level: Level,
        /// Number.
        number: u32,
    },
    /// A user names one.
    #[error("{level} has no layout '{name}'")]
    Name {
        /// Level.
        level: Level,
        /// The name that was asked for.
        name: String,
        /// The names that there are.
        choices: &'static str,
    },
    /// raid10 with fewer than two copies, or more copies than members.
    #[error("raid10 cannot keep {copies} copies on {raid_disks} members")]
    Copies {
        /// Copies of each chunk.
        copies: u32,
        /// Members.
        raid_disks: u32,
    },
    /// raid10 whose copies would fall on one another.
    #[error("raid10 layout {name} on {raid_disks} members puts copies on top of each other")]
    Overlap {
        /// Layout.
        name: String,
        /// Members.
        raid_disks: u32,
    },
}

impl Advised for LayoutError {
    fn next(&self) -> Next {
        match self {
            Self::Number { .. } => "the superblock is damaged, or newer than this version".into(),
            Self::Name { choices, .. } => format!("use {choices}").into(),
            Self::Copies { raid_disks, .. } => format!("use 2 to {raid_disks}").into(),
            Self::Overlap { .. } => "use another layout".into(),
        }
    }
}

impl Layout {
    /// Returns the layout that `create` takes when nothing is said; mdadm's defaults.
    #[must_use]
    pub const fn default_for(level: Level) -> Self {
        match level {
            Level::Linear | Level::Raid1 | Level::Raid4 => Self::None,
            Level::Raid0 => Self::Raid0(Raid0Layout::Original),
            Level::Raid5 | Level::Raid6 => Self::Parity(ParityLayout::LeftSymmetric),
            Level::Raid10 => Self::Raid10(Raid10Layout {
                near: 2,
                far: 1,
                offset: false,
                far_sets: FarSets::Original,
            }),
        }
    }

    /// Understands the layout field of a superblock. For raid0, pass 0 where the feature bit
    /// `RAID0_LAYOUT` is clear. Levels without layouts ignore the field, as md does.
    ///
    /// # Errors
    /// The level has no such layout, or not with so many members.
    pub fn decode(level: Level, number: u32, raid_disks: u32) -> Result<Self, LayoutError> {
        let unknown = LayoutError::Number { level, number };
        match level {
            Level::Linear | Level::Raid1 | Level::Raid4 => Ok(Self::None),
            Level::Raid0 => match number {
                0 | u32::MAX => Ok(Self::None),
                1 => Ok(Self::Raid0(Raid0Layout::Original)),
                2 => Ok(Self::Raid0(Raid0Layout::Alternate)),
                _ => Err(unknown),
            },
            Level::Raid5 | Level::Raid6 => ParityLayout::ALL
                .into_iter()
                .find(|layout| *layout as u32 == number && layout.fits(level))
                .map(Self::Parity)
                .ok_or(unknown),
            Level::Raid10 => {
                let layout = Raid10Layout::decode(number).ok_or(unknown)?;
                layout.check(raid_disks)?;
                Ok(Self::Raid10(layout))
            }
        }
    }

    /// The layout field of a superblock.
    #[must_use]
    pub fn encode(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Raid0(Raid0Layout::Original) => 1,
            Self::Raid0(Raid0Layout::Alternate) => 2,
            Self::Parity(layout) => layout as u32,
            Self::Raid10(layout) => layout.encode(),
        }
    }

    /// Understands the name of a layout as mdadm takes it: `left-symmetric`, `ls`, `n2`, …
    ///
    /// # Errors
    /// The level has no layout of that name.
    pub fn parse(level: Level, name: &str) -> Result<Self, LayoutError> {
        let found = match level {
            Level::Linear | Level::Raid1 | Level::Raid4 => None,
            Level::Raid0 => match name {
                "original" | "1" | "default" => Some(Self::Raid0(Raid0Layout::Original)),
                "alternate" | "2" => Some(Self::Raid0(Raid0Layout::Alternate)),
                "dangerous" => Some(Self::None),
                _ => None,
            },
            Level::Raid5 | Level::Raid6 => ParityLayout::parse(level, name).map(Self::Parity),
            Level::Raid10 => Raid10Layout::parse(name).map(Self::Raid10),
        };
        found.ok_or_else(|| LayoutError::Name {
            level,
            name: name.to_owned(),
            choices: Self::choices(level),
        })
    }

    /// The names for a message.
    const fn choices(level: Level) -> &'static str {
        match level {
            Level::Linear | Level::Raid1 | Level::Raid4 => "none, it has no layouts",
            Level::Raid0 => "original or alternate",
            Level::Raid5 => {
                "left-symmetric, right-symmetric, left-asymmetric, right-asymmetric, \
                 parity-first or parity-last"
            }
            Level::Raid6 => {
                "left-symmetric, right-symmetric, left-asymmetric, right-asymmetric, \
                 parity-first, parity-last, ddf-zero-restart, ddf-N-restart, ddf-N-continue, \
                 left-symmetric-6, right-symmetric-6, left-asymmetric-6, right-asymmetric-6 or \
                 parity-first-6"
            }
            Level::Raid10 => "n, f or o and the number of copies, as in n2",
        }
    }

    /// The name as `mdadm --detail` prints it. [`Layout::None`] has none: mdadm prints no layout
    /// line then, or `-unknown-` for raid0.
    #[must_use]
    pub fn name(self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Raid0(Raid0Layout::Original) => Some("original".to_owned()),
            Self::Raid0(Raid0Layout::Alternate) => Some("alternate".to_owned()),
            Self::Parity(layout) => Some(layout.name().to_owned()),
            Self::Raid10(layout) => Some(layout.name()),
        }
    }
}

#[cfg(test)]
mod tests;
