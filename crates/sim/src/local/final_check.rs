//! Peace and the reckoning: after the last trouble everything must come right, and be right.

use braid_array::action::Command;
use braid_array::events::{SyncAction, SyncEnd};
use braid_array::format::Superblock;
use braid_array::format::superblock::{MAX_SECTOR, feature};
use braid_array::geometry::Strip;
use braid_array::level::{Level, ParityLayout};
use braid_array::status::{ArrayState, MemberState, MemberStatus, Status};
use braid_array::{MemberId, Role};

use crate::disk::Disk;
use crate::local::assembly;
use crate::local::part::{Part, arrays, devices, holder};
use crate::local::progress::{answer, ask, restart, step, syncing};
use crate::local::redundancy::Stopped;
use crate::local::scenario::Log;
use crate::local::spill;
use crate::local::troubles;
use crate::local::{CLIENT, Local};
use crate::report::{Failure, Report};
use crate::workload::Workload;

/// Stops the array. After the stop, the devices need no cache.
pub fn stop(local: &mut Local) -> Result<Vec<Disk>, Failure> {
    ask(local, Command::Stop)?.map_err(|reason| Failure(format!("stop refused: {reason}")))?;
    if local.in_flight() > 0 {
        return Err(Failure("stopped with requests in flight".to_owned()));
    }
    if !local.machine().idle() || !local.world.rests(CLIENT) {
        return Err(Failure("stopped and not idle".to_owned()));
    }
    local.judge.all_is_durable();
    let synced: Vec<bool> = local.parts.all().map(|part| part.synced).collect();
    let status = local.status();
    local.look(&status);
    let holders = local.holders(&status);
    let disks = local.power_cut();
    for (part, synced) in local.parts.all_mut().zip(synced) {
        part.synced = synced;
    }
    for (part, holders) in
        local.parts.devices.iter().zip(holders).filter(|(part, _)| part.redundant())
    {
        if spill::is_needed(part, &disks) {
            continue;
        }
        let stopped = Stopped::new(&part.scenario, &part.shape, &disks, &holders);
        stopped.unmarked_difference().map_or(Ok(()), |what| Err(Failure(what)))?;
    }
    Ok(disks)
}

/// All that is left to do gets done: faults end, blank devices take the place of lost ones, and
/// background work ends.
pub fn make_right(local: &mut Local) -> Result<(), Failure> {
    end_troubles(local)?;
    if local.parts.devices.iter().any(Part::redundant) {
        make_whole(local)?;
        if local.lost_in_doubt {
            // What was lost then stays so, and a check says it.
            return Ok(());
        }
        if local.copies_in_doubt {
            let repair = ask(local, Command::Scrub { repair: true })?;
            repair.map_err(|reason| Failure(format!("repair refused: {reason}")))?;
            run_until_idle(local)?;
        }
        scrub(local)?;
    }
    logs_are_on(local)?;
    local.parts.all_mut().for_each(|part| part.synced = true);
    read_all(local)
}

/// Waits until partial parity logs that were off for a change of the shape are back: a try that
/// members had no room for is followed by another one.
fn logs_are_on(local: &mut Local) -> Result<(), Failure> {
    let has_logs = matches!(local.parts.devices[0].scenario.log, Log::PartialParity(_));
    while has_logs && !local.status().superblock.has(feature::ANY_PPL) {
        if !step(local)? {
            return Err(Failure("partial parity logs do not come back".to_owned()));
        }
    }
    Ok(())
}

/// Ends all troubles, and lets background work finish.
pub fn end_troubles(local: &mut Local) -> Result<(), Failure> {
    local.note(&[70], || "NO MORE TROUBLES".to_owned());
    for device in 0..local.process().devices.len() {
        local.world.wake(CLIENT, device);
    }
    local.hangs.clear();
    local.relax();
    spill::mend(local);
    let _ = ask(local, Command::Pause(false))?;
    let fast = Some(1 << 30);
    let _ = ask(local, Command::SpeedLimits { min_bytes_s: fast, max_bytes_s: fast })?;
    let _ = ask(local, Command::StopScrub)?;
    run_until_idle(local)
}

/// Checks that a complete check has read everything, and rewritten unreadable sectors.
fn check_over_faults(local: &mut Local) -> Result<(), Failure> {
    local.parts.devices[0].sync_finished = None;
    if ask(local, Command::Scrub { repair: false })?.is_err() {
        return Ok(());
    }
    run_until_idle(local)?;
    let status = local.status();
    let part = &local.parts.devices[0];
    let complete = part.checked();
    for role in Role::all(part.roles()) {
        let Some(device) = local.holder_device(&status, role) else { continue };
        let disk = local.disk(device);
        let compared = |sector| {
            sector < status.used_member_sectors
                && has_others(local, &status, Strip { role, sector })
        };
        let row = |sector: &u64| sector.wrapping_sub(part.shape.data_offset);
        let bad = disk.unreadable().iter().map(row).any(compared)
            || disk.blind() && (0..status.used_member_sectors).any(compared);
        if complete && bad {
            return Err(Failure(format!("a check is complete over what {device} cannot read")));
        }
    }
    if !complete && status.unreadable_sectors == 0 && status.mismatch_sectors.is_some() {
        return Err(Failure("a check could not read, and does not say what".to_owned()));
    }
    Ok(())
}

