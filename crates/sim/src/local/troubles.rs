//! Troubles: failing members, unreadable sectors, commands at a bad time.
//!
//! The level always survives the faults (except in seeds about excess faults), so every wrong
//! answer is a bug. A role counts as lost when no in-sync member without faults holds it.

use braid_array::action::{Command, CommandId, NewMember};
use braid_array::status::{JournalMode, MemberState, Status};
use braid_array::{MemberId, Role};

use crate::disk::Disk;
use crate::local::assembly;
use crate::local::create;
use crate::local::part::{arrays, devices, holders, part_of};
use crate::local::past::Snapshot;
use crate::local::spill;
use crate::local::{CLIENT, Hang, Local};
use crate::world::process::Device;

/// Roles that no sound member holds.
fn lost(local: &mut Local, status: &Status, part: usize) -> Vec<bool> {
    let status = &arrays(status)[part];
    let roles = Role::all(local.parts.devices[part].roles());
    let unsound = |role| {
        // While one takes over from another there are two, and either may be the one that stays.
        let devices: Vec<_> = holders(status, role).map(|id| local.device(id)).collect();
        let mut unsound = |device| local.is_unsound(device);
        devices.is_empty() || devices.into_iter().any(|device| device.is_none_or(&mut unsound))
    };
    roles.map(unsound).collect()
}

/// Returns whether this member may fail. A member without a complete role costs nothing; but a
/// replacement may have taken over before its loss is noticed.
fn may_fail(local: &mut Local, status: &Status, member: MemberId) -> bool {
    let part = part_of(status, member);
    let mut lost = lost(local, status, part);
    let state = devices(status).find(|m| m.member == member);
    if let Some(m) = state
        && let Some(role) = m.role
        && (m.state == MemberState::InSync || m.replacement)
    {
        lost[role.index()] = true;
    }
    let is_spare = state.is_some_and(|m| m.state == MemberState::Spare);
    let coming = usize::from(is_spare && local.parts.devices[part].asked.is_some());
    survivable(local, status, part, coming + lost.iter().filter(|lost| **lost).count())
}

/// Returns whether sectors of this member may break. A member under recovery may be in sync, with
/// its broken sectors, when the next one breaks.
fn may_be_damaged(local: &mut Local, status: &Status, member: MemberId) -> bool {
    let part = part_of(status, member);
    let mut lost = lost(local, status, part);
    let state = devices(status).find(|m| m.member == member);
    let mut count = 0;
    match state.map(|m| (m.state, m.role)) {
        Some((MemberState::InSync, Some(role))) => lost[role.index()] = true,
        _ => count = 1,
    }
    count += lost.iter().filter(|lost| **lost).count();
    survivable(local, status, part, count)
}

fn survivable(local: &mut Local, status: &Status, part: usize, lost: usize) -> bool {
    // What a write hole takes of an array within may be metadata of the one above it.
    if local.parts.over.is_some() && !local.parts.devices[part].suspects.is_empty() {
        return false;
    }
    let members = arrays(status)[part].members.iter();
    let rebuilding = members.filter(|m| m.state == MemberState::Rebuilding);
    let devices: Vec<_> = rebuilding.filter_map(|m| local.device(m.member)).collect();
    let lost = lost + devices.into_iter().filter(|device| local.is_unsound(*device)).count();
    let lost = if local.parts.devices[part].asked.is_none() {
        lost
    } else {
        lost + unsound_spares(local, &arrays(status)[part])
    };
    let array = &local.parts.devices[part];
    let enough = lost + usize::from(array.rebuilt_with_gaps) <= array.tolerance();
    if !enough && local.scenario.excess {
        local.excess = true;
    }
    enough || local.excess
}

/// Counts the spares that are faulty and not known to be: they may have a role in a moment.
fn unsound_spares(local: &mut Local, array: &Status) -> usize {
    let spares = array.members.iter().filter(|m| m.state == MemberState::Spare);
    let devices: Vec<_> = spares.map(|m| local.device(m.member)).collect();
    let mut unsound = |device| local.is_unsound(device);
    devices.into_iter().filter(|device| device.is_none_or(&mut unsound)).count()
}

/// Returns whether the array may be asked for a shape that can do without so many members, or that
/// it is going to refuse; from now on no more may be broken than that shape survives.
pub fn may_grow(local: &mut Local, status: &Status, tolerance: Option<usize>) -> bool {
    let asked = tolerance.unwrap_or_else(|| local.parts.devices[0].tolerance());
    local.parts.devices[0].asked = Some(asked);
    let lost = lost(local, status, 0).into_iter().filter(|lost| *lost).count();
    let may = survivable(local, status, 0, lost);
    if !may {
        local.parts.devices[0].asked = None;
    }
    may
}

