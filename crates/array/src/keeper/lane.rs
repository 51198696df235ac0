//! The messages between a keeper and its lane: all of them, but for administrators' commands.

use super::{Done, MetaWrite, Unit, Unread, Work};
use crate::action::{CommandId, IoError};
use crate::events::{ArrayEvent, Fault, StripeBlock};
use crate::grow::NewShape;
use crate::status::JournalMode;
use crate::{MemberId, Op, Refusal};

/// A command of a keeper to its lane. Commands are carried out in order. Answers are
/// [`LaneReport`]s.
#[derive(Clone, Debug)]
pub enum LaneCommand {
    /// All that was written to a member so far is to be durable. Answer:
    /// [`UpdateDone`](LaneReport::UpdateDone).
    Flush(MemberId),
    /// Metadata are to be on a member, durably. Answer:
    /// [`UpdateDone`](LaneReport::UpdateDone), also when the member has failed meanwhile.
    Write(MetaWrite),
    /// Something that operations wait for may be on the members now: see
    /// [`KeeperView`](super::KeeperView).
    Updated,
    /// A checkpoint is complete that the lane [wanted](LaneReport::WantsCheckpoint): all members
    /// that live have moved on by it.
    CheckpointDone,
    /// A unit of background work. Answer: [`WorkDone`](LaneReport::WorkDone).
    Work {
        /// Its name in the keeper's books.
        place: u64,
        /// The unit.
        unit: Unit,
        /// The work.
        work: Work,
    },
    /// I/O in flight on a member is not waited for any longer: it counts as failed.
    GiveUp(MemberId),
    /// The id will mean another device: what was given up on it belongs to none.
    Disown(MemberId),
    /// A device is to hold md's journal from now on, which begins with a first block of this
    /// number. Answer: [`JournalTail`](LaneReport::JournalTail), when that block is there.
    BeginJournal {
        /// The device.
        member: MemberId,
        /// First sector of its data area.
        data_offset: u64,
        /// Its size.
        data_sectors: u64,
        /// Number of the first block.
        first_seq: u64,
    },
    /// The mode in which writes go by md's journal changes to this one.
    JournalMode(JournalMode),
    /// Writes are recorded in the array's log from now on, or not any more. No request and no
    /// planned operation is under way, until the log is empty, durably. Answer of a journal that
    /// goes on: [`JournalTail`](LaneReport::JournalTail), when its first block is there.
    Record(bool),
    /// The array has this shape now, and all members know: the lane maps by it, and takes the
    /// requests that it has held.
    Grown(Box<NewShape>),
    /// A member is to have room for so much data, which reads as zeroes behind what is used now.
    /// Nothing is in flight, and nothing may be stored any more: when the command that asked for
    /// this is answered, the lane ends, and begins anew with the members as they are then. Answer:
    /// [`Lengthened`](LaneReport::Lengthened), when that is durable.
    Lengthen {
        /// The member.
        member: MemberId,
        /// Sectors of its data.
        data_sectors: u64,
    },
    /// In a reshape: the array lies by the new shape before this place of sync space, and by the
    /// old one behind it; backwards it is the other way round. What lies between that and the other
    /// place is to be moved: writes there wait.
    /// Answer, where these are not the same: [`WindowOpen`](LaneReport::WindowOpen), when all that
    /// was under way is over.
    Window {
        /// First place that has not moved.
        front: u64,
        /// First place that does not move now.
        end: u64,
        /// What lies between is saved to this device first, and moved from there: reads wait, too.
        saved_to: Option<MemberId>,
    },
    /// A header for the device that units were saved to. They are to be durable before it is
    /// written, and then it is. Answer: [`Sealed`](LaneReport::Sealed).
    Seal {
        /// The device.
        device: MemberId,
        /// The header.
        header: Vec<u8>,
    },
    /// The answer to a command.
    Reply(CommandId, Result<(), Refusal>),
    /// An event for monitors and people.
    Notify(ArrayEvent),
}

