//! Which chunk, and what a virtual machine's disk keeps of an array: chunk sizes against requests
//! of every size and against many sequential streams, what members really move for a small
//! request, and disks of virtual machines as files, as the array itself and over NBD.

mod cases;
mod disks;
mod moved;
mod stand;
mod sweep;
mod words;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::cases::{Case, Counted, Disk, DiskJob, Sweep, SweepJob};
use super::rivals::Rival;
use crate::failure::Failure;
use crate::model::{Chapter, Comparison, Found, Gap, Group, Job, Standing};
use crate::rig::{Kind, Room};

/// The chunk and the number of members that were published.
const PUBLISHED_CHUNK_BYTES: u64 = 256 << 10;
const PUBLISHED_MEMBERS: usize = 6;

/// What can hold a virtual machine's disk, too.
/// What disks of virtual machines can be compared with.
pub const RIVALS: [Rival; 2] = [Rival::File, Rival::Nbdkit];

/// What is measured, at which sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// Whose chunks are compared: `0`, `5`, `6`.
    pub levels: Vec<String>,
    /// Of every array.
    pub members: usize,
    /// Powers of two, from small to large.
    pub chunks_bytes: Vec<u64>,
    /// Lengths of requests at random places.
    pub requests_bytes: Vec<u64>,
    /// How many of them are under way at once.
    pub depths: Vec<u32>,
    /// How many sequential streams there are at once.
    pub streams: Vec<u32>,
    /// How much of an array the chunks are compared on.
    pub area_bytes: u64,
    /// The disk of a virtual machine.
    pub image_bytes: u64,
    /// The images lie on XFS, too.
    pub xfs: bool,
    /// Of each measurement.
    pub seconds: f64,
    /// How often all of it is measured.
    pub rounds: u16,
    /// What is measured beside the disks of virtual machines.
    pub against: Vec<Rival>,
}

impl Options {
    /// Some of it, small and short.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            levels: vec!["0".into(), "5".into()],
            members: PUBLISHED_MEMBERS,
            chunks_bytes: vec![4 << 10, PUBLISHED_CHUNK_BYTES, 1 << 20],
            requests_bytes: vec![4 << 10, 1 << 20],
            depths: vec![32],
            streams: vec![1, 32],
            area_bytes: 64 << 20,
            image_bytes: 64 << 20,
            xfs: false,
            seconds: 0.1,
            rounds: 1,
            against: Vec::new(),
        }
    }

    /// All of it; images as large as the published program tests by default.
    #[must_use]
    pub fn full() -> Self {
        Self {
            levels: ["0", "5", "6"].map(str::to_owned).into(),
            members: PUBLISHED_MEMBERS,
            chunks_bytes: [4, 16, 64, 256, 512, 1024].map(|kib| kib << 10).into(),
            requests_bytes: [4, 64, 512, 1024].map(|kib| kib << 10).into(),
            depths: vec![1, 32],
            streams: vec![1, 2, 4, 8, 16, 32],
            area_bytes: 1 << 30,
            image_bytes: 1000 << 20,
            xfs: true,
            seconds: 1.0,
            rounds: 3,
            against: Vec::new(),
        }
    }

    fn kinds(&self) -> Vec<Kind> {
        if self.xfs { vec![Kind::Ext4, Kind::Xfs] } else { vec![Kind::Ext4] }
    }
}

/// The comparison.
#[derive(Clone, Debug)]
pub struct Chunk {
    options: Options,
}

impl Chunk {
    /// Of these options.
    #[must_use]
    pub const fn new(options: Options) -> Self {
        Self { options }
    }

    /// Of what is asked for, which may make no sense.
    pub fn of(options: Options) -> Result<Self, Failure> {
        let other = options.against.iter().find(|rival| !RIVALS.contains(rival));
        match other {
            Some(other) => {
                let names = RIVALS.map(Rival::name).join(" or ");
                let next = format!("compare with {names}");
                Err(Failure::usage(other, "it is not compared with chunks and disks", next))
            }
            None => Ok(Self { options }),
        }
    }

    fn cases(&self) -> Vec<Case> {
        let options = &self.options;
        let sweeps = Sweep::all(options).into_iter().map(Case::Sweep);
        let counted = Counted::all(options).into_iter().map(Case::Counted);
        let disks = Disk::all(options).into_iter().map(Case::Disk);
        sweeps.chain(counted).chain(disks).collect()
    }

    fn sweeps(&self, level: &str) -> Group {
        let options = &self.options;
        let cases = Sweep::all(options).into_iter().filter(|sweep| sweep.level == level);
        let job = |job: SweepJob| Job {
            name: job.name(),
            takes: fio_takes(job.sections(options).len(), options.seconds),
        };
        Group {
            title: format!("chunks of RAID {level}"),
            cases: cases.map(|sweep| sweep.name()).collect(),
            jobs: SweepJob::all(options).into_iter().map(job).collect(),
            rounds: options.rounds,
            set_up: Duration::from_secs_f64(0.3 + filling_s(options.area_bytes)),
        }
    }

