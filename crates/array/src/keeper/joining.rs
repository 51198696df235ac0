//! Members that come into a role of the lane's choice, where a place is a role.

use super::Keeper;
use super::command::Answer;
use super::members::{Member, State};
use crate::MemberId;
use crate::action::{CommandId, NewMember};
use crate::format::{Role, Superblock};
use crate::refusal::Refusal;

impl Keeper {
    /// The lowest number that no member has.
    #[must_use]
    pub fn free_id(&self) -> Option<MemberId> {
        self.members.free_id()
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

    /// The superblock with which this would become a member in a role that is vacant.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn candidate(&self, new: &NewMember, role: u16) -> Result<Superblock, Refusal> {
        self.joining(new, role).map(|member| member.superblock)
    }

    /// A candidate becomes a member, is rebuilt, and whoever failed in that role before is none any
    /// more. The command is answered when superblocks tell of it.
    ///
    /// # Errors
    /// Why it does not, which the command is not told.
    pub fn take_in(&mut self, command: CommandId, new: &NewMember, role: u16) -> Answer {
        let before = self.meta.ticket();
        let member = self.joining(new, role)?;
        let failed =
            |(_, member): &(MemberId, &Member)| member.state == State::Faulty { role: Some(role) };
        let failed = self.members.iter().find(failed).map(|(id, _)| id);
        if let Some(id) = failed {
            self.members.detach(id);
        }
        self.attach_joining(new.member, member);
        self.reply(command, before, Ok(()));
        Ok(())
    }

    pub(super) fn attach_joining(&mut self, id: MemberId, member: Member) {
        self.members.attach(id, member);
        self.wish_whole_bitmap();
        self.wish_superblock(false);
        self.retry_sync();
    }

    pub(super) fn joining(&self, new: &NewMember, role: u16) -> Result<Member, Refusal> {
        let mut member = self.admit(new)?;
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
