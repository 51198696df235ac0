//! Members, an array over them, a loop device and a file system, one on the other.

use std::path::{Path, PathBuf};

use super::Options;
use super::case::Level;
use crate::failure::Failure;
use crate::model::Note;
use crate::rig::{
    Array, ArraySpec, FileSystem, Kind, LimitedDisks, Limits, LoopDevice, MemberFiles, Rate, Room,
};
use crate::tool::dd;

/// No thread of the kernel's goes on making the file system while it is measured.
const MOUNT: &str = "noatime,noinit_itable";
/// What is read, in the file system.
const DATA: &str = "data";

/// Files that behave like the disks on which this was first measured, or the members that were
/// named, as they are.
pub(super) struct Members {
    pub(super) paths: Vec<PathBuf>,
    limit: Option<u64>,
    // They go before the files do.
    _disks: Option<LimitedDisks>,
    _files: MemberFiles,
}

impl Members {
    fn new(
        room: &Room,
        options: &Options,
        (tag, count, bytes): (&str, usize, u64),
    ) -> Result<Self, Failure> {
        let files = room.member_files(tag, count, bytes)?;
        let limit = room.members.is_empty().then_some(options.member_bytes_per_s);
        let limited = |bytes_s: u64| {
            let disk = Rate { bytes_s: Some(bytes_s as f64), iops: None };
            let limits = Limits { disk, ..Limits::default() };
            LimitedDisks::over(room, tag, &files.paths, limits)
        };
        let disks = limit.map(limited).transpose()?;
        let paths = disks.as_ref().map_or(&files.paths, |disks| &disks.paths).clone();
        Ok(Self { paths, limit, _disks: disks, _files: files })
    }

    /// What a member gives at the most.
    fn limit_text(&self) -> String {
        let limit = self.limit.map(|limit| format!("{limit} bytes/s each\n"));
        limit.unwrap_or_else(|| "as they are\n".to_owned())
    }
}

/// A file system, and what is below it. What is above is taken down first.
pub(super) struct Stand {
    pub(super) fs: FileSystem,
    device: LoopDevice,
    pub(super) array: Option<Array>,
    members: Members,
    /// How it was set up.
    commands: Vec<String>,
}

impl Stand {
    /// A file system on an array that is in sync.
    pub(super) fn array(
        room: &Room,
        options: &Options,
        level: Level,
        (tag, bytes): (&str, u64),
    ) -> Result<Self, Failure> {
        let members = Members::new(room, options, (tag, level.members, bytes))?;
        let spec = ArraySpec {
            name: tag.to_owned(),
            level: level.number.to_string(),
            members: members.paths.clone(),
            ..ArraySpec::default()
        };
        let array = Array::start(room, &spec)?;
        let device = LoopDevice::over(room, &array.file())?;
        let fs = FileSystem::make(room, Kind::Ext4, &device.device, MOUNT)?;
        let commands = array.commands().to_vec();
        Ok(Self { fs, device, array: Some(array), members, commands })
    }

    /// A member of a mirror without the array: the file system lies where the superblock says
    /// that the data begin.
    pub(super) fn alone(room: &Room, options: &Options, bytes: u64) -> Result<Self, Failure> {
        let Self { fs, device, array, members, mut commands } =
            Self::array(room, options, Level::ALL[0], ("alone", bytes))?;
        drop((fs, device, array));
        let (offset, size) = data_area(room, &members.paths[0])?;
        let words = ["--direct-io=on", "--offset", &offset, "--sizelimit", &size];
        let device = LoopDevice::with(room, &members.paths[0], &words)?;
        let fs = FileSystem::mount(room, &device.device, "alone.ext4", MOUNT)?;
        commands.push(format!("losetup --find {} MEMBER", words.join(" ")));
        Ok(Self { fs, device, array: None, members, commands })
    }

    /// The commands so far, and what the members are.
    pub(super) fn introduce(&self, note: &mut Note) {
        note.commands.extend(self.commands.iter().cloned());
        note.file("members.txt", self.members.limit_text());
    }

    /// What an array does with its last member: `fail`, `remove`, `add`.
    pub(super) fn member(&self, verb: &str, note: &mut Note) -> Result<(), Failure> {
        let (Some(array), Some(member)) = (&self.array, self.members.paths.last()) else {
            return Ok(());
        };
        array.braid(&[verb, &member.display().to_string()])?;
        let name = member.file_name().unwrap_or_default().display();
        note.commands.push(format!("braid {verb} ARRAY {name}"));
        Ok(())
    }

    /// A file in it.
    pub(super) fn file(&self, name: &str) -> String {
        self.fs.dir.join(name).display().to_string()
    }

    /// Where what is read lies.
    pub(super) fn data(&self) -> String {
        self.file(DATA)
    }

    /// Writes what will be read.
    pub(super) fn fill(&self, mb: u64) -> Result<(), Failure> {
        let of = format!("of={}", self.data());
        let count = format!("count={mb}");
        let words = ["if=/dev/zero", of.as_str(), "bs=1MB", &count, "conv=fsync"];
        dd::run(&words, &mut Note::default()).map(drop)
    }

    /// Settings of how what is written to the device waits in memory.
    pub(super) fn write_back(&self) -> PathBuf {
        let device = self.device.device.file_name().unwrap_or_default();
        Path::new("/sys/block").join(device).join("bdi")
    }
}

/// Where a member has its data, and how much, as words.
fn data_area(room: &Room, member: &Path) -> Result<(String, String), Failure> {
    let member = member.display().to_string();
    let output = room.braid.output(&["examine", "--json", &member])?;
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let bytes = |field: &str| Some((said.get(0)?.get(field)?.as_u64()? * 512).to_string());
    bytes("data_offset_sectors").zip(bytes("used_dev_size_sectors")).ok_or_else(|| {
        Failure::refused(&member, "it does not say where its data begin", "see braid examine")
    })
}
