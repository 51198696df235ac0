//! Storage of a node's volumes and notes: files in a directory, or memory.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{DirEntry, File, Metadata, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use braid_array::action::Event;
use braid_array::fabric::{NoteOp, Survey};
use braid_array::{IoError, IoId, Outcome, Refusal, SECTOR_BYTES};
use braid_cluster::node::NOTE_ENDING;
use braid_cluster::wire::valid_volume_name;
use rustix::fs::Access;

use crate::member::{self, MemberFile, Mode};
use crate::run_dir::PassingLock;
use crate::system::{describe, make_durable_dirs};

mod lengthen;
mod queue;
#[cfg(test)]
mod tests;

pub(crate) use queue::StoreQueue;

use lengthen::Lengthening;

/// Eight bytes, the number of the store. No volume is called so.
const ID_FILE: &str = ".id";

/// The volumes and notes of one node, in a [`directory`](Self::directory), which no other node can
/// use meanwhile, or in [`memory`](Self::memory). Notes are small files by name, such as votes.
///
/// A volume is a member that comes and goes by name (see `braid_array::fabric::VolumeOp`). The
/// engine reaches the store through a [`StoreQueue`]. [`id`](Self::id) is the number by which
/// arrays count this node's vote.
///
/// An acknowledged create or delete survives a power cut. Each call may wait for the disk. Errors
/// are [`Refusal`]s that name the reason and a next step; sizes are in bytes, multiples of a
/// sector.
#[derive(Debug)]
pub struct Store {
    place: VolumePlace,
}

#[derive(Debug)]
enum VolumePlace {
    Directory {
        path: PathBuf,
        /// Synced when names change.
        handle: File,
        /// Held by the process that uses the directory.
        _lock: PassingLock,
    },
    Memory {
        volumes: BTreeMap<String, File>,
        notes: BTreeMap<String, Vec<u8>>,
    },
}

impl Store {
    /// Opens the files in a directory, which is made if it is not there. The lock prevents use by
    /// another store meanwhile.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn directory(path: &Path) -> Result<Self, Refusal> {
        let fail = |what: &str, error: &io::Error| {
            let reason = format!("{}: {what}: {}", path.display(), describe(error));
            Refusal::new(reason, "name a directory that this user may write to")
        };
        make_durable_dirs(path).map_err(|e| fail("cannot be made a directory", &e))?;
        let handle = File::open(path).map_err(|e| fail("cannot be opened", &e))?;
        rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|e| fail("cannot be written to", &e.into()))?;
        let lock = PassingLock::take(path).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => {
                let held = describe(&error);
                let reason = format!("{}: is the store of a running node: {held}", path.display());
                Refusal::new(reason, "stop that one, or name another directory")
            }
            _ => fail("cannot be locked", &error),
        })?;
        let path = std::path::absolute(path).map_err(|e| fail("has no absolute path", &e))?;
        Ok(Self { place: VolumePlace::Directory { path, handle, _lock: lock } })
    }

    /// Memory; gone when the process ends.
    #[must_use]
    pub const fn memory() -> Self {
        Self { place: VolumePlace::Memory { volumes: BTreeMap::new(), notes: BTreeMap::new() } }
    }

    /// Lists at most so many volumes and notes, with names behind `after`.
    fn survey(&self, after: &str, most: usize) -> Result<Survey, Refusal> {
        let mut all = self.place.list()?;
        all.retain(|(name, _)| name.as_str() > after);
        all.sort();
        let more = all.len() > most;
        all.truncate(most);
        let (total_bytes, free_bytes) = self.place.room()?;
        let promised_bytes = self.place.promised()?;
        let (notes, volumes): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(name, _)| name.ends_with(NOTE_ENDING));
        let notes = notes.into_iter().map(|(name, _)| name).collect();
        Ok(Survey { total_bytes, free_bytes, promised_bytes, volumes, notes, more })
    }

    /// Returns its number, by which arrays count its vote: drawn once, and kept with the volumes.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn id(&self) -> Result<u64, Refusal> {
        // The keys of hash maps are random, and different for everybody.
        let drawn = RandomState::new().hash_one(std::process::id());
        let VolumePlace::Directory { path, handle, .. } = &self.place else { return Ok(drawn) };
        let file = path.join(ID_FILE);
        let new = path.join(".id.new");
        let draw = || {
            std::fs::write(&new, drawn.to_le_bytes())
                .and_then(|()| File::open(&new)?.sync_all())
                .and_then(|()| std::fs::rename(&new, &file))
                .and_then(|()| handle.sync_all())
                .map(|()| drawn)
        };
        let kept = match std::fs::read(&file) {
            Ok(bytes) => match <[u8; 8]>::try_from(&*bytes) {
                Ok(bytes) => Ok(u64::from_le_bytes(bytes)),
                // It was not durable when all ended, and nobody has heard of it.
                Err(_) if bytes.is_empty() && !self.place.has_voted() => draw(),
                Err(_) => return Err(damaged(&file, bytes.len())),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => draw(),
            Err(error) => Err(error),
        };
        kept.map_err(|error| {
            let reason = format!("{}: cannot be kept: {}", file.display(), describe(&error));
            Refusal::new(reason, "see that the directory can be written to")
        })
    }

    fn create(&mut self, name: &str, bytes: u64) -> Result<(), Refusal> {
        self.place.create(name, bytes)
    }

    fn open(&self, name: &str) -> Result<MemberFile, Refusal> {
        self.place.open(name)
    }

    fn remove(&mut self, name: &str) -> Result<(), Refusal> {
        self.place.remove(name)
    }

    /// Gives a volume another length. Returns its new size.
    fn lengthen(&mut self, name: &str, change: &Lengthening) -> Result<u64, Refusal> {
        self.place.lengthen(name, change)
    }

    /// Carries out an operation on notes.
    fn note(&mut self, io: IoId, op: &NoteOp) -> Event {
        let result = match op {
            NoteOp::Read { name } => match self.place.read_note(name) {
                Ok(bytes) => return Event::Loaded { io, bytes },
                Err(error) => Err(error),
            },
            NoteOp::Write { name, at, bytes } => self.place.write_note(name, *at, bytes),
            NoteOp::Remove { name } => self.place.remove_note(name),
        };
        if let Err(error) = &result {
            tracing::error!(error = %describe(error), "a note is not kept as it should be");
        }
        Event::Done { io, result: result.map(|()| Outcome::Done).map_err(|_| IoError::GONE) }
    }
}

