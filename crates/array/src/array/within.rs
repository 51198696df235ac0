//! An array within an array, and the one around it: what they have to know of each other.

use super::Array;
use crate::MemberId;
use crate::action::{Action, CommandId};
use crate::refusal::Refusal;

impl Array {
    /// Would it lose data without this member?
    pub(crate) fn needs(&self, id: MemberId) -> bool {
        self.keeper.needs(id)
    }

    /// Is this a member that serves, or is about to?
    pub(crate) fn is_live(&self, id: MemberId) -> bool {
        self.keeper.members().live(id)
    }

    /// Is this a member, be it a faulty one?
    pub(crate) fn has(&self, id: MemberId) -> bool {
        self.keeper.members().get(id).is_some()
    }

    /// Has it lost more members than it can do without?
    pub(crate) const fn has_failed(&self) -> bool {
        self.keeper.has_failed()
    }

    /// Does the array around it go on without it?
    pub(crate) const fn set_dispensable(&mut self, dispensable: bool) {
        self.keeper.set_dispensable(dispensable);
    }

    /// Answers a command that somebody else has judged.
    pub(crate) fn refuse(&mut self, id: CommandId, why: Refusal) {
        self.actions.push_back(Action::Reply { id, result: Err(why) });
    }
}
