//! The keeper of an array, the same over disks and over nodes: [`Keeper`] decides and records who
//! the members are and in which state, what superblocks and bitmap say of them, background work,
//! commands, failure, status. User data never come near it. One file for each of these subjects.
//!
//! The keeper has a *lane*, which reaches the members: the lane carries out what the keeper asks
//! for ([`LaneCommand`]) and reports the results.

mod checkpoint;
mod command;
mod copying;
mod doubts;
mod elsewhere;
mod failure;
mod intent;
mod invariants;
mod joining;
mod members;
mod meta;
mod place;
mod remake;
mod removal;
mod returning;
mod space;
mod status;
mod sync;

use std::collections::{BTreeMap, VecDeque};

use crate::action::CommandId;
use crate::assemble::Config;
use crate::events::ArrayEvent;
use crate::format::Superblock;
use crate::format::superblock::MAX_SECTOR;
use crate::{Instant, MemberId, Op, Refusal, RequestError};

use checkpoint::Checkpoints;
use copying::Copying;
use elsewhere::JournalFeatures;
pub use failure::Tried;
use intent::Intent;
pub use invariants::Carried;
use members::Members;
use meta::Meta;
pub use meta::{MetaWrite, PAGE_BYTES};
use removal::Removal;
pub use space::{BLOCK_SECTORS, Redundancy, SyncSpace, UNIT_SECTORS};
use sync::Sync;
pub use sync::{Done, Fix, Unit, Unread, Work};

/// Idle time after which the superblocks say clean (md's `safe_mode_delay`).
pub const SAFE_MODE_MS: u64 = 200;

/// What a keeper asks of its lane.
#[derive(Clone, Debug)]
pub enum LaneCommand {
    /// All that was written to a member so far is to be durable. Answer: [`Keeper::update_done`].
    Flush(MemberId),
    /// Metadata are to be on a member, durably. Answer: [`Keeper::update_done`], also when the
    /// member has failed meanwhile.
    Write(MetaWrite),
    /// Something that operations wait for may be on the members now: see [`Keeper::is_told`].
    Updated,
    /// A unit of background work. Answer: [`Keeper::work_done`].
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

/// What differs between lanes.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A check needs all members, even where copies could be compared without one.
    pub scrubs_whole: bool,
    /// What was under way at an unclean stop is not called in line because nothing is left to
    /// compare it with: what a lost member had of it cannot be told from the others.
    pub keeps_torn: bool,
    /// What is lost with a member while sums of it may not fit counts as that, sector by sector,
    /// and is noted as bad where the sums are.
    pub marks_lost: bool,
    /// Units of background work under way at most.
    pub units_at_once: usize,
    /// How long a member may answer nothing while a stop waits for it.
    pub stop_patience_ms: u64,
    /// How many chunks of the bitmap are marked ahead of a sequential writer, where telling the
    /// members takes long; 0 as md does.
    pub marks_ahead: usize,
    /// The lane says when a spare gets a role, and which: it has to reach it first.
    pub lane_takes_spares: bool,
    /// A sample of what members were given is read back before they take a role over.
    pub reads_back: bool,
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
    fn is_meant(self, id: MemberId) -> bool {
        (self.plans)(id) || (self.gave_up)(id)
    }
}