/// A report of a lane: see [`Keeper::hear`](super::Keeper::hear). Sectors are those of the member's
/// device, or rows of sync space where they have a start and an end.
#[derive(Debug)]
pub enum LaneReport {
    /// A request was taken in.
    RequestCame(Op),
    /// A request is answered.
    RequestOver(Op),
    /// A write wants to begin in this range: the members are to know of it before it starts, and
    /// it waits for [`may_start`](super::KeeperView::may_start).
    BeginWrite {
        /// The lane's number of the write: later writes have higher numbers.
        number: u64,
        /// First sector.
        start: u64,
        /// Behind the last one.
        end: u64,
    },
    /// A write that has begun is over, or is not made.
    EndWrite {
        /// First sector.
        start: u64,
        /// Behind the last one.
        end: u64,
        /// The write may have reached some members and not others.
        failed: bool,
    },
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
    /// Sectors of a member that were written anew: they are no longer bad.
    Rewritten(MemberId, u64, u64),
    /// A member has room for what is written.
    HasRoom(MemberId),
    /// A member has no room for data that must be written.
    /// [`waits_for_room`](super::KeeperView::waits_for_room) then says whether the write is tried
    /// again.
    NoRoom(MemberId, Fault),
    /// An operation on a member failed.
    Failed(MemberId, Tried, IoError),
    /// A member could not read data that the others tell.
    /// [`is_worth_mending`](super::KeeperView::is_worth_mending) then says whether the data is
    /// rewritten.
    MendingWanted(MemberId, Fault),
    /// Rewritten sectors of a member cannot be read all the same.
    NotCorrectable(MemberId, Fault),
    /// Unreadable sectors of a member were rewritten and read, or could not be (`false`).
    Mended(MemberId, Fault, bool),
    /// A member is gone.
    Lost(MemberId, Refusal),
    /// The array cannot be served at all, or not any more.
    Unservable,
    /// A write has made sums from all data of these rows: they fit.
    Fitting(u64, u64),
    /// A write reached some members and not others: until a resync has been there, they may differ.
    Torn(u64, u64),
    /// All that was under way at an unclean stop has been brought to its end: nothing waits for a
    /// resync, and the superblocks may say so after the next flush.
    NothingToResync,
    /// The nodes have journals now: writes may be recorded there, and not be in their place.
    /// Superblocks that do not say clean say so.
    RecordsElsewhere {
        /// Size of each journal.
        journal_bytes: u64,
        /// Whole stripes are not recorded.
        parts_only: bool,
    },
    /// A whole stripe is to be stored that is not recorded: it waits for
    /// [`may_store_unrecorded`](super::KeeperView::may_store_unrecorded).
    StoresUnrecorded,
    /// Every stripe that was stored and not recorded is durable, and no such store is under way.
    NothingIsUnrecorded,
    /// All that md's journal has recorded before this place is in place: sectors of its data area.
    /// These records may be forgotten when the superblock [says
    /// so](super::KeeperView::journal_tail).
    JournalTail(u64),
    /// A checkpoint is wanted whose flush is still to come. Answer:
    /// [`CheckpointDone`](LaneCommand::CheckpointDone), once for all that were wanted before it
    /// began.
    WantsCheckpoint,
    /// A unit of background work, or a part of one, is done.
    WorkDone {
        /// Its name in the keeper's books.
        place: u64,
        /// The unit.
        unit: Unit,
        /// The work.
        work: Work,
        /// The outcome.
        done: Done,
    },
    /// A check or repair has found sectors that do not fit.
    Mismatch {
        /// First sector of the array.
        array_sector: u64,
        /// Number of sectors.
        sectors: u32,
        /// The member that is wrong, where that can be told.
        member: Option<MemberId>,
        /// The block of the member, for arrays over nodes.
        block: Option<StripeBlock>,
    },
    /// A repair made these readable from parity, and no resync has made that fit.
    Trusted(Vec<Unread>),
    /// A unit of background work, by its place, is done in so many more parts than one.
    WorkParted(u64, usize),
    /// Nothing is under way that began before the last [`Window`](LaneCommand::Window).
    WindowOpen,
    /// The device that a change was to save to has no use: the change was refused.
    NothingIsSaved,
    /// The [header](LaneCommand::Seal) is durable; or could not be written (`false`).
    Sealed(bool),
    /// A member has the length that was [asked for](LaneCommand::Lengthen); or the reason why it
    /// has not.
    Lengthened(MemberId, Result<(), Refusal>),
    /// A command of the running update is done, or its member has failed.
    UpdateDone,
}