/// A member of a mirror fails, and is removed.
pub fn take_off(local: &mut Local, status: &Status) {
    if devices(status).any(|m| m.state == MemberState::Faulty) {
        remove(local, status);
    } else if status.degraded == 0 {
        fail(local, status);
    }
}

/// Returns whether the power may be cut. The write hole of an inner array may hit metadata of the
/// outer one, which nothing rebuilds.
pub fn may_cut(local: &mut Local) -> bool {
    if local.parts.over.is_none() {
        return true;
    }
    let status = local.status();
    (0..local.parts.devices.len()).all(|part| {
        let has_parity = local.parts.devices[part].scenario.has_parity();
        !has_parity || !lost(local, &status, part).contains(&true)
    })
}

fn any_member(local: &mut Local, status: &Status, states: &[MemberState]) -> Option<MemberId> {
    let fits: Vec<_> =
        devices(status).filter(|m| states.contains(&m.state)).map(|m| m.member).collect();
    (!fits.is_empty()).then(|| local.rng.pick(&fits))
}

/// A member that has not failed, and its device.
fn any_live(local: &mut Local, status: &Status) -> Option<(MemberId, usize)> {
    let member = any_member(local, status, &LIVE)?;
    Some((member, local.device(member)?))
}

const LIVE: [MemberState; 3] = [MemberState::InSync, MemberState::Rebuilding, MemberState::Spare];

/// Causes a drawn trouble, if it is possible.
pub fn inject(local: &mut Local) {
    let status = local.status();
    local.look(&status);
    if local.rng.percent(40) && return_members(local, &status) {
        return;
    }
    match local.rng.below(25) {
        0..=2 => fail(local, &status),
        3..=4 => vanish(local, &status),
        5..=6 => damage(local, &status, false),
        7 => damage(local, &status, true),
        8 => remove(local, &status),
        9..=10 => add(local),
        11 => {
            if let Some(member) = any_member(local, &status, &[MemberState::InSync]) {
                local.ask(Command::Replace(member));
            }
        }
        12 => {
            let repair = local.rng.percent(50);
            local.ask(Command::Scrub { repair });
        }
        13 => {
            local.ask(Command::StopScrub);
        }
        14 => {
            let pause = local.rng.percent(50);
            local.ask(Command::Pause(pause));
        }
        15 => go_blind(local, &status),
        16..=17 => hang(local, &status),
        18 if local.scenario.excess => scratch(local, &status),
        19..=20 => fill_up(local, &status),
        21..=23 => {
            if let Some(member) = any_member(local, &status, &[MemberState::InSync]) {
                take_snapshot(local, member);
            }
        }
        _ if local.scenario.has_journal() && local.rng.percent(50) => {
            let modes = [JournalMode::WriteBack, JournalMode::WriteThrough];
            let mode = local.rng.pick(&modes);
            local.ask(Command::JournalMode(mode));
        }
        _ => {
            let max_bytes_s = Some(local.rng.pick(&[1 << 20, 10 << 20, 1 << 30]));
            let min_bytes_s = Some(local.rng.pick(&[1 << 10, 1 << 20]));
            local.ask(Command::SpeedLimits { min_bytes_s, max_bytes_s });
        }
    }
}

/// Acts as an administrator after a failure: removes failed members, and adds them again.
fn return_members(local: &mut Local, status: &Status) -> bool {
    if devices(status).any(|m| m.state == MemberState::Faulty) {
        remove(local, status);
        return true;
    }
    let part = &local.parts.devices[0];
    let devices = 0..local.process().devices.len();
    let mut others = devices.filter(|device| !part.is_set_apart(*device));
    let loose = others.any(|device| !local.is_attached(device));
    if loose && status.degraded > 0 {
        add(local);
    }
    loose && status.degraded > 0
}

fn fail(local: &mut Local, status: &Status) {
    let Some(member) = any_member(local, status, &LIVE) else { return };
    if may_fail(local, status, member) {
        // Refused without force as long as a resync is pending.
        let synced = local.parts.all().all(|part| part.synced);
        local.ask(if synced { Command::Fail(member) } else { Command::ForceFail(member) });
    }
}

fn vanish(local: &mut Local, status: &Status) {
    let Some((member, device)) = any_live(local, status) else { return };
    if may_fail(local, status, member) {
        local.note(&[50, device as u64], || format!("TROUBLE device {device} is gone"));
        local.disk_mut(device).set_gone(true);
    }
}

