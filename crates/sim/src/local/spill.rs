//! The device beside the members that what is moved in place is saved to: its place in the world,
//! its faults, and how an array that stopped in the middle of such a move is brought to where it
//! goes on, as the command does it: restored from the device, which is interrupted at times.

use braid_array::action::{Command, NewMember};
use braid_array::assemble::{
    Candidate, Config, Halfway, Options, Settlement, SettlingWrite, SpillConfig, Start, decide,
    decide_saving,
};
use braid_array::format::backup::{BackupHeader, HEADER_SECTORS};
use braid_array::grow::{self, Grow, NewShape};
use braid_array::level::Level;
use braid_array::status::{SpillStatus, Status};
use braid_array::{MemberId, SECTOR_BYTES};

use super::{CLIENT, Local};
use crate::disk::Disk;
use crate::local::assembly::{self, Attached, How, Refusal};
use crate::local::part::Part;
use crate::rng::Rng;
use crate::world::process::Device;

/// Length of the header's part that names a range.
const LENGTH_AT: usize = 56;

/// A start, or what came in between.
enum Tried {
    Ready(Box<(Config, Attached)>),
    /// The power was cut.
    Cut,
    /// This device takes no writes where it has to.
    Unwritable(usize),
}

/// Plans a move in place. Returns with it the least that is saved at a time, on the way back too.
pub fn planned(status: &Status, wish: Grow) -> Option<(NewShape, u64)> {
    let mut status = status.clone();
    status.spill = Some(SpillStatus {
        member: MemberId(u16::MAX),
        device: "spill".to_owned(),
        sectors: u64::MAX,
        is_over: false,
    });
    let shape = grow::plan(&status, wish).ok()?;
    let superblock = &status.superblock;
    let parity = Level::from_md(superblock.level).map_or(0, Level::parity_disks);
    let disks = superblock.raid_disks.max(shape.raid_disks) - parity;
    let chunk = superblock.chunk_sectors.max(shape.chunk_sectors);
    Some((shape, u64::from(disks) * u64::from(chunk)))
}

/// Returns whether the array has a device that it saves to.
pub fn has_one(status: &Status) -> bool {
    status.spill.as_ref().is_some_and(|spill| !spill.is_over)
}

/// Gives the array a device with room for so many sectors of it: a new file in the place of the
/// last one. Returns whether it could.
pub fn attach(local: &mut Local, room: u64) -> bool {
    let Some(member) = local.machine().free_member() else { return false };
    let part = &local.parts.devices[0];
    let mut disk = Disk::new(HEADER_SECTORS + room);
    disk.put(0, &empty(part));
    let device = part.spill.unwrap_or(local.process().devices.len());
    if local.world.io_of(CLIENT).any(|(other, _)| other == device) {
        return false;
    }
    local.parts.devices[0].spill = Some(device);
    let device_sectors = disk.sectors();
    let devices = &mut local.process_mut().devices;
    match devices.get_mut(device) {
        Some(old) => *old = Device::new(disk),
        None => devices.push(Device::new(disk)),
    }
    local.process_mut().attach(member, Some(device));
    local.ask(Command::Spill(Box::new(NewMember {
        member,
        device: format!("d{device}"),
        device_sectors,
        superblock: None,
        bad_blocks: None,
        readd: false,
        device_uuid: [0; 16],
    })));
    true
}

/// A header that tells of nothing.
fn empty(part: &Part) -> Vec<u8> {
    BackupHeader { set_uuid: part.set_uuid, mtime: 0, start: 0, length: 0 }.encode()
}

/// Returns whether the device of a stopped array holds what is nowhere else.
pub fn is_needed(part: &Part, disks: &[Disk]) -> bool {
    part.spill.is_some_and(|device| {
        let length = LENGTH_AT..LENGTH_AT + 8;
        part.shape.moves() && disks[device].image()[length].iter().any(|byte| *byte != 0)
    })
}

/// At times, the device fails for a while, in one way or another.
pub fn trouble(local: &mut Local, rng: &mut Rng) {
    let Some(device) = local.parts.devices[0].spill.filter(|device| local.is_attached(*device))
    else {
        return;
    };
    if local.spill_fails.is_some() || !rng.percent(6) {
        return;
    }
    let way = rng.below(6);
    local.note(&[58, device as u64, way], || format!("TROUBLE device {device} fails: {way}"));
    let disk = local.disk_mut(device);
    let sectors = disk.sectors();
    let from = rng.below(sectors);
    let end = (from + rng.between(1, 64)).min(sectors);
    match way {
        0 => disk.set_gone(true),
        1 => disk.set_full(true),
        2 => disk.set_hung(true),
        3 => disk.go_blind(),
        4 => (from..end).for_each(|sector| disk.lose_sector(sector)),
        _ => (from..end).for_each(|sector| disk.break_sector(sector)),
    }
    let millis = rng.pick(&[1, 100, 5_000, 40_000, 70_000]);
    local.spill_fails = Some(local.world.now().plus_millis(millis));
    local.spill_failed = true;
}

/// Another life begins: faults that it was started with last for a moment.
pub fn restarted(local: &mut Local) {
    let device = local.parts.devices[0].spill;
    local.spill_failed = device.is_some_and(|device| local.disk(device).damaged());
    local.spill_fails = local.spill_failed.then(|| local.world.now().plus_millis(100));
}

