//! Background work on a unit whose strips are copies of one another (levels 1 and 10).

use super::{Place, Plan, RoleView, Rows, Taken, Unrecoverable};
use crate::Buf;
use crate::action::Compute;

/// Plans the copying of a unit from the first copy that can be read to `targets`.
///
/// # Errors
/// [`Unrecoverable`] when no copy can be read.
pub(crate) fn rebuild(
    copies: &[RoleView],
    targets: &[Place],
    rows: Rows,
    taken: &mut Taken,
) -> Result<Plan, Unrecoverable> {
    let mut plan = Plan::default();
    let slot = taken.take();
    let source = copies.iter().find_map(|copy| copy.reader).ok_or(Unrecoverable)?;
    plan.read(source, rows, slot);
    for target in targets {
        plan.write_at(*target, rows, rows.of(slot), false);
    }
    Ok(plan)
}

/// The comparison of a unit's copies.
#[derive(Debug)]
pub(crate) struct ComparePlan {
    /// Reads every readable copy; compares each with the first.
    pub(crate) plan: Plan,
    /// The first copy, in memory.
    pub(crate) first: Buf,
    /// The copies compared with it, in the order of the computations.
    pub(crate) others: Vec<RoleView>,
    /// Copies that cannot be read, but written.
    pub(crate) unread: Vec<RoleView>,
}

/// Plans the comparison of all copies that can be read; `None` when there is nothing to compare
/// the first with, and nothing to write it to.
pub(crate) fn check(copies: &[RoleView], rows: Rows, taken: &mut Taken) -> Option<ComparePlan> {
    let mut plan = Plan::default();
    let mut readable = copies.iter().filter_map(|copy| copy.reader.map(|place| (place, copy)));
    let (place, _) = readable.next()?;
    let first = taken.take();
    plan.read(place, rows, first);
    let mut others = Vec::new();
    for (place, copy) in readable {
        let slot = taken.take();
        plan.read(place, rows, slot);
        plan.computes.push(Compute::Compare { a: rows.of(first), b: rows.of(slot) });
        others.push(*copy);
    }
    let unread: Vec<RoleView> =
        copies.iter().filter(|copy| copy.reader.is_none() && copy.writable()).copied().collect();
    let something = !others.is_empty() || !unread.is_empty();
    something.then_some(ComparePlan { plan, first: rows.of(first), others, unread })
}

/// After a comparison: writes the first copy over those that differ.
pub(crate) fn mend(first: Buf, differing: &[RoleView], rows: Rows) -> Plan {
    let mut plan = Plan::default();
    for copy in differing {
        plan.write(copy, rows, first, false);
    }
    plan
}
