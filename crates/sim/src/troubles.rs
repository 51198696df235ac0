//! Troubles: failing members, unreadable sectors, commands at a bad time.
//!
//! The level always survives the faults (except in seeds about excess faults), so every wrong
//! answer is a bug. A role counts as lost when no in-sync member without faults holds it.

use braid_array::action::{Command, CommandId, NewMember};
use braid_array::status::{JournalMode, MemberState, Status};
use braid_array::{MemberId, Role};

use crate::assembly;
use crate::create;
use crate::disk::Disk;
use crate::part::{arrays, devices, holders, part_of};
use crate::past::Snapshot;
use crate::subject::Subject;
use crate::world::{Hang, World};

/// Roles that no sound member holds.
fn lost(world: &mut World<impl Subject>, status: &Status, part: usize) -> Vec<bool> {
    let status = &arrays(status)[part];
    let roles = Role::all(world.parts.devices[part].scenario.members);
    let unsound = |role| {
        // While one takes over from another there are two, and either may be the one that stays.
        let devices: Vec<_> = holders(status, role).map(|id| world.exec.device(id)).collect();
        let mut unsound = |device| world.is_unsound(device);
        devices.is_empty() || devices.into_iter().any(|device| device.is_none_or(&mut unsound))
    };
    roles.map(unsound).collect()
}

/// Returns whether this member may fail. A member without a complete role costs nothing; but a
/// replacement may have taken over before its loss is noticed.
fn may_fail(world: &mut World<impl Subject>, status: &Status, member: MemberId) -> bool {
    let part = part_of(status, member);
    let mut lost = lost(world, status, part);
    let state = devices(status).find(|m| m.member == member);
    if let Some(m) = state
        && let Some(role) = m.role
        && (m.state == MemberState::InSync || m.replacement)
    {
        lost[role.index()] = true;
    }
    survivable(world, status, part, lost.iter().filter(|lost| **lost).count())
}

/// Returns whether sectors of this member may break. A member under recovery may be in sync, with
/// its broken sectors, when the next one breaks.
fn may_be_damaged(world: &mut World<impl Subject>, status: &Status, member: MemberId) -> bool {
    let part = part_of(status, member);
    let mut lost = lost(world, status, part);
    let state = devices(status).find(|m| m.member == member);
    let mut count = 0;
    match state.map(|m| (m.state, m.role)) {
        Some((MemberState::InSync, Some(role))) => lost[role.index()] = true,
        _ => count = 1,
    }
    count += lost.iter().filter(|lost| **lost).count();
    survivable(world, status, part, count)
}

fn survivable(world: &mut World<impl Subject>, status: &Status, part: usize, lost: usize) -> bool {
    // What a write hole takes of an array within may be metadata of the one above it.
    if world.parts.over.is_some() && !world.parts.devices[part].suspects.is_empty() {
        return false;
    }
    let members = arrays(status)[part].members.iter();
    let rebuilding = members.filter(|m| m.state == MemberState::Rebuilding);
    let devices: Vec<_> = rebuilding.filter_map(|m| world.exec.device(m.member)).collect();
    let lost = lost + devices.into_iter().filter(|device| world.is_unsound(*device)).count();
    let array = &world.parts.devices[part];
    let enough = lost + usize::from(array.rebuilt_with_gaps) <= array.scenario.tolerance();
    if !enough && world.scenario.excess {
        world.excess = true;
    }
    enough || world.excess
}

/// Returns whether the power may be cut. The write hole of an inner array may hit metadata of the
/// outer one, which nothing rebuilds.
pub fn may_cut(world: &mut World<impl Subject>) -> bool {
    if world.parts.over.is_none() {
        return true;
    }
    let status = world.exec.machine.status();
    (0..world.parts.devices.len()).all(|part| {
        let has_parity = world.parts.devices[part].scenario.has_parity();
        !has_parity || !lost(world, &status, part).contains(&true)
    })
}

fn any_member(
    world: &mut World<impl Subject>,
    status: &Status,
    states: &[MemberState],
) -> Option<MemberId> {
    let fits: Vec<_> =
        devices(status).filter(|m| states.contains(&m.state)).map(|m| m.member).collect();
    (!fits.is_empty()).then(|| world.rng.pick(&fits))
}