/// Sectors that cannot be read, or not even be written.
fn damage(local: &mut Local, status: &Status, for_good: bool) {
    let Some((member, device)) = any_live(local, status) else { return };
    if local.was_tight || !may_be_damaged(local, status, member) {
        return;
    }
    let part = part_of(status, member);
    let data = local.parts.devices[part].data();
    let count = local.rng.between(1, 4);
    let start = data.start + local.rng.below(data.end - data.start);
    let end = (start + count).min(data.end);
    local.damaged.insert(device, None);
    for sector in start..end {
        // Where parity is in doubt, what cannot be read is lost.
        if local.parts.devices[part].in_doubt(sector) {
            continue;
        }
        local.note(&[51, device as u64, sector], || {
            format!("TROUBLE device {device} sector {sector} breaks, for good: {for_good}")
        });
        if for_good {
            local.disk_mut(device).break_sector(sector);
        } else {
            local.disk_mut(device).lose_sector(sector);
        }
    }
}

/// Makes the same sectors unreadable on more members than the level does without.
pub fn scratch(local: &mut Local, status: &Status) {
    let data = local.parts.devices[0].data();
    let start = data.start + local.rng.below(data.end - data.start);
    let end = (start + local.rng.between(1, 200)).min(data.end);
    local.excess = true;
    let spared = local.rng.pick(&[0, 0, 30]);
    for member in devices(status).filter(|m| m.state == MemberState::InSync) {
        let Some(device) = local.device(member.member) else { continue };
        if local.rng.percent(spared) {
            continue;
        }
        local.damaged.insert(device, None);
        local.note(&[53, device as u64, start, end], || {
            format!("TROUBLE device {device} cannot read {start}..{end}")
        });
        // Where parity is in doubt, what cannot be read is lost.
        for sector in start..end {
            if !local.parts.devices[0].in_doubt(sector) {
                local.disk_mut(device).lose_sector(sector);
            }
        }
    }
}

/// Members have no room any more, one or all, for less long than metadata can wait for it.
fn fill_up(local: &mut Local, status: &Status) {
    // With what cannot be read in what was left torn, some would be lost.
    if local.parts.over.is_some() || local.was_tight || local.disks().into_iter().any(Disk::damaged)
    {
        return;
    }
    let all = local.rng.percent(50);
    let one = any_member(local, status, &LIVE);
    let patience_millis = local.rng.pick(&[1, 100, 5_000, 40_000]);
    let until = local.world.now().plus_millis(patience_millis);
    for member in devices(status).filter(|m| all || Some(m.member) == one) {
        let Some(device) = local.device(member.member) else { continue };
        local.note(&[55, device as u64], || format!("TROUBLE device {device} is full"));
        local.disk_mut(device).set_full(true);
        local.tight.push((device, until));
        local.was_tight = true;
    }
}

/// Makes a device unreadable; writes are still taken.
fn go_blind(local: &mut Local, status: &Status) {
    let Some((member, device)) = any_live(local, status) else { return };
    // Where parity is in doubt, what cannot be read is lost.
    let suspects = &local.parts.devices[part_of(status, member)].suspects;
    if !local.was_tight && suspects.is_empty() && may_be_damaged(local, status, member) {
        local.damaged.insert(device, None);
        local.note(&[52, device as u64], || format!("TROUBLE device {device} cannot be read"));
        local.disk_mut(device).go_blind();
    }
}

/// Answers nothing any more, for a while or until the administrator is tired of it.
fn hang(local: &mut Local, status: &Status) {
    let Some((member, device)) = any_live(local, status) else { return };
    if may_fail(local, status, member) {
        local.note(&[53, device as u64], || format!("TROUBLE device {device} answers nothing"));
        local.disk_mut(device).set_hung(true);
        let patience_millis = local.rng.pick(&[1, 100, 30_000, 120_000]);
        let until = local.world.now().plus_millis(patience_millis);
        local.hangs.push(Hang { device, until, over: false });
    }
}

