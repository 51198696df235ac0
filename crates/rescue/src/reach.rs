//! How far the things on a device reach: what would be cut off if the device became smaller, and
//! how that is prevented.

use std::fmt;

use braid_array::SECTOR_BYTES;
use braid_array::assemble::Candidate;

use crate::bytes::{array_at, u16_le, u32_le, u64_le};
use crate::image::{Image, read, read_patchy};
use crate::kind::{self, Finding, Kind};
use crate::lvm::PhysicalVolume;
use crate::partitions::{self, Remark, TableKind};

/// Superblocks of file systems lie before this.
const HEAD_BYTES: usize = 128 << 10;

/// A thing on a device, and where it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The thing.
    pub thing: Thing,
    /// The byte behind its last one; `None` where nothing tells.
    pub end_bytes: Option<u64>,
}

/// A thing that is not to be cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thing {
    /// A file system, swap space, or a layer.
    Known(Kind),
    /// A partition, by its number.
    Partition(u32),
    /// The copy of a GPT behind the partitions.
    BackupTable,
    /// Data of an array of md, of this name.
    Member(String),
    /// Something in sectors that cannot be read.
    Unreadable,
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(kind) => f.write_str(kind.name()),
            Self::Partition(number) => write!(f, "partition {number}"),
            Self::BackupTable => f.write_str("the backup of the partition table"),
            Self::Member(array) => write!(f, "a member of the array {array}"),
            Self::Unreadable => f.write_str("something that cannot be read"),
        }
    }
}

impl Thing {
    /// Returns what makes it end before this byte: commands, with DEVICE and the like for users to
    /// fill in.
    #[must_use]
    pub fn way_to_shrink(&self, end_bytes: u64) -> String {
        let kib = end_bytes / 1024;
        match self {
            Self::Known(Kind::Ext2 | Kind::Ext3 | Kind::Ext4) => {
                format!("unmount it, then e2fsck -f DEVICE and resize2fs DEVICE {kib}K")
            }
            Self::Known(Kind::Btrfs) => format!("btrfs filesystem resize {kib}K MOUNTPOINT"),
            Self::Known(Kind::Ntfs) => format!("ntfsresize --size {end_bytes} DEVICE"),
            Self::Known(Kind::Swap) => format!("swapoff DEVICE, then mkswap DEVICE {kib}"),
            Self::Known(Kind::Lvm2) => {
                format!("pvresize --setphysicalvolumesize {kib}K DEVICE")
            }
            Self::Known(Kind::Xfs) => {
                "XFS does not become smaller: copy its files elsewhere, and make it anew".to_owned()
            }
            Self::Known(_) => "make it smaller by its own tools, or copy it elsewhere".to_owned(),
            Self::Partition(number) => {
                format!("make partition {number} smaller, its file system first")
            }
            Self::BackupTable => "sfdisk --relocate gpt-bak-mini DEVICE".to_owned(),
            Self::Member(_) => "take it out of that array first".to_owned(),
            Self::Unreadable => "see what lies there".to_owned(),
        }
    }
}

/// Looks at the beginning and the end of a device, as [`kind::look`] does, and for a superblock of
/// md.
#[must_use]
pub fn look(image: &mut dyn Image) -> Vec<Reach> {
    let found = kind::look(image);
    let mut reaches = Vec::new();
    if !found.unreadable.is_empty() {
        reaches.push(Reach { thing: Thing::Unreadable, end_bytes: None });
    }
    reaches.extend(member(image));
    for finding in found.findings {
        match finding.kind {
            Kind::Zeroes => {}
            Kind::Gpt | Kind::Mbr => reaches.extend(partitions(image)),
            Kind::Lvm2 => {
                let volume = PhysicalVolume::read(image).ok();
                let end_bytes = volume.map(|volume| volume.size_bytes);
                reaches.push(Reach { thing: Thing::Known(Kind::Lvm2), end_bytes });
            }
            kind => {
                let head = read_patchy(image, 0, HEAD_BYTES).bytes;
                let end_bytes = end_of(&finding, &head);
                reaches.push(Reach { thing: Thing::Known(kind), end_bytes });
            }
        }
    }
    reaches
}

