//! Stripes without redundancy, of what held it until now. They have no place for a copy, for parity
//! or for a spare: such members leave before, as md wants it (`raid0_takeover` of its `raid0.c`).

use super::{NewShape, chunk_of_mirror, refuse};
use crate::Role;
use crate::format::Version;
use crate::level::{Layout, Level, ParityLayout};
use crate::refusal::{Invocation, Next, Refusal};
use crate::status::{MemberState, MemberStatus, Status};

pub(super) fn plan(status: &Status, now: NewShape) -> Result<NewShape, Refusal> {
    let chunk_sectors = match now.level {
        Level::Raid1 => chunk_of_mirror(&now)?,
        _ => now.chunk_sectors,
    };
    let Sorted { holders, leaving } = sort(status, &now)?;
    if let Some(member) = leaving.first() {
        return leaves_before(member);
    }
    let raid_disks = holders.len() as u32;
    if let Some(strip) = holders.iter().position(Option::is_none) {
        let reason = format!("the member of role {strip} is missing, and its data are computed");
        return refuse(reason, "add a member, and wait for the recovery");
    }
    let unit = u64::from(chunk_sectors.max(1));
    let size_sectors = now.size_sectors / unit * unit;
    if let Some(member) = status.members.iter().find(|member| member.unreliable) {
        let next = "check the array and replace that member before";
        return refuse(format!("{} has sectors that cannot be read", member.device), next);
    }
    let larger = |member: &&MemberStatus| member.told_sectors / unit * unit > size_sectors;
    if status.superblock.version == Version::V0_90
        && let Some(member) = status.members.iter().find(larger)
    {
        let reason = format!("{} has more room than is used, which raid0 would use", member.device);
        return refuse(reason, "use all of it first: --size max");
    }
    let new = |old: Role| {
        let holds = |holder: &Option<&MemberStatus>| holder.and_then(|it| it.role) == Some(old);
        holders.iter().position(holds).map(Role::at)
    };
    let roles = Role::all(now.raid_disks as u16).map(new).collect();
    let now = NewShape { level: Level::Raid0, layout: Layout::None, raid_disks, ..now };
    Ok(NewShape { chunk_sectors, size_sectors, roles, ..now })
}

/// Returns the members that hold what stripes have no place for, spares first: none is to take a
/// role over.
pub(in crate::grow) fn leaving<'a>(status: &'a Status, now: &NewShape) -> Vec<&'a MemberStatus> {
    sort(status, now).map_or_else(|_| Vec::new(), |sorted| sorted.leaving)
}

/// Members, by their roles among stripes.
struct Sorted<'a> {
    holders: Vec<Option<&'a MemberStatus>>,
    leaving: Vec<&'a MemberStatus>,
}

fn sort<'a>(status: &'a Status, now: &NewShape) -> Result<Sorted<'a>, Refusal> {
    let all = (0..now.raid_disks as usize).map(|role| strips_of(now, role));
    let places: Vec<Option<Role>> = all.collect::<Result<_, _>>()?;
    let raid_disks = places.iter().flatten().map(|role| role.index() + 1).max().unwrap_or(0);
    let place = |member: &MemberStatus| *places.get(member.role?.index())?;
    let mut sorted = Sorted { holders: vec![None; raid_disks], leaving: Vec::new() };
    for member in &status.members {
        let in_sync = member.state == MemberState::InSync;
        let new = if in_sync { place(member) } else { None };
        match new.map(|role| &mut sorted.holders[role.index()]) {
            Some(holder @ None) => *holder = Some(member),
            _ => sorted.leaving.push(member),
        }
    }
    sorted.leaving.sort_by_key(|member| member.state == MemberState::InSync);
    Ok(sorted)
}

/// The role that has this role's data among stripes, if it has any.
fn strips_of(now: &NewShape, role: usize) -> Result<Option<Role>, Refusal> {
    let last = role + 1 == now.raid_disks as usize;
    match (now.level, now.layout) {
        (Level::Raid1, _) => Ok(Some(Role::at(0))),
        (Level::Raid4, _) | (Level::Raid5, Layout::Parity(ParityLayout::ParityLast)) => {
            Ok((!last).then(|| Role::at(role)))
        }
        (Level::Raid10, Layout::Raid10(layout))
            if (layout.near, layout.far) == (2, 1) && now.raid_disks.is_multiple_of(2) =>
        {
            Ok(Some(Role::at(role / 2)))
        }
        (Level::Raid6, Layout::Parity(ParityLayout::ParityLast)) => {
            refuse("raid6 has two members of parity", "take the last one out first: --level 5")
        }
        (level, layout) => refuse(
            format!(
                "{level}, {}, {} members: stripes lie otherwise, and data would have to move",
                layout.name().unwrap_or_default(),
                now.raid_disks
            ),
            "make a new array and copy the data",
        ),
    }
}

/// Says how a member leaves that holds nothing which raid0 has a place for.
fn leaves_before(member: &MemberStatus) -> Result<NewShape, Refusal> {
    let device = member.device.clone();
    let (what, next) = match member.state {
        MemberState::InSync => {
            ("holds a copy or parity", Invocation::Fail { array: None, device: device.clone() })
        }
        _ => ("is a spare", Invocation::Remove { array: None, device: device.clone() }),
    };
    let advice = "fail and remove each of those first";
    refuse(format!("{device} {what}, and raid0 has no place for that"), Next::by(advice, next))
}
