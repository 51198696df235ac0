//! Cases within this process: an array, and copies between an area and the buffers of requests. No
//! engine of one thread over memory can do more than these.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use braid_array::assemble::{Config, MemberConfig, Standing as InArray, StartLog};
use braid_array::create::{Blueprint, NewArray, NewBitmap, NewDevice, NewLog};
use braid_array::format::{BadBlocks, Version};
use braid_array::level::{Layout, Level};
use braid_array::{Role, SECTOR_BYTES};
use braid_host::member::{self, MemberFile, Mode};
use braid_host::serve::{Assembled, Private};

use super::EngineOptions;
use super::case::{CHUNK_BYTES, EnginePlace, member_bytes, members};
use super::load::{EngineLoad, drive, fill};
use crate::compare::rates::Figures;
use crate::failure::Failure;
use crate::rig::process::cpu_seconds;
use crate::rig::{LoopDevice, Room, Stack};

/// The clock is read after so much, as often as it costs nothing.
const BETWEEN_BYTES: u32 = 1 << 20;

/// Shape of an array within the process.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrayShape {
    pub(super) level: Level,
    pub(super) members: usize,
    pub(super) chunk_bytes: u64,
}

impl ArrayShape {
    /// Four chunks of data are 1M.
    pub(super) const STRIPES: Self =
        Self { level: Level::Raid5, members: 5, chunk_bytes: CHUNK_BYTES / 2 };

    pub(super) const fn usual(level: Level) -> Self {
        Self { level, members: members(level), chunk_bytes: CHUNK_BYTES }
    }
}

/// An array that runs.
pub(super) struct Inside {
    array: Option<Private>,
    area_bytes: u64,
}

impl Inside {
    /// Starts an array of a shape, all of whose area was written once; also what its members lie
    /// on.
    pub(super) fn start(
        options: &EngineOptions,
        stack: Stack,
        shape: ArrayShape,
        place: EnginePlace,
        room: &Room,
    ) -> Result<(Self, Stack), Failure> {
        let name = stack.name.clone();
        let bytes = member_bytes(shape.level, options.area_bytes);
        let stack = match place {
            EnginePlace::Memory => stack,
            EnginePlace::Files => stack.files(shape.members, bytes)?,
            EnginePlace::Blocks => stack.files(shape.members, bytes)?.loops(LoopDevice::DIRECT)?,
        };
        let members = match place {
            EnginePlace::Memory => memory(&name, room, shape.members, bytes)?,
            EnginePlace::Files | EnginePlace::Blocks => open(&stack.members)?,
        };
        let blueprint = blueprint(&name, shape, &members)?;
        write(&blueprint, &members)?;
        let config = config(&blueprint, &members);
        let array = Private::start(Assembled::Array { config, members })
            .map_err(|why| Failure::explained(&name, why))?;
        let area_bytes = options.area_bytes.min(array.size_bytes());
        let filled = fill(array.submissions(), area_bytes);
        let inside = Self { array: Some(array), area_bytes };
        filled.map_err(|reason| Failure::refused(name, reason, "see the kernel's log for why"))?;
        Ok((inside, stack))
    }

    pub(super) fn drive(&self, load: EngineLoad, length: Duration) -> Result<Figures, String> {
        let array = self.array.as_ref().expect("it runs until it is dropped");
        drive(array, self.area_bytes, load, length)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // What it held goes as well.
        let _ = self.array.take().map(Private::stop);
    }
}

/// Copies from and to an area that was written once, for so long.
pub(super) fn copy(area: &mut [u8], load: EngineLoad, length: Duration) -> Figures {
    let bytes = load.bytes as usize;
    let mut buffers = vec![vec![0xb7; bytes]; load.depth];
    let at_a_time = u64::from((BETWEEN_BYTES / load.bytes).max(1));
    let mut number = 0;
    let before = cpu_seconds("thread-self");
    let begun = Instant::now();
    while begun.elapsed() < length {
        for number in number..number + at_a_time {
            let at = load.offset(number, area.len() as u64) as usize;
            let there = &mut area[at..at + bytes];
            let buffer = &mut buffers[number as usize % load.depth];
            if load.writes {
                there.copy_from_slice(black_box(buffer));
            } else {
                black_box(buffer).copy_from_slice(there);
            }
        }
        number += at_a_time;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let cpu_s = before.zip(cpu_seconds("thread-self")).map(|(before, now)| now - before);
    let requests = number as f64;
    Figures { requests, iops: requests / seconds, cpu_s, ..Figures::default() }
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

fn blueprint(name: &str, shape: ArrayShape, members: &[MemberFile]) -> Result<Blueprint, Failure> {
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

/// Configures a new array: all members are in sync.
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
        spill: None,
        members: (0..).zip(members).zip(superblocks).map(member).collect(),
        bitmap: None,
        log: StartLog::None,
        read_only: false,
        force: false,
    }
}
