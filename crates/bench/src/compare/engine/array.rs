//! An array within this process.

use std::path::PathBuf;
use std::time::Duration;

use braid_array::assemble::{Config, MemberConfig, Standing as InArray, StartLog};
use braid_array::create::{Blueprint, NewArray, NewBitmap, NewDevice, NewLog};
use braid_array::format::{BadBlocks, Version};
use braid_array::level::{Layout, Level};
use braid_array::{Role, SECTOR_BYTES};
use braid_host::member::{self, MemberFile, Mode};
use braid_host::serve::{Assembled, Private};

use super::Options;
use super::case::{Place, Shape, member_bytes};
use super::load::{Load, drive, fill, keep};
use crate::compare::figures::Figures;
use crate::failure::Failure;
use crate::model::{Note, Standing};
use crate::rig::{LoopDevice, MemberFiles, Room};

/// A case that stands.
pub(super) struct Stand {
    array: Option<Private>,
    area_bytes: u64,
    length: Duration,
    // In this order: devices lie on files.
    _devices: Vec<LoopDevice>,
    _files: Option<MemberFiles>,
}

impl Stand {
    pub(super) fn set_up(
        options: &Options,
        name: String,
        shape: Shape,
        place: Place,
        room: &Room,
    ) -> Result<Self, Failure> {
        let count = shape.members;
        let bytes = member_bytes(shape.level, options.area_bytes);
        let files = match place {
            Place::Memory => None,
            Place::Files | Place::Blocks => Some(room.member_files(&name, count, bytes)?),
        };
        let paths = files.as_ref().map_or(&[][..], |files| &files.paths);
        let mut devices = Vec::new();
        let members = match place {
            Place::Memory => memory(&name, room, count, bytes)?,
            Place::Files => open(paths)?,
            Place::Blocks => {
                for path in paths {
                    devices.push(LoopDevice::over(room, path)?);
                }
                open(&devices.iter().map(|one| one.device.clone()).collect::<Vec<PathBuf>>())?
            }
        };
        let blueprint = blueprint(&name, shape, &members)?;
        write(&blueprint, &members)?;
        let config = config(&blueprint, &members);
        let array = Private::start(Assembled::Array { config, members })
            .map_err(|why| Failure::explained(&name, why))?;
        let area_bytes = options.area_bytes.min(array.size_bytes());
        let filled = fill(array.door(), area_bytes);
        let length = Duration::from_millis(options.run_ms);
        let array = Some(array);
        let stand = Self { array, area_bytes, length, _devices: devices, _files: files };
        filled.map_err(|reason| Failure::refused(name, reason, "see the kernel's log for why"))?;
        Ok(stand)
    }

    /// Has the load carried out.
    pub(super) fn drive(&self, load: Load, length: Duration) -> Result<Figures, String> {
        let array = self.array.as_ref().expect("it runs until it is dropped");
        drive(array, self.area_bytes, load, length)
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        // What it held goes as well.
        let _ = self.array.take().map(Private::stop);
    }
}

impl Standing for Stand {
    fn run(&mut self, job: &str, note: &mut Note) -> Result<(), Failure> {
        keep(job, note, |load| self.drive(load, self.length))
    }
}

fn memory(name: &str, room: &Room, count: usize, bytes: u64) -> Result<Vec<MemberFile>, Failure> {
    let free = room.free_memory_bytes();
    let needed = bytes * count as u64;
    if needed > free {
        let reason = format!("it needs {} MiB of memory, {} are free", needed >> 20, free >> 20);
        return Err(Failure::gap(name, reason, "free some memory"));
    }
    let member = |number| {
        member::memory(PathBuf::from(format!("mem:{number}")), bytes)
            .map_err(|error| Failure::system(name, &error, "free some memory"))
    };
    (0..count).map(member).collect()
}

fn open(paths: &[PathBuf]) -> Result<Vec<MemberFile>, Failure> {
    let member = |path: &PathBuf| {
        member::open(path, Mode::ReadWrite, true)
            .map_err(|error| Failure::refused(path.display(), error.reason, error.next))
    };
    paths.iter().map(member).collect()
}

fn blueprint(name: &str, shape: Shape, members: &[MemberFile]) -> Result<Blueprint, Failure> {
    let level = shape.level;
    let chunk_sectors = u32::try_from(shape.chunk_bytes / SECTOR_BYTES).unwrap_or(u32::MAX);
    let device = |(number, member): (u8, &MemberFile)| {
        Some(NewDevice { device_sectors: member.sectors, device_uuid: [number; 16] })
    };
    let roles: Vec<Option<NewDevice>> = (1..).zip(members).map(device).collect();
    let array = NewArray {
        name: "engine".to_owned(),
        set_uuid: [0xb7; 16],
        ctime: 0,
        level,
        layout: Layout::default_for(level),
        chunk_sectors: if level == Level::Raid1 { 0 } else { chunk_sectors },
        version: Version::V1_2,
        data_offset: None,
        size_sectors: None,
        bitmap: NewBitmap::None,
        log: NewLog::None,
        assume_clean: true,
    };
    array.plan(&roles, &[]).map_err(|error| Failure::refused(name, error, "use larger members"))
}

fn write(blueprint: &Blueprint, members: &[MemberFile]) -> Result<(), Failure> {
    for (index, member) in members.iter().enumerate() {
        let mut writes = blueprint.writes(index).into_iter();
        writes
            .try_for_each(|(sector, bytes)| member.write_at(sector * SECTOR_BYTES, &bytes))
            .map_err(|error| Failure::system(member.path.display(), &error, "use another one"))?;
    }
    Ok(())
}

/// What a new array is started with: all members are in sync.
fn config(blueprint: &Blueprint, members: &[MemberFile]) -> Config {
    let superblocks: Vec<_> = blueprint.superblocks.iter().flatten().cloned().collect();
    let member = |((role, member), superblock): ((u16, &MemberFile), _)| MemberConfig {
        device: member.path.display().to_string(),
        device_sectors: member.sectors,
        superblock,
        bad_blocks: BadBlocks::default(),
        standing: InArray::InSync { role: Role(role) },
    };
    Config {
        superblock: superblocks[0].clone(),
        block_bytes: members.iter().map(|member| member.block_bytes).max().unwrap_or(512),
        members: (0..).zip(members).zip(superblocks).map(member).collect(),
        bitmap: None,
        log: StartLog::None,
        read_only: false,
        force: false,
    }
}
