//! Members that fail, and arrays that have lost too many.
//!
//! A write error, a vanished device or one that has become smaller makes a member faulty; the
//! superblocks of the others say so before any write is acknowledged. A read error of the medium
//! does not: it is repaired by rewriting. A file system without room is no fault of the member: the
//! write is refused, and what it may have left different among the members stays marked. When the
//! array cannot do without the member, nothing is written any more, the superblocks included: they
//! still tell the last state in which the array could run.

use std::borrow::Cow;

use super::core::Core;
use super::joining::{MADE_FAULTY, TAKE_BACK};
use super::logs;
use super::members::State;
use super::metadata::Metadata;
use super::{Keeper, LaneCommand, Redundancy, Tried};
use crate::MemberId;
use crate::action::{IoError, IoErrorKind};
use crate::events::{ArrayEvent, Fault};
use crate::refusal::{Next, Refusal};

const TRY_AGAIN: &str = "replace the member, and try again once it is rebuilt";

/// After so long without room for what must be written, that counts as a write error.
const FULL_MS: u64 = 60_000;

/// The updates that tell the members of the last failure: two, one after the other, for a member
/// one event behind counts as current, and a forced start would take the failed one back with what
/// it held before.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// The second.
    pub(super) ticket: u64,
    /// The first, until the second is queued.
    pub(super) first: Option<u64>,
}

impl Failures {
    pub(super) fn queue(&mut self, metadata: &mut Metadata) {
        let first = metadata.queue_superblock(false);
        self.first = Some(first);
        self.ticket = first + 1;
    }

    /// The first may be done: queues the second.
    pub(super) fn repeat(&mut self, metadata: &mut Metadata) {
        if self.first.take_if(|first| metadata.is_done(*first)).is_some() {
            metadata.queue_superblock(false);
        }
    }
}

impl Keeper {
    /// Counts an error and makes the member faulty when the error says so.
    pub(super) fn failed_io(&mut self, id: MemberId, tried: Tried, error: IoError) {
        if error.kind == IoErrorKind::Abandoned {
            return;
        }
        if let Some(member) = self.core.members.get_mut(id) {
            member.errors += 1;
        }
        let fault = Fault { sector: tried.sector, errno: error.errno };
        let refused = tried.sector.is_some() && !tried.must_land;
        if error.kind == IoErrorKind::Full && refused {
            return self.core.out.notify(ArrayEvent::MemberFull { member: id, fault });
        }
        let shrunk = error.kind == IoErrorKind::Shrunk;
        let reason = match (tried.changes, error.kind) {
            // The array goes on with what it has left.
            (false, IoErrorKind::Shrunk) if self.core.needs(id) => return,
            (_, IoErrorKind::Shrunk) => "has become smaller",
            (true, _) => "write error",
            (false, IoErrorKind::Gone) => "device gone",
            (false, _) => return,
        };
        let medium = error.kind == IoErrorKind::Medium || shrunk;
        if !self.core.service.redundant || self.core.service.read_only && medium {
            return;
        }
        let last_copy = self.core.space.redundancy() == Redundancy::Copies && self.core.needs(id);
        if last_copy && medium {
            return;
        }
        self.fail_member(id, reason, fault);
    }

    /// Makes a member faulty; `fault`: what it answered.
    pub(crate) fn fail_member(&mut self, id: MemberId, reason: &'static str, fault: Fault) {
        self.lose(id, reason.into(), fault, Next::default());
    }

    /// Members that a command made faulty, and that are there, stay so: they have a vote, and no
    /// part in the array.
    pub(super) fn keep_out(&mut self) {
        let Core { members, metadata, .. } = &mut self.core;
        let mut made_faulty = Vec::new();
        for (id, member) in members.iter_live() {
            if !metadata.made_faulty.contains(&member.superblock.dev_number) {
                continue;
            }
            if member.state.is_rebuilding() {
                made_faulty.push(id);
            } else {
                // Force took it in, or it is a spare.
                metadata.made_faulty.remove(&member.superblock.dev_number);
            }
        }
        for id in made_faulty {
            self.lose(id, MADE_FAULTY.into(), Fault::default(), TAKE_BACK.into());
        }
    }

    /// A member is gone.
    pub fn lose_member(&mut self, id: MemberId, why: Refusal) {
        if let Some(member) = self.core.members.get_mut(id) {
            member.errors += 1;
        }
        self.lose(id, why.reason.into(), Fault::default(), why.next);
    }

