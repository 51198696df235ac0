//! Superblocks for a recovered array. The overwritten data are saved first.

use std::path::{Path, PathBuf};

use braid_array::code::Losses;
use braid_array::format::superblock::{MAX_SECTOR, feature};
use braid_array::format::{DevRole, Superblock, Version};
use braid_array::level::Level;
use braid_array::name::{check_new_name, stored_name};
use braid_array::refusal::Advised;
use braid_array::{Role, SECTOR_BYTES};
use braid_host::member::MemberFile;
use braid_rescue::recover::Confidence;
use uuid::Uuid;

use super::left::Left;
use super::saved::{Saved, SavedMember, write};
use super::{OPERATION, open_as};
use crate::cmd::found::Use;
use crate::cmd::writes;
use crate::failure::{Failure, system_error};
use crate::output;
use crate::output::recovered::{PlacedMember, Recovered};

/// Sectors written for a superblock.
const SUPERBLOCK_SECTORS: u64 = 8;
const SUPERBLOCK_BYTES: usize = (SUPERBLOCK_SECTORS * SECTOR_BYTES) as usize;

/// Writes them for the best hypothesis, if it is as good as certain: to the members, or to files in
/// a directory.
pub(super) fn run(name: &str, found: &[Recovered], overlay: Option<&Path>) -> Result<(), Failure> {
    check_new_name(name).map_err(|error| Failure::usage(OPERATION, name, error, error.next()))?;
    let Some(best) = found.first() else { return Ok(()) };
    check(name, best)?;
    let there: Vec<(Role, &PlacedMember)> = (0..)
        .map(Role)
        .zip(&best.roles)
        .filter_map(|(role, place)| Some((role, place.as_ref()?)))
        .collect();
    let paths: Vec<PathBuf> = there.iter().map(|(_, place)| PathBuf::from(&place.member)).collect();
    let devices = open_as(&paths, Use::change(overlay))?;
    let members: Vec<(Role, u64, &MemberFile)> = there
        .iter()
        .zip(&devices)
        .map(|((role, place), device)| (*role, place.data_offset_bytes / SECTOR_BYTES, device))
        .collect();
    let left = Left::of(best, &members)?;
    let superblocks = plan(name, best, &members, &left)?;
    let saved = Saved {
        schema: 1,
        name: name.to_owned(),
        members: members
            .iter()
            .zip(&superblocks)
            .map(|((_, _, device), superblock)| save(device, superblock))
            .collect::<Result<_, Failure>>()?,
    };
    for ((_, _, device), one) in members.iter().zip(&saved.members) {
        let place = (one.offset_bytes / SECTOR_BYTES, SUPERBLOCK_BYTES);
        writes::prove_writable(OPERATION, device, std::iter::once(place))?;
    }
    let file = PathBuf::from(format!("braid-recover-{name}.saved"));
    if overlay.is_none() {
        saved.store(&file)?;
    }
    for ((_, _, device), one) in members.iter().zip(&saved.members) {
        write(device, one.offset_bytes, &one.new.0)?;
    }
    let names: Vec<String> = there.iter().map(|(_, place)| place.member.clone()).collect();
    let names = names.join(", ");
    let file = file.display();
    output::answer(&match overlay {
        None => format!(
            "superblocks written for {name} on {names}\nwhat they overwrote is in {file}, and \
             comes back by braid recover --undo {file}\n"
        ),
        Some(dir) => format!(
            "superblocks written for {name} to files in {}\n{names} are as they were\n",
            dir.display()
        ),
    })
}

/// Checks that the hypothesis is good enough to be written to disks.
fn check(name: &str, best: &Recovered) -> Result<(), Failure> {
    let refused =
        |reason: String, next: &'static str| Err(Failure::refused(OPERATION, name, reason, next));
    if best.confidence != Confidence::High {
        let first = best.evidence.first().map(String::as_str).unwrap_or_default();
        let reason = format!("the best hypothesis is {}: {first}", best.confidence.name());
        return refused(reason, "look at the content with the command that braid recover prints");
    }
    let shape = best.shape;
    let roles = &best.roles;
    let lost = |role: Role| roles.get(role.index()).is_none_or(Option::is_none);
    if !Losses::of(shape.level, shape.layout, shape.raid_disks).is_ok_and(|l| l.survives(lost)) {
        return refused("too many of its members are missing".into(), "name more of them");
    }
    Ok(())
}

/// The superblocks, in the order of the members.
fn plan(
    name: &str,
    best: &Recovered,
    members: &[(Role, u64, &MemberFile)],
    left: &Left,
) -> Result<Vec<Superblock>, Failure> {
    let newest = left.newest();
    let Some(version) = version(members, newest.map(|newest| newest.version)) else {
        let reason = "there is no room for superblocks before the data, nor behind them";
        let next = "serve it with the command that braid recover prints";
        return Err(Failure::refused(OPERATION, name, reason, next));
    };
    let smallest = check_room(name, best, members, version, newest)?;
    let found = superblock_of(name, best, members, version, smallest);
    let shared = newest.map_or(found.clone(), |newest| Superblock {
        bblog_size_sectors: 0,
        bblog_offset_sectors: 0,
        corrected_reads: 0,
        devflags: 0,
        ..as_one(newest, &found, feature::RAID0_LAYOUT)
    });
    let number = |role: Role| {
        let mut roles = shared.roles.iter();
        let number = roles.position(|held| *held == DevRole::Active(role));
        number.and_then(|number| u32::try_from(number).ok()).unwrap_or(role.0.into())
    };
    let each = members.iter().zip(&left.each).map(|(one, left)| {
        let (role, offset, device) = *one;
        if let Some(left) = left {
            let own = as_one(left, &found, feature::RAID0_LAYOUT | feature::BAD_BLOCKS);
            return own.with_news_of(&shared);
        }
        Superblock {
            data_offset: offset,
            data_size: room(version, one),
            super_offset: version.location(device.sectors).unwrap_or(0),
            dev_number: number(role),
            device_uuid: Uuid::new_v4().into_bytes(),
            ..shared.clone()
        }
    });
    Ok(each.collect())
}

