//! The journal of a parity array, as md writes it through (`raid5-cache.c`): what a write changes
//! lies in a ring on a device of its own before it is in place, data and sums.
//!
//! ```text
//!           checksums               blocks and        journal         the writes
//!           of all pages            pages written     flushed         themselves
//!  Idle ──► Summing ──────────────► Recording ──────► Flushing ─────► Idle
//!   ▲ writes wait here, and go together                 (in place: told by each write)
//! ```
//! The records of a batch count until what they tell of is in place and durable. The keeper flushes
//! the members at its checkpoints, and the journal's superblock says then where the first record
//! lies that still counts: the tail. The tail lies always on a block that is valid, so that a
//! journal whose tail can not be read is known to be damaged.

use std::collections::{BTreeMap, VecDeque};

use super::super::io::{JournalIo, Owner};
use super::super::lane::Lane;
use super::super::recording::{Recorded, Way};
use super::record::{Records, WaitingWrite, records};
use super::ring::{Batches, Ring};
use super::unfinished::Unfinished;
use crate::action::{Action, Compute, Outcome};
use crate::assemble::StartLog;
use crate::format::journal::{BLOCK_SECTORS, MetaBlock, page_crc};
use crate::keeper::LaneReport;
use crate::log::journal::{JournalArea, JournalScan};
use crate::{Buf, IoOp, MemberId};

/// The most that counts before it is made to count no longer, in sectors, as in md: 10 GiB.
const MOST_SECTORS: u64 = 10 << 21;

/// The part of the ring after which that is begun with, as in md.
const RECLAIM_PART: u64 = 4;

/// The part after which dirty pages are brought in place, so that it can be.
const PRESSING_PART: u64 = 2;

/// The work that a journal is busy with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JournalState {
    /// Data that was recorded without parity is read, to be recorded anew.
    Moving(usize),
    /// A block without payloads is written, at which the journal begins anew.
    Beginning,
    /// The superblock is to tell where that lies.
    Telling,
    Idle,
    /// Checksums that are not made.
    Summing(usize),
    /// I/O that is not answered.
    Recording(usize),
    Flushing,
    /// The journal's device has failed: nothing is recorded any more.
    Failed,
}

/// The ring, what is being recorded, and what was recorded and still counts. A write is
/// [recorded](Self::record); it may go on when it is among those
/// `released`; when it is [in place](Self::in_place), its records count until
/// the next checkpoint.
#[derive(Debug)]
pub(in super::super) struct Journal {
    set_uuid: [u8; 16],
    ring: Ring,
    state: JournalState,
    /// Memory for blocks.
    pages: Vec<Buf>,
    current: Records,
    waiting: VecDeque<WaitingWrite>,
    batches: Batches,
    /// In which batch each write under way is; `None`: it waits.
    recorded: BTreeMap<usize, Option<u64>>,
    pub(super) released: Vec<usize>,
    /// A checkpoint is asked for, which may give room.
    reclaiming: bool,
    /// The last batch is a block that tells of nothing.
    ends_blank: bool,
    /// Data that was recorded without parity: in an array whose journal writes back.
    pub(super) unfinished: Unfinished,
}

impl Journal {
    /// Begins anew behind what was found, all of which is in place. `pages`: memory for blocks.
    pub(super) fn begin(
        set_uuid: [u8; 16],
        member: MemberId,
        found: &JournalScan,
        pages: Vec<Buf>,
        lane: &mut Lane,
    ) -> Self {
        let JournalScan { area, end, next_seq, .. } = *found;
        let ring = Ring {
            member,
            start: area.start,
            sectors: area.sectors,
            tail: area.tail,
            head: end,
            seq: next_seq,
        };
        let mut journal = Self {
            set_uuid,
            ring,
            state: JournalState::Beginning,
            pages,
            current: Records::default(),
            waiting: VecDeque::new(),
            batches: Batches::default(),
            recorded: BTreeMap::new(),
            released: Vec::new(),
            reclaiming: false,
            ends_blank: false,
            unfinished: Unfinished::new(found.data.clone()),
        };
        if found.data.is_empty() {
            journal.write_first_block(lane);
        } else {
            journal.move_some(lane);
        }
        journal
    }

    /// Writes a block that tells of nothing, at which the journal begins.
    fn write_first_block(&mut self, lane: &mut Lane) {
        let Ring { member, start, head: position, seq, .. } = self.ring;
        let block = MetaBlock { seq, position, payloads: Vec::new() };
        let buf = self.pages[0];
        lane.actions.push_back(Action::Store { buf, bytes: block.encode(self.set_uuid) });
        let op = IoOp::Write { sector: start + position, buf, fua: true, fill: false };
        lane.issue(member, op, Owner::Journal(JournalIo::Write));
    }

