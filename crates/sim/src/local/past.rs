//! Devices that go back in time: an image restored from a snapshot that was taken while the array
//! was in use. The content of such a device is old; the device itself is intact.
//!
//! The device is put back where the array promises to notice: while it runs without the device, and
//! after a stop.

use crate::disk::Disk;
use crate::rng::Rng;

/// A device as it was.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The device.
    pub device: usize,
    /// Its disk at an earlier time.
    pub disk: Disk,
}

impl Snapshot {
    /// Takes a snapshot of a sound device, as if it had lost power then.
    pub fn take(device: usize, disk: &Disk, rng: &mut Rng) -> Option<Self> {
        if disk.gone() || disk.damaged() {
            return None;
        }
        let mut disk = disk.clone();
        disk.power_cut(rng);
        disk.set_hung(false);
        disk.set_full(false);
        Some(Self { device, disk })
    }
}
