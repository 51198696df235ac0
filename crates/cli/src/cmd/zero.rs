//! `braid zero-superblock`: devices that are members no more lose the superblocks that say so.
//! Everything is looked at, on all devices, before the first byte is written to any.

use std::path::{Path, PathBuf};

use braid_array::SECTOR_BYTES;
use braid_array::format::{Superblock, SuperblockError, Version, locations};
use braid_host::member::{MemberFile, OpenError};

use super::found::{self, Use};
use super::writes;
use crate::args::{MemberArg, ZeroArgs};
use crate::failure::{Failure, system_error};
use crate::output;
use crate::output::shape::version_name;

const OPERATION: &str = "zero-superblock";

/// A superblock, or data that look like one.
struct ZeroedPlace {
    version: Version,
    sector: u64,
    bytes: usize,
    found: Result<Superblock, SuperblockError>,
}

pub(super) fn run(args: &ZeroArgs) -> Result<(), Failure> {
    let paths = args.members.iter().map(path).collect::<Result<Vec<PathBuf>, Failure>>()?;
    let failed = |error: OpenError| {
        Failure::refused(OPERATION, error.path.display(), error.reason, error.next)
    };
    let purpose = Use::change(args.overlay.dir());
    let open = |path: &Path| found::open(path, purpose);
    let devices = found::open_distinct(&paths, open).map_err(failed)?;
    let all = devices
        .iter()
        .map(|device| places(device).and_then(|places| check(device, places, args.force)))
        .collect::<Result<Vec<_>, Failure>>()?;
    for (device, places) in devices.iter().zip(&all) {
        let places = places.iter().map(|place| (place.sector, place.bytes));
        writes::prove_writable(OPERATION, device, places)?;
    }
    for (device, places) in devices.iter().zip(&all) {
        remove(device, places)?;
    }
    Ok(())
}

fn path(member: &MemberArg) -> Result<PathBuf, Failure> {
    let usage = |object: String, reason: &str, next: &'static str| {
        Err(Failure::usage(OPERATION, object, reason, next))
    };
    match member {
        MemberArg::Path(path) => Ok(path.clone()),
        MemberArg::Node(node) => {
            usage(node.to_string(), "is a volume", "remove it with braid volume delete")
        }
        MemberArg::Memory(_) | MemberArg::Missing => {
            usage("mem:".to_owned(), "memory holds no superblock", "name a file or block device")
        }
    }
}

/// Reads the locations of superblocks on a device.
fn places(device: &MemberFile) -> Result<Vec<ZeroedPlace>, Failure> {
    let read = |(version, sector, bytes): (Version, u64, u32)| {
        let bytes = bytes as usize;
        let content = device.read_at(sector * SECTOR_BYTES, bytes)?;
        let found = Superblock::decode(version, sector, &content);
        Ok(ZeroedPlace { version, sector, bytes, found })
    };
    let places = locations(device.sectors).map(read).collect::<std::io::Result<Vec<ZeroedPlace>>>();
    let mut places = places.map_err(|error| failed(device, &error))?;
    places.retain(|place| place.found != Err(SuperblockError::NoMagic));
    Ok(places)
}

/// Checks that these superblocks may be removed.
fn check(
    device: &MemberFile,
    places: Vec<ZeroedPlace>,
    force: bool,
) -> Result<Vec<ZeroedPlace>, Failure> {
    let refused = |reason: String, next: &'static str| {
        Err(Failure::refused(OPERATION, device.path.display(), reason, next))
    };
    if force {
        return Ok(places);
    }
    for ZeroedPlace { sector, found, .. } in &places {
        if let Err(error) = found {
            let byte = sector * SECTOR_BYTES;
            let reason = format!("what looks like a superblock at byte {byte} is none: {error}");
            return refused(reason, "see braid examine; use --force to remove it");
        }
    }
    if places.is_empty() {
        return refused("has no superblock".to_owned(), "leave it out: nothing was changed");
    }
    Ok(places)
}

fn remove(device: &MemberFile, places: &[ZeroedPlace]) -> Result<(), Failure> {
    let path = device.path.display();
    for ZeroedPlace { version, sector, bytes, found } in places {
        let byte = sector * SECTOR_BYTES;
        let removed = device.write_at(byte, &vec![0; *bytes]).and_then(|()| device.sync());
        removed.map_err(|error| failed(device, &error))?;
        let of = match found {
            Ok(superblock) => superblock.title(),
            Err(error) => error.to_string(),
        };
        let version = version_name(*version);
        output::answer(&format!("{path}: removed superblock {version} at byte {byte} ({of})\n"))?;
    }
    if places.is_empty() {
        output::answer(&format!("{path}: no superblock\n"))?;
    }
    Ok(())
}

fn failed(device: &MemberFile, error: &std::io::Error) -> Failure {
    Failure::refused(OPERATION, device.path.display(), system_error(error), "check the device")
}
