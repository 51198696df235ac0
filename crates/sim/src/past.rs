//! Devices that go back in time: an image restored from a snapshot that was taken while the array
//! was in use. The content of such a device is old; the device itself is intact.
//!
//! The device is put back where the array promises to notice: while it runs without the device, and
//! after a stop.

use braid_array::MemberId;
use braid_array::status::MemberState;

use crate::disk::Disk;
use crate::part::devices;
use crate::subject::Subject;
use crate::troubles;
use crate::world::World;

/// A device as it was.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The device.
    pub device: usize,
    /// Its disk at an earlier time.
    pub disk: Disk,
}

/// Takes a snapshot of a member in sync, as if it had lost power then.
pub fn take(world: &mut World<impl Subject>, member: MemberId) {
    let Some(device) = world.exec.device(member) else { return };
    if world.exec.disks[device].gone() || world.exec.disks[device].damaged() {
        return;
    }
    let mut disk = world.exec.disks[device].clone();
    disk.power_cut(&mut world.rng);
    disk.set_hung(false);
    disk.set_full(false);
    world.note(&[56, device as u64], || format!("TROUBLE a snapshot of device {device}"));
    world.snapshot = Some(Snapshot { device, disk });
}

/// A loose device goes back to its snapshot, if there is one.
pub fn put_back(world: &mut World<impl Subject>, device: usize) {
    if let Some(snapshot) = world.snapshot.take_if(|snapshot| snapshot.device == device) {
        world.note(&[57, device as u64], || format!("TROUBLE device {device} is as it was"));
        world.exec.disks[device] = snapshot.disk;
    }
}

/// The member that goes back to its snapshot once the array is stopped, if it does without.
pub fn choose(world: &mut World<impl Subject>) -> Option<Snapshot> {
    if world.scenario.excess {
        return None;
    }
    let device = world.snapshot.as_ref()?.device;
    let status = world.exec.machine.status();
    let member = devices(&status).find(|m| world.exec.device(m.member) == Some(device))?;
    let id = member.member;
    let state = member.state;
    let spared = state == MemberState::InSync && troubles::may_fail(world, &status, id);
    spared.then(|| world.snapshot.take()).flatten()
}
