//! raid4, raid5 and raid6: rows of chunks, one or two of each row parity.

use super::{GeometryError, MAX_SECTORS, Shape, Strip, role};
use crate::Role;
use crate::level::{Layout, Level, ParityLayout};
use braid_parity::gf;

#[derive(Clone, Debug)]
pub(super) struct StripeRows {
    layout: ParityLayout,
    two_parities: bool,
    raid_disks: u32,
    data_disks: u32,
    /// Members over which P moves: all, or all but the last that always holds Q.
    turn_disks: u32,
    chunk_sectors: u64,
    member_sectors: u64,
    array_sectors: u64,
}

/// The first data chunk of a stripe and those after it.
#[derive(Clone, Copy)]
enum Order {
    /// In member order, leaving out parity.
    ByMember,
    /// From this member on, around the members over which P moves.
    From(u32),
}

impl StripeRows {
    /// `size_sectors` holds a chunk.
    pub(super) fn new(
        shape: &Shape<'_>,
        layout: Layout,
        size_sectors: u64,
    ) -> Result<Self, GeometryError> {
        let level = shape.level;
        let layout = match layout {
            Layout::None if level == Level::Raid4 => ParityLayout::ParityLast,
            Layout::Parity(layout) if layout.fits(level) => layout,
            _ => return Err(GeometryError::Layout { level }),
        };
        let raid_disks = shape.raid_disks;
        let data_disks = raid_disks - level.parity_disks();
        check_q(shape, layout)?;
        let chunk_sectors = u64::from(shape.chunk_sectors);
        let member_sectors = size_sectors - size_sectors % chunk_sectors;
        let array_sectors = member_sectors
            .checked_mul(u64::from(data_disks))
            .filter(|&sectors| sectors <= MAX_SECTORS)
            .ok_or(GeometryError::TooLarge)?;
        let turn_disks = raid_disks - u32::from(layout.keeps_q_apart());
        Ok(Self {
            layout,
            two_parities: level == Level::Raid6,
            raid_disks,
            data_disks,
            turn_disks,
            chunk_sectors,
            member_sectors,
            array_sectors,
        })
    }

    pub(super) const fn array_sectors(&self) -> u64 {
        self.array_sectors
    }

    pub(super) const fn member_sectors(&self) -> u64 {
        self.member_sectors
    }

    pub(super) fn find(&self, sector: u64) -> Strip {
        let chunk = sector / self.chunk_sectors;
        let stripe = chunk / u64::from(self.data_disks);
        let index = (chunk % u64::from(self.data_disks)) as u32;
        Strip {
            role: self.data_role(stripe, index),
            sector: stripe * self.chunk_sectors + sector % self.chunk_sectors,
        }
    }

    pub(super) fn sector_at(&self, strip: Strip) -> Option<u64> {
        if strip.sector >= self.member_sectors {
            return None;
        }
        let stripe = strip.sector / self.chunk_sectors;
        let index = self.data_index(stripe, strip.role)?;
        let chunk = stripe * u64::from(self.data_disks) + u64::from(index);
        Some(chunk * self.chunk_sectors + strip.sector % self.chunk_sectors)
    }

    pub(super) fn parity_roles(&self, stripe: u64) -> (Role, Option<Role>) {
        let (p, q) = self.parity(stripe);
        (role(p), q.map(role))
    }

    pub(super) fn data_role(&self, stripe: u64, index: u32) -> Role {
        debug_assert!(index < self.data_disks, "data chunk {index} beyond the stripe");
        let (p, q) = self.parity(stripe);
        match self.order(p) {
            Order::From(first) => role((first + index) % self.turn_disks),
            Order::ByMember => {
                let (low, high) = sorted(p, q);
                let after_low = index + u32::from(index >= low);
                let after_both = after_low + u32::from(high.is_some_and(|high| after_low >= high));
                role(after_both)
            }
        }
    }