/// The directories that have to be made for a store. Unless they are kept, they are removed again
/// while empty.
#[derive(Debug)]
pub(crate) struct MadeDirectories {
    store: PathBuf,
    /// Missing directories, from the store upwards.
    missing: Vec<PathBuf>,
}

impl MadeDirectories {
    /// Finds the missing directories of a store. To be called before the store is made, and dropped
    /// after the store is.
    pub(crate) fn of(store: &Path) -> Self {
        let missing = store.ancestors().take_while(|path| !path.exists()).map(Path::to_owned);
        let missing = missing.filter(|path| !path.as_os_str().is_empty()).collect();
        Self { store: store.to_owned(), missing }
    }

    pub(crate) fn keep(mut self) {
        self.missing.clear();
    }
}

impl Drop for MadeDirectories {
    fn drop(&mut self) {
        if self.missing.is_empty() {
            return;
        }
        // Somebody else may have begun to use it, or to fill it.
        let Ok(lock) = PassingLock::take(&self.store) else { return };
        let own = |entry: &std::fs::DirEntry| {
            [".lock", ID_FILE].map(OsStr::new).contains(&&*entry.file_name())
        };
        let only_own = |entries: std::fs::ReadDir| entries.flatten().all(|entry| own(&entry));
        let empty = std::fs::read_dir(&self.store).is_ok_and(only_own);
        if empty {
            let _ = std::fs::remove_file(self.store.join(ID_FILE));
        }
        drop(lock);
        // Those that are not empty stay.
        if empty {
            for path in &self.missing {
                let _ = std::fs::remove_dir(path);
            }
        }
    }
}

