//! The relation of members that rows prove.

use super::weights::Weighed;

/// The relation between members, by their rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// All hold the same.
    Alike,
    /// Some hold the same as another each; others are alone.
    Groups(Vec<Vec<usize>>),
    /// All add up to zero.
    OneParity,
    /// The same with another one, which is missing: rows say nothing.
    OneLost,
    /// Without one of them they add up to zero: in these rows it is this one alone.
    TwoParities(Vec<(u64, usize)>),
    /// With these weights they add up to zero: another one is missing.
    OneMissing(Vec<Weighed>),
}

/// A set of members that rows prove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Redundancy {
    pub(super) relation: Relation,
    /// In the order in which they were given.
    pub(super) members: Vec<usize>,
    /// The lowest sector at which rows fit that hold something of the array.
    pub(super) lowest: u64,
}

impl Redundancy {
    /// Returns whether each of these members has a copy.
    pub(super) fn is_complete(&self, all: &[usize]) -> bool {
        match &self.relation {
            Relation::Alike => self.members.len() == all.len(),
            Relation::Groups(groups) => groups.iter().all(|group| group.len() > 1),
            Relation::OneParity
            | Relation::OneLost
            | Relation::TwoParities(_)
            | Relation::OneMissing(_) => false,
        }
    }
}
