//! The machine: one array, the only place where the parts meet.
//!
//! - [`requests`](self) cuts requests into pieces; [`job`](self) takes those that need a lock,
//!   a plan or metadata through their stages; [`planning`](self) makes their plans.
//! - [`meta`](self) writes superblocks, bad-block logs and bitmap pages, in md's order.
//! - [`sync`](self) does background work; [`failure`](self) and [`command`](self) change members.

mod abandon;
mod answers;
mod command;
mod failure;
mod full;
mod intent;
mod io;
mod job;
mod locks;
mod members;
mod mending;
mod meta;
mod place;
mod planning;
mod requests;
mod scratch;
mod state;
mod sync;
#[cfg(test)]
mod tests;

pub use scratch::Scratch;

use std::collections::{BTreeMap, VecDeque};

use crate::action::{CommandId, Event};
use crate::assemble::Config;
use crate::events::ArrayEvent;
use crate::format::Superblock;
use crate::format::superblock::{MAX_SECTOR, feature};
use crate::geometry::{Geometry, Shape};
use crate::level::{Layout, Level};
use crate::plan::Plan;
use crate::request::{Full, Request};
use crate::status::Status;
use crate::{Action, BlockMachine, Instant, IoId, Machine, MemberId};

use abandon::Removal;
use full::PutOff;
use intent::Intent;
use io::Ios;
use job::Jobs;
use locks::Locks;
use members::Members;
use meta::Meta;
use requests::Requests;
use scratch::{PAGE_BYTES, Pool, UNIT_BYTES};
use sync::Sync;

/// Idle time after which the superblocks say clean (md's `safe_mode_delay`).
const SAFE_MODE_MS: u64 = 200;
/// Metadata pages in flight at most.
const PAGES: usize = 32;

/// A running array.
#[derive(Debug)]
pub struct Array {
    now: Instant,
    /// Microseconds since 1970 at `Instant(0)`.
    epoch_micros: u64,
    geometry: Geometry,
    /// The array-wide fields as of the last update.
    superblock: Superblock,
    members: Members,
    block_bytes: u32,
    read_only: bool,
    failed: bool,
    /// Writes may be in flight, and the superblocks say so (or will, by `active_ticket`).
    active: bool,
    active_ticket: u64,
    clean_on_disk: bool,
    /// The update that tells the members of the last failure.
    failure_ticket: u64,
    /// The first of the two updates that do so.
    failure_repeat: Option<u64>,
    /// Sync space below is in sync; as far as superblocks may say.
    resynced: u64,
    durable_resynced: u64,
    stopping: Option<CommandId>,
    /// Since when members that answer nothing are given up after a while.
    impatient_since: Option<Instant>,
    over_arrays: bool,
    stop_ticket: Option<u64>,
    stopped: bool,

    actions: VecDeque<Action>,
    requests: Requests,
    ios: Ios,
    jobs: Jobs,
    locks: Locks,
    pool: Pool,
    meta: Meta,
    intent: Option<Intent>,
    sync: Sync,
    /// Units being rewritten because a member could not read them.
    mending: Vec<(MemberId, job::Unit)>,

    /// The memory of mirror writes' plans that are over, for the next ones.
    spare_plans: Vec<Plan>,
    /// Jobs that can go on.
    ready: VecDeque<usize>,
    /// Writes of units not yet started, and those that may still grow, by unit.
    staged: VecDeque<usize>,
    open_units: BTreeMap<u64, usize>,
    meta_waiters: Vec<usize>,
    scratch_waiters: VecDeque<usize>,
    granted: Vec<usize>,
    /// Requests done but for the superblocks that tell of a failure.
    settling: Vec<usize>,
    removals: Vec<Removal>,
    /// I/O on members that have failed, to be given up.
    abandoning: VecDeque<IoId>,
    /// What members have no room for, and must be written.
    waiting_for_room: Vec<PutOff>,
    /// Commands done but for the superblocks.
    replies: Vec<(u64, CommandId)>,

