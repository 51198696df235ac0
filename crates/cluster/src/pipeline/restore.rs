//! Plans of slice-sets that give a role its blocks back.

use super::{Params, PlacedSchedule};
use crate::schedule::{Chains, Planner};
use crate::set::{MAX_TRANSFERS, Roles, Set};
use braid_array::Role;

/// Returns the roles whose blocks are lost while a slice-set gives this role its blocks back;
/// `None` when the slice-set may not be opened.
pub(super) fn lost(nodes: u16, set: &Set, role: Role) -> Option<Roles> {
    let mut lost = set.missing;
    if role.0 < nodes {
        lost.insert(role);
    }
    let fits = lost != set.missing && set.planner == Planner::Chain && set.touched.count() == 0;
    fits.then_some(lost)
}

/// Returns the schedule of such a slice-set; `None` when the nodes with a part in it cannot restore
/// the blocks.
pub(super) fn schedule(
    params: &Params,
    variant: u16,
    role: Role,
    (missing, lost): (Roles, Roles),
) -> Option<PlacedSchedule> {
    let code = params.family.code(params.nodes, u64::from(variant)).ok()?;
    let recovery = params.family.recovery(&code, lost)?;
    let chains = Chains::new(&code, &recovery, role, variant);
    if chains.links().len() > MAX_TRANSFERS {
        return None;
    }
    Some(PlacedSchedule::of_chains(code, chains, missing))
}