    /// Returns where it goes on when it is begun again: behind its last block.
    pub(super) fn stopped(&self) -> StartLog {
        let Ring { member, start, sectors, head, seq, .. } = self.ring;
        let area = JournalArea { start, sectors, tail: head };
        StartLog::JournalOff { member, scan: JournalScan::new(area, seq) }
    }

    /// Names the memory for blocks while none is being written.
    pub(super) fn each_free(&self, found: &mut dyn FnMut(Buf)) {
        if matches!(self.state, JournalState::Idle) {
            self.pages.iter().for_each(|page| found(*page));
        }
    }

    /// Reads some of the data that was recorded without parity, to record them anew.
    fn move_some(&mut self, lane: &mut Lane) {
        match self.unfinished.read_some(lane, &self.ring) {
            Some(pages) => self.state = JournalState::Moving(pages),
            None => self.fail(),
        }
    }

    /// Records anew the data that were read, if there is room for them.
    fn record_moved(&mut self, lane: &mut Lane) {
        self.current = self.unfinished.records();
        if self.ring.fits(self.current.sectors()) {
            self.sum(lane);
        } else {
            self.fail();
        }
    }

    /// Returns whether such data could not be recorded anew.
    pub(super) fn is_stuck(&self) -> bool {
        let left = self.unfinished.is_moving() || self.unfinished.has_more();
        self.state == JournalState::Failed && left
    }

    /// Returns the size of the part of the ring that still counts, in sectors.
    pub(super) const fn used_sectors(&self) -> u64 {
        self.ring.used()
    }

    /// Returns whether this write waits for the journal, which is busy or will have room.
    pub(super) fn waits_for(&self, lane: &Lane, index: usize) -> bool {
        self.recorded.contains_key(&index) && self.goes_on(lane)
    }

    /// Returns whether something is under way that a write waits for, or that makes room for it.
    fn goes_on(&self, lane: &Lane) -> bool {
        let busy = !matches!(self.state, JournalState::Idle | JournalState::Failed);
        let writes = || self.recorded.values().any(Option::is_some);
        busy || self.reclaiming || writes() || !lane.dirty.is_stuck()
    }

    /// Takes out a write that would wait for ever: the ring is full, and what counts in it cannot
    /// be brought in place; or the array has failed.
    pub(super) fn next_refused(&mut self, lane: &mut Lane) -> Option<usize> {
        let failed = lane.keeper().has_failed();
        if !failed && !self.waiting.is_empty() && !self.goes_on(lane) {
            // Less of the ring may be kept for dirty pages than when it was last looked at.
            self.advance(lane);
        }
        if self.waiting.is_empty() || !failed && self.goes_on(lane) {
            return None;
        }
        let refused = self.waiting.iter().position(|write| failed || !write.kept_for)?;
        self.waiting.remove(refused).map(|write| write.job)
    }

    /// Returns whether the superblock has yet to tell where the journal begins.
    pub(super) fn is_renewing(&self, lane: &Lane) -> bool {
        let alive = lane.keeper().members().live(self.ring.member);
        let begins = matches!(
            self.state,
            JournalState::Beginning | JournalState::Telling | JournalState::Moving(_)
        );
        let moves = self.unfinished.is_moving() && self.state != JournalState::Failed;
        alive && (begins || moves)
    }

    /// Makes this write wait until it is in the journal. False where it changes nothing.
    pub(super) fn record(&mut self, lane: &mut Lane, index: usize, recorded: Recorded<'_>) -> bool {
        let Recorded::Write { way, .. } = recorded else { return false };
        let records = records(recorded, lane);
        if records.is_empty() {
            return false;
        }
        let waiting = WaitingWrite { job: index, records, kept_for: *way != Way::Through };
        // What room is kept for makes the room that others wait for: it goes before them.
        let before = match way {
            Way::Destage => 0,
            Way::Back(_) => self.waiting.iter().take_while(|other| other.kept_for).count(),
            Way::Through => self.waiting.len(),
        };
        self.waiting.insert(before, waiting);
        self.recorded.insert(index, None);
        self.advance(lane);
        true
    }

    /// This write is over: what it wrote is in place, or will not be written.
    pub(super) fn in_place(&mut self, lane: &mut Lane, index: usize) {
        let Some(number) = self.recorded.remove(&index) else { return };
        if let Some(number) = number {
            self.batches.release(number);
        }
        self.forget(lane);
        self.reclaim(lane);
    }

