//! Members, an array over them, a loop device and a file system; and every size, written and read,
//! in one state.

use std::fs;
use std::path::Path;

use super::StateOptions;
use super::case::{MIRROR, State, StateLevel};
use crate::failure::{About, Failure};
use crate::model::Note;
use crate::rig::leftovers::{Guard, Leftover};
use crate::rig::{ArraySpec, FileSystemKind, Limits, Rate, Room, Stack};
use crate::tool::dd;
use crate::tool::mdstat::Recovery;

/// No thread of the kernel's goes on making the file system while it is measured.
const MOUNT: &str = "noatime,noinit_itable";
const DATA: &str = "data";

/// A file system on an array that is in sync, over files that behave like the disks on which this
/// was first measured, or over the members that were named, as they are.
pub(super) fn array(
    room: &Room,
    options: &StateOptions,
    level: StateLevel,
    (name, bytes): (&str, u64),
) -> Result<Stack, Failure> {
    let mut stack = Stack::new(room, name).files(level.members, bytes)?;
    if room.members.is_empty() {
        let bytes_s = Some(options.member_bytes_per_s as f64);
        let disk = Rate { bytes_s, iops: None };
        stack = stack.limited(Limits { disk, ..Limits::default() })?;
    }
    let level = level.number.to_string();
    let spec = ArraySpec { level, ..ArraySpec::default() };
    stack.array(spec)?.device()?.file_system(FileSystemKind::Ext4, MOUNT)
}

/// A member of a mirror without the array: the file system lies where the superblock says that the
/// data begin.
pub(super) fn alone(room: &Room, options: &StateOptions) -> Result<Stack, Failure> {
    let name = ("alone", options.swept_member_bytes);
    let stack = array(room, options, MIRROR, name)?.down_to_members();
    let member = stack.members[0].clone();
    let (offset, size) = data_area(room, &member)?;
    let words = ["--direct-io=on", "--offset", &offset, "--sizelimit", &size];
    let mut stack = stack.device_over(&member, &words)?.mounted("alone.ext4", MOUNT)?;
    stack.commands.push(format!("losetup --find {} MEMBER", words.join(" ")));
    Ok(stack)
}

/// Returns where a member has its data, and how much, as words.
fn data_area(room: &Room, member: &Path) -> Result<(String, String), Failure> {
    let member = member.display().to_string();
    let output = room.braid.output(&["examine", "--json", &member])?;
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let bytes = |field: &str| Some((said.get(0)?.get(field)?.as_u64()? * 512).to_string());
    bytes("data_offset_sectors").zip(bytes("used_dev_size_sectors")).ok_or_else(|| {
        Failure::refused(&member, "it does not say where its data begin", "see braid examine")
    })
}

/// Gives an array a command about its last member: `fail`, `remove`, `add`.
pub(super) fn member(stack: &Stack, verb: &str, note: &mut Note) -> Result<(), Failure> {
    let (Some(array), Some(member)) = (stack.running_array(), stack.members.last()) else {
        return Ok(());
    };
    array.braid(&[verb, &member.display().to_string()])?;
    let name = member.file_name().unwrap_or_default().display();
    note.commands.push(format!("braid {verb} ARRAY {name}"));
    Ok(())
}

pub(super) fn data(stack: &Stack) -> String {
    stack.top.path().join(DATA).display().to_string()
}

/// Writes what will be read.
pub(super) fn fill(stack: &Stack, mb: u64) -> Result<(), Failure> {
    let of = format!("of={}", data(stack));
    let count = format!("count={mb}");
    let words = ["if=/dev/zero", of.as_str(), "bs=1MB", &count, "conv=fsync"];
    dd::run(&words, &mut Note::default()).map(drop)
}

/// Jobs on an array whose state stays.
pub(super) struct StateSweep {
    pub(super) state: State,
    pub(super) options: StateOptions,
}

