//! Changes to a member that are kept in a file beside it, while the member stays as it is.
//!
//! The sparse file, in little-endian, begins with a block of 4096 bytes that identifies the member
//! ([`OverlayHeader`]); then comes a bit for each sector of the member, set where it was changed,
//! in blocks of 4096 bytes; then the changed sectors, each at its place in a file like the member.
//! The bits of written sectors are set in the file only after the sectors are durable there. So
//! after a crash a sector has its flushed content, or that of the member.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_array::SECTOR_BYTES;
use braid_array::assemble::Candidate;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::error::OpenError;
use super::{MemberFile, probe};
use crate::lock::LockedFile;
use crate::system::{describe, make_durable_dirs, sync_dir_of};

pub(super) const BLOCK_BYTES: u64 = 4096;
const PAGE_SECTORS: u64 = BLOCK_BYTES * 8;
const MAGIC: [u8; 8] = *b"BRAIDOVL";
const VERSION: u32 = 1;
/// The longest name of a file on Linux.
const MAX_NAME_BYTES: usize = 255;

/// The changes to a member.
#[derive(Debug)]
pub(crate) struct Overlay {
    /// The directory that it was asked for in.
    pub(crate) dir: PathBuf,
    file: Arc<LockedFile>,
    /// Start of the sectors in the file, in bytes.
    data: u64,
    map: Mutex<Map>,
}

/// Bitmaps of changed sectors: blocks of the file, by their place.
type Map = BTreeMap<u64, Page>;

#[derive(Clone, Debug)]
struct Page {
    bits: Box<[u8]>,
    /// Number of changes so far. `stored` is that number when it was last stored.
    changed: u64,
    stored: u64,
}

/// Blocks of the map as they were when a flush began.
#[derive(Debug, Default)]
pub(crate) struct Dirty(Vec<(u64, Box<[u8]>, u64)>);

impl Dirty {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Identity of the member to which the changes belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OverlayHeader {
    sectors: u64,
    /// UUID of the set in the member's superblock, zero without one. `device` is the UUID of the
    /// device (its number with metadata 0.90), and `events` the event count.
    set: [u8; 16],
    device: [u8; 16],
    events: u64,
}

/// Sectors that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// In the overlay, and not on the member.
    pub(crate) changed: bool,
    pub(crate) sectors: u64,
}

