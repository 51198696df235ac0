//! An array within an array, and the one around it: what they have to know of each other.

use super::Array;
use crate::action::{Action, CommandId};
use crate::refusal::Refusal;
use crate::{Buf, IoId, MemberId};

impl Array {
    /// Returns whether the array would lose data without this member.
    pub(crate) fn needs(&self, id: MemberId) -> bool {
        self.lane.keeper().needs(id)
    }

    /// Returns whether this is a member that serves, or is about to.
    pub(crate) fn is_live(&self, id: MemberId) -> bool {
        self.lane.keeper().members().live(id)
    }

    /// Returns whether this is a member, be it a faulty one.
    pub(crate) fn has(&self, id: MemberId) -> bool {
        self.lane.keeper().members().get(id).is_some()
    }

    /// Returns whether more members are lost than the array can do without.
    pub(crate) const fn has_failed(&self) -> bool {
        self.lane.keeper().has_failed()
    }

    /// Notes whether the array around this one goes on without it.
    pub(crate) const fn set_dispensable(&mut self, dispensable: bool) {
        self.lane.keeper_mut().set_dispensable(dispensable);
    }

    /// Answers a command that somebody else has judged.
    pub(crate) fn refuse(&mut self, id: CommandId, why: Refusal) {
        self.lane.actions.push_back(Action::Reply { id, result: Err(why) });
    }

    /// Returns whether its level can do without any member.
    pub(crate) fn is_redundant(&self) -> bool {
        self.lane.keeper().is_redundant()
    }

    /// Roles without an in-sync member.
    pub(crate) fn degraded(&self) -> u16 {
        self.lane.keeper().members().degraded()
    }

    /// The memory of an I/O that is not waited for: nobody may use it until the I/O is answered.
    pub(crate) fn lend(&mut self, io: IoId, buf: Option<Buf>) {
        if let Some(buf) = buf {
            self.lane.pool.lend(io, buf);
        }
    }

    /// An I/O that nobody waited for is answered.
    pub(crate) fn unlend(&mut self, io: IoId) {
        if self.lane.pool.unlend(io) {
            self.jobs.scratch_given();
            self.logging.log.use_memory(&mut self.lane);
            self.pump_pages();
        }
    }
}
