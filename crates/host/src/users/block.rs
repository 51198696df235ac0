//! Users of a block device.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use super::mounts::{Mounts, unescape};
use super::{User, processes};
use crate::sysfs::{ALL, BlockDevice, DEEPEST, Layering, LoopDevice, loops, upon};

/// The loop devices on a file for which `is_it` holds.
pub(super) fn loops_on(mounts: &Mounts, is_it: impl Fn(&Path) -> bool) -> Vec<User> {
    above(None, mounts, &loops(), &is_it, DEEPEST)
}

/// Returns the users of a device.
pub(super) fn of(device: &BlockDevice) -> Vec<User> {
    users_of(device, &Mounts::read(), &loops(), DEEPEST)
}

/// Returns the users on top of a device or, without one, of a file for which `is_it` holds.
fn above(
    device: Option<&BlockDevice>,
    mounts: &Mounts,
    loops: &[LoopDevice],
    is_it: &dyn Fn(&Path) -> bool,
    depth: usize,
) -> Vec<User> {
    let mut users = Vec::new();
    if depth == 0 {
        return users;
    }
    for on in upon(device, &ALL, loops, |one| is_it(&one.backing.path)) {
        let used = || users_of(&on.device, mounts, loops, depth - 1);
        match on.way {
            Layering::Partition => users.extend(used()),
            Layering::Holder => users.push(User::Device(on.device.path())),
            Layering::Loop => users.push(User::Loop { device: on.device.path(), users: used() }),
        }
    }
    users
}

fn users_of(
    device: &BlockDevice,
    mounts: &Mounts,
    loops: &[LoopDevice],
    depth: usize,
) -> Vec<User> {
    let name = device.path();
    let number = (major(device.number), minor(device.number));
    let mut users: Vec<User> =
        mounts.of_device(number, &name).into_iter().map(User::Mount).collect();
    if swaps().contains(&name) {
        users.push(User::Swap);
    }
    users.extend(above(Some(device), mounts, loops, &|file| file == name, depth));
    if users.is_empty() {
        users.extend(processes::using(|path| path == name).map(User::Process));
    }
    users
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