impl Overlay {
    /// Opens the changes to a member in a directory, which is made if it is not there, as is the
    /// file.
    ///
    /// # Errors
    /// When the file cannot be had, is in use, or is not of this member as it is now.
    pub(super) fn open(dir: &Path, member: &MemberFile) -> Result<Self, OpenError> {
        let path = dir.join(file_name(&member.path)?);
        let failed = |error: io::Error| failed(&path, &error);
        make_durable_dirs(dir).map_err(failed)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path);
        let file = LockedFile::from(file.map_err(failed)?);
        file.lock(true).map_err(|error| match error {
            Errno::WOULDBLOCK => {
                let next = "end what uses it, or name another directory";
                OpenError::new(&path, "is in use by another process", next)
            }
            error => failed(error.into()),
        })?;
        if file.metadata().map_err(failed)?.len() == 0 {
            let wanted = OverlayHeader::of(member.sectors, &probe(member));
            wanted.write(&file, data_of(member)).map_err(failed)?;
            // What is flushed into it later is of use only where it is found.
            sync_dir_of(&path).map_err(failed)?;
        }
        Self::of(dir, member, file, &path)
    }

    /// Opens the changes to a member in a directory for looking at them, even while more are made;
    /// `None` where there are none.
    ///
    /// # Errors
    /// When the file cannot be read, or is not of this member in its present state.
    pub(super) fn look(dir: &Path, member: &MemberFile) -> Result<Option<Self>, OpenError> {
        let path = dir.join(file_name(&member.path)?);
        match File::open(&path) {
            Ok(file) => Self::of(dir, member, file.into(), &path).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&path, &error)),
        }
    }

    pub(super) fn of(
        dir: &Path,
        member: &MemberFile,
        file: LockedFile,
        path: &Path,
    ) -> Result<Self, OpenError> {
        let failed = |error: io::Error| failed(path, &error);
        let data = data_of(member);
        OverlayHeader::of(member.sectors, &probe(member)).check(&file, path, &failed)?;
        let map = Mutex::new(read_map(&file, data).map_err(failed)?);
        Ok(Self { dir: dir.to_owned(), file: Arc::new(file), data, map })
    }

    /// The file, and where in it a sector lies, in bytes.
    pub(crate) fn place(&self, sector: u64) -> (Arc<LockedFile>, u64) {
        (Arc::clone(&self.file), self.data + sector * SECTOR_BYTES)
    }

    /// Returns the run of sectors from the first on that lie together.
    pub(crate) fn run(&self, sector: u64, sectors: u64) -> Run {
        let map = self.map();
        let changed = is_changed(&map, sector);
        let same = (sector + 1..sector + sectors).take_while(|&at| is_changed(&map, at) == changed);
        Run { changed, sectors: 1 + same.count() as u64 }
    }

    /// These sectors are written in the overlay.
    pub(crate) fn note_written(&self, sector: u64, sectors: u64) {
        let mut map = self.map();
        let end = sector + sectors;
        let mut at = sector;
        while at < end {
            let page = map.entry(at / PAGE_SECTORS).or_insert_with(Page::empty);
            let until = end.min((at / PAGE_SECTORS + 1) * PAGE_SECTORS);
            page.set(at % PAGE_SECTORS..at % PAGE_SECTORS + (until - at));
            at = until;
        }
    }

    /// Returns the part of the map to be stored once the sectors written by now are durable.
    pub(crate) fn dirty(&self) -> Dirty {
        let map = self.map();
        let dirty = map.iter().filter(|(_, page)| page.changed != page.stored);
        Dirty(dirty.map(|(&at, page)| (at, page.bits.clone(), page.changed)).collect())
    }

    /// Stores that. Durable after the next flush of the file.
    ///
    /// # Errors
    /// As the system says.
    pub(crate) fn store(&self, dirty: &Dirty) -> io::Result<()> {
        for (at, bits, changed) in &dirty.0 {
            self.file.write_all_at(bits, (1 + at) * BLOCK_BYTES)?;
            if let Some(page) = self.map().get_mut(at) {
                page.stored = page.stored.max(*changed);
            }
        }
        Ok(())
    }

    /// Makes all changes durable.
    ///
    /// # Errors
    /// As the system says.
    pub(crate) fn flush(&self) -> io::Result<()> {
        let dirty = self.dirty();
        self.file.sync_data()?;
        if !dirty.is_empty() {
            self.store(&dirty)?;
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// Overwrites bytes of the member, which begin with a sector, with the changed sectors.
    pub(super) fn read_over(&self, sector: u64, bytes: &mut [u8]) -> io::Result<()> {
        let end = bytes.len().div_ceil(SECTOR_BYTES as usize) as u64;
        let mut at = 0;
        while at < end {
            let run = self.run(sector + at, end - at);
            if run.changed {
                let bound = |at: u64| bytes.len().min((at * SECTOR_BYTES) as usize);
                let part = bound(at)..bound(at + run.sectors);
                let (file, offset) = self.place(sector + at);
                file.read_exact_at(&mut bytes[part], offset)?;
            }
            at += run.sectors;
        }
        Ok(())
    }

    /// Writes bytes of the member, whole sectors from this one on.
    pub(super) fn write(&self, sector: u64, bytes: &[u8]) -> io::Result<()> {
        let (file, offset) = self.place(sector);
        file.write_all_at(bytes, offset)?;
        self.note_written(sector, (bytes.len() as u64).div_ceil(SECTOR_BYTES));
        Ok(())
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Overlay {
    /// Flushes changes. A failure loses only changes that were not flushed.
    fn drop(&mut self) {
        if !self.dirty().is_empty() {
            let _ = self.flush();
        }
    }
}

impl Page {
    fn empty() -> Self {
        Self { bits: vec![0; BLOCK_BYTES as usize].into(), changed: 0, stored: 0 }
    }

    /// These of its sectors are changed.
    fn set(&mut self, mut sectors: Range<u64>) {
        while sectors.start < sectors.end {
            let byte = (sectors.start / 8) as usize;
            let whole = sectors.start.is_multiple_of(8) && sectors.end - sectors.start >= 8;
            self.bits[byte] |= if whole { u8::MAX } else { 1 << (sectors.start % 8) };
            sectors.start += if whole { 8 } else { 1 };
        }
        self.changed += 1;
    }
}

impl OverlayHeader {
    pub(super) fn of(sectors: u64, found: &Candidate) -> Self {
        let none = Self { sectors, set: [0; 16], device: [0; 16], events: 0 };
        let Ok(superblock) = &found.superblock else { return none };
        let mut device = superblock.device_uuid;
        device[12..].iter_mut().zip(superblock.dev_number.to_le_bytes()).for_each(|(a, b)| *a ^= b);
        Self { set: superblock.set_uuid, device, events: superblock.events, ..none }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.sectors.to_le_bytes());
        bytes.extend(self.set);
        bytes.extend(self.device);
        bytes.extend(self.events.to_le_bytes());
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes.resize(BLOCK_BYTES as usize, 0);
        bytes
    }

    /// Makes an empty file one without changes.
    fn write(&self, file: &File, data: u64) -> io::Result<()> {
        file.set_len(data + self.sectors * SECTOR_BYTES)?;
        file.write_all_at(&self.encode(), 0)?;
        file.sync_all()
    }

    /// Checks that the overlay belongs to this member in its present state.
    fn check(
        &self,
        file: &File,
        path: &Path,
        failed: &dyn Fn(io::Error) -> OpenError,
    ) -> Result<(), OpenError> {
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        file.read_exact_at(&mut bytes, 0).map_err(failed)?;
        if bytes == self.encode() {
            return Ok(());
        }
        let next = "name another directory, or delete this file and with it the changes";
        let reason = match Self::decode(&bytes) {
            None => "holds no changes to a member".to_owned(),
            Some(found) if Self { events: self.events, ..found.clone() } == *self => format!(
                "holds changes to the member as it was at event count {}, which is {} now",
                found.events, self.events
            ),
            Some(_) => "holds changes to another member".to_owned(),
        };
        Err(OpenError::new(path, reason, next))
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&MAGIC)?.strip_prefix(&VERSION.to_le_bytes())?;
        let (sectors, rest) = rest.split_first_chunk()?;
        let (set, rest) = rest.split_first_chunk()?;
        let (device, rest) = rest.split_first_chunk()?;
        let (events, _) = rest.split_first_chunk()?;
        let sectors = u64::from_le_bytes(*sectors);
        let found =
            Self { sectors, set: *set, device: *device, events: u64::from_le_bytes(*events) };
        (found.encode() == bytes).then_some(found)
    }
}

fn failed(path: &Path, error: &io::Error) -> OpenError {
    let next = "name a directory with room, on a file system with sparse files";
    OpenError::new(path, describe(error), next)
}

/// Returns the start of a member's sectors in the file, in bytes.
const fn data_of(member: &MemberFile) -> u64 {
    BLOCK_BYTES * (1 + member.sectors.div_ceil(PAGE_SECTORS))
}

/// The name of the file with the changes to a member: its path, with `!` for each `/`.
fn file_name(member: &Path) -> Result<PathBuf, OpenError> {
    let name = member.display().to_string().trim_start_matches('/').replace('/', "!");
    let name = format!("{name}.overlay");
    if name.len() > MAX_NAME_BYTES {
        let reason = "its path is too long to name a file with its changes";
        return Err(OpenError::new(member, reason, "name it by a shorter one"));
    }
    Ok(name.into())
}

/// Reads the existing blocks of the map. Most of it is a hole.
fn read_map(file: &File, data: u64) -> io::Result<Map> {
    let mut map = Map::new();
    let mut at = BLOCK_BYTES;
    while at < data {
        // Behind the last data there is nothing, and where holes are not told all is data.
        match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(next) => at = next / BLOCK_BYTES * BLOCK_BYTES,
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        }
        if at >= data {
            break;
        }
        let mut page = Page::empty();
        file.read_exact_at(&mut page.bits, at)?;
        if page.bits.iter().any(|byte| *byte != 0) {
            map.insert(at / BLOCK_BYTES - 1, page);
        }
        at += BLOCK_BYTES;
    }
    Ok(map)
}

fn is_changed(map: &Map, sector: u64) -> bool {
    let (byte, bit) = bit_of(sector);
    map.get(&(sector / PAGE_SECTORS)).is_some_and(|page| page.bits[byte] & bit != 0)
}

/// The byte of its page that has a sector's bit, and the bit.
const fn bit_of(sector: u64) -> (usize, u8) {
    let within = sector % PAGE_SECTORS;
    ((within / 8) as usize, 1 << (within % 8))
}
