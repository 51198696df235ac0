//! The cases, set up.

use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::cases::{Counted, Disk, DiskJob, Sweep, SweepJob, counted_job, verb};
use super::{Options, PUBLISHED_CHUNK_BYTES};
use crate::failure::Failure;
use crate::model::{Note, Standing};
use crate::rig::{Array, ArraySpec, FileSystem, LoopDevice, MemberFiles, Nbdkit, Room};
use crate::tool::qemu_img::{self, Image, Load};
use crate::tool::{Tool, fio};

/// Of one sequential stream, as programs read and write files.
const STREAM_REQUEST_BYTES: u64 = 64 << 10;
/// How many requests are counted.
const COUNTED_REQUESTS: u64 = 512;
pub(super) const COUNTED_REQUEST_BYTES: u64 = 4096;
/// The file of a run that holds what members moved before and after.
pub(super) const COUNTERS: &str = "members.txt";
/// What members keep for themselves, and what a chunk leaves over.
const MEMBER_OWN_BYTES: u64 = 8 << 20;

/// As long as `count` members of an array have to be that holds so much.
fn member_bytes(level: &str, count: usize, bytes: u64) -> u64 {
    let parities = match level {
        "5" => 1,
        "6" => 2,
        _ => 0,
    };
    let data = count.saturating_sub(parities).max(1) as u64;
    bytes.div_ceil(data).next_multiple_of(1 << 20) + MEMBER_OWN_BYTES
}

fn spec(name: &str, sweep: &Sweep, members: Vec<PathBuf>) -> ArraySpec {
    ArraySpec {
        name: name.to_owned(),
        level: sweep.level.clone(),
        chunk_bytes: Some(sweep.chunk_bytes),
        members,
        ..ArraySpec::default()
    }
}

/// Writes a file once, so that nothing has to be made room for later and no hole is read.
fn fill(file: &Path, bytes: u64) -> Result<(), Failure> {
    let system = |error| Failure::system(file.display(), &error, "name another --dir");
    let mut file = fs::File::options().write(true).open(file).map_err(system)?;
    let block: Vec<u8> = (0..1 << 20).map(|i: u32| (i % 251) as u8).collect();
    for at in (0..bytes).step_by(block.len()) {
        let length = (bytes - at).min(block.len() as u64) as usize;
        file.write_all(&block[..length]).map_err(system)?;
    }
    file.sync_all().map_err(system)
}

/// What all job files begin with.
fn global(file: &Path, more: &[(&str, String)]) -> String {
    let mut text = "[global]\nioengine=libaio\ndirect=1\ngroup_reporting\n".to_owned();
    // fio takes colons in a name for the end of it.
    let file = file.display().to_string().replace(':', "\\:");
    let _ = writeln!(text, "filename={file}");
    for (option, value) in more {
        let _ = writeln!(text, "{option}={value}");
    }
    text
}

struct StandingSweep {
    array: Array,
    options: Options,
    fio: Tool,
    _files: MemberFiles,
}

pub(super) fn sweep(
    sweep: &Sweep,
    options: &Options,
    room: &Room,
) -> Result<Box<dyn Standing>, Failure> {
    let fio = Tool::find("fio", "fio")?;
    let name = sweep.name();
    let bytes = member_bytes(&sweep.level, options.members, options.area_bytes);
    let files = room.member_files(&name, options.members, bytes)?;
    let array = Array::start(room, &spec(&name, sweep, files.paths.clone()))?;
    fill(&array.file(), options.area_bytes.min(array.size_bytes()))?;
    Ok(Box::new(StandingSweep { array, options: options.clone(), fio, _files: files }))
}

