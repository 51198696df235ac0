//! Members that come into a role of the lane's choice, where a place is a role. A spare becomes one
//! in the same way: it is a spare until then.

use super::Keeper;
use super::command::Answer;
use super::members::{Member, State};
use crate::MemberId;
use crate::action::{CommandId, NewMember};
use crate::format::superblock::MAX_DEV;
use crate::format::{BadBlocks, Role, Superblock};
use crate::refusal::Refusal;

impl Keeper {
    /// The lowest number that no member has.
    #[must_use]
    pub fn free_id(&self) -> Option<MemberId> {
        self.members.free_id()
    }

    /// As which a device may become a member: a spare keeps its number.
    #[must_use]
    pub fn id_for(&self, device: &str) -> Option<MemberId> {
        self.spare_called(device).map(|(id, _)| id).or_else(|| self.free_id())
    }

    /// Is this a member, be it a faulty one?
    #[must_use]
    pub fn knows(&self, id: MemberId) -> bool {
        self.members.get(id).is_some()
    }

    /// Does nobody hold this role?
    #[must_use]
    pub fn is_vacant(&self, role: u16) -> bool {
        self.members.role(role).holder.is_none()
    }

    /// The spares, as they may become members in a role.
    pub fn spares(&self) -> impl Iterator<Item = NewMember> {
        let spares = self.members.iter().filter(|(_, member)| member.state == State::Spare);
        spares.map(|(id, member)| NewMember {
            member: id,
            device: member.device.clone(),
            device_sectors: member.superblock.data_offset + member.superblock.data_size,
            device_uuid: member.superblock.device_uuid,
            superblock: None,
            bad_blocks: BadBlocks::default(),
            readd: false,
        })
    }

    /// The superblock with which this would become a member in a role that is vacant.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn candidate(&self, new: &NewMember, role: u16) -> Result<Superblock, Refusal> {
        self.joining(new, role).map(|member| member.superblock)
    }

    /// A candidate becomes a member, and is rebuilt. If that was commanded whoever failed in that
    /// role before is none any more, and the command is answered when superblocks tell of it.
    ///
    /// # Errors
    /// Why it does not, which the command is not told.
    pub fn take_in(&mut self, command: Option<CommandId>, new: &NewMember, role: u16) -> Answer {
        let before = self.meta.ticket();
        let member = self.joining(new, role)?;
        let failed =
            |(_, member): &(MemberId, &Member)| member.state == State::Faulty { role: Some(role) };
        let failed = self.members.iter().find(failed).map(|(id, _)| id);
        if let Some(id) = failed.filter(|_| command.is_some()) {
            self.members.detach(id);
        }
        self.attach_joining(new.member, member);
        if let Some(command) = command {
            self.reply(command, before, Ok(()));
        }
        Ok(())
    }

    /// A spare to which the last member of this role was copied gets the role: it lacks no more
    /// than the bitmap marks.
    ///
    /// # Errors
    /// Why it does not.
    pub fn take_in_copy(&mut self, new: &NewMember, role: u16) -> Answer {
        let mut member = self.joining(new, role)?;
        let (offset, replacement, marked_below) = (0, false, u64::MAX);
        member.state = State::Rebuilding { role, offset, replacement, marked_below };
        self.attach_joining(new.member, member);
        Ok(())
    }

    fn spare_called(&self, device: &str) -> Option<(MemberId, &Member)> {
        let called = |member: &Member| member.state == State::Spare && member.device == device;
        self.members.iter().find(|(_, member)| called(member))
    }

    pub(super) fn attach_joining(&mut self, id: MemberId, member: Member) {
        self.members.attach(id, member);
        self.wish_whole_bitmap();
        self.wish_superblock(false);
        self.retry_sync();
    }

    pub(super) fn joining(&self, new: &NewMember, role: u16) -> Result<Member, Refusal> {
        let spare = self.spare_called(&new.device).map(|(_, spare)| spare.clone());
        let mut member = spare.map_or_else(|| self.admit(new), Ok)?;
        if let Some(number) = self.own_number(new) {
            member.superblock.dev_number = number;
        }
        match member.state {
            State::Rebuilding { role: own, .. } if own == role => {}
            _ => {
                member.superblock.recovery_offset = 0;
                let (offset, replacement, marked_below) = (0, false, 0);
                member.state = State::Rebuilding { role, offset, replacement, marked_below };
            }
        }
        Ok(member)
    }

    /// The number of one that was a member before, if nobody has it now: any other may be that of
    /// one who is away, and comes back with it.
    fn own_number(&self, new: &NewMember) -> Option<u32> {
        let superblock = new.superblock.as_deref()?;
        let (number, ours) = (superblock.dev_number, self.superblock.set_uuid);
        let taken = self.members.iter().any(|(_, m)| m.superblock.dev_number == number);
        (superblock.set_uuid == ours && !taken && number < MAX_DEV).then_some(number)
    }

    /// The array was not stopped cleanly: members that were being rebuilt may lack what was written
    /// then. The bitmap marks it; without one they begin again.
    pub fn rebuild_what_was_under_way(&mut self) {
        if !self.has_to_resync() {
            return;
        }
        let marked = self.intent.is_some();
        let ids: Vec<MemberId> = self.members.iter_live().map(|(id, _)| id).collect();
        for member in ids {
            let Some(member) = self.members.get_mut(member) else { continue };
            if let State::Rebuilding { offset, marked_below, .. } = &mut member.state {
                *marked_below = if marked { *offset.max(marked_below) } else { 0 };
                *offset = 0;
                member.superblock.recovery_offset = 0;
            }
        }
    }

    /// Members that no superblock names were left behind, and are there again: they are told of,
    /// and get the bitmap.
    pub fn tell_of_those_left_behind(&mut self) {
        let unnamed = |member: &Member| {
            let named = self.superblock.role_of(member.superblock.dev_number);
            member.state.role().is_some_and(|role| named != Role::Active(role))
        };
        if self.members.iter_live().any(|(_, member)| unnamed(member)) {
            self.wish_whole_bitmap();
            self.wish_superblock(false);
        }
    }

    /// What was asked of a member that is gone is not waited for.
    pub fn nothing_asked(&mut self, id: MemberId) {
        if let Some(member) = self.members.get_mut(id) {
            member.in_flight = 0;
        }
    }
}
