//! Members inside disks: the partitions of a disk or of its image that are members of md arrays.

use std::path::{Path, PathBuf};

use braid_array::SECTOR_BYTES;
use braid_array::format::{Superblock, SuperblockError, Version};
use braid_rescue::partitions::Partition;

use super::look::partitions;
use super::{DevicePart, MemberFile, MemberName, peek, probe};
use crate::sysfs::{BlockDevice, Upon};

/// Usual starts of partitions, in sectors, by old tools and by new ones.
const USUAL_STARTS: [u64; 4] = [63, 64, 128, 2048];

/// Returns the places that hold a superblock of md under this name: the file or device itself, or
/// its partitions, as the kernel's devices where these exist. Where the partition table is gone, a
/// superblock at the usual start of a partition counts. Without any, returns the name itself.
#[must_use]
pub fn inside(name: &Path) -> Vec<PathBuf> {
    let itself = || vec![name.to_owned()];
    if MemberName::of(name).part.is_some() {
        return itself();
    }
    let Ok(disk) = peek(name) else { return itself() };
    let found = probe(&disk).superblock;
    let last = match &found {
        Err(SuperblockError::NoMagic) => None,
        // Where the last partition ends with the disk, both have it in the same place, which says
        // nothing of whose it is.
        Ok(superblock) if superblock.version == Version::V0_90 => Some(superblock),
        _ => return itself(),
    };
    let Ok(table) = partitions(&disk) else {
        let former = if last.is_none() { former_partition(name) } else { None };
        return former.map_or_else(itself, |part| vec![part]);
    };
    let data = table.partitions.iter().filter(|partition| !partition.kind.is_extended());
    let members = data.filter(|partition| {
        let found = peek(&part(name, partition)).map(|part| probe(&part).superblock);
        match (last, found) {
            (Some(last), Ok(Ok(found))) => is_same(last, partition, &found),
            (None, Ok(found)) => found != Err(SuperblockError::NoMagic),
            _ => false,
        }
    });
    let names: Vec<PathBuf> = members
        .map(|member| kernel_device(&disk, member).unwrap_or_else(|| part(name, member)))
        .collect();
    if names.is_empty() { itself() } else { names }
}

/// A member that begins where a partition usually does.
fn former_partition(name: &Path) -> Option<PathBuf> {
    let begins = |start: u64| {
        let part = Some(DevicePart::Bytes { offset: start * SECTOR_BYTES, size: None });
        let name = MemberName { file: name.to_owned(), part }.name();
        let superblock = probe(&peek(&name).ok()?).superblock.ok()?;
        // What lies by the end of the disk may be of anything.
        matches!(superblock.version, Version::V1_1 | Version::V1_2).then_some(name)
    };
    USUAL_STARTS.into_iter().find_map(begins)
}

fn part(name: &Path, partition: &Partition) -> PathBuf {
    let part = Some(DevicePart::Partition(partition.number));
    MemberName { file: name.to_owned(), part }.name()
}

/// Returns whether the superblock found on a disk is the one that lies in this partition of it.
fn is_same(on_disk: &Superblock, partition: &Partition, within: &Superblock) -> bool {
    let at = partition.start_bytes + within.super_offset * SECTOR_BYTES;
    within.version == on_disk.version && at == on_disk.super_offset * SECTOR_BYTES
}

/// The kernel's device of a partition.
fn kernel_device(disk: &MemberFile, partition: &Partition) -> Option<PathBuf> {
    let number = super::identity(&disk.file).ok()?.device_number()?;
    let device = BlockDevice::of(number)?;
    let bytes = partition.start_bytes..partition.start_bytes + partition.size_bytes;
    let mut parts = device.partitions(&bytes);
    let is_it = |part: &Upon| part.bytes == (0..partition.size_bytes);
    parts.find(is_it).map(|part| part.device.path())
}
