//! The cases, set up, and their jobs.

use std::fmt::Write as _;
use std::fs;

use braid_array::level::Level;

use super::cases::{ChunkSweep, DiskJob, SweepJob, VirtualDiskPlace, WAYS, counted_job, verb};
use super::{ChunkOptions, PUBLISHED_CHUNK_BYTES};
use crate::compare::requests::{fill, target_lines};
use crate::compare::{member_bytes, named};
use crate::failure::{About, Failure};
use crate::model::Standing;
use crate::rig::{Array, ArraySpec, LoopDevice, Program, Room, Stack, Target};
use crate::tool::qemu_img::{self, Image, Load};
use crate::tool::{Tool, fio};

/// Length of a request of a sequential stream, as programs read and write files.
const STREAM_REQUEST_BYTES: u64 = 64 << 10;
const COUNTED_REQUESTS: u64 = 512;
pub(super) const COUNTED_REQUEST_BYTES: u64 = 4096;
/// The file of a run that holds what members moved before and after.
pub(super) const COUNTERS: &str = "members.txt";
impl ChunkSweep {
    /// Length of a member of an array that holds so much.
    fn member_bytes(&self, options: &ChunkOptions, bytes: u64) -> u64 {
        member_bytes(self.level.parse().unwrap_or(Level::Raid0), options.members, bytes)
    }

    fn spec(&self) -> ArraySpec {
        let level = self.level.clone();
        ArraySpec { level, chunk_bytes: Some(self.chunk_bytes), ..ArraySpec::default() }
    }
}

fn array_bytes(stack: &Stack) -> u64 {
    stack.running_array().map_or(0, Array::size_bytes)
}

/// Requests of every length, and streams.
pub(super) fn sweep(
    sweep: &ChunkSweep,
    options: &ChunkOptions,
    room: &Room,
) -> Result<Standing, Failure> {
    let tool = Tool::find("fio", "fio")?;
    let bytes = sweep.member_bytes(options, options.area_bytes);
    let stack = Stack::new(room, &sweep.to_string()).files(options.members, bytes)?;
    let stack = stack.array(sweep.spec())?;
    let area_bytes = options.area_bytes.min(array_bytes(&stack));
    fill(room, &stack, area_bytes)?;
    let options = options.clone();
    Ok(Standing::on(stack, move |stack, job, note| {
        let job = named(SweepJob::all(&options), job)?;
        fio::run(&tool, &job_file(&options, job, &stack.top, area_bytes), note)
    }))
}

/// A section for each length of requests, or number of streams.
fn job_file(options: &ChunkOptions, job: SweepJob, target: &Target, area_bytes: u64) -> String {
    let runtime_ms = (options.seconds * 1e3).round();
    let target = target_lines(target);
    let mut text =
        format!("[global]\n{target}group_reporting\ntime_based=1\nruntime={runtime_ms}ms\n");
    let verb = verb(job.write());
    let values: Vec<(&str, u64)> = if let SweepJob::Requests { depth, .. } = job {
        let _ = writeln!(text, "iodepth={depth}\nnorandommap=1\nsize={area_bytes}\nrw=rand{verb}");
        options.requests_bytes.iter().map(|&bytes| ("bs", bytes)).collect()
    } else {
        let most = options.streams.iter().max().copied().unwrap_or(1);
        let bytes = STREAM_REQUEST_BYTES;
        let region = area_bytes / u64::from(most) / bytes * bytes;
        let _ = writeln!(text, "size={region}\noffset_increment={region}\nbs={bytes}\nrw={verb}");
        options.streams.iter().map(|&number| ("numjobs", number.into())).collect()
    };
    for (section, (option, value)) in job.sections(options).iter().zip(values) {
        let _ = writeln!(text, "[{section}]\nstonewall\n{option}={value}");
    }
    text
}

