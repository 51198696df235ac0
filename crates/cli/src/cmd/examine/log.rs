//! `braid examine --log`: records of the partial parity log or the journal on a member. A record is
//! printed as it is read, so that memory does not grow with the log.

use std::path::Path;

use braid_array::SECTOR_BYTES;
use braid_array::assemble::{LogPlace, log_place, parity_geometry};
use braid_array::format::Superblock;
use braid_array::geometry::Geometry;
use braid_array::log::journal::Blocks;
use braid_array::log::ppl::Units;
use braid_host::member::{self, MemberFile};

use super::trusted;
use crate::args::MemberArg;
use crate::failure::{Failure, system_error};
use crate::output::Stream;
use crate::output::log::{Listing, LogMember};

/// A member with a log.
struct Logged {
    device: MemberFile,
    superblock: Superblock,
    geometry: Geometry,
    place: LogPlace,
}

pub(super) fn run(members: &[MemberArg], as_json: bool) -> Result<(), Failure> {
    let found = members.iter().map(look).collect::<Result<Vec<_>, _>>()?;
    let mut listing = Listing::new(Stream::new(), as_json)?;
    for member in found {
        list(&member, &mut listing)?;
    }
    listing.finish()
}

fn look(member: &MemberArg) -> Result<Logged, Failure> {
    let path: &Path = match member {
        MemberArg::Path(path) => path,
        _ => {
            let reason = "logs are listed of files and devices alone";
            let next = "leave --log out, or name a file or a device";
            return Err(Failure::usage("examine", super::name(member), reason, next));
        }
    };
    let refused = |reason: String, next: &'static str| {
        Failure::refused("examine", path.display(), reason, next)
    };
    let device = member::peek(path).map_err(|error| {
        Failure::refused("examine", error.path.display(), error.reason, error.next)
    })?;
    let superblock = trusted(path.display(), member::probe(&device).superblock)?
        .ok_or_else(|| refused("holds no superblock".to_owned(), "name a member of an array"))?;
    let compare = "see what braid examine says of it";
    let place =
        log_place(&superblock, device.sectors).map_err(|reason| refused(reason, compare))?;
    let Some(place) = place else {
        let reason = "keeps no log: neither partial parity nor a journal".to_owned();
        return Err(refused(reason, "leave --log out, or name the journal of the array"));
    };
    let geometry = parity_geometry(&superblock).map_err(|reason| refused(reason, compare))?;
    Ok(Logged { device, superblock, geometry, place })
}

fn list(member: &Logged, listing: &mut Listing) -> Result<(), Failure> {
    let Logged { device, superblock, geometry, place } = member;
    let path = device.path.display().to_string();
    let unreadable = |reason: String| {
        Failure::refused("examine", &path, reason, "check the device; what was read is listed")
    };
    let mut read = |sector: u64, bytes: u32| {
        device.read_at(sector * SECTOR_BYTES, bytes as usize).map_err(|error| {
            let why = system_error(&error);
            format!("sector {sector} cannot be read: {why}")
        })
    };
    let shown = LogMember { device: &path, superblock, geometry };
    match place {
        LogPlace::PartialParity(area) => {
            listing.begin_partial_parity(&shown, area)?;
            let mut units = Units::new(*area, superblock.set_uuid, &mut read);
            while let Some(unit) = units.next_unit().map_err(unreadable)? {
                let whole = units.whole_entries(&unit).map_err(unreadable)?;
                listing.unit(&shown, &unit, &whole)?;
            }
            listing.end(units.end())
        }
        LogPlace::Journal(area) => {
            listing.begin_journal(&shown, area)?;
            let mut blocks = Blocks::new(*area, superblock.set_uuid, geometry, &mut read);
            while let Some(found) = blocks.next_block().map_err(unreadable)? {
                listing.block(&found)?;
            }
            listing.end(blocks.end())
        }
    }
}
