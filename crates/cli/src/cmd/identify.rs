//! `braid identify`: finding the hardware of a member. Prints the label of the disk, and shows its
//! place by a light: the locate lamp of the slot, or without one the activity light, by reads.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use braid_host::control::member_path;
use braid_host::disk::{self, Disk};
use rustix::fs::{Advice, SeekFrom, fadvise};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::running;
use crate::args::IdentifyArgs;
use crate::failure::{Failure, system_error};
use crate::output;
use crate::output::json::SCHEMA;

/// Time for which the light is on, and then off.
const BLINK: Duration = Duration::from_millis(500);
const READ_BYTES: usize = 256 << 10;
/// Distance of reads round the disk: hardly any read finds data cached by an earlier one.
const STEP_BYTES: u64 = 509 << 20;

pub(super) fn run(run_dir: &Path, args: &IdentifyArgs) -> Result<(), Failure> {
    let name = &args.of.name;
    let member = member_path(&args.of.member);
    let object = format!("{name} {member}");
    let refused = |reason: &str, next: &'static str| {
        Failure::refused("identify", object.as_str(), reason, next)
    };
    let array = running::status("identify", run_dir, name)?;
    let mut members = vec![&array.array];
    let mut known = false;
    while let Some(array) = members.pop() {
        known |= array.members.iter().any(|one| one.device == member);
        members.extend(&array.children);
    }
    if !known {
        return Err(refused("is no member of it", "see braid status"));
    }
    let Some(disk) = array.disks.get(&member) else {
        let next = "look at what it lies on: a file's disk, a node";
        return Err(refused("is no disk of this machine that has a label", next));
    };
    if args.json {
        output::print_json(&json!({
            "schema": SCHEMA,
            "name": name,
            "device": member,
            "disk": disk,
            "light": if disk::lamp(Path::new(&member)).is_some() { "lamp" } else { "activity" },
            "seconds": args.seconds,
        }))?;
    } else {
        output::answer(&format!("{member} is {}: {}\n", disk.device, disk.label()))?;
    }
    let say: fn(&str) = if args.json { |_| {} } else { say };
    show(Path::new(&member), disk, Duration::from_secs(args.seconds), say).map_err(|error| {
        refused(&format!("no light can be shown: {}", system_error(&error)), without_light(&error))
    })
}

/// Returns the next step where no light can be shown.
fn without_light(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "the disk is gone: its label is above",
        _ => "its label is above; use root to have a light show it",
    }
}

/// Shows the place of a disk by a light, until a signal arrives or the time is over.
fn show(member: &Path, disk: &Disk, time: Duration, say: fn(&str)) -> io::Result<()> {
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&ends))?;
    }
    let until = Instant::now() + time;
    let goes_on = || !ends.load(Ordering::Relaxed) && Instant::now() < until;
    let seconds = time.as_secs();
    if let Some(lamp) = disk::lamp(member) {
        fs::write(&lamp, "1")?;
        let slot = disk.slot.as_deref().unwrap_or("its slot");
        say(&format!("the lamp of {slot} is on for {seconds} s; Ctrl-C puts it out\n"));
        while goes_on() {
            thread::sleep(BLINK.min(until.saturating_duration_since(Instant::now())));
        }
        return fs::write(&lamp, "0");
    }
    let device = File::open(member)?;
    say(&format!("its light of activity blinks once a second for {seconds} s; Ctrl-C ends it\n"));
    let mut at = 0;
    while goes_on() {
        let lit = Instant::now();
        while lit.elapsed() < BLINK {
            at = read_next(&device, at)?;
        }
        thread::sleep(BLINK);
    }
    Ok(())
}

/// With stdout gone the light shows it all the same.
fn say(line: &str) {
    let _ = output::answer(line);
}

/// Reads a little, past the page cache as far as that goes. Returns where to go on.
fn read_next(device: &File, at: u64) -> io::Result<u64> {
    let size = rustix::fs::seek(device, SeekFrom::End(0))?;
    let at = if at + READ_BYTES as u64 > size { at % STEP_BYTES % size.max(1) } else { at };
    let mut bytes = vec![0; READ_BYTES];
    device.read_at(&mut bytes, at)?;
    fadvise(device, at, None, Advice::DontNeed)?;
    Ok(at + STEP_BYTES + READ_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_not_advised_where_the_disk_is_gone() {
        let after = |kind: io::ErrorKind| without_light(&kind.into());
        assert!(after(io::ErrorKind::PermissionDenied).contains("use root"));
        assert!(!after(io::ErrorKind::NotFound).contains("use root"));
    }
}
