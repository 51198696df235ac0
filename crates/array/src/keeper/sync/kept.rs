//! Returning members that keep what they held where nobody else can tell it.
//!
//! Where sums were torn while a member was in sync, and were noted as bad because it was lost, its
//! own data there are as they were: a write to them would have formed one of their sums, and that
//! would be known. A member that held all of its role when it was lost therefore keeps the data
//! that is in no known sum, and a resync forms the sums anew. Any other member, which held less or
//! something else, gets what the others tell, and the rest is bad on it.

use super::unsynced::Unsynced;
use crate::action::NewMember;
use crate::format::superblock::{MAX_SECTOR, feature};
use crate::format::{DevRole, Superblock};
use crate::keeper::core::Core;
use crate::keeper::members::Member;
use crate::keeper::{Redundancy, Unit};
use crate::{MemberId, Role};

/// Tells whether a member that returns held all of its role when it was lost. `before`: what it was
/// here, if it was served; otherwise its superblock has to name it as the array was found, and as
/// no older one.
pub(in crate::keeper) fn keeps_own(
    core: &Core,
    before: Option<&Member>,
    new: &NewMember,
    role: Role,
) -> bool {
    let Some(own) = new.superblock.as_deref() else { return false };
    let whole = own.role() == DevRole::Active(role) && !own.has(feature::RECOVERY_OFFSET);
    // Who was lost before anything was served lies as it was found.
    let had_all = before.is_some_and(|member| member.had_all);
    whole && (had_all || is_as_found(new, own, &core.metadata.found, role))
}

/// Tells whether a member lay like this beside the others when the array was found.
fn is_as_found(new: &NewMember, own: &Superblock, found: &Superblock, role: Role) -> bool {
    let current = own.events.saturating_add(1) >= found.events;
    current
        && !new.has_unread_bad_blocks()
        && found.role_of(own.dev_number) == DevRole::Active(role)
}

impl Unsynced {
    /// The rows that a member does not keep of a unit that the others cannot tell: its sums, and
    /// data that is in a known sum. `None` when it keeps nothing there.
    pub(super) fn not_kept(
        &self,
        core: &Core,
        id: MemberId,
        unit: Unit,
    ) -> Option<Vec<(u64, u64)>> {
        let sums = matches!(core.space.redundancy(), Redundancy::Parity(_));
        let member = core.members.get(id).filter(|member| sums && member.keeps_own)?;
        let role = member.state.role()?;
        let mut rows = Vec::new();
        let mut keeps = false;
        for strips in core.space.all_strips(unit.start, unit.end()) {
            let known = |(role, row): (Role, u64)| {
                core.members.view(role, row, strips.sectors, &[]).reader.is_some()
            };
            let own = |&(_, (holder, _)): &(usize, (Role, u64))| holder == role;
            let data = strips.data.iter().copied().enumerate().filter(own);
            let (told, kept): (Vec<_>, Vec<_>) =
                data.partition(|&(place, _)| strips.sums_of(place).any(known));
            let nothing_known = || told.is_empty() && !strips.sums.iter().copied().any(known);
            keeps |= !kept.is_empty() || nothing_known();
            let sums = strips.sums.iter().filter(|(holder, _)| *holder == role);
            let rest = told.iter().map(|(_, strip)| strip).chain(sums);
            rows.extend(rest.map(|&(_, row)| (row, strips.sectors)));
        }
        keeps.then_some(rows)
    }

    /// Marks the sums of a unit, which are noted as bad, to be formed anew, as a member has kept
    /// its data there. Later members need not doubt the sums for that: the logs say so.
    pub(super) fn note_kept(&mut self, core: &mut Core, unit: Unit) {
        self.noted.insert_exactly(unit.start, unit.end());
        self.waits_again(core, unit.start, unit.end());
        core.metadata.queue_superblock(false);
    }

    /// Makes a range wait for a resync that did not wait.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::BadBlocks;

    fn member(events: u64, features: u32) -> NewMember {
        let roles = [0, 1, 2].map(|role| DevRole::Active(Role(role))).to_vec();
        let blank = Superblock::blank();
        let superblock =
            Superblock { events, dev_number: 1, feature_map: features, roles, ..blank };
        NewMember {
            member: MemberId(1),
            device: "m1".to_owned(),
            device_sectors: 4096,
            device_uuid: [1; 16],
            superblock: Some(Box::new(superblock)),
            bad_blocks: None,
            readd: false,
        }
    }

    #[test]
    fn a_member_is_as_it_was_found_when_it_is_current_and_its_bad_blocks_are_known() {
        let found = member(9, 0).superblock.expect("a superblock");
        let is_as_found = |new: &NewMember| {
            is_as_found(new, new.superblock.as_deref().expect("its own"), &found, Role(1))
        };
        assert!(is_as_found(&member(9, 0)));
        assert!(is_as_found(&member(8, 0)), "it missed the last update");
        assert!(!is_as_found(&member(7, 0)), "it is stale");
        let mut listed = member(9, feature::BAD_BLOCKS);
        assert!(!is_as_found(&listed), "nobody has read its list");
        listed.bad_blocks = Some(BadBlocks::default());
        assert!(is_as_found(&listed), "its list is empty");
        assert!(listed.bad_blocks.get_or_insert_default().insert(2048, 8));
        assert!(is_as_found(&listed));
    }
}
