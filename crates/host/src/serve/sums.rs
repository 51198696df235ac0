//! Checksums of an array's members as it is assembled: behind their data, or in stores, which are
//! files of a directory.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use braid_array::assemble::Config;
use braid_array::format::Superblock;
use braid_array::integrity::{FoundArea, storable};
use braid_array::{MemberId, SECTOR_BYTES};
use rustix::fs::FallocateFlags;

use crate::member::{self, MemberFile, Mode};
use crate::system::{describe, random_uuid};

/// Checksums of members, and lines about those of no use.
#[derive(Debug, Default)]
pub(super) struct Sums {
    pub(super) areas: Vec<(MemberId, FoundArea)>,
    pub(super) lines: Vec<String>,
}

impl Sums {
    /// Looks for the checksums of an array's members, whose ids `name` changes. Members without any
    /// get some in the directory of stores, if there is one, and a store beside them.
    pub(super) fn find(
        &mut self,
        config: &Config,
        files: &mut [MemberFile],
        dir: Option<&Path>,
        name: impl Fn(MemberId) -> MemberId,
    ) {
        for ((id, member), file) in config.member_ids().zip(&config.members).zip(files) {
            let id = name(id);
            let superblock = &member.superblock;
            let found = FoundArea::read(superblock, file.sectors, |sector, bytes| {
                read(file, sector, bytes)
            });
            match (found, dir) {
                (Ok(Some(area)), _) => self.areas.push((id, area)),
                (Ok(None), None) => {}
                (Ok(None), Some(dir)) => {
                    let stored = stored(superblock, file, dir, config.read_only);
                    match stored {
                        Ok(Some((area, store))) => {
                            self.areas.push((id, area));
                            file.beside = Some(Box::new(store));
                        }
                        Ok(None) => {}
                        Err(why) => self.unused(&member.device, &why),
                    }
                }
                (Err(why), _) => self.unused(&member.device, &why.to_string()),
            }
        }
    }

    fn unused(&mut self, device: &str, why: &str) {
        self.lines.push(format!("{device}: checksums are not used: {why}"));
    }
}

fn read(file: &MemberFile, sector: u64, bytes: u32) -> Result<Vec<u8>, String> {
    let bytes = file.read_at(sector * SECTOR_BYTES, bytes as usize);
    bytes.map_err(|error| error.to_string())
}

/// Returns the place of a member's store.
fn path_of(dir: &Path, superblock: &Superblock) -> PathBuf {
    let digits = superblock.device_uuid.iter().map(|byte| format!("{byte:02x}"));
    dir.join(digits.collect::<String>() + ".sums")
}

/// Opens the store of a member, which is made where there is none and something may be written.
/// `None`: it has none, and needs none.
fn stored(
    superblock: &Superblock,
    file: &MemberFile,
    dir: &Path,
    read_only: bool,
) -> Result<Option<(FoundArea, MemberFile)>, String> {
    let area = match storable(superblock) {
        Ok(area) => area,
        // All of an array have the same reason, and who has no redundancy was told by others.
        Err(why) if superblock.level > 0 => return Err(why.to_owned()),
        Err(_) => return Ok(None),
    };
    let path = path_of(dir, superblock);
    let at = |error: &io::Error| format!("{}: {}", path.display(), describe(error));
    let bytes = area.sectors() * SECTOR_BYTES;
    let is_there = match fs::exists(&path) {
        Ok(is_there) => is_there,
        Err(error) => return Err(at(&error)),
    };
    if !is_there {
        if read_only {
            return Ok(None);
        }
        create(&path, bytes).map_err(|error| at(&error))?;
    }
    let mode = if read_only { Mode::ReadOnly } else { Mode::ReadWrite };
    let mut store = member::open(&path, mode, !read_only).map_err(|error| error.to_string())?;
    if store.sectors >= area.sectors() {
        let read_member = |sector, bytes| read(file, sector, bytes);
        let read_store = |sector, bytes| read(&store, sector, bytes);
        match FoundArea::stored(superblock, read_member, read_store) {
            Ok(Some(area)) => return Ok(Some((area, store))),
            Err(why) if why.is_of_later_version() => return Err(why.to_string()),
            // It is this member's by its name: what it holds is of no use.
            Ok(None) | Err(_) => {}
        }
    }
    if read_only {
        return Ok(None);
    }
    empty(&store.file, bytes).map_err(|error| at(&error))?;
    store.sectors = area.sectors();
    let name = random_uuid().map_err(|error| at(&error))?;
    let begun = FoundArea::begun(superblock, name, |sector, bytes| read(file, sector, bytes));
    Ok(begun.map(|area| (area, store)))
}

/// Makes a store with its place, and has it found after a loss of power.
fn create(path: &Path, bytes: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let made = empty(&file, bytes).and_then(|()| match path.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    });
    made.inspect_err(|_| drop(fs::remove_file(path)))
}

/// Makes a file one of so many zeroes that have their place.
fn empty(file: &File, bytes: u64) -> io::Result<()> {
    file.set_len(0)?;
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // The file system gives a place with the first write alone.
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(bytes)?,
        result => result?,
    }
    file.sync_all()
}