/// Members that are loop devices: the kernel counts what passes through them.
pub(super) fn counted(
    sweep: &ChunkSweep,
    options: &ChunkOptions,
    room: &Room,
) -> Result<Standing, Failure> {
    let qemu_img = Tool::find("qemu-img", "qemu-utils")?;
    let bytes = sweep.member_bytes(options, options.area_bytes.min(64 << 20));
    let stack = Stack::new(room, &sweep.counted()).files(options.members, bytes)?;
    let stack = stack.loops(LoopDevice::DIRECT)?.array(sweep.spec())?;
    let image = whole(&stack, array_bytes(&stack));
    qemu_img::fill(&qemu_img, &image)?;
    Ok(Standing::on(stack, move |stack, job, note| {
        let write = named(WAYS.map(counted_job), job)? == counted_job(true);
        let load = Load { bytes: COUNTED_REQUEST_BYTES, depth: 1, write, scattered: true };
        let before = counters(stack, "before")?;
        let sent = qemu_img::send(&qemu_img, &image, load, COUNTED_REQUESTS, note)?;
        note.file(qemu_img::OUTPUT, sent.1);
        note.file(COUNTERS, before + &counters(stack, "after")?);
        Ok(())
    }))
}

/// A line for each member: when, which one, and what the kernel says of it.
fn counters(stack: &Stack, when: &str) -> Result<String, Failure> {
    let line = |device: &std::path::PathBuf| {
        let name = device.file_name().unwrap_or_default().to_string_lossy();
        let file = format!("/sys/block/{name}/stat");
        let said = fs::read_to_string(&file).about(&file, "see that /sys is mounted")?;
        Ok(format!("{when} {name} {}\n", said.trim()))
    };
    stack.members.iter().map(line).collect()
}

/// All of what is on top as a disk.
fn whole(stack: &Stack, bytes: u64) -> Image {
    Image { name: stack.top.word(), format: "raw", bytes: bytes >> 20 << 20 }
}

pub(super) fn disk(
    disk: VirtualDiskPlace,
    options: &ChunkOptions,
    room: &Room,
) -> Result<Standing, Failure> {
    let qemu_img = Tool::find("qemu-img", "qemu-utils")?;
    let mut stack = Stack::new(room, &disk.to_string());
    let mut bytes = options.image_bytes;
    if matches!(disk, VirtualDiskPlace::File | VirtualDiskPlace::Nbdkit) {
        stack = stack.files(1, bytes)?;
    } else {
        // A file system needs some for itself; so that all are alike, each array has it.
        let own = if options.xfs { 320 << 20 } else { 64 << 20 };
        let sweep = ChunkSweep { level: "0".to_owned(), chunk_bytes: PUBLISHED_CHUNK_BYTES };
        let spec = ArraySpec { nbd: disk == VirtualDiskPlace::Nbd, ..sweep.spec() };
        let member_bytes = sweep.member_bytes(options, bytes / 8 * 9 + own);
        stack = stack.files(options.members, member_bytes)?.array(spec)?;
        bytes = array_bytes(&stack);
    }
    if disk == VirtualDiskPlace::Nbdkit {
        stack = stack.served(Program::Nbdkit)?;
    }
    if matches!(disk, VirtualDiskPlace::Device | VirtualDiskPlace::Image { .. }) {
        stack = stack.device()?;
    }
    let mut image = whole(&stack, bytes);
    if let VirtualDiskPlace::Image { format, kind } = disk {
        stack = stack.file_system(kind, "noatime")?;
        let file = stack.top.path().join(format!("disk.{format}"));
        image = Image { name: file.display().to_string(), format, bytes: options.image_bytes };
        qemu_img::create(&qemu_img, &image)?;
    }
    qemu_img::fill(&qemu_img, &image)?;
    let seconds = options.seconds;
    Ok(Standing::on(stack, move |_, job, note| {
        let job = named(DiskJob::ALL, job)?;
        qemu_img::run(&qemu_img, &image, job.load, seconds, note)
    }))
}
