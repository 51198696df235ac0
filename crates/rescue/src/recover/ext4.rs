//! ext4 with checksums of metadata: superblocks say to which group they belong; the checksum of an
//! inode tells its number, a bitmap is known by the checksum that its group's descriptor has of
//! it, and the first block of a directory by its inode. By the kernel's documentation,
//! `filesystems/ext4`.

use std::collections::HashMap;

use braid_array::SECTOR_BYTES;

use super::crc32c::{between, undo, update};
use crate::bytes::{array_at, is_zero, u16_le, u32_le};

/// The places of things by a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ext4 {
    pub(super) uuid: [u8; 16],
    pub(super) block_bytes: u64,
    pub(super) blocks: u64,
    pub(super) first_data_block: u64,
    blocks_per_group: u64,
    clusters_per_group: u64,
    pub(super) inodes_per_group: u64,
    pub(super) inodes: u64,
    pub(super) inode_bytes: u64,
    pub(super) descriptor_bytes: u64,
    /// The seed of checksums; `None` where there are none.
    seed: Option<u32>,
    /// Stride and stripe width that it was made for, in blocks; 0 where it was made for none.
    stride: u64,
    width: u64,
}

/// The kind of a block, as far as it can be told alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ext4Clue {
    /// The inodes from this number on.
    Inodes { first: u32 },
    /// The first block of the directory with this inode.
    Directory { inode: u32 },
    /// Any block: its sums as a bitmap of blocks and of inodes.
    Sums { blocks: u32, inodes: u32 },
}

/// Facts that blocks tell of other blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Ext4Facts {
    descriptors: HashMap<u64, Descriptor>,
    /// The first block of directories, by inode; [`IN_DOUBT`] where two are told.
    directories: HashMap<u32, u64>,
}

/// No block. Parity of an odd number of blocks of inodes looks like such a block, checksums
/// included, since these are sums as well: what is told twice differently is not believed.
const IN_DOUBT: u64 = 1 << 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Descriptor {
    block_bitmap: u64,
    inode_bitmap: u64,
    inode_table: u64,
    block_sum: Option<u32>,
    inode_sum: Option<u32>,
}

/// The number in the place of a sum that there is not.
const NO_SUM: u64 = 1 << 32;

impl Ext4Facts {
    /// As lines of numbers: six for a descriptor, two for a directory.
    pub(super) fn to_lines(&self) -> Vec<String> {
        let sum = |sum: Option<u32>| sum.map_or(NO_SUM, u64::from);
        let descriptors = self.descriptors.iter().map(|(group, one)| {
            let Descriptor { block_bitmap, inode_bitmap, inode_table, block_sum, inode_sum } = one;
            let blocks = sum(*block_sum);
            let inodes = sum(*inode_sum);
            format!("{group} {block_bitmap} {inode_bitmap} {inode_table} {blocks} {inodes}")
        });
        let directories = self.directories.iter().map(|(inode, block)| format!("{inode} {block}"));
        let mut lines: Vec<String> = descriptors.chain(directories).collect();
        lines.sort_unstable_by_key(|line| std::cmp::Reverse(line.split(' ').count()));
        lines
    }

    /// Takes in such a line.
    pub(super) fn take(&mut self, numbers: &[u64]) -> Option<()> {
        let sum = |sum: u64| {
            if sum == NO_SUM { Some(None) } else { Some(Some(u32::try_from(sum).ok()?)) }
        };
        match *numbers {
            [group, block_bitmap, inode_bitmap, inode_table, block_sum, inode_sum] => {
                let block_sum = sum(block_sum)?;
                let inode_sum = sum(inode_sum)?;
                let one =
                    Descriptor { block_bitmap, inode_bitmap, inode_table, block_sum, inode_sum };
                self.descriptors.insert(group, one);
            }
            [inode, block] => self.note_directory(u32::try_from(inode).ok()?, block),
            _ => return None,
        }
        Some(())
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.descriptors.extend(other.descriptors);
        for (inode, block) in other.directories {
            self.note_directory(inode, block);
        }
    }

    fn note_directory(&mut self, inode: u32, block: u64) {
        let known = self.directories.entry(inode).or_insert(block);
        if *known != block {
            *known = IN_DOUBT;
        }
    }
}

