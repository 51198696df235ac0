//! btrfs on one device: a tree block has its logical address and the UUID of its file system, and
//! chunk items say where logical addresses lie. By the kernel's `btrfs_tree.h` and the on-disk
//! format of its documentation.
//!
//! Checksums have to be CRC-32C, which they are unless another kind was asked for; chunks have to
//! be single or DUP, and on this device.

use std::collections::BTreeMap;

use braid_array::SECTOR_BYTES;

use super::places::Places;
use crate::bytes::{array_at, lies_at, u16_le, u32_le, u64_le};

/// Where superblocks lie, in bytes, and their length.
const SUPERBLOCKS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
const SUPERBLOCK_BYTES: usize = 4096;
const MAGIC: &[u8] = b"_BHRfS_M";
/// The header of a tree block, and of an item in a leaf.
const HEADER_BYTES: usize = 0x65;
const ITEM_BYTES: usize = 25;
/// An item that points to a block.
const POINTER_BYTES: usize = 33;
/// The key of an item: object, type, offset.
const KEY_BYTES: usize = 17;
const CHUNK_TREE: u64 = 3;
const CHUNK_ITEM: u8 = 228;
/// Types of chunks: which hold trees, and how they are laid out.
const HOLDS_TREES: u64 = 0x2 | 0x4;
const PROFILES: u64 = 0x7f8;
const DUP: u64 = 0x20;
/// No address is beyond that.
const MOST_LOGICAL: u64 = 1 << 58;
/// More chunks than that are not kept.
const MOST_CHUNKS: usize = 1 << 16;
/// Places that are named for further reads.
const MOST_KNOWN: usize = 128;

/// The facts of the file system in a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Btrfs {
    /// The UUID that tree blocks carry.
    pub(super) uuid: [u8; 16],
    sector_bytes: u64,
    pub(super) node_bytes: u64,
    /// This device, among those of the file system.
    device: u64,
    bytes: u64,
}

/// Where trees lie: chunks by their logical address.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks(BTreeMap<u64, Chunk>);

/// Offsets on the device, in bytes; `second` is that of the copy, or `first` where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chunk {
    bytes: u64,
    first: u64,
    second: u64,
}

impl Chunks {
    /// As lines of four numbers.
    pub(super) fn to_lines(&self) -> Vec<String> {
        let line =
            |(at, one): (&u64, &Chunk)| format!("{at} {} {} {}", one.bytes, one.first, one.second);
        self.0.iter().map(line).collect()
    }

    /// Takes in such a line.
    pub(super) fn take(&mut self, [logical, bytes, first, second]: [u64; 4]) {
        self.note(logical, Chunk { bytes, first, second });
    }

    pub(super) fn merge(&mut self, other: Self) {
        for (logical, chunk) in other.0 {
            self.note(logical, chunk);
        }
    }

    /// Facts that are told twice differently are not believed.
    fn note(&mut self, logical: u64, chunk: Chunk) {
        if self.0.len() >= MOST_CHUNKS || logical > MOST_LOGICAL {
            return;
        }
        let known = self.0.entry(logical).or_insert(chunk);
        if *known != chunk {
            known.bytes = 0;
        }
    }
}