/// Returns whether a strip can be compared with another one. A raid10 may not use the last rows of
/// some members, and thus have a single copy of others.
fn has_others(local: &Local, status: &Status, strip: Strip) -> bool {
    let part = &local.parts.devices[0];
    if part.scenario.has_parity() {
        return true;
    }
    let Some(sector) = part.shape.geometry.array_sector_at(strip) else { return false };
    let geometry = &part.shape.geometry;
    let roles = (0..geometry.copies()).map(|copy| geometry.copy(sector, copy).role);
    roles.filter(|role| *role != strip.role).any(|role| holder(status, role).is_some())
}

/// Steps until neither request nor background work is left.
pub fn run_until_idle(local: &mut Local) -> Result<(), Failure> {
    while !is_idle(local) {
        if !step(local)? {
            return Err(Failure("background work stands still".to_owned()));
        }
    }
    Ok(())
}

fn is_idle(local: &mut Local) -> bool {
    local.in_flight() + local.asked() == 0
        && local.world.rests(CLIENT)
        && local.machine().idle()
        && !syncing(local)
        && !waits_for_spill(local)
}

/// Returns whether a move in place has stopped for what it saves to, and is tried again.
fn waits_for_spill(local: &mut Local) -> bool {
    let part = &local.parts.devices[0];
    let (Some(spill), Some((SyncAction::Reshape, SyncEnd::Interrupted { reason }))) =
        (part.spill, &part.sync_finished)
    else {
        return false;
    };
    let is_spill = *reason == format!("d{spill} cannot be written or read");
    is_spill && local.status().superblock.has(feature::RESHAPE_ACTIVE)
}

fn make_whole(local: &mut Local) -> Result<(), Failure> {
    // Every round replaces at least one member; there are not more rounds than members.
    let roles: u16 = local.parts.devices.iter().map(Part::roles).sum();
    for _ in 0..=roles * 2 + 4 {
        heal_devices(local)?;
        run_until_idle(local)?;
        let status = local.status();
        if status.degraded == 0 && status.unsynced_sectors == 0 && !unsound(local, &status) {
            return Ok(());
        }
        let Some(id) = troubles::add_blank(local) else {
            return Err(Failure("no room for another member".to_owned()));
        };
        if let Err(reason) = answer(local, id)? {
            return Err(Failure(format!("a blank member is refused: {reason}")));
        }
        run_until_idle(local)?;
    }
    if local.lost_in_doubt && !local.parts.devices.iter().all(|part| part.scenario.bad_block_log) {
        // No new member can note that it lacks what was lost: nobody takes over before it is
        // written.
        return Ok(());
    }
    let status = local.status();
    if status.degraded == 0 && status.superblock.level == 6 && status.unreadable_sectors > 0 {
        // Two parities say different things of what cannot be read: a repair takes neither, and it
        // stays so until it is written.
        local.note_lost(true);
        if local.lost_in_doubt {
            return Ok(());
        }
    }
    Err(Failure(format!("still degraded by {} with blank members added", status.degraded)))
}

fn unsound(local: &Local, status: &Status) -> bool {
    devices(status)
        .filter(|m| m.state != MemberState::Faulty)
        .any(|m| device_is_bad(local, m.member))
}

fn device_is_bad(local: &Local, member: MemberId) -> bool {
    let device = local.device(member).map(|device| local.disk(device));
    device.is_none_or(|disk| disk.gone() || disk.damaged())
}

/// Fails broken members and removes failed ones. Unreadable sectors stay. A member without a
/// substitute for its role is repaired first, and so are ranges left by a resync.
fn heal_devices(local: &mut Local) -> Result<(), Failure> {
    let status = local.status();
    if unsound(local, &status) || status.unsynced_sectors > 0 {
        let _ = ask(local, Command::Scrub { repair: true })?;
        run_until_idle(local)?;
    }
    let status = local.status();
    for member in devices(&status).map(|m| m.member) {
        if device_is_bad(local, member) {
            let _ = ask(local, Command::Fail(member))?;
            run_until_idle(local)?;
        }
    }
    let status = local.status();
    for member in devices(&status).filter(|m| m.state == MemberState::Faulty) {
        ask(local, Command::Remove(member.member))?
            .map_err(|reason| Failure(format!("a faulty member stays: {reason}")))?;
    }
    Ok(())
}

/// A check finds nothing.
fn scrub(local: &mut Local) -> Result<(), Failure> {
    ask(local, Command::Scrub { repair: false })?
        .map_err(|reason| Failure(format!("check refused: {reason}")))?;
    local.parts.all_mut().for_each(|part| part.sync_finished = None);
    run_until_idle(local)?;
    let found = local.status().mismatch_sectors;
    if found != Some(0) {
        return Err(Failure(format!("the check finds {found:?} mismatches")));
    }
    let not_checked = local.parts.all().find(|part| part.redundant() && !part.checked());
    not_checked.map_or(Ok(()), |part| {
        Err(Failure(format!("the check did not reach the end: {:?}", part.sync_finished)))
    })
}

