//! Content that a device already holds: `create` does not overwrite it unless told to.
//!
//! The magic numbers are those that `wipefs` and `file` know the formats by.

use std::io;

use braid_array::SECTOR_BYTES;

use super::MemberFile;

/// Content found on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Name of the content, for people.
    pub what: &'static str,
    /// Where its mark lies, in bytes.
    pub offset: u64,
}

/// A format that is known by fixed bytes at a fixed place.
struct Magic {
    what: &'static str,
    offset: u64,
    bytes: &'static [u8],
}

const fn magic(what: &'static str, offset: u64, bytes: &'static [u8]) -> Magic {
    Magic { what, offset, bytes }
}

const MD_MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();

/// Signatures, in the order of the search. File systems whose first sector ends like a partition
/// table come before that.
const MAGICS: &[Magic] = &[
    magic("an md superblock (1.2)", 4096, &MD_MAGIC),
    magic("an md superblock (1.1)", 0, &MD_MAGIC),
    magic("an xfs file system", 0, b"XFSB"),
    magic("a btrfs file system", 0x10040, b"_BHRfS_M"),
    magic("swap space", 4086, b"SWAPSPACE2"),
    magic("swap space", 4086, b"SWAP-SPACE"),
    magic("a hibernation image", 4086, b"S1SUSPEND"),
    magic("a hibernation image", 4086, b"S2SUSPEND"),
    magic("swap space", 65526, b"SWAPSPACE2"),
    magic("an LVM physical volume", 512, b"LABELONE"),
    magic("an LVM physical volume", 0, b"LABELONE"),
    magic("an LVM physical volume", 1024, b"LABELONE"),
    magic("an LVM physical volume", 1536, b"LABELONE"),
    magic("a LUKS volume", 0, b"LUKS\xba\xbe"),
    magic("a LUKS volume", 0x4000, b"SKUL\xba\xbe"),
    magic("a BitLocker volume", 3, b"-FVE-FS-"),
    magic("an ntfs file system", 3, b"NTFS    "),
    magic("an exfat file system", 3, b"EXFAT   "),
    magic("a vfat file system", 82, b"FAT32   "),
    magic("a vfat file system", 54, b"FAT16   "),
    magic("a vfat file system", 54, b"FAT12   "),
    magic("an iso9660 file system", 32769, b"CD001"),
    magic("a udf file system", 32769, b"BEA01"),
    magic("a squashfs file system", 0, b"hsqs"),
    magic("an erofs file system", 1024, &0xe0f5_e1e2_u32.to_le_bytes()),
    magic("an f2fs file system", 1024, &0xf2f5_2010_u32.to_le_bytes()),
    magic("a bcachefs file system", 4120, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf"),
    magic("a bcache device", 4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f"),
    magic("a reiserfs file system", 65588, b"ReIsEr"),
    magic("a jfs file system", 32768, b"JFS1"),
    magic("a gfs2 file system", 65536, b"\x01\x16\x19\x70\x00\x00\x00\x01"),
    magic("an ocfs2 file system", 8192, b"OCFSV2"),
    magic("an apfs container", 32, b"NXSB"),
    magic("a dm-integrity volume", 0, b"integrt\0"),
    magic("a dm-verity volume", 0, b"verity\0\0"),
    magic("a stratis pool member", 516, b"!Stra0tis\x86\xff\x02^\x41rh"),
    magic("a ceph bluestore", 0, b"bluestore block device"),
    magic("a qcow2 image", 0, b"QFI\xfb"),
    magic("a vhdx image", 0, b"vhdxfile"),
    magic("a GPT partition table", 512, b"EFI PART"),
    magic("a GPT partition table", 4096, b"EFI PART"),
];

/// Bytes from the start in which all fixed marks and zfs's lie.
const HEAD_BYTES: u64 = 256 * 1024;

/// The first known content found on the device, if there is any.
///
/// # Errors
/// When the device cannot be read.
pub fn signature(member: &MemberFile) -> io::Result<Option<Signature>> {
    let size = member.sectors * SECTOR_BYTES;
    let head = member.read_at(0, usize::try_from(size.min(HEAD_BYTES)).unwrap_or_default())?;
    let tail_bytes = size.min(TAIL_BYTES);
    let tail_offset = size - tail_bytes;
    let tail = member.read_at(tail_offset, usize::try_from(tail_bytes).unwrap_or_default())?;
    Ok(in_head(&head).or_else(|| in_tail(&tail, tail_offset, size)))
}

/// Samples in which data is looked for, beside the first MiB.
const SAMPLES: u64 = 64;
const SAMPLE_BYTES: u64 = 4096;

/// Where something other than zeroes lies, in bytes: all of the first MiB is looked at, and samples
/// that lie evenly beyond it, so that more than a few percent of data do not escape. `None` where
/// nothing was found.
///
/// # Errors
/// When the device cannot be read.
pub fn data(member: &MemberFile) -> io::Result<Option<u64>> {
    let size = member.sectors * SECTOR_BYTES;
    let step = (size / SAMPLES).max(SAMPLE_BYTES).next_multiple_of(SAMPLE_BYTES);
    let samples = (1..=SAMPLES).map(|number| (number * step, SAMPLE_BYTES));
    for (offset, len) in std::iter::once((0, 1 << 20)).chain(samples) {
        let len = len.min(size.saturating_sub(offset));
        let bytes = member.read_at(offset.min(size), usize::try_from(len).unwrap_or_default())?;
        if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
            return Ok(Some(offset + at as u64));
        }
    }
    Ok(None)
}

fn in_head(head: &[u8]) -> Option<Signature> {
    let fixed = MAGICS
        .iter()
        .find(|m| has(head, m.offset, m.bytes))
        .map(|m| Signature { what: m.what, offset: m.offset });
    fixed.or_else(|| ext(head)).or_else(|| zfs(head)).or_else(|| partition_table(head))
}

fn has(bytes: &[u8], offset: u64, magic: &[u8]) -> bool {
    usize::try_from(offset)
        .ok()
        .and_then(|offset| bytes.get(offset..)?.get(..magic.len()))
        .is_some_and(|found| found == magic)
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let four = bytes.get(offset..)?.get(..4)?;
    Some(u32::from_le_bytes(four.try_into().ok()?))
}

/// ext2, 3 and 4. The magic is two bytes only, so the block size has to make sense as well.
fn ext(head: &[u8]) -> Option<Signature> {
    const SUPERBLOCK: usize = 1024;
    let offset = SUPERBLOCK + 0x38;
    if !has(head, offset as u64, &[0x53, 0xef]) || u32_at(head, SUPERBLOCK + 0x18)? > 6 {
        return None;
    }
    let has_journal = u32_at(head, SUPERBLOCK + 0x5c)? & 4 != 0;
    let has_extents = u32_at(head, SUPERBLOCK + 0x60)? & 0x40 != 0;
    let what = match (has_extents, has_journal) {
        (true, _) => "an ext4 file system",
        (false, true) => "an ext3 file system",
        (false, false) => "an ext2 file system",
    };
    Some(Signature { what, offset: offset as u64 })
}

/// One of the uberblocks in the second half of zfs's first label, of either byte order.
fn zfs(head: &[u8]) -> Option<Signature> {
    const UBERBLOCK: u64 = 0x00ba_b10c;
    let marks = [UBERBLOCK.to_le_bytes(), UBERBLOCK.to_be_bytes()];
    (128 * 1024..HEAD_BYTES)
        .step_by(1024)
        .find(|&offset| marks.iter().any(|mark| has(head, offset, mark)))
        .map(|offset| Signature { what: "a zfs label", offset })
}

/// A DOS partition table: the boot mark and one entry that is in use and well formed.
fn partition_table(head: &[u8]) -> Option<Signature> {
    if !has(head, 510, &[0x55, 0xaa]) {
        return None;
    }
    let entries = head.get(446..510)?.as_chunks::<16>().0;
    let well_formed = entries.iter().all(|entry| entry[0] & 0x7f == 0);
    let used = entries.iter().any(|entry| entry[4] != 0);
    (well_formed && used).then_some(Signature { what: "a partition table", offset: 510 })
}

/// Bytes from the end in which the marks there lie.
const TAIL_BYTES: u64 = 128 * 1024;

fn in_tail(tail: &[u8], tail_offset: u64, size: u64) -> Option<Signature> {
    let sectors = size / SECTOR_BYTES;
    let at = |what, sector: Option<u64>, magic: &[u8]| {
        let offset = sector? * SECTOR_BYTES;
        let found = has(tail, offset.checked_sub(tail_offset)?, magic);
        found.then_some(Signature { what, offset })
    };
    let md_0_90 = (sectors & !127).checked_sub(128);
    let md_1_0 = sectors.checked_sub(16).map(|sector| sector & !7);
    at("an md superblock (0.90)", md_0_90, &MD_MAGIC)
        .or_else(|| at("an md superblock (1.0)", md_1_0, &MD_MAGIC))
        .or_else(|| at("a DDF raid member", sectors.checked_sub(1), b"\xde\x11\xde\x11"))
        .or_else(|| at("an Intel raid member", sectors.checked_sub(2), b"Intel Raid ISM Cfg Sig. "))
        .or_else(|| at("a GPT partition table (backup)", sectors.checked_sub(1), b"EFI PART"))
}
