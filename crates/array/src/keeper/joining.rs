//! Members that come into a role of the lane's choice, where a place is a role: new ones, spares,
//! those to which the last holder was copied, and those that were lost and are back.

use std::borrow::Cow;

use super::Keeper;
use super::admission::Admission;
use super::command::Answer;
use super::members::{Member, State};
use super::sync::kept;
use crate::action::{CommandId, NewMember};
use crate::assemble::{Had, Lineage};
use crate::events::Fault;
use crate::refusal::Refusal;
use crate::{MemberId, Role};

/// Why a member does not come back by itself.
pub const MADE_FAULTY: &str = "was made faulty or removed by a command, and was not added since";
/// What helps.
pub(super) const TAKE_BACK: &str = "remove it, and add it again to take it back";

impl Keeper {
    /// A candidate becomes a member, and is rebuilt. If that was commanded whoever failed in that
    /// role before is none any more, and the command is answered when superblocks tell of it.
    ///
    /// # Errors
    /// Why it does not, which the command is not told.
    pub fn take_in(&mut self, command: Option<CommandId>, new: &NewMember, role: Role) -> Answer {
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

    /// A spare to which the last member of this role was copied gets the role: it lacks no more
    /// than the bitmap marks.
    ///
    /// # Errors
    /// Why it does not.
    pub fn take_in_copy(&mut self, new: &NewMember, role: Role) -> Answer {
        let mut member = Admission::new(&self.core).joining(new, role)?;
        member.state = State::rebuilding_from_start(role, Had::All);
        self.attach(new.member, member);
        Ok(())
    }

    /// A member that was lost is there again: what lies on it now. It gets its role back, and is
    /// given what the bitmap says that it has missed; without a bitmap, all. `has_all`: what was
    /// committed with it when the array was started is in place on it, too.
    ///
    /// # Errors
    /// Why it stays out.
    pub fn member_returned(&mut self, new: &NewMember, role: Role, has_all: bool) -> Answer {
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
                member.keeps_own = keeps_own && has_all;
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

    /// From now on a member is copied: units of [`Work::Copy`](super::Work::Copy) are asked for.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn begin_copying(&mut self, old: MemberId) -> Answer {
        self.sync.begin_copying(&mut self.core, old)
    }

    /// It is not copied any longer: why. The member stays what it is.
    pub fn end_copying(&mut self, reason: impl Into<Cow<'static, str>>) {
        self.sync.end_copying(&mut self.core, reason.into());
    }

    /// What was copied is durable: the old member is done without, and its role is free for who has
    /// nearly all of it. False when that cannot be now, and the copy goes on.
    pub fn retire_copied(&mut self) -> bool {
        let Some(old) = self.sync.complete_copying(&mut self.core) else { return false };
        self.fail_member(old, "was replaced", Fault::default());
        true
    }
}
