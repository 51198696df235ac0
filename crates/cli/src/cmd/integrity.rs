//! `braid integrity`: checksums beside md's data.

use std::path::{Path, PathBuf};

use braid_array::SECTOR_BYTES;
use braid_array::format::Superblock;
use braid_array::format::integrity::{COPY_BYTES, HeaderError, IntegrityArea, IntegrityHeader};
use braid_array::status::{Status, SyncStatus};
use braid_host::member::{MemberFile, OpenError};
use braid_host::run_dir::log_path;
use serde_json::json;

use super::found::{self, Found, Use};
use super::scrub::{self, ScrubKind};
use super::successor::STORE;
use super::{running, status, upgrade, writes};
use crate::args::{IntegrityAction, IntegrityArgs, ScrubArgs};
use crate::failure::{Failure, system_error};
use crate::output;
use crate::output::json::SCHEMA;
use crate::output::progress::Progress;
use crate::output::sums;

const OPERATION: &str = "integrity";

pub(super) fn run(run_dir: &Path, args: &IntegrityArgs) -> Result<(), Failure> {
    if args.action == IntegrityAction::Off {
        return off(&args.names);
    }
    let [name] = &args.names[..] else {
        let next = "name the array that runs, and what to do: on, status, verify or build";
        return Err(Failure::usage(OPERATION, args.names.join(" "), "is not one name", next));
    };
    if let (Some(_), true) = (&args.store, args.action != IntegrityAction::On) {
        return Err(Failure::usage(OPERATION, name, "--store is for on", "leave it out"));
    }
    let array = running::status(OPERATION, run_dir, name)?;
    if args.action == IntegrityAction::On {
        return on(run_dir, name, &array.array, args.store.as_deref());
    }
    let Some(integrity) = sums::integrity(&array.array) else {
        let next = format!("keep some on another disk: braid integrity {name} on --store DIR");
        return Err(Failure::refused(OPERATION, name, "has no checksums", next));
    };
    match args.action {
        IntegrityAction::Status if args.json => {
            output::print_json(&json!({ "schema": SCHEMA, "name": name, "integrity": integrity }))
        }
        IntegrityAction::Status => output::answer(&sums::text(name, &integrity)),
        _ => {
            let IntegrityArgs { wait, json, .. } = *args;
            if wait {
                // What makes the array whole is no check, and comes first.
                let is_other = |sync: &SyncStatus| !scrub::is_scrub(sync.action);
                let bar = Progress::bar(name);
                status::wait(OPERATION, run_dir, name, bar, is_other)?;
            }
            let check = ScrubArgs { name: name.clone(), wait, stop: false, json };
            scrub::run(run_dir, &check, ScrubKind::Check)
        }
    }
}

/// Has members that have no checksums get some in this directory, by another process that goes on
/// with the array.
fn on(run_dir: &Path, name: &str, array: &Status, store: Option<&Path>) -> Result<(), Failure> {
    let Some(store) = store else {
        let reason = "has no room for checksums behind its data";
        let next = "name a directory on another disk: --store DIR";
        return Err(Failure::usage(OPERATION, name, reason, next));
    };
    let shown = store.display();
    let dir = std::path::absolute(store).and_then(std::fs::canonicalize);
    let dir = match dir {
        Ok(dir) if dir.is_dir() => dir,
        Ok(_) => {
            let next = "name a directory";
            return Err(Failure::refused(OPERATION, shown, "is no directory", next));
        }
        Err(error) => {
            let next = "make it first, on another disk than the members";
            return Err(Failure::refused(OPERATION, shown, system_error(&error), next));
        }
    };
    if sums::are_complete(array) {
        let next = format!("see braid integrity {name} status");
        return Err(Failure::refused(OPERATION, name, "has checksums", next));
    }
    let words = vec![STORE.to_owned(), dir.display().to_string()];
    let unserved = "the array cannot be served with checksums, and goes on without";
    upgrade::hand_over(OPERATION, run_dir, name, words, false, unserved)?;
    let array = running::status(OPERATION, run_dir, name)?;
    if !sums::are_complete(&array.array) {
        let reason = "not all of its members have checksums now";
        let next = format!("see {}", log_path(run_dir, name).display());
        return Err(Failure::refused(OPERATION, name, reason, next));
    }
    let dir = dir.display();
    output::answer(&format!(
        "{name}: has checksums in {dir}\n\
         braid integrity {name} build makes them known; at each start name {STORE} {dir}\n"
    ))
}

/// A member, and where both copies of the header of its checksums lie, the older one first.
struct Headers {
    device: MemberFile,
    copies: Vec<u64>,
}

/// Puts an end to the checksums of members. All are looked at before the first byte is written.
fn off(names: &[String]) -> Result<(), Failure> {
    let paths: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
    let failed = |error: OpenError| {
        Failure::refused(OPERATION, error.path.display(), error.reason, error.next)
    };
    let open = |path: &Path| found::open(path, Use::change(None));
    let devices = found::open_distinct(&paths, open).map_err(failed)?;
    let all = devices.into_iter().map(headers).collect::<Result<Vec<_>, Failure>>()?;
    for Headers { device, copies } in &all {
        let places = copies.iter().map(|byte| (byte / SECTOR_BYTES, COPY_BYTES));
        writes::prove_writable(OPERATION, device, places)?;
    }
    for Headers { device, copies } in &all {
        for byte in copies {
            // Alone, the older one would not be trusted.
            let wiped = device.write_at(*byte, &vec![0; COPY_BYTES]).and_then(|()| device.sync());
            wiped.map_err(|error| cannot(device, &error))?;
        }
        let path = device.path.display();
        let text = match copies[..] {
            [] => format!("{path}: has no checksums\n"),
            _ => format!("{path}: has no checksums any more\n"),
        };
        output::answer(&text)?;
    }
    Ok(())
}

/// Looks for the header of a member's checksums.
fn headers(device: MemberFile) -> Result<Headers, Failure> {
    let path = device.path.display().to_string();
    let Found { device, candidate } = found::read(device);
    let superblock: Superblock = candidate.superblock.map_err(|error| {
        let next = "name members of an array that is stopped";
        Failure::refused(OPERATION, &path, error.to_string(), next)
    })?;
    let area = IntegrityArea::new(superblock.data_size);
    let start = area.and_then(|area| area.start(superblock.data_offset));
    let Some(start) = start.filter(|start| start + 16 <= device.sectors) else {
        return Ok(Headers { device, copies: Vec::new() });
    };
    let first = start * SECTOR_BYTES;
    let places = [first, first + COPY_BYTES as u64];
    let read = |byte| device.read_at(byte, COPY_BYTES).map_err(|error| cannot(&device, &error));
    let copies = [read(places[0])?, read(places[1])?];
    let copies = match IntegrityHeader::newest([&copies[0], &copies[1]]) {
        Err(HeaderError::Absent) => Vec::new(),
        Ok(header) if header.copy() == 0 => vec![places[1], places[0]],
        _ => places.to_vec(),
    };
    Ok(Headers { device, copies })
}

fn cannot(device: &MemberFile, error: &std::io::Error) -> Failure {
    let next = "see the kernel's log";
    Failure::refused(OPERATION, device.path.display(), system_error(error), next)
}