    /// So many pages of a recorded write stay where they are: the batch that they are in.
    pub(super) fn keep(&mut self, index: usize, pages: usize) -> Option<u64> {
        let number = (*self.recorded.get(&index)?)?;
        if !crate::broken("keep-dirty-records") {
            self.batches.keep(number, pages);
        }
        Some(number)
    }

    /// Pages are in place that were in these batches.
    pub(super) fn release(&mut self, lane: &mut Lane, batches: &[u64]) {
        if !crate::broken("keep-dirty-records") {
            batches.iter().for_each(|number| self.batches.release(*number));
        }
        self.forget(lane);
        self.reclaim(lane);
    }

    /// The first batches are in place: their records count until superblocks say otherwise.
    fn forget(&mut self, lane: &mut Lane) {
        if let Some(tail) = self.batches.forget() {
            lane.report(LaneReport::JournalTail(tail));
        }
    }

    /// The superblocks may say that the tail has moved.
    pub(super) fn updated(&mut self, lane: &mut Lane) {
        if let Some(tail) = lane.keeper().journal_tail() {
            self.ring.tail = tail;
            if self.state == JournalState::Telling && self.batches.first() == Some(tail) {
                self.state = JournalState::Idle;
            }
            self.advance(lane);
        }
    }

    /// A checkpoint that was asked for is complete.
    pub(super) fn checkpoint_done(&mut self, lane: &mut Lane) {
        self.reclaiming = false;
        self.updated(lane);
        self.reclaim(lane);
    }

    /// Asks for a checkpoint when much counts, or there is no room for what waits.
    fn reclaim(&mut self, lane: &mut Lane) {
        let first = self.batches.first().unwrap_or(self.ring.head);
        let gain = first != self.ring.tail;
        let much = self.ring.used() > MOST_SECTORS.min(self.ring.sectors / RECLAIM_PART);
        let waits = !self.waiting.is_empty();
        if gain && !self.reclaiming && (much || waits) {
            self.reclaiming = true;
            lane.report(LaneReport::WantsCheckpoint);
        }
        // All that there is, is the last batch: it makes room when there is another one.
        if !gain && waits && self.batches.is_one_in_place() && self.state == JournalState::Idle {
            self.current = Records::empty_block();
            self.write_batch(lane);
        }
    }

    /// The array stops, and all is in place: the tail is to lie on a block that tells of nothing,
    /// so that the array can do without its journal. True when nothing of that is left to be done.
    pub(super) fn close(&mut self, lane: &mut Lane) -> bool {
        if !lane.keeper().members().live(self.ring.member) {
            // Nothing tells where it begins any more.
            self.fail();
        }
        let told = !self.ends_blank && self.batches.is_one_in_place();
        if told && self.state == JournalState::Idle && self.ring.fits(BLOCK_SECTORS) {
            self.current = Records::empty_block();
            self.write_batch(lane);
        }
        matches!(self.state, JournalState::Idle | JournalState::Failed)
    }

    /// Something that the journal has asked for is answered; what failed has made it faulty.
    pub(in super::super) fn answered(
        &mut self,
        lane: &mut Lane,
        io: JournalIo,
        outcome: Option<Outcome>,
    ) {
        match (&mut self.state, io) {
            (JournalState::Moving(_), _) if outcome.is_none() => {
                // What was acknowledged cannot be read.
                self.fail();
            }
            (JournalState::Moving(left), _) => {
                *left -= 1;
                if *left == 0 {
                    self.record_moved(lane);
                }
            }
            (JournalState::Summing(left), JournalIo::Sum(page)) => {
                if let Some(Outcome::Crc(crc)) = outcome {
                    self.current.note_crc(page, page_crc(crc));
                }
                *left -= 1;
                if *left == 0 {
                    self.write_batch(lane);
                }
            }
            (JournalState::Recording(left), _) => {
                *left -= 1;
                if *left == 0 && crate::broken("log-before-data") {
                    self.batch_recorded(lane);
                } else if *left == 0 {
                    self.flush(lane);
                }
            }
            (JournalState::Flushing, _) => self.batch_recorded(lane),
            (JournalState::Beginning, _) => self.begun(lane),
            _ => {}
        }
    }

    /// The first block is there: the superblock is to say so.
    fn begun(&mut self, lane: &mut Lane) {
        let start = self.ring.head;
        self.batches.push(start, 0);
        self.ends_blank = true;
        self.ring.seq = self.ring.seq.wrapping_add(1);
        self.ring.head = self.ring.after(start, BLOCK_SECTORS);
        self.tell(lane);
    }

