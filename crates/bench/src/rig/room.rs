//! Room of a run: below directories it was told of, and nowhere else.

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::rc::Rc;

use rustix::fs::{StatVfs, statfs, statvfs};

use super::leftovers::Guard;
use crate::failure::{About, Failure};
use crate::tool::Tool;

const TMPFS: i64 = 0x0102_1994;
/// Memory that the rest of the machine keeps.
const MEMORY_KEPT_BYTES: u64 = 512 << 20;

/// The places and programs that a run may use. Copies share the count of bytes that are promised to
/// files of members, so that no two use the same free space.
#[derive(Clone, Debug)]
pub struct Room {
    /// Directory of this run: files of members, mount points, sockets, logs; gone afterwards.
    pub scratch: PathBuf,
    /// Disks and files that were named to be used as members; none: files below `scratch`.
    pub members: Vec<PathBuf>,
    /// The command `braid` itself.
    pub braid: Tool,
    /// The same in memory, where a file system is.
    memory: Option<Rc<Self>>,
    /// Bytes that files of members may still come to need.
    reserved_bytes: Rc<Cell<u64>>,
}

/// Files to be used as members. Created files are removed when this is dropped.
#[derive(Debug)]
pub struct MemberFiles {
    /// Files in the order of the roles.
    pub paths: Vec<PathBuf>,
    _made: Option<Guard>,
    _reserved: Reserved,
}

#[derive(Debug)]
struct Reserved {
    bytes: u64,
    of: Rc<Cell<u64>>,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.of.set(self.of.get() - self.bytes);
    }
}

impl Room {
    /// Room below a directory of this process's own.
    pub fn new(scratch: PathBuf, members: Vec<PathBuf>, braid: Tool) -> Self {
        Self { scratch, members, braid, memory: None, reserved_bytes: Rc::default() }
    }

    /// Adds room for files in memory, too, below another directory of this process's own.
    pub fn with_memory(self, scratch: PathBuf) -> Self {
        let memory = Self::new(scratch, Vec::new(), self.braid.clone());
        Self { memory: Some(Rc::new(memory)), ..self }
    }

    /// Room in memory. Its members are files, whatever was named.
    pub fn in_memory(&self) -> Result<Self, Failure> {
        self.memory.as_deref().cloned().ok_or_else(|| {
            let reason = "no file system in memory is there";
            Failure::gap("members of memory", reason, "mount a tmpfs on /dev/shm")
        })
    }

    /// Sparse files of so many bytes each, or as many of the members that were named.
    pub fn member_files(
        &self,
        tag: &str,
        count: usize,
        bytes: u64,
    ) -> Result<MemberFiles, Failure> {
        if !self.members.is_empty() {
            return self.named_members(tag, count);
        }
        let reserved = self.reserve(tag, bytes * count as u64)?;
        let directory = self.scratch.join(format!("{}.members", file_name(tag)));
        let made = Guard::directory(&directory)?;
        let paths: Vec<PathBuf> = (0..count).map(|i| directory.join(format!("m{i}"))).collect();
        for path in &paths {
            let file = fs::File::create_new(path).and_then(|file| file.set_len(bytes));
            file.about(path.display(), "name another directory: --dir DIR")?;
        }
        Ok(MemberFiles { paths, _made: Some(made), _reserved: reserved })
    }

    fn named_members(&self, tag: &str, count: usize) -> Result<MemberFiles, Failure> {
        let Some(paths) = self.members.get(..count) else {
            let reason = format!("it needs {count} members, {} were named", self.members.len());
            return Err(Failure::gap(tag, reason, "name more after --members"));
        };
        let reserved = Reserved { bytes: 0, of: self.reserved_bytes.clone() };
        Ok(MemberFiles { paths: paths.to_vec(), _made: None, _reserved: reserved })
    }

    /// Keeps room for what sparse files may come to hold. Memory that runs out ends more than this
    /// process, and a full disk is the end of every array on it: so it is asked beforehand.
    fn reserve(&self, tag: &str, bytes: u64) -> Result<Reserved, Failure> {
        let free = self.free_bytes().saturating_sub(self.reserved_bytes.get());
        if bytes > free {
            let mib = |bytes: u64| bytes >> 20;
            let reason = format!(
                "its members may need {} MiB, and {} has {} MiB left",
                mib(bytes),
                self.scratch.display(),
                mib(free)
            );
            return Err(Failure::gap(tag, reason, "name a roomier directory after --dir"));
        }
        self.reserved_bytes.set(self.reserved_bytes.get() + bytes);
        Ok(Reserved { bytes, of: self.reserved_bytes.clone() })
    }

    /// Bytes that are left on its disk, or in the memory that stands for one.
    pub fn free_bytes(&self) -> u64 {
        let disk = statvfs(&self.scratch);
        let disk = disk.map_or(0, |StatVfs { f_bavail, f_frsize, .. }| f_bavail * f_frsize);
        let in_memory = statfs(&self.scratch).is_ok_and(|fs| fs.f_type == TMPFS);
        if in_memory { disk.min(memory_left_bytes()) } else { disk }
    }

    /// Bytes that members of memory may take.
    pub fn free_memory_bytes(&self) -> u64 {
        self.memory.as_ref().map_or_else(memory_left_bytes, |memory| memory.free_bytes())
    }
}

/// A name of a file for something that has a name for people.
pub(crate) fn file_name(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = name.chars().map(letter).collect();
    name.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

fn memory_left_bytes() -> u64 {
    memory_available_bytes().saturating_sub(MEMORY_KEPT_BYTES)
}

/// Memory that programs may still ask for.
pub(crate) fn memory_available_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
