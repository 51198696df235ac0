//! The array gets another shape while it is served, in one update of its metadata:
//!
//! ```text
//! Rest ── command ──► (Turning: a reshape comes to where it can be turned round)
//!                        │
//!                        ▼
//!                     Quieting: requests are held, those in flight end; a checkpoint: clean
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
use super::logs;
use super::members::{Member, State};
use super::quieted::{QUIET_MS, Quieted, quieted};
use super::sync::window::has_moved;
use super::sync::{Moving, Sync};
use super::{Checkpoints, LaneCommand, Redundancy, SyncSpace, Traffic};
use crate::action::CommandId;
use crate::events::ArrayEvent;
use crate::format::Superblock;
use crate::format::reshaped::{Side, shape_of_side, turn};
use crate::format::superblock::{Reshape, feature};
use crate::grow::NewShape;
use crate::level::Level;
use crate::outline::Outline;
use crate::refusal::{Invocation, Next, Refusal};
use crate::{Instant, MemberId, Role};

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
    Turning(Box<ShapeChange>),
    Quieting(Box<ShapeChange>),
    /// All data have moved. Superblocks do not tell of requests to stripes without redundancy: none
    /// is to be in flight.
    Ending,
    /// Waits for this update.
    Telling(Box<(Option<CommandId>, NewShape, Outline)>, u64),
}

impl Growing {
    /// Returns whether requests are to be held.
    pub(super) const fn holds_requests(&self) -> bool {
        !matches!(self, Self::Rest | Self::Turning(_))
    }

    pub(super) const fn rests(&self) -> bool {
        matches!(self, Self::Rest)
    }

    /// Returns whether all data have moved, and the members are told of that: the array has not yet
    /// the size that it then has.
    pub(super) fn is_concluding(&self) -> bool {
        match self {
            Self::Ending => true,
            Self::Telling(told, _) => told.0.is_none(),
            Self::Rest | Self::Turning(_) | Self::Quieting(_) => false,
        }
    }

    /// Returns whether a reshape is to stop where it can be turned round.
    pub(super) const fn is_about_to_turn(&self) -> bool {
        matches!(self, Self::Turning(_) | Self::Quieting(_))
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
        intent_of(core, space.as_ref(), shape.offset_sectors)?;
        let change = Box::new(ShapeChange { id, shape, space, until: core.now });
        if core.metadata.superblock.has(feature::RESHAPE_ACTIVE) {
            *self = Self::Turning(change);
        } else if change.shape.moves() && !core.members.rebuilding().is_empty() {
            core.service.growing = true;
            *self = Self::Turning(change);
        } else {
            self.quiet(core, change);
        }
        Ok(())
    }

    fn quiet(&mut self, core: &mut Core, mut change: Box<ShapeChange>) {
        change.until = core.now.plus_millis(QUIET_MS);
        core.service.growing = true;
        *self = Self::Quieting(change);
    }

    /// A reshape that is to be turned round goes on to where it can be. A recovery is put off:
    /// those that were rebuilt are spares.
    pub(super) fn drive_turning(&mut self, core: &mut Core, sync: &mut Sync) {
        let rests = sync.is_idle();
        if matches!(self, Self::Turning(_)) && core.service.growing {
            sync.put_off(core);
            if rests && let Self::Turning(change) = std::mem::take(self) {
                self.quiet(core, change);
            }
            return;
        }
        match &sync.moving {
            _ if !matches!(self, Self::Turning(_)) => {}
            None => self.give_up(core, too_late()),
            Some(moving) if rests && moving.can_turn() => {
                if let Self::Turning(change) = std::mem::take(self) {
                    self.quiet(core, change);
                }
            }
            Some(Moving { waits: Some(why), .. }) => {
                let next = Next::by("see what it waits for", Invocation::Status { array: None });
                self.give_up(core, Refusal::new(format!("the reshape waits: {why}"), next));
            }
            Some(_) => {}
        }
    }

    /// Ends a change of which nothing is written yet.
    pub(super) fn give_up(&mut self, core: &mut Core, why: Refusal) {
        if let Self::Quieting(change) | Self::Turning(change) = self {
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
            Self::Turning(_) if core.service.stopping => {
                self.give_up(core, Refusal::new("the array is being stopped", "start it again"));
            }
            Self::Rest | Self::Turning(_) | Self::Ending => {}
            Self::Quieting(change) => {
                let until = change.until;
                match quieted(core, checkpoints, traffic, until) {
                    Quieted::NotYet => {}
                    Quieted::Never(why) => self.give_up(core, why),
                    // Of stripes all is used that superblocks say there is, as soon as any says
                    // stripes.
                    Quieted::Yes if change.shape.level == Level::Raid0 && trim(core, change) => {}
                    Quieted::Yes => return self.tell(core),
                }
            }
            Self::Telling(_, ticket) if core.metadata.is_done(*ticket) => self.told(core),
            Self::Telling(..) => {}
        }
        false
    }