impl Ext4 {
    /// From 1024 bytes: the file system, and the sector of it in which this superblock lies.
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, u64)> {
        let bytes = bytes.get(..1024)?;
        let log_block = u32_le(bytes, 0x18)?;
        if u16_le(bytes, 0x38)? != 0xef53 || log_block > 6 {
            return None;
        }
        let has_sums = u32_le(bytes, 0x64)? & 0x400 != 0;
        if has_sums && update(u32::MAX, &bytes[..0x3fc]) != u32_le(bytes, 0x3fc)? {
            return None;
        }
        let incompatible = u32_le(bytes, 0x60)?;
        let is_64 = incompatible & 0x80 != 0;
        let uuid: [u8; 16] = array_at(bytes, 0x68)?;
        let kept_seed = incompatible & 0x2000 != 0;
        let seed = if kept_seed { u32_le(bytes, 0x270)? } else { update(u32::MAX, &uuid) };
        let high = if is_64 { u64::from(u32_le(bytes, 0x150)?) << 32 } else { 0 };
        let found = Self {
            uuid,
            block_bytes: 1024 << log_block,
            blocks: u64::from(u32_le(bytes, 4)?) | high,
            first_data_block: u32_le(bytes, 0x14)?.into(),
            blocks_per_group: u32_le(bytes, 0x20)?.into(),
            clusters_per_group: u32_le(bytes, 0x24)?.into(),
            inodes_per_group: u32_le(bytes, 0x28)?.into(),
            inodes: u32_le(bytes, 0)?.into(),
            inode_bytes: u16_le(bytes, 0x58)?.into(),
            descriptor_bytes: if is_64 { u16_le(bytes, 0xfe)?.into() } else { 32 },
            seed: has_sums.then_some(seed),
            stride: u16_le(bytes, 0x164)?.into(),
            width: u32_le(bytes, 0x170)?.into(),
        };
        let group = u64::from(u16_le(bytes, 0x5a)?);
        let sane = found.blocks_per_group > 0
            && found.blocks_per_group <= found.block_bytes * 8
            && (1..1 << 48).contains(&found.blocks)
            && found.first_data_block <= 1
            && found.inodes_per_group > 0
            && found.inodes_per_group.is_multiple_of(8)
            && found.clusters_per_group.is_multiple_of(8)
            && found.clusters_per_group <= found.block_bytes * 8
            && found.inodes_per_group <= found.block_bytes * 8
            && (128..=found.block_bytes).contains(&found.inode_bytes)
            && found.inode_bytes.is_power_of_two()
            && (32..=1024).contains(&found.descriptor_bytes)
            && found.descriptor_bytes.is_power_of_two();
        let place = if group == 0 { 2 } else { found.sector(found.group_block(group)) };
        (sane && place < found.sectors()).then_some((found, place))
    }

    /// Its size in sectors.
    pub(super) const fn sectors(&self) -> u64 {
        self.sector(self.blocks)
    }

    /// The length of a block, in sectors.
    pub(super) const fn block_sectors(&self) -> u64 {
        self.block_bytes / SECTOR_BYTES
    }

    const fn sector(&self, block: u64) -> u64 {
        block * (self.block_bytes / SECTOR_BYTES)
    }

    const fn group_block(&self, group: u64) -> u64 {
        self.first_data_block + group * self.blocks_per_group
    }

    /// The chunk, in sectors, and the number of data disks for which it was made.
    pub(super) fn made_for(&self) -> Option<(u64, u64)> {
        let disks = self.width.checked_div(self.stride)?;
        Some((self.sector(self.stride), disks))
    }

    /// Where metadata lie that are there as far as is known.
    pub(super) fn known_places(&self, facts: &Ext4Facts) -> Vec<u64> {
        let groups = self.blocks.div_ceil(self.blocks_per_group);
        let powers = [3_u64, 5, 7].into_iter().flat_map(|base| {
            std::iter::successors(Some(base), move |power| power.checked_mul(base))
                .take_while(move |power| *power < groups)
        });
        let copies = [0, 1].into_iter().chain(powers).map(|group| self.group_block(group));
        let mut tables: Vec<u64> = facts
            .descriptors
            .values()
            .flat_map(|one| [one.block_bitmap, one.inode_bitmap, one.inode_table])
            .collect();
        tables.sort_unstable();
        let every = tables.len().div_ceil(64).max(1);
        let tables = tables.into_iter().step_by(every);
        copies.chain(tables).map(|block| self.sector(block)).collect()
    }

    /// The kind that a block seems to be; facts of others go to `facts`.
    pub(super) fn look(&self, block: &[u8], facts: &mut Ext4Facts) -> Option<Ext4Clue> {
        let seed = self.seed?;
        if is_zero(block) {
            return None;
        }
        if let Some(first) = self.inode_block(seed, block, facts) {
            return Some(Ext4Clue::Inodes { first });
        }
        if let Some(inode) = directory(block) {
            return Some(Ext4Clue::Directory { inode });
        }
        self.note_descriptors(seed, block, facts);
        let sum = |bits: u64| update(seed, &block[..(bits / 8) as usize]);
        Some(Ext4Clue::Sums {
            blocks: sum(self.clusters_per_group),
            inodes: sum(self.inodes_per_group),
        })
    }

    /// The number of the first inode, if this is a block of inodes.
    fn inode_block(&self, seed: u32, block: &[u8], facts: &mut Ext4Facts) -> Option<u32> {
        let mut first = None;
        let in_block = (self.block_bytes / self.inode_bytes) as u32;
        for (slot, inode) in (0..).zip(block.chunks_exact(self.inode_bytes as usize)) {
            let Some(number) = inode_number(seed, inode) else { continue };
            let begins = number.checked_sub(slot)?;
            let fits = begins >= 1
                && (begins - 1).is_multiple_of(in_block)
                && u64::from(number) <= self.inodes;
            if !fits || first.is_some_and(|first| first != begins) {
                return None;
            }
            first = Some(begins);
            if let Some(block) = directory_block(inode) {
                facts.note_directory(number, block);
            }
        }
        first
    }

    /// Takes a block of group descriptors, each of which must be right.
    fn note_descriptors(&self, seed: u32, block: &[u8], facts: &mut Ext4Facts) {
        let in_block = self.block_bytes / self.descriptor_bytes;
        let groups = self.blocks.div_ceil(self.blocks_per_group);
        let Some(first) = self.descriptor(block) else { return };
        let near = first.block_bitmap / self.blocks_per_group / in_block * in_block;
        let fits = |base: u64| {
            let count = in_block.min(groups.checked_sub(base)?);
            let each = block.chunks_exact(self.descriptor_bytes as usize);
            let right = (base..base + count).zip(each).all(|(group, bytes)| {
                u16_le(bytes, 0x1e) == Some(descriptor_sum(seed, group as u32, bytes))
            });
            (count > 0 && right).then_some(base)
        };
        let before = near.checked_sub(in_block);
        let Some(base) = [Some(near), before].into_iter().flatten().find_map(fits) else { return };
        let each = block.chunks_exact(self.descriptor_bytes as usize);
        for (group, bytes) in (base..groups).zip(each) {
            if let Some(one) = self.descriptor(bytes) {
                facts.descriptors.insert(group, one);
            }
        }
    }

    fn descriptor(&self, bytes: &[u8]) -> Option<Descriptor> {
        let long = self.descriptor_bytes >= 64;
        let high = |at| if long { u32_le(bytes, at).map(|n| u64::from(n) << 32) } else { Some(0) };
        let number = |low, above| Some(u64::from(u32_le(bytes, low)?) | high(above)?);
        let sum = |low, above| {
            let above = if long { u16_le(bytes, above)? } else { return None };
            Some(u32::from(u16_le(bytes, low)?) | u32::from(above) << 16)
        };
        let flags = u16_le(bytes, 0x12)?;
        let one = Descriptor {
            block_bitmap: number(0, 0x20)?,
            inode_bitmap: number(4, 0x24)?,
            inode_table: number(8, 0x28)?,
            // Bitmaps that were never written have a sum, and nothing it is of.
            block_sum: if flags & 2 == 0 { sum(0x18, 0x38) } else { None },
            inode_sum: if flags & 1 == 0 { sum(0x1a, 0x3a) } else { None },
        };
        let within = |block: u64| block > 0 && block < self.blocks;
        [one.block_bitmap, one.inode_bitmap, one.inode_table].into_iter().all(within).then_some(one)
    }

    /// The block in which the inodes of a group begin, by its descriptor.
    pub(super) fn inode_table(&self, descriptor: &[u8]) -> Option<u64> {
        let own = descriptor.get(..self.descriptor_bytes as usize)?;
        self.descriptor(own).map(|one| one.inode_table)
    }

    /// The sectors in which blocks lie that were found, as far as the facts tell.
    pub(super) fn places(&self, clues: &[Ext4Clue], facts: &Ext4Facts) -> Vec<Option<u64>> {
        let mut by_sum: HashMap<(bool, u32), Option<u64>> = HashMap::new();
        for one in facts.descriptors.values() {
            let bitmaps =
                [(true, one.block_sum, one.block_bitmap), (false, one.inode_sum, one.inode_bitmap)];
            for (of_blocks, sum, block) in bitmaps {
                let Some(sum) = sum else { continue };
                // Several that are alike tell nothing.
                by_sum.entry((of_blocks, sum)).and_modify(|one| *one = None).or_insert(Some(block));
            }
        }
        let place = |clue: &Ext4Clue| match *clue {
            Ext4Clue::Inodes { first } => {
                let index = u64::from(first) - 1;
                let table = facts.descriptors.get(&(index / self.inodes_per_group))?.inode_table;
                let within = index % self.inodes_per_group * self.inode_bytes / self.block_bytes;
                Some(table + within)
            }
            Ext4Clue::Directory { inode } => facts.directories.get(&inode).copied(),
            Ext4Clue::Sums { blocks, inodes } => {
                let of = |key| by_sum.get(&key).copied().flatten();
                of((true, blocks)).or_else(|| of((false, inodes)))
            }
        };
        let sector = |clue| place(clue).filter(|b| *b < self.blocks).map(|b| self.sector(b));
        clues.iter().map(sector).collect()
    }
}

