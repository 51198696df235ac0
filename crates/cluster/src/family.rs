//! The code of an array over nodes, and its form in superblocks.

use braid_array::Role;
use braid_array::level::{Layout, LayoutError, Level};
use braid_array::refusal::{Advised, Next};

use crate::set::Roles;
use crate::xor2d::{NodesError, Xor2d};
use crate::{Planner, Schedule};
use braid_array::code::levels::{self, LevelError};
use braid_array::code::{Losses, Recovery, StripeCode};

/// The level in the superblocks of an array with the 2-D XOR code. md has no such level and
/// refuses to run the array; its members would make no sense to it.
pub const XOR2D_MD_LEVEL: i32 = 6262;

/// The name of its layout.
pub const XOR2D_NAME: &str = "xor2d";

/// The code of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// A level of md's: md can assemble the members.
    Md {
        /// Level.
        level: Level,
        /// Layout.
        layout: Layout,
    },
    /// RAID-6 by rows and diagonals.
    Xor2d,
}

/// Reason why there is no such code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FamilyError {
    /// The number in a superblock is no level's.
    #[error("level number {0} is not one that can run over nodes")]
    Level(i32),
    /// The layout is not one of the level's.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The level cannot be cut into stripes.
    #[error(transparent)]
    Stripes(#[from] LevelError),
    /// The 2-D XOR code does not run over this many nodes.
    #[error(transparent)]
    Nodes(#[from] NodesError),
}

impl Advised for FamilyError {
    fn next(&self) -> Next {
        match self {
            Self::Level(_) => "use another level".into(),
            Self::Layout(error) => error.next(),
            Self::Stripes(error) => error.next(),
            Self::Nodes(error) => error.next(),
        }
    }
}

impl Family {
    /// Creates the family from the numbers in a superblock.
    ///
    /// # Errors
    /// Numbers without a meaning.
    pub fn decode(level: i32, layout: u32, nodes: u32) -> Result<Self, FamilyError> {
        if level == XOR2D_MD_LEVEL {
            Xor2d::new(nodes)?;
            return Ok(Self::Xor2d);
        }
        let level = Level::from_md(level).ok_or(FamilyError::Level(level))?;
        Ok(Self::Md { level, layout: Layout::decode(level, layout, nodes)? })
    }

    /// Returns the numbers for a superblock: level and layout.
    #[must_use]
    pub fn encode(self) -> (i32, u32) {
        match self {
            Self::Md { level, layout } => (level.to_md(), layout.encode()),
            Self::Xor2d => (XOR2D_MD_LEVEL, 0),
        }
    }

    /// Returns the level as people say it: `raid6` for the 2-D XOR code too.
    #[must_use]
    pub const fn level(self) -> Level {
        match self {
            Self::Md { level, .. } => level,
            Self::Xor2d => Level::Raid6,
        }
    }

    /// Returns the layout as people say it; `None` for levels without one.
    #[must_use]
    pub fn layout_name(self) -> Option<String> {
        match self {
            Self::Md { layout, .. } => layout.name(),
            Self::Xor2d => Some(XOR2D_NAME.to_owned()),
        }
    }

    /// Returns whether members are divided into chunks; those of a mirror are not.
    #[must_use]
    pub fn has_chunk(self) -> bool {
        !matches!(self.level(), Level::Linear | Level::Raid1)
    }

    /// Returns whether a member can be lost.
    #[must_use]
    pub fn is_redundant(self) -> bool {
        !matches!(self.level(), Level::Linear | Level::Raid0)
    }

    /// Returns whether a lost member is computed from sums; otherwise only copies can restore it.
    #[must_use]
    pub fn has_parities(self) -> bool {
        matches!(self.level(), Level::Raid4 | Level::Raid5 | Level::Raid6)
    }

    /// Returns the number of stripes after which the code repeats.
    #[must_use]
    pub const fn period(self, nodes: u16) -> u16 {
        match self {
            Self::Md { layout, .. } => levels::period(layout, nodes as u32) as u16,
            Self::Xor2d => 1,
        }
    }

    /// Returns the code of a stripe.
    ///
    /// # Errors
    /// No code over this many nodes.
    pub fn code(self, nodes: u16, stripe: u64) -> Result<StripeCode, FamilyError> {
        match self {
            Self::Md { level, layout } => {
                Ok(levels::stripe_code(level, layout, u32::from(nodes), stripe)?)
            }
            Self::Xor2d => Ok(Xor2d::new(u32::from(nodes))?.code().clone()),
        }
    }

    /// Returns the sets of nodes that may be lost together.
    ///
    /// # Errors No code over this many nodes.
    pub fn losses(self, nodes: u16) -> Result<Losses, FamilyError> {
        match self {
            Self::Md { level, layout } => {
                Ok(Losses::of(level, layout, nodes.into()).map_err(LevelError::from)?)
            }
            Self::Xor2d => Ok(Losses::any(nodes, 2)),
        }
    }

    /// Returns how the blocks of these roles in a stripe of this code are restored, from as few
    /// blocks as known; `None` when they cannot be.
    #[must_use]
    pub fn recovery(self, code: &StripeCode, lost: Roles) -> Option<Recovery> {
        let lost: Vec<Role> = lost.iter().collect();
        match (self, &lost[..]) {
            (Self::Xor2d, &[only]) if only.0 < code.nodes() => {
                Some(Xor2d::new(code.nodes().into()).ok()?.fewest_reads(only))
            }
            _ => Recovery::plan(code, &lost),
        }
    }

    /// Returns a schedule for a stripe; `None` when the family has none of that kind.
    #[must_use]
    pub fn schedule(self, nodes: u16, stripe: u64, planner: Planner) -> Option<Schedule> {
        match self {
            Self::Md { .. } => Schedule::plan(&self.code(nodes, stripe).ok()?, planner).ok(),
            Self::Xor2d => Xor2d::new(u32::from(nodes)).ok()?.schedule(planner).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use braid_array::level::ParityLayout;

    use super::*;

    #[test]
    fn numbers_come_back_and_md_has_no_such_level() {
        assert_eq!(Level::from_md(XOR2D_MD_LEVEL), None);
        assert_eq!(Family::decode(XOR2D_MD_LEVEL, 0, 5), Ok(Family::Xor2d));
        assert!(Family::decode(XOR2D_MD_LEVEL, 0, 35).is_err());
        for level in Level::ALL {
            let family = Family::Md { level, layout: Layout::default_for(level) };
            let (number, layout) = family.encode();
            assert_eq!(Family::decode(number, layout, 6), Ok(family));
        }
    }

    #[test]
    fn codes_of_every_layout_repeat_after_their_period_and_not_before() {
        for level in [Level::Raid5, Level::Raid6] {
            for layout in ParityLayout::ALL.into_iter().filter(|layout| layout.fits(level)) {
                let family = Family::Md { level, layout: Layout::Parity(layout) };
                let parities = |stripe| {
                    let code = family.code(5, stripe).expect("5 members suit both levels");
                    code.equations().iter().map(|e| e.parity.node).collect::<Vec<_>>()
                };
                let period = u64::from(family.period(5));
                for stripe in 0..20 {
                    assert_eq!(parities(stripe), parities(stripe + period), "{layout:?}");
                }
                for less in 1..period {
                    let differs = |stripe| parities(stripe) != parities(stripe + less);
                    assert!((0..20).any(differs), "{layout:?}");
                }
            }
        }
    }

    #[test]
    fn codes_repeat_after_their_period() {
        for level in [Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid10] {
            let family = Family::Md { level, layout: Layout::default_for(level) };
            let parities = |stripe| {
                let code = family.code(6, stripe).expect("6 members suit every level");
                code.equations().iter().map(|e| e.parity.node).collect::<Vec<_>>()
            };
            let period = u64::from(family.period(6));
            for stripe in 0..period {
                assert_eq!(parities(stripe), parities(stripe + 7 * period), "{level}");
            }
            assert_eq!(period == 1, parities(0) == parities(1), "{level}");
        }
    }
}