/// Reads and judges every sector.
fn read_all(local: &mut Local) -> Result<(), Failure> {
    let sectors = local.machine().array_sectors();
    let mut reads = Workload::sweep(sectors);
    while reads.more() || local.in_flight() > 0 {
        while reads.more() && local.submit(&mut reads)? {}
        step(local)?;
    }
    local.outputs()
}

/// Superblocks of a stopped array: clean, and all equally new, with data where they are to be.
/// `begins`: by device, where.
fn clean_superblocks(
    holders: &[usize],
    begins: &[Option<u64>],
    disks: &[Disk],
) -> Result<(), Failure> {
    let superblock = |device: usize| assembly::candidate(device, &disks[device]).superblock;
    let is_left = |device| superblock(device).is_ok_and(|it| is_left_at_begin(&it));
    let mut events = None;
    for &device in holders {
        let Ok(superblock) = superblock(device) else {
            return Err(Failure(format!("no superblock on device {device} after a stop")));
        };
        if superblock.resync_offset != MAX_SECTOR {
            return Err(Failure(format!("device {device} is not clean after a stop")));
        }
        if is_left_at_begin(&superblock) {
            continue;
        }
        let at_place = begins[device] == Some(superblock.data_offset);
        if !at_place || superblock.has(feature::RESHAPE_ACTIVE) {
            return Err(Failure(format!("device {device} tells of another shape after a stop")));
        }
        let is_alike = *events.get_or_insert(superblock.events) == superblock.events;
        if !is_alike && !holders.iter().any(|device| is_left(*device)) {
            return Err(Failure("event counts differ after a stop".to_owned()));
        }
    }
    Ok(())
}

/// Returns whether the power went when members were told that stripes are to move. It counts as not
/// begun, and superblocks of stripes are left as they are.
fn is_left_at_begin(superblock: &Superblock) -> bool {
    superblock.has(feature::RESHAPE_ACTIVE)
        && superblock.reshape.position == 0
        && superblock.level == Level::Raid4.to_md()
        && superblock.layout == ParityLayout::ParityLast as u32
}

/// Stops, and reads the array once more with every member and without as many as it survives.
pub fn verify(mut local: Local) -> Result<Report, Failure> {
    let status = local.status();
    let holders: Vec<Vec<usize>> = local
        .holders(&status)
        .into_iter()
        .map(|part| part.into_iter().flatten().collect())
        .collect();
    let members = || arrays(&status).iter().flat_map(|array| &array.members);
    let begins = |device| {
        let is_there = |m: &&MemberStatus| local.process().device_of(m.member) == Some(device);
        members().find(is_there).map(|member| member.data_offset)
    };
    let begins: Vec<Option<u64>> = (0..local.process().devices.len()).map(begins).collect();
    let mut disks = stop(&mut local)?;
    for holders in &holders {
        clean_superblocks(holders, &begins, &disks)?;
    }
    let mut subsets = vec![Vec::new()];
    for _ in 0..if local.parts.devices.iter().any(Part::redundant) { 2 } else { 0 } {
        let mut without = Vec::new();
        for (part, holders) in local.parts.devices.iter().zip(&holders) {
            for _ in 0..part.tolerance() {
                let device = local.rng.pick(holders);
                if !without.contains(&device) {
                    without.push(device);
                }
            }
        }
        subsets.push(without);
    }
    for without in subsets {
        if restart(&mut local, disks, Some(&without))? {
            return Err(Failure("dirty after a clean stop".to_owned()));
        }
        local.parts.all_mut().for_each(|part| part.synced = true);
        local.world.drain(CLIENT);
        read_all(&mut local).map_err(|Failure(what)| {
            Failure(format!("after a clean stop, without devices {without:?}: {what}"))
        })?;
        disks = local.process_mut().take_disks();
    }
    Ok(Report::of(&local.world.trace))
}

/// More was broken than the level survives. Requests were answered, nothing read was wrong; the
/// devices' metadata must still make sense.
pub fn after_excess(mut local: Local) -> Result<Report, Failure> {
    let disks = if local.status().state == ArrayState::Failed {
        local.power_cut()
    } else {
        end_troubles(&mut local)?;
        if local.parts.over.is_none() {
            check_over_faults(&mut local)?;
        }
        read_all(&mut local)?;
        // What was left out, and differs, must not hide behind what cannot be read.
        local.process_mut().devices.iter_mut().for_each(|device| device.disk.read_again());
        stop(&mut local)?
    };
    Ok(examined(&local, &disks))
}

/// The devices' metadata make sense, which is all that is asked of them.
pub fn examined(local: &Local, disks: &[Disk]) -> Report {
    assembly::examine(disks);
    Report::of(&local.world.trace)
}