/// The state of one array without its user data: members, superblocks, event count, write-intent
/// bitmap, background work, commands under way, failure and stop. It does no I/O and has no clock.
/// It queues [`LaneCommand`]s; its lane carries these out in order, before anything else, and
/// reports.
///
/// Order of calls by a lane:
///
/// 1. [`new`](Self::new), then [`begin`](Self::begin) once, which queues the superblock updates
///    that are due before the first request. [`set_epoch`](Self::set_epoch) may come at any time.
/// 2. For each event [`at`](Self::at), then the report: [`command`](Self::command),
///    [`update_done`](Self::update_done), [`work_done`](Self::work_done),
///    [`failed_io`](Self::failed_io); [`tick`](Self::tick) when [`deadline`](Self::deadline) has
///    passed.
/// 3. For each request [`admits`](Self::admits), [`request_came`](Self::request_came), in the end
///    [`request_over`](Self::request_over). Around each write to members
///    [`begin_write`](Self::begin_write), which returns a ticket, and
///    [`end_write`](Self::end_write): the write may start once [`is_told`](Self::is_told) is true
///    of the ticket.
/// 4. After all of these [`drive_meta`](Self::drive_meta), [`drive_sync`](Self::drive_sync),
///    [`drive_removals`](Self::drive_removals) and [`drive_stop`](Self::drive_stop), and after each
///    of them [`next_command`](Self::next_command) until it returns `None`.
///
/// An array is served in full; or for reads only, when it is read-only or when it [cannot go on
/// changing](Self::writes_over); or it has [failed](Self::has_failed): more members are gone than
/// the level can do without. It ends as [stopped](Self::has_stopped). Once it is not served in full
/// no metadata are written.
#[derive(Debug)]
pub struct Keeper {
    pub(crate) now: Instant,
    /// Microseconds since 1970 at `Instant(0)`.
    epoch_micros: u64,
    space: Box<dyn SyncSpace>,
    rules: Rules,
    /// The array-wide fields as of the last update.
    superblock: Superblock,
    pub(crate) members: Members,
    block_bytes: u32,
    pub(crate) read_only: bool,
    /// More members are gone than the level can do without.
    pub(crate) failed: bool,
    /// The array was started by force where sums may not fit, and no resync has ended since: see
    /// [`is_vouched_for`](Self::is_vouched_for).
    vouched: bool,
    /// A member is gone or does not do its part, and the array cannot go on changing without it.
    writes_over: bool,
    clean: Clean,
    /// What is written may be recorded there, and not where it belongs.
    elsewhere: JournalFeatures,
    /// The update that tells the members of the last failure.
    failure_ticket: u64,
    /// The first of the two updates that do so.
    failure_repeat: Option<u64>,
    stop: Stop,
    meta: Meta,
    intent: Option<Intent>,
    sync: Sync,
    removals: Vec<Removal>,
    copying: Option<Copying>,
    /// The array that this one is a member of goes on without it.
    dispensable: bool,
    /// The superblocks of members removed from it since, by role.
    vacant: BTreeMap<u16, Superblock>,
    /// Commands done but for the superblocks.
    replies: Vec<(u64, CommandId)>,
    checkpoints: Checkpoints,
    out: VecDeque<LaneCommand>,
}

/// Whether the superblocks say clean, and how much of the array is in sync.
#[derive(Debug)]
struct Clean {
    /// Writes may be in flight.
    active: bool,
    /// The superblocks say whether they may, once this update is done.
    ticket: u64,
    on_disk: bool,
    /// Sync space below is in sync; as far as superblocks may say.
    resynced: u64,
    durable_resynced: u64,
    /// Requests in flight that change data.
    writers: usize,
    /// Operations in flight that do: some requests are answered before.
    writing: usize,
    last_write: Instant,
    last_request: Option<Instant>,
}

/// How far a stop has come.
#[derive(Debug, Default)]
struct Stop {
    asked: Option<CommandId>,
    /// Since when members that answer nothing are given up after a while.
    impatient_since: Option<Instant>,
    /// Its members give up those who do not answer themselves.
    over_arrays: bool,
    ticket: Option<u64>,
    over: bool,
}

impl Keeper {
    /// Takes an array over: nothing has been asked when this returns.
    ///
    /// # Errors
    /// When too many members are missing to do more than read.
    pub fn new(
        now: Instant,
        config: Config,
        space: Box<dyn SyncSpace>,
        rules: Rules,
    ) -> Result<Self, String> {
        let resynced = resynced_of(&config.superblock, space.as_ref());
        let needed = resynced != MAX_SECTOR;
        let intent = config.bitmap.map(|bitmap| Intent::new(bitmap, needed, rules.marks_ahead));
        let block_bytes = config.block_bytes.clamp(512, 4096);
        let mut keeper = Self {
            now,
            epoch_micros: 0,
            members: Members::new(config.members, usize::from(space.roles())),
            superblock: as_md_keeps_it(config.superblock, space.as_ref(), block_bytes),
            block_bytes,
            read_only: config.read_only,
            failed: false,
            vouched: config.force && needed,
            writes_over: false,
            elsewhere: JournalFeatures::default(),
            clean: Clean {
                // Stopped within a resync, the members say how far it came, and a write must first
                // take that back.
                active: resynced == 0,
                ticket: 0,
                on_disk: resynced != 0,
                resynced,
                durable_resynced: resynced,
                writers: 0,
                writing: 0,
                last_write: now,
                last_request: None,
            },
            failure_ticket: 0,
            failure_repeat: None,
            stop: Stop::default(),
            meta: Meta::default(),
            intent,
            sync: Sync::default(),
            removals: Vec::new(),
            copying: None,
            dispensable: false,
            vacant: BTreeMap::new(),
            replies: Vec::new(),
            checkpoints: Checkpoints::new(now),
            out: VecDeque::new(),
            space,
            rules,
        };
        if resynced != MAX_SECTOR {
            keeper.members.restart_replacements();
        }
        keeper.vouched &= keeper.members.degraded() > 0;
        keeper.failed = !keeper.enough_without(&[]);
        if keeper.failed && !keeper.read_only {
            return Err("too many members are missing".into());
        }
        Ok(keeper)
    }

