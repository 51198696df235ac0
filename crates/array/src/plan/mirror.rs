//! Background work on a unit whose strips are copies of one another (levels 1 and 10).

use super::{MemberPlace, Plan, RoleView, Rows, Taken, Unrecoverable};
use crate::Buf;
use crate::action::{Checked, Compute};

/// Plans the copying of a unit from the first copy that can be read to `targets`.
///
/// # Errors
/// [`Unrecoverable`] when no copy can be read.
pub(crate) fn rebuild(
    copies: &[RoleView],
    targets: &[MemberPlace],
    rows: Rows,
    taken: &mut Taken,
) -> Result<Plan, Unrecoverable> {
    let mut plan = Plan::default();
    let slot = taken.take();
    let source = copies.iter().find_map(|copy| copy.reader).ok_or(Unrecoverable)?;
    plan.read(source, rows, slot);
    for target in targets {
        plan.fill_at(*target, rows, rows.of(slot));
    }
    Ok(plan)
}

/// A copy in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldCopy {
    pub(crate) role: RoleView,
    pub(crate) buf: Buf,
}

/// The comparison of a unit's copies.
#[derive(Debug)]
pub(crate) struct ComparePlan {
    /// Reads every readable copy; compares each with the first, or all pairs.
    pub(crate) plan: Plan,
    /// The copies compared. The computations go pair by pair, those with the first copy first.
    pub(crate) copies: Vec<HeldCopy>,
    /// Copies that cannot be read, but written.
    pub(crate) unread: Vec<RoleView>,
}

/// Plans the comparison of all copies that can be read, of all `pairs` or with the first; `None`
/// when there is nothing to compare the first with, and nothing to write it to.
pub(crate) fn check(
    copies: &[RoleView],
    rows: Rows,
    pairs: bool,
    taken: &mut Taken,
) -> Option<ComparePlan> {
    let mut plan = Plan::default();
    let mut held: Vec<HeldCopy> = Vec::new();
    for role in copies {
        let Some(place) = role.reader else { continue };
        let slot = taken.take();
        plan.read(place, rows, slot);
        held.push(HeldCopy { role: *role, buf: rows.of(slot) });
    }
    let firsts = if pairs { held.len() } else { 1 };
    for (at, first) in held.iter().enumerate().take(firsts) {
        for other in &held[at + 1..] {
            plan.computes.push_back(Compute::Compare { a: first.buf, b: other.buf });
        }
    }
    let unread: Vec<RoleView> =
        copies.iter().filter(|copy| copy.reader.is_none() && copy.writable()).copied().collect();
    let something = held.len() > 1 || !unread.is_empty();
    something.then_some(ComparePlan { plan, copies: held, unread })
}

/// Verdict on copies, by index: the right one, and those that differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopiesVerdict {
    pub(crate) right: usize,
    /// Copies that are not like it.
    pub(crate) differing: Vec<usize>,
    /// The one that all others outvote.
    pub(crate) wrong: Option<usize>,
}

/// Judges the comparisons of a plan of [`check`]: the copy that more than half of the copies are
/// like is right; without such, or with too few comparisons to tell, the first, as in md.
pub(crate) fn verdict(copies: usize, checked: &[Checked]) -> CopiesVerdict {
    let pair = |a: usize, b: usize| {
        let low = a.min(b);
        let high = a.max(b);
        // Row by row of a triangle.
        checked.get(low * (2 * copies - low - 1) / 2 + high - low - 1)
    };
    let unlike = |a: usize| -> Vec<usize> {
        let differs = |b: &usize| pair(a, *b).is_none_or(|checked| checked.differs() != 0);
        (0..copies).filter(|b| *b != a).filter(differs).collect()
    };
    let majority = (0..copies).find(|at| unlike(*at).len() * 2 < copies);
    let right = majority.unwrap_or(0);
    let differing = unlike(right);
    let wrong = (majority.is_some() && differing.len() == 1).then(|| differing[0]);
    CopiesVerdict { right, differing, wrong }
}

/// After a comparison: writes the copy that is right over those that differ.
pub(crate) fn mend(right: Buf, differing: &[RoleView], rows: Rows) -> Plan {
    let mut plan = Plan::default();
    for copy in differing {
        plan.write(copy, rows, right, false);
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(copies: &[u8]) -> CopiesVerdict {
        let mut checked = Vec::new();
        for (at, first) in copies.iter().enumerate() {
            checked.extend(copies[at + 1..].iter().map(|other| Checked {
                p_differs: u64::from(first != other),
                ..Checked::default()
            }));
        }
        verdict(copies.len(), &checked)
    }

    #[test]
    fn more_than_half_of_the_copies_are_right() {
        let verdict = |right, differing: &[usize], wrong| CopiesVerdict {
            right,
            differing: differing.to_vec(),
            wrong,
        };
        assert_eq!(compared(&[7, 8]), verdict(0, &[1], None), "nobody can tell");
        assert_eq!(compared(&[8, 7, 7]), verdict(1, &[0], Some(0)));
        assert_eq!(compared(&[7, 8, 7]), verdict(0, &[1], Some(1)));
        assert_eq!(compared(&[7, 8, 9]), verdict(0, &[1, 2], None));
        assert_eq!(compared(&[7, 7, 8, 8]), verdict(0, &[2, 3], None), "no majority");
        assert_eq!(compared(&[9, 7, 8, 7, 7]), verdict(1, &[0, 2], None));
    }
}
