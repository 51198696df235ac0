//! Changes of an array's shape. Most leave every byte in its place: more of each member is used, a
//! mirror has more or fewer copies, or another level keeps the same data ("takeover" in md, after
//! `raid*_takeover` of the kernel's `raid0.c`, `raid1.c`, `raid5.c` and `raid10.c`). With more
//! members of a level with parity or of stripes, or fewer, another layout or other chunks all data
//! move, and may move back.
//! Pure: the command plans by the status that it is told, and the keeper by its own.

mod linear;
mod logs;
mod reshape;
mod size;
mod takeover;

pub use logs::suspended;

use std::borrow::Cow;

use crate::Role;
use crate::events::SyncAction;
use crate::format::reshaped::{Side, all_roles, is_backwards, shape_of_side};
use crate::format::superblock::feature;
use crate::format::{Superblock, Version};
use crate::geometry::{Geometry, Shape};
use crate::level::{Layout, Level};
use crate::refusal::{Invocation, Next, Refusal};
use crate::status::{ArrayState, MemberState, MemberStatus, SpillStatus, Status};

/// A change that is wished for: one thing of the array, and the rest as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Grow {
    /// So many sectors of each member are used; all that the smallest one has, without a number.
    Size(Option<u64>),
    /// So many members.
    RaidDisks(u32),
    /// Another level, by md's number.
    Level {
        /// md's number.
        level: i32,
        /// The layout may be one that the default of the new level is not.
        keep_layout: bool,
    },
    /// Another layout, by md's number.
    Layout(u32),
    /// Chunks of so many sectors.
    Chunk(u32),
    /// Back to the shape that data are being moved from.
    Undo,
}

/// The shape that an array is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewShape {
    /// Level.
    pub level: Level,
    /// Layout.
    pub layout: Layout,
    /// Number of roles.
    pub raid_disks: u32,
    /// Chunk; 0 for raid1.
    pub chunk_sectors: u32,
    /// Used part of each member.
    pub size_sectors: u64,
    /// The role that the holder of each role has then; without one it becomes a spare.
    pub roles: Vec<Option<Role>>,
    /// Sectors of data on the holder of each role, where the level uses all that each has; of
    /// stripes none where that is the same.
    pub own_sectors: Vec<u64>,
    /// Data move, to rows that begin so many sectors behind the old ones: from the end of the
    /// array on, or from its begin on where it is less than none. 0: all stay.
    pub offset_sectors: i64,
    /// Data move in place: so many sectors of the array are saved at a time before they are
    /// overwritten. 0: nothing is.
    pub saved_sectors: u64,
    /// Data move in place from the end of the array on.
    pub in_place_backwards: bool,
}

impl NewShape {
    /// The shape of the array that has this superblock: what a change does not mention stays.
    fn of(superblock: &Superblock, level: Level, layout: Layout) -> Self {
        Self {
            level,
            layout,
            raid_disks: superblock.raid_disks,
            chunk_sectors: superblock.chunk_sectors,
            size_sectors: superblock.size_sectors,
            roles: Role::all(superblock.raid_disks as u16).map(Some).collect(),
            own_sectors: Vec::new(),
            offset_sectors: 0,
            saved_sectors: 0,
            in_place_backwards: false,
        }
    }

    /// The same, where the superblock alone tells it: not of linear, and of raid0 where all members
    /// use as much.
    pub(crate) fn of_superblock(superblock: &Superblock) -> Option<Self> {
        let level = Level::from_md(superblock.level)?;
        let layout = Layout::decode(level, superblock.layout, superblock.raid_disks).ok()?;
        Some(Self::of(superblock, level, layout))
    }

    /// The mapping of this shape.
    ///
    /// # Errors
    /// The reason why there is no such array.
    pub fn geometry(&self) -> Result<Geometry, Refusal> {
        let shape = Shape {
            level: self.level,
            layout: self.layout,
            raid_disks: self.raid_disks,
            chunk_sectors: self.chunk_sectors,
            size_sectors: self.size_sectors,
            member_data_sectors: &self.own_sectors,
        };
        let geometry = match self.level {
            _ if self.moves() => Geometry::moving,
            Level::Raid0 if self.own_sectors.is_empty() => Geometry::even_stripes,
            _ => Geometry::new,
        };
        geometry(&shape).map_err(Refusal::from)
    }

    /// Returns whether spares have the roles that are new at once: nothing is on them yet.
    #[must_use]
    pub const fn takes_spares(&self) -> bool {
        self.moves() || matches!(self.level, Level::Linear)
    }

    /// Returns whether data move.
    #[must_use]
    pub const fn moves(&self) -> bool {
        self.offset_sectors != 0 || self.saved_sectors != 0
    }

    /// Returns whether data move from the end of the array on.
    #[must_use]
    pub const fn moves_backwards(&self) -> bool {
        self.offset_sectors > 0 || self.in_place_backwards
    }

    /// Returns how many roles nobody has at first.
    #[must_use]
    pub fn vacant(&self) -> usize {
        (self.raid_disks as usize).saturating_sub(self.roles.iter().flatten().count())
    }
}