/// The number of an inode, by its checksum; `None` for what cannot be one in use.
fn inode_number(seed: u32, inode: &[u8]) -> Option<u32> {
    let mode = u16_le(inode, 0)?;
    let extra = u16_le(inode, 0x80)?;
    let is_file = matches!(mode >> 12, 0x1 | 0x2 | 0x4 | 0x6 | 0x8 | 0xa | 0xc);
    if !is_file || !(4..=1024).contains(&extra) || u16_le(inode, 0x1a)? == 0 {
        return None;
    }
    let sum = u32::from(u16_le(inode, 0x7c)?) | u32::from(u16_le(inode, 0x82)?) << 16;
    let mut zeroed = inode.to_vec();
    zeroed[0x7c..0x7e].fill(0);
    zeroed[0x82..0x84].fill(0);
    let generation = inode.get(0x64..0x68)?;
    Some(between(seed, undo(undo(sum, &zeroed), generation)))
}

/// The first block of a directory, by its inode, where one extent says so.
fn directory_block(inode: &[u8]) -> Option<u64> {
    let is_directory = u16_le(inode, 0)? >> 12 == 4;
    let by_extents = u32_le(inode, 0x20)? & 0x8_0000 != 0;
    let leaf = u16_le(inode, 0x28)? == 0xf30a && u16_le(inode, 0x2e)? == 0;
    let begins = u16_le(inode, 0x2a)? > 0 && u32_le(inode, 0x34)? == 0;
    if !(is_directory && by_extents && leaf && begins) {
        return None;
    }
    Some(u64::from(u32_le(inode, 0x3c)?) | u64::from(u16_le(inode, 0x3a)?) << 32)
}

/// The inode of the directory of which this is the first block.
fn directory(block: &[u8]) -> Option<u32> {
    let inode = u32_le(block, 0)?;
    let dot = block.get(4..10)? == [12, 0, 1, 2, b'.', 0] && block.get(10..12)? == [0, 0];
    let dots = block.get(18..20)? == [2, 2] && block.get(20..22)? == *b"..";
    (inode > 0 && dot && dots).then_some(inode)
}

fn descriptor_sum(seed: u32, group: u32, bytes: &[u8]) -> u16 {
    let state = update(update(seed, &group.to_le_bytes()), &bytes[..0x1e]);
    update(update(state, &[0; 2]), &bytes[0x20..]) as u16
}
