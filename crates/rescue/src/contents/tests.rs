//! Tables made by hand, honest and hostile.

use std::ops::Range;

use super::place::Run;
use super::{Content, ContentKind, MOST, Place, look, readable};
use crate::image::Image;
use crate::kind::Kind;

/// A disk of 8 MiB with an MBR of these partitions, in sectors.
fn disk(partitions: &[Range<u32>]) -> Vec<u8> {
    let mut disk = vec![0; 8 << 20];
    for (index, sectors) in partitions.iter().enumerate() {
        let entry = &mut disk[446 + index * 16..][..16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&sectors.start.to_le_bytes());
        entry[12..16].copy_from_slice(&(sectors.end - sectors.start).to_le_bytes());
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk
}

fn looked(arrays: &[(&str, &[u8])]) -> Vec<Content> {
    let mut images: Vec<&[u8]> = arrays.iter().map(|(_, bytes)| *bytes).collect();
    let names = arrays.iter().map(|(name, _)| (*name).to_owned());
    let images = images.iter_mut().map(|image| image as &mut dyn Image);
    look(&mut names.zip(images).collect::<Vec<_>>())
}

#[test]
fn partitions_are_found_with_what_is_in_them() {
    let mut bytes = disk(&[2048..4096, 4096..20_000]);
    bytes[4096 * 512..][..4].copy_from_slice(b"XFSB");
    let [array] = &looked(&[("a", &bytes)])[..] else { panic!("one array") };
    assert_eq!((array.name.as_str(), array.findings[0].kind), ("a", Kind::Mbr));
    let [first, second] = &array.contents[..] else { panic!("two partitions") };
    assert_eq!((first.name.as_str(), first.size_bytes), ("p1", 1 << 20));
    assert_eq!(first.place.as_ref().and_then(Place::whole).unwrap().offset_bytes, 1 << 20);
    assert_eq!(second.findings.iter().map(|found| found.kind).collect::<Vec<_>>(), [Kind::Xfs]);
    // What lies beyond the end is told, and what there is can be read.
    assert_eq!(second.size_bytes, 6 << 20);
    assert!(array.remarks[0].starts_with("partition 2 ends"), "{:?}", array.remarks);
    let names: Vec<String> =
        readable(std::slice::from_ref(array)).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["p1", "p2"]);

    let both = looked(&[("a", &bytes), ("a", &bytes)]);
    let names: Vec<&str> = both.iter().flat_map(Content::all).map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["a", "a:p1", "a:p2", "a~2", "a~2:p1", "a~2:p2"]);
}

#[test]
fn a_place_that_holds_a_byte_twice_is_none() {
    let run = |start_bytes, shares: &[(usize, u64)]| Run {
        start_bytes,
        size_bytes: 32 << 10,
        stripe_bytes: 4 << 10,
        shares: shares.to_vec(),
    };
    let place = Place::runs(vec![run(0, &[(0, 0), (1, 0)]), run(32 << 10, &[(0, 16 << 10)])]);
    let place = place.expect("no byte comes twice").part(6 << 10..36 << 10);
    let mut at = 0;
    let mut pieces = Vec::new();
    while let Some(piece) = place.piece(at) {
        pieces.push((piece.array, piece.offset_bytes >> 10, piece.bytes >> 10));
        at += piece.bytes;
    }
    assert_eq!(at, 30 << 10);
    assert_eq!(pieces[..3], [(1, 2, 2), (0, 4, 4), (1, 4, 4)]);
    assert_eq!(pieces.last(), Some(&(0, 16, 4)));
    // On a share of its own it lies together from stripe to stripe.
    let alone = Place::runs(vec![run(0, &[(0, 0)]), run(32 << 10, &[(1, 0)])]).expect("a place");
    let merged: Vec<_> =
        alone.pieces(2).into_iter().flatten().map(|p| (p.array, p.range())).collect();
    assert_eq!(merged, [(0, 0..32 << 10), (1, 0..32 << 10)]);
    assert_eq!(alone.pieces(1), None, "there are two");
    assert_eq!(place.pieces(100).map(|all| all.len()), Some(pieces.len()));
    for shares in [[(0, 0), (0, 0)], [(0, 8 << 10), (0, 16 << 10)]] {
        Place::runs(vec![run(0, &shares)]).expect_err("they meet");
    }
}

#[test]
fn hostile_tables_are_bounded() {
    // A GPT of as many partitions as fit, each all of the disk, with the whole table within each.
    let mut bytes = disk(&[1..16_384]);
    bytes[450] = 0xee;
    let entries = 8192;
    let table = 1024..1024 + entries * 128;
    for (index, entry) in bytes[table.clone()].chunks_mut(128).enumerate() {
        entry[0] = 1;
        entry[16] = index as u8;
        entry[40..48].copy_from_slice(&16_383_u64.to_le_bytes());
    }
    let entries_crc = crc(&bytes[table]);
    let header = &mut bytes[512..604];
    header[..8].copy_from_slice(b"EFI PART");
    header[8..16].copy_from_slice(&[0, 0, 1, 0, 92, 0, 0, 0]);
    header[24] = 1;
    header[40] = 0;
    header[48..56].copy_from_slice(&16_383_u64.to_le_bytes());
    header[72] = 2;
    header[80..84].copy_from_slice(&(entries as u32).to_le_bytes());
    header[84] = 128;
    header[88..92].copy_from_slice(&entries_crc.to_le_bytes());
    let sum = crc(header);
    bytes[528..532].copy_from_slice(&sum.to_le_bytes());
    let [array] = &looked(&[("a", &bytes)])[..] else { panic!("one array") };
    assert_eq!(array.findings[0].kind, Kind::Gpt, "the table is taken");
    let all: Vec<&Content> = array.all().collect();
    assert_eq!(all.len(), MOST);
    assert!(array.remarks.iter().any(|remark| remark.contains("left out")));
    let deepest = array.contents.iter().all(|partition| partition.contents.is_empty());
    assert!(deepest, "no tables within partitions");
    assert!(all[1..].iter().all(|part| matches!(part.kind, ContentKind::Partition { .. })));
}

/// The checksum of a GPT.
fn crc(bytes: &[u8]) -> u32 {
    crate::crc::crc32(bytes)
}
