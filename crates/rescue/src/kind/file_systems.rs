//! File systems and swap space.

use super::window::Window;
use super::{Finding, Kind};
use crate::bytes::{array_at, lies_at, text, u16_le, u32_le, u64_le, utf16};

pub(super) fn find(window: &Window) -> Vec<Finding> {
    let probes = [ext, xfs, btrfs, ntfs, fat, exfat, iso9660, squashfs, swap, f2fs];
    probes.iter().filter_map(|probe| probe(&window.head)).collect()
}

/// The kernel's documentation, `filesystems/ext4/super.rst`; which of the three it is, as libblkid
/// decides: by the features that only later ones know.
fn ext(head: &[u8]) -> Option<Finding> {
    const AT: usize = 1024;
    if u16_le(head, AT + 0x38)? != 0xef53 {
        return None;
    }
    let has_journal = u32_le(head, AT + 0x5c)? & 4 != 0;
    // Types of files, needs recovery, meta block groups.
    let incompatible = u32_le(head, AT + 0x60)? & !(0x2 | 0x4 | 0x10);
    // Sparse superblocks, large files, trees of directories.
    let read_only_compatible = u32_le(head, AT + 0x64)? & !0x7;
    let kind = match (incompatible | read_only_compatible, has_journal) {
        (0, true) => Kind::Ext3,
        (0, false) => Kind::Ext2,
        _ => Kind::Ext4,
    };
    let mut found = Finding::new(kind, (AT + 0x38) as u64).uuid(array_at(head, AT + 0x68));
    found.label = text(head.get(AT + 0x78..AT + 0x88)?);
    Some(found)
}

/// XFS Algorithms & Data Structures, "Superblocks".
fn xfs(head: &[u8]) -> Option<Finding> {
    if !head.starts_with(b"XFSB") {
        return None;
    }
    let mut found = Finding::new(Kind::Xfs, 0).uuid(array_at(head, 32));
    found.label = text(head.get(108..120)?);
    Some(found)
}

/// `btrfs_tree.h` of Linux.
fn btrfs(head: &[u8]) -> Option<Finding> {
    const AT: usize = 64 << 10;
    if !lies_at(head, AT + 0x40, b"_BHRfS_M") {
        return None;
    }
    let mut found = Finding::new(Kind::Btrfs, (AT + 0x40) as u64).uuid(array_at(head, AT + 0x20));
    found.label = text(head.get(AT + 0x12b..AT + 0x22b)?);
    Some(found)
}

fn ntfs(head: &[u8]) -> Option<Finding> {
    if !lies_at(head, 3, b"NTFS    ") {
        return None;
    }
    let mut found = Finding::new(Kind::Ntfs, 3);
    found.uuid = Some(format!("{:016X}", u64_le(head, 0x48)?));
    Some(found)
}

/// Microsoft's FAT specification, 3.1 and 3.2: the names of the types are informative, but
/// everybody writes them.
fn fat(head: &[u8]) -> Option<Finding> {
    if u16_le(head, 510)? != 0xaa55 {
        return None;
    }
    let small = [&b"FAT12   "[..], b"FAT16   ", b"FAT     "];
    let at = if small.iter().any(|name| lies_at(head, 54, name)) {
        54
    } else if lies_at(head, 82, b"FAT32   ") {
        82
    } else {
        return None;
    };
    let mut found = Finding::new(Kind::Fat, at as u64);
    found.uuid = serial(head, at - 15);
    found.label = text(head.get(at - 11..at)?).filter(|label| label != "NO NAME");
    Some(found)
}

/// Microsoft's exFAT specification, 3.1.
fn exfat(head: &[u8]) -> Option<Finding> {
    if !lies_at(head, 3, b"EXFAT   ") {
        return None;
    }
    let mut found = Finding::new(Kind::ExFat, 3);
    found.uuid = serial(head, 100);
    Some(found)
}

/// A serial number as it is printed.
fn serial(head: &[u8], at: usize) -> Option<String> {
    let serial = u32_le(head, at)?;
    Some(format!("{:04X}-{:04X}", serial >> 16, serial & 0xffff))
}

/// ECMA-119, 8.4: the first volume descriptor.
fn iso9660(head: &[u8]) -> Option<Finding> {
    const AT: usize = 32 << 10;
    if !lies_at(head, AT + 1, b"CD001") {
        return None;
    }
    let mut found = Finding::new(Kind::Iso9660, AT as u64 + 1);
    found.label = text(head.get(AT + 40..AT + 72)?);
    Some(found)
}

fn squashfs(head: &[u8]) -> Option<Finding> {
    head.starts_with(b"hsqs").then(|| Finding::new(Kind::Squashfs, 0))
}

/// At the end of the first page, whose size is that of the machine (`mkswap`).
fn swap(head: &[u8]) -> Option<Finding> {
    let pages = [4, 8, 16, 32, 64].map(|kib: usize| kib << 10);
    let signed = |name: &[u8]| pages.into_iter().find(|page| lies_at(head, page - 10, name));
    let new = signed(b"SWAPSPACE2");
    let page = new.or_else(|| signed(b"SWAP-SPACE"))?;
    let mut found = Finding::new(Kind::Swap, page as u64 - 10);
    if new.is_some() {
        found = found.uuid(array_at(head, 1036));
        found.label = text(head.get(1052..1068)?);
    }
    Some(found)
}

/// `f2fs_fs.h` of Linux.
fn f2fs(head: &[u8]) -> Option<Finding> {
    const AT: usize = 1024;
    if u32_le(head, AT)? != 0xf2f5_2010 {
        return None;
    }
    let mut found = Finding::new(Kind::F2fs, AT as u64).uuid(array_at(head, AT + 108));
    let label = utf16(head.get(AT + 124..AT + 1148)?);
    found.label = (!label.is_empty()).then_some(label);
    Some(found)
}
