//! A longer linear array: members are appended behind the last one, and every byte stays, as with
//! `linear_add` of the kernel's `linear.c`.

use super::{NewShape, in_state, refuse};
use crate::refusal::Refusal;
use crate::status::{MemberState, MemberStatus, Status};

/// Spares are appended in the order of their ids.
pub(super) fn plan(status: &Status, now: NewShape, count: u32) -> Result<NewShape, Refusal> {
    if count < now.raid_disks {
        return refuse(
            format!("{} members cannot become {count}: data lie on each", now.raid_disks),
            "make a new array and copy the data",
        );
    }
    let most = status.superblock.version.most_devices();
    if count > most {
        return refuse(format!("an array has {most} members at most"), "name fewer");
    }
    let mut members: Vec<&MemberStatus> = in_state(status, MemberState::InSync).collect();
    members.sort_by_key(|member| member.role);
    let mut spares: Vec<&MemberStatus> = in_state(status, MemberState::Spare).collect();
    spares.sort_by_key(|member| member.member);
    let new = (count - now.raid_disks) as usize;
    let all = members.into_iter().chain(spares.into_iter().take(new));
    let own_sectors = all.map(|member| member.told_sectors).collect();
    Ok(NewShape { raid_disks: count, own_sectors, ..now })
}
