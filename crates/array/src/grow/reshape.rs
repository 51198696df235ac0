//! Another shape of a level with parity or copies in which all data lie elsewhere: they are moved
//! towards the begin of the members, or towards their end. Members may be missing where parity
//! makes up for them: both shapes have as much of that. What is refused of raid10 is what
//! `raid10_check_reshape` of the kernel's `raid10.c` refuses.

use super::takeover::even;
use super::{NewShape, check_whole, in_state, refuse, spill};
use crate::format::backup::{HEADER_SECTORS, saved_at_a_time};
use crate::geometry::RowOrder;
use crate::level::{Layout, Level};
use crate::outline::bytes;
use crate::refusal::{Invocation, Next, Refusal};
use crate::status::{MemberState, MemberStatus, Status};

/// The most that rows move by: superblocks are written the less often at the begin, and room is
/// left for the next time.
const MOST_SHIFT: u64 = 32_768;

const SECTORS_PER_MIB: u64 = 2048;

const COPY: &str = "make a new array and copy the data";

/// More members, or fewer.
pub(super) fn members(status: &Status, now: NewShape, count: u32) -> Result<NewShape, Refusal> {
    check_level(&now)?;
    check_copies_are_whole(status, &now)?;
    let most = status.superblock.version.most_devices();
    if count > most {
        return refuse(format!("an array has {most} members at most"), "name fewer");
    }
    if count < now.raid_disks {
        return fewer(status, now, count);
    }
    let new = NewShape { raid_disks: count, ..now.clone() };
    let forwards = |unit| shift(head_room(status), unit).map(|by| -by);
    placed(status, &now, new, forwards)
}

/// More members for stripes without redundancy: they have no place for anything else.
pub(super) fn stripes(status: &Status, now: NewShape, count: u32) -> Result<NewShape, Refusal> {
    if count < now.raid_disks {
        return refuse(format!("{} members cannot become {count} yet", now.raid_disks), COPY);
    }
    let now = even(status, now, Level::Raid4)?;
    let new = members(status, now, count)?;
    let spares = || in_state(status, MemberState::Spare);
    if let Some(small) = spares().find(|spare| spare.data_sectors < new.size_sectors) {
        let needed = bytes(new.size_sectors);
        let reason = format!("{} has less than the {needed} that are used of each", small.device);
        return refuse(reason, "name a larger device");
    }
    if let Some(left) = spares().nth(new.vacant()) {
        let device = left.device.clone();
        let next = Next::by("remove it", Invocation::Remove { array: None, device });
        return refuse(format!("{} would be a spare, which raid0 has not", left.device), next);
    }
    Ok(new)
}

/// Fewer members: those that leave become spares. Where nothing is free behind the data, as many
/// chunks of each member as it takes get free.
fn fewer(status: &Status, now: NewShape, count: u32) -> Result<NewShape, Refusal> {
    let new = NewShape { raid_disks: count, ..now.clone() };
    if let Err(why) = check_offsets(status) {
        return in_place(status, &now, NewShape { in_place_backwards: true, ..new }, why);
    }
    let unit = least_shift(&now, &new)?;
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
    check_copies_are_whole(status, &now)?;
    let layout = Layout::decode(now.level, number, now.raid_disks).map_err(Refusal::from)?;
    if layout == now.layout {
        return refuse(format!("its layout is {} already", name(layout)), "name another one");
    }
    let new = NewShape { layout, ..now.clone() };
    check_level(&new)?;
    check_copies(&now, &new)?;
    placed(status, &now, new, |unit| either_way(status, &now, unit))
}

/// Chunks of another size.
pub(super) fn chunk(status: &Status, now: NewShape, sectors: u32) -> Result<NewShape, Refusal> {
    check_level(&now)?;
    check_copies_are_whole(status, &now)?;
    if sectors == now.chunk_sectors {
        let size = bytes(sectors.into());
        return refuse(format!("its chunks are of {size} already"), "name another size");
    }
    let wanted = NewShape { chunk_sectors: sectors, ..now.clone() };
    wanted.geometry()?;
    check_copies(&now, &wanted)?;
    if now.level != Level::Raid10 && !now.size_sectors.is_multiple_of(sectors.into()) {
        let size = bytes(now.size_sectors);
        let chunk = bytes(sectors.into());
        return refuse(
            format!("{size} of each member are no whole number of chunks of {chunk}"),
            "name a smaller one",
        );
    }
    placed(status, &now, wanted, |unit| either_way(status, &now, unit))
}

fn name(layout: Layout) -> String {
    layout.name().unwrap_or_default()
}

fn check_level(shape: &NewShape) -> Result<(), Refusal> {
    match (shape.level, shape.layout) {
        (Level::Raid4 | Level::Raid5 | Level::Raid6, _) => Ok(()),
        (Level::Raid0, _) if shape.size_sectors > 0 => Ok(()),
        (_, Layout::Raid10(layout)) if layout.can_move() => Ok(()),
        (_, Layout::Raid10(_)) => refuse(
            format!(
                "no data move from or to {}: far copies lie behind all others",
                name(shape.layout)
            ),
            "make a new array and copy the data; near and offset layouts can change",
        ),
        (other, _) => refuse(format!("the data of {other} cannot be laid out anew yet"), COPY),
    }
}

