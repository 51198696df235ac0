//! The log of an array, and how an array with a log starts: what the log tells is brought in place,
//! then a new log is begun, and only then is anything served. Requests that come before wait.

use std::collections::VecDeque;

use slab::Slab;

use super::dirty::DirtyPages;
use super::io::{Owner, RecoveryIo};
use super::lane::Lane;
use super::recording::{LeftPage, LogKind};
use super::scratch::Scratch;
use super::write_log::{self, LogRecovery, Overlay, UnfinishedPage, WriteLog};
use crate::assemble::StartLog;
use crate::keeper::LaneReport;
use crate::log::journal::{JournalArea, JournalScan};
use crate::{IoOp, MemberId, Outcome};

/// The stages of the start.
#[derive(Debug)]
enum Starting {
    /// The log's contents are brought in place.
    Recovering(Box<LogRecovery>),
    /// The new log is begun.
    Renewing,
    /// Data that the old one had without parity are read into memory.
    Loading(Loading),
}

/// Pages that are read from the journal, and are dirty then.
#[derive(Debug, Default)]
struct Loading {
    /// Pages that are not being read yet, row by row.
    waiting: VecDeque<UnfinishedPage>,
    reading: Slab<(UnfinishedPage, LeftPage)>,
    /// One could not be read, or there is no memory for it.
    failed: bool,
}

/// The unit that is not to be destaged yet.
pub(super) struct Excepted(pub(super) Option<u64>);

/// Pages that are read at once at most.
const MOST_PAGES: usize = 16;

/// The log against the write hole, from what was found in it to what is recorded now.
/// [`begin`](Self::begin) starts, [`advance`](Self::advance) takes the start further until it [is
/// over](Self::is_over); then [`log`](Self::log) records writes. For a read-only array
/// [`overlay`](Self::overlay) has the data that are not written.
#[derive(Debug)]
pub(super) struct Logging {
    pub(super) log: WriteLog,
    pub(super) overlay: Overlay,
    memory: Scratch,
    /// The log as it was found, until its contents are in place.
    found: StartLog,
    /// The log in which writes are recorded when they are again.
    off: StartLog,
    starting: Option<Starting>,
    /// For a read-only array: data that the log has without parity.
    unwritten: VecDeque<UnfinishedPage>,
}

impl Loading {
    /// Reads more while there is memory. False: there is none, and there will be none.
    fn read_more(&mut self, lane: &mut Lane) -> bool {
        while self.reading.len() < MOST_PAGES && !self.waiting.is_empty() {
            let Some(buf) = lane.dirty.take_buf() else {
                return !self.reading.is_empty() || !lane.dirty.is_stuck();
            };
            let Some(page) = self.waiting.pop_front() else { break };
            let left = LeftPage::of(&lane.map, page.sector, buf);
            let number = self.reading.insert((page, left));
            let op = IoOp::Read { sector: page.place.sector, buf };
            lane.issue(page.place.member, op, Owner::Loading(number));
        }
        true
    }
}

impl Logging {
    pub(super) fn new(found: StartLog, memory: Scratch) -> Self {
        let is_off = matches!(found, StartLog::JournalOff { .. });
        let (found, off) = if is_off { (StartLog::None, found) } else { (found, StartLog::None) };
        Self {
            log: WriteLog::None,
            overlay: Overlay::default(),
            memory,
            found,
            off,
            starting: None,
            unwritten: VecDeque::new(),
        }
    }

    /// Begins with what the log tells, or with the keeper's work where there is no log.
    pub(super) fn begin(&mut self, lane: &mut Lane) {
        if matches!(self.found, StartLog::None) {
            return lane.keeper_mut().begin();
        }
        let recovery = LogRecovery::new(&self.found, lane);
        self.starting = Some(Starting::Recovering(Box::new(recovery)));
    }

    /// Returns whether all is served that can be.
    pub(super) const fn is_over(&self) -> bool {
        self.starting.is_none()
    }

    /// Returns whether anything is being brought in place. Meanwhile nothing else is done.
    pub(super) const fn is_recovering(&self) -> bool {
        matches!(self.starting, Some(Starting::Recovering(_)))
    }

    /// Returns the units that may be destaged: all but one, or none. A unit goes in place with all
    /// of its dirty pages, so not before they are loaded; and before all are, only where memory is
    /// short.
    pub(super) fn may_destage(&self, lane: &Lane) -> Option<Excepted> {
        let Some(Starting::Loading(loading)) = &self.starting else { return Some(Excepted(None)) };
        let full = loading.reading.is_empty() && lane.dirty.is_full();
        let next = loading.waiting.front().map(|page| lane.map.unit_place(page.sector).0);
        full.then_some(Excepted(next))
    }

    /// Scratch that the start has.
    pub(super) fn held_bytes(&self) -> u64 {
        match &self.starting {
            Some(Starting::Recovering(recovery)) => recovery.held_bytes(),
            Some(Starting::Renewing | Starting::Loading(_)) | None => self.log.held_bytes(),
        }
    }

