//! Peace and the reckoning: after the last trouble everything must come right, and be right.

use braid_array::action::Command;
use braid_array::events::{SyncAction, SyncEnd};
use braid_array::format::superblock::MAX_SECTOR;
use braid_array::geometry::Strip;
use braid_array::status::{ArrayState, MemberState, Status};
use braid_array::{BlockMachine, Machine, MemberId};

use crate::assembly;
use crate::disk::Disk;
use crate::redundancy::Stopped;
use crate::run::{Report, answer, ask, start, step, syncing};
use crate::troubles;
use crate::workload::Workload;
use crate::world::{Failure, World, holder};

/// Stops the array. What its devices hold then needs no cache.
pub fn stop(world: &mut World) -> Result<Vec<Disk>, Failure> {
    ask(world, Command::Stop)?.map_err(|reason| Failure(format!("stop refused: {reason}")))?;
    if world.in_flight() > 0 {
        return Err(Failure("stopped with requests in flight".to_owned()));
    }
    if !world.exec.machine.idle() || !world.exec.quiet() {
        return Err(Failure("stopped and not idle".to_owned()));
    }
    let flush = world.oracle.flush_submitted();
    world.oracle.flush_completed(flush);
    let synced = world.synced;
    let status = world.exec.machine.status();
    let holders: Vec<_> =
        (0..world.scenario.members).map(|role| world.holder_device(&status, role)).collect();
    let disks = world.power_cut();
    world.synced = synced;
    if world.scenario.tolerance() > 0 {
        let stopped = Stopped::new(&world.scenario, &world.geometry, &disks, &holders);
        stopped.unmarked_difference().map_or(Ok(()), |what| Err(Failure(what)))?;
    }
    Ok(disks)
}

/// All that is left to do gets done: faults end, blank devices take the place of lost ones, and
/// background work ends.
pub fn settle(world: &mut World) -> Result<(), Failure> {
    calm(world)?;
    if world.scenario.tolerance() > 0 {
        make_whole(world)?;
        scrub(world)?;
    }
    world.synced = true;
    read_all(world)
}

/// Nothing new happens, and background work comes to its end.
fn calm(world: &mut World) -> Result<(), Failure> {
    world.note(&[70], || "SETTLE".to_owned());
    for device in 0..world.exec.disks.len() {
        world.exec.wake(device);
    }
    world.hangs.clear();
    world.relax();
    let _ = ask(world, Command::Pause(false))?;
    let fast = Some(1 << 30);
    let _ = ask(world, Command::SpeedLimits { min_bytes_s: fast, max_bytes_s: fast })?;
    let _ = ask(world, Command::StopScrub)?;
    rest(world)
}

/// A check that says it is complete has read everything, and rewritten what it could not.
fn check_over_faults(world: &mut World) -> Result<(), Failure> {
    world.sync_finished = None;
    if ask(world, Command::Scrub { repair: false })?.is_err() {
        return Ok(());
    }
    rest(world)?;
    let status = world.exec.machine.status();
    let complete = matches!(&world.sync_finished, Some((SyncAction::Check, SyncEnd::Complete)));
    for role in 0..world.scenario.members {
        let Some(device) = world.holder_device(&status, role) else { continue };
        let disk = &world.exec.disks[device];
        let bad = disk.unreadable().iter().any(|sector| {
            let sector = sector.wrapping_sub(world.scenario.data_offset);
            let used = sector < status.used_member_sectors;
            // A raid10 may not use the last rows of some members.
            let held = world.geometry.array_sector_at(Strip { role, sector });
            used && (world.scenario.has_parity() || held.is_some())
        });
        if complete && (bad || disk.blind()) {
            return Err(Failure(format!("a check is complete over what {device} cannot read")));
        }
    }
    if !complete && status.unreadable_sectors == 0 && status.mismatch_sectors.is_some() {
        return Err(Failure("a check could not read, and does not say what".to_owned()));
    }
    Ok(())
}

/// Steps until neither request nor background work is left.
fn rest(world: &mut World) -> Result<(), Failure> {
    while !at_rest(world) {
        if !step(world)? {
            return Err(Failure("background work stands still".to_owned()));
        }
    }
    Ok(())
}

fn at_rest(world: &World) -> bool {
    world.in_flight() + world.asked() == 0
        && world.exec.quiet()
        && world.exec.machine.idle()
        && !syncing(world)
}

fn make_whole(world: &mut World) -> Result<(), Failure> {
    // Every round replaces at least one member; there are not more rounds than members.
    for _ in 0..=world.scenario.members * 2 + 4 {
        heal_devices(world)?;
        rest(world)?;
        let status = world.exec.machine.status();
        if status.degraded == 0 && status.unsynced_sectors == 0 && !unsound(world, &status) {
            return Ok(());
        }
        let Some(id) = troubles::add_blank(world) else {
            return Err(Failure("no room for another member".to_owned()));
        };
        if let Err(reason) = answer(world, id)? {
            return Err(Failure(format!("a blank member is refused: {reason}")));
        }
        rest(world)?;
    }
    let status = world.exec.machine.status();
    Err(Failure(format!("still degraded by {} with blank members added", status.degraded)))
}

