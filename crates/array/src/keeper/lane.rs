//! What a keeper and its lane say to each other.

use super::{MetaWrite, Tried, Unit, Unread, Work};
use crate::action::{CommandId, IoError};
use crate::events::{ArrayEvent, Fault};
use crate::{MemberId, Refusal};

/// What a keeper asks of its lane. Answers are methods of [`Keeper`](super::Keeper).
#[derive(Clone, Debug)]
pub enum LaneCommand {
    /// All that was written to a member so far is to be durable. Answer: `update_done`.
    Flush(MemberId),
    /// Metadata are to be on a member, durably. Answer: `update_done`,
    /// also when the member has failed meanwhile.
    Write(MetaWrite),
    /// Something that operations wait for may be on the members now: see `is_told`.
    Updated,
    /// A unit of background work. Answer: `work_done`.
    Work {
        /// Its name in the keeper's books.
        place: u64,
        /// Where.
        unit: Unit,
        /// What.
        work: Work,
    },
    /// What is in flight on a member is not waited for any longer: it counts as failed.
    GiveUp(MemberId),
    /// The id will mean another device: what was given up on it belongs to none.
    Disown(MemberId),
    /// The answer to a command.
    Reply(CommandId, Result<(), Refusal>),
    /// What people want to know.
    Notify(ArrayEvent),
}

/// What a lane reports of its I/O and its writes: see [`Keeper::hear`](super::Keeper::hear).
/// Sectors are those of the member's device, or rows of sync space where they have a start and an
/// end.
#[derive(Debug)]
pub enum LaneReport {
    /// An operation on a member is on its way.
    Asked(MemberId),
    /// A member has answered an operation.
    Answered(MemberId),
    /// A read of a member ends at this sector: the next one that begins there is sequential.
    ReadUpTo(MemberId, u64),
    /// A member could read so many sectors from this one on.
    Readable(MemberId, u64, u64),
    /// A member that lives could not.
    Unreadable(MemberId, u64, u64),
    /// What lies there was written anew: it is no longer bad.
    Rewritten(MemberId, u64, u64),
    /// A member has room for what is written.
    HasRoom(MemberId),
    /// An operation on a member failed.
    Failed(MemberId, Tried, IoError),
    /// What was rewritten cannot be read all the same.
    NotCorrectable(MemberId, Fault),
    /// What a member could not read was rewritten and read, or could not be (`false`).
    Mended(MemberId, Fault, bool),
    /// A write has made sums from all data of these rows: they fit.
    Fitting(u64, u64),
    /// A write reached some members and not others: until a resync has been there, they may differ.
    Torn(u64, u64),
    /// A repair made these readable from parity, and no resync has made that fit.
    Trusted(Vec<Unread>),
    /// A unit of background work, by its place, is done in so many more parts than one.
    WorkParted(u64, usize),
    /// One thing that the running update asked for is done, or its member has failed.
    UpdateDone,
}

/// What differs between lanes.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A check needs all members, even where copies could be compared without one.
    pub(super) scrubs_whole: bool,
    /// What was under way at an unclean stop is not called in line because nothing is left to
    /// compare it with: what a lost member had of it cannot be told from the others.
    pub(super) keeps_torn: bool,
    /// What is lost with a member while sums of it may not fit counts as that, sector by sector,
    /// and is noted as bad where the sums are.
    pub(super) marks_lost: bool,
    /// Units of background work under way at most.
    pub(super) units_at_once: usize,
    /// How long a member may answer nothing while a stop waits for it.
    pub(super) stop_patience_ms: u64,
    /// How many chunks of the bitmap are marked ahead of a sequential writer, where telling the
    /// members takes long; 0 as md does.
    pub(super) marks_ahead: usize,
    /// The lane says when a spare gets a role, and which: it has to reach it first.
    pub(super) lane_takes_spares: bool,
    /// A sample of what members were given is read back before they take a role over.
    pub(super) reads_back: bool,
}

impl Rules {
    /// For members that this process reaches itself.
    #[must_use]
    pub const fn local() -> Self {
        Self {
            scrubs_whole: false,
            keeps_torn: true,
            marks_lost: true,
            units_at_once: 16,
            stop_patience_ms: 60_000,
            marks_ahead: 0,
            lane_takes_spares: false,
            reads_back: true,
        }
    }

    /// For members on nodes. `units_at_once`: units of background work under way at most;
    /// `forced`: the array was assembled by force, and what was under way counts as in line once
    /// nothing is left to compare it with.
    #[must_use]
    pub const fn over_nodes(units_at_once: usize, forced: bool) -> Self {
        Self {
            scrubs_whole: true,
            keeps_torn: !forced,
            marks_lost: false,
            units_at_once,
            stop_patience_ms: 10_000,
            marks_ahead: 4,
            lane_takes_spares: true,
            reads_back: false,
        }
    }
}

/// What a keeper has to know of its lane, when it is driven.
#[derive(Clone, Copy)]
pub struct Traffic<'a> {
    /// No request and no planned operation is under way.
    pub quiet: bool,
    /// Does a planned operation mean this member?
    pub plans: &'a dyn Fn(MemberId) -> bool,
    /// Was something given up on it that has not been answered since?
    pub gave_up: &'a dyn Fn(MemberId) -> bool,
}

impl Traffic<'_> {
    pub(super) fn is_meant(self, id: MemberId) -> bool {
        (self.plans)(id) || (self.gave_up)(id)
    }
}
