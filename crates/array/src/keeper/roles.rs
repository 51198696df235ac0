//! Questions of a lane over nodes alone: about roles and their holders, devices that may join, and
//! members that are copied. The lane here looks into [`Members`](super::members::Members) instead.

use super::KeeperView;
use super::admission::Admission;
use super::command::CommandAnswer;
use super::members::{Member, State};
use super::sync::Copying;
use crate::action::NewMember;
use crate::format::Superblock;
use crate::refusal::Refusal;
use crate::{MemberId, Role};

impl<'a> KeeperView<'a> {
    /// Tells whether the member that has this role does not know these rows of its data area.
    #[must_use]
    pub fn is_bad(self, role: Role, row: u64, sectors: u64) -> bool {
        self.holder(role)
            .is_some_and(|member| member.bad_blocks.overlaps(member.absolute(row), sectors))
    }

    /// Returns whether the member that is being given a role keeps what it held where the others
    /// cannot tell it.
    #[must_use]
    pub fn keeps_own(self, role: Role) -> bool {
        self.holder(role).is_some_and(|member| member.keeps_own)
    }

    /// Returns how many of these rows of a role are, from the first on, all bad or all not.
    #[must_use]
    pub fn alike(self, role: Role, row: u64, sectors: u64) -> u64 {
        let bad = self.holder(role).and_then(|member| {
            let first = member.absolute(row);
            let (start, bad) = member.bad_blocks.next_bad(first, sectors)?;
            Some(if start > first { start - first } else { bad })
        });
        bad.unwrap_or(sectors)
    }

    /// Returns whether no member holds this role.
    #[must_use]
    pub fn is_vacant(self, role: Role) -> bool {
        self.keeper.core.members.role(role).holder.is_none()
    }

    /// Returns whether the member that has this role holds all of it.
    #[must_use]
    pub fn is_in_sync(self, role: Role) -> bool {
        self.keeper.core.members.in_sync(role)
    }

    /// Returns whether the member that has this role has been given what belongs in this range of
    /// sync space, one unit of background work or less. Such a member has a part in what is written
    /// there; before that, it has none, and is given the range when the work gets there. A unit
    /// that is not over counts as done.
    #[must_use]
    pub fn is_rebuilt(self, role: Role, start: u64, end: u64) -> bool {
        match self.holder(role).map(|member| member.state) {
            Some(State::InSync { .. }) => true,
            Some(State::Rebuilding { offset, .. }) => {
                let space = &self.keeper.core.space;
                let row = if space.is_by_role() {
                    space.row_of(role, start).map(|row| row + space.rows_left(row))
                } else {
                    Some(end)
                };
                let id = self.keeper.core.members.role(role).holder;
                let done =
                    id.and_then(|id| self.keeper.sync.recovered(id)).unwrap_or(0).max(offset);
                row.is_some_and(|row| row <= done)
            }
            _ => false,
        }
    }

    /// Returns whether a member that takes a role over is given what is in this range of sync
    /// space.
    #[must_use]
    pub fn is_marked(self, start: u64, end: u64) -> bool {
        self.keeper.core.metadata.intent.as_ref().is_none_or(|intent| intent.dirty(start, end))
    }

    /// Returns the id under which a device may become a member: a spare keeps its own.
    #[must_use]
    pub fn id_for(self, device: &str) -> Option<MemberId> {
        Admission::new(&self.keeper.core)
            .spare_called(device)
            .map(|(id, _)| id)
            .or_else(|| self.keeper.core.members.free_id(&[]))
    }

    /// Returns whether this is a member, be it a faulty one.
    #[must_use]
    pub fn knows(self, id: MemberId) -> bool {
        self.keeper.core.members.get(id).is_some()
    }

    /// The spares, as they may become members in a role.
    pub fn spares(self) -> impl Iterator<Item = NewMember> + use<'a> {
        let spares =
            self.keeper.core.members.iter().filter(|(_, member)| member.state == State::Spare);
        spares.map(|(id, member)| NewMember {
            member: id,
            device: member.device.clone(),
            device_sectors: member.superblock.data_offset + member.superblock.data_size,
            device_uuid: member.superblock.device_uuid,
            superblock: None,
            bad_blocks: None,
            readd: false,
        })
    }

    /// Returns the superblock with which a device would become a member in a role that is vacant.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub fn candidate(self, new: &NewMember, role: Role) -> Result<Superblock, Refusal> {
        Admission::new(&self.keeper.core).joining(new, role).map(|member| member.superblock)
    }

    /// Returns whether a member of this number was failed or removed by a command, and not added
    /// since. Such a member does not come back by itself.
    #[must_use]
    pub fn was_made_faulty(self, number: u32) -> bool {
        self.keeper.core.metadata.made_faulty.contains(&number)
    }

    /// Checks that a member can be copied to another one while it serves.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub fn may_be_copied(self, old: MemberId) -> CommandAnswer {
        self.keeper.sync.check_copying(&self.keeper.core, old).map(|_| ())
    }

    /// Returns whether this member is being copied.
    #[must_use]
    pub fn is_copied(self, old: MemberId) -> bool {
        self.keeper.sync.is_copied(old)
    }

    /// Returns whether the copy has all but a little that the bitmap marks.
    #[must_use]
    pub fn little_is_left(self) -> bool {
        self.keeper.sync.copying.as_ref().is_some_and(Copying::little_is_left)
    }

    /// Returns whether the member that is copied has something in this range of sync space that its
    /// copy has not.
    #[must_use]
    pub fn copy_has_not(self, start: u64, end: u64) -> bool {
        self.keeper.sync.copying.as_ref().is_none_or(|copying| copying.lacks.overlaps(start, end))
    }

    /// The member that holds this role, in part or completely.
    fn holder(self, role: Role) -> Option<&'a Member> {
        let members = &self.keeper.core.members;
        members.role(role).holder.and_then(|id| members.get(id))
    }
}