/// Checks that data may begin elsewhere: superblocks of some versions lie where those end.
fn check_offsets(status: &Status) -> Result<(), Refusal> {
    if status.superblock.version.is_behind_data() {
        return refuse("superblocks behind the data cannot tell that data begin elsewhere", COPY);
    }
    Ok(())
}

/// Checks that all members are there, where copies are to move.
fn check_copies_are_whole(status: &Status, now: &NewShape) -> Result<(), Refusal> {
    if now.level == Level::Raid10 { check_whole(status) } else { Ok(()) }
}

/// Returns the new shape where it is to lie: apart from the old one by a distance that `shift`
/// gives, where there is room for that, otherwise in place.
fn placed(
    status: &Status,
    now: &NewShape,
    new: NewShape,
    shift: impl Fn(u64) -> Result<i64, Refusal>,
) -> Result<NewShape, Refusal> {
    let unit = least_shift(now, &new)?;
    match check_offsets(status).and_then(|()| shift(unit)) {
        Ok(offset_sectors) => Ok(NewShape { offset_sectors, ..new }),
        Err(why) => in_place(status, now, new, why),
    }
}

/// Returns the new shape where it lies upon the old one. A device beside the members takes what is
/// about to be overwritten; without one it is refused as it would be otherwise, with that advice.
fn in_place(
    status: &Status,
    now: &NewShape,
    new: NewShape,
    why: Refusal,
) -> Result<NewShape, Refusal> {
    let superblock = &status.superblock;
    let stripes = superblock.level == Level::Raid0.to_md();
    if now.level.parity_disks() == 0 || stripes {
        return Err(why);
    }
    let Saved { unit, array } = Saved::of(now, &new)?;
    let old = now.geometry()?.data_disks();
    let to = new.geometry()?.data_disks();
    // From there on stripes lie upon what has moved; with fewer members up to there.
    let units = old.min(to).checked_div(old.abs_diff(to));
    let critical = units.map_or(0, |units| u64::from(units + 1) * unit);
    if array < critical.max(unit) {
        return Err(why);
    }
    saving(status, Saved { unit, array }, new, why)
}

/// The way back of a move in place.
pub(super) fn back_in_place(
    status: &Status,
    now: &NewShape,
    back: NewShape,
) -> Result<NewShape, Refusal> {
    let reason = "nothing takes what is overwritten on the way back";
    saving(status, Saved::of(now, &back)?, back, Refusal::plain(reason))
}

/// Sectors of the array that move in place.
struct Saved {
    /// The least that is saved at a time.
    unit: u64,
    /// All of them.
    array: u64,
}

impl Saved {
    fn of(now: &NewShape, new: &NewShape) -> Result<Self, Refusal> {
        let old = now.geometry()?;
        let to = new.geometry()?;
        let chunk = u64::from(old.chunk_sectors().max(to.chunk_sectors()));
        let unit = chunk * u64::from(to.data_disks());
        let array = old.array_sectors().min(to.array_sectors()) / unit * unit;
        Ok(Self { unit, array })
    }
}

/// Returns the new shape where there is a device that takes what is about to be overwritten.
fn saving(
    status: &Status,
    Saved { unit, array }: Saved,
    new: NewShape,
    why: Refusal,
) -> Result<NewShape, Refusal> {
    let saved_sectors = saved_at_a_time(unit).min(array.max(unit));
    let Some(spill) = spill(status) else {
        let mib = (HEADER_SECTORS + saved_sectors).div_ceil(SECTORS_PER_MIB);
        let next = format!("add --spill PATH: a file of {mib} MiB on another disk");
        return Err(Refusal::new(why.reason, next));
    };
    if spill.sectors < HEADER_SECTORS + unit {
        let kib = (HEADER_SECTORS + unit) / 2;
        let reason = format!("{} has less than the {kib} KiB that are needed", spill.device);
        return refuse(reason, "name a larger device");
    }
    Ok(NewShape { saved_sectors, ..new })
}

/// Checks that another shape of copies has as many, and as much room for data.
fn check_copies(now: &NewShape, new: &NewShape) -> Result<(), Refusal> {
    let (Layout::Raid10(before), Layout::Raid10(after)) = (now.layout, new.layout) else {
        return Ok(());
    };
    if before.copies() != after.copies() {
        let there_are = before.copies();
        let reason = format!("{} has another number of copies than {there_are}", name(new.layout));
        return refuse(reason, "name a layout with as many, or make a new array");
    }
    let size = now.geometry()?.array_sectors();
    let chunk = u64::from(new.chunk_sectors);
    if new.geometry()?.array_sectors() < size || !size.is_multiple_of(chunk) {
        let reason = format!(
            "{} of each member are no whole number of rows of chunks of {}",
            bytes(now.size_sectors),
            bytes(chunk)
        );
        return refuse(reason, "use a little more of each member first: --size");
    }
    Ok(())
}

/// Returns the least distance by which rows have to move from one shape to another.
fn least_shift(now: &NewShape, new: &NewShape) -> Result<u64, Refusal> {
    let (old, new) = RowOrder::of_both(&now.geometry()?, &new.geometry()?);
    Ok(old.least_shift(new))
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
    let without_data = [MemberState::Faulty, MemberState::Journal];
    let members = status.members.iter().filter(|member| !without_data.contains(&member.state));
    let least = members.min_by_key(|member| room(member));
    least.map_or((0, "", place), |member| (room(member), &*member.device, place))
}

/// Returns the distance by which rows move, where both shapes have as much data in each row:
/// forwards where there is room for that, otherwise backwards.
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
