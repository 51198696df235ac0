//! Members that come into a role of the lane's choice, where a place is a role: new ones, spares,
//! those to which the last holder was copied, and those that were lost and are back.

use std::borrow::Cow;

use super::Keeper;
use super::admission::Admission;
use super::command::CommandAnswer;
use super::members::{Member, State};
use super::sync::kept;
use crate::action::{CommandId, NewMember};
use crate::assemble::{Had, Lineage};
use crate::events::Fault;
use crate::refusal::Refusal;
use crate::{MemberId, Role};

/// The reason why a member does not come back by itself.
pub const MADE_FAULTY: &str = "was made faulty or removed by a command, and was not added since";
/// The step that helps then.
pub(super) const TAKE_BACK: &str = "remove it, and add it again to take it back";

impl Keeper {
    /// Makes a candidate a member, which is rebuilt. With a `command`, a member that failed in that
    /// role before is detached, and the command is answered when superblocks tell of the new one.
    ///
    /// # Errors
    /// The reason why the candidate does not become a member. The command is not answered then.
    pub fn take_in(
        &mut self,
        command: Option<CommandId>,
        new: &NewMember,
        role: Role,
    ) -> CommandAnswer {
        let before = self.core.metadata.ticket();
        let member = Admission::new(&self.core).joining(new, role)?;
        if command.is_some() {
            let members = &mut self.core.members;
            let failed = State::Faulty { role: Some(role) };
            let found = members.iter().find(|(_, member)| member.state == failed);
            if let Some(id) = found.map(|(id, _)| id) {
                members.detach(id);
            }
        }
        self.attach(new.member, member);
        if let Some(command) = command {
            self.reply(command, before, Ok(()));
        }
        Ok(())
    }

    /// Gives the role to the spare to which the role's last member was copied. The spare lacks no
    /// more than the bitmap marks.
    ///
    /// # Errors
    /// The reason why the spare does not get the role.
    pub fn take_in_copy(&mut self, new: &NewMember, role: Role) -> CommandAnswer {
        let mut member = Admission::new(&self.core).joining(new, role)?;
        member.state = State::rebuilding_from_start(role, Had::All);
        self.attach(new.member, member);
        Ok(())
    }

    /// Gives a lost member that is there again its role back. `new` says what lies on it now. The
    /// member is then given what the bitmap says that it has missed; without a bitmap, all.
    /// `has_all`: writes that were committed with it when the array was started are in place on it,
    /// too.
    ///
    /// # Errors
    /// The reason why the member stays out.
    pub fn member_returned(&mut self, new: &NewMember, role: Role, has_all: bool) -> CommandAnswer {
        let refuse = |reason: &str, next: &'static str| Err(Refusal::new(reason, next));
        let known = self.core.members.get(new.member).map(|member| member.state);
        if !matches!(known, None | Some(State::Faulty { .. })) {
            return refuse("its member was not lost", "leave it as it is");
        }
        if self.core.service.metadata_frozen() {
            return refuse("the array does not change", "stop it and assemble it again");
        }
        let own = new.superblock.as_deref();
        if own.is_some_and(|own| self.core.metadata.made_faulty.contains(&own.dev_number)) {
            return refuse(MADE_FAULTY, TAKE_BACK);
        }
        let id = new.member;
        let before = self.core.members.get(id).cloned();
        if before.is_some() {
            self.core.members.detach(id);
        }
        let admission = Admission::new(&self.core);
        let new = &NewMember {
            bad_blocks: match &before {
                Some(member) => Some(member.bad_blocks.clone()),
                None => new.bad_blocks.clone(),
            },
            ..new.clone()
        };
        let keeps_own = kept::keeps_own(&self.core, before.as_ref(), new, role);
        let joins = if admission.lineage(new) == Some(Lineage::WentAlone) {
            let next = "add it: it is then rebuilt as a whole";
            Err(Refusal::new("it went on without the array", next))
        } else {
            admission.joining(new, role)
        };
        match joins {
            Ok(mut member) => {
                let begins = member.superblock.data_offset;
                let own_place = own.is_some_and(|own| own.data_offset == begins);
                member.keeps_own = keeps_own && has_all && own_place;
                if member.keeps_own {
                    // Also of a member that is rebuilt as a whole: what is bad there is not kept.
                    member.bad_blocks = new.bad_blocks.clone().unwrap_or_default();
                }
                if crate::broken("catch-up") {
                    member.state = State::InSync { role };
                }
                self.attach(id, member);
                Ok(())
            }
            Err(why) => {
                if let Some(member) = before {
                    self.core.members.attach(id, member);
                }
                Err(why)
            }
        }
    }

    fn attach(&mut self, id: MemberId, member: Member) {
        self.core.attach(id, member);
        self.core.metadata.queue_whole_bitmap();
        self.core.metadata.queue_superblock(false);
        self.sync.retry(&self.core.members);
    }

    /// Begins to copy a member: asks for units of [`Work::Copy`](super::Work::Copy).
    ///
    /// # Errors
    /// The reason why the member cannot be copied.
    pub fn begin_copying(&mut self, old: MemberId) -> CommandAnswer {
        self.sync.begin_copying(&mut self.core, old)
    }

    /// Ends the copy of a member, with a reason. The member stays in its state.
    pub fn end_copying(&mut self, reason: impl Into<Cow<'static, str>>) {
        self.sync.end_copying(&mut self.core, reason.into());
    }

    /// Makes the copied member faulty once its copy is durable, so that its role is free for the
    /// member that has nearly all of it. Returns false when that cannot be now, and the copy goes
    /// on.
    pub fn retire_copied(&mut self) -> bool {
        let Some(old) = self.sync.complete_copying(&mut self.core) else { return false };
        self.fail_member(old, "was replaced", Fault::default());
        true
    }
}
