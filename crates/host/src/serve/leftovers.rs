//! Volumes of an array whose data have all moved to another one: they are removed once all members
//! know that the other array stands alone, on a thread of its own.
//!
//! Votes stay. A node that was away still has a volume, and with a voter that had forgotten the
//! array it could start it as it was then.

use std::io;
use std::thread;
use std::time::Duration;

use braid_array::Refusal;
use braid_array::action::Command;
use braid_array::format::MoveNote;
use braid_array::status::Status;
use braid_cluster::VolumeAddress;
use braid_cluster::assemble::member_name;
use braid_cluster::pair::is_later;

use crate::fabric::Network;
use crate::remote::{self, Remote, RemoteError};
use crate::submission::{Message, SubmissionQueue};

/// Interval of checks whether all has moved.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Number of attempts to remove a volume: its last client may still be connected.
const TRIES: u32 = 20;

/// An array over nodes, by its volumes.
#[derive(Clone, Debug)]
pub struct ArrayVolumes {
    /// UUID.
    pub array: [u8; 16],
    /// Its volumes.
    pub volumes: Vec<VolumeAddress>,
}

/// Arrays of which all but the one that is served are removed in the end.
#[derive(Clone, Debug)]
pub struct Leftovers {
    /// The arrays.
    pub arrays: Vec<ArrayVolumes>,
    /// Network by which their nodes are reached.
    pub network: Network,
}

impl Leftovers {
    /// Removes them as soon as nothing moves any more.
    pub(super) fn remove_in_the_end(
        self,
        name: &str,
        submissions: &SubmissionQueue,
    ) -> io::Result<()> {
        let name = name.to_owned();
        let submissions = submissions.clone();
        let run = move || {
            // None when the array has ended: whoever serves it next removes them.
            if let Some(status) = over(&submissions) {
                self.remove(&name, &status);
            }
        };
        thread::Builder::new().name("leftovers".into()).spawn(run).map(drop)
    }

    fn remove(&self, name: &str, status: &Status) {
        let served = status.superblock.set_uuid;
        let is_beside = |array| is_later(array, served) || is_later(served, array);
        let left = self.arrays.iter().filter(|one| is_beside(one.array));
        for ArrayVolumes { array, volumes } in left {
            for place in volumes {
                let member = member_name(&place.address, &place.volume);
                match remove_patiently(place, *array, self.network) {
                    Ok(true) => tracing::info!(array = name, "{member} is removed: all has moved"),
                    Ok(false) => {}
                    Err(Refusal { reason, .. }) => {
                        let next = format!("braid node delete {} {}", place.address, place.volume);
                        tracing::warn!(
                            array = name,
                            "{member} is not needed any more, and not removed: {reason}; {next}"
                        );
                    }
                }
            }
        }
    }
}

/// Waits until the array that is served stands alone, and its members know.
fn over(submissions: &SubmissionQueue) -> Option<Status> {
    loop {
        let status = submissions.status()?;
        let is_apart = MoveNote::of(&status.superblock) == MoveNote::Apart;
        if is_apart && status.superblock.reshape.delta_disks == 0 {
            // The last client may have told one member alone.
            let command = Command::NoteMove(MoveNote::Apart);
            let device = None;
            let told = submissions.call(|done| Message::Command { command, device, done })?;
            if told.is_ok() {
                return Some(status);
            }
        }
        thread::sleep(LOOK_AGAIN);
    }
}

fn remove_patiently(
    place: &VolumeAddress,
    array: [u8; 16],
    network: Network,
) -> Result<bool, Refusal> {
    for _ in 1..TRIES {
        if let Ok(was_there) = remove_volume(place, array, network) {
            return Ok(was_there);
        }
        thread::sleep(LOOK_AGAIN);
    }
    remove_volume(place, array, network).map_err(|error| error.why)
}

/// Removes a volume if it is a member of this array. Returns whether there was such a volume.
///
/// # Errors
/// [`RemoteError`]: the node is away, or a client has the volume.
pub fn remove_volume(
    place: &VolumeAddress,
    array: [u8; 16],
    network: Network,
) -> Result<bool, RemoteError> {
    let mut node = Remote::connect(&place.address, network)?;
    if !node.has_volume(&place.volume)? {
        return Ok(false);
    }
    drop(node);
    let mut node = Remote::connect(&place.address, network)?;
    node.open_volume(&place.volume, true)?;
    let is_its = remote::superblock(&mut node)?.is_ok_and(|found| found.set_uuid == array);
    if is_its {
        node.remove_volume()?;
    }
    Ok(is_its)
}
