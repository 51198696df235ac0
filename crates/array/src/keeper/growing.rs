//! The array gets another shape while it is served, in one update of its metadata:
//!
//! ```text
//! Rest ── command ──► Quieting: requests are held, those in flight end; a checkpoint: clean
//!                        │ quiet                                  │ a member failed, or time is up
//!                        ▼                                        ▼
//!                     Telling: bitmap, then superblocks        Rest: refused, nothing written
//!                        │ on all members
//!                        ▼
//!                     Rest: the lane takes the new shape, and the requests that were held
//! ```
//! Bytes stay where they are until this is over, also where data are to move then (`sync/moving`
//! does that, and its end is told in the same way). So a power cut in the middle of the update
//! leaves members that tell of the old shape and members that tell of the new one, and both are
//! true: nothing was written by the new one before all tell of it. Assembly goes by the newest, as
//! always.

use super::core::Core;
use super::intent::Intent;
use super::members::{Moved, State};
use super::{Checkpoints, LaneCommand, Redundancy, SyncSpace, Traffic};
use crate::action::CommandId;
use crate::events::ArrayEvent;
use crate::format::superblock::{Reshape, feature};
use crate::grow::NewShape;
use crate::outline::Outline;
use crate::refusal::{Invocation, Next, Refusal};
use crate::{Instant, MemberId, Role};

/// The longest time for which requests are held until those in flight have ended.
const QUIET_MS: u64 = 10_000;

/// A change that was asked for.
#[derive(Debug)]
pub(super) struct ShapeChange {
    id: CommandId,
    shape: NewShape,
    space: Box<dyn SyncSpace>,
    /// End of the wait.
    until: Instant,
}

/// The stage of a change of the shape.
#[derive(Debug, Default)]
pub(super) enum Growing {
    #[default]
    Rest,
    Quieting(Box<ShapeChange>),
    /// Waits for this update.
    Telling(Box<(Option<CommandId>, NewShape, Outline)>, u64),
}

impl Growing {
    /// Returns whether requests are to be held.
    pub(super) const fn holds_requests(&self) -> bool {
        !matches!(self, Self::Rest)
    }

