//! The machine of an array whose members are reached from this process: [`Array`], which is a
//! [`Keeper`] and the lane *here*. The keeper says who the members are and what is to be done with
//! them; the files of this folder carry out requests and units of background work.
//!
//! - [`requests`](self) cuts requests into pieces; [`job`](self) takes those that need a lock, a
//!   plan or metadata through their stages; [`planning`](self) makes their plans.
//! - [`work`](self) makes jobs of what the keeper asks for in the background.

mod abandon;
mod answers;
mod carry_out;
mod compare;
mod full;
mod invariants;
mod io;
mod job;
mod locks;
mod mending;
mod planning;
mod requests;
mod scratch;
mod space;
#[cfg(test)]
mod tests;
mod within;
mod work;

pub use scratch::Scratch;

use std::collections::{BTreeMap, VecDeque};

use crate::action::Event;
use crate::assemble::Config;
use crate::code::Codes;
use crate::format::superblock::feature;
use crate::geometry::{Geometry, Shape};
use crate::keeper::{Keeper, MetaWrite, Rules, Unit};
use crate::level::{Layout, Level};
use crate::plan::Plan;
use crate::request::{Full, Request};
use crate::status::Status;
use crate::{Action, BlockMachine, Instant, Machine, MemberId};

use full::PutOff;
use io::Ios;
use job::Jobs;
use locks::Locks;
use requests::Requests;
use scratch::{PAGE_BYTES, Pool, UNIT_BYTES};
use space::Space;

/// Metadata pages in flight at most.
const PAGES: usize = 32;

const RULES: Rules = Rules {
    scrubs_whole: false,
    keeps_torn: true,
    marks_lost: true,
    units_at_once: 16,
    stop_patience_ms: 60_000,
    marks_ahead: 0,
    lane_takes_spares: false,
    reads_back: true,
};

/// A running array over files and devices of this process. It owns the keeper, the requests, the
/// I/O in flight, the locks of ranges, and the scratch: its part of the executor's arena. Members
/// and bytes are the executor's, which carries out the [`Action`]s of the array.
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
#[derive(Debug)]
pub struct Array {
    keeper: Keeper,
    geometry: Geometry,
    codes: Codes,
    actions: VecDeque<Action>,
    requests: Requests,
    ios: Ios,
    jobs: Jobs,
    /// The memory of mirror writes' plans that are over, for the next ones.
    spare_plans: Vec<Plan>,
    queues: Queues,
    locks: Locks,
    pool: Pool,
    /// Metadata that wait for a page to be written from.
    meta_writes: VecDeque<MetaWrite>,
    /// Units being rewritten because a member could not read them.
    mending: Vec<(MemberId, Unit)>,
    /// What members have no room for, and must be written.
    waiting_for_room: Vec<PutOff>,
}

/// Jobs by what they wait for.
#[derive(Debug, Default)]
struct Queues {
    /// Nothing: they can go on.
    ready: VecDeque<usize>,
    /// Writes of units not yet started, and those that may still grow, by unit.
    staged: VecDeque<usize>,
    open_units: BTreeMap<u64, usize>,
    meta_waiters: Vec<usize>,
    scratch_waiters: VecDeque<usize>,
    /// The memory of a list of those that were granted a lock.
    granted: Vec<usize>,
}

impl Array {
    /// How much scratch an array of this shape works well with.
    #[must_use]
    pub fn scratch_bytes(config: &Config) -> u64 {
        let strips = config.superblock.raid_disks as usize + 2;
        let wanted = (strips * 32).min((64 << 20) / UNIT_BYTES as usize);
        Pool::bytes(wanted.max(strips * 2), PAGES)
    }

    /// Starts the machine: nothing has been written when this returns; the first `poll` may.
    /// `scratch` is zero-filled and belongs to the machine.
    ///
    /// # Errors
    /// When the configuration cannot be run: the reason, for people.
    pub fn new(now: Instant, config: Config, scratch: Scratch) -> Result<Self, String> {
        let geometry = geometry_of(&config)?;
        let space = Space::new(geometry.clone()).map_err(|error| error.to_string())?;
        let raid_disks = geometry.raid_disks() as usize;
        let strips = scratch.bytes / u64::from(UNIT_BYTES);
        if strips < raid_disks as u64 + 4 || !scratch.offset.is_multiple_of(PAGE_BYTES.into()) {
            return Err("too little scratch memory".into());
        }
        let mut array = Self {
            keeper: Keeper::new(now, config, Box::new(space), RULES)?,
            codes: Codes::new(&geometry),
            geometry,
            actions: VecDeque::with_capacity(1024),
            requests: Requests::new(),
            ios: Ios::with_capacity(1024),
            jobs: Jobs::default(),
            spare_plans: Vec::new(),
            queues: Queues::default(),
            locks: Locks::default(),
            pool: Pool::new(scratch, PAGES),
            meta_writes: VecDeque::new(),
            mending: Vec::new(),
            waiting_for_room: Vec::new(),
        };
        array.keeper.begin();
        array.run_ready();
        Ok(array)
    }