    /// Where the last write ended, and whether it began where the one before did.
    write_end: u64,
    sequential: bool,
    /// Requests in flight that change data.
    writers: usize,
    last_write: Instant,
    last_request: Option<Instant>,
    clear_at: Instant,
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
        let raid_disks = geometry.raid_disks() as usize;
        let strips = scratch.bytes / u64::from(UNIT_BYTES);
        if strips < raid_disks as u64 + 4 || !scratch.offset.is_multiple_of(PAGE_BYTES.into()) {
            return Err("too little scratch memory".into());
        }
        let resynced = resynced_of(&config.superblock, &geometry);
        let intent = config.bitmap.map(|bitmap| Intent::new(bitmap, resynced != MAX_SECTOR));
        let block_bytes = config.block_bytes.clamp(512, 4096);
        let mut array = Self {
            now,
            epoch_micros: 0,
            members: Members::new(config.members, raid_disks),
            superblock: as_md_keeps_it(config.superblock, &geometry, block_bytes),
            geometry,
            block_bytes,
            read_only: config.read_only,
            failed: false,
            // Stopped within a resync, the members say how far it came, and a write must first
            // take that back.
            active: resynced == 0,
            active_ticket: 0,
            clean_on_disk: resynced != 0,
            failure_ticket: 0,
            failure_repeat: None,
            resynced,
            durable_resynced: resynced,
            stopping: None,
            impatient_since: None,
            over_arrays: false,
            stop_ticket: None,
            stopped: false,
            actions: VecDeque::with_capacity(1024),
            requests: Requests::new(),
            ios: Ios::with_capacity(1024),
            jobs: Jobs::default(),
            locks: Locks::default(),
            pool: Pool::new(scratch, PAGES),
            meta: Meta::default(),
            intent,
            sync: Sync::default(),
            mending: Vec::new(),
            spare_plans: Vec::new(),
            ready: VecDeque::new(),
            staged: VecDeque::new(),
            open_units: BTreeMap::new(),
            meta_waiters: Vec::new(),
            scratch_waiters: VecDeque::new(),
            granted: Vec::new(),
            settling: Vec::new(),
            removals: Vec::new(),
            abandoning: VecDeque::new(),
            waiting_for_room: Vec::new(),
            replies: Vec::new(),
            write_end: u64::MAX,
            sequential: false,
            writers: 0,
            last_write: now,
            last_request: None,
            clear_at: now,
        };
        if resynced != MAX_SECTOR {
            array.members.restart_replacements();
        }
        array.failed = !array.enough_without(&[]);
        if array.failed && !array.read_only {
            return Err("too many members are missing".into());
        }
        array.begin();
        Ok(array)
    }

    /// Tells the machine the time of day: microseconds since 1970 at `Instant(0)`.
    pub const fn set_epoch(&mut self, micros: u64) {
        self.epoch_micros = micros;
    }

    /// What the superblocks must say before the first request.
    fn begin(&mut self) {
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
        self.settle();
    }

    /// No superblock, bitmap or log may be written.
    const fn metadata_frozen(&self) -> bool {
        self.read_only || self.failed || self.stopped || !self.is_redundant()
    }

    /// Time of day in md's coding: seconds in the low 40 bits, microseconds above.
    fn wall_clock(&self) -> u64 {
        let micros = self.epoch_micros + self.now.0 / 1000;
        (micros / 1_000_000) & ((1 << 40) - 1) | (micros % 1_000_000) << 40
    }

    fn notify(&mut self, event: ArrayEvent) {
        self.actions.push_back(Action::Notify(event));
    }

    /// Runs everything that can run without waiting.
    fn settle(&mut self) {
        loop {
            self.drive_abandoned();
            self.drive_put_off();
            while let Some(job) = self.ready.pop_front() {
                self.advance_job(job);
            }
            let updates = self.meta.ticket();
            self.drive_meta();
            self.drive_sync();
            self.drive_removals();
            self.drive_stop();
            self.drive_meta();
            let rest = self.ready.is_empty() && self.abandoning.is_empty();
            if rest && self.meta.ticket() == updates {
                return;
            }
        }
    }

    /// A metadata update is complete: lets those go on who waited for it.
    fn meta_done(&mut self) {
        self.repeat_failure_update();
        let meta = &self.meta;
        let jobs = &self.jobs;
        let ready = &mut self.ready;
        self.meta_waiters.retain(|index| {
            let waits = matches!(jobs.get(*index).stage,
                job::Stage::Metadata(ticket) if !meta.is_done(ticket));
            if !waits {
                ready.push_back(*index);
            }
            waits
        });
        if self.meta.is_done(self.failure_ticket) || self.failed {
            for request in std::mem::take(&mut self.settling) {
                self.answer(request);
            }
        }
        let (meta, actions) = (&self.meta, &mut self.actions);
        self.replies.retain(|(ticket, id)| {
            let waits = !meta.is_done(*ticket);
            if !waits {
                actions.push_back(Action::Reply { id: *id, result: Ok(()) });
            }
            waits
        });
    }

    /// The deadline passed: goes clean when idle, clears old bits.
    fn tick(&mut self) {
        self.tick_stop();
        if self.metadata_frozen() {
            return;
        }
        if self.safe_mode_at().is_some_and(|at| at <= self.now) {
            self.active = false;
            self.wish_superblock(true);
        }
        if self.clear_due().is_some_and(|at| at <= self.now) {
            let sleep = self.daemon_sleep_ms();
            self.clear_at = self.now.plus_millis(sleep);
            self.wish_clear_bits();
        }
    }

    /// When the array, if it stays idle, is to be marked clean.
    fn safe_mode_at(&self) -> Option<Instant> {
        let idle = self.active && self.writers == 0 && self.meta.is_idle();
        (idle && self.stopping.is_none()).then(|| self.last_write.plus_millis(SAFE_MODE_MS))
    }

    fn daemon_sleep_ms(&self) -> u64 {
        let seconds = self.intent.as_ref().map_or(5, |i| i.bitmap.superblock.daemon_sleep_s);
        u64::from(seconds.clamp(1, 3600)) * 1000
    }

    /// When bits of the bitmap may be cleared next.
    fn clear_due(&self) -> Option<Instant> {
        let intent = self.intent.as_ref()?;
        let possible = self.members.degraded() == 0 && self.meta.is_idle() && intent.clearable();
        possible.then_some(self.clear_at)
    }
}

