//! An XFS of version 4: each allocation group has a tree of its inodes.

use braid_array::SECTOR_BYTES;

use super::array::{Array, MOST_INODES, ends_here};
use crate::bytes::array_at;
use crate::recover::walked::Walked;
use crate::recover::xfs::{Xfs, u16_be, u32_be, u64_be};

/// Groups, blocks of the tree of a group, and inodes of a group that are looked at.
const MOST_GROUPS: u64 = 64;
const MOST_BLOCKS: usize = 8;
const LEAST_INODES: usize = 16;
const INODES_IN_CHUNK: u64 = 64;
/// Where the tree of inodes has its records, and an inode its extents.
const RECORDS: usize = 16;
const FORK: usize = 100;
const DIRECTORY: u16 = 4;
const FILE: u16 = 8;
/// The form in which an inode has its data: within itself, or as extents.
const LOCAL: u8 = 1;
const EXTENTS: u8 = 2;

/// Looks at inodes all over the groups.
pub(super) fn look(array: &mut Array<'_, '_, '_>, xfs: &Xfs, found: &mut Walked) {
    let groups = xfs.ag_count.min(MOST_GROUPS);
    let own = (MOST_INODES / groups.max(1) as usize).max(LEAST_INODES);
    let every = xfs.ag_count.div_ceil(MOST_GROUPS).max(1);
    for group in (0..xfs.ag_count).step_by(every as usize) {
        let most = (found.of() + own).min(MOST_INODES);
        for number in inodes(array, xfs, group) {
            if found.of() >= most {
                break;
            }
            let proves = proves(array, xfs, number);
            found.note(number, proves);
        }
    }
}

/// Inodes in use of a group, by its tree.
fn inodes(array: &mut Array<'_, '_, '_>, xfs: &Xfs, group: u64) -> Vec<u64> {
    let header = group * xfs.ag_blocks * xfs.block_sectors + 2 * xfs.sector_sectors;
    let header = read(array, xfs, header, xfs.sector_sectors);
    let root = header.filter(|header| header.starts_with(b"XAGI"));
    let mut blocks: Vec<u32> = root.and_then(|header| u32_be(&header, 20)).into_iter().collect();
    let mut all = Vec::new();
    let mut looked = 0;
    while looked < MOST_BLOCKS {
        let Some(at) = blocks.pop() else { break };
        looked += 1;
        let number = group << xfs.ag_block_bits | u64::from(at);
        let Some(bytes) = block(array, xfs, number) else { continue };
        if bytes.starts_with(b"IABT") {
            blocks.extend(below(&bytes));
            all.extend(in_use(&bytes).filter(|own| own >> bits(xfs) == 0));
        }
    }
    all.iter().map(|own| group << bits(xfs) | own).collect()
}

/// Returns whether the directory, or the end of the file, is where its inode says. `None` where
/// that says nothing.
pub(super) fn proves(array: &mut Array<'_, '_, '_>, xfs: &Xfs, number: u64) -> Option<bool> {
    let inodes = block(array, xfs, number >> xfs.inodes_in_block_bits)?;
    let index = number & ((1 << xfs.inodes_in_block_bits) - 1);
    let inode = inodes.get((index * xfs.inode_bytes) as usize..)?;
    let inode = inode.get(..xfs.inode_bytes as usize)?;
    if !inode.starts_with(b"IN") || !matches!(inode[4], 1 | 2) {
        return Some(false);
    }
    let size = u64_be(inode, 56)?;
    let block_bytes = xfs.block_sectors * SECTOR_BYTES;
    match (u16_be(inode, 2)? >> 12, inode[5]) {
        // Its parent is the directory itself for the root alone.
        (DIRECTORY, LOCAL) => (Some(number) == xfs.root).then(|| parent(inode) == xfs.root),
        (DIRECTORY, EXTENTS) => {
            let block = block(array, xfs, block_of(inode, 0)?)?;
            let is_data = block.starts_with(b"XD2B") || block.starts_with(b"XD2D");
            let is_own = u64_be(&block, 16) == Some(number);
            Some(is_data && is_own && block.get(24..26) == Some(b"\x01."))
        }
        (FILE, EXTENTS) if !size.is_multiple_of(block_bytes) => {
            let block = block(array, xfs, block_of(inode, size / block_bytes)?)?;
            Some(ends_here(&block, size % block_bytes))
        }
        _ => None,
    }
}

fn block(array: &mut Array<'_, '_, '_>, xfs: &Xfs, number: u64) -> Option<Vec<u8>> {
    let within = number & ((1 << xfs.ag_block_bits) - 1);
    if within >= xfs.group_blocks(number >> xfs.ag_block_bits) {
        return None;
    }
    read(array, xfs, xfs.block(number)?, xfs.block_sectors)
}

/// So many sectors of the file system.
fn read(array: &mut Array<'_, '_, '_>, xfs: &Xfs, sector: u64, sectors: u64) -> Option<Vec<u8>> {
    let is_within = sector.checked_add(sectors)? <= xfs.sectors();
    if is_within { array.read(array.origin() + sector, sectors) } else { None }
}

/// The bits of an inode's number that count within its group.
const fn bits(xfs: &Xfs) -> u32 {
    xfs.ag_block_bits + xfs.inodes_in_block_bits
}

/// Blocks below this one of a tree, which has all its keys before them.
fn below(block: &[u8]) -> Vec<u32> {
    let level = u16_be(block, 4).unwrap_or(0);
    let count = usize::from(u16_be(block, 6).unwrap_or(0));
    let most = block.len().saturating_sub(RECORDS) / 8;
    if level == 0 || count > most {
        return Vec::new();
    }
    (0..count).filter_map(|index| u32_be(block, RECORDS + most * 4 + index * 4)).collect()
}

/// Inodes in use by the records of a leaf, by their numbers in the group.
fn in_use(block: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let is_leaf = u16_be(block, 4) == Some(0);
    let count = if is_leaf { u16_be(block, 6).unwrap_or(0) } else { 0 };
    let record = |index: u16| {
        let at = RECORDS + usize::from(index) * 16;
        Some((u64::from(u32_be(block, at)?), u64_be(block, at + 8)?))
    };
    (0..count).filter_map(record).flat_map(|(first, free)| {
        let is_used = move |index: &u64| free >> index & 1 == 0;
        (0..INODES_IN_CHUNK).filter(is_used).map(move |index| first + index)
    })
}

/// The parent of a directory that lies within its inode.
fn parent(inode: &[u8]) -> Option<u64> {
    let has_long_numbers = *inode.get(FORK + 1)? > 0;
    if has_long_numbers { u64_be(inode, FORK + 2) } else { u32_be(inode, FORK + 2).map(u64::from) }
}

/// The block in which this block of a file lies, by the extents in its inode.
fn block_of(inode: &[u8], index: u64) -> Option<u64> {
    let count = u32_be(inode, 76)? as usize;
    let extents = inode.get(FORK..)?.chunks_exact(16).take(count);
    extents.filter_map(|extent| array_at(extent, 0).map(u128::from_be_bytes)).find_map(|extent| {
        let first = (extent >> 73) as u64 & ((1 << 54) - 1);
        let start = (extent >> 21) as u64 & ((1 << 52) - 1);
        let length = extent as u64 & ((1 << 21) - 1);
        let is_written = extent >> 127 == 0;
        let within = index.checked_sub(first).filter(|within| *within < length && is_written)?;
        Some(start + within)
    })
}
