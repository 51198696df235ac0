//! The machine of an array whose members are reached from this process: [`Array`], which is a
//! [`Keeper`] and the lane *here*. The keeper says who the members are and what is to be done with
//! them; the files of this folder carry out requests and units of background work.
//!
//! - `requests` cuts requests into pieces; `jobs` takes those that need a lock, a plan or metadata
//!   through their stages; `planning` and `compare` make their plans. These own their state, get
//!   the `lane` as an argument, and see only what is below them.
//! - `recording` has the values that jobs hand to a log; `write_log` knows no job. `dirty` are the
//!   pages that a journal holds alone, `destage` brings them in place.
//! - The array connects them: `answers` takes in what I/O brings, `ended` does what jobs ask for,
//!   `work` tells the keeper of background work, `carry_out` does what the keeper asks for.

mod answers;
mod carry_out;
mod compare;
mod destage;
mod dirty;
mod elders;
mod ended;
mod full;
mod invariants;
mod io;
mod job;
mod job_io;
mod jobs;
mod lane;
mod locks;
mod map;
mod mending;
mod planning;
mod recording;
mod requests;
mod reshaping;
mod scratch;
mod space;
mod spare;
mod starting;
mod stripe_cache;
#[cfg(test)]
mod tests;
mod within;
mod work;
mod write_log;

pub use scratch::Scratch;

use std::collections::VecDeque;

use crate::action::Event;
use crate::assemble::{
    Config, MemberConfig, Standing, StartLog, geometry_of as geometry_of_one, shape_of,
};
use crate::format::reshaped::{Side, all_roles, is_backwards, shape_of_side};
use crate::format::superblock::feature;
use crate::geometry::{Geometry, Strip};
use crate::grow::NewShape;
use crate::keeper::{Keeper, MetaWrite, Rules};
use crate::level::{Layout, Level};
use crate::request::{Full, Request, RequestError};
use crate::status::Status;
use crate::{Action, BlockMachine, Buf, Instant, Machine, MemberId};

use full::PutOffs;
use job::move_strips;
use jobs::{JobEvent, Jobs};
use lane::Lane;
use map::ArrayMap;
use mending::Mending;
use recording::recorded_strips;
use requests::Requests;
use reshaping::Reshaping;
use scratch::{PAGE_BYTES, Pool, UNIT_BYTES};
use space::Space;
use starting::Logging;
use write_log::buffer_bytes;

/// Metadata pages in flight at most.
const PAGES: usize = 32;

/// A running array over files and devices of this process. The array owns the keeper, the requests,
/// the I/O in flight, the locks of ranges, and the scratch: its part of the executor's arena.
/// Members and bytes are the executor's, which carries out the [`Action`]s of the array.
///
/// Order of calls: [`scratch_bytes`](Self::scratch_bytes) says how much memory to set aside, in
/// bytes, [`new`](Self::new) starts the machine, [`set_epoch`](Self::set_epoch) tells the time of
/// day. Then follow the calls of [`Machine`] and [`BlockMachine`]: `poll` until it is empty,
/// `submit` for requests, `handle` for answers, commands and ticks. `Command::Stop` ends the array:
/// when the command is answered, the superblocks say clean.
///
/// A request is cut into pieces. Simple pieces become I/O at once. Each other piece becomes a job,
/// which waits for the lock of its range, for the superblocks and bitmap to tell of the write, and
/// for scratch; then it reads, computes and writes. Writes to one stripe unit are gathered until
/// `poll` has nothing else to return. Errors of members go to the keeper, and redundancy makes up
/// for them while the level can.
///
/// After each event the array runs until idle: I/O of failed members is answered as failed, writes
/// that were put off are tried again, jobs that wait for nothing advance, and the keeper takes its
/// turn; its commands are carried out before anything else.
#[derive(Debug)]
pub struct Array {
    lane: Lane,
    requests: Requests,
    jobs: Jobs,
    /// Metadata that wait for a page to be written from.
    meta_writes: VecDeque<MetaWrite>,
    mending: Mending,
    put_offs: PutOffs,
    logging: Logging,
    reshaping: Reshaping,
}

impl Array {
    /// Returns the amount of scratch an array of this shape works well with.
    #[must_use]
    pub fn scratch_bytes(config: &Config) -> u64 {
        let strips = all_roles(&config.superblock) as usize + 2;
        let wanted = (strips * 32).min((64 << 20) / UNIT_BYTES as usize);
        Pool::bytes(wanted.max(strips * 2).max(least_strips(config)), PAGES) + buffer_bytes(config)
    }

