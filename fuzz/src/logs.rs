//! md's two logs against the write hole: headers of the partial parity log, blocks of the write
//! journal.

use braid_array::format::journal::{
    BLOCK_BYTES, HEADER_BYTES as USED_BYTES, MetaBlock, Payload, page_checksum,
};
use braid_array::format::ppl::{self, HEADER_BYTES, PplArea, PplEntry, PplHeader};
use braid_array::format::{Superblock, Version};
use crc32c::crc32c;

use crate::mutate::{Random, mutate};

/// The array whose logs are looked at.
pub(crate) const ARRAY: [u8; 16] = [7; 16];

pub(crate) fn make_ppl(random: &mut Random) -> Vec<u8> {
    let entry = |random: &mut Random| PplEntry {
        data_sector: random.next() >> random.below(64),
        pp_bytes: random.next() as u32 >> random.below(32) & !511,
        data_bytes: random.next() as u32 >> random.below(32) & !511,
        parity_disk: random.below(5) as u32,
        checksum: random.next() as u32,
    };
    let entries = (0..random.below(149)).map(|_| entry(random)).collect();
    let mut bytes = PplHeader { generation: random.next(), entries }.encode(ARRAY);
    mutate(random, &mut bytes, 640);
    if random.below(8) > 0 && bytes.len() == HEADER_BYTES as usize {
        mend_header(&mut bytes);
    }
    bytes
}

pub(crate) fn mend_header(header: &mut [u8]) {
    header[532..536].fill(0);
    let sum = crc32c(header);
    header[532..536].copy_from_slice(&sum.to_le_bytes());
}

pub(crate) fn run_ppl(bytes: &[u8]) {
    let Ok(header) = PplHeader::decode(bytes, ARRAY) else { return };
    assert!(header.unit_bytes() >= u64::from(HEADER_BYTES));
    let again = PplHeader::decode(&header.encode(ARRAY), ARRAY);
    assert_eq!(again, Ok(header), "encoding changed it");
}

/// The fields of a superblock that say where a log is which is off for a time, and what lies about
/// it.
pub(crate) fn make_suspended(random: &mut Random) -> Vec<u8> {
    let offset = [8, -40, -8, 16, random.next() as i16][random.below(5)];
    let sectors = [256, 1024, 4096, 8, random.next() as u16][random.below(5)];
    let marks = [1, 3, random.below(8) as u16][random.below(3)];
    let place = ppl::place_code(offset, sectors & !7 | marks);
    let number = |random: &mut Random| match random.below(3) {
        0 => random.next() >> random.below(64),
        _ => [0, 8, 24, 280, 2048, 8192][random.below(6)],
    };
    let mut bytes = place.to_le_bytes().to_vec();
    (0..4).for_each(|_| bytes.extend(number(random).to_le_bytes()));
    bytes.extend([random.next() as u8, random.next() as u8]);
    bytes
}

/// A place that is believed is apart from all else, on a device that there can be.
pub(crate) fn run_suspended(bytes: &[u8]) {
    let Some((place, rest)) = bytes.split_first_chunk() else { return };
    let (numbers, rest) = rest.as_chunks::<8>();
    let ([super_offset, data_offset, data_size, bblog], [low, version]) = (numbers, rest) else {
        return;
    };
    let versions = [Version::V1_0, Version::V1_1, Version::V1_2, Version::V0_90];
    let superblock = Superblock {
        version: versions[usize::from(version % 4)],
        level: 5,
        bitmap_offset_sectors: i32::from_le_bytes(*place),
        super_offset: u64::from_le_bytes(*super_offset),
        data_offset: u64::from_le_bytes(*data_offset),
        data_size: u64::from_le_bytes(*data_size),
        bblog_offset_sectors: u64::from_le_bytes(*bblog) as i32,
        bblog_size_sectors: (low & 8).into(),
        ..Superblock::blank()
    };
    assert_eq!(PplArea::of(&superblock), Ok(None), "it is off");
    let Ok(Some(area)) = PplArea::kept(&superblock) else { return };
    assert!(ppl::is_suspended(&superblock), "a place without a mark");
    let end = area.sector.checked_add(area.sectors).expect("an end");
    let apart =
        |start: u64, sectors: u64| end <= start || start.saturating_add(sectors) <= area.sector;
    assert!(apart(superblock.super_offset, 1) && superblock.version != Version::V0_90);
    assert!(apart(superblock.data_offset, superblock.data_size), "{area:?} {superblock:?}");
    let log = superblock.bblog_sector().map(|at| (at, superblock.bblog_size_sectors.into()));
    assert!(log.is_none_or(|(at, sectors)| apart(at, sectors)), "{area:?} {superblock:?}");
}

pub(crate) fn make_block(random: &mut Random) -> Vec<u8> {
    let mut block = MetaBlock { seq: random.next(), position: random.next(), payloads: Vec::new() };
    let count = random.below(120);
    for _ in 0..count {
        let sector = random.next() >> random.below(64) & !7;
        let p = random.next() as u32;
        let payload = match random.below(4) {
            0 => Payload::Data { sector, checksums: vec![p; 1 + random.below(3)] },
            1 => Payload::Parity { sector, checksums: vec![p] },
            2 => Payload::Parity { sector, checksums: vec![p; 2] },
            _ => Payload::Flush { rows: vec![sector; random.below(8)] },
        };
        if used_bytes(&block) + payload.bytes() <= BLOCK_BYTES as usize {
            block.payloads.push(payload);
        }
    }
    let reach = used_bytes(&block);
    let mut bytes = block.encode(ARRAY);
    mutate(random, &mut bytes, reach);
    if random.below(8) > 0 && bytes.len() == BLOCK_BYTES as usize {
        mend_block(&mut bytes);
    }
    bytes
}

/// Bytes of a block that are in use.
fn used_bytes(block: &MetaBlock) -> usize {
    USED_BYTES as usize + block.payloads.iter().map(Payload::bytes).sum::<usize>()
}

/// A page has the checksum that a block has whose own is zero.
pub(crate) fn mend_block(block: &mut [u8]) {
    block[4..8].fill(0);
    let sum = page_checksum(ARRAY, block);
    block[4..8].copy_from_slice(&sum.to_le_bytes());
}

pub(crate) fn run_block(bytes: &[u8]) {
    let Ok(block) = MetaBlock::decode(bytes, ARRAY) else { return };
    assert!(used_bytes(&block) <= BLOCK_BYTES as usize);
    assert!(block.pages() <= 1024, "more pages than a block has room for");
    let again = MetaBlock::decode(&block.encode(ARRAY), ARRAY);
    assert_eq!(again, Ok(block), "encoding changed it");
}