/// Plans a change of the array that has this status.
///
/// # Errors
/// The reason why it cannot be, with the step that helps. Nothing is written by then.
pub fn plan(status: &Status, grow: Grow) -> Result<NewShape, Refusal> {
    if status.integrity.is_some() {
        return Err(has_checksums());
    }
    let now = shape_now(status)?;
    let level = now.level;
    let status = &*recovery_put_off(status, &now, grow);
    check_serves(status)?;
    if grow != Grow::Undo {
        logs::check(status, grow)?;
        check_idle(status)?;
    }
    let new = match grow {
        Grow::Size(sectors) => size::plan(status, now, sectors),
        Grow::RaidDisks(count) => other_members(status, now, count),
        Grow::Level { level, keep_layout } => takeover::plan(status, now, level, keep_layout),
        Grow::Layout(number) => reshape::layout(status, now, number),
        Grow::Chunk(sectors) => reshape::chunk(status, now, sectors),
        Grow::Undo => undo(status),
    }?;
    if grow != Grow::Undo {
        check_spares(status, level, &new)?;
        if spill(status).is_some() && new.saved_sectors == 0 {
            let reason = "nothing is overwritten that is yet to be moved";
            return refuse(reason, "leave --spill out");
        }
    }
    new.geometry()?;
    Ok(new)
}

/// The refusal of arrays with checksums, which lie behind data and belong to the place of each.
pub(crate) fn has_checksums() -> Refusal {
    let next = "leave its shape as it is";
    Refusal::new("its members have checksums, which cannot be moved yet", next)
}

/// The array as it is when a recovery waits for new members: those that are being rebuilt are
/// spares again, and have the roles that are new.
fn recovery_put_off<'a>(status: &'a Status, now: &NewShape, grow: Grow) -> Cow<'a, Status> {
    let gets_more = matches!(grow, Grow::RaidDisks(count) if count > now.raid_disks);
    let recovers = status.sync.action == SyncAction::Recovery && status.degraded > 0;
    if !gets_more || !recovers || now.level.parity_disks() == 0 {
        return Cow::Borrowed(status);
    }
    let mut put_off = status.clone();
    put_off.sync.action = SyncAction::Idle;
    let rebuilt = |member: &&mut MemberStatus| member.state == MemberState::Rebuilding;
    for member in put_off.members.iter_mut().filter(rebuilt) {
        (member.state, member.role) = (MemberState::Spare, None);
    }
    Cow::Owned(put_off)
}

/// Returns the members that have to leave before a change, in that order: the new level has no
/// place for what they hold.
#[must_use]
pub fn leaving(status: &Status, grow: Grow) -> Vec<&MemberStatus> {
    match grow {
        Grow::Level { level: 0, .. } => {
            shape_now(status).map_or_else(|_| Vec::new(), |now| takeover::leaving(status, &now))
        }
        _ => Vec::new(),
    }
}

/// The shape that the array has.
fn shape_now(status: &Status) -> Result<NewShape, Refusal> {
    let superblock = &status.superblock;
    let level = Level::from_md(superblock.level)
        .ok_or_else(|| Refusal::plain(format!("level {} is not one of md's", superblock.level)))?;
    let layout = Layout::decode(level, layout_number(status, level), superblock.raid_disks)
        .map_err(Refusal::from)?;
    let size_sectors = status.used_member_sectors;
    Ok(NewShape { size_sectors, ..NewShape::of(superblock, level, layout) })
}

/// The field counts for raid0 only where the feature bit says so.
fn layout_number(status: &Status, level: Level) -> u32 {
    let unset = level == Level::Raid0 && !status.superblock.has(feature::RAID0_LAYOUT);
    if unset { 0 } else { status.superblock.layout }
}

/// The device that what is moved in place may be saved to.
fn spill(status: &Status) -> Option<&SpillStatus> {
    status.spill.as_ref().filter(|spill| !spill.is_over)
}

/// Checks that the array takes changes at all.
fn check_serves(status: &Status) -> Result<(), Refusal> {
    if status.state == ArrayState::Failed {
        return refuse("the array has failed", "bring its members back, and assemble it again");
    }
    if status.state == ArrayState::ReadOnly {
        return refuse("the array is read-only", "assemble it without --readonly");
    }
    Ok(())
}

/// Checks that nothing else is going on in an array that takes changes.
///
/// # Errors
/// The reason why the array cannot change now.
pub fn check_idle(status: &Status) -> Result<(), Refusal> {
    if status.superblock.has(feature::RESHAPE_ACTIVE) {
        let next = Next::by("wait for it", Invocation::Watch { array: None });
        return refuse("a reshape is under way", next);
    }
    if status.sync.action != SyncAction::Idle || status.sync.next.is_some() {
        let next = Next::by("wait for it", Invocation::Watch { array: None });
        return refuse(format!("{} is under way", status.sync.action.name()), next);
    }
    if status.unsynced_sectors > 0 || status.held_up.is_some() {
        let next = Next::by("see what it waits for", Invocation::Status { array: None });
        return refuse("a part of the array waits to be brought in line", next);
    }
    if let Some(faulty) = status.members.iter().find(|member| member.state == MemberState::Faulty) {
        let device = faulty.device.clone();
        let next = Next::by("remove it first", Invocation::Remove { array: None, device });
        return refuse(format!("{} is faulty", faulty.device), next);
    }
    Ok(())
}