    /// Returns the time at which requests have been held for long enough.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Quieting(change) => Some(change.until),
            _ => None,
        }
    }

    /// Begins a change that was planned.
    ///
    /// # Errors
    /// A refusal, where the bitmap has no room for it.
    pub(super) fn begin(
        &mut self,
        core: &mut Core,
        id: CommandId,
        shape: NewShape,
        space: Box<dyn SyncSpace>,
    ) -> Result<(), Refusal> {
        intent_of(core, space.as_ref())?;
        let until = core.now.plus_millis(QUIET_MS);
        core.service.growing = true;
        *self = Self::Quieting(Box::new(ShapeChange { id, shape, space, until }));
        Ok(())
    }

    /// Ends a change of which nothing is written yet.
    pub(super) fn give_up(&mut self, core: &mut Core, why: Refusal) {
        if let Self::Quieting(change) = self {
            core.out.push(LaneCommand::Reply(change.id, Err(why)));
            self.rest(core);
        }
    }

    fn rest(&mut self, core: &mut Core) {
        *self = Self::Rest;
        core.service.growing = false;
    }

    /// Goes on when nothing is in flight any more, and when the members know. Returns whether data
    /// are to move from now on.
    pub(super) fn drive(
        &mut self,
        core: &mut Core,
        checkpoints: &mut Checkpoints,
        traffic: Traffic<'_>,
    ) -> bool {
        match self {
            Self::Rest => {}
            Self::Quieting(_) if core.service.stopping => {
                self.give_up(core, Refusal::new("the array is being stopped", "start it again"));
            }
            Self::Quieting(change) if core.now >= change.until => {
                let why = late(core);
                self.give_up(core, why);
            }
            Self::Quieting(_) if waits(core, traffic) => {}
            Self::Quieting(_) if core.metadata.has_to_resync() => {
                let next = Next::by("see what it waits for", Invocation::Status { array: None });
                self.give_up(core, Refusal::new("a write found no room on a member", next));
            }
            Self::Quieting(_) if is_unclean(core) => {
                if checkpoints.rests() {
                    checkpoints.begin(core);
                }
            }
            Self::Quieting(_) => return self.tell(core),
            Self::Telling(_, ticket) if core.metadata.is_done(*ticket) => self.told(core),
            Self::Telling(..) => {}
        }
        false
    }

    /// Nothing is in flight, and the superblocks say clean. Returns whether data are to move.
    fn tell(&mut self, core: &mut Core) -> bool {
        let Self::Quieting(change) = std::mem::take(self) else { return false };
        let intent = match intent_of(core, change.space.as_ref()) {
            Ok(intent) => intent,
            Err(why) => {
                core.service.growing = false;
                core.out.push(LaneCommand::Reply(change.id, Err(why)));
                return false;
            }
        };
        let ShapeChange { id, shape, space, .. } = *change;
        let synced = core.space.sync_sectors();
        let was_redundant = core.service.redundant;
        let more = space.sync_sectors() > synced && was_redundant;
        let from = outline(core);
        core.space = space;
        core.service.redundant = core.space.redundancy() != Redundancy::None;
        take_roles(core, &shape);
        let superblock = &mut core.metadata.superblock;
        if shape.moves() {
            superblock.feature_map |= feature::RESHAPE_ACTIVE | feature::NEW_OFFSET;
            superblock.reshape = Reshape {
                new_level: shape.level.to_md(),
                position: 0,
                delta_disks: shape.raid_disks.cast_signed() - superblock.raid_disks.cast_signed(),
                new_layout: shape.layout.encode(),
                new_chunk_sectors: shape.chunk_sectors,
                new_offset: -i32::try_from(shape.shift_sectors).unwrap_or(i32::MAX),
            };
            core.metadata.position = 0;
        }
        superblock.level = shape.level.to_md();
        superblock.layout = shape.layout.encode();
        superblock.raid_disks = shape.raid_disks;
        superblock.chunk_sectors = shape.chunk_sectors;
        superblock.size_sectors = shape.size_sectors;
        superblock.feature_map &= !feature::RAID0_LAYOUT;
        if !was_redundant {
            // Nothing was in flight, and is durable when this update is done.
            core.metadata.clean.active = false;
        }
        if more {
            core.metadata.clean.resynced = synced;
            core.metadata.clean.durable_resynced = synced;
        }
        core.metadata.intent = intent;
        core.metadata.queue_whole_bitmap();
        let ticket = core.metadata.queue_superblock(true);
        let moves = shape.moves();
        *self = Self::Telling(Box::new((Some(id), shape, from)), ticket);
        moves
    }

    /// All data have moved, and the members know: the array is of the new shape alone.
    pub(super) fn conclude(&mut self, core: &mut Core, moved: Moved) {
        let mut from = outline(core);
        let added = core.metadata.superblock.reshape.delta_disks;
        from.raid_disks = from.raid_disks.saturating_add_signed(-added);
        core.service.growing = true;
        core.members.settle(moved);
        core.space.settle();
        let superblock = &mut core.metadata.superblock;
        superblock.feature_map &= !feature::RESHAPE;
        superblock.reshape = Reshape::default();
        core.metadata.position = 0;
        let shape = NewShape::of_superblock(superblock);
        let ticket = core.metadata.queue_superblock(true);
        let told = shape.map(|shape| Box::new((None, shape, from)));
        *self = told.map_or(Self::Rest, |told| Self::Telling(told, ticket));
    }

    fn told(&mut self, core: &mut Core) {
        let Self::Telling(told, _) = std::mem::take(self) else { return };
        let (id, shape, from) = *told;
        core.service.growing = false;
        let answer = if core.service.failed || core.service.writes_over {
            let next = Next::by("assemble it again", Invocation::Explain { devices: Vec::new() });
            Err(Refusal::new("the array failed while its members were told", next))
        } else {
            if !shape.moves() {
                core.out.notify(ArrayEvent::ShapeChanged { from, to: outline(core) });
            }
            Ok(())
        };
        core.out.push(LaneCommand::Grown(Box::new(shape)));
        if let Some(id) = id {
            core.out.push(LaneCommand::Reply(id, answer));
        }
    }
}