impl StandingSweep {
    fn job_file(&self, job: SweepJob) -> String {
        let Options { area_bytes, seconds, .. } = self.options;
        let area_bytes = area_bytes.min(self.array.size_bytes());
        let mut more = vec![
            ("time_based", "1".to_owned()),
            ("runtime", format!("{}ms", (seconds * 1e3).round())),
        ];
        let random = if let SweepJob::Requests { depth, .. } = job {
            more.extend([("iodepth", depth.to_string()), ("norandommap", "1".to_owned())]);
            more.push(("size", area_bytes.to_string()));
            "rand"
        } else {
            let most = self.options.streams.iter().max().copied().unwrap_or(1);
            let region = area_bytes / u64::from(most) / STREAM_REQUEST_BYTES * STREAM_REQUEST_BYTES;
            more.extend([("size", region.to_string()), ("offset_increment", region.to_string())]);
            more.push(("bs", STREAM_REQUEST_BYTES.to_string()));
            ""
        };
        more.push(("rw", format!("{random}{}", verb(job.write()))));
        let mut text = global(&self.array.file(), &more);
        let bytes = self.options.requests_bytes.iter().map(|bytes| ("bs", bytes.to_string()));
        let streams = self.options.streams.iter().map(|number| ("numjobs", number.to_string()));
        let own: Vec<(&str, String)> = match job {
            SweepJob::Requests { .. } => bytes.collect(),
            SweepJob::Streams { .. } => streams.collect(),
        };
        for (section, (option, value)) in job.sections(&self.options).iter().zip(own) {
            let _ = writeln!(text, "[{section}]\nstonewall\n{option}={value}");
        }
        text
    }
}

impl Standing for StandingSweep {
    fn run(&mut self, job: &str, note: &mut Note) -> Result<(), Failure> {
        let known = SweepJob::all(&self.options).into_iter().find(|one| one.name() == job);
        let job = known.ok_or_else(|| unknown(job))?;
        fio::run(&self.fio, &self.job_file(job), note)
    }

    fn server(&self) -> Option<u32> {
        Some(self.array.pid())
    }
}

fn unknown(job: &str) -> Failure {
    Failure::usage(job, "no job has this name", "begin the report anew")
}

struct StandingCounted {
    array: Array,
    qemu_img: Tool,
    image: Image,
    loops: Vec<LoopDevice>,
    _files: MemberFiles,
}

/// Members that are loop devices: the kernel counts what passes through them.
pub(super) fn counted(
    counted: &Counted,
    options: &Options,
    room: &Room,
) -> Result<Box<dyn Standing>, Failure> {
    let qemu_img = Tool::find("qemu-img", "qemu-utils")?;
    let Counted(sweep) = counted;
    let name = counted.name();
    let bytes = options.area_bytes.min(64 << 20);
    let member_bytes = member_bytes(&sweep.level, options.members, bytes);
    let files = room.member_files(&name, options.members, member_bytes)?;
    let loops = files.paths.iter().map(|path| LoopDevice::over(room, path));
    let loops = loops.collect::<Result<Vec<LoopDevice>, Failure>>()?;
    let members = loops.iter().map(|one| one.device.clone()).collect();
    let array = Array::start(room, &spec(&name, sweep, members))?;
    let image = whole(&array);
    qemu_img::fill(&qemu_img, &image)?;
    Ok(Box::new(StandingCounted { array, qemu_img, image, loops, _files: files }))
}

impl StandingCounted {
    /// A line for each member: when, which one, and what the kernel says of it.
    fn counters(&self, when: &str) -> Result<String, Failure> {
        let line = |one: &LoopDevice| {
            let name = one.device.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let file = format!("/sys/block/{name}/stat");
            let said = fs::read_to_string(&file)
                .map_err(|error| Failure::system(&file, &error, "see that /sys is mounted"))?;
            Ok(format!("{when} {name} {}\n", said.trim()))
        };
        self.loops.iter().map(line).collect()
    }
}

impl Standing for StandingCounted {
    fn run(&mut self, job: &str, note: &mut Note) -> Result<(), Failure> {
        let known = [false, true].into_iter().find(|&write| counted_job(write) == job);
        let write = known.ok_or_else(|| unknown(job))?;
        let load = Load { bytes: COUNTED_REQUEST_BYTES, depth: 1, write, scattered: true };
        let before = self.counters("before")?;
        let sent = qemu_img::send(&self.qemu_img, &self.image, load, COUNTED_REQUESTS, note)?;
        note.file(qemu_img::OUTPUT, sent.1);
        note.file(COUNTERS, before + &self.counters("after")?);
        Ok(())
    }

    fn server(&self) -> Option<u32> {
        Some(self.array.pid())
    }
}

/// All of an array as a disk.
fn whole(array: &Array) -> Image {
    let name = array.file().display().to_string();
    Image { name, format: "raw", bytes: array.size_bytes() >> 20 << 20 }
}

/// What is under a disk, in the order in which it is taken down.
#[derive(Default)]
struct Under {
    _nbdkit: Option<Nbdkit>,
    _file_system: Option<FileSystem>,
    _device: Option<LoopDevice>,
    _array: Option<Array>,
    _files: Option<MemberFiles>,
}

