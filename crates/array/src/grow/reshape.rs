//! More members of a level with parity: all data move, towards the begin of the members.

use super::{NewShape, check_whole, refuse};
use crate::format::superblock::MAX_DEV;
use crate::refusal::Refusal;
use crate::status::{MemberState, Status};

/// The most that rows move by: superblocks are written the less often at the begin, and room is
/// left for the next time.
const MOST_SHIFT: u64 = 32_768;

pub(super) fn plan(status: &Status, now: NewShape, count: u32) -> Result<NewShape, Refusal> {
    check_whole(status)?;
    if count < now.raid_disks {
        return refuse(
            format!("{} members cannot become {count} yet", now.raid_disks),
            "make a new array and copy the data",
        );
    }
    if count > MAX_DEV {
        return refuse(format!("an array has {MAX_DEV} members at most"), "name fewer");
    }
    let chunk = u64::from(now.chunk_sectors);
    let room = status.members.iter().filter(|member| member.state != MemberState::Faulty);
    let least = room.min_by_key(|member| member.head_sectors);
    let (head, device) = least.map_or((0, ""), |member| (member.head_sectors, &*member.device));
    // A half is left for the next time, where that is enough.
    let shift = (head / 2).clamp(chunk, MOST_SHIFT.max(chunk)) / chunk * chunk;
    if shift > head {
        return refuse(
            format!(
                "{device} has {} KiB before its data that are free, and {} KiB are needed to begin",
                head / 2,
                chunk / 2
            ),
            "make a new array and copy the data",
        );
    }
    Ok(NewShape { raid_disks: count, shift_sectors: shift, ..now })
}
