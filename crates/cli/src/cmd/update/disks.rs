//! Arrays on files and devices.

use std::path::PathBuf;

use braid_array::SECTOR_BYTES;
use braid_array::assemble::Candidate;
use braid_array::create::NewDevice;
use braid_array::policy::{NewJournal, Policy, PolicyChange, Write};
use braid_host::member::{self, MemberFile};
use uuid::Uuid;

use super::{again, check_name, has_it_already};
use crate::args::{NewPolicy, UpdateArgs};
use crate::cmd::found::{self, Found, Use};
use crate::cmd::writes;
use crate::failure::{Failure, system_error};
use crate::invocation::shell_word;
use crate::output;

pub(super) fn run(
    args: &UpdateArgs,
    members: &[PathBuf],
    journal: Option<PathBuf>,
) -> Result<(), Failure> {
    let mut paths = members.to_vec();
    paths.extend(journal.clone());
    let purpose = Use::change(args.overlay.dir());
    let mut found = found::open_all("update", &paths, purpose)?;
    let journal = journal.and_then(|_| found.pop());
    check_name(args, found.iter().filter_map(|one| one.candidate.superblock.as_ref().ok()))?;
    let new = journal.as_ref().map(|journal| new_journal(&journal.device));
    let policy = match args.consistency_policy {
        NewPolicy::Resync => Policy::Resync,
        NewPolicy::Bitmap => Policy::Bitmap { chunk_bytes: None },
        NewPolicy::Ppl => Policy::PartialParity,
        NewPolicy::Journal => Policy::Journal(new),
    };
    let (mut devices, candidates): (Vec<MemberFile>, Vec<Candidate>) =
        found.into_iter().map(|one| (one.device, one.candidate)).unzip();
    let change = PolicyChange::plan(&candidates, policy, writes::now())
        .map_err(|why| Failure::explained("update", &args.name, why))?;
    let Some(change) = change else { return has_it_already(args) };
    if let Some(Found { device, .. }) = journal {
        check_blank(&device)?;
        devices.push(device);
    }
    prove_writable(&devices, &change)?;
    write(args, &devices, &change)?;
    let kept = devices.iter().enumerate().filter(|(index, _)| change.leaves != Some(*index));
    let words = kept.map(|(_, device)| shell_word(&device.path.display().to_string()));
    let words: Vec<String> = words.collect();
    let name = shell_word(&args.name);
    let option = args.overlay.words();
    output::answer(&format!("braid assemble{option} {name} {}\n", words.join(" ")))
}

fn new_journal(device: &MemberFile) -> NewJournal {
    let [a, b, c, d, ..] = Uuid::new_v4().into_bytes();
    let device_uuid = Uuid::new_v4().into_bytes();
    NewJournal {
        device: NewDevice { device_sectors: device.sectors, device_uuid },
        first_seq: u32::from_le_bytes([a, b, c, d]),
    }
}

/// Checks that the future journal device is empty.
fn check_blank(device: &MemberFile) -> Result<(), Failure> {
    let refused = |reason: String, next: &'static str| {
        Failure::refused("update", device.path.display(), reason, next)
    };
    let found = member::signature(device);
    let found = found.map_err(|error| refused(system_error(&error), "check the device"))?;
    found.map_or(Ok(()), |found| {
        let reason = format!("holds {} at byte {}", found.what, found.offset);
        Err(refused(reason, "use another device, or wipe this one"))
    })
}

/// A device that takes no writes, or has no room for them, is found before any is changed.
fn prove_writable(devices: &[MemberFile], change: &PolicyChange) -> Result<(), Failure> {
    for (index, device) in devices.iter().enumerate() {
        let writes = change.writes.iter().filter(|write| write.index == index);
        let places = writes.map(|write| (write.sector, write.bytes.len()));
        writes::prove_writable("update", device, places)?;
    }
    Ok(())
}

/// Writes the changes one after the other, each durable before the next one begins.
fn write(args: &UpdateArgs, devices: &[MemberFile], change: &PolicyChange) -> Result<(), Failure> {
    change.writes.iter().try_for_each(|Write { index, sector, bytes }| {
        let device = &devices[*index];
        let written = device.write_at(sector * SECTOR_BYTES, bytes).and_then(|()| device.sync());
        written.map_err(|error| {
            Failure::refused("update", device.path.display(), system_error(&error), again(args))
        })
    })
}