    /// Tells the time of day: microseconds since 1970 at `Instant(0)`.
    pub const fn set_epoch(&mut self, micros: u64) {
        self.epoch_micros = micros;
    }

    /// The moment of the last call of [`at`](Self::at).
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Later than before, or the same moment.
    pub fn at(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    /// What the superblocks must say before the first request.
    pub fn begin(&mut self) {
        if self.metadata_frozen() {
            return;
        }
        // A member that is missing now must be stale when it comes back.
        let known = self.superblock.roles.iter();
        let active = known.filter(|role| matches!(role, crate::format::Role::Active(_))).count();
        let here = self.members.iter().filter(|(_, m)| m.state.role().is_some()).count();
        if active != here {
            self.failure_ticket = self.wish_superblock(false);
        }
        if self.members.iter().any(|(_, m)| m.superblock.events < self.superblock.events) {
            self.wish_catch_up();
        }
        self.wish_whole_bitmap();
    }

    /// The next thing to do, if there is one.
    pub fn next_command(&mut self) -> Option<LaneCommand> {
        self.out.pop_front()
    }

    /// No superblock, bitmap or log may be written.
    pub(crate) fn metadata_frozen(&self) -> bool {
        let over = self.failed || self.writes_over || self.stop.over;
        self.read_only || over || !self.is_redundant() && !self.is_remade()
    }

    /// Can the level do without any member?
    #[must_use]
    pub fn is_redundant(&self) -> bool {
        self.space.redundancy() != Redundancy::None
    }

    fn is_mirror(&self) -> bool {
        self.space.redundancy() == Redundancy::Copies
    }

    /// Smallest I/O that the array and every member take.
    #[must_use]
    pub const fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Is the array served read-only?
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Are more members gone than the level can do without?
    #[must_use]
    pub const fn has_failed(&self) -> bool {
        self.failed
    }

    /// Can no more writes be served, though reads can?
    #[must_use]
    pub const fn writes_over(&self) -> bool {
        self.writes_over
    }

    /// Do the superblocks say, or are about to say, that something may not fit?
    #[must_use]
    pub const fn is_active(&self) -> bool {
        self.clean.active || !self.clean.on_disk || self.clean.resynced != MAX_SECTOR
    }

    /// Has the array been stopped?
    #[must_use]
    pub const fn has_stopped(&self) -> bool {
        self.stop.over
    }

    /// Somebody answers for what sums say of lost data where they may not fit: it was started by
    /// force, and no resync has come to its end since.
    #[must_use]
    pub const fn is_vouched_for(&self) -> bool {
        self.vouched
    }

    /// No superblock is written any more, and nothing changes.
    pub const fn freeze(&mut self) {
        self.writes_over = true;
    }

    /// An operation on a member is on its way.
    pub fn asked(&mut self, id: MemberId) {
        if let Some(member) = self.members.get_mut(id) {
            if member.in_flight == 0 {
                member.silent_since = self.now;
            }
            member.in_flight += 1;
        }
    }

    /// A member has answered an operation.
    pub fn answered(&mut self, id: MemberId) {
        if let Some(member) = self.members.get_mut(id) {
            member.in_flight -= 1;
            member.silent_since = self.now;
        }
    }

    /// Is the array being stopped?
    #[must_use]
    pub const fn is_stopping(&self) -> bool {
        self.stop.asked.is_some()
    }

    /// Do the superblocks of all members that live say what operations with this ticket wait for?
    #[must_use]
    pub const fn is_told(&self, ticket: u64) -> bool {
        self.meta.is_done(ticket)
    }

    /// Do they say who has failed? Before that nothing is acknowledged.
    #[must_use]
    pub const fn failures_told(&self) -> bool {
        self.meta.is_done(self.failure_ticket) || self.failed
    }

    /// Do they say of all who are in sync that they are?
    #[must_use]
    pub fn arrivals_told(&self) -> bool {
        !self.members.any_arriving() && self.meta.arrivals() == 0
    }

    /// Time of day in md's coding: seconds in the low 40 bits, microseconds above.
    fn wall_clock(&self) -> u64 {
        let micros = self.epoch_micros + self.now.0 / 1000;
        (micros / 1_000_000) & ((1 << 40) - 1) | (micros % 1_000_000) << 40
    }

    pub(crate) fn notify(&mut self, event: ArrayEvent) {
        self.out.push_back(LaneCommand::Notify(event));
    }

    /// May this be asked of the array now?
    ///
    /// # Errors
    /// [`RequestError::ReadOnly`], [`RequestError::Failed`].
    pub const fn admits(&self, op: Op) -> Result<(), RequestError> {
        match op {
            Op::Read | Op::Flush => Ok(()),
            _ if self.read_only => Err(RequestError::ReadOnly),
            _ if self.failed || self.writes_over || self.is_stopping() => Err(RequestError::Failed),
            _ => Ok(()),
        }
    }

    /// A request was taken in.
    pub fn request_came(&mut self, op: Op) {
        self.clean.writers += usize::from(op.changes_data());
        self.clean.last_request = Some(self.now);
    }

    /// A request is answered.
    pub fn request_over(&mut self, op: Op) {
        if op.changes_data() {
            self.clean.writers -= 1;
            self.clean.last_write = self.now;
        }
    }

    /// Makes sure the members will know of a write in this range of sync space before it starts:
    /// the ticket to wait for.
    pub fn begin_write(&mut self, start: u64, end: u64) -> u64 {
        self.clean.writing += 1;
        self.checkpoints.note_write();
        if !self.clean.active {
            self.clean.active = true;
            self.clean.ticket = self.wish_superblock(false);
        }
        let mut ticket = self.clean.ticket;
        let mut pages = std::collections::BTreeSet::new();
        let next = self.meta.ticket();
        if let Some(intent) = &mut self.intent {
            ticket = ticket.max(intent.begin(start, end, next, &mut pages));
        }
        for page in pages {
            self.wish_bitmap_page(page);
        }
        ticket
    }

    /// A write that has begun is over.
    pub fn end_write(&mut self, start: u64, end: u64, failed: bool) {
        self.clean.writing -= 1;
        self.checkpoints.note_write();
        let keep = self.members.degraded() > 0 && !crate::broken("clear-when-whole") || failed;
        if let Some(intent) = &mut self.intent {
            intent.end(start, end, keep);
        }
        self.note_written(start, end);
    }

    /// Does a part of the array wait for a resync?
    #[must_use]
    pub const fn has_to_resync(&self) -> bool {
        self.clean.resynced != MAX_SECTOR
    }

    /// Is this range of sync space known to be in step: nothing of it waits for a resync?
    #[must_use]
    pub fn in_step(&self, start: u64, end: u64) -> bool {
        end <= self.clean.resynced
            || self.intent.as_ref().is_some_and(|intent| !intent.needs_resync(start, end))
            || self.sync.left.as_ref().is_some_and(|left| !left.overlaps(start, end))
    }

    /// The deadline passed: begins the next checkpoint.
    pub fn tick(&mut self) {
        self.tick_stop();
        if self.metadata_frozen() {
            return;
        }
        if self.checkpoint_at().is_some_and(|at| at <= self.now) {
            self.begin_checkpoint();
        }
    }

    /// When to call [`tick`](Self::tick) and the drivers at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let always = [self.removal_deadline(), self.stop_deadline()];
        let always = always.into_iter().flatten().min();
        if self.metadata_frozen() {
            return always;
        }
        let more = [always, self.checkpoint_at(), self.sync.deadline(self.now)];
        more.into_iter().flatten().min()
    }

