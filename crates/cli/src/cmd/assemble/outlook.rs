//! Outlook of a start with named devices: whether the array would start, its size, and those of its
//! members that are not named. Devices are examined also while in use, and nothing is written.

use std::collections::BTreeSet;
use std::path::PathBuf;

use braid_array::array::array_size;
use braid_array::assemble::{Config, Options, Start};
use braid_array::condition::Condition;
use braid_array::format::superblock::DevRole;
use braid_array::refusal::Invocation;
use braid_array::{Refusal, Role, SECTOR_BYTES};
use braid_host::member::OpenError;
use braid_host::serve::ExportedArray;

use super::Called;
use super::layers::{Layers, short_name};
use crate::cmd::families::{Choice, Families, choose};
use crate::cmd::found::{self, Found};

/// Outlook of a start.
pub(in crate::cmd) struct Outlook {
    /// Set if the array starts, and no member that it had when it last ran is missing.
    pub(in crate::cmd) whole: bool,
    /// Set if it stopped in the middle of a reshape, with all members there: more than these is
    /// needed to go on.
    pub(in crate::cmd) is_halfway: bool,
    /// The number of roles without a member in sync; or the reason why the array does not start,
    /// even without missing members.
    pub(in crate::cmd) start: Result<usize, Refusal>,
    /// The command that starts it.
    pub(in crate::cmd) by_hand: Option<Invocation>,
    /// The array for its exports, where it starts.
    pub(in crate::cmd) array: Option<ExportedArray>,
    /// Arrays with roles that none of the devices has.
    pub(in crate::cmd) unnamed: Vec<Unnamed>,
    /// Devices of other arrays; all of them where none of the arrays is the one.
    pub(in crate::cmd) outsiders: Vec<String>,
    /// Number of devices that may have had any role.
    pub(in crate::cmd) strays: usize,
    /// Devices that cannot be read.
    pub(in crate::cmd) unread: Vec<OpenError>,
}

/// Roles of an array that none of the devices has.
pub(in crate::cmd) struct Unnamed {
    pub(in crate::cmd) name: String,
    pub(in crate::cmd) uuid: [u8; 16],
    /// Number of roles of the array.
    pub(in crate::cmd) members: u32,
    pub(in crate::cmd) roles: Vec<Role>,
    /// Number of those that had a member when the array last ran.
    pub(in crate::cmd) lost: usize,
}

/// Returns the outlook of the array of this name or UUID with these devices.
pub(in crate::cmd) fn outlook(
    name: &str,
    uuid: Option<&str>,
    devices: &[PathBuf],
    read_only: bool,
) -> Outlook {
    let (found, unread) = found::look(&found::inside(devices));
    let devices: Vec<String> = found.iter().map(|one| one.candidate.device.clone()).collect();
    let wanted = uuid.unwrap_or(name);
    let (choice, unclear) = match choose(Families::of(found, Some(wanted)), wanted) {
        Ok(choice) => (choice, None),
        Err(unclear) => (none(), Some(unclear.refusal("assemble", name).into_refusal())),
    };
    let Choice { members, nested, left_out } = choice;
    let (found, _) = found::look(&members);
    let strays = unread.len() + left_out.len() + found.iter().filter(|one| is_stray(one)).count();
    let unnamed = unnamed(&found, (!nested).then_some(name));
    let block_bytes = found.iter().map(|one| one.device.block_bytes).max().unwrap_or_default();
    let called = Called {
        name: Some(name.to_owned()),
        rename: uuid.is_some(),
        uuid: uuid.map(str::to_owned),
    };
    let judged = |options| {
        let (found, _) = found::look(&members);
        Layers::of(found, nested, called.clone(), options)
    };
    let mut options = Options { read_only, ..Options::default() };
    let mut layers = judged(options);
    let whole = unread.is_empty() && is_ready(&layers);
    let is_halfway = unread.is_empty() && stopped_halfway(&layers);
    if !is_ready(&layers) {
        options.run = true;
        layers = judged(options);
    }
    let (start, array) = match &layers.top.start {
        Start::Ready { config, .. } => (Ok(layers.degraded()), exported(config, block_bytes)),
        Start::Halfway(_) => (Ok(layers.degraded()), None),
        Start::Refused { reason, next, .. } => {
            (Err(Refusal::new(reason.clone(), called.named(next.clone()))), None)
        }
    };
    let outsiders = match &unclear {
        Some(_) => devices,
        None => left_out.into_iter().map(|(device, _)| device).collect(),
    };
    let start = unclear.map_or(start, Err);
    let by_hand = is_ready(&layers).then(|| layers.invocation(options));
    Outlook { whole, is_halfway, start, by_hand, array, unnamed, outsiders, strays, unread }
}

/// No array has the name.
const fn none() -> Choice {
    Choice { members: Vec::new(), nested: false, left_out: Vec::new() }
}

/// Returns whether all members are there, and the array is in the middle of a reshape with which
/// these alone do not go on.
fn stopped_halfway(layers: &Layers) -> bool {
    let Start::Refused { next, .. } = &layers.top.start else { return false };
    next.condition == Some(Condition::Halfway)
}

const fn is_ready(layers: &Layers) -> bool {
    matches!(layers.top.start, Start::Ready { .. })
}

fn exported(config: &Config, block_bytes: u32) -> Option<ExportedArray> {
    Some(ExportedArray {
        size_bytes: array_size(config)? * SECTOR_BYTES,
        block_bytes: config.block_bytes.max(block_bytes),
        read_only: config.read_only,
    })
}

/// Returns whether a device may have had any role: nothing tells which.
fn is_stray(found: &Found) -> bool {
    let superblock = found.candidate.superblock.as_ref();
    superblock.map_or(true, |superblock| superblock.role() == DevRole::Faulty)
}

/// Returns the arrays that have roles without a device. An array of devices goes by `name`.
fn unnamed(found: &[Found], name: Option<&str>) -> Vec<Unnamed> {
    let superblocks = || found.iter().filter_map(|one| one.candidate.superblock.as_ref().ok());
    let uuids: BTreeSet<[u8; 16]> = superblocks().map(|superblock| superblock.set_uuid).collect();
    let of_array = |uuid: [u8; 16]| {
        let own = || superblocks().filter(move |superblock| superblock.set_uuid == uuid);
        let newest = own().max_by_key(|superblock| superblock.events)?;
        let named: BTreeSet<Role> =
            own().filter_map(|superblock| superblock.role().active()).collect();
        let all = 0..u16::try_from(newest.raid_disks).unwrap_or(u16::MAX);
        let roles: Vec<Role> = all.map(Role).filter(|role| !named.contains(role)).collect();
        let active = newest.active_roles();
        Some(Unnamed {
            name: name.map_or_else(|| short_name(newest), str::to_owned),
            uuid,
            members: newest.raid_disks,
            lost: roles.iter().filter(|role| active.contains(role)).count(),
            roles,
        })
    };
    let arrays = uuids.into_iter().filter_map(of_array);
    arrays.filter(|array| !array.roles.is_empty()).collect()
}
