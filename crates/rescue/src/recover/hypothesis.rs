//! A way in which members may belong together, and what superblocks that are left say of it.

use std::cmp::Ordering;

use braid_array::Role;
use braid_array::assemble::{Described, DescribedMember};
use braid_array::code::Losses;

use super::shapes::Shape;
use super::walked::Walked;

/// A member in a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberInRole {
    /// The member, by its number.
    pub member: usize,
    /// Where its data begin, in sectors.
    pub data_offset: u64,
}

/// A way in which members may belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hypothesis {
    /// Level, layout, chunk and number of roles.
    pub shape: Shape,
    /// The member in each role.
    pub roles: Vec<Option<MemberInRole>>,
    /// By which structure it was found.
    pub structure: usize,
    /// Where in the array that begins, in sectors.
    pub origin: u64,
    /// Equations that are met.
    pub met: usize,
    /// Equations that could be.
    pub of: usize,
    /// Blocks that were seen in parity alone, by what it says.
    pub unseen: usize,
    /// The things that lie where the file system says so that was read by it.
    pub(super) walked: Walked,
    /// Members that have their roles by superblocks, which tell level, layout and chunk, too.
    pub hinted: Vec<usize>,
    /// Members that the array went on without, by superblocks.
    pub behind: Vec<usize>,
}

impl Hypothesis {
    pub(super) fn empty(shape: Shape, structure: usize, origin: u64) -> Self {
        let roles = vec![None; shape.raid_disks as usize];
        Self {
            shape,
            roles,
            structure,
            origin,
            met: 0,
            of: 0,
            unseen: 0,
            walked: Walked::default(),
            hinted: vec![],
            behind: vec![],
        }
    }

    /// Gives members the roles that their superblocks have; `None` where they have none.
    pub(super) fn take(&mut self, hints: &Hints) -> Option<()> {
        for (role, place) in &hints.roles {
            *self.roles.get_mut(role.index())? = Some(*place);
            self.hinted.push(place.member);
        }
        Some(())
    }

    /// The used part of each member, in sectors.
    pub(super) fn member_sectors(&self, sizes: &[u64]) -> u64 {
        let room = |place: &MemberInRole| sizes[place.member].saturating_sub(place.data_offset);
        self.roles.iter().flatten().map(room).min().unwrap_or(0)
    }

    /// Returns whether an array can do without those that are missing.
    pub(super) fn is_whole_enough(&self) -> bool {
        let Shape { level, layout, raid_disks, .. } = self.shape;
        let missing = |role: Role| self.roles.get(role.index()).is_none_or(Option::is_none);
        Losses::of(level, layout, raid_disks).is_ok_and(|losses| losses.survives(missing))
    }

    /// Returns whether it can be read as an array that somebody describes. Only then it is advised.
    pub(super) fn can_be_read(&self, sizes: &[u64]) -> bool {
        let member = |place: &Option<MemberInRole>| {
            let MemberInRole { member, data_offset } = (*place)?;
            let device = member.to_string();
            Some(DescribedMember { device, device_sectors: sizes[member], data_offset })
        };
        let described = Described {
            name: String::new(),
            level: self.shape.level,
            layout: self.shape.layout,
            chunk_sectors: self.shape.chunk_sectors,
            members: self.roles.iter().map(member).collect(),
        };
        described.config().is_ok()
    }

    /// Roles without a member.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.roles.iter().filter(|role| role.is_none()).count()
    }

    /// The share of equations that are met, in percent.
    #[must_use]
    pub fn percent(&self) -> f64 {
        if self.of == 0 { 0.0 } else { self.met as f64 * 100.0 / self.of as f64 }
    }

    /// The same of all blocks, also of those about which it has to say that they are elsewhere.
    #[must_use]
    pub fn percent_of_all(&self) -> f64 {
        let all = self.of + self.unseen;
        if all == 0 { 0.0 } else { self.met as f64 * 100.0 / all as f64 }
    }

    /// Members that have no role, out of so many.
    #[must_use]
    pub fn left_out(&self, members: usize) -> Vec<usize> {
        let has_role = |member| self.roles.iter().flatten().any(|place| place.member == member);
        (0..members).filter(|member| !has_role(*member)).collect()
    }
}

/// The array by the superblocks that are left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hints {
    /// Its geometry.
    pub shape: Shape,
    /// The members that have one.
    pub roles: Vec<(Role, MemberInRole)>,
    /// Members that were in the array once, and that it went on without.
    pub behind: Vec<usize>,
}

/// Orders two hypotheses: the better one comes first.
pub(super) fn order(a: &Hypothesis, b: &Hypothesis) -> Ordering {
    (b.met.cmp(&a.met))
        .then(a.of.cmp(&b.of))
        .then(b.hinted.len().cmp(&a.hinted.len()))
        .then(a.missing().cmp(&b.missing()))
        .then(b.roles.len().cmp(&a.roles.len()))
        .then(a.shape.rarity().cmp(&b.shape.rarity()))
}
