//! Finding devices that may be members.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::makedev;

use crate::sysfs::{BlockDevice, DEEPEST, device_path};
use crate::users::Mounts;

/// Returns the names of all block devices of the system, as the kernel lists them, except those
/// served by a process: those on a device of ublk, or on the file of an array's mount. A read of
/// such a device waits while its server is away, and that server may be this process, not started
/// yet.
///
/// # Errors
/// When /proc/partitions cannot be read.
pub fn scan() -> io::Result<Vec<PathBuf>> {
    let text = std::fs::read_to_string("/proc/partitions")?;
    let is_device =
        |path: &Path| std::fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device());
    let mounts = Mounts::read();
    let is_served =
        |path: &Path| named(path).is_some_and(|device| is_served(&device, &mounts, DEEPEST));
    let found = devices(&text).filter(|path| is_device(path) && !is_served(path));
    Ok(found.collect())
}

/// The device that a file in /dev is called after.
fn named(path: &Path) -> Option<BlockDevice> {
    let name = path.strip_prefix("/dev").ok()?.to_str()?;
    // The kernel writes "!" for a slash in a device name.
    BlockDevice::called(&name.replace('/', "!"))
}

/// Returns whether a process serves this device, or a device or file below it. Neither is opened or
/// read.
fn is_served(device: &BlockDevice, mounts: &Mounts, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    if device.path().to_str().is_some_and(|path| path.starts_with("/dev/ublkb")) {
        return true;
    }
    let below = |device: Option<BlockDevice>| {
        device.is_some_and(|device| is_served(&device, mounts, depth))
    };
    if let Some((disk, _)) = device.disk() {
        return below(Some(disk));
    }
    if let Some(backing) = device.backing() {
        return match mounts.of_file(&backing.path) {
            Some(mount) if mount.is_ours() => true,
            Some(mount) => {
                let on = BlockDevice::of(makedev(mount.device.0, mount.device.1));
                below(named(&backing.path).or(on))
            }
            None => false,
        };
    }
    device.slaves().any(|slave| below(Some(slave)))
}

/// The devices in the text of /proc/partitions: lines of major, minor, size in KiB and name.
/// Empty ones (an extended partition, a drive without a medium) are left out.
fn devices(text: &str) -> impl Iterator<Item = PathBuf> + '_ {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let size_kib: u64 = words.nth(2)?.parse().ok()?;
        let name = words.next()?;
        (size_kib > 1).then(|| device_path(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_partitions_is_read() {
        let text = "major minor  #blocks  name\n\n 254        0   10485760 vda\n 254        1 \
                    1 vda1\n  11        0          0 sr0\n 104        0   71652960 cciss!c0d0\n";
        let found: Vec<_> = devices(text).collect();
        assert_eq!(found, [Path::new("/dev/vda"), Path::new("/dev/cciss/c0d0")]);
    }
}