/// Acts as an administrator on members that have not answered for long. Members that the array
/// needs answer again later.
pub fn relieve(local: &mut Local) {
    let now = local.world.now();
    for (device, _) in local.tight.extract_if(.., |(_, until)| *until <= now) {
        local.world.processes[CLIENT].devices[device].disk.set_full(false);
    }
    if local.spill_fails.is_some_and(|until| until <= now) {
        spill::mend(local);
    }
    let Some(at) = local.hangs.iter().position(|hang| hang.until <= now) else { return };
    let Hang { device, over, .. } = local.hangs[at];
    if over {
        wake(local, at);
        return;
    }
    local.hangs[at] = Hang { device, over: true, until: now.plus_millis(200_000) };
    let status = local.status();
    let mut live = devices(&status).filter(|m| m.state != MemberState::Faulty);
    if let Some(member) = live.find(|m| local.device(m.member) == Some(device)) {
        local.ask(Command::Fail(member.member));
    }
}

fn wake(local: &mut Local, at: usize) {
    let Hang { device, .. } = local.hangs.swap_remove(at);
    local.note(&[54, device as u64], || format!("TROUBLE device {device} answers again"));
    local.world.wake(CLIENT, device);
}

/// Ends a hang, when nothing else is due: the administrator's patience ends, or a device that the
/// array needs answers again. Returns false when there is no hang.
pub fn end_hang(local: &mut Local) -> bool {
    if let Some(hang) = local.hangs.iter_mut().find(|hang| !hang.over) {
        hang.until = local.world.now();
        return true;
    }
    let some = !local.hangs.is_empty();
    if some {
        wake(local, 0);
    }
    some
}

fn remove(local: &mut Local, status: &Status) {
    let states = [MemberState::Faulty, MemberState::Spare];
    if let Some(member) = any_member(local, status, &states) {
        local.ask(Command::Remove(member));
    }
}

/// Adds a device: one that was taken off, as it is or blank, or a new one.
pub fn add(local: &mut Local) {
    // What is still in flight on a device keeps it from being opened again.
    let loose: Vec<_> = (0..local.process().devices.len())
        .filter(|&device| !local.is_attached(device))
        .filter(|&device| !local.parts.devices[0].is_set_apart(device))
        .filter(|&device| local.world.io_of(CLIENT).all(|(other, _)| other != device))
        .collect();
    let blank = loose.is_empty() || local.rng.percent(40);
    if blank {
        add_blank(local);
        return;
    }
    let device = local.rng.pick(&loose);
    let disk = &mut local.world.processes[CLIENT].devices[device].disk;
    if disk.gone() {
        // It comes back from having been without power.
        disk.power_cut(&mut local.rng);
        disk.set_gone(false);
    }
    if local.rng.percent(50) {
        put_back(local, device);
    }
    let readd = local.rng.percent(60);
    ask_to_add(local, device, readd);
}

/// Takes a snapshot of a member in sync.
fn take_snapshot(local: &mut Local, member: MemberId) {
    let Some(device) = local.device(member) else { return };
    let disk = &local.world.processes[CLIENT].devices[device].disk;
    let taken = Snapshot::take(device, disk, &mut local.rng);
    if let Some(snapshot) = taken {
        local.note(&[56, device as u64], || format!("TROUBLE a snapshot of device {device}"));
        local.snapshot = Some(snapshot);
    }
}

/// A loose device goes back to its snapshot, if there is one.
fn put_back(local: &mut Local, device: usize) {
    if let Some(snapshot) = local.snapshot.take_if(|snapshot| snapshot.device == device) {
        local.note(&[57, device as u64], || format!("TROUBLE device {device} is as it was"));
        *local.disk_mut(device) = snapshot.disk;
    }
}

/// The member that goes back to its snapshot once the array is stopped, if it does without.
pub fn goes_back(local: &mut Local) -> Option<Snapshot> {
    if local.scenario.excess {
        return None;
    }
    let device = local.snapshot.as_ref()?.device;
    let status = local.status();
    let member = devices(&status).find(|m| local.device(m.member) == Some(device))?;
    let spared = member.state == MemberState::InSync && may_fail(local, &status, member.member);
    spared.then(|| local.snapshot.take()).flatten()
}

/// Adds a new device.
pub fn add_blank(local: &mut Local) -> Option<CommandId> {
    let fresh = create::fresh_disk(&local.parts.devices[0].scenario);
    local.process_mut().devices.push(Device::new(fresh));
    let device = local.process().devices.len() - 1;
    ask_to_add(local, device, false)
}

fn ask_to_add(local: &mut Local, device: usize, readd: bool) -> Option<CommandId> {
    let member = local.machine().free_member()?;
    let found = assembly::candidate(device, local.disk(device));
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
        device_uuid: create::uuid(&mut local.rng),
    };
    local.process_mut().attach(member, Some(device));
    Some(local.ask(Command::Add(Box::new(new))))
}
