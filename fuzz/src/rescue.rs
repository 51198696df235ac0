//! What may lie on disks that are looked into: partition tables, LVM2, whatever has a signature,
//! and ddrescue's map files.

use std::ops::Range;

use braid_rescue::Image;
use braid_rescue::contents;
use braid_rescue::image::PAGE_BYTES;
use braid_rescue::kind::{Kind, look};
use braid_rescue::lvm::{LogicalVolume, PhysicalVolume, groups};
use braid_rescue::map_file::MapFile;
use braid_rescue::partitions;

use crate::mutate::{Random, mutate};

const SECTOR: usize = 512;
/// Of the disks that are made here.
const SECTORS: usize = 160;

/// A disk some sectors of which cannot be read. It insists on what readers promise.
struct Disk<'a> {
    bytes: &'a [u8],
    torn: Range<u64>,
    reads: u32,
}

impl<'a> Disk<'a> {
    /// The first two bytes say what cannot be read.
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let ([first, count], bytes) = bytes.split_first_chunk()?;
        let first = u64::from(*first) * SECTOR as u64;
        let torn = first..first + u64::from(count / 64) * SECTOR as u64;
        Some(Self { bytes, torn, reads: 0 })
    }
}

impl Image for Disk<'_> {
    fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), String> {
        self.reads += 1;
        assert!(self.reads < 10_000, "work without an end");
        let end = offset_bytes + into.len() as u64;
        assert!(!into.is_empty() && end <= self.size_bytes(), "a read beyond the end");
        let page = if into.len() as u64 > PAGE_BYTES { PAGE_BYTES } else { SECTOR as u64 };
        assert!(offset_bytes.is_multiple_of(page), "a read from {offset_bytes}");
        if self.torn.start < end && offset_bytes < self.torn.end {
            return Err("medium error".into());
        }
        into.copy_from_slice(&self.bytes[offset_bytes as usize..end as usize]);
        Ok(())
    }
}

/// What cannot be read, in most cases nothing; then the disk.
fn with_torn(random: &mut Random, disk: Vec<u8>) -> Vec<u8> {
    let count = if random.below(4) == 0 { random.next() as u8 } else { 0 };
    let mut bytes = vec![random.below(SECTORS) as u8, count];
    bytes.extend(disk);
    bytes
}

/// CRC-32 from a state on, for what is made here.
fn crc32(mut state: u32, bytes: &[u8]) -> u32 {
    for byte in bytes {
        state ^= u32::from(*byte);
        for _ in 0..8 {
            state = state >> 1 ^ if state & 1 == 1 { 0xedb8_8320 } else { 0 };
        }
    }
    state
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}

/// A disk with a GPT, or an MBR with a chain of logical partitions.
pub(crate) fn make_table(random: &mut Random) -> Vec<u8> {
    let mut disk = vec![0; SECTORS * SECTOR];
    let has_gpt = random.below(2) == 0;
    if has_gpt {
        make_gpt(random, &mut disk);
        disk[450] = 0xee;
        put(&mut disk, 458, (random.below(4) as u32).to_le_bytes());
        put(&mut disk, 510, [0x55, 0xaa]);
    }
    if !has_gpt || random.below(8) == 0 {
        let last = random.below(SECTORS - 1) + 1;
        // Where sectors lie close together, a chain goes on for longer.
        let near = [8, SECTORS][random.below(2)];
        for sector in std::iter::once(0).chain((1..last).step_by(1 + random.below(3))) {
            let mut entries = vec![0; 64];
            for entry in entries.chunks_mut(16) {
                entry[4] = [0, 0x05, 0x0f, 0x83, 0xfd][random.below(5)];
                put(entry, 8, (random.below(near) as u32).to_le_bytes());
                put(entry, 12, (1 + random.below(3 * SECTORS) as u32).to_le_bytes());
            }
            mutate(random, &mut entries, 64);
            entries.resize(64, 0);
            disk[sector * SECTOR + 446..sector * SECTOR + 510].copy_from_slice(&entries);
            put(&mut disk, sector * SECTOR + 510, [0x55, 0xaa]);
        }
    }
    with_torn(random, disk)
}

