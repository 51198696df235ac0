//! Levels and layouts, by md's names and numbers.

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

/// How raid5 and raid6 rotate parity. The names are mdadm's, the numbers the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ParityLayout {
    /// 0
    LeftAsymmetric = 0,
    /// 1
    RightAsymmetric = 1,
    /// 2
    LeftSymmetric = 2,
    /// 3
    RightSymmetric = 3,
    /// 4
    ParityFirst = 4,
    /// 5
    ParityLast = 5,
    /// 8, raid6 only
    DdfZeroRestart = 8,
    /// 9, raid6 only
    DdfNRestart = 9,
    /// 10, raid6 only
    DdfNContinue = 10,
    /// 16, raid6 only: raid5's rotation over all but the last member, Q on the last
    LeftAsymmetric6 = 16,
    /// 17
    RightAsymmetric6 = 17,
    /// 18
    LeftSymmetric6 = 18,
    /// 19
    RightSymmetric6 = 19,
    /// 20
    ParityFirst6 = 20,
}

/// How raid10 spreads copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Raid10Layout {
    /// Copies side by side.
    pub near: u8,
    /// Copies far apart.
    pub far: u8,
    /// The far copies lie in the next chunk row (bit 16).
    pub offset: bool,
    /// The "improved" far set arrangement (bit 17).
    pub far_sets: FarSets,
}

/// Arrangement of far copies when members do not divide evenly (layout bits 17 and 18).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FarSets {
    /// One set of all members: layout bits 17 and 18 clear.
    Original,
    /// Bit 17: sets as the kernel first (wrongly) computed them.
    Broken,
    /// Bit 18: sets of far-copies members.
    Improved,
}

/// raid0 with members of unequal size: how chunks lie in the later zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Raid0Layout {
    /// 1: before Linux 3.14.
    Original,
    /// 2: since then.
    Alternate,
}

/// The layout that goes with a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// linear, raid1, raid4, and raid0 of equal members.
    None,
    /// raid0.
    Raid0(Raid0Layout),
    /// raid5 and raid6.
    Parity(ParityLayout),
    /// raid10.
    Raid10(Raid10Layout),
}
