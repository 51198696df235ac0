//! More of each member is used, after each was replaced by a larger one; or less.

use super::{NewShape, check_whole, refuse};
use crate::format::Version;
use crate::level::{Layout, Level};
use crate::outline::bytes;
use crate::refusal::Refusal;
use crate::status::{MemberState, MemberStatus, Status};

/// The most sectors of a member that a superblock of version 0.90 has room for: its field counts
/// KiB in 32 bits, and md leaves half of that.
const V0_90_SECTORS: u64 = 1 << 32;

/// Sizes are whole pages.
const PAGE_SECTORS: u64 = 8;

pub(super) fn plan(
    status: &Status,
    now: NewShape,
    sectors: Option<u64>,
) -> Result<NewShape, Refusal> {
    check_level(&now)?;
    check_whole(status)?;
    let used = now.size_sectors;
    let smallest = smallest(status);
    let most = smallest.map_or(used, |member| member.data_sectors);
    let most =
        if status.superblock.version == Version::V0_90 { most.min(V0_90_SECTORS) } else { most };
    // As many rows as there are far copies go together.
    let far = match now.layout {
        Layout::Raid10(layout) => u64::from(layout.far),
        _ => 1,
    };
    let unit = u64::from(now.chunk_sectors).max(PAGE_SECTORS) * far;
    let wanted = sectors.unwrap_or(most) / unit * unit;
    let device = smallest.map_or("the smallest member", |member| &member.device);
    if wanted > most {
        return refuse(
            format!("{device} has room for {}, not for {}", bytes(most), bytes(wanted)),
            "replace it by a larger one, or name a smaller size",
        );
    }
    if wanted == used || sectors.is_none() && wanted < used {
        return refuse(
            format!("{} of each member are used, which is all that {device} has", bytes(used)),
            "replace each smaller member by a larger one first",
        );
    }
    if wanted == 0 {
        return refuse(format!("whole rows have {}", bytes(unit)), "name a larger size");
    }
    Ok(NewShape { size_sectors: wanted, ..now })
}

/// Checks that the place of a byte does not depend on the size.
fn check_level(now: &NewShape) -> Result<(), Refusal> {
    match (now.level, now.layout) {
        (Level::Linear | Level::Raid0, _) => refuse(
            format!("{} uses all of its members", now.level),
            "make a new array of the larger ones and copy the data",
        ),
        (Level::Raid10, Layout::Raid10(layout)) if layout.far > 1 && !layout.offset => refuse(
            "far copies lie behind all others: they would have to move",
            "make a new array and copy the data; near and offset layouts can grow",
        ),
        _ => Ok(()),
    }
}

/// The member with the least room for data, spares included.
fn smallest(status: &Status) -> Option<&MemberStatus> {
    let holds = |member: &&MemberStatus| {
        !matches!(member.state, MemberState::Faulty | MemberState::Journal)
    };
    status.members.iter().filter(holds).min_by_key(|member| member.data_sectors)
}
