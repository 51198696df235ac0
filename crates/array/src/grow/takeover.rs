//! Another level for data that stay where they are. The rules are those of the `takeover`
//! functions of the kernel's personalities.

mod stripes;

use super::{NewShape, check_whole, refuse};
use crate::Role;
use crate::geometry::MIN_CHUNK_SECTORS;
use crate::level::{FarSets, Layout, Level, ParityLayout, Raid10Layout};
use crate::refusal::Refusal;
use crate::status::{MemberState, Status};

pub(super) use stripes::leaving;

/// The largest chunk that a mirror becomes a RAID 5 with: 64 KiB, as md does.
const MIRROR_CHUNK_SECTORS: u32 = 128;

pub(super) fn plan(
    status: &Status,
    now: NewShape,
    level: i32,
    keep_layout: bool,
) -> Result<NewShape, Refusal> {
    let Some(to) = Level::from_md(level) else {
        return refuse(format!("level {level} is not one of md's"), "use 0, 1, 4, 5, 6 or 10");
    };
    if to == now.level {
        return refuse(format!("it is a {to} already"), "name another level");
    }
    if to == Level::Raid0 {
        return stripes::plan(status, now);
    }
    check_whole(status)?;
    match (now.level, to) {
        (Level::Raid5, Level::Raid6) => to_raid6(now, keep_layout),
        (Level::Raid6, Level::Raid5) => from_raid6(now),
        (Level::Raid4, Level::Raid5) if keep_layout => Ok(with_parity_last(now, to)),
        (Level::Raid4, Level::Raid5) => would_move(Level::Raid5, "parity-last"),
        (Level::Raid5, Level::Raid4) => to_raid4(now),
        (Level::Raid1, Level::Raid5) => mirror_to_raid5(now),
        (Level::Raid5, Level::Raid1) => to_mirror(now),
        (Level::Raid0, Level::Raid1 | Level::Raid4 | Level::Raid5 | Level::Raid10) => {
            from_raid0(status, now, to, keep_layout)
        }
        (from, _) => refuse(
            format!("{from} cannot become {to}: data would have to move"),
            "make a new array and copy the data",
        ),
    }
}

/// Moving data is for another time: says how the level can change without.
fn would_move(to: Level, layout: &str) -> Result<NewShape, Refusal> {
    refuse(
        format!("{to} in its usual layout would have to move all data, which cannot be done yet"),
        format!("keep the data where they are ({layout}): --layout preserve"),
    )
}

/// Q on one more member, which gets it from a recovery.
fn to_raid6(now: NewShape, keep_layout: bool) -> Result<NewShape, Refusal> {
    use ParityLayout as L;
    let Layout::Parity(layout) = now.layout else { return no_layout(&now) };
    let new = match layout {
        L::LeftAsymmetric => L::LeftAsymmetric6,
        L::RightAsymmetric => L::RightAsymmetric6,
        L::LeftSymmetric => L::LeftSymmetric6,
        L::RightSymmetric => L::RightSymmetric6,
        L::ParityFirst => L::ParityFirst6,
        L::ParityLast => L::ParityLast,
        _ => return no_layout(&now),
    };
    if now.raid_disks < 3 {
        return refuse("raid6 has at least 4 members", "begin with a raid5 of at least 3");
    }
    if !keep_layout {
        return would_move(Level::Raid6, new.name());
    }
    let raid_disks = now.raid_disks + 1;
    Ok(NewShape { level: Level::Raid6, layout: Layout::Parity(new), raid_disks, ..now })
}

/// Without Q, where that is on the last member, which becomes a spare.
fn from_raid6(mut now: NewShape) -> Result<NewShape, Refusal> {
    use ParityLayout as L;
    let Layout::Parity(layout) = now.layout else { return no_layout(&now) };
    let new = match layout {
        L::LeftAsymmetric6 => L::LeftAsymmetric,
        L::RightAsymmetric6 => L::RightAsymmetric,
        L::LeftSymmetric6 => L::LeftSymmetric,
        L::RightSymmetric6 => L::RightSymmetric,
        L::ParityFirst6 => L::ParityFirst,
        L::ParityLast => L::ParityLast,
        other => {
            return refuse(
                format!("{} spreads Q over all members: data would have to move", other.name()),
                "make a new array and copy the data",
            );
        }
    };
    if let Some(last) = now.roles.last_mut() {
        *last = None;
    }
    let raid_disks = now.raid_disks - 1;
    Ok(NewShape { level: Level::Raid5, layout: Layout::Parity(new), raid_disks, ..now })
}

fn with_parity_last(now: NewShape, level: Level) -> NewShape {
    NewShape { level, layout: Layout::Parity(ParityLayout::ParityLast), ..now }
}

