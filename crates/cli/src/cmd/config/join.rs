//! Adding of devices that appear while their array runs, as `mdadm --incremental` does.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use braid_array::format::superblock::DevRole;
use braid_array::status::{MemberState, MemberStatus, Status};
use braid_host::control::wire::Verb;
use braid_host::control::{Client, ControlError, member_path};

use super::owner;
use crate::cmd::manage::is_gone;
use crate::config::{ArrayEntry, Config};
use crate::failure::Failure;
use crate::output;

const OPERATION: &str = "config join";
/// Time that a start may take in addition to the wait for members.
const START_TAKES: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Adds a device to the array of the file that it belongs to, if the array is running without it.
/// Other devices are ignored silently.
pub(super) fn run(run_dir: &Path, file: &Path, device: &Path) -> Result<(), Failure> {
    let Some(config) = Config::if_there(file) else { return Ok(()) };
    let Some((entry, superblock)) = owner(&config, device) else { return Ok(()) };
    let Some((mut client, array)) = running(run_dir, entry)? else { return Ok(()) };
    let path = member_path(device);
    let ours = array.superblock.set_uuid == superblock.set_uuid;
    if !ours || array.members.iter().any(|member| is_same(&member.device, device)) {
        return Ok(());
    }
    let (verb, as_what) = match superblock.role() {
        DevRole::Spare => {
            (Verb::Add { member: path, force: false, within: None }, "taken as a spare")
        }
        DevRole::Active(_) => {
            // It has another name now than it had before it left.
            let before = array.members.iter().find(|member| {
                u32::from(member.number) == superblock.dev_number && is_gone(&member.device)
            });
            before.map_or(Ok(()), |member| drop_member(&mut client, entry, member))?;
            (Verb::ReAdd { member: path }, "taken back")
        }
        // A journal is given by people, and what was faulty stays so.
        DevRole::Journal | DevRole::Faulty => return Ok(()),
    };
    client.call(verb).map_err(|error| failed(entry, device, error))?;
    output::answer(&format!("{}: {}: {as_what}\n", entry.name, device.display()))
}

/// The array of an entry, if it runs, or is being started now: that may have begun before the
/// device was there.
fn running(run_dir: &Path, entry: &ArrayEntry) -> Result<Option<(Client, Status)>, Failure> {
    let patience = if entry.boot { entry.wait + START_TAKES } else { Duration::ZERO };
    let deadline = Instant::now() + patience;
    loop {
        let asked = Client::connect(run_dir, &entry.name).and_then(|mut client| {
            let status = client.status()?;
            Ok((client, status.array))
        });
        match asked {
            Ok(running) => return Ok(Some(running)),
            Err(ControlError::NotRunning | ControlError::Stopped) => {}
            Err(error) => return Err(Failure::explained(OPERATION, &entry.name, error)),
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        sleep(LOOK_AGAIN);
    }
}

/// Fails and removes a member whose device is gone. A member that the array needs stays.
fn drop_member(
    client: &mut Client,
    entry: &ArrayEntry,
    gone: &MemberStatus,
) -> Result<(), Failure> {
    let member = || gone.device.clone();
    if gone.state != MemberState::Faulty {
        let fail = Verb::Fail { member: member(), force: false };
        client.call(fail).map_err(|error| failed(entry, Path::new(&gone.device), error))?;
    }
    let removed = client.call(Verb::Remove { member: member() });
    removed.map(drop).map_err(|error| failed(entry, Path::new(&gone.device), error))
}

fn failed(entry: &ArrayEntry, member: &Path, error: ControlError) -> Failure {
    let object = format!("{} {}", entry.name, member.display());
    Failure::explained(OPERATION, object, error)
}

/// Returns whether both names lead to one device.
fn is_same(name: &str, device: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    real(Path::new(name)).is_some_and(|name| Some(name) == real(device))
}