    /// The least scratch that an array of this shape can do with.
    #[must_use]
    pub fn least_scratch_bytes(config: &Config) -> u64 {
        Pool::bytes(least_strips(config), PAGES) + buffer_bytes(config)
    }

    /// Starts the machine: nothing has been written when this returns; the first `poll` may.
    /// `scratch` is zero-filled and belongs to the machine.
    ///
    /// # Errors
    /// When the configuration cannot be run: the reason, for people.
    pub fn new(now: Instant, config: Config, scratch: Scratch) -> Result<Self, String> {
        let geometry = geometry_of(&config)?;
        let old = old_geometry_of(&config)?;
        let backwards = is_backwards(&config.superblock);
        let space = match &old {
            Some(old) => Space::between(old.clone(), geometry.clone(), backwards),
            None => Space::new(geometry.clone()),
        };
        let space = space.map_err(|error| error.to_string())?;
        let least = Self::least_scratch_bytes(&config);
        if scratch.bytes < least || !scratch.offset.is_multiple_of(PAGE_BYTES.into()) {
            return Err("too little scratch memory".into());
        }
        let log_memory = Scratch { offset: scratch.offset, bytes: buffer_bytes(&config) };
        let scratch = Scratch {
            offset: scratch.offset + log_memory.bytes,
            bytes: scratch.bytes - log_memory.bytes,
        };
        let mut config = config;
        let config_position = config.superblock.reshape.position;
        let start_log = std::mem::take(&mut config.log);
        let keeper = Keeper::new(now, config, Box::new(space), Rules::local())?;
        let map = match old {
            Some(old) => {
                let mut map = ArrayMap::between(old, geometry, backwards);
                map.set_front(config_position);
                map
            }
            None => ArrayMap::new(geometry),
        };
        let mut array = Self {
            lane: Lane::new(keeper, map, Pool::new(scratch, PAGES)),
            requests: Requests::new(),
            jobs: Jobs::default(),
            meta_writes: VecDeque::new(),
            mending: Mending::default(),
            put_offs: PutOffs::default(),
            logging: Logging::new(start_log, log_memory),
            reshaping: Reshaping::default(),
        };
        array.logging.begin(&mut array.lane);
        array.run_ready();
        Ok(array)
    }

    /// Tells the machine the time of day: microseconds since 1970 at `Instant(0)`.
    pub const fn set_epoch(&mut self, micros: u64) {
        self.lane.keeper_mut().set_epoch(micros);
    }

    /// Its members are arrays, which give up those who do not answer themselves.
    pub(crate) const fn set_over_arrays(&mut self) {
        self.lane.keeper_mut().set_over_arrays();
    }

    /// The array ends soon: from now on members that answer nothing are given up after a while.
    pub(crate) const fn lose_patience(&mut self, now: Instant) {
        self.lane.keeper_mut().lose_patience(now);
    }

    /// Returns whether any part of the array can be compared with something.
    pub(crate) fn is_comparable(&self) -> bool {
        self.lane.keeper().is_comparable()
    }

    /// An array that this one is part of is checked, and nothing of this one can be.
    pub(crate) fn skip_scrub(&mut self) {
        self.lane.keeper_mut().skip_scrub();
    }

    /// Runs everything that can run without waiting.
    fn run_ready(&mut self) {
        loop {
            self.fail_abandoned();
            self.retry_put_off();
            self.logging.advance(&mut self.lane);
            self.carry_out();
            if self.logging.is_recovering() {
                if self.lane.ios.abandoning.is_empty() {
                    return;
                }
                continue;
            }
            if takes_requests(self) {
                self.requests.release(&mut self.lane, &mut self.jobs);
            }
            while let Some(index) = self.logging.log.next_released() {
                let event = self.jobs.write(&mut self.lane, index);
                self.follow(event);
            }
            while let Some(job) = self.jobs.ready.pop_front() {
                self.advance_job(job);
            }
            // Those that were given room may have found too little, and wait for more now.
            self.logging.destage(&mut self.lane, &mut self.jobs);
            while let Some(index) = self.logging.log.next_refused(&mut self.lane) {
                let failed = self.lane.keeper().has_failed();
                let error = if failed { RequestError::Failed } else { RequestError::Medium };
                self.follow(Some(JobEvent::Ended(index, Err(error))));
            }
            if refuses_windowed(self) {
                self.requests.window_moved(&mut self.lane, &mut self.jobs);
            }
            let updates = self.lane.keeper().updates();
            self.reshaping.open_window(&mut self.lane, &self.jobs);
            self.drive_keeper();
            let opens = self.reshaping.may_open(&self.lane, &self.jobs);
            let window_moves = opens || refuses_windowed(self);
            let rest = self.jobs.ready.is_empty()
                && !(self.requests.any_held() && takes_requests(self))
                && !window_moves
                && self.lane.ios.abandoning.is_empty()
                && !self.logging.log.has_released();
            if rest && self.lane.keeper().updates() == updates {
                return;
            }
        }
    }
}