    /// Nothing is in flight, and the superblocks say clean. Returns whether data are to move.
    fn tell(&mut self, core: &mut Core) -> bool {
        let Self::Quieting(change) = std::mem::take(self) else { return false };
        let by = change.shape.offset_sectors;
        let intent = match intent_of(core, change.space.as_ref(), by) {
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
        logs::suspend(core);
        core.space = space;
        // Without redundancy no superblock is written, but that which says so.
        core.service.redundant = true;
        if core.metadata.superblock.has(feature::RESHAPE_ACTIVE) {
            core.members.settle(core.metadata.superblock.reshape.new_offset.into());
            turn(&mut core.metadata.superblock);
        } else {
            take_roles(core, &shape);
            take_shape(core, &shape);
        }
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

    /// Returns whether the members may be told that all data have moved.
    pub(super) fn may_conclude(&mut self, core: &mut Core, sync: &Sync, quiet: bool) -> bool {
        if core.metadata.superblock.level != Level::Raid0.to_md() || !has_moved(sync) {
            return !self.holds_requests();
        }
        if matches!(self, Self::Rest | Self::Turning(_)) {
            self.give_up(core, too_late());
            core.service.growing = true;
            *self = Self::Ending;
        }
        matches!(self, Self::Ending) && quiet && core.metadata.is_idle()
    }

    /// All data have moved, and the members know: the array is of the new shape alone. Copies of
    /// what is new are to be brought in line.
    pub(super) fn conclude(&mut self, core: &mut Core, sync: &mut Sync) {
        self.give_up(core, too_late());
        let mut from = outline(core);
        let reshape = core.metadata.superblock.reshape;
        from.raid_disks = from.raid_disks.saturating_add_signed(-reshape.delta_disks);
        core.service.growing = true;
        core.members.settle(reshape.new_offset.into());
        if core.metadata.superblock.level == Level::Raid0.to_md() {
            end_of_stripes(core, sync);
        }
        let synced = core.space.sync_sectors();
        core.space.settle();
        sync.unsynced.extend(core, synced);
        let superblock = &mut core.metadata.superblock;
        if let Some(new) = shape_of_side(superblock, Side::New) {
            superblock.layout = new.layout;
            superblock.chunk_sectors = new.chunk_sectors;
        }
        superblock.feature_map &= !feature::RESHAPE;
        superblock.reshape = Reshape::default();
        let shape = NewShape::of_superblock(superblock);
        core.metadata.position = 0;
        if let Some(shape) = &shape {
            take_roles(core, shape);
        }
        let ticket = core.metadata.queue_superblock(true);
        let told = shape.map(|shape| Box::new((None, shape, from)));
        *self = told.map_or(Self::Rest, |told| Self::Telling(told, ticket));
    }

    fn told(&mut self, core: &mut Core) {
        let Self::Telling(told, _) = std::mem::take(self) else { return };
        let (id, shape, from) = *told;
        core.service.growing = false;
        core.service.redundant = core.space.redundancy() != Redundancy::None;
        if shape.level == Level::Raid0 {
            have_left(core);
        }
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
        if let Some(moving) = Moving::of(&core.metadata.superblock) {
            let (front, end) = moving.span();
            core.out.push(LaneCommand::Window { front, end, saved_to: None });
        }
        if let Some(id) = id {
            core.out.push(LaneCommand::Reply(id, answer));
        }
    }
}

/// Has superblocks say that members have what is used: stripes use all that there is. Nothing is in
/// flight, and all is durable when members have heard that data have moved. A write that failed
/// meanwhile left no copies that differ.
fn end_of_stripes(core: &mut Core, sync: &mut Sync) {
    let size = core.metadata.superblock.size_sectors;
    let members: Vec<MemberId> = core.members.iter().map(|(id, _)| id).collect();
    for id in members {
        core.members.change(id, |member| member.superblock.data_size = size);
    }
    core.metadata.clean.active = false;
    sync.unsynced.all_resynced(core);
}

/// The superblock tells of the new shape, or of the move there.
fn take_shape(core: &mut Core, shape: &NewShape) {
    let superblock = &mut core.metadata.superblock;
    let delta_disks = shape.raid_disks.cast_signed() - superblock.raid_disks.cast_signed();
    superblock.raid_disks = shape.raid_disks;
    superblock.size_sectors = shape.size_sectors;
    if !shape.moves() {
        superblock.level = shape.level.to_md();
        superblock.layout = shape.layout.encode();
        superblock.chunk_sectors = shape.chunk_sectors;
        superblock.feature_map &= !feature::RAID0_LAYOUT;
        return;
    }
    if shape.level == Level::Raid0 {
        superblock.layout = shape.layout.encode();
        superblock.feature_map &= !feature::RAID0_LAYOUT;
    }
    let backwards = shape.moves_backwards();
    let position = if backwards { core.space.array_sectors() } else { 0 };
    superblock.feature_map |= feature::RESHAPE_ACTIVE;
    if shape.offset_sectors != 0 {
        superblock.feature_map |= feature::NEW_OFFSET;
    }
    if backwards && delta_disks == 0 {
        superblock.feature_map |= feature::RESHAPE_BACKWARDS;
    }
    superblock.reshape = Reshape {
        new_level: shape.level.to_md(),
        position,
        delta_disks,
        new_layout: shape.layout.encode(),
        new_chunk_sectors: shape.chunk_sectors,
        new_offset: shape.offset_sectors as i32,
    };
    core.metadata.position = position;
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

/// Those that have left stripes without redundancy are at hand, as what is added to them: no
/// superblock tells of that.
fn have_left(core: &mut Core) {
    let left = |(_, member): &(MemberId, &Member)| member.state == State::Faulty { role: None };
    let left: Vec<MemberId> = core.members.iter().filter(left).map(|(id, _)| id).collect();
    left.into_iter().for_each(|id| core.members.set_state(id, State::Spare));
}

/// Has superblocks say that members have no more for data than is used. Returns whether that is to
/// be written.
fn trim(core: &mut Core, change: &ShapeChange) -> bool {
    let size = change.shape.size_sectors;
    let larger = |member: &Member| member.superblock.data_size > size;
    let larger = core.members.iter_live().filter(|(_, member)| larger(member));
    let larger: Vec<MemberId> = larger.map(|(id, _)| id).collect();
    for id in &larger {
        core.members.change(*id, |member| member.superblock.data_size = size);
    }
    if !larger.is_empty() {
        core.metadata.queue_superblock(true);
    }
    !larger.is_empty()
}

fn too_late() -> Refusal {
    let next = Next::by("see the shape that it has", Invocation::Status { array: None });
    Refusal::new("all data have moved: there is nothing to undo any more", next)
}

pub(super) fn outline(core: &Core) -> Outline {
    Outline::of(&core.metadata.superblock, core.space.array_sectors())
}

/// The holders of roles get those of the new shape.
fn take_roles(core: &mut Core, shape: &NewShape) {
    let size = shape.size_sectors + shape.offset_sectors.max(0).unsigned_abs();
    let states: Vec<(MemberId, State)> =
        core.members.iter().map(|(id, member)| (id, member.state)).collect();
    // Stripes without redundancy have no place for a spare, and md does not start with one: members
    // that leave are not told that they do, and are stale from then on.
    let left = match shape.level {
        Level::Raid0 => State::Faulty { role: None },
        _ => State::Spare,
    };
    core.members.reshape(usize::from(core.space.roles()));
    for (id, state) in states {
        let state = match state {
            State::InSync { role } => match shape.roles.get(role.index()) {
                Some(Some(role)) => State::InSync { role: *role },
                _ => left,
            },
            State::Rebuilding { role, .. } if role.index() >= shape.roles.len() => State::Spare,
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
    if shape.takes_spares() {
        take_new_roles(core, shape.roles.len());
    }
    core.members.index_roles();
}

/// The bitmap for another space, where data begin so many sectors behind where they begin now: bits
/// of what is new are set and ask for a resync. Members from before are not brought in line by it
/// any more.
pub(super) fn intent_of(
    core: &Core,
    space: &dyn SyncSpace,
    by: i64,
) -> Result<Option<Intent>, Refusal> {
    let Some(intent) = &core.metadata.intent else { return Ok(None) };
    if space.redundancy() == Redundancy::None {
        return Ok(None);
    }
    let room = |superblock: &Superblock| {
        let data = superblock.data_offset.saturating_add_signed(by.min(0));
        let before = data.saturating_sub(superblock.bitmap_sector()?);
        let room = superblock.bitmap_room()?;
        Some(if superblock.version.is_behind_data() { room } else { room.min(before) })
    };
    let room = core.members.iter_live().filter_map(|(_, member)| room(&member.superblock));
    let room = room.min().unwrap_or(0);
    let Some(mut bitmap) = intent.bitmap.grown(space.marked_sectors(), room) else {
        return Err(Refusal::new(
            format!("the bitmap would need more than the {room} sectors there are for it"),
            "stop the array, take the bitmap away, and add it again once it has grown",
        ));
    };
    bitmap.superblock.events_cleared = core.metadata.superblock.events + 1;
    Ok(Some(intent.with(bitmap, core.space.sync_sectors())))
}