    /// Tells the machine the time of day: microseconds since 1970 at `Instant(0)`.
    pub const fn set_epoch(&mut self, micros: u64) {
        self.keeper.set_epoch(micros);
    }

    /// Its members are arrays, which give up those who do not answer themselves.
    pub(crate) const fn set_over_arrays(&mut self) {
        self.keeper.set_over_arrays();
    }

    /// The array ends soon: from now on members that answer nothing are given up after a while.
    pub(crate) const fn lose_patience(&mut self, now: Instant) {
        self.keeper.lose_patience(now);
    }

    /// Is there something to compare any part of the array with?
    pub(crate) fn is_comparable(&self) -> bool {
        self.keeper.is_comparable()
    }

    /// An array that this one is part of is checked, and nothing of this one can be.
    pub(crate) fn skip_scrub(&mut self) {
        self.keeper.skip_scrub();
    }

    /// Runs everything that can run without waiting.
    fn run_ready(&mut self) {
        loop {
            self.drive_abandoned();
            self.drive_put_off();
            while let Some(job) = self.queues.ready.pop_front() {
                self.advance_job(job);
            }
            let updates = self.keeper.updates();
            self.drive_keeper();
            let rest = self.queues.ready.is_empty() && self.ios.abandoning.is_empty();
            if rest && self.keeper.updates() == updates {
                return;
            }
        }
    }
}

fn geometry_of(config: &Config) -> Result<Geometry, String> {
    let superblock = &config.superblock;
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
    let mut data_sectors = vec![0; superblock.raid_disks as usize];
    for member in &config.members {
        use crate::assemble::Standing;
        if let Standing::InSync { role } | Standing::Rebuilding { role, .. } = member.standing {
            let slot = data_sectors.get_mut(usize::from(role)).ok_or("a role beyond the array")?;
            *slot = member.superblock.data_size;
        }
    }
    Geometry::new(&Shape {
        level,
        layout,
        raid_disks: superblock.raid_disks,
        chunk_sectors: superblock.chunk_sectors,
        size_sectors: superblock.size_sectors,
        member_data_sectors: &data_sectors,
    })
    .map_err(|error| error.to_string())
}

impl Machine for Array {
    fn handle(&mut self, now: Instant, event: Event) {
        self.keeper.at(now);
        match event {
            Event::Done { io, result } => self.io_done(io, result),
            Event::Command { id, command } => self.take_command(id, command),
            Event::Tick => {
                self.keeper.tick();
                self.carry_out();
            }
            // A local array loads nothing and has no peers and no volumes.
            Event::Loaded { .. }
            | Event::Fabric(_)
            | Event::Survey { .. }
            | Event::Volume { .. } => {}
        }
    }

    fn poll(&mut self) -> Option<Action> {
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        self.run_ready();
        if self.actions.is_empty() && !self.queues.staged.is_empty() {
            // The executor has handed in all it has: what could be gathered has been.
            self.start_staged();
            self.run_ready();
        }
        self.actions.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let held = self.hold_deadline().filter(|_| !self.keeper.metadata_frozen());
        [self.keeper.deadline(), self.put_off_until(), held].into_iter().flatten().min()
    }

    fn idle(&self) -> bool {
        self.requests.in_flight() == 0
            && self.ios.in_flight == 0
            && self.ios.abandoning.is_empty()
            && self.jobs.is_empty()
            && self.keeper.is_idle()
            && self.actions.is_empty()
            && self.waiting_for_room.is_empty()
    }

    fn invariants(&self) -> Result<(), String> {
        self.check()
    }
}

impl BlockMachine for Array {
    fn submit(&mut self, now: Instant, request: Request) -> Result<(), Full> {
        self.keeper.at(now);
        self.take_request(request)
    }

    fn status(&self) -> Status {
        self.keeper.status()
    }

    fn array_sectors(&self) -> u64 {
        self.geometry.array_sectors()
    }

    fn block_bytes(&self) -> u32 {
        self.keeper.block_bytes()
    }

    fn read_only(&self) -> bool {
        self.keeper.is_read_only()
    }

    fn free_member(&self) -> Option<MemberId> {
        self.keeper.members().free_id()
    }
}
