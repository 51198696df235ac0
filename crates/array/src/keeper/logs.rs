//! Logs against the write hole while the array gets another shape. They go off in the update that
//! begins the change, and come back when nothing of it is left to be done:
//!
//! ```text
//! Rest ── off, and nothing is under way ──► Quieting: requests are held, those in flight end
//!  ▲                                           │ quiet and clean      │ time is up, a stop
//!  │                                           ▼                      ▼
//!  │                                       Beginning: the lane     Waiting, a while
//!  │                                           │ empties all logs, durably
//!  │      members know                         ▼
//!  └─────────────────────────────────────── Telling: superblocks
//! ```
//! Superblocks keep that the logs are to come back, and where they are: see
//! [`suspended`](crate::format::suspended). So a stop, a kill or a power cut at any moment leaves
//! an array with logs, or one that goes on towards them. What a log has recorded before is of no
//! use from the first update on: no log counts again that was not emptied.
//!
//! A journal goes off when all that it records is in place. Its device is told of nothing
//! meanwhile. When the journal goes on, the superblock of its device says so before any other does:
//! members that tell of a journal start with one that is theirs. Where the device is not there, or
//! fails before members are told, the array goes on without a journal until it is assembled with
//! the device.

use super::core::Core;
use super::journal_device::JournalDevice;
use super::members::{Member, State};
use super::quieted::{QUIET_MS, Quieted, quieted};
use super::sync::Sync;
use super::update::UpdatePhase;
use super::{Checkpoints, LaneCommand, Traffic};
use crate::events::{ArrayEvent, Fault};
use crate::format::Superblock;
use crate::format::journal::least_sectors;
use crate::format::ppl::{self, PplArea};
use crate::format::superblock::feature;
use crate::format::suspended::{journal_number, resume_journal, suspend_journal};
use crate::refusal::Next;
use crate::units::UNIT_SECTORS;
use crate::{Instant, MemberId};

/// Until it is tried again where requests in flight did not end.
const AGAIN_MS: u64 = 60_000;

/// The stage of the return of logs that are off.
#[derive(Debug, Default)]
pub(super) enum Resuming {
    #[default]
    Rest,
    /// Until the end of the wait.
    Quieting(Instant),
    Beginning,
    /// Waits for this update.
    Telling(u64),
    /// Waits for another try.
    Waiting(Instant),
}

impl Resuming {
    /// Returns whether requests are to be held.
    pub(super) const fn holds_requests(&self) -> bool {
        !matches!(self, Self::Rest | Self::Waiting(_))
    }

    /// Returns the time at which something changes by itself.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Quieting(at) | Self::Waiting(at) => Some(*at),
            Self::Rest | Self::Beginning | Self::Telling(_) => None,
        }
    }

    /// Goes on when nothing is in flight any more, when the logs are empty, and when the members
    /// know.
    pub(super) fn drive(
        &mut self,
        core: &mut Core,
        checkpoints: &mut Checkpoints,
        sync: &Sync,
        traffic: Traffic<'_>,
    ) {
        let rests = match *self {
            Self::Rest => true,
            Self::Waiting(until) => until <= core.now,
            Self::Quieting(_) | Self::Beginning | Self::Telling(_) => false,
        };
        if rests {
            *self = Self::Rest;
        }
        // Nothing else may come that the array would be looked at for.
        if rests && is_due(core, sync) {
            core.service.growing = true;
            *self = Self::Quieting(core.now.plus_millis(QUIET_MS));
        }
        match *self {
            Self::Quieting(until) => match quieted(core, checkpoints, traffic, until) {
                Quieted::NotYet => {}
                Quieted::Never(_) => {
                    core.service.growing = false;
                    *self = Self::Waiting(core.now.plus_millis(AGAIN_MS));
                }
                Quieted::Yes => self.begin(core),
            },
            Self::Beginning if traffic.quiet => self.begun(core),
            Self::Telling(ticket) if core.metadata.is_done(ticket) => {
                core.service.growing = false;
                *self = Self::Rest;
            }
            Self::Rest | Self::Waiting(_) | Self::Beginning | Self::Telling(_) => {}
        }
    }

    /// Nothing is in flight.
    fn begin(&mut self, core: &mut Core) {
        if journal_number(&core.metadata.superblock).is_some() {
            core.metadata.journal = Some(JournalDevice::resumed());
        } else if crate::broken("logs-empty") {
            return self.tell(core);
        }
        core.out.push(LaneCommand::Record(true));
        *self = Self::Beginning;
    }

    /// All logs are empty; of a journal the superblocks say already that it is on.
    fn begun(&mut self, core: &mut Core) {
        if ppl::is_suspended(&core.metadata.superblock) {
            return self.tell(core);
        }
        if core.metadata.journal.is_none() {
            core.out.push(LaneCommand::Record(false));
        }
        core.service.growing = false;
        *self = Self::Rest;
    }

    /// All logs are empty.
    fn tell(&mut self, core: &mut Core) {
        change_all(core, ppl::resume);
        *self = Self::Telling(core.metadata.queue_superblock(true));
    }
}