    /// The superblock is to say where the journal begins.
    fn tell(&mut self, lane: &mut Lane) {
        self.state = JournalState::Telling;
        if let Some(tail) = self.batches.first() {
            lane.report(LaneReport::JournalTail(tail));
        }
        lane.report(LaneReport::WantsCheckpoint);
    }

    /// Begins with the next batch, if one waits and has room.
    fn advance(&mut self, lane: &mut Lane) {
        if self.state == JournalState::Failed || !lane.keeper().members().live(self.ring.member) {
            return self.fail();
        }
        if self.state == JournalState::Idle && !self.waiting.is_empty() {
            self.begin_batch(lane);
        }
        self.tell_room(lane);
    }

    fn begin_batch(&mut self, lane: &mut Lane) {
        let kept = lane.dirty.kept_sectors();
        let room = |sectors: u64, kept_for: bool| {
            self.ring.fits(sectors + if kept_for { 0 } else { kept })
        };
        self.current = Records::take(&mut self.waiting, self.pages.len(), room);
        if self.current.jobs.is_empty() {
            self.reclaim(lane);
        } else {
            self.sum(lane);
        }
    }

    /// Tells how much room there is for pages that are left in the journal.
    fn tell_room(&self, lane: &mut Lane) {
        let recording = if self.state == JournalState::Idle { 0 } else { self.current.sectors() };
        let waits =
            self.state == JournalState::Idle && self.waiting.iter().any(|other| !other.kept_for);
        let much = self.ring.used() > MOST_SECTORS.min(self.ring.sectors / PRESSING_PART);
        lane.dirty.note_ring(self.ring.room().saturating_sub(recording), waits, much);
    }

    /// Orders the checksums of all pages.
    fn sum(&mut self, lane: &mut Lane) {
        let sums: Vec<Compute> = self.current.sums(self.set_uuid).collect();
        self.state = JournalState::Summing(sums.len());
        for (page, sum) in (0..).zip(sums) {
            lane.issue_compute(sum, Owner::Journal(JournalIo::Sum(page)));
        }
    }

    fn write_batch(&mut self, lane: &mut Lane) {
        if !lane.keeper().members().live(self.ring.member) {
            return self.fail();
        }
        let Ring { member, start, .. } = self.ring;
        let blocks = self.current.blocks(&self.ring);
        let mut writes = Vec::new();
        for (block, page) in blocks.into_iter().zip(&self.pages) {
            let bytes = block.meta.encode(self.set_uuid);
            lane.actions.push_back(Action::Store { buf: *page, bytes });
            writes.push((block.meta.position, *page));
            writes.extend(block.contents);
        }
        self.state = JournalState::Recording(writes.len());
        for (position, buf) in writes {
            let op = IoOp::Write { sector: start + position, buf, fua: false, fill: false };
            lane.issue(member, op, Owner::Journal(JournalIo::Write));
        }
    }

    fn flush(&mut self, lane: &mut Lane) {
        let member = self.ring.member;
        if !lane.keeper().members().live(member) {
            return self.fail();
        }
        self.state = JournalState::Flushing;
        lane.issue(member, IoOp::Flush, Owner::Journal(JournalIo::Flush));
    }

    fn batch_recorded(&mut self, lane: &mut Lane) {
        if !lane.keeper().members().live(self.ring.member) {
            return self.fail();
        }
        let number = self.batches.push(self.ring.head, self.current.jobs.len());
        let moving = self.unfinished.is_moving();
        self.ends_blank = self.current.jobs.is_empty() && !moving;
        if moving {
            let pages = self.unfinished.recorded(lane, &self.current, &self.ring, number);
            self.batches.keep(number, pages);
        }
        self.ring.seq = self.ring.seq.wrapping_add(self.current.block_count());
        self.ring.head = self.ring.after(self.ring.head, self.current.sectors());
        for job in &self.current.jobs {
            self.recorded.insert(*job, Some(number));
        }
        self.released.append(&mut self.current.jobs);
        if moving && self.unfinished.has_more() {
            return self.move_some(lane);
        }
        if moving {
            return self.tell(lane);
        }
        self.state = JournalState::Idle;
        self.forget(lane);
        self.advance(lane);
    }

    /// The device is gone. The array is not written to any more, so what waits ends.
    fn fail(&mut self) {
        self.state = JournalState::Failed;
        self.released.append(&mut self.current.jobs);
        self.released.extend(self.waiting.drain(..).map(|waiting| waiting.job));
    }
}