/// Returns whether requests wait where neither map holds, and nothing goes on.
fn refuses_windowed(array: &Array) -> bool {
    let lane = &array.lane;
    lane.map.saved_to().is_some() && lane.moves_no_more() && !array.requests.windowed().is_empty()
}

/// Returns whether requests begin when they come.
const fn takes_requests(array: &Array) -> bool {
    array.logging.is_over() && !array.lane.keeper().holds_requests()
}

/// Strips that the largest job takes.
fn least_strips(config: &Config) -> usize {
    let roles = all_roles(&config.superblock) as usize;
    let recorded = match config.log {
        StartLog::Journal { .. } | StartLog::JournalOff { .. } if !config.read_only => {
            journal_strips(roles)
        }
        _ => 0,
    };
    let moved = match &config.superblock {
        superblock if superblock.has(feature::RESHAPE_ACTIVE) => {
            let geometry = |side| {
                let shape = shape_of_side(superblock, side)?;
                NewShape::of_superblock(&shape)?.geometry().ok()
            };
            let both = geometry(Side::Old).zip(geometry(Side::New));
            both.map_or(roles + 1, |(old, new)| move_strips(&old, &new))
        }
        _ => roles + 1,
    };
    recorded.max(moved)
}

/// Strips that an array with a journal and so many roles has at least: as many are kept to destage
/// as a write takes, so that what waits for that does not hold it up.
const fn journal_strips(roles: usize) -> usize {
    2 * recorded_strips(roles)
}

/// Where a sector of an array lies: the device and the sector there, of the first of its copies;
/// `None` beyond the array, and where that member is not there.
#[must_use]
pub fn place_of(config: &Config, sector: u64) -> Option<(&str, u64)> {
    let reshape = config.superblock.reshape;
    let old = old_geometry_of(config).ok()?;
    let is_before = sector < reshape.position;
    let has_moved = old.is_some() && is_before != is_backwards(&config.superblock);
    let geometry = match old {
        Some(old) if !has_moved => old,
        _ => geometry_of(config).ok()?,
    };
    let Strip { role, sector } =
        (sector < geometry.array_sectors()).then(|| geometry.copy(sector, 0))?;
    let holds = |member: &&MemberConfig| member.standing == Standing::InSync { role };
    let member = config.members.iter().find(holds)?;
    let by = if has_moved { i64::from(reshape.new_offset) } else { 0 };
    Some((&member.device, (member.superblock.data_offset + sector).checked_add_signed(by)?))
}

/// Returns the size of an array in sectors; `None` where the configuration makes none.
#[must_use]
pub fn array_size(config: &Config) -> Option<u64> {
    let new = geometry_of(config).ok()?.array_sectors();
    let old = old_geometry_of(config).ok()?;
    Some(old.map_or(new, |old| old.array_sectors().min(new)))
}

/// The shape that data move from, while they do.
fn old_geometry_of(config: &Config) -> Result<Option<Geometry>, String> {
    let superblock = &config.superblock;
    if !superblock.has(feature::RESHAPE_ACTIVE) {
        return Ok(None);
    }
    let level = Level::from_md(superblock.level).ok_or("a reshape of a level that has none")?;
    let old = shape_of_side(superblock, Side::Old).ok_or("more new members than there are")?;
    geometry_of_one(level, &old).map(Some)
}

