//! An ext4 read by a hypothesis: do directories lie where their inodes say, and do files end
//! there? So also one without checksums tells order and chunk, where most blocks are of files.

use std::collections::BTreeSet;

use braid_array::geometry::{Geometry, Strip};
use braid_array::{Role, SECTOR_BYTES};

use super::ext4::Ext4;
use super::marks::{Form, Structure};
use super::sums::Members;
use super::votes::Hypothesis;
use crate::bytes::{is_zero, u16_le, u32_le};

/// Inodes that are looked at, in so many blocks of their tables.
const MOST_BLOCKS: u64 = 96;
const MOST_INODES: usize = 240;
const ROOT: u64 = 2;
/// What counts against a hypothesis under which there is no root directory.
const NO_ROOT: usize = 4;

/// What was found where it has to be, by the numbers of inodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Walked {
    pub(super) right: BTreeSet<u64>,
    wrong: usize,
}

impl Walked {
    pub(super) fn met(&self) -> usize {
        self.right.len()
    }

    pub(super) fn of(&self) -> usize {
        self.right.len() + self.wrong
    }
}

/// An array as a hypothesis has it.
struct Array<'a, 'b, 'c> {
    members: &'a mut Members<'b, 'c>,
    one: &'a Hypothesis,
    geometry: Geometry,
}

/// Walks through the structure of a hypothesis, if that can be walked through.
pub(super) fn walk(one: &Hypothesis, members: &mut Members<'_, '_>, known: &[Structure]) -> Walked {
    let mut found = Walked::default();
    let Form::Ext4(ext4) = known[one.structure].0 else { return found };
    let Some(mut array) = Array::of(one, members) else { return found };
    if !array.is_right(&ext4, ROOT) {
        return Walked { wrong: NO_ROOT, ..found };
    }
    found.right.insert(ROOT);
    array.look_at_tables(&ext4, &mut found);
    found
}

/// How many of these inodes prove to be where they have to be, by this hypothesis.
pub(super) fn proven(
    one: &Hypothesis,
    inodes: &BTreeSet<u64>,
    members: &mut Members<'_, '_>,
    known: &[Structure],
) -> usize {
    let Form::Ext4(ext4) = known[one.structure].0 else { return 0 };
    let Some(mut array) = Array::of(one, members) else { return 0 };
    if !one.walked.right.contains(&ROOT) {
        return 0;
    }
    inodes.iter().filter(|number| array.is_right(&ext4, **number)).count()
}

impl<'a, 'b, 'c> Array<'a, 'b, 'c> {
    fn of(one: &'a Hypothesis, members: &'a mut Members<'b, 'c>) -> Option<Self> {
        let geometry = one.shape.geometry(one.member_sectors(&members.sizes()))?;
        Some(Self { members, one, geometry })
    }
}

