//! Units that are being rewritten because a member could not read them.

use crate::MemberId;
use crate::events::Fault;
use crate::keeper::Unit;

/// A member that could not read a part of what a job asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnreadMember {
    pub(crate) member: MemberId,
    pub(crate) fault: Fault,
}

/// Units under repair, each with the member that is to read it again.
#[derive(Debug, Default)]
pub(super) struct Mending(Vec<(MemberId, Unit)>);

impl Mending {
    /// Returns whether any part of this unit is being rewritten on the member.
    pub(super) fn is_known(&self, id: MemberId, unit: Unit) -> bool {
        self.0
            .iter()
            .any(|(other, held)| *other == id && held.start < unit.end() && unit.start < held.end())
    }

    pub(super) fn begin(&mut self, id: MemberId, unit: Unit) {
        self.0.push((id, unit));
    }

    pub(super) fn end(&mut self, id: MemberId, unit: Unit) {
        self.0.retain(|held| *held != (id, unit));
    }

    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }
}