/// An I/O on a member that failed.
#[derive(Clone, Copy, Debug)]
pub struct Tried {
    /// Sector of the member; a flush has no place.
    pub sector: Option<u64>,
    /// The I/O was to change something there, or make it durable. A mere hint does not count.
    pub changes: bool,
    /// Without room for it, the member is of no use.
    pub must_land: bool,
}

/// Differences between lanes.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A check needs all members, even where copies could be compared without one.
    pub(super) scrubs_whole: bool,
    /// A resync compares what two parities say of a strip that is lost: where they agree they tell
    /// it.
    pub(super) resync_vouches: bool,
    /// Units of background work under way at most.
    pub(super) units_at_once: usize,
    /// The longest time for which a member may answer nothing while a stop waits for it.
    pub(super) stop_patience_ms: u64,
    /// Number of chunks of the bitmap that are marked ahead of a sequential writer, where telling
    /// the members takes long; 0 as md does.
    pub(super) marks_ahead: usize,
    /// The lane says when a spare gets a role, and which: it has to reach it first.
    pub(super) lane_takes_spares: bool,
    /// A sample of what members were given is read back before they take a role over.
    pub(super) reads_back: bool,
    /// A loss is reported only after others than the members have recorded it. Members that became
    /// in sync are recorded first: their superblocks do not tell of the loss yet.
    pub(super) losses_are_noted: bool,
    /// Members that are out of reach come back by themselves. Superblocks call those faulty alone
    /// that a command made so, and these stay out until they are added again.
    pub(super) faulty_stay_out: bool,
}

impl Rules {
    /// Returns the rules for members that this process reaches itself.
    #[must_use]
    pub const fn local() -> Self {
        Self {
            scrubs_whole: false,
            resync_vouches: true,
            units_at_once: 16,
            stop_patience_ms: 60_000,
            marks_ahead: 0,
            lane_takes_spares: false,
            reads_back: true,
            losses_are_noted: false,
            faulty_stay_out: false,
        }
    }

    /// Returns the rules for members on nodes. `units_at_once`: units of background work under way
    /// at most.
    #[must_use]
    pub const fn over_nodes(units_at_once: usize) -> Self {
        Self {
            scrubs_whole: true,
            resync_vouches: false,
            units_at_once,
            stop_patience_ms: 10_000,
            marks_ahead: 4,
            lane_takes_spares: true,
            reads_back: false,
            losses_are_noted: true,
            faulty_stay_out: true,
        }
    }
}

/// Facts about the lane that its keeper needs when it is driven.
#[derive(Clone, Copy)]
pub struct Traffic<'a> {
    /// No request and no planned operation is under way.
    pub quiet: bool,
    /// Returns whether a planned operation means this member.
    pub plans: &'a dyn Fn(MemberId) -> bool,
    /// Returns whether an operation on this member was given up and has not been answered since.
    pub gave_up: &'a dyn Fn(MemberId) -> bool,
}

impl Traffic<'_> {
    pub(super) fn is_meant(self, id: MemberId) -> bool {
        (self.plans)(id) || (self.gave_up)(id)
    }
}
