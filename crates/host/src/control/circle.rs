//! An array that would lie on itself: a device that is this array's own file, or lies on an array
//! that this one is a member of. Such writes would wait for themselves.

use std::path::{Path, PathBuf};

use super::Client;
use super::served::Served;
use crate::access::split;
use crate::member::lies_on;
use crate::users::{MountLine, Mounts};

/// Deeper than any real stack of devices.
const DEEPEST: usize = 8;

impl Served {
    /// The array by way of which a device lies on this one; its own name where it is its own file.
    pub(super) fn circle(&self, device: &Path) -> Option<String> {
        let mounts = Mounts::read();
        self.leads_back(&mounts, device, DEEPEST)
    }

    fn leads_back(&self, mounts: &Mounts, device: &Path, depth: usize) -> Option<String> {
        lies_on(device).iter().find_map(|file| {
            let mount = mounts.of_file(file).filter(|mount| mount.is_ours())?;
            // The one file there is called as the array.
            let name = file.file_name()?.to_str()?;
            if name == self.name && exported(mounts, &self.exports.get(), mount) {
                return Some(name.to_owned());
            }
            // Who does not answer may be on this array all the same, but cannot be taken for that.
            let status = Client::connect(&self.run_dir, name).ok()?.status().ok()?;
            if depth == 0 || !exported(mounts, &status.exports, mount) {
                return None;
            }
            let arrays = std::iter::once(&status.array).chain(&status.array.children);
            let mut members = arrays.flat_map(|array| &array.members);
            let member = |device: &str| self.leads_back(mounts, Path::new(device), depth - 1);
            members.any(|one| member(&one.device).is_some()).then(|| name.to_owned())
        })
    }
}

/// Returns whether this mount is one of these exports.
fn exported(mounts: &Mounts, exports: &[String], mount: &MountLine) -> bool {
    let points = exports.iter().filter_map(|export| export.strip_prefix("fuse:"));
    points
        .map(|point| PathBuf::from(split(point).0))
        .any(|point| mounts.at(&point).is_some_and(|own| own.device == mount.device))
}