    fn lose(&mut self, id: MemberId, reason: Cow<'static, str>, fault: Fault, next: Next) {
        let Some(member) = self.core.members.get(id) else { return };
        if !member.state.is_live() {
            return;
        }
        let fatal = self.core.needs(id);
        let role = member.state.role();
        if member.state == State::Journal {
            return self.lose_journal(id, reason, fault);
        }
        self.sync.unsynced.know_what_waits(&self.core);
        let begun = self.begun;
        self.core.members.change(id, |member| {
            member.had_all = begun && matches!(member.state, State::InSync { .. });
            member.loss_untold = true;
        });
        self.core.members.set_state(id, State::Faulty { role });
        self.core.members.forget_wanted(id);
        if let Some(role) = role {
            self.core.members.pass_role_on(role);
        }
        let out = &mut self.core.out;
        out.push(LaneCommand::GiveUp(id));
        out.notify(ArrayEvent::MemberFailed { member: id, reason, fault, next });
        self.sync.member_lost(&mut self.core, id, role);
        let why = Refusal::new("a member failed meanwhile", TRY_AGAIN);
        self.growing.give_up(&mut self.core, why.clone());
        self.lengthening.give_up(&mut self.core, why);
        if fatal && !self.core.service.failed {
            self.core.service.failed = true;
            self.core.out.notify(ArrayEvent::ArrayFailed);
            return;
        }
        if !self.core.service.failed && !self.core.service.writes_over {
            self.failures.queue(&mut self.core.metadata);
        }
    }

    /// The journal is gone. Unless it is off, writes would be made without it, so no more are
    /// served. Superblocks go on telling the last state: whatever was acknowledged is in the
    /// journal, or in place.
    fn lose_journal(&mut self, id: MemberId, reason: Cow<'static, str>, fault: Fault) {
        let core = &mut self.core;
        core.members.set_state(id, State::Faulty { role: None });
        core.out.push(LaneCommand::GiveUp(id));
        let next = if logs::goes_without(core, id) {
            "the array goes on without it; with it, or with another one, when it is started again"
        } else {
            core.service.writes_over = true;
            "put another device in its place: braid add NAME DEVICE --journal"
        };
        let next = Next::from(next);
        core.out.notify(ArrayEvent::MemberFailed { member: id, reason, fault, next });
        if core.service.writes_over {
            let why = Refusal::new("the journal failed meanwhile", TRY_AGAIN);
            self.growing.give_up(core, why);
        }
    }

    /// The array cannot be served at all, or not any more.
    pub fn give_up(&mut self) {
        let live: Vec<MemberId> = self.core.members.iter_live().map(|(id, _)| id).collect();
        for id in live {
            let role = self.core.members.get(id).and_then(|member| member.state.role());
            self.core.members.set_state(id, State::Faulty { role });
            self.core.out.push(LaneCommand::GiveUp(id));
        }
        self.core.service.writes_over = true;
        if !self.core.service.failed {
            self.core.service.failed = true;
            self.core.out.notify(ArrayEvent::ArrayFailed);
        }
    }

    /// Counts an error of a member that holds a role; one with too many is made faulty.
    pub(super) fn mending_wanted(&mut self, id: MemberId, fault: Fault) {
        let now = self.core.now;
        let Some(member) = self.core.members.get_mut(id) else { return };
        let serves = member.state.is_live() && member.state.role().is_some();
        if serves && member.doubts.too_many(now, fault.sector.unwrap_or(0)) {
            self.distrust(id, "too many read errors", fault);
        }
    }

    /// A member does not read what it was given: it goes, unless data would go with it.
    fn distrust(&mut self, id: MemberId, reason: &'static str, fault: Fault) {
        if !self.core.needs(id) && self.core.made_up_for(id).is_none() {
            self.fail_member(id, reason, fault);
        } else if let Some(member) = self.core.members.get_mut(id) {
            member.doubts.doubt_everywhere();
        }
    }

    /// Distrusts a member that cannot read what was rewritten there.
    pub(super) fn not_correctable(&mut self, id: MemberId, fault: Fault) {
        self.distrust(id, "read error not correctable", fault);
    }
}

impl Core {
    /// A member has no room for what must be written.
    pub(super) fn no_room(&mut self, id: MemberId, fault: Fault) {
        self.members.full(id, self.now);
        if self.waits_for_room(id) {
            self.out.notify(ArrayEvent::MemberFull { member: id, fault });
        }
    }

    /// Returns whether writes that did not find room on this member are to be tried again.
    pub(super) fn waits_for_room(&self, id: MemberId) -> bool {
        let member = self.members.get(id).filter(|member| member.state.is_live());
        let since = member.and_then(|member| member.full_since);
        since.is_some_and(|since| self.now < since.plus_millis(FULL_MS))
    }

    /// Takes note that unreadable sectors of a member were rewritten and read, or could not be.
    pub(super) fn mended(&mut self, id: MemberId, fault: Fault, ok: bool) {
        if !ok {
            self.out.notify(ArrayEvent::ReadFailed { member: id, fault });
        } else if self.members.live(id) {
            self.members.change(id, |member| member.superblock.corrected_reads += 1);
            self.out.notify(ArrayEvent::ReadCorrected { member: id, fault });
        }
    }

    /// Takes note that sectors were written anew, and are no longer bad. Returns whether they were.
    pub(super) fn rewritten(&mut self, id: MemberId, sector: u64, sectors: u64) -> bool {
        let Some(member) = self.members.get_mut(id) else { return false };
        member.doubts.remove(sector, sectors);
        let was_bad = member.state.is_live()
            && member.bad_blocks.overlaps(sector, sectors)
            && member.bad_blocks.remove(sector, sectors);
        if was_bad {
            self.metadata.queue_bad_blocks(id);
        }
        was_bad
    }
}