/// What md makes of a superblock when it starts the array: the size is what is used of each member,
/// and a logical block size, where there is one, that of the most demanding member.
fn as_md_keeps_it(superblock: Superblock, geometry: &Geometry, block_bytes: u32) -> Superblock {
    let logical_block_bytes = match superblock.logical_block_bytes {
        0 => 0,
        kept => kept.max(block_bytes),
    };
    let size_sectors = match geometry.member_sectors() {
        0 => superblock.size_sectors,
        used => used,
    };
    Superblock { logical_block_bytes, size_sectors, ..superblock }
}

/// Sync space below this is in sync.
fn resynced_of(superblock: &Superblock, geometry: &Geometry) -> u64 {
    let redundant = !Array::is_plain(geometry.level());
    let waits = redundant && superblock.resync_offset < geometry.sync_sectors();
    if waits { superblock.resync_offset } else { MAX_SECTOR }
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
        self.now = self.now.max(now);
        match event {
            Event::Done { io, result } => self.io_done(io, result),
            Event::Command { id, command } => self.take_command(id, command),
            Event::Tick => self.tick(),
            // A local array loads nothing and has no peers and no volumes.
            Event::Loaded { .. } | Event::Fabric(_) | Event::Volume { .. } => {}
        }
    }

    fn poll(&mut self) -> Option<Action> {
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        self.settle();
        if self.actions.is_empty() && !self.staged.is_empty() {
            // The executor has handed in all it has: what could be gathered has been.
            self.start_staged();
            self.settle();
        }
        self.actions.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let always = [self.removal_deadline(), self.stop_deadline(), self.put_off_until()];
        let always = always.into_iter().flatten().min();
        if self.metadata_frozen() {
            return always;
        }
        [
            always,
            self.safe_mode_at(),
            self.clear_due(),
            self.sync.deadline(self.now),
            self.hold_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn idle(&self) -> bool {
        self.requests.in_flight() == 0
            && self.ios.in_flight == 0
            && self.jobs.is_empty()
            && self.meta.is_idle()
            && self.actions.is_empty()
            && self.abandoning.is_empty()
            && self.waiting_for_room.is_empty()
            && self.sync.is_idle()
    }
}

impl BlockMachine for Array {
    fn submit(&mut self, now: Instant, request: Request) -> Result<(), Full> {
        self.now = self.now.max(now);
        self.take_request(request)
    }

    fn status(&self) -> Status {
        self.make_status()
    }

    fn array_sectors(&self) -> u64 {
        self.geometry.array_sectors()
    }

    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn free_member(&self) -> Option<MemberId> {
        self.members.free_id()
    }
}
