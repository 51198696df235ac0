//! md's logs against the write hole: what a write to stripes changes is in a log, durably, before
//! any of it is in place. After a crash the log tells how parity, or all of the write, is to be.
//!
//! - `change` is what a write changes, as logs tell it.
//! - `ppl` are the partial parity logs of RAID 5, with what they record at once as `unit`.
//! - `journal` is the ring on a device of its own: what it records at once is in `record`, what
//!   counts of it in `ring`, and `unfinished` is what an array left in it without parity.
//! - `recovery` brings what a log tells in place when an array starts; of a read-only array it is
//!   laid over what members hold, as `overlay`.

mod change;
mod journal;
mod overlay;
mod ppl;
mod record;
mod recovery;
mod ring;
mod unfinished;
mod unit;

pub(super) use overlay::Overlay;
pub(super) use recovery::LogRecovery;
pub(super) use unfinished::UnfinishedPage;

use std::collections::VecDeque;

use super::dirty::{self, DirtyPages};
use super::lane::Lane;
use super::recording::{Recorded, recorded_strips};
use super::scratch::{PAGE_BYTES, Scratch};
use crate::assemble::{Config, StartLog};
use crate::format::ppl::is_suspended;
use crate::format::reshaped::all_roles;
use crate::plan::MemberPlace;
use crate::{Buf, MemberId};
use journal::Journal;
use ppl::PartialParityLogs;

/// Partial parity logs have memory for so many members more than there are: the array may grow.
const MORE_MEMBERS: u64 = 8;

/// Memory for the partial parity logs of each role: for who holds it, and who takes it over.
const ROLE_BYTES: u64 = 2 * unit::BUFFER_BYTES as u64;

/// Memory for the log of an array, in bytes.
pub(super) fn buffer_bytes(config: &Config) -> u64 {
    let members = u64::from(all_roles(&config.superblock));
    let partial_parity = (members + MORE_MEMBERS) * ROLE_BYTES;
    match (config.read_only, &config.log) {
        (true, StartLog::Journal { scan, .. }) => scan.data.len() as u64 * u64::from(PAGE_BYTES),
        (true, _) => 0,
        (_, StartLog::None) if is_suspended(&config.superblock) => partial_parity,
        (_, StartLog::None) => 0,
        (_, StartLog::PartialParity { .. }) => partial_parity,
        (_, StartLog::Journal { scan, .. } | StartLog::JournalOff { scan, .. }) => {
            let blocks = record::most_blocks(members) * u64::from(PAGE_BYTES);
            blocks + dirty::memory_bytes(scan.area.sectors)
        }
    }
}

/// Returns the number of members whose partial parity logs there is this memory for.
pub(super) const fn most_members(memory: Scratch) -> u32 {
    (memory.bytes / ROLE_BYTES) as u32
}

/// The log of a running array. A write that is [recorded](Self::record) waits until it is
/// [released](Self::next_released), and is [in place](Self::in_place) when it is over.
#[derive(Debug, Default)]
pub(super) enum WriteLog {
    #[default]
    None,
    PartialParity(Box<PartialParityLogs>),
    Journal(Box<Journal>),
}

impl WriteLog {
    /// Begins a new log, behind what was found in this one.
    pub(super) fn begin(log: StartLog, lane: &mut Lane, memory: Scratch) -> Self {
        let set_uuid = lane.keeper().set_uuid();
        match log {
            StartLog::None | StartLog::JournalOff { .. } => Self::None,
            StartLog::PartialParity { generations, .. } => {
                let buffers = cut(memory, unit::BUFFER_BYTES);
                let mut logs = PartialParityLogs::new(set_uuid, buffers);
                let members: Vec<MemberId> = lane.keeper().members().holders().collect();
                for id in members {
                    let generation = generations.get(usize::from(id.0)).copied().flatten();
                    logs.begin(lane, id, generation);
                }
                Self::PartialParity(Box::new(logs))
            }
            StartLog::Journal { member, scan } => {
                let mut pages = cut(memory, PAGE_BYTES);
                let members = u64::from(lane.map.geometry.raid_disks());
                let blocks = record::most_blocks(members) as usize;
                let free = pages.split_off(blocks.min(pages.len()));
                lane.pool.keep(recorded_strips(lane.map.geometry.raid_disks() as usize));
                let sums = lane.map.geometry.parity_disks();
                lane.dirty = DirtyPages::new(lane.dirty.mode, free, sums);
                let journal = Journal::begin(set_uuid, member, &scan, pages, lane);
                Self::Journal(Box::new(journal))
            }
        }
    }

    /// The array stops, and nothing is under way. True when the log is as it is to be left.
    pub(super) fn close(&mut self, lane: &mut Lane) -> bool {
        match self {
            Self::Journal(journal) => journal.close(lane),
            Self::None | Self::PartialParity(_) => true,
        }
    }

    /// Returns the log in which writes are recorded when they are again. Nothing is being recorded.
    pub(super) fn stopped(&self) -> StartLog {
        match self {
            Self::None => StartLog::None,
            Self::PartialParity(_) => StartLog::empty_partial_parity(),
            Self::Journal(journal) => journal.stopped(),
        }
    }

    /// Data that the log found had without parity, which is to be in memory before anything is
    /// served; row by row.
    pub(super) fn take_unfinished(&mut self) -> VecDeque<UnfinishedPage> {
        match self {
            Self::Journal(journal) => journal.unfinished.take_moved(),
            Self::None | Self::PartialParity(_) => VecDeque::new(),
        }
    }

