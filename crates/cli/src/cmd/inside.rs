//! The content of an array: the superblocks of an array that it is a member of.

use braid_array::SECTOR_BYTES;
use braid_array::assemble::{Assembly, Candidate, Options, Start};
use braid_host::reader::Reader;

use super::found::{self, Found};
use super::halfway;
use crate::args::ReshapeArgs;

/// Judges the members and whether the array can start.
pub(super) fn judge(found: &[Found], options: Options) -> Assembly {
    found::decide(found.iter().map(|one| one.candidate.clone()).collect(), options)
}

/// Names of the members that are in.
pub(super) fn attached(assembly: &Assembly) -> impl Iterator<Item = &str> {
    let verdicts = assembly.verdicts.iter();
    verdicts.filter(|(_, verdict)| verdict.attached()).map(|(device, _)| device.as_str())
}

/// Returns the name of an inner array as a member.
pub(super) fn title(assembly: &Assembly) -> String {
    assembly.newest.as_ref().map_or_else(String::new, |sb| sb.title())
}

/// Reads the superblocks on an array, started by force; `None` when the array cannot be started.
pub(super) fn content(found: &[Found]) -> Option<Candidate> {
    content_of(&judge(found, Options { force: true, run: true, read_only: true }), found)
}

/// Reads the superblocks on an inner array; `None` when the array cannot be started.
pub(super) fn content_of(assembly: &Assembly, found: &[Found]) -> Option<Candidate> {
    let mut reader = reader(assembly, found)?;
    let sectors = reader.size_bytes() / SECTOR_BYTES;
    let mut read = |sector: u64, bytes: u32| {
        let mut content = vec![0; bytes as usize];
        let read = reader.read_at(sector * SECTOR_BYTES, &mut content);
        read.map(|()| content).map_err(|error| error.to_string())
    };
    Some(Candidate::read(title(assembly), sectors, &mut read).with_log(&mut read))
}

/// Reads an inner array. Its members are opened once more, since the reader goes through the page
/// cache and a server does not.
fn reader(assembly: &Assembly, found: &[Found]) -> Option<Reader> {
    let open = |device: &str| {
        let one = found.iter().find(|one| one.candidate.device == device)?;
        one.device.twin().ok()
    };
    match &assembly.start {
        Start::Ready { config, .. } => {
            let members = config.members.iter().map(|member| open(&member.device));
            Reader::new((**config).clone(), members.collect::<Option<_>>()?).ok()
        }
        Start::Halfway(halfway) => {
            let members = attached(assembly).map(open).collect::<Option<_>>()?;
            let opened =
                halfway::prepare((**halfway).clone(), members, &ReshapeArgs::default()).ok()?;
            Reader::of_pieces(opened.whole, opened.arrays).ok()
        }
        Start::Refused { .. } => None,
    }
}
