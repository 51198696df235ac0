//! A member that is copied to a spare which is no member of its role yet, while it serves: the lane
//! copies, and exchanges them when little is left. Writes that come meanwhile go to the old member
//! alone. Where that has been copied already, it is copied again, in further passes, and the bitmap
//! says so until then. A new member that takes the role over thus lacks no more than the bitmap
//! marks. Nothing on the members says that a copy is under way: a keeper that begins anew knows of
//! none.

use super::Ranges;
use crate::keeper::core::Core;
use crate::keeper::members::State;
use crate::refusal::{Invocation, Next, Refusal};
use crate::{MemberId, Role};

/// Another pass is not worth its time once less than this part of a member is left.
const LITTLE: u64 = 256;
/// Nor if it leaves more than so many eighths of what was left before: programs write too fast.
const EIGHTHS: u64 = 7;

/// The stage of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyStage {
    /// A pass is due, or under way.
    Due,
    /// Little is left.
    Done,
}

/// The copy that is under way; a keeper has at most one. [`begin`](Self::begin) makes it, and the
/// whole member is lacking then. Units of [`Work::Copy`](crate::keeper::Work::Copy) reduce what is
/// lacking, pass after pass, and writes add to it, until little is left. A copy ends when the role
/// becomes free for the new member, or when the old member stays.
#[derive(Debug)]
pub(in crate::keeper) struct Copying {
    pub(super) old: MemberId,
    pub(super) role: Role,
    stage: CopyStage,
    /// Ranges of sync space that the new member lacks, except for what is being written.
    pub(in crate::keeper) lacks: Ranges,
    /// Size of the ranges that were lacking when the pass began.
    before: u64,
}

impl Copying {
    /// Begins to copy a member that [can be copied](Self::check), and has this role.
    pub(super) fn begin(core: &mut Core, old: MemberId, role: Role) -> Self {
        if let Some(member) = core.members.get_mut(old) {
            member.want_replacement = true;
        }
        let mut lacks = Ranges::default();
        lacks.insert(0, core.space.sync_sectors());
        let before = lacks.sectors();
        Self { old, role, stage: CopyStage::Due, lacks, before }
    }

    /// Checks that a member can be copied to another one while it serves. Returns its role.
    /// `another`: a copy is under way.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub(super) fn check(core: &Core, old: MemberId, another: bool) -> Result<Role, Refusal> {
        let refuse = |reason: String, next: Next| Err(Refusal::new(reason, next));
        let Some(member) = core.members.get(old) else {
            let next = Next::by("see its members", Invocation::Detail { array: None });
            return refuse("no such member".to_owned(), next);
        };
        let State::InSync { role } = member.state else {
            return refuse(
                format!("{} is not in sync", member.device),
                "add a spare instead".into(),
            );
        };
        if another {
            return refuse("another member is being replaced".to_owned(), "wait for that".into());
        }
        if core.metadata.intent.is_none() {
            let reason = "the array has no bitmap to say what is written meanwhile";
            return refuse(reason.to_owned(), "fail the member, then add the other".into());
        }
        if core.members.degraded() > 0 || core.metadata.has_to_resync() {
            let next = Next::by("wait until it is whole", Invocation::Watch { array: None });
            return refuse("the array is not in sync".to_owned(), next);
        }
        Ok(role)
    }

    /// Returns whether the new member has all but a little that the bitmap marks.
    pub(in crate::keeper) fn little_is_left(&self) -> bool {
        self.stage == CopyStage::Done
    }

    /// Returns whether the old member may be done without. If not, the copy goes on.
    pub(super) fn may_end(&mut self, core: &Core) -> bool {
        let whole = core.members.degraded() == 0 && !core.metadata.has_to_resync();
        let may = whole && !core.service.metadata_frozen();
        if !may {
            self.stage = CopyStage::Due;
        }
        may
    }

    /// The old member is not copied any longer.
    pub(super) fn end(self, core: &mut Core) {
        if let Some(member) = core.members.get_mut(self.old) {
            member.want_replacement = false;
        }
    }

    /// Returns whether a pass is to begin.
    pub(super) fn is_due(&self, core: &Core) -> bool {
        let whole = core.members.degraded() == 0 && !core.metadata.has_to_resync();
        whole && self.stage == CopyStage::Due
    }

    /// The range of sync space that the unit of this place has a part in, as writes mark it.
    fn marked_range(&self, core: &Core, start: u64, end: u64) -> (u64, u64) {
        if !core.space.is_by_role() {
            return (start, end);
        }
        let row = core.space.first_row(start);
        let place = core.space.of_row(self.role, row);
        place.map_or((start, end), |(start, room)| (start, start + room))
    }

    /// Returns whether the new member lacks something of this unit.
    pub(super) fn lacks_of_unit(&self, core: &Core, start: u64, end: u64) -> bool {
        let (start, end) = self.marked_range(core, start, end);
        self.lacks.overlaps(start, end)
    }

    /// A unit has been copied.
    pub(super) fn note_copied(&mut self, core: &Core, start: u64, end: u64) {
        let (start, end) = self.marked_range(core, start, end);
        self.lacks.remove(start, end);
    }

    /// A unit cannot be copied: the others are to give it to the new one once that has the role.
    pub(super) fn note_not_copied(&self, core: &mut Core, start: u64, end: u64) {
        let (start, end) = self.marked_range(core, start, end);
        core.metadata.mark_for_copy(start, end);
    }

    /// Takes note that a pass is over. Returns whether there is to be another one.
    pub(super) fn goes_round(&mut self, core: &mut Core) -> bool {
        core.metadata.look_again();
        let left = self.lacks.sectors();
        let before = std::mem::replace(&mut self.before, left);
        left > core.space.sync_sectors() / LITTLE && left * 8 <= before * EIGHTHS
    }

    /// Ends the passes: there is to be no other one.
    pub(super) const fn end_passes(&mut self) {
        self.stage = CopyStage::Done;
    }
}