/// A superblock that is left, as one of the array that was found. A bitmap would have to be on all
/// members.
fn as_one(left: &Superblock, found: &Superblock, features: u32) -> Superblock {
    Superblock {
        set_name: found.set_name,
        utime: found.utime,
        feature_map: left.feature_map & features,
        bitmap_offset_sectors: 0,
        ..left.clone()
    }
}

/// Sectors for data on a member.
fn room(version: Version, (_, offset, device): &(Role, u64, &MemberFile)) -> u64 {
    end(version, device).saturating_sub(*offset)
}

/// Checks that there is room for data on all members, and returns how much each has.
fn check_room(
    name: &str,
    best: &Recovered,
    members: &[(Role, u64, &MemberFile)],
    version: Version,
    newest: Option<&Superblock>,
) -> Result<u64, Failure> {
    let room = |one| room(version, one);
    let chunk = u64::from(best.shape.chunk_sectors.max(SUPERBLOCK_SECTORS as u32));
    let smallest = members.iter().map(room).min().unwrap_or(0) / chunk * chunk;
    let used = newest.map(|newest| newest.size_sectors).filter(|sectors| *sectors > 0);
    let enough = match used {
        Some(sectors) => sectors <= smallest,
        None => best.needed_sectors.is_none_or(|needed| needed <= best.array_sectors(smallest)),
    };
    if !enough || smallest == 0 {
        let reason = "beside superblocks there is no room for what lies on the array";
        let next = "serve it with the command that braid recover prints";
        return Err(Failure::refused(OPERATION, name, reason, next));
    }
    let unequal = members.iter().any(|one| room(one) / chunk * chunk != smallest);
    if best.shape.level == Level::Raid0 && unequal && newest.is_none() {
        let reason = "its members are not of one size, and nothing tells how md laid out the rest";
        let next = "serve it with the command that braid recover prints";
        return Err(Failure::refused(OPERATION, name, reason, next));
    }
    Ok(smallest)
}

/// Returns the superblock of the recovered array, without the fields of a single member.
fn superblock_of(
    name: &str,
    best: &Recovered,
    members: &[(Role, u64, &MemberFile)],
    version: Version,
    smallest: u64,
) -> Superblock {
    let mut roles = vec![DevRole::Spare; best.roles.len().next_multiple_of(128)];
    for (role, _, _) in members {
        roles[role.index()] = DevRole::Active(*role);
    }
    let now = writes::now();
    Superblock {
        version,
        set_uuid: Uuid::new_v4().into_bytes(),
        set_name: Superblock::name_field(&stored_name(&output::host_name(), name)),
        ctime: now,
        utime: now,
        level: best.shape.level.to_md(),
        layout: best.shape.layout.encode(),
        size_sectors: if best.shape.level == Level::Raid0 { 0 } else { smallest },
        chunk_sectors: best.shape.chunk_sectors,
        raid_disks: best.shape.raid_disks,
        resync_offset: MAX_SECTOR,
        roles,
        ..Superblock::blank()
    }
}

/// The version for which there is room on all members: the one that is in use, if one is.
fn version(members: &[(Role, u64, &MemberFile)], used: Option<Version>) -> Option<Version> {
    let least = members.iter().map(|(_, offset, _)| *offset).min()?;
    let first = |version: Version| match version {
        Version::V1_2 => least >= 2 * SUPERBLOCK_SECTORS,
        Version::V1_1 => least >= SUPERBLOCK_SECTORS,
        _ => true,
    };
    let there = |version: &Version| {
        first(*version) && members.iter().all(|one| version.location(one.2.sectors).is_some())
    };
    let all = [Version::V1_2, Version::V1_1, Version::V1_0].into_iter();
    all.filter(|version| used.is_none_or(|used| used == *version)).find(there)
}

/// Where the room for data ends.
fn end(version: Version, device: &MemberFile) -> u64 {
    match version {
        Version::V1_0 => version.location(device.sectors).unwrap_or(0),
        _ => device.sectors,
    }
}

fn save(device: &MemberFile, superblock: &Superblock) -> Result<SavedMember, Failure> {
    let offset_bytes = superblock.super_offset * SECTOR_BYTES;
    let old = device.read_at(offset_bytes, SUPERBLOCK_BYTES).map_err(|error| {
        let reason = format!("cannot be read: {}", system_error(&error));
        Failure::refused(OPERATION, device.path.display(), reason, "check the device")
    })?;
    let mut new = superblock.encode();
    new.resize(SUPERBLOCK_BYTES, 0);
    Ok(SavedMember {
        member: device.path.display().to_string(),
        size_bytes: device.sectors * SECTOR_BYTES,
        offset_bytes,
        old: old.into(),
        new: new.into(),
    })
}
