//! Layers between a disk and the file systems on it, md aside.

use super::window::Window;
use super::{Finding, Kind};
use crate::bytes::{array_at, lies_at, text, u32_le, u64_le};

const LUKS: &[u8] = b"LUKS\xba\xbe";

/// The second header of LUKS2, and where it may begin (LUKS2 On-Disk Format Specification, 2.1).
const LUKS2_SECOND: &[u8] = b"SKUL\xba\xbe";
const LUKS2_SECOND_AT: [usize; 5] = [0x4000, 0x8000, 0x1_0000, 0x2_0000, 0x4_0000];

const LVM_LABEL: &[u8] = b"LABELONE";
const LVM_TYPE: &[u8] = b"LVM2 001";

/// Common RAID Disk Data Format, 4.1: the anchor in the last sector, in either byte order.
const DDF: [&[u8]; 2] = [b"\xde\x11\xde\x11", b"\x11\xde\x11\xde"];

/// As mdadm's `super-intel.c` has it: in the last sector but one, of 512 or 4096 bytes.
const IMSM: &[u8] = b"Intel Raid ISM Cfg Sig. ";

/// `bcache_ondisk.h` of Linux: at 4096, behind checksum, place and version.
const BCACHE: &[u8] = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
const BCACHE_AT: usize = 4096 + 24;

/// Magic of DRBD 8, 8.4 when it was not stopped, and 9: in the last 4 KiB, behind 60 bytes.
const DRBD: [u32; 3] = [0x8374_026b, 0x8374_026c, 0x8374_026d];

const ZFS_LABEL_BYTES: u64 = 256 << 10;
const ZFS_UBERBLOCK: u64 = 0x00ba_b10c;
/// As libblkid does, since user data may hold a few.
const ZFS_UBERBLOCKS_WANTED: usize = 4;

pub(super) fn find(window: &Window) -> Vec<Finding> {
    let probes = [luks, bitlocker, lvm, ddf, imsm, zfs, bcache, drbd];
    probes.iter().filter_map(|probe| probe(window)).collect()
}

fn luks(window: &Window) -> Option<Finding> {
    let head = &window.head;
    let second = || LUKS2_SECOND_AT.into_iter().find(|at| lies_at(head, *at, LUKS2_SECOND));
    let at = if head.starts_with(LUKS) { 0 } else { second()? };
    let version = u16::from_be_bytes(array_at(head, at + 6)?);
    let kind = match version {
        1 => Kind::Luks1,
        2 => Kind::Luks2,
        _ => return None,
    };
    let mut found = Finding::new(kind, at as u64);
    found.uuid = text(head.get(at + 168..at + 208)?);
    if kind == Kind::Luks2 {
        found.label = text(head.get(at + 24..at + 72)?);
    }
    Some(found)
}

fn bitlocker(window: &Window) -> Option<Finding> {
    lies_at(&window.head, 3, b"-FVE-FS-").then(|| Finding::new(Kind::BitLocker, 3))
}

fn lvm(window: &Window) -> Option<Finding> {
    let is_label = |at: &usize| {
        lies_at(&window.head, *at, LVM_LABEL) && lies_at(&window.head, at + 24, LVM_TYPE)
    };
    let at = (0..4).map(|sector| sector * 512).find(is_label)?;
    let mut found = Finding::new(Kind::Lvm2, at as u64);
    // The header of the physical volume begins with it.
    let contents = u32_le(&window.head, at + 20)? as usize;
    let uuid = window.head.get(at + contents..)?.get(..32)?;
    if uuid.iter().all(u8::is_ascii_alphanumeric) {
        found.uuid = text(uuid);
    }
    Some(found)
}

fn ddf(window: &Window) -> Option<Finding> {
    // The secondary header is 257 sectors before the end where the anchor was lost.
    let ends = [512, 257 * 512];
    let (at_bytes, _) = ends.iter().find_map(|bytes| {
        let found = window.before_end(*bytes)?;
        DDF.iter().any(|magic| found.1.starts_with(magic)).then_some(found)
    })?;
    Some(Finding::new(Kind::Ddf, at_bytes))
}

fn imsm(window: &Window) -> Option<Finding> {
    let ends = [2 * 512, 2 * 4096];
    let found = ends.iter().filter_map(|bytes| window.before_end(*bytes));
    let (at_bytes, _) = found.into_iter().find(|(_, bytes)| bytes.starts_with(IMSM))?;
    Some(Finding::new(Kind::Imsm, at_bytes))
}

fn bcache(window: &Window) -> Option<Finding> {
    if !lies_at(&window.head, BCACHE_AT, BCACHE) {
        return None;
    }
    let mut found = Finding::new(Kind::Bcache, BCACHE_AT as u64);
    found = found.uuid(array_at(&window.head, BCACHE_AT + 16));
    found.label = text(window.head.get(BCACHE_AT + 48..BCACHE_AT + 80)?);
    Some(found)
}

fn drbd(window: &Window) -> Option<Finding> {
    let (at_bytes, block) = window.before_end(4096)?;
    let magic = u32::from_be_bytes(array_at(block, 60)?);
    DRBD.contains(&magic).then(|| Finding::new(Kind::Drbd, at_bytes + 60))
}

/// Two labels at the beginning and two at the end; in each 128 KiB of uberblocks.
fn zfs(window: &Window) -> Option<Finding> {
    let aligned = window.size_bytes % ZFS_LABEL_BYTES;
    let first = (0, window.head.as_slice());
    let second = window.head.get(ZFS_LABEL_BYTES as usize..).map(|head| (ZFS_LABEL_BYTES, head));
    let third = window.before_end(aligned + 2 * ZFS_LABEL_BYTES);
    let fourth = window.before_end(aligned + ZFS_LABEL_BYTES);
    let labels = [Some(first), second, third, fourth];
    let (at_bytes, label) = labels.into_iter().flatten().find(|(_, label)| {
        let is_block = |at: &usize| {
            let magic = u64_le(label, *at);
            magic == Some(ZFS_UBERBLOCK) || magic == Some(ZFS_UBERBLOCK.swap_bytes())
        };
        (128 << 10..256 << 10).step_by(1024).filter(is_block).count() >= ZFS_UBERBLOCKS_WANTED
    })?;
    let mut found = Finding::new(Kind::Zfs, at_bytes);
    found.label = zfs_name(label.get(16 << 10..20 << 10)?);
    Some(found)
}

/// The pool's name in the label's list, in XDR: length and characters of the key, type 9 (a
/// string), one element, length and characters.
fn zfs_name(list: &[u8]) -> Option<String> {
    const KEY: &[u8] = b"\0\0\0\x04name\0\0\0\x09\0\0\0\x01";
    let at = list.windows(KEY.len()).position(|bytes| bytes == KEY)? + KEY.len();
    let length = u32::from_be_bytes(array_at(list, at)?) as usize;
    text(list.get(at + 4..)?.get(..length)?)
}
