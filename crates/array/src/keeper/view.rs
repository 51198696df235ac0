//! The view that a lane has of its keeper. Nothing here changes anything.

use super::Keeper;
use super::command::{CommandAnswer, refuse};
use super::core::Core;
use super::journal::AwaitedJournal;
use super::members::Members;
use crate::refusal::{Invocation, Next};
use crate::{Instant, MemberId, Op, RequestError};

/// The keeper as its lane sees it at one moment: the members and how far the array is served, what
/// superblocks and bitmap say, how far background work is. The view owns nothing and changes
/// nothing, and no field of the keeper is reached through it: a lane that runs beside its keeper
/// can get a copy of the answers instead.
///
/// A report of the lane counts once the keeper has [heard](Keeper::hear) it: a lane looks only
/// after that.
#[derive(Clone, Copy, Debug)]
pub struct KeeperView<'a> {
    pub(super) keeper: &'a Keeper,
}

impl Keeper {
    /// Returns the lane's view of the keeper.
    #[must_use]
    pub const fn view(&self) -> KeeperView<'_> {
        KeeperView { keeper: self }
    }
}

impl<'a> KeeperView<'a> {
    /// Returns whether the level can do without any member.
    #[must_use]
    pub fn is_redundant(self) -> bool {
        self.keeper.core.service.redundant
    }

    /// Smallest I/O that the array and every member take.
    #[must_use]
    pub const fn block_bytes(self) -> u32 {
        self.keeper.core.metadata.block_bytes
    }

    /// The UUID of the array.
    #[must_use]
    pub const fn set_uuid(self) -> [u8; 16] {
        self.keeper.core.metadata.superblock.set_uuid
    }

    /// Returns whether the array is served read-only.
    #[must_use]
    pub const fn is_read_only(self) -> bool {
        self.keeper.core.service.read_only
    }

    /// Returns whether more members are gone than the level can do without.
    #[must_use]
    pub const fn has_failed(self) -> bool {
        self.keeper.core.service.failed
    }

    /// Returns whether no more writes can be served, though reads can.
    #[must_use]
    pub const fn writes_over(self) -> bool {
        self.keeper.core.service.writes_over
    }

    /// Returns whether the lane is to hold requests that come: the array is being given another
    /// shape.
    #[must_use]
    pub const fn holds_requests(self) -> bool {
        self.keeper.growing.holds_requests()
            || self.keeper.lengthening.holds_requests()
            || self.keeper.resuming.holds_requests()
    }

    /// Returns whether the array has been stopped.
    #[must_use]
    pub const fn has_stopped(self) -> bool {
        self.keeper.core.service.stopped
    }

    /// Returns whether somebody answers for what sums say of lost data where they may not fit: the
    /// array was started by force, and no resync has come to its end since.
    #[must_use]
    pub const fn is_vouched_for(self) -> bool {
        self.keeper.sync.unsynced.vouched
    }

    /// Returns whether the array is being stopped.
    #[must_use]
    pub const fn is_stopping(self) -> bool {
        self.keeper.core.service.stopping
    }

    /// Returns whether a write may start that the lane has asked for by
    /// [`BeginWrite`](super::LaneReport::BeginWrite): superblocks and bitmap of all members that
    /// live say that there may be one.
    #[must_use]
    pub fn may_start(self, write: u64) -> bool {
        self.keeper.writes.may_start(write)
    }

    /// Returns whether a whole stripe may be stored that is not recorded: the members know that
    /// there are such ones. The lane asks for that by
    /// [`StoresUnrecorded`](super::LaneReport::StoresUnrecorded).
    #[must_use]
    pub fn may_store_unrecorded(self) -> bool {
        self.keeper.core.metadata.may_store_unrecorded()
    }

    /// Returns where the first record lies that still counts, as the superblock of md's journal
    /// says: sectors of its data area. `None`: there is no journal.
    #[must_use]
    pub fn journal_tail(self) -> Option<u64> {
        self.keeper.core.metadata.journal.and_then(|journal| journal.told_tail())
    }

    /// Returns whether writes that did not find room on this member are to be tried again.
    #[must_use]
    pub fn waits_for_room(self, id: MemberId) -> bool {
        self.keeper.core.waits_for_room(id)
    }

    /// Returns whether sectors that this member could not read are worth rewriting.
    #[must_use]
    pub fn is_worth_mending(self, id: MemberId) -> bool {
        let member = self.keeper.core.members.get(id);
        member.is_some_and(|member| member.state.is_live() && member.state.role().is_some())
    }

    /// Returns whether superblocks tell of all failures. Before that nothing is acknowledged.
    #[must_use]
    pub const fn failures_told(self) -> bool {
        self.keeper.core.metadata.is_done(self.keeper.failures.ticket)
            || self.keeper.core.service.failed
    }

    /// Returns whether superblocks tell of all members that became in sync.
    #[must_use]
    pub fn arrivals_told(self) -> bool {
        !self.keeper.core.members.any_arriving()
            && self
                .keeper
                .core
                .metadata
                .running
                .as_ref()
                .is_none_or(|update| update.arrivals.is_empty())
    }

    /// Checks that the array takes a request of this kind now.
    ///
    /// # Errors
    /// [`RequestError::ReadOnly`], [`RequestError::Failed`].
    pub const fn admits(self, op: Op) -> Result<(), RequestError> {
        let service = self.keeper.core.service;
        match op {
            Op::Read | Op::Flush => Ok(()),
            _ if service.read_only => Err(RequestError::ReadOnly),
            _ if service.failed || service.writes_over || service.stopping => {
                Err(RequestError::Failed)
            }
            _ => Ok(()),
        }
    }

