//! Block devices and the layers between them, as sysfs lists them (the kernel's ABI documents
//! sysfs-block and sysfs-block-loop). The devices themselves are neither opened nor looked at.

use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use braid_array::SECTOR_BYTES;
use rustix::fs::{major, makedev, minor};

/// Deeper than any real stack of devices.
pub(crate) const DEEPEST: usize = 8;

/// A disk, a partition, a device of the kernel's.
#[derive(Debug)]
pub(crate) struct BlockDevice {
    /// Its directory in sysfs; a partition's is in that of its disk.
    entry: PathBuf,
    pub(crate) number: u64,
}

impl BlockDevice {
    /// The one with this number.
    pub(crate) fn of(number: u64) -> Option<Self> {
        let entry = format!("/sys/dev/block/{}:{}", major(number), minor(number));
        Some(Self { entry: fs::canonicalize(entry).ok()?, number })
    }

    /// The one of this name.
    pub(crate) fn called(name: &str) -> Option<Self> {
        Self::at(fs::canonicalize(Path::new("/sys/class/block").join(name)).ok()?)
    }

    fn at(entry: PathBuf) -> Option<Self> {
        let numbers = fs::read_to_string(entry.join("dev")).ok()?;
        let (major, minor) = numbers.trim_end().split_once(':')?;
        let number = makedev(major.parse().ok()?, minor.parse().ok()?);
        Some(Self { entry, number })
    }

    /// Its directory.
    pub(crate) fn entry(&self) -> &Path {
        &self.entry
    }

    pub(crate) fn path(&self) -> PathBuf {
        device_path(&self.entry.file_name().unwrap_or_default().to_string_lossy())
    }

    pub(crate) fn is_read_only(&self) -> bool {
        number(&self.entry.join("ro")) == Some(1)
    }

    /// Tells whether it says that it can zero ranges by giving up their place.
    pub(crate) fn zeroes_by_unmapping(&self) -> bool {
        let disk = self.disk().map(|(disk, _)| disk.entry);
        let queue = disk.as_ref().unwrap_or(&self.entry).join("queue");
        let most = ["write_zeroes_max_bytes", "discard_max_bytes"].map(|name| queue.join(name));
        most.iter().all(|most| number(most).is_some_and(|bytes| bytes > 0))
    }

    /// The disk that a partition is a part of, and at which of its bytes that begins.
    pub(crate) fn disk(&self) -> Option<(Self, u64)> {
        if !self.entry.join("partition").exists() {
            return None;
        }
        let disk = self.entry.parent()?;
        Some((Self::at(disk.to_owned())?, self.sectors("start")?))
    }

    /// Returns the file or device that a loop device shows.
    pub(crate) fn backing(&self) -> Option<Backing> {
        let entry = self.entry.join("loop");
        let mut path = fs::read(entry.join("backing_file")).ok()?;
        path.pop_if(|byte| *byte == b'\n');
        let path = PathBuf::from(OsString::from_vec(path));
        let start = number(&entry.join("offset"))?;
        let end = match number(&entry.join("sizelimit"))? {
            0 => u64::MAX,
            limit => start.saturating_add(limit),
        };
        Some(Backing { path, bytes: start..end })
    }

    /// Its partitions that have some of these bytes.
    pub(crate) fn partitions(&self, bytes: &Range<u64>) -> impl Iterator<Item = Upon> {
        let parts = entries(&self.entry).filter(|entry| entry.join("partition").exists());
        parts.filter_map(|entry| {
            let device = Self::at(entry)?;
            let start = device.sectors("start")?;
            let end = start.checked_add(device.sectors("size")?)?;
            Some(Upon { way: Layering::Partition, device, bytes: within(bytes, &(start..end))? })
        })
    }

    /// The devices of the kernel's that are made of it.
    fn holders(&self) -> impl Iterator<Item = Upon> + use<> {
        let holders = entries(&self.entry.join("holders")).filter_map(Self::at);
        holders.map(|device| Upon { way: Layering::Holder, device, bytes: ALL })
    }

    /// The devices of which device mapper or md has made it.
    pub(crate) fn slaves(&self) -> impl Iterator<Item = Self> + use<> {
        let slaves = entries(&self.entry.join("slaves"));
        slaves.filter_map(|slave| Self::at(fs::canonicalize(slave).ok()?))
    }

    /// A number of sectors, in bytes.
    fn sectors(&self, name: &str) -> Option<u64> {
        number(&self.entry.join(name))?.checked_mul(SECTOR_BYTES)
    }
}

/// All bytes of something.
pub(crate) const ALL: Range<u64> = 0..u64::MAX;

/// The file or device that a loop device shows.
#[derive(Debug)]
pub(crate) struct Backing {
    pub(crate) path: PathBuf,
    /// Bytes of it that are shown: to the end, where the device has no limit.
    pub(crate) bytes: Range<u64>,
}

/// A loop device that shows something.
#[derive(Debug)]
pub(crate) struct LoopDevice {
    pub(crate) number: u64,
    pub(crate) backing: Backing,
}

/// All there are now.
pub(crate) fn loops() -> Vec<LoopDevice> {
    let devices = entries(Path::new("/sys/block")).filter_map(BlockDevice::at);
    let shown = devices.filter_map(|device| {
        Some(LoopDevice { number: device.number, backing: device.backing()? })
    });
    shown.collect()
}

/// Way in which a device lies on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layering {
    Partition,
    /// Made of others by the kernel: device mapper, md.
    Holder,
    Loop,
}

/// A device that lies on something.
#[derive(Debug)]
pub(crate) struct Upon {
    pub(crate) way: Layering,
    pub(crate) device: BlockDevice,
    /// Range of its own bytes that lies on the bytes in question.
    pub(crate) bytes: Range<u64>,
}

/// The devices that lie on these bytes of something, one step up: partitions and holders of
/// `device`, where it is one, and those of `loops` that show it.
pub(crate) fn upon<'a>(
    device: Option<&'a BlockDevice>,
    bytes: &'a Range<u64>,
    loops: &'a [LoopDevice],
    shows_it: impl Fn(&LoopDevice) -> bool + 'a,
) -> impl Iterator<Item = Upon> + 'a {
    let parts = device.into_iter().flat_map(|device| device.partitions(bytes));
    let holders = device.into_iter().flat_map(BlockDevice::holders);
    let shown = loops.iter().filter(move |one| shows_it(one)).filter_map(|one| {
        let bytes = within(bytes, &one.backing.bytes)?;
        Some(Upon { way: Layering::Loop, device: BlockDevice::of(one.number)?, bytes })
    });
    parts.chain(holders).chain(shown)
}

/// The part of `bytes` that lies in `part`, counted from the beginning of that.
fn within(bytes: &Range<u64>, part: &Range<u64>) -> Option<Range<u64>> {
    let common = bytes.start.max(part.start)..bytes.end.min(part.end);
    (common.start < common.end).then(|| common.start - part.start..common.end - part.start)
}

/// The file of a device with this name.
pub(crate) fn device_path(name: &str) -> PathBuf {
    // The kernel writes "!" for a slash in a device name.
    Path::new("/dev").join(name.replace('!', "/"))
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim_end().parse().ok()
}
