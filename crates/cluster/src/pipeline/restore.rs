//! Plans of slice-sets that give a role its blocks back.

use std::sync::Arc;

use super::{Params, Pipeline, PlacedSchedule};
use crate::schedule::{Chains, Planner};
use crate::set::{MAX_TRANSFERS, Set};

impl Pipeline {
    /// The plan of a slice-set that gives this role its blocks back; `None` when it may not be
    /// opened, or those who have a part in it cannot.
    pub(super) fn plan_restore(&mut self, set: &Set, role: u16) -> Option<Arc<PlacedSchedule>> {
        let Params { family, nodes, .. } = self.params;
        let (missing, planner) = (set.missing, Planner::Chain);
        let mut lost = missing;
        if role < nodes {
            lost.insert(role);
        }
        let fits = lost != missing
            && set.planner == planner
            && set.touched.count() == 0
            && self.losses.survives(|role| lost.contains(role));
        if !fits {
            return None;
        }
        let variant = (set.stripe % u64::from(family.period(nodes))) as u16;
        let key = (variant, planner, Some(role));
        if let Some(plan) = self.plans_of(missing).get(&key) {
            return Some(Arc::clone(plan));
        }
        let code = family.code(nodes, u64::from(variant)).ok()?;
        let recovery = family.recovery(&code, lost)?;
        let chains = Chains::new(&code, &recovery, role, variant);
        if chains.links().len() > MAX_TRANSFERS {
            return None;
        }
        let plan = Arc::new(PlacedSchedule::of_chains(code, chains, missing));
        self.plans_of(missing).insert(key, Arc::clone(&plan));
        Some(plan)
    }
}
