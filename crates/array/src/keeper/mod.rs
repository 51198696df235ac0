//! The keeper of an array, the same over disks and over nodes: [`Keeper`] decides and records who
//! the members are and in which state, what superblocks and bitmap say of them, background work,
//! commands, failure, status. User data never come near it. One file for each of these subjects.
//!
//! The keeper has a *lane*, which reaches the members. The lane carries out the keeper's
//! [`LaneCommand`]s, answers with [`LaneReport`]s, which also announce what it is about to do, and
//! reads the rest in a [`KeeperView`]. Keeper and lane say nothing else to each other, so that a
//! lane may come to run on a thread of its own.

mod admission;
mod checkpoint;
mod command;
mod core;
mod doubts;
mod failure;
mod growing;
mod intent;
mod invariants;
mod joining;
mod journal;
mod journal_device;
mod journals;
mod lane;
mod lengthening;
mod logs;
mod members;
mod metadata;
mod moved;
mod needed;
mod phases;
mod place;
mod quieted;
mod remake;
mod report;
mod roles;
mod space;
mod spill;
mod status;
mod stop;
mod superblocks;
mod sync;
mod update;
mod view;
mod work;
mod writes;

use crate::action::CommandId;
use crate::assemble::{Config, SpillConfig};
use crate::events::Fault;
use crate::format::DevRole;
use crate::format::superblock::feature;
use crate::grow::NewShape;
use crate::{Instant, MemberId};

use self::core::{Core, Out, Service};
use checkpoint::Checkpoints;
use command::Removal;
use failure::Failures;
use growing::Growing;
pub use invariants::Carried;
pub use joining::MADE_FAULTY;
use journal::AwaitedJournal;
use journal_device::JournalDevice;
pub use lane::{LaneCommand, LaneReport, Rules, Traffic, Tried};
use lengthening::Lengthening;
use logs::Resuming;
use members::{Member, Members};
use metadata::Metadata;
use phases::Begun;
use remake::Vacancies;
pub use space::{BLOCK_SECTORS, MOVED, Redundancy, Strips, SyncSpace, UNIT_SECTORS};
use spill::Spill;
use stop::Stop;
use sync::window::take_moved;
use sync::{Moving, Sync};
pub use update::{MetaWrite, PAGE_BYTES};
pub use view::KeeperView;
pub use work::{Done, Fix, Unit, Unread, Work};
use writes::Writes;

/// Idle time after which the superblocks say clean (md's `safe_mode_delay`).
pub const SAFE_MODE_MS: u64 = 200;

