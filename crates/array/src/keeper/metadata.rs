//! Metadata of the array: what is to be told to the members, and what they have been told already.
//!
//! A part of the keeper that needs something on the members before it goes on queues it and gets a
//! ticket. The next update, which [`phases`](super::phases) carries out, takes along all that is
//! queued, so many waiters share one.

use std::collections::BTreeSet;

use super::intent::Intent;
use super::journal_device::JournalDevice;
use super::journals::JournalFeatures;
use super::update::{Update, Wanted};
use super::{Redundancy, SyncSpace};
use crate::format::superblock::{MAX_SECTOR, feature, time_code};
use crate::format::{Bitmap, Superblock};
use crate::{Instant, MemberId, Op};

/// Whether the superblocks say clean, and how much of the array is in sync.
#[derive(Debug)]
pub(super) struct Clean {
    /// Writes may be in flight.
    pub(super) active: bool,
    /// The superblocks say whether they may, once this update is done.
    pub(super) ticket: u64,
    pub(super) on_disk: bool,
    /// Sync space below is in sync; as far as superblocks may say.
    pub(super) resynced: u64,
    pub(super) durable_resynced: u64,
    /// Requests in flight that change data.
    pub(super) writers: usize,
    /// Operations in flight that do: some requests are answered before.
    pub(super) writing: usize,
    pub(super) last_write: Instant,
    pub(super) last_request: Option<Instant>,
}

/// The superblock, the write-intent bitmap and the updates of both. An update is queued, then runs,
/// then is done: the numbers of updates are tickets. While none is queued the members say what
/// is kept here.
#[derive(Debug)]
pub(super) struct Metadata {
    /// Microseconds since 1970 at `Instant(0)`.
    pub(super) epoch_micros: u64,
    /// The array-wide fields as of the last update.
    pub(super) superblock: Superblock,
    /// The same as the array was found.
    pub(super) found: Superblock,
    /// Numbers of members that a command made faulty or removed, where superblocks tell these from
    /// those that are out of reach.
    pub(super) made_faulty: BTreeSet<u32>,
    pub(super) block_bytes: u32,
    /// Array sector before which data have moved in a reshape: superblocks say so once that is
    /// durable.
    pub(super) position: u64,
    pub(super) clean: Clean,
    /// Features for journals of nodes: writes may be recorded there, and not be in their place.
    pub(super) journals: JournalFeatures,
    /// md's journal device, in arrays that have one.
    pub(super) journal: Option<JournalDevice>,
    pub(super) intent: Option<Intent>,
    /// The last update that is done.
    pub(super) done: u64,
    pub(super) running: Option<Update>,
    /// Everything that is queued for the next update.
    pub(super) next: Wanted,
    /// The update that tells of the last change of bad-block logs.
    bad_blocks_ticket: u64,
    /// The update that tells which sums are not to be trusted.
    doubts_ticket: u64,
}

impl Metadata {
    /// Takes over what the members say as the array starts. `ahead`: see [`Intent::new`].
    pub(super) fn new(
        now: Instant,
        superblock: Superblock,
        bitmap: Option<Bitmap>,
        block_bytes: u32,
        space: &dyn SyncSpace,
        ahead: usize,
    ) -> Self {
        let resynced = resynced_of(&superblock, space);
        let needed = resynced != MAX_SECTOR;
        Self {
            epoch_micros: 0,
            found: superblock.clone(),
            position: superblock.reshape.position,
            made_faulty: BTreeSet::new(),
            superblock: as_md_keeps_it(superblock, space, block_bytes),
            block_bytes,
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
            journals: JournalFeatures::default(),
            journal: None,
            intent: bitmap.map(|bitmap| Intent::new(bitmap, needed, ahead)),
            done: 0,
            running: None,
            next: Wanted::default(),
            bad_blocks_ticket: 0,
            doubts_ticket: 0,
        }
    }

    /// Returns from where on superblocks ask for a resync: from 0, unless they say `clean`. Writes
    /// that a journal records need none.
    pub(super) fn resync_offset(&self, clean: bool) -> u64 {
        let resynced = self.clean.durable_resynced;
        let recorded = self.journal.is_some() && resynced == MAX_SECTOR;
        if clean || recorded { resynced } else { 0 }
    }

    /// Returns whether there is a journal that superblocks may tell of.
    pub(super) fn has_journal(&self) -> bool {
        self.journal.is_some_and(|journal| journal.durable_tail.is_some())
    }

    /// The update that will carry out what is queued now.
    pub(super) fn ticket(&self) -> u64 {
        self.done + 1 + u64::from(self.running.is_some())
    }

    pub(super) const fn is_done(&self, ticket: u64) -> bool {
        ticket <= self.done
    }

    /// Superblocks are waiting to be written.
    pub(super) const fn wants_superblock(&self) -> bool {
        self.next.superblock
    }

    pub(super) const fn is_idle(&self) -> bool {
        self.running.is_none() && !self.next.any
    }

    /// Queues new superblocks; with `flush`, after what was written so far is durable.
    pub(super) fn queue_superblock(&mut self, flush: bool) -> u64 {
        self.next.any = true;
        self.next.superblock = true;
        self.next.flush |= flush;
        self.ticket()
    }

    pub(super) fn queue_whole_bitmap(&mut self) {
        let pages = self.intent.as_ref().map_or(0, |intent| intent.bitmap.pages() as usize);
        self.next.bitmap_pages.extend(0..pages);
        self.next.any |= pages > 0;
    }

    /// The first update is to begin with the members that missed the last one.
    pub(super) const fn queue_catch_up(&mut self) {
        self.next.any = true;
        self.next.catch_up = true;
    }