/// Eight entries of the usual length, behind the first header and before the last one.
fn make_gpt(random: &mut Random, disk: &mut [u8]) {
    let mut entries = vec![0; 1024];
    for entry in entries.chunks_mut(128) {
        entry[0] = random.below(3) as u8;
        put(entry, 32, (random.below(SECTORS) as u64).to_le_bytes());
        put(entry, 40, (random.below(SECTORS) as u64).to_le_bytes());
        entry[56..128].iter_mut().for_each(|byte| *byte = random.next() as u8);
    }
    mutate(random, &mut entries, 1024);
    entries.resize(1024, 0);
    let last = SECTORS - 1;
    for (sector, other, at) in [(1, last, 2), (last, 1, last - 2)] {
        let mut header = vec![0; SECTOR];
        put(&mut header, 0, *b"EFI PART\0\0\x01\0\x5c\0\0\0");
        put(&mut header, 24, (sector as u64).to_le_bytes());
        put(&mut header, 32, (other as u64).to_le_bytes());
        put(&mut header, 72, (at as u64).to_le_bytes());
        put(&mut header, 80, 8_u32.to_le_bytes());
        put(&mut header, 84, 128_u32.to_le_bytes());
        put(&mut header, 88, (!crc32(u32::MAX, &entries)).to_le_bytes());
        if random.below(2) == 0 {
            mutate(random, &mut header, 92);
            header.resize(SECTOR, 0);
        }
        if random.below(8) > 0 {
            put(&mut header, 16, [0; 4]);
            let crc = !crc32(u32::MAX, &header[..92]);
            put(&mut header, 16, crc.to_le_bytes());
        }
        disk[sector * SECTOR..(sector + 1) * SECTOR].copy_from_slice(&header);
        disk[at * SECTOR..(at + 2) * SECTOR].copy_from_slice(&entries);
    }
}

pub(crate) fn run_table(bytes: &[u8]) {
    let Some(mut disk) = Disk::new(bytes) else { return };
    match partitions::read(&mut disk) {
        Ok(table) => {
            for partition in &table.partitions {
                assert!(partition.start_bytes.checked_add(partition.size_bytes).is_some());
                assert!(partition.size_bytes > 0 && !partition.name.contains(char::is_control));
                assert!(!partition.kind.to_string().is_empty());
            }
            let numbers = table.partitions.iter().map(|partition| partition.number);
            assert!(numbers.is_sorted_by(|one, next| one < next), "numbers that are given twice");
            assert!(table.remarks.iter().all(|remark| !remark.to_string().is_empty()));
        }
        Err(why) => assert!(!why.to_string().is_empty()),
    }
}

/// A disk with a table, or one of a group of LVM2.
pub(crate) fn make_contents(random: &mut Random) -> Vec<u8> {
    if random.below(2) == 0 { make_table(random) } else { make_lvm(random) }
}

/// What lies on it is a tree with an end, and all that can be read of it lies on it.
pub(crate) fn run_contents(bytes: &[u8]) {
    let Some(mut disk) = Disk::new(bytes) else { return };
    let size_bytes = disk.size_bytes();
    let found = contents::look(&mut [("disk".to_owned(), &mut disk)]);
    let readable = contents::readable(&found);
    let mut names: Vec<&String> = readable.iter().map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), readable.len(), "a name that is given twice");
    for (name, content) in readable {
        assert!(!name.contains(['/', '\0']) && !name.contains(char::is_control), "{name:?}");
        let Some(place) = &content.place else { continue };
        let mut at = 0;
        // A volume may have as many pieces as the metadata say.
        for _ in 0..1000 {
            let Some(piece) = place.piece(at) else { break };
            assert!(piece.bytes > 0 && piece.offset_bytes.checked_add(piece.bytes).is_some());
            assert!(piece.offset_bytes + piece.bytes <= size_bytes, "beyond the end: {piece:?}");
            at += piece.bytes;
        }
        assert!(at <= place.size_bytes());
    }
}