fn geometry_of(config: &Config) -> Result<Geometry, String> {
    let told = &config.superblock;
    let superblock = if told.has(feature::RESHAPE_ACTIVE) {
        &shape_of_side(told, Side::New).ok_or("a reshape that has no room")?
    } else {
        told
    };
    let level = Level::from_md(superblock.level)
        .ok_or_else(|| format!("level {} is not one of md's", superblock.level))?;
    // The field counts for raid0 only where the feature bit says so.
    let unset = level == Level::Raid0 && !superblock.has(feature::RAID0_LAYOUT);
    let layout = if unset { 0 } else { superblock.layout };
    let layout =
        Layout::decode(level, layout, superblock.raid_disks).map_err(|error| error.to_string())?;
    let chunk_bytes = u64::from(superblock.chunk_sectors) * crate::SECTOR_BYTES;
    if !chunk_bytes.is_multiple_of(config.block_bytes.max(1).into()) {
        return Err(format!(
            "chunks of {chunk_bytes} bytes do not suit members that take blocks of {} bytes",
            config.block_bytes
        ));
    }
    let mut data_sectors = vec![0; all_roles(told) as usize];
    for member in &config.members {
        if let Standing::InSync { role } | Standing::Rebuilding { role, .. } = member.standing {
            let slot = data_sectors.get_mut(role.index()).ok_or("a role beyond the array")?;
            *slot = member.superblock.data_size;
        }
    }
    let shape = shape_of(level, layout, superblock, &data_sectors);
    let moves = told.has(feature::RESHAPE_ACTIVE);
    let geometry = if moves { Geometry::moving } else { Geometry::new };
    geometry(&shape).map_err(|error| error.to_string())
}

impl Machine for Array {
    fn handle(&mut self, now: Instant, event: Event) {
        self.lane.keeper_mut().at(now);
        match event {
            Event::Done { io, result } => self.io_done(io, result),
            Event::Command { id, command } => self.take_command(id, command),
            Event::Tick => {
                self.lane.keeper_mut().tick();
                self.lane.cache.tick(&mut self.lane.pool, now);
                self.carry_out();
            }
            Event::Loaded { io, bytes } => {
                let owner = self.lane.ios.remove(io).owner;
                self.logging.loaded(&mut self.lane, owner, bytes);
            }
            // A local array has no peers and no volumes.
            Event::Fabric(_) | Event::Survey { .. } | Event::Volume { .. } => {}
        }
    }

    fn poll(&mut self) -> Option<Action> {
        if let Some(action) = self.lane.actions.pop_front() {
            return Some(action);
        }
        self.run_ready();
        if self.lane.actions.is_empty() && !self.jobs.staged.is_empty() {
            // The executor has handed in all it has: what could be gathered has been.
            self.jobs.start_staged(&self.lane);
            self.run_ready();
        }
        self.lane.actions.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let frozen = self.lane.keeper().metadata_frozen();
        let held = if frozen { None } else { self.jobs.hold_deadline() };
        let destage = self.logging.destage_deadline(&self.lane);
        let own = [self.lane.keeper().deadline(), self.put_offs.deadline()];
        let deadlines = [held, destage, self.lane.cache.deadline()];
        own.into_iter().chain(deadlines).flatten().min()
    }

    fn idle(&self) -> bool {
        self.requests.in_flight() == 0
            && !self.requests.any_held()
            && self.lane.ios.in_flight == 0
            && self.lane.ios.abandoning.is_empty()
            && self.jobs.is_empty()
            && self.lane.keeper().is_idle()
            && self.lane.cache.is_empty()
            && self.lane.actions.is_empty()
            && self.put_offs.0.is_empty()
            && self.logging.is_over()
    }

    fn each_unused(&self, found: &mut dyn FnMut(Buf)) {
        self.lane.pool.each_free(found);
        self.lane.dirty.each_free(found);
        self.logging.log.each_free(&self.lane, found);
    }

    fn invariants(&self) -> Result<(), String> {
        self.check()?;
        invariants::every_wait_ends(self)
    }
}

impl BlockMachine for Array {
    fn submit(&mut self, now: Instant, request: Request) -> Result<(), Full> {
        self.lane.keeper_mut().at(now);
        if !takes_requests(self) {
            return self.requests.hold(&mut self.lane, request);
        }
        self.requests.take(&mut self.lane, &mut self.jobs, request)
    }

    fn expect_writes(&mut self, more: bool) {
        self.jobs.more_expected = more;
    }

    fn status(&self) -> Status {
        let mut status = self.lane.keeper().status();
        status.journal_mode = self.lane.dirty.mode;
        if let Some(journal) = &mut status.journal {
            journal.used_sectors = self.logging.log.journal_used_sectors();
            journal.mode = self.lane.dirty.mode;
            journal.dirty_bytes = self.lane.dirty.bytes();
        }
        status
    }

    fn array_sectors(&self) -> u64 {
        self.lane.map.array_sectors()
    }

    fn block_bytes(&self) -> u32 {
        self.lane.keeper().block_bytes()
    }

    fn read_only(&self) -> bool {
        self.lane.keeper().is_read_only()
    }

    fn free_member(&self) -> Option<MemberId> {
        self.lane.keeper().free_id()
    }
}