    /// The first move of a checkpoint: what is idle now may be cleared after the second.
    pub(super) fn queue_first_move(&mut self) -> u64 {
        self.next.nominate = true;
        self.queue_superblock(!crate::broken("clear-after-flush"))
    }

    /// The second move of a checkpoint: all members have made the first.
    pub(super) fn queue_second_move(&mut self) -> u64 {
        self.next.note_cleared = true;
        self.queue_superblock(false)
    }

    /// The bits of what was idle at the first move of a checkpoint are to be cleared.
    pub(super) fn queue_clear_bits(&mut self) -> u64 {
        self.next.any = true;
        self.next.clear_bits = true;
        self.ticket()
    }

    pub(super) fn queue_bad_blocks(&mut self, member: MemberId) {
        self.next.bad_blocks.insert(member);
        self.bad_blocks_ticket = self.queue_superblock(true);
    }

    /// Queues the log of a member on which sums were noted that may not fit.
    pub(super) fn queue_doubts(&mut self, member: MemberId) {
        self.queue_bad_blocks(member);
        self.doubts_ticket = self.bad_blocks_ticket;
    }

    /// Tells whether bad-block logs say durably which sums were noted as not to be trusted.
    pub(super) const fn doubts_told(&self) -> bool {
        self.is_done(self.doubts_ticket)
    }

    /// Tells whether the members' bad-block logs say durably what is bad.
    pub(super) const fn bad_blocks_told(&self) -> bool {
        self.is_done(self.bad_blocks_ticket)
    }

    /// A request was taken in.
    pub(super) fn request_came(&mut self, op: Op, now: Instant) {
        self.clean.writers += usize::from(op.changes_data());
        self.clean.last_request = Some(now);
    }

    /// A request is answered.
    pub(super) fn request_over(&mut self, op: Op, now: Instant) {
        if op.changes_data() {
            self.clean.writers -= 1;
            self.clean.last_write = now;
        }
    }

    /// A write of this range of sync space is to begin: the ticket to wait for.
    pub(super) fn begin_write(&mut self, start: u64, end: u64) -> u64 {
        self.clean.writing += 1;
        if !self.clean.active {
            self.clean.active = true;
            self.clean.ticket = self.queue_superblock(false);
        }
        self.clean.ticket.max(self.mark(start, end))
    }

    /// Sets the bits of a range of sync space, as one write does that has begun there: the ticket
    /// of the update that puts them on the members.
    fn mark(&mut self, start: u64, end: u64) -> u64 {
        let next = self.ticket();
        let Some(intent) = &mut self.intent else { return 0 };
        let ticket = intent.begin(start, end, next, &mut self.next.bitmap_pages);
        self.next.any |= !self.next.bitmap_pages.is_empty();
        ticket
    }

    /// The bits of a range of sync space are set, though nothing is written there.
    pub(super) fn mark_for_copy(&mut self, start: u64, end: u64) {
        self.mark(start, end);
        if let Some(intent) = &mut self.intent {
            intent.end(start, end, false);
        }
    }

    /// A write that has begun is over; the bits are to stay with `keep`.
    pub(super) fn end_write(&mut self, start: u64, end: u64, keep: bool) {
        self.clean.writing -= 1;
        if let Some(intent) = &mut self.intent {
            intent.end(start, end, keep);
        }
    }

    /// Looks for bits to clear again: some that had to stay set may not have to any more.
    pub(super) const fn look_again(&mut self) {
        if let Some(intent) = &mut self.intent {
            intent.look_again();
        }
    }

    /// Returns whether a part of the array waits for a resync.
    pub(super) const fn has_to_resync(&self) -> bool {
        self.clean.resynced != MAX_SECTOR
    }

    /// All that was written is durable: the superblocks are to say so with this update.
    pub(super) const fn go_clean(&mut self, ticket: u64) {
        self.clean.active = false;
        self.journals.all_is_durable();
        self.clean.ticket = ticket;
    }

    /// Begins to tell of journals: superblocks that do not say clean say that writes may be
    /// recorded in journals that hold this much each, and not be in their place. With `parts_only`
    /// whole stripes are not recorded.
    pub(super) fn records_elsewhere(&mut self, journal_bytes: u64, parts_only: bool) {
        // What the last client left is not durable yet.
        let unrecorded = self.superblock.has(feature::NODE_UNRECORDED).then_some(0);
        self.journals = JournalFeatures { journal_bytes, parts_only, unrecorded };
        if self.clean.active {
            self.clean.ticket = self.queue_superblock(false);
        }
    }

    /// A whole stripe is to be stored that is not recorded: the members are to know that there are
    /// such ones.
    pub(super) fn stores_unrecorded(&mut self) {
        if self.journals.unrecorded.is_none() {
            self.journals.unrecorded = Some(self.queue_superblock(false));
        }
    }

    /// Returns whether the members know that stripes are stored unrecorded.
    pub(super) fn may_store_unrecorded(&self) -> bool {
        self.journals.unrecorded.is_some_and(|ticket| self.is_done(ticket))
    }

    /// Takes note that every stripe that was stored and not recorded is durable, and that no such
    /// store is under way.
    pub(super) fn nothing_is_unrecorded(&mut self) {
        if self.journals.unrecorded.take().is_some() && self.clean.active {
            self.queue_superblock(false);
        }
    }

    /// Time of day in md's coding.
    pub(super) const fn wall_clock(&self, now: Instant) -> u64 {
        let micros = self.epoch_micros + now.0 / 1000;
        time_code(micros / 1_000_000, (micros % 1_000_000) as u32)
    }
}

/// Changes a superblock as md does when it starts the array: the size becomes what is used of each
/// member, and a logical block size, where there is one, that of the most demanding member.
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