/// Anything with a signature somewhere.
pub(crate) fn make_kind(random: &mut Random) -> Vec<u8> {
    const SIGNATURES: [(usize, &[u8]); 19] = [
        (0, b"BZh91AY&SY"),
        (0, b"conectix"),
        (0, b"XFSB"),
        (0, b"LUKS\xba\xbe\0\x02"),
        (0, b"LUKS\xba\xbe\0\x01"),
        (0x8000, b"SKUL\xba\xbe\0\x02"),
        (3, b"NTFS    "),
        (3, b"EXFAT   "),
        (54, b"FAT16   "),
        (510, b"\x55\xaa"),
        (512, b"LABELONE\x01\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0LVM2 001"),
        (1024, b"\x10\x20\xf5\xf2"),
        (1080, b"\x53\xef"),
        (4086, b"SWAPSPACE2"),
        (4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
        (32769, b"CD001"),
        (65600, b"_BHRfS_M"),
        (SECTORS * SECTOR - 512, b"\xde\x11\xde\x11"),
        (SECTORS * SECTOR - 1024, b"Intel Raid ISM Cfg Sig. "),
    ];
    let mut disk = vec![0; SECTORS * SECTOR];
    if random.below(2) == 0 {
        disk.iter_mut().for_each(|byte| *byte = random.next() as u8);
    }
    for _ in 0..random.below(3) {
        let (at, signature) = SIGNATURES[random.below(SIGNATURES.len())];
        disk[at..at + signature.len()].copy_from_slice(signature);
    }
    mutate(random, &mut disk, 8192);
    with_torn(random, disk)
}

pub(crate) fn run_kind(bytes: &[u8]) {
    let Some(mut disk) = Disk::new(bytes) else { return };
    let size_bytes = disk.size_bytes();
    let found = look(&mut disk);
    for finding in &found.findings {
        let texts = [&finding.uuid, &finding.label];
        assert!(texts.into_iter().flatten().all(|text| !text.contains(char::is_control)));
        assert!(finding.at_bytes < size_bytes);
        let is_zero = disk.bytes.iter().all(|byte| *byte == 0);
        assert!(finding.kind != Kind::Zeroes || is_zero || found.findings.len() == 1);
    }
    assert!(found.unreadable.iter().all(|hole| hole.start < hole.end && hole.end <= size_bytes));
}

/// Blocks in order for the most part.
pub(crate) fn make_map(random: &mut Random) -> Vec<u8> {
    let mut text = String::from("# a comment\n0x0 ? 1\n");
    let mut at = 0;
    for _ in 0..random.below(40) {
        let size = random.next() >> (20 + random.below(44));
        let status = ["+", "-", "/", "*", "?"][random.below(5)];
        text += &match random.below(3) {
            0 => format!("{at} {size} {status}\n"),
            1 => format!("0{at:o}  {size:#x} {status} # octal\n"),
            _ => format!("{at:#X} {size:#x} {status}\n"),
        };
        at += size + if random.below(4) == 0 { random.next() >> 50 } else { 0 };
    }
    let mut bytes = text.replace("0X", "0x").into_bytes();
    if random.below(2) == 0 {
        mutate(random, &mut bytes, 2048);
    }
    bytes
}

pub(crate) fn run_map(bytes: &[u8]) {
    for size_bytes in [0, 1 << 20, 1 << 40, u64::MAX] {
        let map = match MapFile::parse(bytes, size_bytes) {
            Ok(map) => map,
            Err(why) => return assert!(why.to_string().len() < 300 && !why.to_string().is_empty()),
        };
        let lost = map.unrescued();
        assert!(lost.iter().all(|range| range.start < range.end && range.end <= size_bytes));
        assert!(lost.windows(2).all(|pair| pair[0].end < pair[1].start), "not disjoint");
        for range in lost.iter().take(64) {
            assert!(map.is_missing(range));
            let after = range.end..range.end.saturating_add(1);
            assert!(!map.is_missing(&after) && !map.is_missing(&(range.start..range.start)));
        }
    }
}

/// Where the metadata area of the disks that are made here lies.
const AREA_AT: usize = 4096;
const AREA_BYTES: usize = 32 << 10;
const LVM_CRC_START: u32 = 0xf597_a6cf;

/// The metadata of a group that LVM2 wrote, changed, on the first of its volumes.
pub(crate) fn make_lvm(random: &mut Random) -> Vec<u8> {
    let mut text = include_bytes!("../seeds/lvm-text").to_vec();
    for _ in 0..random.below(6) {
        change_number(random, &mut text);
    }
    if random.below(2) == 0 {
        let length = text.len();
        mutate(random, &mut text, length);
    }
    let mut disk = vec![0; SECTORS * SECTOR];
    let mut label = vec![0; SECTOR];
    put(&mut label, 0, *b"LABELONE\x01\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0LVM2 001");
    put(&mut label, 32, *b"XrGSkkzcKV2kqoqx1eQtaRCneXfoaQMZ");
    put(&mut label, 72, (1_u64 << 20).to_le_bytes());
    put(&mut label, 104, (AREA_AT as u64).to_le_bytes());
    put(&mut label, 112, (AREA_BYTES as u64).to_le_bytes());
    let mut header = vec![0; SECTOR];
    let offset = 512 + random.below(AREA_BYTES - 512);
    put(&mut header, 4, *b" LVM2 x[5A%r0N*>\x01\0\0\0");
    put(&mut header, 24, (AREA_AT as u64).to_le_bytes());
    put(&mut header, 32, (AREA_BYTES as u64).to_le_bytes());
    put(&mut header, 40, (offset as u64).to_le_bytes());
    put(&mut header, 48, (text.len() as u64).to_le_bytes());
    put(&mut header, 56, crc32(LVM_CRC_START, &text).to_le_bytes());
    for (page, at) in [(&mut label, 16), (&mut header, 0)] {
        if random.below(4) == 0 {
            mutate(random, page, 160);
            page.resize(SECTOR, 0);
        }
        if random.below(8) > 0 {
            let crc = crc32(LVM_CRC_START, &page[at + 4..]);
            put(page, at, crc.to_le_bytes());
        }
    }
    disk[SECTOR..2 * SECTOR].copy_from_slice(&label);
    for (index, byte) in text.iter().enumerate() {
        let at = offset + index;
        disk[AREA_AT + if at < AREA_BYTES { at } else { at - AREA_BYTES + 512 }] = *byte;
    }
    disk[AREA_AT..AREA_AT + SECTOR].copy_from_slice(&header);
    with_torn(random, disk)
}

/// Another number in the place of one of the text's.
fn change_number(random: &mut Random, text: &mut Vec<u8>) {
    let from = random.below(text.len());
    let Some(at) = text[from..].iter().position(u8::is_ascii_digit).map(|at| from + at) else {
        return;
    };
    let digits = text[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = match random.below(3) {
        0 => random.below(4) as u64,
        1 => random.next() >> random.below(64),
        _ => i64::MAX as u64 - random.below(2) as u64,
    };
    text.splice(at..at + digits, number.to_string().into_bytes());
}

pub(crate) fn run_lvm(bytes: &[u8]) {
    let Some(mut disk) = Disk::new(bytes) else { return };
    let volume = match PhysicalVolume::read(&mut disk) {
        Ok(volume) => volume,
        Err(why) => return assert!(!why.to_string().is_empty()),
    };
    // The text names three; two of them are not there, or the same twice.
    for given in [vec![volume.clone()], vec![volume.clone(), volume]] {
        for group in groups(&given) {
            assert!(group.remarks.iter().all(|remark| !remark.to_string().is_empty()));
            group.description.logical_volumes.iter().for_each(check_volume);
        }
    }
}

fn check_volume(volume: &LogicalVolume) {
    if let Err(why) = &volume.segments {
        assert!(!why.to_string().contains(char::is_control) && volume.piece(0).is_none());
        return;
    }
    let mut at: u64 = 0;
    for piece in volume.pieces(0..u64::MAX).take(1000) {
        assert_eq!(volume.piece(at), Some(piece));
        assert!(piece.bytes > 0 && piece.offset_bytes.checked_add(piece.bytes).is_some());
        at += piece.bytes;
    }
    assert!(at <= volume.size_bytes && volume.piece(volume.size_bytes).is_none());
    let Some(last) = volume.size_bytes.checked_sub(1) else { return };
    assert_eq!(volume.piece(last).map(|piece| piece.bytes), Some(1));
}

#[cfg(test)]
mod tests {
    use super::{Disk, PhysicalVolume, groups, make_lvm, make_map, make_table, partitions};
    use crate::mutate::Random;
    use braid_rescue::map_file::MapFile;
    use braid_rescue::partitions::{Remark, TableKind};

    const CASES: u64 = 2000;

    /// Bytes that all are refused at the first look find nothing.
    #[test]
    fn cases_get_to_what_they_are_for() {
        let mut tables = [0; 4];
        let mut volumes = [0; 2];
        let mut maps = 0;
        for case in 0..CASES {
            let bytes = make_table(&mut Random::new(case));
            if let Ok(table) = partitions::read(&mut Disk::new(&bytes).unwrap()) {
                tables[0] += u64::from(table.kind == TableKind::Gpt);
                tables[1] += u64::from(table.kind == TableKind::Mbr);
                let has = |wanted: fn(&Remark) -> bool| u64::from(table.remarks.iter().any(wanted));
                tables[2] += has(|remark| matches!(remark, Remark::BackupUsed { .. }));
                tables[3] += has(|remark| matches!(remark, Remark::Loop { .. }));
            }
            let bytes = make_lvm(&mut Random::new(case));
            if let Ok(volume) = PhysicalVolume::read(&mut Disk::new(&bytes).unwrap()) {
                let found = groups(&[volume]);
                let logical = found.iter().flat_map(|group| &group.description.logical_volumes);
                let is_read: Vec<bool> = logical.map(|volume| volume.segments.is_ok()).collect();
                volumes[0] += u64::from(is_read.contains(&true));
                volumes[1] += u64::from(is_read.contains(&false));
            }
            let bytes = make_map(&mut Random::new(case));
            maps +=
                u64::from(MapFile::parse(&bytes, 1 << 40).is_ok_and(|m| !m.unrescued().is_empty()));
        }
        let enough = |count: &u64| *count > CASES / 50;
        assert!(tables.iter().chain(&volumes).all(enough), "{tables:?} {volumes:?}");
        assert!(maps > CASES / 4, "{maps}");
    }
}
