//! Archives and images that have to be unpacked or converted before there is a disk to look at.

use super::window::Window;
use super::{Finding, Kind};
use crate::bytes::lies_at;

/// Kind, offset, and what lies there.
const SIGNATURES: &[(Kind, usize, &[u8])] = &[
    // RFC 1952, with the one method there is.
    (Kind::Gzip, 0, b"\x1f\x8b\x08"),
    (Kind::Xz, 0, b"\xfd7zXZ\0"),
    // RFC 8878.
    (Kind::Zstd, 0, b"\x28\xb5\x2f\xfd"),
    (Kind::Zip, 0, b"PK\x03\x04"),
    (Kind::SevenZip, 0, b"7z\xbc\xaf\x27\x1c"),
    (Kind::Qcow2, 0, b"QFI\xfb"),
    (Kind::Vmdk, 0, b"KDMV"),
    (Kind::Vmdk, 0, b"COWD"),
    (Kind::VmdkDescriptor, 0, b"# Disk DescriptorFile"),
    (Kind::Vdi, 0x40, b"\x7f\x10\xda\xbe"),
    (Kind::Vhdx, 0, b"vhdxfile"),
    // libewf's documentation: the segments of E01 and L01, and of Ex01.
    (Kind::Ewf, 0, b"EVF\x09\x0d\x0a\xff\x00"),
    (Kind::Ewf, 0, b"LVF\x09\x0d\x0a\xff\x00"),
    (Kind::Ewf, 0, b"EVF2\x0d\x0a\x81\x00"),
    (Kind::Aff, 0, b"AFF10\x0d\x0a\x00"),
];

/// The bytes that begin and, of the dynamic ones, also end a VHD.
const VHD: &[u8] = b"conectix";

/// A block of bzip2, or the end of an empty file, after `BZh` and a digit.
const BZIP2_BLOCKS: [&[u8]; 2] = [b"\x31\x41\x59\x26\x53\x59", b"\x17\x72\x45\x38\x50\x90"];

pub(super) fn find(window: &Window) -> Vec<Finding> {
    let head = &window.head;
    let signed = SIGNATURES.iter().filter(|(_, at, bytes)| lies_at(head, *at, bytes));
    let mut found: Vec<Finding> =
        signed.map(|(kind, at, _)| Finding::new(*kind, *at as u64)).collect();
    let has_level = head.get(3).is_some_and(|level| (b'1'..=b'9').contains(level));
    let has_block = BZIP2_BLOCKS.iter().any(|block| lies_at(head, 4, block));
    if head.starts_with(b"BZh") && has_level && has_block {
        found.push(Finding::new(Kind::Bzip2, 0));
    }
    if head.starts_with(VHD) {
        found.push(Finding::new(Kind::Vhd, 0));
    } else if let Some((at_bytes, footer)) = window.before_end(512)
        && footer.starts_with(VHD)
    {
        found.push(Finding::new(Kind::Vhd, at_bytes));
    }
    found
}