    pub(super) fn data_index(&self, stripe: u64, role: Role) -> Option<u32> {
        let (p, q) = self.parity(stripe);
        let member = u32::from(role.0);
        if member == p || Some(member) == q {
            return None;
        }
        match self.order(p) {
            Order::From(first) => Some((member + self.turn_disks - first) % self.turn_disks),
            Order::ByMember => Some(member - parities_below(member, p, q)),
        }
    }

    /// md counts the powers of the generator from the member after Q, leaving out P; in the ddf
    /// layouts a member's number is its power.
    pub(super) fn q_coef(&self, stripe: u64, index: u32) -> u8 {
        let member = u32::from(self.data_role(stripe, index).0);
        let (p, q) = self.parity(stripe);
        if is_ddf(self.layout) {
            return gf::pow2(member as usize);
        }
        let first = q.map_or(0, |q| (q + 1) % self.raid_disks);
        let distance = |to: u32| (to + self.raid_disks - first) % self.raid_disks;
        let slot = distance(member) - u32::from(distance(p) < distance(member));
        gf::pow2(slot as usize)
    }

    /// Members of P and Q.
    fn parity(&self, stripe: u64) -> (u32, Option<u32>) {
        use ParityLayout as L;
        let turn = (stripe % u64::from(self.turn_disks)) as u32;
        let last = self.turn_disks - 1;
        let down = last - turn;
        let p = match self.layout {
            L::LeftAsymmetric
            | L::LeftSymmetric
            | L::DdfNContinue
            | L::LeftAsymmetric6
            | L::LeftSymmetric6 => down,
            L::DdfNRestart => (down + last) % self.raid_disks,
            L::RightAsymmetric
            | L::RightSymmetric
            | L::DdfZeroRestart
            | L::RightAsymmetric6
            | L::RightSymmetric6 => turn,
            L::ParityFirst | L::ParityFirst6 => 0,
            L::ParityLast => self.data_disks,
        };
        if !self.two_parities {
            return (p, None);
        }
        let q = match self.layout {
            _ if self.layout.keeps_q_apart() => self.raid_disks - 1,
            L::DdfNContinue => (p + self.raid_disks - 1) % self.raid_disks,
            _ => (p + 1) % self.raid_disks,
        };
        (p, Some(q))
    }

    /// In which order the data of a stripe lies whose P is there.
    const fn order(&self, p: u32) -> Order {
        use ParityLayout as L;
        match self.layout {
            L::LeftSymmetric | L::RightSymmetric => {
                Order::From((p + 1 + self.two_parities as u32) % self.turn_disks)
            }
            L::DdfNContinue | L::LeftSymmetric6 | L::RightSymmetric6 => {
                Order::From((p + 1) % self.turn_disks)
            }
            _ => Order::ByMember,
        }
    }
}

/// Beyond 255 data strips the powers of the generator repeat, and two lost strips would not come
/// back. md does not look.
fn check_q(shape: &Shape<'_>, layout: ParityLayout) -> Result<(), GeometryError> {
    const POWERS: u32 = 255;
    let max = if is_ddf(layout) { POWERS } else { POWERS + 2 };
    let Shape { level, raid_disks, .. } = *shape;
    if level == Level::Raid6 && raid_disks > max {
        let min = level.min_members();
        return Err(GeometryError::Members { level, raid_disks, min, max });
    }
    Ok(())
}

const fn is_ddf(layout: ParityLayout) -> bool {
    matches!(
        layout,
        ParityLayout::DdfZeroRestart | ParityLayout::DdfNRestart | ParityLayout::DdfNContinue
    )
}

fn sorted(p: u32, q: Option<u32>) -> (u32, Option<u32>) {
    match q {
        Some(q) => (p.min(q), Some(p.max(q))),
        None => (p, None),
    }
}

fn parities_below(member: u32, p: u32, q: Option<u32>) -> u32 {
    u32::from(p < member) + u32::from(q.is_some_and(|q| q < member))
}