    /// All that was written is durable: the superblocks are to say so with this update.
    const fn go_clean(&mut self, ticket: u64) {
        self.clean.active = false;
        self.elsewhere.all_is_durable();
        self.clean.ticket = ticket;
    }

    /// Nothing is asked for, no update is due, no background work is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.is_idle_but_for_sync() && self.sync.is_idle()
    }

    /// All that is left is background work that goes on with a command.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.is_idle_but_for_sync() && self.sync.is_paused() && self.sync.in_flight() == 0
    }

    fn is_idle_but_for_sync(&self) -> bool {
        self.out.is_empty() && self.meta.is_idle()
    }
}

/// What md makes of a superblock when it starts the array: the size is what is used of each member,
/// and a logical block size, where there is one, that of the most demanding member.
fn as_md_keeps_it(superblock: Superblock, space: &dyn SyncSpace, block_bytes: u32) -> Superblock {
    let logical_block_bytes = match superblock.logical_block_bytes {
        0 => 0,
        kept => kept.max(block_bytes),
    };
    let size_sectors = match space.member_sectors() {
        0 => superblock.size_sectors,
        used => used,
    };
    Superblock { logical_block_bytes, size_sectors, ..superblock }
}

/// Sync space below this is in sync.
fn resynced_of(superblock: &Superblock, space: &dyn SyncSpace) -> u64 {
    let redundant = space.redundancy() != Redundancy::None;
    let waits = redundant && superblock.resync_offset < space.sync_sectors();
    if waits { superblock.resync_offset } else { MAX_SECTOR }
}
