//! Headers of backups of a reshape, as a file or a disk of a stranger may have them: arrays in the
//! middle of a move in place are read and gone on with beside them, and nothing is written but to
//! members, within them.
//!
//! The first byte chooses the move, the second how far that is; then comes the header.

use braid_array::SECTOR_BYTES;
use braid_array::assemble::{Candidate, Halfway, Options, Start, decide, decide_saving};
use braid_array::format::backup::{BackupHeader, MAGIC_2};
use braid_array::format::superblock::{DevRole, MAX_SECTOR, Reshape, Superblock, Version, feature};
use braid_array::format::{BadBlocks, reshaped};

use crate::mutate::{Random, mutate};

const MEMBERS: u16 = 4;
const DEVICE_SECTORS: u64 = 8192;
const SIZE_SECTORS: u64 = 4096;
const CHUNK_SECTORS: u32 = 64;
/// The file's.
const BACKUP_SECTORS: u64 = 4096;
const ARRAY: [u8; 16] = [7; 16];
const NOW: u64 = 1_700_000_000;
const FILE: &str = "backup";

/// A header that could be one, and not quite in most cases.
pub(crate) fn make(random: &mut Random) -> Vec<u8> {
    let number = |random: &mut Random, most: usize| match random.below(4) {
        0 => random.next() >> random.below(64),
        _ => 192 * random.below(most) as u64,
    };
    let header = BackupHeader {
        set_uuid: ARRAY,
        mtime: NOW + random.below(100) as u64,
        start: number(random, 60),
        length: number(random, 12),
    };
    let mut bytes = header.encode();
    bytes.truncate(Halfway::BACKUP_HEADER_BYTES);
    if random.below(2) == 0 {
        bytes[..16].copy_from_slice(MAGIC_2);
        for at in [72, 80, 88] {
            bytes[at..at + 8].copy_from_slice(&number(random, 20).to_le_bytes());
        }
    }
    if random.below(2) == 0 {
        mutate(random, &mut bytes, 600);
    }
    [vec![random.next() as u8, random.next() as u8], bytes].concat()
}

pub(crate) fn run(data: &[u8]) {
    let [kind, position, header @ ..] = data else { return };
    let superblock = superblock(*kind, *position);
    let candidates: Vec<Candidate> =
        (0..MEMBERS).map(|number| candidate(number, &superblock)).collect();
    let force = kind & 64 != 0;
    let options = Options { force, run: false, read_only: true };
    let Start::Halfway(mut halfway) = decide(candidates.clone(), options).start else { return };
    let mut read = |device: &str, sector: u64, bytes: usize| {
        let sectors = if device == FILE { BACKUP_SECTORS } else { DEVICE_SECTORS };
        let end = sector.checked_add(bytes as u64 / SECTOR_BYTES)?;
        let content = |at: usize| (sector as usize * 31 + at / 7) as u8;
        (end <= sectors).then(|| (0..bytes).map(content).collect())
    };
    if halfway.look(&mut read).is_err() || halfway.add_backup(FILE, BACKUP_SECTORS, header).is_err()
    {
        return;
    }
    let _ = halfway.weigh(&mut read);
    if let Ok(pieces) = halfway.pieces() {
        assert_eq!(pieces.whole.members.len(), pieces.arrays.len());
    }
    for saves in [false, true] {
        let Some(settlement) = halfway.settled(&candidates, NOW, saves, &mut read) else {
            continue;
        };
        for write in settlement.data.iter().chain(&settlement.metadata) {
            let end = write.sector + write.bytes.len() as u64 / SECTOR_BYTES;
            assert!(write.device != FILE && end <= DEVICE_SECTORS, "{write:?}");
        }
        let is_data = |sector: u64| sector < SIZE_SECTORS;
        assert!(settlement.data.iter().all(|write| is_data(write.sector)));
        assert!(settlement.metadata.iter().all(|write| !is_data(write.sector)));
        let decide = if settlement.saves() { decide_saving } else { decide };
        let start = decide(settlement.candidates, Options { read_only: false, ..options }).start;
        assert!(!matches!(start, Start::Halfway(_)), "{start:?}");
    }
}

/// An array in the middle of a move of data in place, which Braid or md began.
fn superblock(kind: u8, position: u8) -> Superblock {
    let version = if kind & 32 == 0 { Version::V1_0 } else { Version::V0_90 };
    let micros = u64::from(kind & 16 != 0) << 40;
    let chunk_sectors = if kind & 3 == 2 { 2 * CHUNK_SECTORS } else { CHUNK_SECTORS };
    let layout = if kind & 3 == 3 { 0 } else { 2 };
    let mut superblock = Superblock {
        version,
        feature_map: feature::RESHAPE_ACTIVE,
        set_uuid: ARRAY,
        ctime: NOW,
        utime: NOW | micros,
        level: 5,
        layout: 2,
        size_sectors: SIZE_SECTORS,
        chunk_sectors: CHUNK_SECTORS,
        raid_disks: u32::from(MEMBERS),
        data_size: SIZE_SECTORS,
        super_offset: version.location(DEVICE_SECTORS).expect("a large device"),
        events: 9,
        resync_offset: MAX_SECTOR,
        roles: (0..MEMBERS).map(|role| DevRole::Active(braid_array::Role(role))).collect(),
        reshape: Reshape {
            new_level: 5,
            delta_disks: i32::from(kind & 3 == 1),
            new_layout: layout,
            new_chunk_sectors: chunk_sectors,
            ..Reshape::default()
        },
        ..Superblock::blank()
    };
    if kind & 8 != 0 {
        superblock = reshaped::turned(superblock);
    }
    let disks = u64::from(superblock.raid_disks) - 1;
    let unit = disks * u64::from(superblock.reshape.new_chunk_sectors.max(CHUNK_SECTORS));
    superblock.reshape.position = u64::from(position) * unit;
    superblock
}

fn candidate(number: u16, array: &Superblock) -> Candidate {
    let superblock = Superblock { dev_number: number.into(), ..array.clone() };
    Candidate {
        device: format!("d{number}"),
        device_sectors: DEVICE_SECTORS,
        superblock: Ok(superblock),
        bad_blocks: Ok(BadBlocks::default()),
        bitmap: None,
        log: None,
    }
}
