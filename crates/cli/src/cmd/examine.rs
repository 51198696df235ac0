//! `braid examine`: the superblocks of members as stored.

mod log;

use std::fmt::Display;
use std::path::Path;

use braid_array::SECTOR_BYTES;
use braid_array::format::{DevRole, Superblock, SuperblockError, Version};
use braid_host::fabric::Network;
use braid_host::member::{self, MemberFile};
use braid_host::remote;

use super::found::Unread;
use super::stranger::Stranger;
use super::{maps, nodes};
use crate::args::{ExamineArgs, MapArgs, MemberArg, NodeArg};
use crate::failure::{Failure, system_error};
use crate::output;
use crate::output::examined::Examined;

pub(super) fn run(args: &ExamineArgs) -> Result<(), Failure> {
    let network = nodes::network("examine", &args.network)?;
    if args.log {
        return log::run(&args.members, args.json);
    }
    if args.scan {
        return scan(&args.members, network);
    }
    let paths = args.members.iter().filter_map(|member| match member {
        MemberArg::Path(path) => Some(path.as_path()),
        _ => None,
    });
    maps::check("examine", &args.maps, paths)?;
    let members = inside(&args.members);
    let found = members.iter().map(|member| examine(member, network, &args.maps));
    let found = found.collect::<Result<Vec<_>, _>>()?;
    if args.json {
        let members: Vec<_> = found.iter().map(output::examine::json).collect();
        return output::print_json(&members);
    }
    let print = if args.export { output::examine::export } else { output::examine::text };
    output::answer(&found.iter().map(print).collect::<String>())
}

/// Replaces disks by their partitions, where the partitions are the members.
fn inside(members: &[MemberArg]) -> Vec<MemberArg> {
    let each = |member: &MemberArg| match member {
        MemberArg::Path(path) => member::inside(path).into_iter().map(MemberArg::Path).collect(),
        member => vec![member.clone()],
    };
    members.iter().flat_map(each).collect()
}

/// Prints a line for each array found. Devices without a superblock are skipped.
fn scan(members: &[MemberArg], network: Network) -> Result<(), Failure> {
    let all;
    let candidates: &[MemberArg] = if members.is_empty() {
        let devices = member::scan().map_err(|error| {
            let reason = system_error(&error);
            Failure::refused("examine", "/proc/partitions", reason, "name the members")
        })?;
        all = devices.into_iter().map(MemberArg::Path).collect::<Vec<_>>();
        &all
    } else {
        all = inside(members);
        &all
    };
    let mut found: Vec<Examined> = Vec::new();
    let mut unread = Unread::of(candidates.len());
    for member in candidates {
        if let (MemberArg::Path(path), true) = (member, members.is_empty())
            && let Err(error) = member::peek(path)
        {
            unread.note(path, &error);
            continue;
        }
        match look(member, network, &MapArgs::default()) {
            Ok(Some(member)) => found.push(member),
            Ok(None) => {}
            // Among all devices of a machine some hold what nobody understands; those named by
            // hand must be understood.
            Err(_) if members.is_empty() => {}
            Err(failure) => return Err(failure),
        }
    }
    unread.conclude("examine")?;
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
            m.superblock.set_uuid == uuid && matches!(m.superblock.role(), DevRole::Spare)
        };
        text.push_str(&output::examine::array_line(member, found.iter().filter(spare).count()));
    }
    text
}

fn examine(member: &MemberArg, network: Network, maps: &MapArgs) -> Result<Examined, Failure> {
    look(member, network, maps)?.ok_or_else(|| match member {
        MemberArg::Path(path) if let Ok(device) = member::peek(path) => {
            let Stranger { reason, next } = Stranger::of(&device);
            Failure::refused("examine", name(member), reason, next)
        }
        _ => {
            let next = "create an array on it, or name another volume";
            Failure::refused("examine", name(member), SuperblockError::NoMagic, next)
        }
    })
}

fn name(member: &MemberArg) -> String {
    match member {
        MemberArg::Path(path) => path.display().to_string(),
        MemberArg::Node(node) => node.to_string(),
        MemberArg::Memory(size) => format!("mem:{size}"),
        MemberArg::Missing => "missing".to_owned(),
    }
}

/// `None` where there is no superblock.
fn look(member: &MemberArg, network: Network, maps: &MapArgs) -> Result<Option<Examined>, Failure> {
    match member {
        MemberArg::Path(path) => look_at_device(path, maps),
        MemberArg::Node(node) => look_at_node(node, network),
        MemberArg::Memory(_) | MemberArg::Missing => {
            let next = "name a file, a device or a volume on a node";
            Err(Failure::usage("examine", name(member), "holds nothing", next))
        }
    }
}

fn look_at_device(path: &Path, maps: &MapArgs) -> Result<Option<Examined>, Failure> {
    let mut device = member::peek(path).map_err(|error| {
        Failure::refused("examine", error.path.display(), error.reason, error.next)
    })?;
    maps::apply_to("examine", maps, &mut device)?;
    let unreadable = |error: std::io::Error| {
        Failure::refused("examine", path.display(), system_error(&error), "check the device")
    };
    let probe = member::probe(&device);
    let Some(superblock) = trusted(path.display(), probe.superblock)? else { return Ok(None) };
    let raw = raw_superblock(&device, &superblock).map_err(unreadable)?;
    Ok(Some(Examined {
        device: path.display().to_string(),
        device_sectors: device.sectors,
        superblock,
        raw,
        bitmap: probe.bitmap.and_then(Result::ok).map(|bitmap| bitmap.superblock),
    }))
}

fn look_at_node(node: &NodeArg, network: Network) -> Result<Option<Examined>, Failure> {
    let Some(volume) = &node.volume else {
        let next = "write node://HOST:PORT/VOLUME";
        return Err(Failure::usage("examine", node, "which volume was not said", next));
    };
    let mut remote = nodes::connect("examine", node, network)?;
    let found = remote::probe(&mut remote, &node.address, volume, false)
        .map_err(|error| nodes::failed("examine", node, &error))?;
    let Some(superblock) = trusted(node, found.superblock)? else { return Ok(None) };
    let raw = superblock.encode();
    let device_sectors = found.bytes / SECTOR_BYTES;
    let device = node.to_string();
    Ok(Some(Examined { device, device_sectors, superblock, raw, bitmap: None }))
}

/// `None` where there is no superblock; an error where there is one that cannot be trusted.
fn trusted(
    device: impl Display,
    found: Result<Superblock, SuperblockError>,
) -> Result<Option<Superblock>, Failure> {
    match found {
        Ok(superblock) => Ok(Some(superblock)),
        Err(SuperblockError::NoMagic) => Ok(None),
        Err(error) => {
            let next = "leave this member out, or restore the superblock from a copy";
            Err(Failure::refused("examine", device, error, next))
        }
    }
}

/// Returns the bytes of the superblock, for fields that are not decoded.
fn raw_superblock(device: &MemberFile, superblock: &Superblock) -> std::io::Result<Vec<u8>> {
    let len = if superblock.version == Version::V0_90 { 4096 } else { 256 };
    device.read_at(superblock.super_offset * SECTOR_BYTES, len)
}
