//! Volumes of a new array over nodes: made, and their metadata written.

use braid_array::Refusal;
use braid_cluster::create::Blueprint;
use braid_host::remote::{MAX_META_BYTES, Remote, RemoteError, RemoteErrorKind};

use crate::args::NodeArg;
use crate::cmd::nodes::same_node;
use crate::failure::Failure;

/// A volume to be made.
#[derive(Debug)]
pub(in crate::cmd) struct VolumeToMake {
    /// Address and volume, both said.
    pub(in crate::cmd) node: NodeArg,
    pub(in crate::cmd) volume: String,
}

pub(super) fn on_the_node_of(other: &NodeArg) -> String {
    format!("is on the same node as {other}: both would be lost together")
}

/// Creates the volumes and writes their metadata; after a failure none stays. The superblocks,
/// which make the volumes members, come last, after the `vote`.
pub(in crate::cmd) fn make(
    operation: &str,
    places: &[VolumeToMake],
    remotes: &mut [Remote],
    blueprint: &Blueprint,
    vote: impl FnOnce() -> Result<(), (String, RemoteError)>,
) -> Result<(), Failure> {
    let mut made = 0;
    let mut result = Ok(());
    for (place, remote) in places.iter().zip(&mut *remotes) {
        result = remote.create_volume(&place.volume, blueprint.volume_bytes);
        if result.is_err() {
            break;
        }
        made += 1;
    }
    let mut culprit = places.get(made).map(|place| place.node.to_string()).unwrap_or_default();
    if result.is_ok()
        && let Some((index, other)) = same_node(remotes)
    {
        let next = "use another node";
        let why = Refusal::new(on_the_node_of(&places[other].node), next);
        result = Err(RemoteError { why, kind: RemoteErrorKind::Other });
        culprit = places[index].node.to_string();
    }
    if result.is_ok()
        && let Err((address, error)) = vote()
    {
        (culprit, result) = (address, Err(error));
    }
    for last in [false, true] {
        for (index, remote) in remotes.iter_mut().enumerate() {
            if result.is_ok() {
                result = write(remote, &blueprint.writes[index], last);
                culprit = places[index].node.to_string();
            }
        }
    }
    let Err(error) = result else { return Ok(()) };
    let remove = |(place, remote): (&VolumeToMake, &mut Remote)| {
        remote.delete_volume().is_err().then(|| place.node.to_string())
    };
    let left: Vec<String> = places.iter().zip(remotes).take(made).filter_map(remove).collect();
    let next = match left.as_slice() {
        [] => format!("{}; no volume was left behind", error.why.next.advice),
        _ => format!("{}; then remove these volumes: {}", error.why.next.advice, left.join(" ")),
    };
    Err(Failure::refused(operation, culprit, error.why.reason, next))
}

/// Writes the superblock, or the metadata before it.
fn write(
    remote: &mut Remote,
    writes: &[(u64, Vec<u8>)],
    superblock: bool,
) -> Result<(), RemoteError> {
    let before = writes.len().saturating_sub(1);
    let chosen = if superblock { &writes[before..] } else { &writes[..before] };
    for (sector, bytes) in chosen {
        let parts = bytes.chunks(MAX_META_BYTES as usize);
        for (sector, part) in (*sector..).step_by(MAX_META_BYTES as usize / 512).zip(parts) {
            remote.write(sector, part.to_vec())?;
        }
    }
    Ok(())
}
