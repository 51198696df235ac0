//! Superblocks that members still have, which the others are given the company of: the array keeps
//! its identity and its event count.

use braid_array::Role;
use braid_array::format::superblock::feature;
use braid_array::format::{DevRole, Superblock, SuperblockError, Version};
use braid_host::member::{self, MemberFile};

use super::{OPERATION, hints};
use crate::failure::Failure;
use crate::output::recovered::Recovered;

/// The superblocks that are left, in the order of the members.
pub(super) struct Left {
    pub(super) each: Vec<Option<Superblock>>,
    newest: Option<usize>,
}

impl Left {
    /// Reads the surviving superblocks of members in their roles. Superblocks that contradict the
    /// hypothesis are refused.
    pub(super) fn of(
        best: &Recovered,
        members: &[(Role, u64, &MemberFile)],
    ) -> Result<Self, Failure> {
        let each: Vec<Option<Superblock>> =
            members.iter().map(|one| on_member(best, one)).collect::<Result<_, Failure>>()?;
        if let (true, Some((.., first))) = (each.iter().all(Option::is_some), members.first()) {
            return Err(refused(first, "has a superblock, as all of them have"));
        }
        let events = |index: &usize| each[*index].as_ref().map_or(0, |left| left.events);
        let there = (0..each.len()).filter(|index| each[*index].is_some());
        let left = Self { newest: there.max_by_key(events), each };
        left.check(members)?;
        Ok(left)
    }

    /// The newest of them, if there is any.
    pub(super) fn newest(&self) -> Option<&Superblock> {
        self.each[self.newest?].as_ref()
    }

    fn check(&self, members: &[(Role, u64, &MemberFile)]) -> Result<(), Failure> {
        let Some(newest) = self.newest() else { return Ok(()) };
        let holds = |role: Role| newest.roles.contains(&DevRole::Active(role));
        for ((role, _, device), left) in members.iter().zip(&self.each) {
            let is_other = |left: &Superblock| {
                left.set_uuid != newest.set_uuid || hints::is_behind(left, newest)
            };
            if !holds(*role) || left.as_ref().is_some_and(is_other) {
                let reason = "the newest superblock that is left says that the array is without it";
                return Err(refused(device, reason));
            }
        }
        Ok(())
    }
}

fn on_member(
    best: &Recovered,
    (role, offset, device): &(Role, u64, &MemberFile),
) -> Result<Option<Superblock>, Failure> {
    let superblock = match member::probe(device).superblock {
        Err(SuperblockError::NoMagic) => return Ok(None),
        Err(_) => return Err(refused(device, "has a superblock that cannot be trusted")),
        Ok(superblock) => superblock,
    };
    let plain = feature::BITMAP_OFFSET | feature::BAD_BLOCKS | feature::RAID0_LAYOUT;
    let agrees = superblock.version != Version::V0_90
        && superblock.feature_map & !plain == 0
        && hints::shape(&superblock) == Some(best.shape)
        && superblock.role() == DevRole::Active(*role)
        && superblock.data_offset == *offset;
    if agrees {
        return Ok(Some(superblock));
    }
    Err(refused(device, "has a superblock, which says what it is"))
}

fn refused(device: &MemberFile, reason: &str) -> Failure {
    let next = "see braid assemble --explain for all members, or remove it first with braid \
                zero-superblock";
    Failure::refused(OPERATION, device.path.display(), reason, next)
}