/// The data of an array of which the device is a member. A superblock at the end ends there.
fn member(image: &mut dyn Image) -> Option<Reach> {
    let size_bytes = image.size_bytes();
    let read = |sector: u64, bytes: u32| {
        read(image, sector * SECTOR_BYTES, bytes as usize).map_err(|why| why.to_string())
    };
    let candidate = Candidate::read(String::new(), size_bytes / SECTOR_BYTES, read);
    let superblock = candidate.superblock.ok()?;
    let data = superblock.data_offset.saturating_add(superblock.data_size);
    let end_bytes = if superblock.version.is_behind_data() {
        size_bytes
    } else {
        data.saturating_mul(SECTOR_BYTES)
    };
    Some(Reach { thing: Thing::Member(superblock.title()), end_bytes: Some(end_bytes) })
}

/// The partitions, and the copy of the table.
fn partitions(image: &mut dyn Image) -> Vec<Reach> {
    let Ok(table) = partitions::read(image) else { return Vec::new() };
    let reach = |partition: &partitions::Partition| Reach {
        thing: Thing::Partition(partition.number),
        end_bytes: Some(partition.start_bytes.saturating_add(partition.size_bytes)),
    };
    let mut reaches: Vec<Reach> = table.partitions.iter().map(reach).collect();
    if table.kind == TableKind::Gpt {
        let elsewhere = table.remarks.iter().find_map(|remark| match remark {
            Remark::BackupElsewhere { at_bytes } => {
                Some(at_bytes.saturating_add(table.sector_bytes))
            }
            _ => None,
        });
        let end_bytes = Some(elsewhere.unwrap_or(image.size_bytes()));
        reaches.push(Reach { thing: Thing::BackupTable, end_bytes });
    }
    reaches
}

/// Where a file system or swap space ends, by its own words: see the sources in
/// `kind/file_systems.rs`.
fn end_of(finding: &Finding, head: &[u8]) -> Option<u64> {
    let at = usize::try_from(finding.at_bytes).ok()?;
    let number = |at| u32_le(head, at).map(u64::from);
    let short = |at| u16_le(head, at).map(u64::from);
    let (blocks, block_bytes) = match finding.kind {
        Kind::Ext2 | Kind::Ext3 | Kind::Ext4 => {
            let at = at - 0x38;
            let is_64bit = number(at + 0x60)? & 0x80 != 0;
            let high = if is_64bit { number(at + 0x150)? } else { 0 };
            (number(at + 4)? | high << 32, 1024_u64.checked_shl(u32_le(head, at + 0x18)?)?)
        }
        Kind::Xfs => {
            let block_bytes = u32::from_be_bytes(array_at(head, 4)?);
            (u64::from_be_bytes(array_at(head, 8)?), block_bytes.into())
        }
        // Of the device that has this superblock.
        Kind::Btrfs => (u64_le(head, at - 0x40 + 0xd1)?, 1),
        Kind::Swap => (number(1028)?.checked_add(1)?, at as u64 + 10),
        // The last sector is the copy of the first.
        Kind::Ntfs => (u64_le(head, 0x28)?.checked_add(1)?, short(11)?),
        Kind::ExFat => (u64_le(head, 72)?, 1_u64.checked_shl((*head.get(108)?).into())?),
        Kind::Fat => {
            let few = short(19)?;
            (if few > 0 { few } else { number(32)? }, short(11)?)
        }
        Kind::F2fs => (u64_le(head, at + 36)?, 1_u64.checked_shl(u32_le(head, at + 16)?)?),
        Kind::Squashfs => (u64_le(head, 40)?, 1),
        Kind::Iso9660 => (number(at - 1 + 80)?, short(at - 1 + 128)?),
        _ => return None,
    };
    blocks.checked_mul(block_bytes).filter(|end| *end > 0)
}
