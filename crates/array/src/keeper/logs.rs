//! Partial parity logs while the array gets another shape. They go off in the update that begins
//! the change, and come back when nothing of it is left to be done:
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
//! [`is_suspended`](crate::format::ppl::is_suspended). So a stop, a kill or a power cut at any
//! moment leaves an array with logs, or one that goes on towards them. What a log has recorded
//! before is of no use from the first update on: no log counts again that was not emptied.

use super::core::Core;
use super::members::Member;
use super::quieted::{QUIET_MS, Quieted, quieted};
use super::sync::Sync;
use super::{Checkpoints, LaneCommand, Traffic};
use crate::format::Superblock;
use crate::format::ppl::{self, PplArea};
use crate::format::superblock::feature;
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
                Quieted::Yes if crate::broken("logs-empty") => self.tell(core),
                Quieted::Yes => {
                    core.out.push(LaneCommand::PartialParityLogs(true));
                    *self = Self::Beginning;
                }
            },
            Self::Beginning if traffic.quiet => self.tell(core),
            Self::Telling(ticket) if core.metadata.is_done(ticket) => {
                core.service.growing = false;
                *self = Self::Rest;
            }
            Self::Rest | Self::Waiting(_) | Self::Beginning | Self::Telling(_) => {}
        }
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
    let is_due = ppl::is_suspended(&core.metadata.superblock)
        && is_open
        && !service.growing
        && rests
        && !core.metadata.has_to_resync();
    let has_room = |member: &Member| matches!(PplArea::kept(&member.superblock), Ok(Some(_)));
    if is_due && !core.members.iter_live().all(|(_, member)| has_room(member)) {
        change_all(core, |superblock| superblock.bitmap_offset_sectors = 0);
        return false;
    }
    is_due
}

/// Logs go off, if there are any, in the update that is made next. Nothing is in flight.
pub(super) fn suspend(core: &mut Core) {
    if core.metadata.superblock.has(feature::ANY_PPL) {
        change_all(core, ppl::suspend);
        core.out.push(LaneCommand::PartialParityLogs(false));
    }
}

fn change_all(core: &mut Core, change: fn(&mut Superblock)) {
    change(&mut core.metadata.superblock);
    let members: Vec<MemberId> = core.members.iter().map(|(id, _)| id).collect();
    for id in members {
        core.members.change(id, |member| change(&mut member.superblock));
    }
}
