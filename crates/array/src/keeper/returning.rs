//! Members that were lost and are there again, and how far those are that are being rebuilt.

use super::Keeper;
use super::command::Answer;
use super::members::State;
use crate::action::NewMember;
use crate::assemble::Lineage;
use crate::refusal::Refusal;

impl Keeper {
    /// A member that was lost is there again: what lies on it now. It gets its role back, and is
    /// given what the bitmap says that it has missed; without a bitmap, all.
    ///
    /// # Errors
    /// Why it stays out.
    pub fn member_returned(&mut self, new: &NewMember, role: u16) -> Answer {
        let refuse = |reason: &str, next: &'static str| Err(Refusal::new(reason, next));
        let known = self.members.get(new.member).map(|member| member.state);
        if !matches!(known, None | Some(State::Faulty { .. })) {
            return refuse("its member was not lost", "leave it as it is");
        }
        if self.metadata_frozen() {
            return refuse("the array does not change", "stop it and assemble it again");
        }
        let id = new.member;
        let before = self.members.get(id).cloned();
        if before.is_some() {
            self.members.detach(id);
        }
        let alone = self.lineage(new) == Some(Lineage::WentAlone);
        let joins = match alone {
            true => Err(Refusal::new(
                "it went on without the array",
                "add it: it is then rebuilt as a whole",
            )),
            false => self.joining(new, role),
        };
        match joins {
            Ok(mut member) => {
                if crate::broken("catch-up") {
                    member.state = State::InSync { role };
                }
                self.attach_joining(id, member)
            }
            Err(why) => {
                if let Some(member) = before {
                    self.members.attach(id, member);
                }
                return Err(why);
            }
        }
        Ok(())
    }

    /// Does the member that has this role hold all of it?
    #[must_use]
    pub fn is_in_sync(&self, role: u16) -> bool {
        self.members.in_sync(role)
    }

    /// Has the member that has this role been given what belongs in this range of sync space, one
    /// unit of background work or less? Then it has a part in what is written there; before, it has
    /// none, and is given it when the work gets there. A unit that is not over counts as done.
    #[must_use]
    pub fn is_rebuilt(&self, role: u16, start: u64, end: u64) -> bool {
        let holder = self.members.role(role).holder.and_then(|id| self.members.get(id));
        match holder.map(|member| member.state) {
            Some(State::InSync { .. }) => true,
            Some(State::Rebuilding { offset, .. }) => {
                let row = match self.space.is_by_role() {
                    true => {
                        self.space.row_of(role, start).map(|row| row + self.space.rows_left(row))
                    }
                    false => Some(end),
                };
                let id = self.members.role(role).holder;
                let done = id.and_then(|id| self.sync.recovered(id)).unwrap_or(0).max(offset);
                row.is_some_and(|row| row <= done)
            }
            _ => false,
        }
    }
}
