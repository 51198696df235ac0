//! A disk gets the size of its array, which has grown.

use std::io;
use std::thread;

use braid_array::SECTOR_BYTES;

use super::command::{DeviceState, UblkCommand};
use super::control::Control;
use crate::system::describe;

/// Gives the disk of a device so many sectors, on a thread of its own: commands to the driver wait.
pub(super) fn begin(number: u32, sectors: u64) {
    let run = move || match Control::open() {
        Ok(mut control) => resize(&mut control, number, sectors),
        Err(refusal) => stays(number, &refusal.reason),
    };
    if let Err(error) = thread::Builder::new().name("ublk-size".into()).spawn(run) {
        stays(number, &describe(&error));
    }
}

/// Gives the disk of a device so many sectors. One that has not begun gets them when it begins.
pub(super) fn resize(control: &mut Control, number: u32, sectors: u64) {
    // Kernels before 7.0 may crash where there is no disk yet.
    let state = control.info(number).ok().flatten().map(|info| info.state);
    if state != Some(DeviceState::Live) {
        return;
    }
    if !control.can_resize() {
        return stays(number, "this kernel cannot change it (Linux 6.16 can)");
    }
    match control.call(UblkCommand::UpdateSize { sectors }, number, &mut []) {
        Ok(()) => tracing::info!("/dev/ublkb{number} has {} bytes now", sectors * SECTOR_BYTES),
        Err(errno) => stays(number, &describe(&io::Error::from(errno))),
    }
}

fn stays(number: u32, why: &str) {
    tracing::warn!(
        "/dev/ublkb{number} keeps its size although the array has another: {why}; stop the array, \
         and assemble it again"
    );
}
