//! Block devices over files, file systems on them, and memory that forgets what it has read.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::leftovers::{self, Guard, Leftover};
use super::room::{Room, file_name};
use crate::failure::{About, Failure};
use crate::tool::Tool;

const LOOP_CONTROL: &str = "/dev/loop-control";
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// A loop device over a file, with direct I/O; detached when it goes.
#[derive(Debug)]
pub struct LoopDevice {
    /// `/dev/loopN`.
    pub device: PathBuf,
    _guard: Guard,
}

impl LoopDevice {
    /// Words for `losetup`: past the page cache below, or through it.
    pub const DIRECT: &[&str] = &["--direct-io=on"];
    /// See [`DIRECT`](Self::DIRECT).
    pub const CACHED: &[&str] = &["--direct-io=off"];

    /// Over a file, with these words for `losetup`.
    pub fn with(file: &Path, words: &[&str]) -> Result<Self, Failure> {
        need_root("loop devices")?;
        if !Path::new(LOOP_CONTROL).exists() {
            let reason = format!("there is no {LOOP_CONTROL}");
            return Err(Failure::gap("loop devices", reason, "use a kernel that has them"));
        }
        let losetup = Tool::find("losetup", "mount")?;
        let file = file.display().to_string();
        let output = losetup.output(&[&["--find", "--show"], words, &[&file]].concat())?;
        let device = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        let backing = leftovers::backing_file(&device);
        let guard = Guard::new(Leftover::Loop(device.clone(), backing));
        Ok(Self { device, _guard: guard })
    }
}

/// Kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystemKind {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
}

impl FileSystemKind {
    /// Its name, the package that makes it, and words that have all of that done at once.
    const fn facts(self) -> (&'static str, &'static str, &'static [&'static str]) {
        const WHOLE: &[&str] = &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
        match self {
            Self::Ext4 => ("ext4", "e2fsprogs", WHOLE),
            Self::Xfs => ("xfs", "xfsprogs", &["-q", "-f"]),
        }
    }
}

/// A file system on a device, mounted; unmounted when it goes.
#[derive(Debug)]
pub struct FileSystem {
    /// Directory on which it is mounted.
    pub dir: PathBuf,
    device: PathBuf,
    options: String,
    mount: Option<Guard>,
    _directory: Guard,
}

impl FileSystem {
    /// Makes one and mounts it, with options for `mount -o` if there are any.
    pub fn make(
        room: &Room,
        kind: FileSystemKind,
        device: &Path,
        options: &str,
    ) -> Result<Self, Failure> {
        need_root("file systems")?;
        let (kind, package, words) = kind.facts();
        let word = device.display().to_string();
        Tool::find(&format!("mkfs.{kind}"), package)?.output(&[words, &[&word]].concat())?;
        Self::mount(room, device, &format!("{}.{kind}", file_name(&word)), options)
    }

    /// Mounts what is on the device already, below the room, under a name.
    pub fn mount(room: &Room, device: &Path, name: &str, options: &str) -> Result<Self, Failure> {
        need_root("file systems")?;
        let dir = room.scratch.join(name);
        fs::create_dir_all(&dir).about(dir.display(), "name another --dir")?;
        let directory = Guard::new(Leftover::EmptyDirectory(dir.clone()));
        let mut made = Self {
            dir,
            device: device.to_owned(),
            options: options.to_owned(),
            mount: None,
            _directory: directory,
        };
        made.mount_again()?;
        Ok(made)
    }

    fn mount_again(&mut self) -> Result<(), Failure> {
        let mount = Tool::find("mount", "mount")?;
        let device = self.device.display().to_string();
        let dir = self.dir.display().to_string();
        let mut words = vec![device.as_str(), dir.as_str()];
        if !self.options.is_empty() {
            words.extend(["-o", self.options.as_str()]);
        }
        mount.output(&words)?;
        self.mount = Some(Guard::new(Leftover::Mount(self.dir.clone())));
        Ok(())
    }

    /// Unmounts and mounts it: nothing of it is in the page cache any more.
    pub fn remount(&mut self) -> Result<(), Failure> {
        drop(self.mount.take());
        self.mount_again()
    }
}

/// Empties the page cache of the machine.
pub fn drop_caches() -> Result<(), Failure> {
    need_root("dropping the page cache")?;
    rustix::fs::sync();
    fs::write(DROP_CACHES, "3").about(DROP_CACHES, "see that /proc is writable")
}

pub(super) fn need_root(what: &str) -> Result<(), Failure> {
    if geteuid().is_root() {
        return Ok(());
    }
    Err(Failure::gap(what, "only root may do that", "become root"))
}

/// Above these are those that mdadm chooses itself when it finds arrays.
const NUMBERS: std::ops::Range<u32> = 32..120;

/// Checks that this kernel has it.
pub(crate) fn md_exists() -> Result<(), Failure> {
    let there = || Path::new("/proc/mdstat").exists();
    if !there()
        && let Ok(modprobe) = Tool::find("modprobe", "kmod")
    {
        // Where it is not a module, the next look tells.
        let _ = modprobe.output(&["md_mod"]);
    }
    if there() {
        return Ok(());
    }
    Err(Failure::gap("md", "this kernel has no software RAID", "boot one with the module md_mod"))
}

/// Creates and starts an array; its device. Members are taken to be in sync.
pub(super) fn start_md(
    level: &str,
    layout: Option<&str>,
    members: &[PathBuf],
) -> Result<(PathBuf, Guard), Failure> {
    let mdadm = Tool::find("mdadm", "mdadm")?;
    let free = |number: &u32| !Path::new(&format!("/sys/block/md{number}")).exists();
    let number = NUMBERS.into_iter().find(free).ok_or_else(|| {
        Failure::gap("md", "all of its numbers are taken", "stop what is not needed")
    })?;
    let device = PathBuf::from(format!("/dev/md{number}"));
    let name = device.display().to_string();
    let count = members.len().to_string();
    let mut words = vec!["--create", &name, "--run", "--quiet", "--assume-clean"];
    words.extend(["--metadata=1.2", "--bitmap=none", "--level", level]);
    words.extend(layout.iter().flat_map(|layout| ["--layout", *layout]));
    words.extend(["--raid-devices", &count]);
    let named: Vec<String> = members.iter().map(|m| m.display().to_string()).collect();
    words.extend(named.iter().map(String::as_str));
    let guard = Guard::new(Leftover::Md(device.clone(), members.to_vec()));
    mdadm.output(&words)?;
    Ok((device, guard))
}