impl Btrfs {
    /// From a superblock whose checksum fits: the file system, and the sector of it in which this
    /// superblock lies.
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, u64)> {
        if !lies_at(bytes, 0x40, MAGIC) {
            return None;
        }
        let bytes = bytes.get(..SUPERBLOCK_BYTES)?;
        let is_crc = u16_le(bytes, 0xc4)? == 0;
        if !is_crc || crc32c::crc32c(&bytes[0x20..]) != u32_le(bytes, 0)? {
            return None;
        }
        let own = u64_le(bytes, 0x30).filter(|own| SUPERBLOCKS.contains(own))?;
        let has_metadata_uuid = u64_le(bytes, 0xbc)? & 0x400 != 0;
        let found = Self {
            uuid: array_at(bytes, if has_metadata_uuid { 0x23b } else { 0x20 })?,
            sector_bytes: u32_le(bytes, 0x90)?.into(),
            node_bytes: u32_le(bytes, 0x94)?.into(),
            device: u64_le(bytes, 0xc9)?,
            bytes: u64_le(bytes, 0xd1)?,
        };
        let sizes = SECTOR_BYTES..=65536;
        let sane = sizes.contains(&found.sector_bytes)
            && sizes.contains(&found.node_bytes)
            && found.sector_bytes.is_power_of_two()
            && found.node_bytes.is_power_of_two()
            && (own + 4096..MOST_LOGICAL).contains(&found.bytes);
        sane.then_some((found, own / SECTOR_BYTES))
    }

    /// Its size in sectors.
    pub(super) const fn sectors(&self) -> u64 {
        self.bytes / SECTOR_BYTES
    }

    /// The chunks that a superblock names: those of the tree that names the rest.
    pub(super) fn note_system_chunks(&self, superblock: &[u8], chunks: &mut Chunks) {
        let size = u32_le(superblock, 0xa0).unwrap_or(0).min(0x800) as usize;
        let mut rest = superblock.get(0x32b..0x32b + size).unwrap_or_default();
        while let (Some(logical), Some(item)) = (u64_le(rest, 9), rest.get(KEY_BYTES..)) {
            let Some(stripes) = u16_le(item, 44) else { return };
            if let Some(chunk) = self.chunk(item) {
                chunks.note(logical, chunk);
            }
            rest = item.get(48 + usize::from(stripes) * 32..).unwrap_or_default();
        }
    }

    /// The logical address of a tree block. Chunks that leaves of the tree of chunks tell go to
    /// `chunks`.
    pub(super) fn look(&self, bytes: &[u8], chunks: &mut Chunks) -> Option<u64> {
        let logical = self.logical(bytes)?;
        if u64_le(bytes, 0x58)? == CHUNK_TREE && *bytes.get(0x64)? == 0 && self.is_whole(bytes) {
            let node = &bytes[..self.node_bytes as usize];
            for item in node[HEADER_BYTES..].chunks_exact(ITEM_BYTES).take(count(node)) {
                self.note_item(node, item, chunks);
            }
        }
        Some(logical)
    }

    fn note_item(&self, node: &[u8], item: &[u8], chunks: &mut Chunks) -> Option<()> {
        if item[8] == CHUNK_ITEM {
            let at = HEADER_BYTES.checked_add(u32_le(item, KEY_BYTES)? as usize)?;
            chunks.note(u64_le(item, 9)?, self.chunk(node.get(at..)?)?);
        }
        Some(())
    }

    fn logical(&self, bytes: &[u8]) -> Option<u64> {
        let own = array_at(bytes, 0x20)? == self.uuid && !lies_at(bytes, 0x40, MAGIC);
        let logical = u64_le(bytes, 0x30)?;
        let is_block = own
            && (1..MOST_LOGICAL).contains(&logical)
            && logical.is_multiple_of(self.sector_bytes)
            && u64_le(bytes, 0x58)? != 0
            && *bytes.get(0x64)? <= 8
            && count(bytes) <= self.node_bytes as usize / ITEM_BYTES;
        is_block.then_some(logical)
    }

    /// Returns whether all of a tree block is there, and its checksum fits. The sum of three blocks
    /// has a checksum that fits, too; what its items say of each other fits in a block alone.
    pub(super) fn is_whole(&self, bytes: &[u8]) -> bool {
        let Some(node) = bytes.get(..self.node_bytes as usize) else { return false };
        let sum_fits = u32_le(node, 0) == Some(crc32c::crc32c(&node[0x20..]));
        sum_fits && if node[0x64] == 0 { is_leaf(node) } else { self.is_inner(node) }
    }

    /// Returns whether each item points to a block that is not younger than this one.
    fn is_inner(&self, node: &[u8]) -> bool {
        let own = u64_le(node, 0x50);
        let mut pointers = node[HEADER_BYTES..].chunks_exact(POINTER_BYTES).take(count(node));
        pointers.all(|pointer| {
            let to = u64_le(pointer, KEY_BYTES).unwrap_or(0);
            to > 0 && to.is_multiple_of(self.sector_bytes) && u64_le(pointer, KEY_BYTES + 8) <= own
        })
    }

    /// A chunk item, if trees lie there and it can be told where.
    fn chunk(&self, item: &[u8]) -> Option<Chunk> {
        let bytes = u64_le(item, 0)?;
        let kind = u64_le(item, 24)?;
        let stripes = match kind & PROFILES {
            0 => 1,
            DUP => 2,
            _ => return None,
        };
        let offset = |index: usize| {
            let is_here = u64_le(item, 48 + index * 32)? == self.device;
            let at = u64_le(item, 56 + index * 32)?;
            is_here.then_some(at)
        };
        let first = offset(0)?;
        let second = offset(stripes - 1)?;
        let fits = |at: u64| at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        let sane = kind & HOLDS_TREES != 0
            && usize::from(u16_le(item, 44)?) == stripes
            && bytes > 0
            && [first, second].into_iter().all(|at| fits(at) && at.is_multiple_of(SECTOR_BYTES));
        sane.then_some(Chunk { bytes, first, second })
    }

    /// The sectors in which a tree block lies, if a chunk says so.
    pub(super) fn places(&self, logical: u64, chunks: &Chunks) -> Option<Places> {
        let (begin, chunk) = chunks.0.range(..=logical).next_back()?;
        let within = logical - begin;
        let place = |offset: u64| (offset + within) / SECTOR_BYTES;
        let there = within < chunk.bytes && chunk.first.max(chunk.second) + within < self.bytes;
        let copy = (chunk.first != chunk.second).then(|| place(chunk.second));
        there.then(|| Places { first: place(chunk.first), copy })
    }

    /// Where a superblock or tree blocks lie as far as is known.
    pub(super) fn known_places(&self, chunks: &Chunks) -> Vec<u64> {
        let copies = SUPERBLOCKS.iter().filter(|at| **at + 4096 <= self.bytes);
        let each = (MOST_KNOWN / chunks.0.len().max(1)).max(1);
        let every = chunks.0.len().div_ceil(MOST_KNOWN).max(1);
        // They fill from their beginnings.
        let block = |index: usize| (1_u64 << index.min(40)) - 1;
        let in_chunk = |chunk: &Chunk| {
            let Chunk { bytes, first, second } = *chunk;
            let within = (0..each.min(40)).map(move |index| block(index) * self.node_bytes);
            let within = within.take_while(move |at| *at < bytes);
            within.flat_map(move |at| [first + at, second + at])
        };
        let blocks = chunks.0.values().step_by(every).flat_map(in_chunk);
        let places = copies.copied().chain(blocks).filter(|at| *at < self.bytes);
        places.map(|at| at / SECTOR_BYTES).collect()
    }
}