fn unsound(world: &World, status: &Status) -> bool {
    let members = status.members.iter();
    members.filter(|m| m.state != MemberState::Faulty).any(|m| device_is_bad(world, m.member))
}

fn device_is_bad(world: &World, member: MemberId) -> bool {
    let device = world.exec.device(member).map(|device| &world.exec.disks[device]);
    device.is_none_or(|disk| disk.gone() || disk.damaged())
}

/// Fails what does not work and takes off what failed. Sectors that cannot be read are left: a
/// member whose role nobody else could take over is repaired first, and so is what a resync left.
fn heal_devices(world: &mut World) -> Result<(), Failure> {
    let status = world.exec.machine.status();
    if unsound(world, &status) || status.unsynced_sectors > 0 {
        let _ = ask(world, Command::Scrub { repair: true })?;
        rest(world)?;
    }
    let status = world.exec.machine.status();
    for member in status.members.iter().map(|m| m.member) {
        if device_is_bad(world, member) {
            let _ = ask(world, Command::Fail(member))?;
            rest(world)?;
        }
    }
    let status = world.exec.machine.status();
    for member in status.members.iter().filter(|m| m.state == MemberState::Faulty) {
        ask(world, Command::Remove(member.member))?
            .map_err(|reason| Failure(format!("a faulty member stays: {reason}")))?;
    }
    Ok(())
}

/// A check finds nothing.
fn scrub(world: &mut World) -> Result<(), Failure> {
    ask(world, Command::Scrub { repair: false })?
        .map_err(|reason| Failure(format!("check refused: {reason}")))?;
    world.sync_finished = None;
    rest(world)?;
    let found = world.exec.machine.status().mismatch_sectors;
    if found != Some(0) {
        return Err(Failure(format!("the check finds {found:?} mismatches")));
    }
    match &world.sync_finished {
        Some((SyncAction::Check, SyncEnd::Complete)) => Ok(()),
        other => Err(Failure(format!("the check did not reach the end: {other:?}"))),
    }
}

/// Reads and judges every sector.
fn read_all(world: &mut World) -> Result<(), Failure> {
    let sectors = world.exec.machine.array_sectors();
    let mut reads = Workload::sweep(sectors);
    while reads.more() || world.in_flight() > 0 {
        while reads.more() && world.submit(&mut reads)? {}
        step(world)?;
    }
    world.outputs()
}

/// Superblocks of a stopped array: clean, and all equally new.
fn clean_superblocks(world: &World, status: &Status, disks: &[Disk]) -> Result<(), Failure> {
    let mut events = None;
    for role in 0..world.scenario.members {
        let Some(device) = holder(status, role).and_then(|m| world.exec.device(m)) else {
            continue;
        };
        let Ok(superblock) = assembly::candidate(disks, device).superblock else {
            return Err(Failure(format!("no superblock on device {device} after a stop")));
        };
        if superblock.resync_offset != MAX_SECTOR {
            return Err(Failure(format!("device {device} is not clean after a stop")));
        }
        if *events.get_or_insert(superblock.events) != superblock.events {
            return Err(Failure("event counts differ after a stop".to_owned()));
        }
    }
    Ok(())
}

/// Stops, and reads the array once more with every member and without as many as it survives.
pub fn verify(mut world: World) -> Result<Report, Failure> {
    let status = world.exec.machine.status();
    let holders: Vec<_> =
        (0..world.scenario.members).filter_map(|r| world.holder_device(&status, r)).collect();
    let mut disks = stop(&mut world)?;
    clean_superblocks(&world, &status, &disks)?;
    let tolerance = world.scenario.tolerance();
    let mut subsets = vec![Vec::new()];
    for _ in 0..if tolerance > 0 { 2 } else { 0 } {
        let mut without = Vec::new();
        for _ in 0..tolerance {
            let device = world.rng.pick(&holders);
            if !without.contains(&device) {
                without.push(device);
            }
        }
        subsets.push(without);
    }
    for without in subsets {
        let (exec, forced) =
            start(disks, &world.scenario, &mut world.rng, &mut world.trace, Some(&without))?;
        if forced {
            return Err(Failure("dirty after a clean stop".to_owned()));
        }
        world.restart(exec);
        world.synced = true;
        world.exec.read_only = true;
        world.exec.drain(&mut world.trace);
        read_all(&mut world).map_err(|Failure(what)| {
            Failure(format!("after a clean stop, without devices {without:?}: {what}"))
        })?;
        disks = std::mem::take(&mut world.exec.disks);
    }
    Ok(report(&world))
}

/// More was broken than the level survives. Requests were answered, nothing read was wrong; the
/// devices' metadata must still make sense.
pub fn after_excess(mut world: World) -> Result<Report, Failure> {
    let disks = if world.exec.machine.status().state == ArrayState::Failed {
        world.power_cut()
    } else {
        calm(&mut world)?;
        check_over_faults(&mut world)?;
        read_all(&mut world)?;
        // What was left out, and differs, must not hide behind what cannot be read.
        world.exec.disks.iter_mut().for_each(Disk::read_again);
        stop(&mut world)?
    };
    assembly::examine(&disks);
    Ok(report(&world))
}

fn report(world: &World) -> Report {
    Report { trace_hash: world.trace.hash(), events: world.trace.events() }
}