/// The state of one array without its user data: members, superblocks, event count, write-intent
/// bitmap, background work, commands under way, failure and stop. The keeper does no I/O and has no
/// clock. The keeper queues [`LaneCommand`]s; its lane carries these out in order, before anything
/// else, and reports. A lane changes the keeper by reports alone, and sees no more of it than its
/// [`view`](Self::view).
///
/// Order of calls by whoever owns it:
///
/// 1. [`new`](Self::new), then [`begin`](Self::begin) once, which queues the superblock updates
///    that are due before the first request. [`set_epoch`](Self::set_epoch) may come at any time.
/// 2. For each event [`at`](Self::at), then [`command`](Self::command) for an administrator's
///    command, [`hear`](Self::hear) for each report of the lane, in order; [`tick`](Self::tick)
///    when the [deadline](KeeperView::deadline) has passed.
/// 3. The lane [asks](KeeperView::admits) for each request, and reports that
///    [it came](LaneReport::RequestCame) and that [it is over](LaneReport::RequestOver). Around
///    each write to members it reports [`BeginWrite`](LaneReport::BeginWrite), with a number of its
///    own, and [`EndWrite`](LaneReport::EndWrite); the write [may
///    start](KeeperView::may_start) when the members know of it.
/// 4. After all of these [`drive_meta`](Self::drive_meta), [`drive_sync`](Self::drive_sync),
///    [`drive_removals`](Self::drive_removals) and [`drive_stop`](Self::drive_stop), and after each
///    of them [`next_command`](Self::next_command) until it returns `None`.
///
/// One turn of step 4, which repeats until nothing is queued: an update that is queued begins, and
/// for each one that is done the second update of a failure is queued (who failed is written with
/// two event counts, so that the lost member is stale by md's margin), the checkpoint advances, and
/// commands and writes that waited are answered; then background work advances, members that have
/// become quiet are removed, and the stop advances.
///
/// An array is served in full; or for reads only, when it is read-only or when it [cannot go on
/// changing](KeeperView::writes_over); or it has [failed](KeeperView::has_failed): more members are
/// gone than the level can do without. The end of an array is [stopped](KeeperView::has_stopped).
/// Once it is not served in full no metadata are written.
#[derive(Debug)]
pub struct Keeper {
    core: Core,
    checkpoints: Checkpoints,
    failures: Failures,
    writes: Writes,
    sync: Sync,
    stop: Stop,
    growing: Growing,
    lengthening: Lengthening,
    resuming: Resuming,
    removals: Vec<Removal>,
    awaited_journal: Option<Box<AwaitedJournal>>,
    vacancies: Vacancies,
    /// The members that are there hold what they are to hold, or are known not to.
    begun: bool,
    /// Commands done but for the superblocks.
    replies: Vec<(u64, CommandId)>,
    /// A note of a move that waits for an update.
    noted: Option<(u64, CommandId)>,
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
        let block_bytes = config.block_bytes.clamp(512, 4096);
        let mut metadata = Metadata::new(
            now,
            config.superblock,
            config.bitmap,
            block_bytes,
            space.as_ref(),
            rules.marks_ahead,
        );
        let service = Service {
            redundant: space.redundancy() != Redundancy::None,
            read_only: config.read_only,
            failed: false,
            writes_over: false,
            stopping: false,
            stopped: false,
            dispensable: false,
            growing: false,
        };
        let members = Members::new(config.members, usize::from(space.roles()));
        if rules.faulty_stay_out {
            let roles = (0..).zip(&metadata.superblock.roles);
            let made_faulty = roles.filter(|(_, role)| **role == DevRole::Faulty);
            metadata.made_faulty = made_faulty.map(|(number, _)| number).collect();
        }
        if metadata.superblock.has(feature::JOURNAL) {
            let tail = |(_, member): (_, &Member)| member.superblock.recovery_offset;
            metadata.journal = members.journal().map(tail).map(JournalDevice::new);
        }
        let out = Out::default();
        let spill = config.spill.map(|SpillConfig { device, sectors }| {
            Spill::new(MemberId(members.len() as u16), device, sectors)
        });
        let mut core = Core { now, space, rules, service, members, metadata, spill, out };
        let unclean = core.metadata.has_to_resync();
        if unclean {
            core.members.restart_replacements();
        }
        core.service.failed = !core.enough_without(&[]);
        if core.service.failed && !config.read_only {
            return Err("too many members are missing".into());
        }
        let mut sync = Sync::default();
        sync.unsynced.vouched = config.force && unclean && core.members.degraded() > 0;
        let mut keeper = Self {
            core,
            checkpoints: Checkpoints::new(now),
            failures: Failures::default(),
            writes: Writes::default(),
            sync,
            stop: Stop::default(),
            growing: Growing::default(),
            lengthening: Lengthening::default(),
            resuming: Resuming::default(),
            removals: Vec::new(),
            awaited_journal: None,
            vacancies: Vacancies::default(),
            begun: false,
            replies: Vec::new(),
            noted: None,
        };
        keeper.begin_moving();
        Ok(keeper)
    }

    /// Tells the time of day: microseconds since 1970 at `Instant(0)`.
    pub const fn set_epoch(&mut self, micros: u64) {
        self.core.metadata.epoch_micros = micros;
    }

    /// Later than before, or the same moment.
    pub fn at(&mut self, now: Instant) {
        self.core.now = self.core.now.max(now);
    }

    /// Queues the updates that superblocks and bitmap need before the first request.
    pub fn begin(&mut self) {
        self.begun = true;
        if self.core.service.metadata_frozen() {
            return;
        }
        if self.core.rules.faulty_stay_out {
            self.keep_out();
        }
        let Core { members, metadata, .. } = &mut self.core;
        // A member that is missing now must be stale when it comes back.
        let known = metadata.superblock.roles.iter();
        let active = known.filter(|role| matches!(role, DevRole::Active(_))).count();
        let here = members.iter().filter(|(_, m)| m.state.role().is_some()).count();
        if active != here {
            self.failures.ticket = metadata.queue_superblock(false);
        }
        let unnamed = |member: &Member| {
            let named = metadata.superblock.role_of(member.superblock.dev_number);
            member.state.role().is_some_and(|role| named != DevRole::Active(role))
        };
        if members.iter_live().any(|(_, member)| unnamed(member)) {
            // It was left behind, and is there again.
            metadata.queue_superblock(false);
        }
        if members.iter().any(|(_, m)| m.superblock.events < metadata.superblock.events) {
            metadata.queue_catch_up();
        }
        metadata.queue_whole_bitmap();
    }

    /// The next thing to do, if there is one.
    pub fn next_command(&mut self) -> Option<LaneCommand> {
        self.core.out.0.pop_front()
    }

    /// No superblock is written any more, and nothing changes.
    pub const fn freeze(&mut self) {
        self.core.service.writes_over = true;
    }

    /// Tells whether the array that this one is a member of goes on without it.
    pub const fn set_dispensable(&mut self, dispensable: bool) {
        self.core.service.dispensable = dispensable;
    }

    /// The array ends soon: from now on members that answer nothing are given up after a while.
    pub const fn lose_patience(&mut self, now: Instant) {
        self.stop.lose_patience(now);
    }

    /// Its members are arrays, which give up those who do not answer themselves.
    pub const fn set_over_arrays(&mut self) {
        self.stop.over_arrays = true;
    }

    /// Forgets the I/O in flight on a member that is gone: it is not waited for.
    pub fn nothing_asked(&mut self, id: MemberId) {
        if let Some(member) = self.core.members.get_mut(id) {
            member.in_flight = 0;
        }
    }

    /// An array that this one is part of is checked, and nothing of this one can be.
    pub(crate) fn skip_scrub(&mut self) {
        self.sync.scrub.skip(self.core.space.array_sectors());
    }

    /// The deadline passed: begins the next checkpoint, and gives up members that keep a stop
    /// waiting.
    pub fn tick(&mut self) {
        for id in self.stop.silent(&self.core) {
            self.fail_member(id, "does not answer", Fault::default());
        }
        if self.core.service.metadata_frozen() {
            return;
        }
        if self.checkpoints.due_at(&self.core).is_some_and(|at| at <= self.core.now) {
            self.checkpoints.begin(&mut self.core);
        }
    }

    /// Begins the next update when one is queued and none runs.
    pub fn drive_meta(&mut self) {
        self.give_up_journal();
        if self.awaited_journal.is_some() {
            let is_changeable = self.view().is_changeable();
            AwaitedJournal::take_due(&mut self.awaited_journal, &mut self.core, is_changeable);
        }
        loop {
            let lacks = self.sync.copying.as_ref().map(|copying| &copying.lacks);
            match self.core.begin_update(lacks) {
                Begun::Nothing => return,
                Begun::Dropped => return self.update_complete(),
                Begun::Running if !self.core.advance_update() => return,
                Begun::Running => self.update_complete(),
            }
        }
    }

    /// Takes note that a command of the running update is done, or that its member has failed.
    fn update_done(&mut self) {
        self.core.update_answered();
        if self.core.advance_update() {
            self.update_complete();
            self.drive_meta();
        }
    }

    /// Lets everything go on that waited for an update.
    fn update_complete(&mut self) {
        let core = &mut self.core;
        self.failures.repeat(&mut core.metadata);
        self.checkpoints.advance(core);
        let done = core.metadata.done;
        if let Some(intent) = &mut core.metadata.intent {
            intent.told(done);
        }
        self.writes.told(done);
        core.out.push(LaneCommand::Updated);
        self.replies.retain(|(ticket, id)| {
            if *ticket <= done {
                core.out.push(LaneCommand::Reply(*id, Ok(())));
            }
            *ticket > done
        });
        if let Some((_, id)) = self.noted.take_if(|(ticket, _)| *ticket <= done) {
            core.out.push(LaneCommand::Reply(id, core.took_note()));
        }
    }

    /// Starts, continues or ends background work.
    pub fn drive_sync(&mut self) {
        self.sync.drive(&mut self.core);
    }

    /// Begins to give the array another shape: one that was [planned](crate::grow::plan), with the
    /// space that belongs to it.
    pub fn grow(&mut self, id: CommandId, shape: NewShape, space: Box<dyn SyncSpace>) {
        match self.growing.begin(&mut self.core, id, shape, space) {
            Err(why) => self.core.out.push(LaneCommand::Reply(id, Err(why))),
            // What is paused would never come to where it can be turned.
            Ok(()) if self.sync.moving.is_some() => self.sync.pause(self.core.now, false),
            Ok(()) => {}
        }
    }

    /// Begins to use so many sectors of each member, with the space that belongs to it: the lane
    /// makes room for that.
    pub fn lengthen(&mut self, id: CommandId, size_sectors: u64, space: Box<dyn SyncSpace>) {
        if let Err(why) = self.lengthening.begin(&mut self.core, id, size_sectors, space) {
            self.core.out.push(LaneCommand::Reply(id, Err(why)));
        }
    }

    /// Growing: when nothing is in flight any more, the members are told.
    pub fn drive_growing(&mut self, traffic: Traffic<'_>) {
        let rested = self.growing.rests();
        self.growing.drive_turning(&mut self.core, &mut self.sync);
        let begins = self.growing.drive(&mut self.core, &mut self.checkpoints, traffic);
        if begins {
            self.begin_moving();
        }
        if let Some(moving) = &mut self.sync.moving {
            moving.turns = self.growing.is_about_to_turn();
        }
        if !rested && self.growing.rests() {
            self.sync.drive(&mut self.core);
        }
        if self.growing.may_conclude(&mut self.core, &self.sync, traffic.quiet)
            && take_moved(&mut self.sync)
        {
            self.growing.conclude(&mut self.core, &mut self.sync);
            self.core.spill.iter_mut().for_each(Spill::end);
        }
        self.lengthening.drive(&mut self.core, &mut self.checkpoints, traffic);
        self.resuming.drive(&mut self.core, &mut self.checkpoints, &self.sync, traffic);
    }

    /// Superblocks tell of a reshape: data are to move.
    fn begin_moving(&mut self) {
        self.sync.moving = Moving::of(&self.core.metadata.superblock);
        if let Some(moving) = &self.sync.moving {
            self.core.members.set_moved(moving.moved());
            self.core.space.set_front(moving.moved().front);
        }
    }

    /// Stopping: when nothing is in flight any more, the superblocks say clean.
    pub fn drive_stop(&mut self, traffic: Traffic<'_>) {
        let idle = traffic.quiet && self.sync.is_idle() && !self.view().holds_requests();
        if self.stop.is_ready(&self.core, idle) {
            self.stop.ticket = Some(self.checkpoints.begin(&mut self.core));
        }
        // A read may have come meanwhile.
        if traffic.quiet {
            self.stop.advance(&mut self.core);
        }
    }
}
