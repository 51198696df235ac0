//! Lineage of a member: the array went on without it, or it went on without the array.
//!
//! Both leave the member with the older event count, and only in the first case does a bitmap of
//! the array know all that differs. A member that is run without others writes into its own
//! superblock that they are gone; mdadm, too, ignores a member that "reports" a current one "as
//! failed".

use crate::Role;
use crate::format::superblock::feature;
use crate::format::{DevRole, Superblock};

/// The way in which a member that is not current came by its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lineage {
    /// The member ran together with current members to its end: the array went on without it.
    LeftBehind,
    /// The member ran without any of the current members.
    WentAlone,
    /// The roles it knows have changed hands since, here or where it was.
    Unclear,
}

/// Compares what a member's superblock says with the device numbers and roles of those members
/// that are in sync now. A member that was being rebuilt holds nothing that others do not: it is
/// given all, whoever went on.
pub(crate) fn lineage(left: &Superblock, current: impl Iterator<Item = (u32, Role)>) -> Lineage {
    let mut knows_one = false;
    let mut misses_one = false;
    for (number, role) in current {
        let listed = left.role_of(number) == DevRole::Active(role);
        knows_one |= listed && number != left.dev_number;
        misses_one |= !left.roles.contains(&DevRole::Active(role));
    }
    let whole = !left.has(feature::RECOVERY_OFFSET | feature::REPLACEMENT);
    match (knows_one, misses_one) {
        (true, false) => Lineage::LeftBehind,
        (false, true) if whole => Lineage::WentAlone,
        _ => Lineage::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_member_goes_on_alone() {
        let roles = vec![DevRole::Active(Role(0)), DevRole::Active(Role(1))];
        let alone = Superblock { dev_number: 1, roles, ..Superblock::blank() };
        let rebuilt = Superblock { feature_map: feature::RECOVERY_OFFSET, ..alone.clone() };
        let others = || [(2, Role(2))].into_iter();
        assert_eq!(lineage(&alone, others()), Lineage::WentAlone);
        assert_eq!(lineage(&rebuilt, others()), Lineage::Unclear);
    }
}
