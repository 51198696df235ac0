//! Finding devices that may be members.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::sysfs::device_path;

/// All block devices of the system, by name, as the kernel lists them.
///
/// # Errors
/// When /proc/partitions cannot be read.
pub fn scan() -> io::Result<Vec<PathBuf>> {
    let text = std::fs::read_to_string("/proc/partitions")?;
    let is_device =
        |path: &Path| std::fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device());
    Ok(devices(&text).filter(|path| is_device(path)).collect())
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