    /// Returns whether such data could not be read, or not be recorded anew.
    pub(super) fn is_stuck(&self) -> bool {
        matches!(self, Self::Journal(journal) if journal.is_stuck())
    }

    /// Names its own memory as far as nothing is being recorded from there.
    pub(super) fn each_free(&self, lane: &Lane, found: &mut dyn FnMut(Buf)) {
        match self {
            Self::None => {}
            Self::PartialParity(logs) => logs.each_free(lane, found),
            Self::Journal(journal) => journal.each_free(found),
        }
    }

    /// Scratch that it has.
    pub(super) fn held_bytes(&self) -> u64 {
        match self {
            Self::Journal(journal) => journal.unfinished.held_bytes(),
            Self::None | Self::PartialParity(_) => 0,
        }
    }

    /// Returns the size of the part of a journal that still counts, in sectors.
    pub(super) const fn journal_used_sectors(&self) -> Option<u64> {
        match self {
            Self::Journal(journal) => Some(journal.used_sectors()),
            _ => None,
        }
    }

    /// Returns whether members are flushed on behalf of it.
    pub(super) const fn is_flushing(&self) -> bool {
        matches!(self, Self::PartialParity(logs) if logs.is_flushing())
    }

    /// Returns whether the new log is still being begun.
    pub(super) fn is_renewing(&self, lane: &Lane) -> bool {
        match self {
            Self::None => false,
            Self::PartialParity(logs) => logs.is_beginning(),
            Self::Journal(journal) => journal.is_renewing(lane),
        }
    }

    /// Makes this write wait until it is recorded. False where that is not needed.
    pub(super) fn record(&mut self, lane: &mut Lane, index: usize, recorded: Recorded<'_>) -> bool {
        match self {
            Self::None => false,
            Self::PartialParity(logs) => logs.record(lane, index, recorded),
            Self::Journal(journal) => journal.record(lane, index, recorded),
        }
    }

    /// A write is over.
    pub(super) fn in_place(&mut self, lane: &mut Lane, index: usize) {
        match self {
            Self::None => {}
            Self::PartialParity(logs) => logs.in_place(lane, index),
            Self::Journal(journal) => journal.in_place(lane, index),
        }
    }

    /// A write is recorded that leaves pages which are not in place: the batch that they are in.
    pub(super) fn keep(&mut self, index: usize, pages: usize) -> Option<u64> {
        match self {
            Self::Journal(journal) => journal.keep(index, pages),
            Self::None | Self::PartialParity(_) => None,
        }
    }

    /// Pages are in place, or others took theirs, that were in these batches.
    pub(super) fn release(&mut self, lane: &mut Lane, batches: &[u64]) {
        if let Self::Journal(journal) = self {
            journal.release(lane, batches);
        }
    }

    /// An update of superblocks is done.
    pub(super) fn updated(&mut self, lane: &mut Lane) {
        match self {
            Self::None => {}
            Self::PartialParity(logs) => logs.updated(lane),
            Self::Journal(journal) => journal.updated(lane),
        }
    }

    /// An I/O that nobody waited for is answered: its memory may be used.
    pub(super) fn use_memory(&mut self, lane: &mut Lane) {
        if let Self::PartialParity(logs) = self {
            logs.use_memory(lane);
        }
    }

    /// A checkpoint that was asked for is complete.
    pub(super) fn checkpoint_done(&mut self, lane: &mut Lane) {
        if let Self::Journal(journal) = self {
            journal.checkpoint_done(lane);
        }
    }

    /// A write that may go on now: it is recorded, or need not be any longer.
    pub(super) fn next_released(&mut self) -> Option<usize> {
        match self {
            Self::None => None,
            Self::PartialParity(logs) => logs.released.pop(),
            Self::Journal(journal) => journal.released.pop(),
        }
    }

    /// Returns whether such a write is there.
    pub(super) fn has_released(&self) -> bool {
        match self {
            Self::None => false,
            Self::PartialParity(logs) => !logs.released.is_empty(),
            Self::Journal(journal) => !journal.released.is_empty(),
        }
    }

    /// A write that is not recorded: there will be no room for it.
    pub(super) fn next_refused(&mut self, lane: &mut Lane) -> Option<usize> {
        match self {
            Self::Journal(journal) => journal.next_refused(lane),
            Self::None | Self::PartialParity(_) => None,
        }
    }

    /// Returns whether the log will let this write go on.
    pub(super) fn waits_for(&self, lane: &Lane, index: usize) -> bool {
        match self {
            Self::None => false,
            Self::PartialParity(logs) => logs.waits_for(lane, index),
            Self::Journal(journal) => journal.waits_for(lane, index),
        }
    }
}

/// Lists the data without parity in the journal of a read-only array. These data are read into
/// memory, and nothing is written.
pub(super) fn unwritten(
    log: &StartLog,
    lane: &mut Lane,
    memory: Scratch,
) -> VecDeque<UnfinishedPage> {
    let StartLog::Journal { member, scan } = log else { return VecDeque::new() };
    let sums = lane.map.geometry.parity_disks();
    lane.dirty = DirtyPages::new(lane.dirty.mode, cut(memory, PAGE_BYTES), sums);
    let page = |&(sector, position): &(u64, u64)| {
        let place = MemberPlace { member: *member, sector: scan.area.start + position };
        UnfinishedPage { sector, place, batch: 0 }
    };
    scan.data.iter().map(page).collect()
}

fn cut(memory: Scratch, len: u32) -> Vec<Buf> {
    let count = memory.bytes / u64::from(len);
    (0..count).map(|number| Buf { offset: memory.offset + number * u64::from(len), len }).collect()
}