/// Returns whether the data of items lie one before the other, up to the end.
fn is_leaf(node: &[u8]) -> bool {
    let mut end = (node.len() - HEADER_BYTES) as u64;
    node[HEADER_BYTES..].chunks_exact(ITEM_BYTES).take(count(node)).all(|item| {
        let number = |at: usize| u32_le(item, at).map_or(0, u64::from);
        let fits = number(KEY_BYTES) + number(KEY_BYTES + 4) == end;
        end = number(KEY_BYTES);
        fits
    })
}

/// Items in a tree block, as it says.
fn count(block: &[u8]) -> usize {
    u32_le(block, 0x60).map_or(usize::MAX, |count| count as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const ONE: Btrfs =
        Btrfs { uuid: [7; 16], sector_bytes: 4096, node_bytes: 4096, device: 1, bytes: 64 * MIB };

    fn item(kind: u64, devices: &[u64], offsets: &[u64]) -> Vec<u8> {
        let mut item = vec![0; 48];
        item[..8].copy_from_slice(&(4 * MIB).to_le_bytes());
        item[24..32].copy_from_slice(&kind.to_le_bytes());
        item[44..46].copy_from_slice(&(devices.len() as u16).to_le_bytes());
        for (device, offset) in devices.iter().zip(offsets) {
            item.extend([device.to_le_bytes(), offset.to_le_bytes(), [0; 8], [0; 8]].concat());
        }
        item
    }

    #[test]
    fn chunks_that_lie_elsewhere_are_not_used() {
        let chunk = |kind, devices: &[u64], offsets: &[u64]| {
            ONE.chunk(&item(kind, devices, offsets)).map(|chunk| (chunk.first, chunk.second))
        };
        assert_eq!(chunk(4, &[1], &[MIB]), Some((MIB, MIB)));
        assert_eq!(chunk(0x22, &[1, 1], &[MIB, 8 * MIB]), Some((MIB, 8 * MIB)));
        // Data, raid1 of two devices, another device, beyond the end, cut off.
        assert_eq!(chunk(1, &[1], &[MIB]), None);
        assert_eq!(chunk(0x14, &[1, 2], &[MIB, MIB]), None);
        assert_eq!(chunk(4, &[2], &[MIB]), None);
        assert_eq!(chunk(4, &[1], &[61 * MIB]), None);
        assert_eq!(chunk(4, &[1], &[u64::MAX]), None);
        assert_eq!(ONE.chunk(&item(4, &[1], &[MIB])[..60]), None);
    }

    #[test]
    fn a_leaf_of_the_tree_of_chunks_is_believed_by_its_checksum() {
        let item = item(0x24, &[1, 1], &[MIB, 8 * MIB]);
        let mut leaf = vec![0; 4096];
        leaf[0x20..0x30].copy_from_slice(&ONE.uuid);
        leaf[0x30..0x38].copy_from_slice(&(20 * MIB).to_le_bytes());
        leaf[0x58] = CHUNK_TREE as u8;
        leaf[0x60] = 1;
        leaf[HEADER_BYTES + 8] = CHUNK_ITEM;
        leaf[HEADER_BYTES + 9..][..8].copy_from_slice(&(32 * MIB).to_le_bytes());
        let at = 4096 - HEADER_BYTES - item.len();
        leaf[HEADER_BYTES + 17..][..4].copy_from_slice(&(at as u32).to_le_bytes());
        leaf[HEADER_BYTES + 21..][..4].copy_from_slice(&(item.len() as u32).to_le_bytes());
        leaf[HEADER_BYTES + at..].copy_from_slice(&item);
        let mut chunks = Chunks::default();
        assert_eq!(ONE.look(&leaf, &mut chunks), Some(20 * MIB));
        assert!(chunks.0.is_empty(), "its checksum does not fit");
        let sum = crc32c::crc32c(&leaf[0x20..]);
        leaf[..4].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(ONE.look(&leaf, &mut chunks), Some(20 * MIB));
        let places = ONE.places(33 * MIB, &chunks).unwrap();
        assert_eq!((places.first, places.copy), (4096, Some(9 * MIB / 512)));
        assert!(ONE.places(36 * MIB, &chunks).is_none());
        assert!(ONE.places(31 * MIB, &chunks).is_none());
        // Told differently once more, it is not believed.
        chunks.take([32 * MIB, 4 * MIB, 2 * MIB, 8 * MIB]);
        assert!(ONE.places(33 * MIB, &chunks).is_none());
        for end in [0, 0x20, 0x38, 0x64, 0x65, 4095] {
            ONE.look(&leaf[..end], &mut chunks);
        }
    }
}