/// A member that has not failed, and its device.
fn any_live(world: &mut World<impl Subject>, status: &Status) -> Option<(MemberId, usize)> {
    let member = any_member(world, status, &LIVE)?;
    Some((member, world.exec.device(member)?))
}

const LIVE: [MemberState; 3] = [MemberState::InSync, MemberState::Rebuilding, MemberState::Spare];

/// Causes a drawn trouble, if it is possible.
pub fn inject(world: &mut World<impl Subject>) {
    let status = world.exec.machine.status();
    if world.rng.percent(40) && return_members(world, &status) {
        return;
    }
    match world.rng.below(25) {
        0..=2 => fail(world, &status),
        3..=4 => vanish(world, &status),
        5..=6 => damage(world, &status, false),
        7 => damage(world, &status, true),
        8 => remove(world, &status),
        9..=10 => add(world),
        11 => {
            if let Some(member) = any_member(world, &status, &[MemberState::InSync]) {
                world.ask(Command::Replace(member));
            }
        }
        12 => {
            let repair = world.rng.percent(50);
            world.ask(Command::Scrub { repair });
        }
        13 => {
            world.ask(Command::StopScrub);
        }
        14 => {
            let pause = world.rng.percent(50);
            world.ask(Command::Pause(pause));
        }
        15 => go_blind(world, &status),
        16..=17 => hang(world, &status),
        18 if world.scenario.excess => scratch(world, &status),
        19..=20 => fill_up(world, &status),
        21..=23 => {
            if let Some(member) = any_member(world, &status, &[MemberState::InSync]) {
                take_snapshot(world, member);
            }
        }
        _ if world.scenario.has_journal() && world.rng.percent(50) => {
            let modes = [JournalMode::WriteBack, JournalMode::WriteThrough];
            let mode = world.rng.pick(&modes);
            world.ask(Command::JournalMode(mode));
        }
        _ => {
            let max_bytes_s = Some(world.rng.pick(&[1 << 20, 10 << 20, 1 << 30]));
            let min_bytes_s = Some(world.rng.pick(&[1 << 10, 1 << 20]));
            world.ask(Command::SpeedLimits { min_bytes_s, max_bytes_s });
        }
    }
}

/// Acts as an administrator after a failure: removes failed members, and adds them again.
fn return_members(world: &mut World<impl Subject>, status: &Status) -> bool {
    if devices(status).any(|m| m.state == MemberState::Faulty) {
        remove(world, status);
        return true;
    }
    let loose = (0..world.exec.disks.len()).any(|device| !world.exec.is_attached(device));
    if loose && status.degraded > 0 {
        add(world);
    }
    loose && status.degraded > 0
}

fn fail(world: &mut World<impl Subject>, status: &Status) {
    let Some(member) = any_member(world, status, &LIVE) else { return };
    if may_fail(world, status, member) {
        // Refused without force as long as a resync is pending.
        let synced = world.parts.all().all(|part| part.synced);
        world.ask(if synced { Command::Fail(member) } else { Command::ForceFail(member) });
    }
}

fn vanish(world: &mut World<impl Subject>, status: &Status) {
    let Some((member, device)) = any_live(world, status) else { return };
    if may_fail(world, status, member) {
        world.note(&[50, device as u64], || format!("TROUBLE device {device} is gone"));
        world.exec.disks[device].set_gone(true);
    }
}

/// Sectors that cannot be read, or not even be written.
fn damage(world: &mut World<impl Subject>, status: &Status, for_good: bool) {
    let Some((member, device)) = any_live(world, status) else { return };
    if world.was_tight || !may_be_damaged(world, status, member) {
        return;
    }
    let part = part_of(status, member);
    let data = world.parts.devices[part].scenario.shared_data();
    let count = world.rng.between(1, 4);
    let start = data.start + world.rng.below(data.end - data.start);
    let end = (start + count).min(data.end);
    world.damaged.insert(device, None);
    for sector in start..end {
        // Where parity is in doubt, what cannot be read is lost.
        if world.parts.devices[part].in_doubt(sector) {
            continue;
        }
        world.note(&[51, device as u64, sector], || {
            format!("TROUBLE device {device} sector {sector} breaks, for good: {for_good}")
        });
        if for_good {
            world.exec.disks[device].break_sector(sector);
        } else {
            world.exec.disks[device].lose_sector(sector);
        }
    }
}

