//! Slice-sets: the unit in which stripes are written. A slice-set is the same range of every block
//! of one stripe; some or all of its data blocks are given new content.

use crate::ids::{Generation, Position, StripeNo};
use crate::schedule::Planner;
use braid_array::Role;

/// Data blocks of a stripe that are given new content, by data index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    blocks: u32,
    /// A bit for each of the first 64, and words of the others: most stripes have no others.
    first: u64,
    others: Vec<u64>,
}

impl Touched {
    /// Creates a set with none of `blocks` blocks.
    #[must_use]
    pub fn none(blocks: u32) -> Self {
        let words = blocks.div_ceil(64) as usize;
        Self { blocks, first: 0, others: vec![0; words.saturating_sub(1)] }
    }

    /// Creates a set with all of `blocks` blocks.
    #[must_use]
    pub fn all(blocks: u32) -> Self {
        let mut touched = Self::none(blocks);
        (0..blocks).for_each(|index| touched.insert(index));
        touched
    }

    /// Adds a block.
    ///
    /// # Panics
    /// On a block the stripe does not have.
    pub fn insert(&mut self, index: u32) {
        assert!(index < self.blocks, "block {index} of {}", self.blocks);
        let word = match index as usize / 64 {
            0 => &mut self.first,
            number => &mut self.others[number - 1],
        };
        *word |= 1 << (index % 64);
    }

    /// Returns whether this block is touched.
    #[must_use]
    pub fn contains(&self, index: u32) -> bool {
        let word = match index as usize / 64 {
            0 => self.first,
            number => self.others.get(number - 1).copied().unwrap_or(0),
        };
        word >> (index % 64) & 1 == 1
    }

    /// Returns the number of touched blocks.
    #[must_use]
    pub fn count(&self) -> u32 {
        let others = self.others.iter().map(|word| word.count_ones());
        self.first.count_ones() + others.sum::<u32>()
    }

    /// Returns the touched block, if there is exactly one.
    #[must_use]
    pub fn lone(&self) -> Option<u32> {
        if self.count() == 1 { self.iter().next() } else { None }
    }

    /// Returns the number of blocks of the stripe, touched or not.
    #[must_use]
    pub const fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns whether every block of the stripe is touched.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.count() == self.blocks
    }

    /// Returns the indices of the touched blocks, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0..self.blocks).filter(|&index| self.contains(index))
    }
}

/// Roles of an array, of which there are at most 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Roles(pub u64);

impl Roles {
    /// No role.
    pub const NONE: Self = Self(0);

    /// Returns all roles of an array over this many nodes.
    ///
    /// # Panics
    /// With more than 64 nodes.
    #[must_use]
    pub fn all(nodes: u16) -> Self {
        assert!(nodes <= 64, "{nodes} roles");
        Self(1_u64.checked_shl(nodes.into()).map_or(u64::MAX, |end| end - 1))
    }

    /// Adds a role.
    ///
    /// # Panics
    /// From role 64 on.
    pub fn insert(&mut self, role: Role) {
        assert!(role.0 < 64, "role {role}");
        self.0 |= 1 << role.0;
    }

    /// Removes a role.
    pub const fn remove(&mut self, role: Role) {
        if role.0 < 64 {
            self.0 &= !(1 << role.0);
        }
    }

    /// Returns whether this role is among them.
    #[must_use]
    pub const fn contains(self, role: Role) -> bool {
        role.0 < 64 && self.0 >> role.0 & 1 == 1
    }

    /// Returns the number of roles.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Returns whether there is no role.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the roles, ascending.
    pub fn iter(self) -> impl Iterator<Item = Role> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let role = u16::try_from(rest.trailing_zeros()).ok().filter(|&role| role < 64)?;
            rest &= rest - 1;
            Some(Role(role))
        })
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> Self {
        let mut all = Self::NONE;
        roles.into_iter().for_each(|role| all.insert(role));
        all
    }
}

/// Strategy for the parities of a slice-set. A schedule adds up the values of data blocks. The
/// strategies differ in these values, and in the use of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriteStrategy {
    /// The value of a touched block is its new content, which replaces the old. Sums are the new
    /// parities. Either all blocks are touched, or there are copies only and no parities: then
    /// copies of untouched blocks stay as they are.
    FullStripe,
    /// As `FullStripe`, but the value of an untouched block is its stored content, which its node
    /// reads. With no block touched this makes the parities right again.
    Reconstruct,
    /// The value of a touched block is the new content plus the old, which its node reads; the new
    /// content replaces the old. For a block whose node is missing, the client puts that value.
    /// Sums are added to the old parities. Parities without a touched block stay as they are.
    ReadModifyWrite,
    /// No block gets new content: this role gets all its blocks of the slice back, from the blocks
    /// of the other roles that are not missing. See [`Chains`](crate::schedule::Chains).
    Restore(Role),
    /// The stripe reads as zeroes, all of it: all blocks are touched, and no content travels. The
    /// nodes give the space back.
    Zero,
}

/// Pattern of similar slice-sets: missing roles, variant of the stripe, planner, strategy, and the
/// lone block if there is only one.
pub(crate) type Pattern = (Roles, u16, Planner, WriteStrategy, Option<u32>);

