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
//! lies that still counts: the tail. It lies always on a block that is valid, so that a journal
//! whose tail can not be read is known to be damaged.

use std::collections::{BTreeMap, VecDeque};

use super::super::io::Owner;
use super::super::job::Job;
use super::super::lane::Lane;
use super::LogIo;
use super::record::{Record, Records, records};
use crate::action::{Action, Compute, Outcome};
use crate::format::journal::{BLOCK_BYTES, BLOCK_SECTORS, MetaBlock, page_crc};
use crate::keeper::LaneReport;
use crate::log::journal::{JournalScan, MOVED_PAGES};
use crate::plan::Place;
use crate::{Buf, IoOp, MemberId};

/// The most that counts before it is made to count no longer, in sectors, as in md: 10 GiB.
const MOST_SECTORS: u64 = 10 << 21;

/// The part of the ring after which that is begun with, as in md.
const RECLAIM_PART: u64 = 4;

/// Where a ring lies and how far it is used; positions are in sectors from its first one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    /// Its device.
    pub(super) member: MemberId,
    /// The device's sector at which it begins.
    pub(super) start: u64,
    /// Its size.
    pub(super) sectors: u64,
    /// The first block that counts.
    pub(super) tail: u64,
    /// The place of the next block.
    pub(super) head: u64,
    /// The sequence number of the next block.
    pub(super) seq: u64,
}

impl Ring {
    /// What lies so many sectors behind a position.
    pub(super) const fn after(&self, position: u64, sectors: u64) -> u64 {
        (position + sectors) % self.sectors
    }

    const fn used(&self) -> u64 {
        (self.head + self.sectors - self.tail) % self.sectors
    }

    /// Room for so many sectors more? A block fits always, and head and tail never meet.
    const fn fits(&self, sectors: u64) -> bool {
        self.used() + sectors + 2 * BLOCK_SECTORS <= self.sectors
    }
}

/// Writes that were recorded together.
#[derive(Clone, Copy, Debug)]
struct Batch {
    number: u64,
    /// Where its first block lies.
    start: u64,
    /// Writes that are not in place.
    left: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
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
    state: State,
    /// Memory for blocks.
    pages: Vec<Buf>,
    current: Records,
    waiting: VecDeque<(usize, Vec<Record>)>,
    batches: VecDeque<Batch>,
    /// In which batch each write under way is; `None`: it waits.
    recorded: BTreeMap<usize, Option<u64>>,
    pub(super) released: Vec<usize>,
    next_batch: u64,
    /// A checkpoint is asked for, which may give room.
    reclaiming: bool,
    /// Data that was recorded without parity: in an array whose journal writes back.
    unfinished: Unfinished,
}

/// Data that was recorded without parity. It is recorded anew, behind all else, so that the old
/// records count no longer; and then it is written, with parity, as any other data.
#[derive(Debug, Default)]
struct Unfinished {
    /// To be recorded anew: sector of the array, and position of the page.
    old: Vec<(u64, u64)>,
    /// What is being recorded, in this strip.
    sectors: Vec<u64>,
    strip: Option<Buf>,
    /// To be written: sector of the array, position of the page, and the batch that it is in.
    new: Vec<UnfinishedPage>,
}

