//! A member that is copied to a spare which is no member of its role yet, while it serves: the lane
//! copies, and exchanges them when little is left. What is written meanwhile goes to the old one
//! alone; where that has been copied already, it is copied again, in further passes, and the bitmap
//! says so until then. So whoever takes the role over lacks no more than the bitmap marks. Nothing
//! on the members says that a copy is under way: who begins anew knows of none.

use super::Keeper;
use std::borrow::Cow;

use super::command::Answer;
use super::members::State;
use super::sync::Ranges;
use crate::MemberId;
use crate::events::Fault;
use crate::refusal::{Invocation, Next, Refusal};

/// Another pass is not worth its time once less than this part of a member is left.
const LITTLE: u64 = 256;
/// Nor if it leaves more than so many eighths of what was left before: programs write too fast.
const EIGHTHS: u64 = 7;

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// A pass is due, or under way.
    Due,
    /// Little is left.
    Done,
}

/// The copy that is under way; a keeper has at most one. [`Keeper::begin_copying`] makes it, and
/// the whole member is lacking then. Units of [`Work::Copy`](super::Work::Copy) reduce what is
/// lacking, pass after pass, and writes add to it, until little is left. It ends with
/// [`Keeper::let_copied_go`], when the role becomes free for the new member, or with
/// [`Keeper::end_copying`], when the old member stays.
#[derive(Debug)]
pub(super) struct Copying {
    old: MemberId,
    role: u16,
    stage: Stage,
    /// What the new one lacks, as sync space; but for what is being written.
    lacks: Ranges,
    /// How much that was when the pass began.
    before: u64,
}

impl Copying {
    pub(super) const fn role(&self) -> u16 {
        self.role
    }

    pub(super) fn lacks(&self, start: u64, end: u64) -> bool {
        self.lacks.overlaps(start, end)
    }
}

