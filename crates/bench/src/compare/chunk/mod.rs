//! `chunk`: chunks of arrays, and disks of virtual machines on them: chunk sizes against requests
//! of every size and against many sequential streams, what members really move for a small request,
//! and disks of virtual machines as files, as the array itself and over NBD.

mod cases;
mod disks;
mod moved;
mod numbers;
mod set_up;
mod sweep;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::cases::{ChunkCase, ChunkSweep, DiskJob, SweepJob, VirtualDiskPlace, WAYS, counted_job};
use self::numbers::Chunks;
use super::words::size;
use super::{Plan, Rival, Wishes, kept, named};
use crate::failure::Failure;
use crate::model::{Chapter, Comparison, Found, Gap, Group, Job, Standing};
use crate::rig::Room;

/// The chunk and the number of members that were published.
const PUBLISHED_CHUNK_BYTES: u64 = 256 << 10;
const PUBLISHED_MEMBERS: usize = 6;

const RIVALS: [Rival; 2] = [Rival::File, Rival::Nbdkit];

/// Options of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChunkOptions {
    /// Levels whose chunks are compared: `0`, `5`, `6`.
    pub levels: Vec<String>,
    /// Members of every array.
    pub members: usize,
    /// Powers of two, from small to large.
    pub chunks_bytes: Vec<u64>,
    /// Lengths of requests at random places.
    pub requests_bytes: Vec<u64>,
    /// Numbers of requests under way at once.
    pub depths: Vec<u32>,
    /// Numbers of sequential streams at once.
    pub streams: Vec<u32>,
    /// Area of an array on which chunks are compared.
    pub area_bytes: u64,
    /// The disk of a virtual machine.
    pub image_bytes: u64,
    /// The images lie on XFS, too.
    pub xfs: bool,
    /// Length of each measurement.
    pub seconds: f64,
    /// Number of rounds.
    pub rounds: u16,
    /// Rivals, measured beside the disks of virtual machines.
    pub against: Vec<Rival>,
}

impl ChunkOptions {
    /// The same, if they make sense.
    pub fn checked(self) -> Result<Self, Failure> {
        let Some(other) = self.against.iter().find(|rival| !RIVALS.contains(rival)) else {
            return Ok(self);
        };
        let next = format!("compare with {}", RIVALS.map(Rival::name).join(" or "));
        Err(Failure::usage(other, "it is not compared with chunks and disks", next))
    }

    fn sweeps(&self, level: &str) -> Group {
        let job = |job: SweepJob| {
            let sections = job.sections(self).len() as f64;
            // fio needs a moment to start, and one for each section of its job file.
            let seconds = 0.15 + (0.4 + self.seconds) * sections;
            Job::new(job.to_string(), Duration::from_secs_f64(seconds))
        };
        Group {
            title: format!("chunks of RAID {level}"),
            cases: ChunkSweep::of(self, level).iter().map(ChunkSweep::to_string).collect(),
            jobs: SweepJob::all(self).into_iter().map(job).collect(),
            rounds: self.rounds,
            set_up: Duration::from_secs_f64(0.3 + filling_s(self.area_bytes)),
        }
    }

    fn counted(&self) -> Group {
        let job = |write| Job::new(counted_job(write), Duration::from_millis(100));
        Group {
            title: "what members move".to_owned(),
            cases: ChunkSweep::all(self).iter().map(ChunkSweep::counted).collect(),
            jobs: WAYS.map(job).into(),
            // Bytes are counted, not measured: they are the same each time.
            rounds: 1,
            set_up: Duration::from_secs_f64(0.5),
        }
    }

    fn disks(&self) -> Group {
        let takes = Duration::from_secs_f64(0.1 + 1.5 * self.seconds);
        let job = |job: DiskJob| Job::new(job.to_string(), takes);
        Group {
            title: "disks of virtual machines".to_owned(),
            cases: VirtualDiskPlace::all(self).iter().map(VirtualDiskPlace::to_string).collect(),
            jobs: DiskJob::ALL.map(job).into(),
            rounds: self.rounds,
            set_up: Duration::from_secs_f64(0.5 + filling_s(self.image_bytes)),
        }
    }
}

/// Everything is written once before it is measured.
fn filling_s(bytes: u64) -> f64 {
    bytes as f64 / 700e6
}

impl Plan for ChunkOptions {
    const NAME: &'static str = "chunk";

