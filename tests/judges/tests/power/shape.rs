//! The arrays whose power is cut, and where in them sectors lie.

use super::disk::SECTOR_BYTES;

/// An array, and how many members are lost with the power.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) level: u64,
    pub(super) members: u64,
    pub(super) chunk_kib: u64,
    pub(super) policy: Policy,
    pub(super) lost: u64,
}

/// Its consistency policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    Resync,
    Bitmap,
    PartialParity,
    /// Written through, or back: parts of stripes are answered from the journal, and go in place
    /// later.
    Journal {
        back: bool,
    },
}

impl Policy {
    /// Does it leave the write hole open?
    pub(super) const fn is_open(self) -> bool {
        matches!(self, Self::Resync | Self::Bitmap)
    }

    /// As `braid create` calls it, but for how a journal is used.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Resync => "resync",
            Self::Bitmap => "bitmap",
            Self::PartialParity => "ppl",
            Self::Journal { back: false } => "journal",
            Self::Journal { back: true } => "journal-back",
        }
    }
}

impl Shape {
    /// How it is called; it is also the array's name.
    pub(super) fn name(&self) -> String {
        let Self { level, members, lost, .. } = self;
        format!("power-{}-{level}-{members}-{lost}", self.policy.name())
    }

    const fn parities(&self) -> u64 {
        if self.level == 6 { 2 } else { 1 }
    }

    /// Sectors of the data of a stripe.
    pub(super) const fn stripe_sectors(&self) -> u64 {
        (self.members - self.parities()) * self.chunk_sectors()
    }

    const fn chunk_sectors(&self) -> u64 {
        self.chunk_kib * 1024 / SECTOR_BYTES as u64
    }

    /// The role that has the parity of a sector, in level 5.
    pub(super) fn parity_of(&self, sector: u64) -> u64 {
        assert_eq!(self.level, 5, "one parity, which moves");
        let stripe = sector / self.stripe_sectors();
        self.members - 1 - stripe % self.members
    }

    /// The role that has a sector, in md's left-symmetric layout and in level 4.
    pub(super) const fn role_of(&self, sector: u64) -> u64 {
        let chunk = sector / self.chunk_sectors();
        let data_members = self.members - self.parities();
        let data = chunk % data_members;
        if self.level == 4 {
            return data;
        }
        // The first parity moves down by one with each stripe, and data begins behind the last.
        let first_parity = self.members - 1 - chunk / data_members % self.members;
        (first_parity + self.parities() + data) % self.members
    }
}

#[test]
fn sectors_lie_where_md_has_them() {
    let shape =
        |level, members| Shape { level, members, chunk_kib: 4, policy: Policy::Resync, lost: 1 };
    let roles = |shape: Shape| (0..8).map(|chunk| shape.role_of(chunk * 8 + 7)).collect::<Vec<_>>();
    assert_eq!(roles(shape(4, 3)), [0, 1, 0, 1, 0, 1, 0, 1]);
    assert_eq!(roles(shape(5, 3)), [0, 1, 2, 0, 1, 2, 0, 1]);
    assert_eq!(roles(shape(6, 4)), [1, 2, 0, 1, 3, 0, 2, 3]);
    assert_eq!([0, 15, 16, 32, 48].map(|sector| shape(5, 3).parity_of(sector)), [2, 2, 1, 0, 2]);
}