    /// Returns whether a part of the array waits for a resync.
    #[must_use]
    pub const fn has_to_resync(self) -> bool {
        self.keeper.core.metadata.has_to_resync()
    }

    /// Tells whether there are sums that may not fit, and that no bad-block log tells of.
    #[must_use]
    pub fn has_torn(self) -> bool {
        self.keeper.sync.unsynced.any_unnoted(&self.keeper.core)
    }

    /// Returns whether this range of sync space is known to be in step: nothing of it waits for a
    /// resync.
    #[must_use]
    pub fn in_step(self, start: u64, end: u64) -> bool {
        self.keeper.sync.unsynced.in_step(&self.keeper.core, start, end)
    }

    /// Returns when to call [`tick`](Keeper::tick) and the drivers at the latest.
    #[must_use]
    pub fn deadline(self) -> Option<Instant> {
        let now = self.keeper.core.now;
        let removals =
            self.keeper.removals.iter().map(|removal| removal.until).filter(|at| *at > now);
        let journal = self.keeper.awaited_journal.as_deref().map(AwaitedJournal::until);
        let waits = [
            self.keeper.stop.deadline(&self.keeper.core),
            self.keeper.growing.deadline(),
            self.keeper.lengthening.deadline(),
            self.keeper.resuming.deadline(),
            journal.filter(|at| *at > now),
        ];
        let always = waits.into_iter().flatten().chain(removals.min()).min();
        if self.keeper.core.service.metadata_frozen() {
            return always;
        }
        let more = [
            always,
            self.keeper.checkpoints.due_at(&self.keeper.core),
            self.keeper.sync.deadline(now),
        ];
        more.into_iter().flatten().min()
    }

    /// Nothing is asked for, no update is due, no background work is under way.
    #[must_use]
    pub fn is_idle(self) -> bool {
        self.keeper.core.is_idle() && self.keeper.sync.is_idle()
    }

    /// All that is left is background work that goes on with a command.
    #[must_use]
    pub fn is_paused(self) -> bool {
        self.keeper.core.is_idle()
            && self.keeper.sync.is_paused()
            && self.keeper.sync.in_flight() == 0
    }

    /// The moment of the last call of [`at`](Keeper::at).
    #[must_use]
    pub const fn now(self) -> Instant {
        self.keeper.core.now
    }

    /// No superblock, bitmap or log may be written.
    pub(crate) const fn metadata_frozen(self) -> bool {
        self.keeper.core.service.metadata_frozen()
    }

    pub(crate) const fn members(self) -> &'a Members {
        &self.keeper.core.members
    }

    /// Returns whether the array would fail without this member.
    #[must_use]
    pub fn needs(self, id: MemberId) -> bool {
        self.keeper.core.needs(id)
    }

    /// Returns whether any part of the array can be compared with something.
    pub(crate) fn is_comparable(self) -> bool {
        self.keeper.core.is_comparable()
    }

    /// Tells whether anything on any member is known to be bad.
    #[must_use]
    pub fn has_bad_blocks(self) -> bool {
        self.keeper.core.members.iter_live().any(|(_, member)| !member.bad_blocks.is_empty())
    }

    /// Tells whether bad-block logs say durably what is bad, and what is not any more.
    #[must_use]
    pub const fn bad_blocks_told(self) -> bool {
        self.keeper.core.metadata.bad_blocks_told() || self.keeper.core.service.failed
    }

    /// Returns whether anything on any member is known or thought to be unreadable.
    #[must_use]
    pub fn doubts_any(self) -> bool {
        self.keeper.core.members.iter().any(|(_, m)| !m.bad_blocks.is_empty() || m.doubts.any())
    }

    /// The members that live and owe an answer, and since when they have been silent.
    pub fn owing(self) -> impl Iterator<Item = (MemberId, Instant)> + use<'a> {
        self.keeper.core.members.owing()
    }

    /// Grows with each update that is done or under way.
    #[must_use]
    pub fn updates(self) -> u64 {
        self.keeper.core.metadata.ticket()
    }

    /// Returns whether a unit that was not done as a whole may be tried in parts.
    #[must_use]
    pub const fn work_goes_on(self) -> bool {
        self.keeper.sync.work_goes_on()
    }

    /// The lowest number that no member has.
    #[must_use]
    pub fn free_id(self) -> Option<MemberId> {
        let Core { members, spill, .. } = &self.keeper.core;
        let journal = self.keeper.awaited_journal.as_deref().map(AwaitedJournal::member);
        members.free_id(&[spill.as_ref().map(|spill| spill.member), journal])
    }

    /// Checks that members may come and go.
    ///
    /// # Errors
    /// The reason why they may not.
    pub fn is_changeable(self) -> CommandAnswer {
        if self.keeper.core.service.read_only {
            return refuse("the array is read-only", "assemble it without --readonly");
        }
        if self.keeper.core.service.failed {
            let advice = "stop it, bring the members back and assemble it again";
            let stop = Invocation::Stop { array: None, force: false };
            return refuse("the array has lost too many members", Next::by(advice, stop));
        }
        if !self.keeper.core.service.redundant {
            return refuse(
                format!("{} has no redundancy", self.keeper.core.space.level_name()),
                "restore from a backup what a failed member held",
            );
        }
        Ok(())
    }
}