impl StateSweep {
    /// A recovery begins for each measurement, so that it is under way in all of it, and no other
    /// case is measured meanwhile.
    fn recovering(
        &self,
        stack: &Stack,
        note: &mut Note,
        measure: impl FnOnce(&mut Note) -> Result<String, Failure>,
    ) -> Result<String, Failure> {
        let Some(array) = stack.running_array() else { return measure(note) };
        let recovering = self.state == State::Recovering;
        if recovering {
            member(stack, "add", note)?;
        }
        note.file("mdstat-before.txt", array.mdstat()?);
        let measured = measure(note);
        let after = array.mdstat()?;
        note.file("mdstat-after.txt", after.clone());
        if recovering {
            member(stack, "fail", note)?;
            member(stack, "remove", note)?;
        }
        let said = measured?;
        if recovering && Recovery::of(&after).is_none() {
            let reason = "its recovery ended before the measurement did";
            return Err(Failure::gap("the array", reason, "take larger members, or a --dir"));
        }
        Ok(said)
    }

    pub(super) fn write(
        &self,
        stack: &Stack,
        mb: u64,
        flags: &[&str],
        note: &mut Note,
    ) -> Result<String, Failure> {
        let file = stack.top.path().join("out").display().to_string();
        let of = format!("of={file}");
        let bs = format!("bs={mb}MB");
        let words = [&["if=/dev/zero", &of, &bs, "count=1"], flags].concat();
        let said = self.recovering(stack, note, |note| dd::run(&words, note));
        // What still waits in memory goes with it.
        fs::remove_file(&file).about(&file, "see whether something else uses the directory")?;
        rustix::fs::sync();
        said
    }

    pub(super) fn cached(
        &self,
        stack: &Stack,
        mb: u64,
        note: &mut Note,
    ) -> Result<String, Failure> {
        let limit = limit_dirty(stack, self.options.dirty_bytes);
        let text = limit.as_ref().map_or_else(
            || "as much may wait in memory as the kernel lets\n".to_owned(),
            |_| format!("{} bytes may wait in memory\n", self.options.dirty_bytes),
        );
        note.file("cache.txt", text);
        self.write(stack, mb, &[], note)
    }

    pub(super) fn read(
        &self,
        stack: &mut Stack,
        mb: u64,
        note: &mut Note,
    ) -> Result<String, Failure> {
        stack.remount()?;
        let words = [format!("if={}", data(stack)), "of=/dev/null".into(), format!("bs={mb}MB")];
        let words = words.iter().map(String::as_str).chain(["count=1"]).collect::<Vec<_>>();
        self.recovering(stack, note, |note| dd::run(&words, note))
    }

    /// Each half of the file is read by one of its own.
    pub(super) fn two_readers(
        &self,
        stack: &mut Stack,
        note: &mut Note,
    ) -> Result<String, Failure> {
        stack.remount()?;
        let half = self.options.largest_mb() / 2;
        let file = format!("if={}", data(stack));
        let count = format!("count={half}");
        let skip = format!("skip={half}");
        let first = [file.as_str(), "of=/dev/null", "bs=1MB", &count];
        let second = [&first[..], &[&skip]].concat();
        self.recovering(stack, note, |note| {
            let both = [dd::start(&first, note)?, dd::start(&second, note)?];
            both.into_iter().map(dd::Copying::end).collect()
        })
    }
}

/// Lets only so much wait in memory to be written to a device until the guards go, as on a machine
/// with less of it; `None` where the kernel cannot do that.
fn limit_dirty(stack: &Stack, bytes: u64) -> Option<[Guard; 2]> {
    let device = stack.upper_device()?.file_name()?;
    let folder = Path::new("/sys/block").join(device).join("bdi");
    let keep = |name: &str| {
        let file = folder.join(name);
        let before = fs::read_to_string(&file).ok()?.trim().to_owned();
        Some(Guard::new(Leftover::Setting(file, before)))
    };
    let guards = [keep("strict_limit")?, keep("max_ratio")?];
    fs::write(folder.join("max_bytes"), bytes.to_string()).ok()?;
    fs::write(folder.join("strict_limit"), "1").ok()?;
    Some(guards)
}