impl Array<'_, '_, '_> {
    /// Does this inode prove to be where it has to be?
    fn is_right(&mut self, ext4: &Ext4, number: u64) -> bool {
        let inode = self.inode(ext4, number);
        inode.is_some_and(|inode| self.proves(ext4, number, &inode) == Some(true))
    }

    /// Looks at inodes all over the tables.
    fn look_at_tables(&mut self, ext4: &Ext4, found: &mut Walked) {
        let in_block = ext4.block_bytes / ext4.inode_bytes;
        let blocks = ext4.inodes / in_block;
        // Tables fill from their beginnings.
        let mut block = 0;
        while block < blocks && found.of() < MOST_INODES {
            let first = block * in_block + 1;
            let mut any = false;
            for number in first..first + in_block {
                let Some(inode) = self.inode(ext4, number) else { continue };
                any |= !is_zero(&inode);
                match self.proves(ext4, number, &inode) {
                    Some(true) => _ = found.right.insert(number),
                    Some(false) => found.wrong += 1,
                    None => {}
                }
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
    fn inode(&mut self, ext4: &Ext4, number: u64) -> Option<Vec<u8>> {
        let group = (number - 1) / ext4.inodes_per_group;
        let at = group * ext4.descriptor_bytes;
        let block = ext4.first_data_block + 1 + at / ext4.block_bytes;
        let descriptors = self.block(ext4, block)?;
        let own = descriptors.get((at % ext4.block_bytes) as usize..)?;
        let table = ext4.inode_table(own)?;
        let at = (number - 1) % ext4.inodes_per_group * ext4.inode_bytes;
        let block = self.block(ext4, table + at / ext4.block_bytes)?;
        let at = (at % ext4.block_bytes) as usize;
        block.get(at..at + ext4.inode_bytes as usize).map(<[u8]>::to_vec)
    }

    /// Is the directory or the end of the file where its inode says? `None` where that says
    /// nothing.
    fn proves(&mut self, ext4: &Ext4, number: u64, inode: &[u8]) -> Option<bool> {
        let mode = u16_le(inode, 0)? >> 12;
        let size = u64::from(u32_le(inode, 4)?);
        if u16_le(inode, 0x1a)? == 0 || number != ROOT && number < 11 {
            return None;
        }
        match mode {
            4 => {
                let block = self.block(ext4, block_of(inode, 0)?)?;
                let is_it = u32_le(&block, 0).map(u64::from) == Some(number);
                Some(is_it && block.get(6..9) == Some(&[1, 2, b'.']))
            }
            8 if !size.is_multiple_of(ext4.block_bytes) => {
                let last = block_of(inode, size / ext4.block_bytes)?;
                let block = self.block(ext4, last)?;
                let (text, rest) = block.split_at((size % ext4.block_bytes) as usize);
                Some(is_zero(rest) && !is_zero(text))
            }
            _ => None,
        }
    }

    fn block(&mut self, ext4: &Ext4, block: u64) -> Option<Vec<u8>> {
        if block >= ext4.blocks {
            return None;
        }
        let unit = ext4.block_sectors();
        self.read(self.one.origin + block * unit, unit)
    }

    /// So many sectors of the array.
    fn read(&mut self, sector: u64, sectors: u64) -> Option<Vec<u8>> {
        let chunk = u64::from(self.geometry.chunk_sectors().max(8));
        let mut bytes = Vec::new();
        let mut at = sector;
        while at < sector + sectors {
            let count = (sector + sectors - at).min(chunk - at % chunk);
            bytes.extend(self.piece(at, count)?);
            at += count;
        }
        Some(bytes)
    }

    /// A part of a chunk: of the member that has it, or of the others by the sum of their row.
    fn piece(&mut self, sector: u64, sectors: u64) -> Option<Vec<u8>> {
        if sector >= self.geometry.array_sectors() {
            return None;
        }
        let length = (sectors * SECTOR_BYTES) as usize;
        for copy in 0..self.geometry.copies() {
            let strip = self.geometry.copy(sector, copy);
            if self.one.roles.get(strip.role.index())?.is_some() {
                return self.strip(strip, length);
            }
        }
        if self.one.shape.level.parity_disks() == 0 {
            return None;
        }
        let strip = self.geometry.copy(sector, 0);
        let stripe = strip.sector / u64::from(self.geometry.chunk_sectors());
        let (_, q) = self.geometry.parity_roles(stripe);
        let mut strips = Vec::new();
        for role in (0..self.geometry.raid_disks() as u16).map(Role) {
            if role != strip.role && Some(role) != q {
                strips.push(self.strip(Strip { role, sector: strip.sector }, length)?);
            }
        }
        let strips: Vec<&[u8]> = strips.iter().map(Vec::as_slice).collect();
        let mut sum = vec![0; length];
        braid_parity::xor(&mut sum, &strips);
        Some(sum)
    }

    fn strip(&mut self, strip: Strip, length: usize) -> Option<Vec<u8>> {
        let place = (*self.one.roles.get(strip.role.index())?)?;
        self.members.bytes(place.member, place.data_offset + strip.sector, length)
    }
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