impl VolumePlace {
    fn create(&mut self, name: &str, bytes: u64) -> Result<(), Refusal> {
        let there =
            || Refusal::new("there is a volume of this name", "choose another, or delete that one");
        match self {
            Self::Memory { volumes: files, .. } if files.contains_key(name) => Err(there()),
            Self::Memory { volumes: files, .. } => {
                let file = member::memory_file(name, bytes);
                let file = file.map_err(|error| refused("made", &error))?;
                files.insert(name.to_owned(), file);
                Ok(())
            }
            Self::Directory { path, handle, .. } => {
                check_room(handle, promised(path)?, bytes)?;
                lengthen::forget(path, handle, name).map_err(|error| refused("made", &error))?;
                let path = path.join(name);
                let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
                let file = match file {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                        return Err(there());
                    }
                    file => file.map_err(|error| refused("made", &error))?,
                };
                let sized = file.set_len(bytes).and_then(|()| file.sync_all());
                sized.and_then(|()| handle.sync_all()).map_err(|error| {
                    let _ = std::fs::remove_file(&path);
                    refused("made", &error)
                })
            }
        }
    }

    fn open(&self, name: &str) -> Result<MemberFile, Refusal> {
        match self {
            Self::Memory { volumes: files, .. } => {
                let file = files.get(name).ok_or_else(no_volume)?;
                let open = || Ok((file.try_clone()?, file.metadata()?.len()));
                let (file, bytes) = open().map_err(|error| refused("opened", &error))?;
                Ok(MemberFile::plain(file, PathBuf::from(name), bytes))
            }
            Self::Directory { path, handle, .. } => {
                if !path.join(name).exists() {
                    return Err(no_volume());
                }
                lengthen::complete(path, handle, name)?;
                let path = path.join(name);
                member::open(&path, Mode::ReadWrite, true)
                    .map_err(|error| Refusal::new(error.reason, error.next))
            }
        }
    }

    fn read_note(&self, name: &str) -> io::Result<Vec<u8>> {
        match self {
            Self::Memory { notes, .. } => Ok(notes.get(name).cloned().unwrap_or_default()),
            Self::Directory { path, .. } => match std::fs::read(path.join(name)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
                read => read,
            },
        }
    }

    fn write_note(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Memory { notes, .. } => {
                let note = notes.entry(name.to_owned()).or_default();
                let start = usize::try_from(at).map_err(io::Error::other)?;
                note.resize(note.len().max(start + bytes.len()), 0);
                note[start..start + bytes.len()].copy_from_slice(bytes);
                Ok(())
            }
            Self::Directory { path, handle, .. } => {
                let path = path.join(name);
                let mut options = OpenOptions::new();
                let file = options.write(true).create(true).truncate(false).mode(0o600);
                let file = file.open(&path)?;
                file.write_all_at(bytes, at)?;
                file.sync_all()?;
                // Each time: one that is there may be there only because an earlier write failed,
                // or its process died, before the directory was durable.
                handle.sync_all()
            }
        }
    }

    /// Removes a note. The removal is durable once the directory is.
    fn remove_note(&mut self, name: &str) -> io::Result<()> {
        match self {
            Self::Memory { notes, .. } => {
                notes.remove(name);
                Ok(())
            }
            Self::Directory { path, handle, .. } => {
                // Gone already where an earlier removal failed before the directory was durable.
                match std::fs::remove_file(path.join(name)) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    removed => removed?,
                }
                handle.sync_all()
            }
        }
    }

    /// Returns whether a vote of any array is there.
    fn has_voted(&self) -> bool {
        let Self::Directory { path, .. } = self else { return false };
        let is_vote = |entry: &std::fs::DirEntry| {
            entry.file_name().to_str().is_some_and(|name| name.ends_with(NOTE_ENDING))
        };
        std::fs::read_dir(path).is_ok_and(|entries| entries.flatten().any(|entry| is_vote(&entry)))
    }

    /// Names and sizes of volumes and notes.
    fn list(&self) -> Result<Vec<(String, u64)>, Refusal> {
        match self {
            Self::Memory { volumes, notes } => {
                let volume = |(name, file): (&String, &File)| {
                    Some((name.clone(), file.metadata().ok()?.len()))
                };
                let notes = notes.iter().map(|(name, note)| (name.clone(), note.len() as u64));
                Ok(volumes.iter().filter_map(volume).chain(notes).collect())
            }
            Self::Directory { path, .. } => {
                let entries = std::fs::read_dir(path).map_err(|error| refused("listed", &error))?;
                let file = |entry: std::fs::DirEntry| {
                    let name = entry.file_name().into_string().ok();
                    let name = name.filter(|name| valid_volume_name(name))?;
                    let data = entry.metadata().ok().filter(Metadata::is_file)?;
                    Some((name, data.len()))
                };
                Ok(entries.flatten().filter_map(file).collect())
            }
        }
    }

    /// Bytes in all, and those that are free. Memory is as large as the machine's.
    fn room(&self) -> Result<(u64, u64), Refusal> {
        match self {
            Self::Memory { .. } => {
                let info = rustix::system::sysinfo();
                let unit = u64::from(info.mem_unit);
                Ok((info.totalram * unit, info.freeram * unit))
            }
            Self::Directory { handle, .. } => room(handle),
        }
    }

    fn remove(&mut self, name: &str) -> Result<(), Refusal> {
        match self {
            Self::Memory { volumes: files, .. } => {
                files.remove(name);
                Ok(())
            }
            Self::Directory { path, handle, .. } => lengthen::forget(path, handle, name)
                .and_then(|()| std::fs::remove_file(path.join(name)))
                .and_then(|()| handle.sync_all())
                .map_err(|error| refused("removed", &error)),
        }
    }

    fn lengthen(&self, name: &str, change: &Lengthening) -> Result<u64, Refusal> {
        let Self::Directory { path, handle, .. } = self else {
            let reason = "volumes in memory keep their length";
            return Err(Refusal::new(reason, "use nodes with a store in a directory"));
        };
        let data = std::fs::metadata(path.join(name)).map_err(|_| no_volume())?;
        let more = change.bytes.saturating_sub(data.len());
        check_room(handle, promised(path)?, more)?;
        change.carry_out(path, handle, name)?;
        Ok(change.bytes)
    }

    /// Bytes that volumes may still take of those that are free.
    fn promised(&self) -> Result<u64, Refusal> {
        match self {
            Self::Memory { .. } => Ok(0),
            Self::Directory { path, .. } => promised(path),
        }
    }
}

