//! `braid examine`: the superblocks of members as stored.

use std::path::{Path, PathBuf};

use braid_array::SECTOR_BYTES;
use braid_array::format::{Role, Superblock, SuperblockError, Version};
use braid_host::member::{self, MemberFile};

use crate::args::ExamineArgs;
use crate::failure::{Failure, system_error};
use crate::output;
use crate::output::examine::Examined;

pub(super) fn run(args: &ExamineArgs) -> Result<(), Failure> {
    if args.scan {
        return scan(&args.members);
    }
    let found = args.members.iter().map(|path| examine(path)).collect::<Result<Vec<_>, _>>()?;
    if args.json {
        let members: Vec<_> = found.iter().map(output::examine::json).collect();
        return output::print_json(&members);
    }
    let print = if args.export { output::examine::export } else { output::examine::text };
    output::answer(&found.iter().map(print).collect::<String>())
}

/// One line for each array found. Devices without a superblock are passed over.
fn scan(members: &[PathBuf]) -> Result<(), Failure> {
    let all;
    let candidates = if members.is_empty() {
        all = member::scan().map_err(|error| {
            let reason = system_error(&error);
            Failure::refused("examine", "/proc/partitions", reason, "name the members")
        })?;
        &all
    } else {
        members
    };
    let mut found: Vec<Examined> = Vec::new();
    for path in candidates {
        match look(path) {
            Ok(Some(member)) => found.push(member),
            Ok(None) => {}
            // Among all devices of a machine some cannot be read; those named by hand must be.
            Err(_) if members.is_empty() => {}
            Err(failure) => return Err(failure),
        }
    }
    output::answer(&array_lines(&found))
}

fn array_lines(found: &[Examined]) -> String {
    let mut text = String::new();
    let mut seen: Vec<[u8; 16]> = Vec::new();
    for member in found {
        let uuid = member.superblock.set_uuid;
        if seen.contains(&uuid) {
            continue;
        }
        seen.push(uuid);
        let spare = |m: &&Examined| {
            m.superblock.set_uuid == uuid && matches!(m.superblock.role(), Role::Spare)
        };
        text.push_str(&output::examine::array_line(member, found.iter().filter(spare).count()));
    }
    text
}

fn examine(path: &Path) -> Result<Examined, Failure> {
    look(path)?.ok_or_else(|| {
        let next = "create an array on it, or name another device";
        Failure::refused("examine", path.display(), SuperblockError::NoMagic, next)
    })
}

/// `None` where there is no superblock.
fn look(path: &Path) -> Result<Option<Examined>, Failure> {
    let device = member::peek(path).map_err(|error| {
        Failure::refused("examine", error.path.display(), error.reason, error.next)
    })?;
    let unreadable = |error: std::io::Error| {
        Failure::refused("examine", path.display(), system_error(&error), "check the device")
    };
    let probe = member::probe(&device);
    let superblock = match probe.superblock {
        Ok(superblock) => superblock,
        Err(SuperblockError::NoMagic) => return Ok(None),
        Err(error) => {
            let next = "leave this member out, or restore the superblock from a copy";
            return Err(Failure::refused("examine", path.display(), error, next));
        }
    };
    let raw = raw_superblock(&device, &superblock).map_err(unreadable)?;
    Ok(Some(Examined {
        device: path.display().to_string(),
        device_sectors: device.sectors,
        superblock,
        raw,
        bitmap: probe.bitmap.and_then(Result::ok).map(|bitmap| bitmap.superblock),
    }))
}

/// The bytes of the superblock, for what only they hold.
fn raw_superblock(device: &MemberFile, superblock: &Superblock) -> std::io::Result<Vec<u8>> {
    let len = if superblock.version == Version::V0_90 { 4096 } else { 256 };
    device.read_at(superblock.super_offset * SECTOR_BYTES, len)
}