/// Makes the same sectors unreadable on more members than the level does without.
pub fn scratch(world: &mut World<impl Subject>, status: &Status) {
    let data = world.parts.devices[0].scenario.shared_data();
    let start = data.start + world.rng.below(data.end - data.start);
    let end = (start + world.rng.between(1, 200)).min(data.end);
    world.excess = true;
    let spared = world.rng.pick(&[0, 0, 30]);
    for member in devices(status).filter(|m| m.state == MemberState::InSync) {
        let Some(device) = world.exec.device(member.member) else { continue };
        if world.rng.percent(spared) {
            continue;
        }
        world.damaged.insert(device, None);
        world.note(&[53, device as u64, start, end], || {
            format!("TROUBLE device {device} cannot read {start}..{end}")
        });
        // Where parity is in doubt, what cannot be read is lost.
        for sector in start..end {
            if !world.parts.devices[0].in_doubt(sector) {
                world.exec.disks[device].lose_sector(sector);
            }
        }
    }
}

/// Members have no room any more, one or all, for less long than metadata can wait for it.
fn fill_up(world: &mut World<impl Subject>, status: &Status) {
    // With what cannot be read in what was left torn, some would be lost.
    if world.parts.over.is_some() || world.was_tight || world.exec.disks.iter().any(Disk::damaged) {
        return;
    }
    let all = world.rng.percent(50);
    let one = any_member(world, status, &LIVE);
    let patience_millis = world.rng.pick(&[1, 100, 5_000, 40_000]);
    let until = world.exec.now().plus_millis(patience_millis);
    for member in devices(status).filter(|m| all || Some(m.member) == one) {
        let Some(device) = world.exec.device(member.member) else { continue };
        world.note(&[55, device as u64], || format!("TROUBLE device {device} is full"));
        world.exec.disks[device].set_full(true);
        world.tight.push((device, until));
        world.was_tight = true;
    }
}

/// Makes a device unreadable; writes are still taken.
fn go_blind(world: &mut World<impl Subject>, status: &Status) {
    let Some((member, device)) = any_live(world, status) else { return };
    // Where parity is in doubt, what cannot be read is lost.
    let suspects = &world.parts.devices[part_of(status, member)].suspects;
    if !world.was_tight && suspects.is_empty() && may_be_damaged(world, status, member) {
        world.damaged.insert(device, None);
        world.note(&[52, device as u64], || format!("TROUBLE device {device} cannot be read"));
        world.exec.disks[device].go_blind();
    }
}

/// Answers nothing any more, for a while or until the administrator is tired of it.
fn hang(world: &mut World<impl Subject>, status: &Status) {
    let Some((member, device)) = any_live(world, status) else { return };
    if may_fail(world, status, member) {
        world.note(&[53, device as u64], || format!("TROUBLE device {device} answers nothing"));
        world.exec.disks[device].set_hung(true);
        let patience_millis = world.rng.pick(&[1, 100, 30_000, 120_000]);
        let until = world.exec.now().plus_millis(patience_millis);
        world.hangs.push(Hang { device, until, over: false });
    }
}

/// Acts as an administrator on members that have not answered for long. Members that the array
/// needs answer again later.
pub fn relieve(world: &mut World<impl Subject>) {
    let now = world.exec.now();
    for (device, _) in world.tight.extract_if(.., |(_, until)| *until <= now) {
        world.exec.disks[device].set_full(false);
    }
    let Some(at) = world.hangs.iter().position(|hang| hang.until <= now) else { return };
    let Hang { device, over, .. } = world.hangs[at];
    if over {
        wake(world, at);
        return;
    }
    world.hangs[at] = Hang { device, over: true, until: now.plus_millis(200_000) };
    let status = world.exec.machine.status();
    let mut live = devices(&status).filter(|m| m.state != MemberState::Faulty);
    if let Some(member) = live.find(|m| world.exec.device(m.member) == Some(device)) {
        world.ask(Command::Fail(member.member));
    }
}