/// The number is lost by which arrays know the node.
fn damaged(file: &Path, bytes: usize) -> Refusal {
    let reason = format!("{}: holds {bytes} bytes where the node's number has 8", file.display());
    let next = "put it back from a backup; or, as the last resort, remove it: then the node comes \
                back as another voter, and its arrays need a majority of the others to start";
    Refusal::new(reason, next)
}

fn no_volume() -> Refusal {
    Refusal::new("there is no volume of this name", "check the name, or create it")
}

fn refused(what: &str, error: &io::Error) -> Refusal {
    Refusal::new(format!("cannot be {what}: {}", describe(error)), "check the store of the node")
}

/// Checks the name of a volume, and its size in bytes if it is to be made.
fn check_volume(name: &str, bytes: Option<u64>) -> Result<(), Refusal> {
    check_name(name)?;
    match bytes {
        Some(bytes) if bytes == 0 || !bytes.is_multiple_of(SECTOR_BYTES) => {
            let reason = format!("{bytes} bytes are no size for a volume");
            Err(Refusal::new(reason, "use whole sectors"))
        }
        _ => Ok(()),
    }
}

fn check_name(name: &str) -> Result<(), Refusal> {
    let next = "use letters, digits, dots, dashes and underscores, and no `.vote` at the end";
    let refusal = || Refusal::new("not a name for a volume", next);
    let fits = valid_volume_name(name) && !name.ends_with(NOTE_ENDING);
    fits.then_some(()).ok_or_else(refusal)
}

/// Refuses a size that the file system has no room for. The unused rest of other volumes counts as
/// taken, as they may use it at any time.
fn check_room(directory: &File, promised: u64, bytes: u64) -> Result<(), Refusal> {
    let (_, free) = room(directory)?;
    let left = free.saturating_sub(promised);
    if bytes > left {
        let reason = format!(
            "{bytes} bytes do not fit into the node's file system: {free} are free, {promised} of \
             them promised to other volumes"
        );
        return Err(Refusal::new(reason, "choose a smaller size, or make room there"));
    }
    Ok(())
}

/// Bytes of the file system in all, and those that are free.
fn room(directory: &File) -> Result<(u64, u64), Refusal> {
    let refused = |error: rustix::io::Errno| refused("looked at", &error.into());
    let stat = rustix::fs::fstatvfs(directory).map_err(refused)?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Ok((bytes(stat.f_blocks), bytes(stat.f_bavail)))
}

/// Returns the space that the volumes in a directory may still take: files have their full length
/// from the start, and occupy the disk only where they were written.
///
/// # Errors
/// When the directory cannot be read, so that the space is unknown.
fn promised(directory: &Path) -> Result<u64, Refusal> {
    let promised_by = |entry: io::Result<DirEntry>| match entry?.metadata() {
        Ok(data) => Ok(data.len().saturating_sub(data.blocks() * SECTOR_BYTES)),
        // Removed meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    };
    let entries = std::fs::read_dir(directory);
    let sum = entries.and_then(|entries| entries.map(promised_by).sum());
    sum.map_err(|error| refused("looked at", &error))
}
