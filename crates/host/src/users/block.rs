//! Who uses a block device, as sysfs tells (the kernel's ABI documents sysfs-block and
//! sysfs-block-loop).

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::mounts::{Mounts, unescape};
use super::{User, processes};

/// More than anybody stacks.
const DEEPEST: usize = 8;

/// The loop devices on a file for which `is_it` holds.
pub(super) fn loops_on(mounts: &Mounts, is_it: impl Fn(&Path) -> bool) -> Vec<User> {
    loops(mounts, &is_it, DEEPEST)
}

fn loops(mounts: &Mounts, is_it: &dyn Fn(&Path) -> bool, depth: usize) -> Vec<User> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let entry = entry.path();
        let Ok(mut file) = fs::read(entry.join("loop/backing_file")) else { continue };
        file.pop_if(|byte| *byte == b'\n');
        if is_it(Path::new(&OsString::from_vec(file))) {
            let users = users_of(&entry, mounts, depth.saturating_sub(1));
            found.push(User::Loop { device: device_name(&entry), users });
        }
    }
    found
}

/// Who uses the device whose directory in sysfs this is.
fn users_of(entry: &Path, mounts: &Mounts, depth: usize) -> Vec<User> {
    let name = device_name(entry);
    let mut users = Vec::new();
    if depth == 0 {
        return users;
    }
    if let Some(number) = device_number(entry) {
        users.extend(mounts.of_device(number, &name).into_iter().map(User::Mount));
    }
    if swaps().contains(&name) {
        users.push(User::Swap);
    }
    for below in fs::read_dir(entry).into_iter().flatten().flatten() {
        if below.path().join("partition").exists() {
            users.extend(users_of(&below.path(), mounts, depth - 1));
        }
    }
    for holder in fs::read_dir(entry.join("holders")).into_iter().flatten().flatten() {
        users.push(User::Device(device_name(&holder.path())));
    }
    users.extend(loops(mounts, &|file| file == name, depth - 1));
    if users.is_empty() {
        users.extend(processes::using(|path| path == name).map(User::Process));
    }
    users
}

/// The kernel writes "!" for a slash in a device name.
fn device_name(entry: &Path) -> PathBuf {
    let name = entry.file_name().unwrap_or_default().to_string_lossy().replace('!', "/");
    Path::new("/dev").join(name)
}

fn device_number(entry: &Path) -> Option<(u32, u32)> {
    let text = fs::read_to_string(entry.join("dev")).ok()?;
    let (major, minor) = text.trim_end().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The devices and files that are swapped to.
pub(crate) fn swaps() -> Vec<PathBuf> {
    swaps_in(&fs::read("/proc/swaps").unwrap_or_default()).collect()
}

/// The text of /proc/swaps: a header, then lines that begin with a path.
pub(super) fn swaps_in(text: &[u8]) -> impl Iterator<Item = PathBuf> + '_ {
    let lines = text.split(|byte| *byte == b'\n').skip(1).filter(|line| !line.is_empty());
    lines.filter_map(|line| line.split(|byte| b" \t".contains(byte)).next()).map(unescape)
}
