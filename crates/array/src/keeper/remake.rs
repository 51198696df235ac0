//! A level without redundancy, within an array that goes on without it: its members may come and
//! go, for all of it is written anew once it is whole. A new member takes the place of one that was
//! removed, as large as that was, so that every place stays where it is.

use std::collections::BTreeMap;

use super::admission::Admission;
use super::core::Core;
use super::members::{Member, State};
use crate::action::NewMember;
use crate::assemble::{MemberConfig, Standing};
use crate::format::{BadBlocks, Superblock};
use crate::refusal::Refusal;
use crate::{MemberId, Role};

/// The superblocks of members removed from an array that is remade, by role.
#[derive(Debug, Default)]
pub(super) struct Vacancies(BTreeMap<Role, Superblock>);

impl Vacancies {
    /// A member is removed: what its superblock says of its role and place is for the one that
    /// follows.
    pub(super) fn note(&mut self, core: &Core, id: MemberId) {
        if core.service.is_remade()
            && let Some(member) = core.members.get(id)
            && let State::Faulty { role: Some(role) } = member.state
        {
            self.0.insert(role, member.superblock.clone());
        }
    }

    /// A device takes the place of a member that was removed. The array serves again once it lacks
    /// none, and from then on the superblocks of all tell it from the one before.
    pub(super) fn put_in(&mut self, core: &mut Core, new: &NewMember) -> Result<(), Refusal> {
        Admission::new(core).is_new(new)?;
        let Some((&role, old)) = self.0.first_key_value() else {
            let reason = format!("no member was removed that {} could follow", new.device);
            return Err(Refusal::new(reason, "fail and remove the member that it is to replace"));
        };
        let superblock = following(old, new)?;
        self.0.remove(&role);
        let mut member = Member::new(MemberConfig {
            device: new.device.clone(),
            device_sectors: new.device_sectors,
            superblock,
            bad_blocks: BadBlocks::default(),
            standing: Standing::InSync { role },
        });
        member.arriving = true;
        core.members.attach(new.member, member);
        core.service.failed = !core.enough_without(&[]);
        core.metadata.queue_superblock(false);
        Ok(())
    }
}

/// The superblock of a device that takes the place of another.
fn following(old: &Superblock, new: &NewMember) -> Result<Superblock, Refusal> {
    let data_end = old.data_offset + old.data_size;
    let location = old.version.location(new.device_sectors);
    let fits =
        |at: &u64| data_end <= new.device_sectors && !(old.data_offset..data_end).contains(at);
    let Some(super_offset) = location.filter(fits) else {
        let reason = format!("{} is too small: {} sectors", new.device, new.device_sectors);
        return Err(Refusal::new(reason, "use a device at least as large as the one before"));
    };
    Ok(Superblock {
        super_offset,
        device_uuid: new.device_uuid,
        devflags: 0,
        corrected_reads: 0,
        ..old.clone()
    })
}