    fn of(wishes: &Wishes) -> Self {
        let kib = |sizes: &[u64]| sizes.iter().map(|kib| kib << 10).collect();
        let levels = |levels: &[&str]| levels.iter().map(|&level| level.to_owned()).collect();
        let short = Self {
            levels: levels(&["0", "5"]),
            members: PUBLISHED_MEMBERS,
            chunks_bytes: kib(&[4, 256, 1024]),
            requests_bytes: kib(&[4, 1024]),
            depths: vec![32],
            streams: vec![1, 32],
            area_bytes: 64 << 20,
            image_bytes: 64 << 20,
            xfs: false,
            seconds: 0.1,
            rounds: wishes.runs(),
            against: wishes.rivals(&RIVALS),
        };
        if wishes.quick {
            return short;
        }
        Self {
            levels: levels(&["0", "5", "6"]),
            chunks_bytes: kib(&[4, 16, 64, 256, 512, 1024]),
            requests_bytes: kib(&[4, 64, 512, 1024]),
            depths: vec![1, 32],
            streams: vec![1, 2, 4, 8, 16, 32],
            area_bytes: 1 << 30,
            // As large as the published program tests by default.
            image_bytes: 1000 << 20,
            xfs: true,
            seconds: 1.0,
            ..short
        }
    }
}

impl Comparison for ChunkOptions {
    kept!();

    fn groups(&self) -> Vec<Group> {
        let sweeps = self.levels.iter().map(|level| self.sweeps(level));
        sweeps.chain([self.counted(), self.disks()]).collect()
    }

    fn set_up(&self, case: &str, room: &Room) -> Result<Standing, Failure> {
        match named(ChunkCase::all(self), case)? {
            ChunkCase::Sweep(sweep) => set_up::sweep(&sweep, self, room),
            ChunkCase::Counted(sweep) => set_up::counted(&sweep, self, room),
            ChunkCase::Disk(disk) => set_up::disk(disk, self, room),
        }
    }

    fn chapter(&self, found: &Found) -> Chapter {
        let mut chapter = Chapter {
            title: "Which chunk, and what a virtual machine's disk keeps of the array".to_owned(),
            about: about(self),
            gaps: vec![Gap {
                case: Some("array over vhost-user-blk".to_owned()),
                job: None,
                reason: "nothing that measures speaks vhost-user".to_owned(),
                next: "compare the array over NBD".to_owned(),
            }],
            ..Chapter::default()
        };
        let numbers = Chunks::of(self, found);
        // The claim that was published comes first.
        moved::says(&mut chapter, &numbers);
        disks::says(&mut chapter, &numbers);
        sweep::add(&mut chapter, &numbers);
        moved::add(&mut chapter, &numbers);
        disks::add(&mut chapter, &numbers);
        chapter
    }
}

fn about(options: &ChunkOptions) -> Vec<String> {
    let ChunkOptions { members, area_bytes, image_bytes, seconds, .. } = options;
    vec![
        "Published: \"仮想化の弱点ストレージ、\
         SSDによるストレージのチューニング\" (storage, the weak point of \
         virtualization, tuned with SSDs; 2013). RAID 0 with chunks of 256K over six SATA SSDs at \
         a hardware controller, measured with CrystalDiskMark in Windows 8: on the bare machine, \
         on a disk image on the hypervisor's file system (ESXi 5.1, VMFS), and on the array mapped \
         raw into the virtual machine. Its numbers are pictures; its text gives those that are \
         shown here as published. It blames the slow 4K requests on the chunk: to move 4K, 256K \
         had to be moved."
            .to_owned(),
        format!(
            "Here: {members} members a RAID; requests are sent by fio (libaio, direct) to the file \
             that is the array, over {} of it, at random places; sequential streams have a region \
             each and requests of 64K, one at a time. Each number took {seconds} s.",
            size(*area_bytes)
        ),
        format!(
            "Disks of virtual machines ({} each, RAID 0, chunk 256K) are read and written by \
             qemu's block layer (qemu-img bench, cache none), which is what lies under the disk \
             of a guest and needs no KVM. There was no guest: what its driver costs comes on \
             top, for all cases alike. A file system needs a block device; here that is a loop \
             device over the array's file, which is a case of its own.",
            size(*image_bytes)
        ),
    ]
}

#[cfg(test)]
mod tests;