impl Keeper {
    /// From now on a member is copied: units of [`Work::Copy`](super::Work::Copy) are asked for.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn begin_copying(&mut self, old: MemberId) -> Answer {
        self.may_be_copied(old)?;
        let Some(member) = self.members.get_mut(old) else { return Ok(()) };
        let Some(role) = member.state.role() else { return Ok(()) };
        member.want_replacement = true;
        let mut lacks = Ranges::default();
        lacks.insert(0, self.space.sync_sectors());
        let before = lacks.sectors();
        self.copying = Some(Copying { old, role, stage: Stage::Due, lacks, before });
        Ok(())
    }

    /// Can this member be copied to another one while it serves?
    ///
    /// # Errors
    /// Why not.
    pub fn may_be_copied(&self, old: MemberId) -> Answer {
        let refuse = |reason: String, next: Next| Err(Refusal::new(reason, next));
        let Some(member) = self.members.get(old) else {
            let next = Next::by("see its members", Invocation::Detail { array: None });
            return refuse("no such member".to_owned(), next);
        };
        if !matches!(member.state, State::InSync { .. }) {
            return refuse(
                format!("{} is not in sync", member.device),
                "add a spare instead".into(),
            );
        }
        if self.copying.is_some() {
            return refuse("another member is being replaced".to_owned(), "wait for that".into());
        }
        if self.intent.is_none() {
            let reason = "the array has no bitmap to say what is written meanwhile";
            return refuse(reason.to_owned(), "fail the member, then add the other".into());
        }
        if self.members.degraded() > 0 || self.has_to_resync() {
            let next = Next::by("wait until it is whole", Invocation::Watch { array: None });
            return refuse("the array is not in sync".to_owned(), next);
        }
        Ok(())
    }

    /// It is not copied any longer: why. The member stays what it is.
    pub fn end_copying(&mut self, reason: impl Into<Cow<'static, str>>) {
        let Some(copying) = self.copying.take() else { return };
        if let Some(member) = self.members.get_mut(copying.old) {
            member.want_replacement = false;
        }
        if let Some(intent) = &mut self.intent {
            intent.look_again();
        }
        self.interrupt_copying(reason.into());
    }

    /// Is this member being copied?
    #[must_use]
    pub fn is_copied(&self, old: MemberId) -> bool {
        self.copying.as_ref().is_some_and(|copying| copying.old == old)
    }

    /// Has the new one all but a little that the bitmap marks?
    #[must_use]
    pub fn little_is_left(&self) -> bool {
        self.copying.as_ref().is_some_and(|copying| copying.stage == Stage::Done)
    }

    /// Has the old one got something in this range of sync space that the new one has not?
    #[must_use]
    pub fn copy_has_not(&self, start: u64, end: u64) -> bool {
        self.copying.as_ref().is_none_or(|copying| copying.lacks(start, end))
    }

    /// Is whoever takes a role over given what is in this range of sync space?
    #[must_use]
    pub fn is_marked(&self, start: u64, end: u64) -> bool {
        self.intent.as_ref().is_none_or(|intent| intent.dirty(start, end))
    }

    /// What was copied is durable: the old member is done without, and its role is free for who has
    /// nearly all of it. False when that cannot be now, and the copy goes on.
    pub fn let_copied_go(&mut self) -> bool {
        let may = self.members.degraded() == 0 && !self.has_to_resync() && !self.metadata_frozen();
        let Some(copying) = &mut self.copying else { return false };
        if !may {
            copying.stage = Stage::Due;
            return false;
        }
        let old = copying.old;
        self.copying = None;
        if let Some(member) = self.members.get_mut(old) {
            member.want_replacement = false;
        }
        self.fail_member(old, "was replaced", Fault::default());
        true
    }

    /// Is a pass to begin?
    pub(super) fn copy_is_due(&self) -> bool {
        let due = self.copying.as_ref().is_some_and(|copying| copying.stage == Stage::Due);
        due && self.members.degraded() == 0 && !self.has_to_resync()
    }

    /// The range of sync space that the unit of this place has a part in, as writes mark it.
    fn marked_range(&self, start: u64, end: u64) -> (u64, u64) {
        if !self.space.is_by_role() {
            return (start, end);
        }
        let (role, row) =
            (self.copying.as_ref().map_or(0, Copying::role), self.space.first_row(start));
        self.space.of_row(role, row).map_or((start, end), |(start, room)| (start, start + room))
    }

    /// Does the new one lack something of this unit?
    pub(super) fn copy_lacks(&self, start: u64, end: u64) -> bool {
        let (start, end) = self.marked_range(start, end);
        self.copying.as_ref().is_some_and(|copying| copying.lacks(start, end))
    }

    /// A unit has been copied.
    pub(super) fn note_copied(&mut self, start: u64, end: u64) {
        let (start, end) = self.marked_range(start, end);
        if let Some(copying) = &mut self.copying {
            copying.lacks.remove(start, end);
        }
    }

    /// A unit cannot be copied: the others are to give it to the new one once that has the role.
    pub(super) fn note_not_copied(&mut self, start: u64, end: u64) {
        let (start, end) = self.marked_range(start, end);
        let next = self.meta.ticket();
        let mut pages = std::collections::BTreeSet::new();
        if let Some(intent) = &mut self.intent {
            intent.begin(start, end, next, &mut pages);
            intent.end(start, end, false);
        }
        pages.into_iter().for_each(|page| self.wish_bitmap_page(page));
    }

    /// The old one has got something that the new one has not.
    pub(super) fn note_written(&mut self, start: u64, end: u64) {
        if let Some(copying) = &mut self.copying {
            copying.lacks.insert(start, end);
        }
    }

    /// A pass is over. Is there to be another one?
    pub(super) fn goes_round(&mut self) -> bool {
        let all = self.space.sync_sectors();
        let Some(copying) = &mut self.copying else { return false };
        if let Some(intent) = &mut self.intent {
            intent.look_again();
        }
        let left = copying.lacks.sectors();
        let before = std::mem::replace(&mut copying.before, left);
        left > all / LITTLE && left * 8 <= before * EIGHTHS
    }

    /// There is to be no other one.
    pub(super) fn passes_are_over(&mut self) {
        if let Some(copying) = &mut self.copying {
            copying.stage = Stage::Done;
        }
    }
}