/// One slice-set, as the client opens it at every node that has a part in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its place in the pipeline; free again when all nodes have closed it.
    pub position: Position,
    /// Number of earlier uses of the position; tells late messages.
    pub generation: Generation,
    /// Grows with every slice-set of an epoch: the order of slice-sets over the same bytes. Epoch
    /// and number are the [version](crate::ids::SetVersion).
    pub number: u64,
    /// The stripe.
    pub stripe: StripeNo,
    /// First byte of the range, from the beginning of every block.
    pub offset: u32,
    /// Length of the range.
    pub len: u32,
    /// Strategy for the parities.
    pub strategy: WriteStrategy,
    /// Planner of the parities.
    pub planner: Planner,
    /// Durable at every node before that node closes it.
    pub fua: bool,
    /// Blocks with new content.
    pub touched: Touched,
    /// Roles without a part: their cells stay unchanged.
    pub missing: Roles,
    /// Recorded where there are journals.
    pub log: bool,
    /// Relayed: the client tells only one of the nodes with a part, the only one that gets slices
    /// from the client. The relay tells the others, each before it puts a slice there.
    pub relay: bool,
}

impl Set {
    /// Returns the pattern that the slice-set shares with many others, over a stripe of this
    /// variant; `None` if it shares none.
    pub(crate) fn pattern(&self, variant: u16) -> Option<Pattern> {
        let lone = self.touched.lone();
        let common = match self.strategy {
            WriteStrategy::FullStripe => self.touched.is_all() || lone.is_some(),
            WriteStrategy::Reconstruct | WriteStrategy::ReadModifyWrite => lone.is_some(),
            WriteStrategy::Zero => false,
            WriteStrategy::Restore(_) => true,
        };
        common.then_some((self.missing, variant, self.planner, self.strategy, lone))
    }
}

const TRANSFER_BITS: u32 = 12;
const POSITION_BITS: u32 = 10;

/// Transfers of a schedule that 32 bits can tell apart.
pub const MAX_TRANSFERS: usize = 1 << TRANSFER_BITS;
/// Positions of a pipeline that 32 bits can tell apart.
pub const MAX_POSITIONS: u16 = 1 << POSITION_BITS;

/// Announcement of a slice at the node that gets it, in 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imm {
    /// Position of its slice-set.
    pub position: Position,
    /// Number of the transfer in its schedule.
    pub transfer: u16,
    /// The lowest 10 bits of the generation.
    pub generation: u16,
}

impl Imm {
    /// Returns the announcement of a transfer of a slice-set.
    #[must_use]
    pub fn of(set: &Set, transfer: usize) -> Self {
        let transfer = u16::try_from(transfer).expect("below MAX_TRANSFERS");
        Self { position: set.position, transfer, generation: Self::generation(set.generation) }
    }

    /// Returns the part of a generation that fits into an announcement.
    #[must_use]
    pub const fn generation(generation: Generation) -> u16 {
        (generation.0 & 0x3ff) as u16
    }

    /// Returns the 32 bits.
    #[must_use]
    pub fn encode(self) -> u32 {
        u32::from(self.generation) << (TRANSFER_BITS + POSITION_BITS)
            | u32::from(self.position.0) << TRANSFER_BITS
            | u32::from(self.transfer)
    }

    /// Decodes 32 bits; any are an announcement.
    #[must_use]
    pub const fn decode(bits: u32) -> Self {
        Self {
            generation: (bits >> (TRANSFER_BITS + POSITION_BITS)) as u16,
            position: Position((bits >> TRANSFER_BITS & (MAX_POSITIONS as u32 - 1)) as u16),
            transfer: (bits & (MAX_TRANSFERS as u32 - 1)) as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_come_back() {
        for (position, transfer, generation) in [(0, 0, 0), (1023, 4095, 1023), (5, 77, 512)] {
            let imm = Imm { position: Position(position), transfer, generation };
            assert_eq!(Imm::decode(imm.encode()), imm);
        }
        assert_eq!(Imm::generation(Generation(1024 + 3)), 3);
    }

    #[test]
    fn roles_are_counted_and_listed() {
        let mut roles = Roles::NONE;
        assert!(roles.is_empty() && Roles::all(64) == Roles(u64::MAX));
        for role in [63, 0, 5] {
            roles.insert(Role(role));
        }
        assert_eq!(roles.iter().collect::<Vec<_>>(), [Role(0), Role(5), Role(63)]);
        assert_eq!(roles.iter().collect::<Roles>(), roles);
        assert!(!roles.contains(Role(64)) && !roles.contains(Role(1)));
        roles.remove(Role(63));
        assert_eq!((roles, roles.count()), (Roles(33), 2));
        assert_eq!(Roles::all(6), Roles(63));
    }

    #[test]
    fn touched_blocks_are_counted_and_listed() {
        let mut touched = Touched::none(70);
        assert!(!touched.is_all() && touched.count() == 0);
        for index in [0, 63, 64, 69] {
            touched.insert(index);
        }
        assert_eq!(touched.iter().collect::<Vec<_>>(), [0, 63, 64, 69]);
        assert!(!touched.contains(70) && !touched.contains(1));
        assert!(Touched::all(70).is_all());
    }
}