/// The device has no faults any more. Returns whether it had.
pub fn mend(local: &mut Local) -> bool {
    if local.spill_fails.take().is_none() {
        return false;
    }
    if let Some(device) = local.parts.devices[0].spill {
        local.note(&[59, device as u64], || format!("TROUBLE device {device} works again"));
        local.disk_mut(device).mend();
        local.world.wake(CLIENT, device);
    }
    true
}

/// Brings an array that was refused for this reason to where a move in place goes on, with the
/// device that it saved to; at times without, which is refused as long as that device is needed.
///
/// # Errors
/// The reason for refusing it still.
pub fn go_on(
    disks: &mut [Disk],
    part: &Part,
    how: How<'_>,
    rng: &mut Rng,
    why: Refusal,
) -> Result<(Config, Attached), Refusal> {
    let Some(spill) = part.spill else { return Err(why) };
    disks.iter_mut().for_each(|disk| disk.set_full(false));
    let mut with = if rng.percent(30) || disks[spill].gone() { None } else { Some(spill) };
    let mut without = how.without.to_vec();
    loop {
        let how = How { without: &without, ..how };
        match tried(disks, part, with, how, rng) {
            Ok(Tried::Ready(ready)) => return Ok(*ready),
            Ok(Tried::Cut) => {}
            // The administrator leaves it out.
            Ok(Tried::Unwritable(device)) => without.push(device),
            Err(_) if with.is_none() || disks[spill].damaged() => {
                disks[spill].mend();
                with = Some(spill);
            }
            Err(refusal) => {
                return Err(Refusal {
                    could_force: why.could_force || refusal.could_force,
                    reason: format!("{}; {}", why.reason, refusal.reason),
                });
            }
        }
    }
}

fn tried(
    disks: &mut [Disk],
    part: &Part,
    spill: Option<usize>,
    how: How<'_>,
    rng: &mut Rng,
) -> Result<Tried, Refusal> {
    let candidates = assembly::candidates(disks, part.set_uuid, how);
    let to_read = Options { read_only: true, ..how.options() };
    let mut halfway = match decide(candidates.clone(), to_read).start {
        Start::Halfway(halfway) => halfway,
        Start::Refused { reason, could_force, .. } => return Err(Refusal { reason, could_force }),
        Start::Ready { .. } => return Err(Refusal::flat("it can be read")),
    };
    let settlement = settled(disks, &mut halfway, spill, &candidates)
        .map_err(|reason| Refusal { reason, could_force: false })?;
    let candidates = settlement.candidates.clone();
    let assembly = if settlement.saves() {
        decide_saving(candidates, how.options())
    } else {
        decide(candidates, how.options())
    };
    let (mut config, mut attached) = assembly::started(assembly, how)?;
    let interrupted = written(disks, &settlement, rng);
    if let Some(tried) = interrupted {
        return Ok(tried);
    }
    if let Some(device) = spill
        && settlement.saves()
    {
        let disk = &mut disks[device];
        if disk.writable(0, HEADER_SECTORS).is_err() {
            return Err(Refusal::flat("the header cannot be written"));
        }
        disk.write(0, &empty(part), true);
        attached.push((MemberId(config.members.len() as u16), device));
        config.spill = Some(SpillConfig { device: format!("d{device}"), sectors: disk.sectors() });
    }
    Ok(Tried::Ready(Box::new((config, attached))))
}

/// What is to be written before it goes on.
fn settled(
    disks: &[Disk],
    halfway: &mut Halfway,
    spill: Option<usize>,
    candidates: &[Candidate],
) -> Result<Settlement, String> {
    let mut read = |device: &str, sector: u64, bytes: usize| {
        disks[number(device)?].bytes(sector, bytes as u32).ok()
    };
    halfway.look(&mut read).map_err(|refusal| refusal.to_string())?;
    match spill {
        Some(spill) => {
            let device = format!("d{spill}");
            let header = read(&device, 0, Halfway::BACKUP_HEADER_BYTES);
            let header = header.ok_or("the header cannot be read")?;
            let added = halfway.add_backup(&device, disks[spill].sectors(), &header);
            added.map_err(|why| why.to_string())?;
        }
        None => halfway
            .add_backups_on_members(&mut read)
            .map_err(|(device, why)| format!("{device}: {why}"))?,
    }
    halfway.weigh(&mut read);
    let settlement = halfway.settled(candidates, 0, spill.is_some(), &mut read);
    settlement.ok_or_else(|| format!("{}, and does not go on", halfway.description()))
}

/// Writes it, all data before the superblocks, unless the power is cut or something cannot be
/// written.
fn written(disks: &mut [Disk], settlement: &Settlement, rng: &mut Rng) -> Option<Tried> {
    let count = settlement.data.len() + settlement.metadata.len();
    let mut left = rng.percent(25).then(|| rng.below(count as u64 + 1));
    for writes in [&settlement.data, &settlement.metadata] {
        for SettlingWrite { device, sector, bytes } in writes {
            if left == Some(0) {
                disks.iter_mut().for_each(|disk| disk.power_cut(rng));
                return Some(Tried::Cut);
            }
            left = left.map(|left| left - 1);
            let device = number(device)?;
            let disk = &mut disks[device];
            if disk.writable(*sector, bytes.len() as u64 / SECTOR_BYTES).is_err() {
                return Some(Tried::Unwritable(device));
            }
            disk.write(*sector, bytes, false);
        }
        disks.iter_mut().for_each(|disk| disk.flush(disk.mark()));
    }
    None
}

/// The device of a candidate.
fn number(device: &str) -> Option<usize> {
    device.strip_prefix('d')?.parse().ok()
}
