//! Cases within this process: an array, and copies between an area and the buffers of requests. No
//! engine of one thread over memory can do more than these.

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use braid_array::assemble::{Config, Described, DescribedMember};
use braid_array::level::{Layout, Level};
use braid_array::{Op, Refusal, SECTOR_BYTES};
use braid_host::export::load::Load;
use braid_host::member::{self, MemberFile, Mode};
use braid_host::serve::{Assembled, Private};
use hdrhistogram::Histogram;

use super::EngineOptions;
use super::case::{CHUNK_BYTES, EnginePlace, members};
use super::load::{latencies, measure};
use crate::compare::member_bytes;
use crate::compare::rates::Figures;
use crate::compare::requests::Requests;
use crate::failure::{About, Failure};
use crate::rig::process::cpu_seconds;
use crate::rig::{LoopDevice, Room, Stack};

/// The clock is read after so much, as often as it costs nothing.
const BETWEEN_BYTES: u32 = 1 << 20;
/// Time until an answer comes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Place of the data on each member.
const DATA_OFFSET: u64 = 2048;

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
        let bytes = member_bytes(shape.level, shape.members, options.area_bytes);
        let stack = match place {
            EnginePlace::Memory => stack,
            EnginePlace::Files => stack.files(shape.members, bytes)?,
            EnginePlace::Blocks => stack.files(shape.members, bytes)?.loops(LoopDevice::DIRECT)?,
        };
        let members = match place {
            EnginePlace::Memory => memory(&name, room, shape.members, bytes)?,
            EnginePlace::Files | EnginePlace::Blocks => open(&stack.members)?,
        };
        fill(&members, bytes)?;
        let array = config(shape, &members)
            .and_then(|config| Private::start(Assembled::Array { config, members }))
            .map_err(|why| Failure::explained(&name, why))?;
        let area_bytes = options.area_bytes.min(array.size_bytes());
        Ok((Self { array: Some(array), area_bytes }, stack))
    }

    pub(super) fn drive(&self, load: Requests, length: Duration) -> Result<Figures, String> {
        // All of the process but this thread, which waits.
        let of = |who| cpu_seconds(who).unwrap_or_default();
        let cpu_s = || Some(of("self") - of("thread-self"));
        measure(length, cpu_s, |length| self.ask_for(load, length))
    }

    /// Has the engine's own thread make requests; returns how long each took, and all of them.
    fn ask_for(&self, load: Requests, length: Duration) -> Result<(Histogram<u64>, f64), String> {
        let array = self.array.as_ref().expect("it runs until it is dropped");
        let area_bytes = self.area_bytes;
        let latencies = Arc::new(Mutex::new(latencies()));
        let counted = Arc::clone(&latencies);
        let took = move |took: Duration| {
            let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            counted.lock().expect("nobody panics with it").saturating_record(nanos);
        };
        let (done, ended) = mpsc::channel();
        array.load(Load {
            op: if load.writes() { Op::Write { fua: false } } else { Op::Read },
            bytes: load.bytes,
            depth: load.depth,
            length,
            place: Box::new(move |number| load.offset(number, area_bytes)),
            took: Box::new(took),
            done,
        });
        let ended = ended.recv_timeout(length + PATIENCE);
        let ended = ended.map_err(|_| "no answer for a minute".to_owned())?;
        let seconds = ended.map_err(|error| error.to_string())?.as_secs_f64();
        let latencies = latencies.lock().expect("nobody panics with it").clone();
        Ok((latencies, seconds))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // What it held goes as well.
        let _ = self.array.take().map(Private::stop);
    }
}

/// Copies from and to an area that was written once, for so long.
pub(super) fn copy(area: &mut [u8], load: Requests, length: Duration) -> Figures {
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
            if load.writes() {
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
            .about(name, "free some memory")
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

/// Writes members once, so that no hole is read.
fn fill(members: &[MemberFile], bytes: u64) -> Result<(), Failure> {
    let content = vec![0xb7; BETWEEN_BYTES as usize];
    for member in members {
        let mut pieces = (0..bytes).step_by(content.len());
        let filled = pieces.try_for_each(|at| member.write_at(at, &content));
        filled.about(member.path.display(), "use another one")?;
    }
    Ok(())
}

/// Configures a new array, as if it were assembled: all members are in sync.
fn config(shape: ArrayShape, members: &[MemberFile]) -> Result<Config, Refusal> {
    let ArrayShape { level, chunk_bytes, .. } = shape;
    let chunk_sectors = if level == Level::Raid1 { 0 } else { chunk_bytes / SECTOR_BYTES };
    let member = |member: &MemberFile| {
        let device = member.path.display().to_string();
        let device_sectors = member.sectors;
        Some(DescribedMember { device, device_sectors, data_offset: DATA_OFFSET })
    };
    let described = Described {
        name: "engine".to_owned(),
        level,
        layout: Layout::default_for(level),
        chunk_sectors: u32::try_from(chunk_sectors).unwrap_or(u32::MAX),
        members: members.iter().map(member).collect(),
    };
    let block_bytes = members.iter().map(|member| member.block_bytes).max().unwrap_or(512);
    Ok(Config { block_bytes, read_only: false, force: false, ..described.config()? })
}