/// The shape that data are being moved from.
fn undo(status: &Status) -> Result<NewShape, Refusal> {
    let superblock = &status.superblock;
    if !superblock.has(feature::RESHAPE_ACTIVE) {
        return refuse("no reshape is under way", "there is nothing to undo");
    }
    if superblock.version == Version::V0_90 && superblock.reshape.delta_disks == 0 {
        // By these, data move on unless there are fewer members.
        let reason = "superblocks 0.90 cannot tell that data of as many members move back";
        return refuse(reason, "let it end, and change it back then");
    }
    let shape =
        |side| shape_of_side(superblock, side).and_then(|one| NewShape::of_superblock(&one));
    let none = || Refusal::plain("the shape of before is none");
    let old = shape(Side::Old).ok_or_else(none)?;
    let roles = Role::all(all_roles(superblock) as u16).map(Some).collect();
    let back = NewShape { roles, ..old };
    let by = i64::from(superblock.reshape.new_offset);
    if by != 0 {
        return Ok(NewShape { offset_sectors: -by, ..back });
    }
    let new = shape(Side::New).ok_or_else(none)?;
    let back = NewShape { in_place_backwards: !is_backwards(superblock), ..back };
    reshape::back_in_place(status, &new, back)
}

/// Checks that each role has a member that holds all of it.
///
/// # Errors
/// The number of members that are missing.
pub fn check_whole(status: &Status) -> Result<(), Refusal> {
    if status.degraded == 0 {
        return Ok(());
    }
    let missing = status.degraded;
    let are = if missing == 1 { "a member is" } else { "members are" };
    let of = status.superblock.raid_disks;
    let next = Next::by("add what is missing, and wait", Invocation::Watch { array: None });
    refuse(format!("{are} missing ({missing} of {of})"), next)
}

/// Checks that there are spares for the roles that are new. A level without redundancy has none:
/// they are added when it has changed.
fn check_spares(status: &Status, level: Level, new: &NewShape) -> Result<(), Refusal> {
    let spares = in_state(status, MemberState::Spare).count();
    // What is missing may go on missing, but data move only to members that are there.
    let missing = if new.moves() { 0 } else { usize::from(status.degraded) };
    let vacant = new.vacant().saturating_sub(missing);
    if vacant <= spares || level == Level::Raid0 && !new.moves() {
        return Ok(());
    }
    let roles =
        if vacant == 1 { "1 role is new".to_owned() } else { format!("{vacant} roles are new") };
    let have = match spares {
        0 => "there is no spare".to_owned(),
        1 => "there is 1 spare".to_owned(),
        more => format!("there are {more} spares"),
    };
    refuse(format!("{roles}, and {have}"), "name what is to be added with --add")
}

fn other_members(status: &Status, now: NewShape, count: u32) -> Result<NewShape, Refusal> {
    if count == now.raid_disks {
        return refuse(format!("it has {count} members already"), "name another number");
    }
    match now.level {
        Level::Raid1 => copies(status, now, count),
        Level::Raid0 => reshape::stripes(status, now, count),
        Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10 => {
            reshape::members(status, now, count)
        }
        Level::Linear => linear::plan(status, now, count),
    }
}

/// More copies of a mirror, or fewer.
fn copies(status: &Status, now: NewShape, count: u32) -> Result<NewShape, Refusal> {
    let held: Vec<Role> = {
        let members = status.members.iter().filter(|member| member.state == MemberState::InSync);
        let mut roles: Vec<Role> = members.filter_map(|member| member.role).collect();
        roles.sort_unstable();
        roles.dedup();
        roles
    };
    if count > now.raid_disks {
        check_whole(status)?;
        return Ok(NewShape { raid_disks: count, ..now });
    }
    if count == 0 {
        return refuse("a mirror has at least one member", "name another number");
    }
    if held.len() > count as usize {
        let have = held.len();
        return refuse(
            format!("{have} members hold the data, and {count} are to stay"),
            "say which one is to leave: braid fail it, then braid remove it",
        );
    }
    // Those that stay move together.
    let place = |role: Option<Role>| held.iter().position(|kept| Some(*kept) == role).map(Role::at);
    let roles = now.roles.iter().map(|role| place(*role)).collect();
    Ok(NewShape { raid_disks: count, roles, ..now })
}

fn in_state(status: &Status, state: MemberState) -> impl Iterator<Item = &MemberStatus> {
    status.members.iter().filter(move |member| member.state == state)
}

fn refuse<T>(reason: impl Into<String>, next: impl Into<Next>) -> Result<T, Refusal> {
    Err(Refusal::new(reason, next))
}