fn to_raid4(now: NewShape) -> Result<NewShape, Refusal> {
    if now.layout != Layout::Parity(ParityLayout::ParityLast) {
        return refuse(
            "parity moves from member to member: data would have to move",
            "make a new array and copy the data",
        );
    }
    Ok(NewShape { level: Level::Raid4, layout: Layout::None, ..now })
}

/// Parity of one strip of data is its copy.
fn mirror_to_raid5(now: NewShape) -> Result<NewShape, Refusal> {
    if now.raid_disks != 2 {
        return refuse(
            format!("a mirror of {} cannot become a raid5, only one of 2", now.raid_disks),
            "give it 2 members first: --raid-devices 2",
        );
    }
    let chunk_sectors = chunk_of_mirror(&now)?;
    let layout = Layout::Parity(ParityLayout::LeftSymmetric);
    Ok(NewShape { level: Level::Raid5, layout, chunk_sectors, ..now })
}

/// Returns the chunk of a mirror that becomes something with chunks: all of the mirror is whole
/// ones.
fn chunk_of_mirror(now: &NewShape) -> Result<u32, Refusal> {
    let mut chunk_sectors = MIRROR_CHUNK_SECTORS;
    while !now.size_sectors.is_multiple_of(chunk_sectors.into()) {
        chunk_sectors /= 2;
    }
    if chunk_sectors < MIN_CHUNK_SECTORS {
        return refuse(
            format!("{} sectors of each member are no whole pages", now.size_sectors),
            "use more of each member first: --size",
        );
    }
    Ok(chunk_sectors)
}

fn to_mirror(now: NewShape) -> Result<NewShape, Refusal> {
    if now.raid_disks != 2 {
        return refuse(
            format!("a raid5 of {} cannot become a mirror, only one of 2", now.raid_disks),
            "make a new array and copy the data",
        );
    }
    Ok(NewShape { level: Level::Raid1, layout: Layout::None, chunk_sectors: 0, ..now })
}

/// Redundancy for stripes, on members that are added and rebuilt then.
fn from_raid0(
    status: &Status,
    now: NewShape,
    level: Level,
    keep_layout: bool,
) -> Result<NewShape, Refusal> {
    let now = even(status, now, level)?;
    match level {
        Level::Raid1 if now.raid_disks == 1 => {
            let layout = Layout::None;
            Ok(NewShape { level, layout, raid_disks: 2, chunk_sectors: 0, ..now })
        }
        Level::Raid1 => refuse(
            format!("the data are striped over {} members", now.raid_disks),
            "mirror each of them: --level 10",
        ),
        Level::Raid10 => Ok(mirrored(now)),
        Level::Raid5 if !keep_layout => would_move(level, "parity-last"),
        Level::Raid5 => {
            Ok(NewShape { raid_disks: now.raid_disks + 1, ..with_parity_last(now, level) })
        }
        _ => Ok(NewShape { level, layout: Layout::None, raid_disks: now.raid_disks + 1, ..now }),
    }
}

/// Stripes of which all members use as much, with chunks that another level can have: md moves no
/// others.
pub(super) fn even(status: &Status, now: NewShape, level: Level) -> Result<NewShape, Refusal> {
    let chunk = u64::from(now.chunk_sectors);
    let used = |sectors: u64| sectors / chunk.max(1) * chunk;
    let members = super::in_state(status, MemberState::InSync);
    let mut sizes = members.map(|member| used(member.told_sectors));
    let size_sectors = sizes.next().unwrap_or(0);
    if sizes.any(|size| size != size_sectors) {
        return refuse(
            "the members have different sizes, all of which raid0 uses",
            "make a new array and copy the data",
        );
    }
    if !now.chunk_sectors.is_power_of_two() || now.chunk_sectors < MIN_CHUNK_SECTORS {
        return refuse(
            format!("{level} has no chunks of {} sectors", now.chunk_sectors),
            "make a new array and copy the data",
        );
    }
    Ok(NewShape { layout: Layout::None, size_sectors, ..now })
}

/// Each member with one beside it that is to hold the same.
fn mirrored(now: NewShape) -> NewShape {
    let near = Raid10Layout { near: 2, far: 1, offset: false, far_sets: FarSets::Original };
    let roles = (0..now.raid_disks).map(|role| Some(Role::at(2 * role as usize))).collect();
    let raid_disks = 2 * now.raid_disks;
    NewShape { level: Level::Raid10, layout: Layout::Raid10(near), raid_disks, roles, ..now }
}

fn no_layout(now: &NewShape) -> Result<NewShape, Refusal> {
    refuse(format!("{} has no such layout", now.level), "look at it with braid detail")
}
