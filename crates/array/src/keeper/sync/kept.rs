//! Returning members that keep what they held where nobody else can tell it.
//!
//! Where sums were torn while a member was in sync, and were noted as bad because it was lost, its
//! own data there are as they were: a write to them would have made sums of all data, and these
//! would be known. So where no sum is known, and it held all of its role when it was lost, it keeps
//! them, and a resync forms the sums anew. Whoever held less, or something else, gets what the
//! others tell, and the rest is bad on it.

use super::Unit;
use super::unsynced::Unsynced;
use crate::action::NewMember;
use crate::format::DevRole;
use crate::format::superblock::{MAX_SECTOR, feature};
use crate::keeper::Redundancy;
use crate::keeper::core::Core;
use crate::keeper::members::Member;
use crate::{MemberId, Role};

/// Did a member that returns hold all of its role when it was lost? `before`: what it was here;
/// without that, its superblock has to name it as the array was found, and as no older one.
pub(in crate::keeper) fn keeps_own(
    core: &Core,
    before: Option<&Member>,
    new: &NewMember,
    role: Role,
) -> bool {
    let found = &core.metadata.found;
    let Some(own) = new.superblock.as_deref() else { return false };
    let is_its = |held: DevRole| held == DevRole::Active(role);
    let whole = is_its(own.role()) && !own.has(feature::RECOVERY_OFFSET);
    match before {
        Some(member) => whole && member.had_all,
        None => {
            let current = own.events.saturating_add(1) >= found.events;
            whole && current && is_its(found.role_of(own.dev_number))
        }
    }
}

impl Unsynced {
    /// Does a member keep what it held of a unit that the others cannot tell?
    pub(super) fn is_kept(&self, core: &Core, id: MemberId, unit: Unit) -> bool {
        let sums = matches!(core.space.redundancy(), Redundancy::Parity(_));
        let keeps = core.members.get(id).is_some_and(|member| member.keeps_own);
        if !sums || !keeps {
            return false;
        }
        core.space.all_strips(unit.start, unit.end()).iter().all(|strips| {
            let known = |&(role, row): &(Role, u64)| {
                core.members.view(role, row, strips.sectors, &[]).reader.is_some()
            };
            !strips.sums.iter().any(known)
        })
    }

    /// A unit is as a member held it: its sums, which are noted as bad, are formed anew. Whoever
    /// comes next need not doubt them for that: the logs say so.
    pub(super) fn note_kept(&mut self, core: &mut Core, unit: Unit) {
        self.noted.insert(unit.start, unit.end());
        self.waits_again(core, unit.start, unit.end());
        core.metadata.queue_superblock(false);
    }

    /// A range waits for a resync that did not.
    pub(super) fn waits_again(&mut self, core: &mut Core, start: u64, end: u64) {
        if core.metadata.clean.resynced == MAX_SECTOR {
            self.left.get_or_insert_default();
            self.left_behind = true;
        }
        if let Some(left) = &mut self.left {
            left.insert(start, end);
        }
        let clean = &mut core.metadata.clean;
        clean.resynced = clean.resynced.min(start);
        clean.durable_resynced = clean.durable_resynced.min(start);
    }
}
