//! An ext4: inodes lie in tables of known places.

use super::array::{Array, MOST_INODES, ends_here};
use crate::bytes::{is_zero, u16_le, u32_le};
use crate::recover::ext4::Ext4;
use crate::recover::walked::Walked;

/// Blocks of tables that are looked at.
const MOST_BLOCKS: u64 = 96;
pub(super) const ROOT: u64 = 2;

/// Returns whether this inode proves to be where it has to be.
pub(super) fn proves(array: &mut Array<'_, '_, '_>, ext4: &Ext4, number: u64) -> Option<bool> {
    let inode = inode(array, ext4, number)?;
    judge(array, ext4, number, &inode)
}

/// Looks at inodes all over the tables.
pub(super) fn look(array: &mut Array<'_, '_, '_>, ext4: &Ext4, found: &mut Walked) {
    let in_block = ext4.block_bytes / ext4.inode_bytes;
    let blocks = ext4.inodes / in_block;
    // Tables fill from their beginnings.
    let mut block = 0;
    while block < blocks && found.of() < MOST_INODES {
        let first = block * in_block + 1;
        let mut any = false;
        for number in first..first + in_block {
            let Some(inode) = inode(array, ext4, number) else { continue };
            any |= !is_zero(&inode);
            let proves = judge(array, ext4, number, &inode);
            found.note(number, proves);
        }
        let blocks_per_group = ext4.inodes_per_group.div_ceil(in_block);
        block = if any {
            block + (blocks / MOST_BLOCKS).clamp(1, 4)
        } else {
            (block / blocks_per_group + 1) * blocks_per_group
        };
    }
}

/// An inode by its number.
fn inode(array: &mut Array<'_, '_, '_>, ext4: &Ext4, number: u64) -> Option<Vec<u8>> {
    let group = (number - 1) / ext4.inodes_per_group;
    let at = group * ext4.descriptor_bytes;
    let descriptors = block(array, ext4, ext4.first_data_block + 1 + at / ext4.block_bytes)?;
    let own = descriptors.get((at % ext4.block_bytes) as usize..)?;
    let table = ext4.inode_table(own)?;
    let at = (number - 1) % ext4.inodes_per_group * ext4.inode_bytes;
    let inodes = block(array, ext4, table + at / ext4.block_bytes)?;
    let at = (at % ext4.block_bytes) as usize;
    inodes.get(at..at + ext4.inode_bytes as usize).map(<[u8]>::to_vec)
}

/// Returns whether the directory or the end of the file is where its inode says. `None` where that
/// says nothing.
fn judge(array: &mut Array<'_, '_, '_>, ext4: &Ext4, number: u64, inode: &[u8]) -> Option<bool> {
    let mode = u16_le(inode, 0)? >> 12;
    let size = u64::from(u32_le(inode, 4)?);
    if u16_le(inode, 0x1a)? == 0 || number != ROOT && number < 11 {
        return None;
    }
    match mode {
        4 => {
            let block = block(array, ext4, block_of(inode, 0)?)?;
            let is_it = u32_le(&block, 0).map(u64::from) == Some(number);
            Some(is_it && block.get(6..9) == Some(&[1, 2, b'.']))
        }
        8 if !size.is_multiple_of(ext4.block_bytes) => {
            let last = block_of(inode, size / ext4.block_bytes)?;
            let block = block(array, ext4, last)?;
            Some(ends_here(&block, size % ext4.block_bytes))
        }
        _ => None,
    }
}

fn block(array: &mut Array<'_, '_, '_>, ext4: &Ext4, block: u64) -> Option<Vec<u8>> {
    if block >= ext4.blocks {
        return None;
    }
    let unit = ext4.block_sectors();
    array.read(array.origin() + block * unit, unit)
}

/// The block of the file system in which this block of a file lies, where the inode alone says so.
fn block_of(inode: &[u8], index: u64) -> Option<u64> {
    let by_extents = u32_le(inode, 0x20)? & 0x8_0000 != 0;
    if !by_extents {
        let index = usize::try_from(index).ok().filter(|index| *index < 12)?;
        return u32_le(inode, 0x28 + index * 4).map(u64::from).filter(|block| *block > 0);
    }
    if u16_le(inode, 0x28)? != 0xf30a || u16_le(inode, 0x2e)? != 0 {
        return None;
    }
    let count = usize::from(u16_le(inode, 0x2a)?.min(4));
    (0..count).find_map(|extent| {
        let at = 0x34 + extent * 12;
        let first = u64::from(u32_le(inode, at)?);
        let length = u64::from(u16_le(inode, at + 4)?);
        let within = index.checked_sub(first).filter(|within| *within < length)?;
        let block = u64::from(u32_le(inode, at + 8)?) | u64::from(u16_le(inode, at + 6)?) << 32;
        Some(block + within)
    })
}
