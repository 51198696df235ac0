//! Cases and jobs.

use std::fmt;

use super::ChunkOptions;
use crate::compare::Rival;
use crate::compare::words::size;
use crate::rig::FileSystemKind;
use crate::tool::qemu_img::Load;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChunkCase {
    Sweep(ChunkSweep),
    /// The same, with members that count what they move.
    Counted(ChunkSweep),
    Disk(VirtualDiskPlace),
}

impl ChunkCase {
    /// Returns all cases in the order in which they are measured.
    pub(super) fn all(options: &ChunkOptions) -> Vec<Self> {
        let sweeps = ChunkSweep::all(options).into_iter().map(Self::Sweep);
        let counted = ChunkSweep::all(options).into_iter().map(Self::Counted);
        let disks = VirtualDiskPlace::all(options).into_iter().map(Self::Disk);
        sweeps.chain(counted).chain(disks).collect()
    }
}

impl fmt::Display for ChunkCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sweep(sweep) => sweep.fmt(f),
            Self::Counted(sweep) => f.write_str(&sweep.counted()),
            Self::Disk(disk) => disk.fmt(f),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChunkSweep {
    pub(super) level: String,
    pub(super) chunk_bytes: u64,
}

impl ChunkSweep {
    pub(super) fn all(options: &ChunkOptions) -> Vec<Self> {
        options.levels.iter().flat_map(|level| Self::of(options, level)).collect()
    }

    /// Returns the arrays of a level, with every chunk.
    pub(super) fn of(options: &ChunkOptions, level: &str) -> Vec<Self> {
        let with = |&chunk_bytes| Self { level: level.to_owned(), chunk_bytes };
        options.chunks_bytes.iter().map(with).collect()
    }

    pub(super) fn counted(&self) -> String {
        format!("{self}, counted")
    }
}

impl fmt::Display for ChunkSweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RAID {}, chunk {}", self.level, size(self.chunk_bytes))
    }
}

pub(super) const WAYS: [bool; 2] = [false, true];

pub(super) const fn counted_job(write: bool) -> &'static str {
    if write { "4K writes" } else { "4K reads" }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SweepJob {
    /// Requests of every length at random places.
    Requests { write: bool, depth: u32 },
    /// More and more sequential streams.
    Streams { write: bool },
}

impl SweepJob {
    pub(super) fn all(options: &ChunkOptions) -> Vec<Self> {
        let requests = |&depth: &u32| WAYS.map(|write| Self::Requests { write, depth });
        let requests = options.depths.iter().flat_map(requests);
        requests.chain(WAYS.map(|write| Self::Streams { write })).collect()
    }

    pub(super) const fn write(self) -> bool {
        match self {
            Self::Requests { write, .. } | Self::Streams { write } => write,
        }
    }

    /// The sections of its job file, each of which gives a number.
    pub(super) fn sections(self, options: &ChunkOptions) -> Vec<String> {
        match self {
            Self::Requests { .. } => options.requests_bytes.iter().map(|&b| size(b)).collect(),
            Self::Streams { .. } => options.streams.iter().map(u32::to_string).collect(),
        }
    }

    /// Name of a section's number in the report.
    pub(super) fn number(self, section: &str) -> String {
        let verb = verb(self.write());
        match self {
            Self::Requests { depth, .. } => format!("{section} random {verb}, depth {depth}"),
            Self::Streams { .. } if section == "1" => format!("1 sequential {verb}"),
            Self::Streams { .. } => format!("{section} sequential {verb}s"),
        }
    }
}

impl fmt::Display for SweepJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = verb(self.write());
        match self {
            Self::Requests { depth, .. } => write!(f, "random {verb}s, depth {depth}"),
            Self::Streams { .. } => write!(f, "{verb} streams"),
        }
    }
}

pub(super) const fn verb(write: bool) -> &'static str {
    if write { "write" } else { "read" }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VirtualDiskPlace {
    /// The file that is the array: what the host sees of it.
    Array,
    Device,
    /// A file on a file system on that.
    Image {
        format: &'static str,
        kind: FileSystemKind,
    },
    Nbd,
    /// A file where a member would be, without an array.
    File,
    Nbdkit,
}

/// Disk that the others are compared with.
pub(super) const ARRAY: VirtualDiskPlace = VirtualDiskPlace::Array;
/// Disk image of the publication: on a file system.
pub(super) const IMAGE: VirtualDiskPlace =
    VirtualDiskPlace::Image { format: "raw", kind: FileSystemKind::Ext4 };

impl VirtualDiskPlace {
    pub(super) fn all(options: &ChunkOptions) -> Vec<Self> {
        let mut all = vec![Self::Array, Self::Device];
        let kinds = [Some(FileSystemKind::Ext4), options.xfs.then_some(FileSystemKind::Xfs)];
        for kind in kinds.into_iter().flatten() {
            all.extend(["raw", "qcow2"].map(|format| Self::Image { format, kind }));
        }
        all.push(Self::Nbd);
        let rivals = [(Rival::File, Self::File), (Rival::Nbdkit, Self::Nbdkit)];
        let asked = |(rival, _): &(Rival, Self)| options.against.contains(rival);
        all.extend(rivals.into_iter().filter(asked).map(|(_, disk)| disk));
        all
    }
}

impl fmt::Display for VirtualDiskPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Array => f.write_str("array"),
            Self::Device => f.write_str("array, loop device"),
            Self::Image { format, kind: FileSystemKind::Ext4 } => {
                write!(f, "{format} image on ext4")
            }
            Self::Image { format, kind: FileSystemKind::Xfs } => write!(f, "{format} image on XFS"),
            Self::Nbd => f.write_str("array over NBD"),
            Self::File => f.write_str("bare file"),
            Self::Nbdkit => f.write_str("bare file over nbdkit"),
        }
    }
}

/// The tests of CrystalDiskMark, one direction each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DiskJob {
    /// Name of the test, as CrystalDiskMark calls it.
    pub(super) test: &'static str,
    pub(super) load: Load,
}

const fn disk_job(test: &'static str, bytes: u64, depth: u32, write: bool) -> DiskJob {
    let scattered = bytes < 1 << 20;
    DiskJob { test, load: Load { bytes, depth, write, scattered } }
}

pub(super) const TESTS: [&str; 4] = ["Seq", "512K", "4K", "4K QD32"];

impl DiskJob {
    /// Tests in the order in which CrystalDiskMark runs them.
    pub(super) const ALL: [Self; 8] = [
        disk_job(TESTS[0], 1 << 20, 1, false),
        disk_job(TESTS[1], 512 << 10, 1, false),
        disk_job(TESTS[2], 4 << 10, 1, false),
        disk_job(TESTS[3], 4 << 10, 32, false),
        disk_job(TESTS[0], 1 << 20, 1, true),
        disk_job(TESTS[1], 512 << 10, 1, true),
        disk_job(TESTS[2], 4 << 10, 1, true),
        disk_job(TESTS[3], 4 << 10, 32, true),
    ];
}

impl fmt::Display for DiskJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&job_name(self.test, self.load.write))
    }
}

pub(super) fn job_name(test: &str, write: bool) -> String {
    format!("{test} {}", verb(write))
}