/// Spares have the roles that are new: they hold all that there is of it, which is nothing.
fn take_new_roles(core: &mut Core, from: usize) {
    let spares = core.members.iter().filter(|(_, member)| member.state == State::Spare);
    let spares: Vec<MemberId> = spares.map(|(id, _)| id).collect();
    let roles = from..core.members.roles().count();
    for (id, role) in spares.into_iter().zip(roles) {
        core.members.change(id, |member| {
            member.state = State::InSync { role: Role::at(role) };
            member.superblock.recovery_offset = 0;
            member.arriving = !crate::broken("reshape-start");
        });
    }
}

/// Returns whether anything is in flight yet.
fn waits(core: &Core, traffic: Traffic<'_>) -> bool {
    (!traffic.quiet || !core.metadata.is_idle()) && !crate::broken("grow-quiet")
}

/// Returns whether the members are to be told that the array is clean.
fn is_unclean(core: &Core) -> bool {
    core.service.redundant && core.metadata.clean.active && !crate::broken("grow-quiet")
}

fn outline(core: &Core) -> Outline {
    Outline::of(&core.metadata.superblock, core.space.array_sectors())
}

/// The holders of roles get those of the new shape.
fn take_roles(core: &mut Core, shape: &NewShape) {
    let size = shape.size_sectors;
    let states: Vec<(MemberId, State)> =
        core.members.iter().map(|(id, member)| (id, member.state)).collect();
    core.members.reshape(shape.raid_disks as usize);
    for (id, state) in states {
        let state = match state {
            State::InSync { role } => match shape.roles.get(role.index()) {
                Some(Some(role)) => State::InSync { role: *role },
                _ => State::Spare,
            },
            State::Faulty { .. } => State::Faulty { role: None },
            other => other,
        };
        core.members.change(id, |member| {
            if size > member.superblock.data_size {
                member.superblock.data_size = member.data_room();
            }
            member.state = state;
        });
    }
    if shape.moves() {
        take_new_roles(core, shape.roles.len());
    }
    core.members.index_roles();
}

/// The bitmap for another space: bits of what is new are set and ask for a resync. Members from
/// before are not brought in line by it any more.
fn intent_of(core: &Core, space: &dyn SyncSpace) -> Result<Option<Intent>, Refusal> {
    let Some(intent) = &core.metadata.intent else { return Ok(None) };
    let room = core.members.iter_live().filter_map(|(_, member)| member.superblock.bitmap_room());
    let room = room.min().unwrap_or(0);
    let Some(mut bitmap) = intent.bitmap.grown(space.sync_sectors(), room) else {
        return Err(Refusal::new(
            format!("the bitmap would need more than the {room} sectors there are for it"),
            "stop the array, take the bitmap away, and add it again once it has grown",
        ));
    };
    bitmap.superblock.events_cleared = core.metadata.superblock.events + 1;
    Ok(Some(intent.with(bitmap, core.space.sync_sectors())))
}

/// Says whom requests in flight wait for.
fn late(core: &Core) -> Refusal {
    let owing = core.members.owing().min_by_key(|(_, since)| *since);
    let device = owing.and_then(|(id, _)| core.members.get(id)).map(|member| &member.device);
    match device {
        Some(device) => Refusal::new(
            format!("{device} has not answered for 10 s"),
            Next::by("fail it first", Invocation::Fail { array: None, device: device.clone() }),
        ),
        None => Refusal::new("requests in flight did not end within 10 s", "try again"),
    }
}