struct StandingDisk {
    qemu_img: Tool,
    image: Image,
    seconds: f64,
    server: Option<u32>,
    _under: Under,
}

pub(super) fn disk(
    disk: Disk,
    options: &Options,
    room: &Room,
) -> Result<Box<dyn Standing>, Failure> {
    let qemu_img = Tool::find("qemu-img", "qemu-utils")?;
    let (image, server, under) = match disk {
        Disk::File | Disk::Nbdkit => bare(disk, options, room)?,
        Disk::Array | Disk::Device | Disk::Image { .. } | Disk::Nbd => {
            on_array(disk, options, room, &qemu_img)?
        }
    };
    qemu_img::fill(&qemu_img, &image)?;
    let seconds = options.seconds;
    Ok(Box::new(StandingDisk { qemu_img, image, seconds, server, _under: under }))
}

type Stood = (Image, Option<u32>, Under);

fn bare(disk: Disk, options: &Options, room: &Room) -> Result<Stood, Failure> {
    let files = room.member_files(&disk.name(), 1, options.image_bytes)?;
    let file = &files.paths[0];
    fill(file, options.image_bytes)?;
    let mut image =
        Image { name: file.display().to_string(), format: "raw", bytes: options.image_bytes };
    let mut server = None;
    let mut under = Under::default();
    if disk == Disk::Nbdkit {
        let nbdkit = Nbdkit::serve(room, &disk.name(), file)?;
        image.name = nbdkit.uri();
        server = Some(nbdkit.pid());
        under._nbdkit = Some(nbdkit);
    }
    under._files = Some(files);
    Ok((image, server, under))
}

fn on_array(disk: Disk, options: &Options, room: &Room, qemu_img: &Tool) -> Result<Stood, Failure> {
    let name = disk.name();
    let sweep = Sweep { level: "0".to_owned(), chunk_bytes: PUBLISHED_CHUNK_BYTES };
    // A file system needs some for itself; so that all are alike, each array has it.
    let own = if options.xfs { 320 << 20 } else { 64 << 20 };
    let bytes = member_bytes("0", options.members, options.image_bytes / 8 * 9 + own);
    let files = room.member_files(&name, options.members, bytes)?;
    let array = Array::start(
        room,
        &ArraySpec { nbd: disk == Disk::Nbd, ..spec(&name, &sweep, files.paths.clone()) },
    )?;
    let mut image = whole(&array);
    let mut under = Under::default();
    if let Some(uri) = array.nbd_uri() {
        image.name = uri;
    }
    if matches!(disk, Disk::Device | Disk::Image { .. }) {
        let device = LoopDevice::over(room, &array.file())?;
        image.name = device.device.display().to_string();
        if let Disk::Image { format, kind } = disk {
            let file_system = FileSystem::make(room, kind, &device.device, "noatime")?;
            let file = file_system.dir.join(format!("disk.{format}"));
            image = Image { name: file.display().to_string(), format, bytes: options.image_bytes };
            qemu_img::create(qemu_img, &image)?;
            under._file_system = Some(file_system);
        }
        under._device = Some(device);
    }
    let server = Some(array.pid());
    under._array = Some(array);
    under._files = Some(files);
    Ok((image, server, under))
}

impl Standing for StandingDisk {
    fn run(&mut self, job: &str, note: &mut Note) -> Result<(), Failure> {
        let known = DiskJob::ALL.into_iter().find(|one| one.name() == job);
        let load = known.ok_or_else(|| unknown(job))?.load;
        qemu_img::run(&self.qemu_img, &self.image, load, self.seconds, note)
    }

    fn server(&self) -> Option<u32> {
        self.server
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_large_enough_for_what_the_array_holds() {
        let mib = |level, count, mib: u64| member_bytes(level, count, mib << 20) >> 20;
        assert_eq!(mib("0", 6, 60), 10 + 8);
        assert_eq!(mib("5", 6, 60), 12 + 8);
        assert_eq!(mib("6", 6, 61), 16 + 8);
        assert_eq!(mib("0", 1, 60), 60 + 8);
    }

    #[test]
    fn what_fio_takes_for_the_end_of_a_name_is_escaped() {
        let text = global(Path::new("/a:b/c"), &[("rw", "read".to_owned())]);
        assert!(text.ends_with("filename=/a\\:b/c\nrw=read\n"), "{text}");
    }
}
