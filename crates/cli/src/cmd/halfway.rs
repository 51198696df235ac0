//! Arrays that stopped in the middle of a reshape, opened to be read.

use std::path::Path;

use braid_array::assemble::{Config, Halfway};
use braid_array::refusal::Advised;
use braid_array::{Refusal, SECTOR_BYTES};
use braid_host::member::{self, MemberFile, OpenError};

use crate::output;

/// Arrays with their members.
type Arrays = Vec<(Config, Vec<MemberFile>)>;

/// The array of pieces, and the arrays that have them. `devices` are all that were found, of which
/// those stay open that are in.
///
/// # Errors
/// Why it cannot be read: also when the backup file is not the one.
pub(super) fn open(
    operation: &str,
    object: &str,
    mut halfway: Halfway,
    mut devices: Vec<MemberFile>,
    backup: Option<&Path>,
) -> Result<(Config, Arrays), Refusal> {
    let mut read = |device: &str, sector: u64, bytes: usize| {
        let device = devices.iter().find(|one| name(one) == device)?;
        device.read_at(sector.checked_mul(SECTOR_BYTES)?, bytes).ok()
    };
    if let Some(warning) = halfway.look(&mut read)? {
        output::warning(&format!("{operation} {object}: {warning}"));
    }
    if let Some(file) = backup {
        devices.push(add_backup(&mut halfway, file)?);
        let doubt = "nothing can check what the backup file holds; where mdadm ended before the \
                     machine did, more may have been moved than that: compare the content about \
                     the position with what you know";
        output::warning(&format!("{operation} {object}: {doubt}"));
    }
    let pieces = halfway.pieces()?;
    let mut arrays: Arrays = Vec::new();
    for mut config in pieces.arrays {
        let mut members = Vec::new();
        for member in &config.members {
            members.push(take(&mut devices, &arrays, &member.device)?);
        }
        let blocks = members.iter().map(|member| member.block_bytes);
        config.block_bytes = blocks.fold(config.block_bytes, u32::max);
        arrays.push((config, members));
    }
    let mut whole = pieces.whole;
    let blocks = arrays.iter().map(|(config, _)| config.block_bytes);
    whole.block_bytes = blocks.fold(whole.block_bytes, u32::max);
    Ok((whole, arrays))
}

/// The device of this name; once it is in an array, a twin of it.
fn take(
    devices: &mut Vec<MemberFile>,
    arrays: &Arrays,
    wanted: &str,
) -> Result<MemberFile, Refusal> {
    if let Some(at) = devices.iter().position(|device| name(device) == wanted) {
        return Ok(devices.swap_remove(at));
    }
    let placed = arrays.iter().flat_map(|(_, members)| members);
    let first = placed.into_iter().find(|device| name(device) == wanted);
    let first = first.expect("a configuration names candidates only");
    first.twin().map_err(|error| opened(&error))
}

fn add_backup(halfway: &mut Halfway, file: &Path) -> Result<MemberFile, Refusal> {
    let device = member::peek(file).map_err(|error| opened(&error))?;
    let header = device.read_at(0, Halfway::BACKUP_HEADER_BYTES);
    let header = header.map_err(|error| {
        let reason = format!("{}: {error}", file.display());
        Refusal::new(reason, "name the file that the reshape began with")
    })?;
    halfway.add_backup(&name(&device), device.sectors, &header).map_err(|why| {
        let reason = format!("{}: {why}", file.display());
        Refusal { reason, next: why.next() }
    })?;
    Ok(device)
}

fn opened(error: &OpenError) -> Refusal {
    Refusal { reason: error.to_string(), next: error.next.clone() }
}

fn name(device: &MemberFile) -> String {
    device.path.display().to_string()
}
