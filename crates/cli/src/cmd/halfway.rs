//! Arrays that stopped in the middle of a reshape, opened to be read, or settled to go on with it.

use std::fs::File;
use std::io;
use std::path::Path;

use braid_array::assemble::{
    self, Assembly, Candidate, Config, Halfway, Options, Settlement, SettlingWrite, Start,
};
use braid_array::format::backup::{BackupHeader, HEADER_SECTORS};
use braid_array::refusal::Advised;
use braid_array::{Refusal, SECTOR_BYTES};
use braid_host::member::{self, MemberFile, Mode, OpenError};

use super::found::{self, Found};
use super::writes;
use crate::args::ReshapeArgs;
use crate::failure::system_error;
use crate::output;

/// Arrays with their members.
type Arrays = Vec<(Config, Vec<MemberFile>)>;

/// An array in the middle of a reshape that can be read.
pub(super) struct Opened {
    /// The array of pieces.
    pub(super) whole: Config,
    /// The arrays that have them.
    pub(super) arrays: Arrays,
    /// Warnings for the user.
    pub(super) warnings: Vec<String>,
}

/// Opens the array of pieces and the arrays that hold them. Unattached `devices` are closed.
///
/// # Errors
/// Returns the reason why the array cannot be read, also if the backup file is the wrong one.
pub(super) fn open(
    operation: &str,
    object: &str,
    halfway: Halfway,
    devices: Vec<MemberFile>,
    reshape: &ReshapeArgs,
) -> Result<(Config, Arrays), Refusal> {
    let Opened { whole, arrays, warnings } = prepare(halfway, devices, reshape)?;
    for warning in warnings {
        output::warning(&format!("{operation} {object}: {warning}"));
    }
    Ok((whole, arrays))
}

/// Opens the arrays like [`open`], without printing the warnings.
pub(super) fn prepare(
    mut halfway: Halfway,
    mut devices: Vec<MemberFile>,
    reshape: &ReshapeArgs,
) -> Result<Opened, Refusal> {
    let warnings = examine(&mut halfway, &mut devices, reshape)?;
    open_pieces(&halfway, devices, warnings)
}

/// Looks at the data of the members and at backups. Returns warnings for the user.
fn examine(
    halfway: &mut Halfway,
    devices: &mut Vec<MemberFile>,
    reshape: &ReshapeArgs,
) -> Result<Vec<String>, Refusal> {
    let mut warnings = Vec::new();
    reshape.position().map_or(Ok(()), |position| halfway.stop_at(position))?;
    warnings.extend(halfway.look(&mut reader(devices))?);
    match reshape.file() {
        Some(file) => devices.push(add_backup(halfway, file)?),
        None => halfway.add_backups_on_members(&mut reader(devices)).map_err(|(member, why)| {
            Refusal { reason: format!("{member}: {why}"), next: why.next() }
        })?,
    }
    warnings.extend(halfway.weigh(&mut reader(devices)));
    Ok(warnings)
}

fn open_pieces(
    halfway: &Halfway,
    mut devices: Vec<MemberFile>,
    warnings: Vec<String>,
) -> Result<Opened, Refusal> {
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
    Ok(Opened { whole, arrays, warnings })
}

/// What is known of an array in the middle of a reshape that this program did not begin.
pub(super) enum HalfwayFindings {
    /// It goes on once all of this is written.
    Settles(Box<Settlement>),
    /// It can be read, and this is to be said of that.
    Reads(Vec<String>),
}

/// Looks at an array in the middle of a reshape, to go on with it or to read it.
///
/// # Errors
/// The reason why it cannot even be read.
pub(super) fn examined(
    mut halfway: Halfway,
    mut devices: Vec<MemberFile>,
    candidates: &[Candidate],
    (options, reshape): (Options, &ReshapeArgs),
) -> Result<HalfwayFindings, Refusal> {
    let warnings = examine(&mut halfway, &mut devices, reshape)?;
    let saves = reshape.file().is_some();
    let settlement = halfway.settled(candidates, writes::now(), saves, &mut reader(&devices));
    let starts =
        |settlement: &Settlement| matches!(decide(settlement, options).start, Start::Ready { .. });
    if let Some(settlement) = settlement.filter(starts) {
        return Ok(HalfwayFindings::Settles(Box::new(settlement)));
    }
    open_pieces(&halfway, devices, warnings).map(|opened| HalfwayFindings::Reads(opened.warnings))
}

/// Decides about an array that is to be settled, as it will be then.
pub(super) fn decide(settlement: &Settlement, options: Options) -> Assembly {
    let candidates = settlement.candidates.clone();
    if settlement.saves() {
        assemble::decide_saving(candidates, options)
    } else {
        found::decide(candidates, options)
    }
}

/// Opens the file with a backup, to which a reshape goes on saving. What it holds is in place, and
/// its header tells so. A file gets room for so many sectors; where it cannot, there is less of it
/// to be saved at a time.
///
/// # Errors
/// When the file cannot be written to.
pub(super) fn open_spill(
    file: &Path,
    set_uuid: [u8; 16],
    sectors: u64,
) -> Result<MemberFile, Refusal> {
    let _ = lengthen(file, (HEADER_SECTORS + sectors) * SECTOR_BYTES);
    let device = member::open(file, Mode::ReadWrite, true).map_err(|error| opened(&error))?;
    let header = BackupHeader { set_uuid, mtime: 0, start: 0, length: 0 };
    let written = device.write_at(0, &header.encode()).and_then(|()| device.sync());
    written.map_err(|error| unwritten(&device, &error))?;
    Ok(device)
}

/// Gives a file that is shorter than this so many bytes.
fn lengthen(file: &Path, bytes: u64) -> io::Result<()> {
    let file = File::options().write(true).open(file)?;
    let found = file.metadata()?;
    if found.is_file() && found.len() < bytes {
        file.set_len(bytes)?;
    }
    Ok(())
}

/// Writes what brings a reshape to where it goes on: all data, and then the superblocks.
///
/// # Errors
/// When a device cannot be written to: the same can be done again.
pub(super) fn settle(settlement: &Settlement, found: &[Found]) -> Result<(), Refusal> {
    let write = |write: &SettlingWrite| {
        let device = found.iter().map(|one| &one.device).find(|one| name(one) == write.device);
        let device = device.expect("what is written to was found");
        let offset = write.sector * SECTOR_BYTES;
        device.write_at(offset, &write.bytes).map_err(|error| unwritten(device, &error))
    };
    let sync = || {
        let mut devices = found.iter().map(|one| &one.device);
        devices.try_for_each(|one| one.sync().map_err(|error| unwritten(one, &error)))
    };
    settlement.data.iter().try_for_each(write)?;
    sync()?;
    settlement.metadata.iter().try_for_each(write)?;
    sync()
}

fn unwritten(device: &MemberFile, error: &io::Error) -> Refusal {
    let reason = format!("{}: {}", device.path.display(), system_error(error));
    Refusal::new(reason, "assemble it again when it can be written to")
}

/// Returns a reader of the devices for the examination.
fn reader(devices: &[MemberFile]) -> impl FnMut(&str, u64, usize) -> Option<Vec<u8>> {
    move |device, sector, bytes| {
        let device = devices.iter().find(|one| name(one) == device)?;
        device.read_at(sector.checked_mul(SECTOR_BYTES)?, bytes).ok()
    }
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