fn wake(world: &mut World<impl Subject>, at: usize) {
    let Hang { device, .. } = world.hangs.swap_remove(at);
    world.note(&[54, device as u64], || format!("TROUBLE device {device} answers again"));
    world.exec.wake(device);
}

/// Ends a hang, when nothing else is due: the administrator's patience ends, or a device that the
/// array needs answers again. Returns false when there is no hang.
pub fn end_hang(world: &mut World<impl Subject>) -> bool {
    if let Some(hang) = world.hangs.iter_mut().find(|hang| !hang.over) {
        hang.until = world.exec.now();
        return true;
    }
    let some = !world.hangs.is_empty();
    if some {
        wake(world, 0);
    }
    some
}

fn remove(world: &mut World<impl Subject>, status: &Status) {
    let states = [MemberState::Faulty, MemberState::Spare];
    if let Some(member) = any_member(world, status, &states) {
        world.ask(Command::Remove(member));
    }
}

/// Adds a device: one that was taken off, as it is or blank, or a new one.
pub fn add(world: &mut World<impl Subject>) {
    // What is still in flight on a device keeps it from being opened again.
    let loose: Vec<_> = (0..world.exec.disks.len())
        .filter(|device| !world.exec.is_attached(*device) && !world.exec.busy(*device))
        .collect();
    let blank = loose.is_empty() || world.rng.percent(40);
    if blank {
        add_blank(world);
        return;
    }
    let device = world.rng.pick(&loose);
    let disk = &mut world.exec.disks[device];
    if disk.gone() {
        // It comes back from having been without power.
        disk.power_cut(&mut world.rng);
        disk.set_gone(false);
    }
    if world.rng.percent(50) {
        put_back(world, device);
    }
    let readd = world.rng.percent(60);
    ask_to_add(world, device, readd);
}

/// Takes a snapshot of a member in sync.
fn take_snapshot(world: &mut World<impl Subject>, member: MemberId) {
    let Some(device) = world.exec.device(member) else { return };
    let taken = Snapshot::take(device, &world.exec.disks[device], &mut world.rng);
    if let Some(snapshot) = taken {
        world.note(&[56, device as u64], || format!("TROUBLE a snapshot of device {device}"));
        world.snapshot = Some(snapshot);
    }
}

/// A loose device goes back to its snapshot, if there is one.
fn put_back(world: &mut World<impl Subject>, device: usize) {
    if let Some(snapshot) = world.snapshot.take_if(|snapshot| snapshot.device == device) {
        world.note(&[57, device as u64], || format!("TROUBLE device {device} is as it was"));
        world.exec.disks[device] = snapshot.disk;
    }
}

/// The member that goes back to its snapshot once the array is stopped, if it does without.
pub fn goes_back(world: &mut World<impl Subject>) -> Option<Snapshot> {
    if world.scenario.excess {
        return None;
    }
    let device = world.snapshot.as_ref()?.device;
    let status = world.exec.machine.status();
    let member = devices(&status).find(|m| world.exec.device(m.member) == Some(device))?;
    let spared = member.state == MemberState::InSync && may_fail(world, &status, member.member);
    spared.then(|| world.snapshot.take()).flatten()
}

/// Adds a new device.
pub fn add_blank(world: &mut World<impl Subject>) -> Option<CommandId> {
    world.exec.disks.push(create::fresh_disk(&world.parts.devices[0].scenario));
    ask_to_add(world, world.exec.disks.len() - 1, false)
}

fn ask_to_add(world: &mut World<impl Subject>, device: usize, readd: bool) -> Option<CommandId> {
    let member = world.exec.machine.free_member()?;
    let found = assembly::candidate(&world.exec.disks, device);
    let device_sectors = found.device_sectors;
    let superblock = found.superblock.ok();
    let bad_blocks = found.bad_blocks.ok();
    let new = NewMember {
        member,
        device: format!("d{device}"),
        device_sectors,
        readd: readd && superblock.is_some(),
        superblock: superblock.map(Box::new),
        bad_blocks,
        device_uuid: create::uuid(&mut world.rng),
    };
    world.exec.attach(member, Some(device));
    Some(world.ask(Command::Add(Box::new(new))))
}