/// A page that is to be written with parity.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct UnfinishedPage {
    /// Sector of the array.
    pub(in super::super) sector: u64,
    /// Where it lies on the journal's device.
    pub(in super::super) place: Place,
    batch: u64,
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
        let old = found.data.clone();
        let mut journal = Self {
            set_uuid,
            ring,
            state: State::Beginning,
            pages,
            current: Records::default(),
            waiting: VecDeque::new(),
            batches: VecDeque::new(),
            recorded: BTreeMap::new(),
            released: Vec::new(),
            next_batch: 0,
            reclaiming: false,
            unfinished: Unfinished { old, ..Unfinished::default() },
        };
        if journal.unfinished.old.is_empty() {
            journal.write_first_block(lane);
        } else {
            journal.move_unfinished(lane);
        }
        journal
    }

    /// Writes a block that tells of nothing, at which the journal begins.
    fn write_first_block(&mut self, lane: &mut Lane) {
        let Ring { member, start, head: position, seq, .. } = self.ring;
        let block = MetaBlock { seq, position, payloads: Vec::new() };
        let buf = self.pages[0];
        lane.actions.push_back(Action::Store { buf, bytes: block.encode(self.set_uuid) });
        let op = IoOp::Write { sector: start + position, buf, fua: true };
        lane.issue(member, op, Owner::Log(LogIo::Unit(member)));
    }

    /// Reads some of the unfinished data, to record them anew.
    fn move_unfinished(&mut self, lane: &mut Lane) {
        let strip = lane.pool.take(1).and_then(|mut strips| strips.pop());
        let Some(strip) = strip else { return self.fail() };
        let pages = MOVED_PAGES as usize;
        let rest = self.unfinished.old.len().saturating_sub(pages);
        let moved = self.unfinished.old.split_off(rest);
        self.unfinished.strip = Some(strip);
        self.state = State::Moving(moved.len());
        let Ring { member, start, .. } = self.ring;
        for (number, (_, position)) in (0..).zip(&moved) {
            let buf = strip.slice(number * BLOCK_BYTES, BLOCK_BYTES);
            let op = IoOp::Read { sector: start + position, buf };
            lane.issue(member, op, Owner::Log(LogIo::Unit(member)));
        }
        self.unfinished.sectors = moved.into_iter().map(|(sector, _)| sector).collect();
    }

    /// What was read is recorded anew, if there is room for it.
    fn record_unfinished(&mut self, lane: &mut Lane) {
        let Some(strip) = self.unfinished.strip else { return self.fail() };
        self.current = Records::of_data(&self.unfinished.sectors, strip);
        if !self.ring.fits(self.current.sectors()) {
            return self.fail();
        }
        self.sum(lane);
    }

    /// It is recorded: more follows, or the journal begins here.
    fn unfinished_recorded(&mut self, lane: &mut Lane, batch: &mut Batch) {
        lane.pool.give(self.unfinished.strip.take().into_iter());
        let sectors = std::mem::take(&mut self.unfinished.sectors);
        batch.left = sectors.len();
        let Ring { member, start, .. } = self.ring;
        let positions = self.current.blocks(&self.ring).into_iter().flat_map(|block| block.pages());
        for (sector, position) in sectors.into_iter().zip(positions) {
            let place = Place { member, sector: start + position };
            self.unfinished.new.push(UnfinishedPage { sector, place, batch: batch.number });
        }
    }

    /// A page that is to be written with parity, if there is one.
    pub(super) fn next_unfinished(&mut self) -> Option<UnfinishedPage> {
        self.unfinished.new.pop()
    }

    /// It is written.
    pub(super) fn finished(&mut self, lane: &mut Lane, page: UnfinishedPage) {
        if let Some(batch) = self.batches.iter_mut().find(|batch| batch.number == page.batch) {
            batch.left -= 1;
        }
        self.forget(lane);
    }

    /// Scratch that it has.
    pub(super) fn held_bytes(&self) -> u64 {
        self.unfinished.strip.map_or(0, |strip| strip.len.into())
    }

    /// Could the unfinished data not be recorded anew?
    pub(super) fn is_stuck(&self) -> bool {
        let left = self.unfinished.strip.is_some() || !self.unfinished.old.is_empty();
        self.state == State::Failed && left
    }

    /// What still counts of the ring, in sectors.
    pub(super) const fn used_sectors(&self) -> u64 {
        self.ring.used()
    }

    /// Does this write wait for the journal, which is busy with something or waits for room?
    pub(super) fn waits_for(&self, index: usize) -> bool {
        let busy = !matches!(self.state, State::Idle | State::Failed);
        let in_place = self.batches.iter().all(|batch| batch.left == 0);
        self.recorded.contains_key(&index) && (busy || self.reclaiming || !in_place)
    }

    /// Has the superblock yet to tell where the journal begins?
    pub(super) fn is_renewing(&self, lane: &Lane) -> bool {
        let alive = lane.keeper().members().live(self.ring.member);
        let begins = matches!(self.state, State::Beginning | State::Telling | State::Moving(_));
        let moves = self.unfinished.strip.is_some() && self.state != State::Failed;
        alive && (begins || moves)
    }

    /// Has this write wait until it is in the journal. False where it changes nothing.
    pub(super) fn record(&mut self, lane: &mut Lane, index: usize, job: &Job) -> bool {
        let records = records(job, lane);
        if records.is_empty() {
            return false;
        }
        self.waiting.push_back((index, records));
        self.recorded.insert(index, None);
        self.advance(lane);
        true
    }

    /// This write is over: what it wrote is in place, or will not be written.
    pub(super) fn in_place(&mut self, lane: &mut Lane, index: usize) {
        let Some(number) = self.recorded.remove(&index) else { return };
        if let Some(batch) = self.batches.iter_mut().find(|batch| Some(batch.number) == number) {
            batch.left -= 1;
        }
        self.forget(lane);
        self.reclaim(lane);
    }

    /// The first batches are in place: their records count until superblocks say otherwise. The
    /// last batch stays, so that the tail lies on a block.
    fn forget(&mut self, lane: &mut Lane) {
        let before = self.batches.len();
        while self.batches.len() > 1 && self.batches[0].left == 0 {
            self.batches.pop_front();
        }
        if let Some(first) = self.batches.front()
            && self.batches.len() < before
        {
            lane.report(LaneReport::JournalTail(first.start));
        }
    }

    /// The superblocks may say that the tail has moved.
    pub(super) fn updated(&mut self, lane: &mut Lane) {
        if let Some(tail) = lane.keeper().journal_tail() {
            self.ring.tail = tail;
            if self.state == State::Telling && self.batches[0].start == tail {
                self.state = State::Idle;
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
        let first = self.batches.front().map_or(self.ring.head, |batch| batch.start);
        let gain = first != self.ring.tail;
        let much = self.ring.used() > MOST_SECTORS.min(self.ring.sectors / RECLAIM_PART);
        let waits = !self.waiting.is_empty();
        if gain && !self.reclaiming && (much || waits) {
            self.reclaiming = true;
            lane.report(LaneReport::WantsCheckpoint);
        }
        // All that there is, is the last batch: it makes room when there is another one.
        let alone = self.batches.len() == 1 && self.batches[0].left == 0;
        if !gain && waits && alone && self.state == State::Idle {
            self.current = Records::empty_block();
            self.write_batch(lane);
        }
    }

    /// Something that the journal has asked for is answered; what failed has made it faulty.
    pub(super) fn answered(&mut self, lane: &mut Lane, io: LogIo, outcome: Option<Outcome>) {
        match (&mut self.state, io) {
            (State::Moving(_), _) if outcome.is_none() => {
                // What was acknowledged cannot be read.
                self.fail();
            }
            (State::Moving(left), _) => {
                *left -= 1;
                if *left == 0 {
                    self.record_unfinished(lane);
                }
            }
            (State::Summing(left), LogIo::Entry(_, page)) => {
                if let Some(Outcome::Crc(crc)) = outcome {
                    self.current.note_crc(page, page_crc(crc));
                }
                *left -= 1;
                if *left == 0 {
                    self.write_batch(lane);
                }
            }
            (State::Recording(left), _) => {
                *left -= 1;
                if *left == 0 && crate::broken("log-before-data") {
                    self.batch_recorded(lane);
                } else if *left == 0 {
                    self.flush(lane);
                }
            }
            (State::Flushing, _) => self.batch_recorded(lane),
            (State::Beginning, _) => self.begun(lane),
            _ => {}
        }
    }

    /// The first block is there: the superblock is to say so.
    fn begun(&mut self, lane: &mut Lane) {
        let start = self.ring.head;
        self.batches.push_back(Batch { number: self.next_batch, start, left: 0 });
        self.next_batch += 1;
        self.ring.seq = self.ring.seq.wrapping_add(1);
        self.ring.head = self.ring.after(start, BLOCK_SECTORS);
        self.tell(lane);
    }

    /// The superblock is to say where the journal begins.
    fn tell(&mut self, lane: &mut Lane) {
        self.state = State::Telling;
        lane.report(LaneReport::JournalTail(self.batches[0].start));
        lane.report(LaneReport::WantsCheckpoint);
    }

    /// Begins with the next batch, if one waits and has room.
    fn advance(&mut self, lane: &mut Lane) {
        if self.state == State::Failed || !lane.keeper().members().live(self.ring.member) {
            return self.fail();
        }
        if self.state != State::Idle || self.waiting.is_empty() {
            return;
        }
        let room = |sectors: u64| self.ring.fits(sectors);
        self.current = Records::take(&mut self.waiting, self.pages.len(), room);
        if self.current.jobs.is_empty() {
            return self.reclaim(lane);
        }
        self.sum(lane);
    }

    /// Has the checksums of all pages made.
    fn sum(&mut self, lane: &mut Lane) {
        let sums: Vec<Compute> = self.current.sums(self.set_uuid).collect();
        self.state = State::Summing(sums.len());
        for (page, sum) in (0..).zip(sums) {
            lane.issue_log_compute(sum, LogIo::Entry(self.ring.member, page));
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
        self.state = State::Recording(writes.len());
        for (position, buf) in writes {
            let op = IoOp::Write { sector: start + position, buf, fua: false };
            lane.issue(member, op, Owner::Log(LogIo::Unit(member)));
        }
    }

    fn flush(&mut self, lane: &mut Lane) {
        let member = self.ring.member;
        if !lane.keeper().members().live(member) {
            return self.fail();
        }
        self.state = State::Flushing;
        lane.issue(member, IoOp::Flush, Owner::Log(LogIo::Flush));
    }

    fn batch_recorded(&mut self, lane: &mut Lane) {
        if !lane.keeper().members().live(self.ring.member) {
            return self.fail();
        }
        let left = self.current.jobs.len();
        let mut batch = Batch { number: self.next_batch, start: self.ring.head, left };
        let moving = self.unfinished.strip.is_some();
        if moving {
            self.unfinished_recorded(lane, &mut batch);
        }
        self.next_batch += 1;
        self.ring.seq = self.ring.seq.wrapping_add(self.current.block_count());
        self.ring.head = self.ring.after(self.ring.head, self.current.sectors());
        for job in &self.current.jobs {
            self.recorded.insert(*job, Some(batch.number));
        }
        self.released.append(&mut self.current.jobs);
        self.batches.push_back(batch);
        if !moving {
            self.state = State::Idle;
            self.forget(lane);
            return self.advance(lane);
        }
        if self.unfinished.old.is_empty() {
            self.tell(lane);
        } else {
            self.move_unfinished(lane);
        }
    }

    /// The device is gone. The array is not written to any more, so what waits ends.
    fn fail(&mut self) {
        self.state = State::Failed;
        self.released.append(&mut self.current.jobs);
        self.released.extend(self.waiting.drain(..).map(|(job, _)| job));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_tail_of_a_ring_never_meet() {
        let ring =
            |tail, head| Ring { member: MemberId(0), start: 0, sectors: 80, tail, head, seq: 1 };
        assert_eq!(ring(0, 0).used(), 0);
        assert_eq!(ring(64, 16).used(), 32);
        assert_eq!(ring(0, 72).after(72, 8), 0);
        // A block always has room behind what fits.
        assert!(ring(64, 16).fits(32));
        assert!(!ring(64, 16).fits(40));
        assert!(ring(0, 0).fits(64));
        assert!(!ring(0, 0).fits(72));
    }
}