    fn counted(&self) -> Group {
        let job = |write: bool| Job {
            name: cases::counted_job(write).to_owned(),
            takes: Duration::from_millis(100),
        };
        Group {
            title: "what members move".to_owned(),
            cases: Counted::all(&self.options).iter().map(Counted::name).collect(),
            jobs: [false, true].map(job).into(),
            // Bytes are counted, not measured: they are the same each time.
            rounds: 1,
            set_up: Duration::from_secs_f64(0.5),
        }
    }

    fn disks(&self) -> Group {
        let options = &self.options;
        let takes = Duration::from_secs_f64(0.1 + 1.5 * options.seconds);
        let job = |job: &DiskJob| Job { name: job.name(), takes };
        Group {
            title: "disks of virtual machines".to_owned(),
            cases: Disk::all(options).iter().map(Disk::name).collect(),
            jobs: DiskJob::ALL.iter().map(job).collect(),
            rounds: options.rounds,
            set_up: Duration::from_secs_f64(0.5 + filling_s(options.image_bytes)),
        }
    }
}

/// fio needs a moment to start, and one for each section of its job file.
fn fio_takes(sections: usize, seconds: f64) -> Duration {
    Duration::from_secs_f64(0.15 + (0.4 + seconds) * sections as f64)
}

/// Everything is written once before it is measured.
fn filling_s(bytes: u64) -> f64 {
    bytes as f64 / 700e6
}

impl Comparison for Chunk {
    fn name(&self) -> &'static str {
        "chunk"
    }

    fn options(&self) -> Value {
        serde_json::to_value(&self.options).unwrap_or_default()
    }

    fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> =
            self.options.levels.iter().map(|level| self.sweeps(level)).collect();
        groups.push(self.counted());
        groups.push(self.disks());
        groups
    }

    fn set_up(&self, case: &str, room: &Room) -> Result<Box<dyn Standing>, Failure> {
        match self.cases().into_iter().find(|one| one.name() == case) {
            Some(Case::Sweep(sweep)) => stand::sweep(&sweep, &self.options, room),
            Some(Case::Counted(counted)) => stand::counted(&counted, &self.options, room),
            Some(Case::Disk(disk)) => stand::disk(disk, &self.options, room),
            None => Err(Failure::usage(case, "no case has this name", "begin the report anew")),
        }
    }

    fn chapter(&self, found: &Found) -> Chapter {
        let mut chapter = Chapter {
            name: self.name().to_owned(),
            title: "Which chunk, and what a virtual machine's disk keeps of the array".to_owned(),
            about: about(&self.options),
            gaps: vec![Gap {
                case: Some("array over vhost-user-blk".to_owned()),
                job: None,
                reason: "nothing that measures speaks vhost-user".to_owned(),
                next: "compare the array over NBD".to_owned(),
            }],
            ..Chapter::default()
        };
        sweep::add(&mut chapter, &self.options, found);
        // The claim that was published comes first.
        let sweep = std::mem::take(&mut chapter.says);
        moved::add(&mut chapter, &self.options, found);
        disks::add(&mut chapter, &self.options, found);
        chapter.says.extend(sweep);
        chapter
    }
}

fn about(options: &Options) -> Vec<String> {
    let Options { members, area_bytes, image_bytes, seconds, .. } = options;
    let size = words::size;
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
mod tests {
    use super::*;

    #[test]
    fn the_short_form_is_short_and_names_are_unique() {
        for options in [Options::quick(), Options::full()] {
            let chunk = Chunk::new(options);
            let groups = chunk.groups();
            let mut cases: Vec<String> =
                groups.iter().flat_map(|group| group.cases.clone()).collect();
            assert_eq!(cases, chunk.cases().iter().map(Case::name).collect::<Vec<_>>());
            let mut files: Vec<String> =
                cases.iter().map(|name| crate::rig::file_name(name)).collect();
            cases.sort();
            cases.dedup();
            files.sort();
            files.dedup();
            assert_eq!((cases.len(), files.len()), (chunk.cases().len(), chunk.cases().len()));
        }
        let takes = |options| {
            let groups = Chunk::new(options).groups();
            groups.iter().map(Group::takes).sum::<Duration>()
        };
        let quick = takes(Options::quick());
        assert!(quick < Duration::from_secs(50), "{quick:?}");
        assert!(takes(Options::full()) > Duration::from_secs(600));
    }

    #[test]
    fn what_holds_no_disk_is_no_rival() {
        let against = |rival| Chunk::of(Options { against: vec![rival], ..Options::quick() });
        assert!(against(Rival::Nbdkit).is_ok());
        let refused = against(Rival::Gluster).expect_err("no disk of a machine");
        assert!(refused.why.next.advice.contains("file or nbdkit"), "{refused:?}");
    }

    #[test]
    fn options_survive_the_folder() {
        let chunk = Chunk::new(Options::full());
        let read: Options = serde_json::from_value(chunk.options()).expect("options");
        assert_eq!(read, Options::full());
    }
}