    /// Pages that are read into memory for dirty pages.
    pub(super) fn loading_pages(&self) -> usize {
        match &self.starting {
            Some(Starting::Loading(loading)) => loading.reading.len(),
            _ => 0,
        }
    }

    /// Takes the start further.
    pub(super) fn advance(&mut self, lane: &mut Lane) {
        loop {
            match &mut self.starting {
                None => return,
                Some(Starting::Recovering(recovery)) => {
                    recovery.advance(lane, &mut self.overlay);
                    if !recovery.is_done() {
                        return;
                    }
                    let broken = recovery.broken;
                    self.recovered(lane, broken);
                }
                Some(Starting::Renewing)
                    if !lane.keeper().has_failed() && self.log.is_renewing(lane) =>
                {
                    return;
                }
                Some(Starting::Renewing) => {
                    let failed = self.log.is_stuck();
                    let mut waiting = std::mem::take(&mut self.unwritten);
                    waiting.extend(self.log.take_unfinished());
                    let loading = Loading { waiting, failed, ..Loading::default() };
                    self.starting = Some(Starting::Loading(loading));
                }
                Some(Starting::Loading(loading)) => {
                    loading.failed = loading.failed || !loading.read_more(lane);
                    let loads = !loading.failed && !loading.waiting.is_empty();
                    if loads || !loading.reading.is_empty() {
                        return;
                    }
                    if loading.failed && !lane.keeper().has_failed() {
                        lane.report(LaneReport::Unservable);
                    }
                    self.starting = None;
                }
            }
        }
    }

    /// All that the log told is in place, unless it could not be read: a new one is begun.
    fn recovered(&mut self, lane: &mut Lane, broken: bool) {
        if broken && matches!(self.found, StartLog::Journal { .. }) {
            // What was acknowledged is in the journal alone.
            lane.report(LaneReport::Unservable);
        }
        // The superblock of a journal is to tell where the new one begins.
        lane.keeper_mut().begin();
        self.starting = Some(Starting::Renewing);
        let found = std::mem::take(&mut self.found);
        if lane.keeper().is_read_only() {
            self.unwritten = write_log::unwritten(&found, lane, self.memory);
        }
        if !lane.keeper().is_read_only() && !lane.keeper().has_failed() {
            lane.log = LogKind::of(&found);
            self.log = WriteLog::begin(found, lane, self.memory);
        }
    }

    /// Records writes in the array's log from now on, once this is empty; or nowhere. Nothing is
    /// being recorded.
    pub(super) fn switch(&mut self, lane: &mut Lane, on: bool) {
        let log = if on {
            self.starting = Some(Starting::Renewing);
            match std::mem::take(&mut self.off) {
                StartLog::JournalOff { member, scan } => StartLog::Journal { member, scan },
                _ => StartLog::empty_partial_parity(),
            }
        } else {
            self.off = self.log.stopped();
            lane.dirty = DirtyPages::new(lane.dirty.mode, Vec::new(), 0);
            lane.pool.keep(0);
            StartLog::None
        };
        lane.log = LogKind::of(&log);
        self.log = WriteLog::begin(log, lane, self.memory);
    }

    /// Returns the number of members that there is memory for, should they have partial parity
    /// logs.
    pub(super) const fn most_members(&self) -> u32 {
        write_log::most_members(self.memory)
    }

    /// Another device is to hold the journal, in which nothing was recorded yet.
    pub(super) fn begin_journal(
        &mut self,
        lane: &mut Lane,
        member: MemberId,
        area: JournalArea,
        first_seq: u64,
    ) {
        let scan = JournalScan::new(area, first_seq);
        self.log = WriteLog::begin(StartLog::Journal { member, scan }, lane, self.memory);
    }

    /// Takes in an answer for what is brought in place; `failed`: what failed.
    pub(super) fn recovery_answered(
        &mut self,
        lane: &mut Lane,
        io: RecoveryIo,
        failed: Option<IoOp>,
        outcome: Option<Outcome>,
    ) {
        if let Some(Starting::Recovering(recovery)) = &mut self.starting {
            recovery.answered(lane, io, failed, outcome);
        }
    }

    /// A page of the journal is in memory, or could not be read.
    pub(super) fn page_loaded(&mut self, lane: &mut Lane, page: usize, ok: bool) {
        let Some(Starting::Loading(loading)) = &mut self.starting else { return };
        let (page, left) = loading.reading.remove(page);
        loading.failed |= !ok;
        let batch = ok.then_some(page.batch);
        let now = lane.keeper().now();
        let (replaced, first) = lane.dirty.insert(vec![left], batch, now);
        if first && !lane.keeper().is_read_only() {
            let (start, end) = left.unit_rows(&lane.map);
            lane.begin_write(start, end);
        }
        self.log.release(lane, &replaced);
    }

    /// The bytes that the start has asked for.
    pub(super) fn loaded(&mut self, lane: &mut Lane, owner: Owner, bytes: Vec<u8>) {
        if let (Owner::Recovery(RecoveryIo::Step(step)), Some(Starting::Recovering(recovery))) =
            (owner, &mut self.starting)
        {
            recovery.loaded(lane, &mut self.overlay, step, bytes);
        }
    }
}
