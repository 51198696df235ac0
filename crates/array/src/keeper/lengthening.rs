//! All members become longer while the array is served, where the lane has to see to that:
//!
//! ```text
//! Rest ── command ──► Quieting: requests are held, those in flight end; a checkpoint: clean
//!                        │ quiet                                  │ a member failed, or time is up
//!                        ▼                                        ▼
//!                     Making: the lane lengthens members ──────► Ending: refused, nothing told
//!                        │ durable on all of them
//!                        ▼
//!                     Telling: bitmap, then superblocks ──► Ending
//! Ending ── no update is due any more ──► Rest
//! ```
//! What is new reads as zeroes on all members, which every code agrees with: it needs no resync.
//! Members are longer before any superblock tells of it. So a power cut at any moment leaves an
//! array of the old size on members with room to spare, or one of the new size. After the Making
//! the lane has to begin anew, whatever came of it: see [`LaneCommand::Lengthen`]. So a loss is
//! told in full before the command is answered: a member that missed one update alone is not stale.

use std::collections::BTreeSet;

use super::core::Core;
use super::growing::{intent_of, outline};
use super::quieted::{QUIET_MS, Quieted, quieted};
use super::{Checkpoints, LaneCommand, SyncSpace, Traffic};
use crate::action::CommandId;
use crate::events::ArrayEvent;
use crate::outline::Outline;
use crate::refusal::{Invocation, Next, Refusal};
use crate::{Instant, MemberId};

/// A size that was asked for.
#[derive(Debug)]
pub(super) struct NewSize {
    id: CommandId,
    /// Used part of each member.
    size_sectors: u64,
    space: Box<dyn SyncSpace>,
    /// End of the wait for requests in flight.
    until: Instant,
}

/// The stage of a change of the members' length.
#[derive(Debug, Default)]
pub(super) enum Lengthening {
    #[default]
    Rest,
    Quieting(Box<NewSize>),
    /// The lane lengthens these members.
    Making(Box<NewSize>, BTreeSet<MemberId>),
    /// Waits for an update.
    Telling {
        id: CommandId,
        from: Outline,
        ticket: u64,
    },
    /// Waits for updates of losses.
    Ending {
        id: CommandId,
        result: Result<(), Refusal>,
    },
}

impl Lengthening {
    /// Returns whether requests are to be held.
    pub(super) const fn holds_requests(&self) -> bool {
        !matches!(self, Self::Rest)
    }

    /// Returns the time at which requests have been held for long enough.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Quieting(new) => Some(new.until),
            _ => None,
        }
    }

    /// Begins to give the members another size.
    ///
    /// # Errors
    /// A refusal, where the bitmap has no room for it.
    pub(super) fn begin(
        &mut self,
        core: &mut Core,
        id: CommandId,
        size_sectors: u64,
        space: Box<dyn SyncSpace>,
    ) -> Result<(), Refusal> {
        intent_of(core, space.as_ref(), 0)?;
        let until = core.now.plus_millis(QUIET_MS);
        core.service.growing = true;
        *self = Self::Quieting(Box::new(NewSize { id, size_sectors, space, until }));
        Ok(())
    }

    /// Ends a change of which superblocks do not tell yet.
    pub(super) fn give_up(&mut self, core: &mut Core, why: Refusal) {
        match self {
            Self::Quieting(new) => {
                let id = new.id;
                self.end(core, id, Err(why));
            }
            Self::Making(new, _) => *self = Self::Ending { id: new.id, result: Err(why) },
            Self::Rest | Self::Telling { .. } | Self::Ending { .. } => {}
        }
    }

    fn end(&mut self, core: &mut Core, id: CommandId, result: Result<(), Refusal>) {
        *self = Self::Rest;
        core.service.growing = false;
        core.out.push(LaneCommand::Reply(id, result));
    }

    /// Goes on when nothing is in flight any more, and when the members know.
    pub(super) fn drive(
        &mut self,
        core: &mut Core,
        checkpoints: &mut Checkpoints,
        traffic: Traffic<'_>,
    ) {
        match self {
            Self::Quieting(new) => match quieted(core, checkpoints, traffic, new.until) {
                Quieted::NotYet => {}
                Quieted::Never(why) => self.give_up(core, why),
                Quieted::Yes => self.make(core),
            },
            Self::Telling { ticket, .. } if core.metadata.is_done(*ticket) => self.told(core),
            Self::Rest | Self::Making(..) | Self::Telling { .. } | Self::Ending { .. } => {}
        }
        if let Self::Ending { id, result } = self
            && core.metadata.is_idle()
        {
            let id = *id;
            let result = result.clone();
            self.end(core, id, result);
        }
    }

    /// Asks for the new length of all members.
    fn make(&mut self, core: &mut Core) {
        let Self::Quieting(new) = std::mem::take(self) else { return };
        let size = new.size_sectors;
        let mut waiting = BTreeSet::new();
        for (member, m) in core.members.iter_live() {
            let data_sectors = m.superblock.data_size.max(size);
            core.out.push(LaneCommand::Lengthen { member, data_sectors });
            waiting.insert(member);
        }
        *self = Self::Making(new, waiting);
        if crate::broken("longer-before-told") {
            self.tell(core);
        }
    }

    /// Takes note that a member is longer, or why it is not.
    pub(super) fn made(&mut self, core: &mut Core, id: MemberId, result: Result<(), Refusal>) {
        let Self::Making(_, waiting) = self else { return };
        waiting.remove(&id);
        let over = waiting.is_empty();
        match result {
            Ok(()) if over => self.tell(core),
            Ok(()) => {}
            Err(why) => {
                let device = core.members.get(id).map_or("", |member| &member.device);
                let why = Refusal::new(format!("{device}: {}", why.reason), why.next);
                self.give_up(core, why);
            }
        }
    }

    fn tell(&mut self, core: &mut Core) {
        let Self::Making(new, _) = self else { return };
        let intent = match intent_of(core, new.space.as_ref(), 0) {
            Ok(intent) => intent,
            Err(why) => return self.give_up(core, why),
        };
        let Self::Making(new, _) = std::mem::take(self) else { return };
        let NewSize { id, size_sectors, space, .. } = *new;
        let from = outline(core);
        core.space = space;
        let members: Vec<MemberId> = core.members.iter_live().map(|(id, _)| id).collect();
        for id in members {
            core.members.change(id, |member| {
                let superblock = &mut member.superblock;
                superblock.data_size = superblock.data_size.max(size_sectors);
            });
        }
        core.metadata.superblock.size_sectors = size_sectors;
        // Nothing waits for a resync, as all is durable everywhere.
        core.metadata.intent = intent.map(|intent| intent.cleared());
        core.metadata.queue_whole_bitmap();
        let ticket = core.metadata.queue_superblock(true);
        *self = Self::Telling { id, from, ticket };
    }

    fn told(&mut self, core: &mut Core) {
        let Self::Telling { id, from, .. } = std::mem::take(self) else { return };
        let result = if core.service.failed || core.service.writes_over {
            let next = Next::by("assemble it again", Invocation::Explain { devices: Vec::new() });
            Err(Refusal::new("the array failed while its members were told", next))
        } else {
            core.out.notify(ArrayEvent::ShapeChanged { from, to: outline(core) });
            Ok(())
        };
        *self = Self::Ending { id, result };
    }
}