/// Returns whether logs are off, and nothing is left of the change that they are off for. Where
/// they cannot come back any more, that is forgotten.
fn is_due(core: &mut Core, sync: &Sync) -> bool {
    let service = core.service;
    let is_open = service.redundant && !service.metadata_frozen() && !service.stopping;
    let rests = sync.is_idle() && sync.moving.is_none() && core.members.rebuilding().is_empty();
    let is_due = is_open && !service.growing && rests && !core.metadata.has_to_resync();
    if journal_number(&core.metadata.superblock).is_some() {
        return is_due && is_journal_due(core);
    }
    let is_due = is_due && ppl::is_suspended(&core.metadata.superblock);
    let has_room = |member: &Member| matches!(PplArea::kept(&member.superblock), Ok(Some(_)));
    if is_due && !core.members.iter_live().all(|(_, member)| has_room(member)) {
        change_all(core, |superblock| superblock.bitmap_offset_sectors = 0);
        return false;
    }
    is_due
}

/// Returns whether the device of the journal is there. One that is too small for the array as it is
/// now is none of its own any more.
fn is_journal_due(core: &mut Core) -> bool {
    let Some((id, member)) = core.members.journal() else { return false };
    let superblock = &core.metadata.superblock;
    let unit = superblock.chunk_sectors.clamp(8, UNIT_SECTORS);
    if member.superblock.data_size >= least_sectors(superblock.raid_disks, unit.into()) {
        return true;
    }
    change_all(core, |superblock| superblock.bitmap_offset_sectors = 0);
    core.members.set_state(id, State::Faulty { role: None });
    core.out.push(LaneCommand::GiveUp(id));
    let reason = "too small for the journal of the array as it is now".into();
    let next = Next::from("stop it, and give it a larger one: braid update");
    let fault = Fault::default();
    core.out.notify(ArrayEvent::MemberFailed { member: id, reason, fault, next });
    false
}

/// Logs go off, if there are any, in the update that is made next. Nothing is in flight.
pub(super) fn suspend(core: &mut Core) {
    if core.metadata.superblock.has(feature::ANY_PPL) {
        change_all(core, ppl::suspend);
    } else if core.metadata.superblock.has(feature::JOURNAL)
        && let Some((_, journal)) = core.members.journal()
    {
        let number = journal.superblock.dev_number;
        change_all(core, |superblock| suspend_journal(superblock, number));
        core.metadata.journal = None;
    } else {
        return;
    }
    core.out.push(LaneCommand::Record(false));
}

/// The first block of a journal that was off is durable: superblocks tell of it from now on.
pub(super) fn journal_goes_on(core: &mut Core) {
    if !core.metadata.has_journal() || journal_number(&core.metadata.superblock).is_none() {
        return;
    }
    change_all(core, resume_journal);
    if let Some((id, _)) = core.members.journal() {
        core.members.change(id, |member| member.arriving = true);
    }
}

/// Returns whether the array goes on without the journal whose device has failed: it is off, or no
/// member may have heard that it is on again.
pub(super) fn goes_without(core: &mut Core, id: MemberId) -> bool {
    let Some(journal) = &core.metadata.journal else { return true };
    let phase = core.metadata.running.as_ref().map(|running| running.phase);
    let is_told = core.metadata.has_journal() && phase == Some(UpdatePhase::Superblocks);
    if !journal.resumes() || is_told {
        return false;
    }
    if let Some(number) = core.members.get(id).map(|member| member.superblock.dev_number) {
        change_all(core, |superblock| suspend_journal(superblock, number));
    }
    core.metadata.journal = None;
    true
}

fn change_all(core: &mut Core, change: impl Fn(&mut Superblock)) {
    change(&mut core.metadata.superblock);
    let members: Vec<MemberId> = core.members.iter().map(|(id, _)| id).collect();
    for id in members {
        core.members.change(id, |member| change(&mut member.superblock));
    }
}
