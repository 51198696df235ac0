//! Another shape of a level with parity in which all data lie elsewhere: they are moved towards the
//! begin of the members, or towards their end. Members may be missing, as many as the level makes
//! up for: both shapes have as many parities.

use super::{NewShape, refuse};
use crate::format::superblock::MAX_DEV;
use crate::level::{Layout, Level};
use crate::outline::bytes;
use crate::refusal::Refusal;
use crate::status::{MemberState, MemberStatus, Status};

/// The most that rows move by: superblocks are written the less often at the begin, and room is
/// left for the next time.
const MOST_SHIFT: u64 = 32_768;

const COPY: &str = "make a new array and copy the data";

/// More members, or fewer.
pub(super) fn members(status: &Status, now: NewShape, count: u32) -> Result<NewShape, Refusal> {
    check_version(status)?;
    if count > MAX_DEV {
        return refuse(format!("an array has {MAX_DEV} members at most"), "name fewer");
    }
    let unit = u64::from(now.chunk_sectors);
    if count < now.raid_disks {
        return fewer(status, now, count);
    }
    let shift = shift(head_room(status), unit)?;
    Ok(NewShape { raid_disks: count, offset_sectors: -shift, ..now })
}

/// Fewer members: those that leave become spares. Where nothing is free behind the data, a chunk of
/// each member gets free.
fn fewer(status: &Status, now: NewShape, count: u32) -> Result<NewShape, Refusal> {
    let unit = u64::from(now.chunk_sectors);
    let now = match tail_room(status, &now) {
        (room, ..) if room < unit => NewShape {
            size_sectors: (now.size_sectors + room).saturating_sub(unit) / unit * unit,
            ..now
        },
        _ => now,
    };
    let offset_sectors = shift(tail_room(status, &now), unit)?;
    Ok(NewShape { raid_disks: count, offset_sectors, ..now })
}

/// Another layout.
pub(super) fn layout(status: &Status, now: NewShape, number: u32) -> Result<NewShape, Refusal> {
    check_level(&now)?;
    check_version(status)?;
    let layout = Layout::decode(now.level, number, now.raid_disks).map_err(Refusal::from)?;
    if layout == now.layout {
        return refuse(format!("its layout is {} already", name(layout)), "name another one");
    }
    let unit = u64::from(now.chunk_sectors);
    let offset_sectors = either_way(status, &now, unit)?;
    Ok(NewShape { layout, offset_sectors, ..now })
}

/// Chunks of another size.
pub(super) fn chunk(status: &Status, now: NewShape, sectors: u32) -> Result<NewShape, Refusal> {
    check_level(&now)?;
    check_version(status)?;
    if sectors == now.chunk_sectors {
        let size = bytes(sectors.into());
        return refuse(format!("its chunks are of {size} already"), "name another size");
    }
    let wanted = NewShape { chunk_sectors: sectors, ..now.clone() };
    wanted.geometry()?;
    if !now.size_sectors.is_multiple_of(sectors.into()) {
        let size = bytes(now.size_sectors);
        let chunk = bytes(sectors.into());
        return refuse(
            format!("{size} of each member are no whole number of chunks of {chunk}"),
            "name a smaller one",
        );
    }
    let unit = u64::from(now.chunk_sectors.max(sectors));
    let offset_sectors = either_way(status, &now, unit)?;
    Ok(NewShape { offset_sectors, ..wanted })
}

fn name(layout: Layout) -> String {
    layout.name().unwrap_or_default()
}

fn check_level(now: &NewShape) -> Result<(), Refusal> {
    match now.level {
        Level::Raid4 | Level::Raid5 | Level::Raid6 => Ok(()),
        other => refuse(format!("the data of {other} cannot be laid out anew yet"), COPY),
    }
}

/// Checks that data may begin elsewhere: superblocks of some versions lie where those end.
fn check_version(status: &Status) -> Result<(), Refusal> {
    if status.superblock.version.is_behind_data() {
        return refuse("superblocks behind the data cannot tell that data begin elsewhere", COPY);
    }
    Ok(())
}

/// Room of one member: its sectors, its device, and where it is.
type LeastRoom<'a> = (u64, &'a str, &'static str);

/// The least room before the data.
fn head_room(status: &Status) -> LeastRoom<'_> {
    least(status, |member| member.head_sectors, "before its data")
}

/// The least room behind what is used of them.
fn tail_room<'a>(status: &'a Status, now: &NewShape) -> LeastRoom<'a> {
    let used = now.size_sectors;
    least(status, |member| member.data_sectors.saturating_sub(used), "behind its data")
}

fn least<'a>(
    status: &'a Status,
    room: impl Fn(&MemberStatus) -> u64,
    place: &'static str,
) -> LeastRoom<'a> {
    let members = status.members.iter().filter(|member| member.state != MemberState::Faulty);
    let least = members.min_by_key(|member| room(member));
    least.map_or((0, "", place), |member| (room(member), &*member.device, place))
}

/// Returns the distance by which rows of units of so many sectors move, where both shapes have as
/// much data in each row: forwards where there is room for that, otherwise backwards.
fn either_way(status: &Status, now: &NewShape, unit: u64) -> Result<i64, Refusal> {
    match shift(head_room(status), unit) {
        Ok(by) => Ok(-by),
        Err(why) => shift(tail_room(status, now), unit).or(Err(why)),
    }
}

/// Returns how far rows move where there is so much room. A half is left for the next time, where
/// that is enough.
fn shift((room, device, place): LeastRoom<'_>, unit: u64) -> Result<i64, Refusal> {
    let shift = (room / 2).clamp(unit, MOST_SHIFT.max(unit)) / unit * unit;
    if shift > room {
        let have = room / 2;
        let needed = unit / 2;
        let reason = format!(
            "{device} has {have} KiB {place} that are free, and {needed} KiB are needed to begin"
        );
        return refuse(reason, COPY);
    }
    Ok(shift as i64)
}
