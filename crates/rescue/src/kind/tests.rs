//! Kinds for which there is no program on every machine that makes them, and what is none.

use std::collections::BTreeSet;

use super::{Kind, look};
use crate::image::tests::Torn;

const MIB: usize = 1 << 20;

/// An image of 4 MiB with these bytes at these places.
fn image(pieces: &[(usize, &[u8])]) -> Vec<u8> {
    let mut image = vec![0; 4 * MIB];
    for (at, bytes) in pieces {
        image[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    image
}

fn kinds(bytes: &[u8]) -> Vec<(Kind, u64)> {
    let mut image = bytes;
    look(&mut image).findings.iter().map(|found| (found.kind, found.at_bytes)).collect()
}

#[test]
fn signatures_are_found_where_they_belong() {
    let end = 4 * MIB;
    let magic = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
    let cases: [(Kind, usize, &[u8]); 12] = [
        (Kind::Bzip2, 0, b"BZh91AY&SY"),
        (Kind::Ewf, 0, b"EVF\x09\x0d\x0a\xff\x00\x01"),
        (Kind::Aff, 0, b"AFF10\x0d\x0a\x00"),
        (Kind::BitLocker, 3, b"-FVE-FS-"),
        (Kind::Bcache, 4096 + 24, magic),
        (Kind::Luks2, 0x8000, b"SKUL\xba\xbe\0\x02"),
        (Kind::Ddf, end - 512, b"\xde\x11\xde\x11"),
        (Kind::Ddf, end - 257 * 512, b"\x11\xde\x11\xde"),
        (Kind::Imsm, end - 1024, b"Intel Raid ISM Cfg Sig. 1.1.00"),
        (Kind::Imsm, end - 8192, b"Intel Raid ISM Cfg Sig. 1.1.00"),
        (Kind::Drbd, end - 4096 + 60, b"\x83\x74\x02\x6d"),
        (Kind::Vhd, end - 512, b"conectix"),
    ];
    for (kind, at, bytes) in cases {
        assert_eq!(kinds(&image(&[(at, bytes)])), [(kind, at as u64)]);
        // One sector further nobody looks for it.
        let elsewhere = if at >= end / 2 { at - 512 } else { at + 512 };
        assert_eq!(kinds(&image(&[(elsewhere, bytes)])), [], "{kind}");
    }
    assert_eq!(kinds(&image(&[(0, b"BZh9 is no bzip2")])), []);
    assert_eq!(kinds(&image(&[(0, b"LUKS\xba\xbe\0\x03")])), []);
}

#[test]
fn a_label_of_zfs_is_four_uberblocks_and_names_the_pool() {
    let list = b"\0\0\0\x04name\0\0\0\x09\0\0\0\x01\0\0\0\x04tank";
    // The third label: the last but one of the whole 256 KiB there are.
    let label = (15 - 2) * (256 << 10);
    let mut pieces: Vec<(usize, &[u8])> = vec![(label + (16 << 10) + 40, list)];
    for block in 0..4 {
        pieces.push((label + (128 << 10) + block * 1024, b"\x0c\xb1\xba\0\0\0\0\0"));
    }
    let mut bytes = image(&pieces);
    bytes.truncate(4 * MIB - 4096);
    let found = look(&mut bytes.as_slice()).findings;
    assert_eq!((found[0].kind, found[0].at_bytes), (Kind::Zfs, label as u64));
    assert_eq!(found[0].label.as_deref(), Some("tank"));
    // Three are user data.
    bytes[label + (128 << 10)] = 0;
    assert_eq!(kinds(&bytes), []);
}

#[test]
fn zeroes_are_told_from_what_was_not_read() {
    assert_eq!(kinds(&image(&[])), [(Kind::Zeroes, 0)]);
    assert_eq!(kinds(&[0; 100]), [(Kind::Zeroes, 0)]);
    assert_eq!(kinds(&[]), []);
    // In the middle: of 64 pages that are looked at one is this.
    assert_eq!(kinds(&image(&[(2 * MIB, b"data")])), []);
    let mut torn = Torn { bytes: image(&[]), torn: vec![1000..1001] };
    let found = look(&mut torn);
    assert_eq!((found.findings, found.unreadable), (vec![], vec![512..1024]));
    let mut torn = Torn { bytes: image(&[]), torn: vec![2 * MIB as u64..2 * MIB as u64 + 1] };
    assert!(look(&mut torn).findings.is_empty());
}

#[test]
fn a_bad_sector_hides_only_what_lies_in_it() {
    let bytes = image(&[(0, b"XFSB"), (4096 - 10, b"SWAPSPACE2")]);
    let mut torn = Torn { bytes, torn: vec![100..101] };
    let found = look(&mut torn).findings;
    assert_eq!(found.iter().map(|found| found.kind).collect::<Vec<_>>(), [Kind::Swap]);
}

/// Each kind has a name of its own and a step that helps; none makes an array anew.
#[test]
fn every_kind_has_a_name_and_advice() {
    let names: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(names.len(), Kind::ALL.len());
    for kind in Kind::ALL {
        let advice = kind.advice();
        assert!(advice.len() > 20 && !advice.ends_with('.'), "{kind}: {advice}");
        assert!(!advice.contains("create") && !advice.contains("mkfs"), "{kind}: {advice}");
        let mounts = advice.contains("mount -");
        assert!(!mounts || advice.contains("-o ro"), "{kind}: {advice}");
    }
}
