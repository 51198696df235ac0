//! The machine against disks in memory.
//!
//! The disks answer at once unless a test holds I/O back or lets it fail, forget what was not
//! flushed when the power is cut, and carry real metadata, from which an array can be assembled
//! again. Mixtures of faults, delays and power cuts are the simulator's business; its findings are
//! kept here, one readable test for each.

mod bitmap;
mod cached;
mod compute;
mod disk;
mod failure;
mod full;
mod grow;
mod hang;
mod invariants;
mod logs;
mod mending;
mod moving;
mod nested;
mod past;
mod ranges;
mod recovery;
mod regrown;
mod restart;
mod resync;
mod serve;
mod suspended;
mod suspended_journal;
mod unread;
mod unused;
mod unvouched;
mod verify;
mod world;

use super::*;
use crate::action::CommandId;
use crate::assemble::{Had, MemberConfig, Standing};
use crate::events::ArrayEvent;
use crate::format::superblock::{DevRole, MAX_SECTOR, Version};
use crate::format::{BadBlocks, Bitmap, Superblock};
use crate::{Buf, IoOp, Op, RequestError, Role, SECTOR_BYTES};
use world::World;

const SUPER_SECTOR: u64 = 8;
const BITMAP_SECTOR: u64 = 16;
const LOG_SECTOR: u64 = 24;
const DATA_OFFSET: u64 = 64;
const MEMBER_SECTORS: u64 = 2048;
/// Height of a unit of background work.
const UNIT: u64 = 128;

fn superblock(level: i32, layout: u32, disks: u32, chunk: u32, number: u32) -> Superblock {
    let plain = level <= 0;
    Superblock {
        version: Version::V1_2,
        feature_map: 0,
        set_uuid: [7; 16],
        set_name: [0; 32],
        ctime: 0,
        level,
        layout,
        size_sectors: if plain { 0 } else { MEMBER_SECTORS },
        chunk_sectors: if level == 1 { 0 } else { chunk },
        raid_disks: disks,
        bitmap_offset_sectors: 0,
        reshape: crate::format::superblock::Reshape { position: u64::MAX, ..Default::default() },
        data_offset: DATA_OFFSET,
        data_size: MEMBER_SECTORS,
        super_offset: SUPER_SECTOR,
        recovery_offset: 0,
        dev_number: number,
        corrected_reads: 0,
        device_uuid: [number as u8; 16],
        devflags: 0,
        bblog_shift: 0,
        bblog_size_sectors: 8,
        bblog_offset_sectors: 16,
        utime: 0,
        events: 10,
        resync_offset: MAX_SECTOR,
        roles: Role::all(disks as u16).map(DevRole::Active).collect(),
        ..Superblock::blank()
    }
}

/// A bitmap with a bit for each unit.
fn add_bitmap(config: &mut Config) {
    let uuid = config.superblock.set_uuid;
    let chunk_bytes = (UNIT * SECTOR_BYTES) as u32;
    let mut bitmap = Bitmap::new(uuid, MEMBER_SECTORS, Some(chunk_bytes), 8).unwrap();
    bitmap.superblock.events = config.superblock.events;
    config.bitmap = Some(bitmap);
    let members = config.members.iter_mut().map(|member| &mut member.superblock);
    for superblock in members.chain([&mut config.superblock]) {
        superblock.feature_map |= feature::BITMAP_OFFSET;
        superblock.bitmap_offset_sectors = (BITMAP_SECTOR - SUPER_SECTOR) as i32;
    }
}

/// Gives an array superblocks 0.90: these lie behind the data, which begin with the devices.
fn make_old(config: &mut Config) {
    let device_sectors = DATA_OFFSET + MEMBER_SECTORS;
    let place = Version::V0_90.location(device_sectors).unwrap();
    config.bitmap = config.bitmap.as_ref().and_then(|bitmap| bitmap.resized(place));
    let members = config.members.iter_mut().map(|member| &mut member.superblock);
    for superblock in members.chain([&mut config.superblock]) {
        superblock.version = Version::V0_90;
        superblock.data_offset = 0;
        superblock.size_sectors = place;
        superblock.data_size = place;
        superblock.super_offset = place;
        superblock.bblog_size_sectors = 0;
    }
}

fn config(level: i32, layout: u32, disks: u32, chunk: u32) -> Config {
    let members = (0..disks)
        .map(|number| MemberConfig {
            device: format!("disk{number}"),
            device_sectors: DATA_OFFSET + MEMBER_SECTORS,
            superblock: superblock(level, layout, disks, chunk, number),
            bad_blocks: BadBlocks::default(),
            standing: Standing::InSync { role: Role(number as u16) },
        })
        .collect();
    Config {
        superblock: superblock(level, layout, disks, chunk, 0),
        members,
        bitmap: None,
        log: StartLog::None,
        read_only: false,
        force: false,
        block_bytes: 512,
        spill: None,
    }
}

/// Pseudo-random bytes.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = vec![0; len];
    for eight in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        eight.copy_from_slice(&state.to_le_bytes()[..eight.len()]);
    }
    bytes
}

const SHAPES: &[(i32, u32, u32, u32)] = &[
    (-1, 0, 2, 16),
    (0, 2, 3, 16),
    (1, 0, 2, 0),
    (1, 0, 3, 0),
    (4, 0, 4, 32),
    (5, 2, 3, 16),
    (5, 0, 4, 256),
    (5, 3, 5, 32),
    (6, 2, 4, 16),
    (6, 0, 5, 32),
    (6, 8, 6, 128),
    (6, 10, 5, 16),
    (6, 18, 5, 16),
    (10, 0x102, 4, 16),
    (10, 0x102, 3, 16),
    (10, 0x201, 4, 32),
    (10, 0x10201, 5, 16),
    (10, 0x103, 5, 16),
];

/// Fills the array with writes of odd sizes; what it holds then.
fn fill(world: &mut World) -> Vec<u8> {
    let sectors = world.array.array_sectors();
    let content = noise(sectors, (sectors * SECTOR_BYTES) as usize);
    let mut sector = 0;
    for step in 0.. {
        let len = [1, 7, 128, 513, 64, 1024, 333][step % 7].min(sectors - sector);
        if len == 0 {
            break;
        }
        let bytes = &content[(sector * SECTOR_BYTES) as usize..][..(len * SECTOR_BYTES) as usize];
        world.write(sector, bytes).unwrap();
        sector += len;
    }
    content
}

/// Returns whether no sector was read twice.
fn each_is_read_once(issued: &[(MemberId, IoOp)]) -> bool {
    let read = |(member, op): &(MemberId, IoOp)| match op {
        IoOp::Read { sector, buf } => {
            Some((*member, *sector, *sector + u64::from(buf.len) / SECTOR_BYTES))
        }
        _ => None,
    };
    let mut reads: Vec<_> = issued.iter().filter_map(read).collect();
    reads.sort_unstable();
    assert!(!reads.is_empty(), "nothing is read");
    reads.windows(2).all(|pair| pair[0].0 != pair[1].0 || pair[0].2 <= pair[1].1)
}

fn compare(world: &mut World, content: &[u8], what: &str) {
    let sectors = world.array.array_sectors();
    let mut sector = 0;
    while sector < sectors {
        let len = (sectors - sector).min(777);
        let read = world.read(sector, len).unwrap_or_else(|e| panic!("{what}: {sector}: {e}"));
        let start = (sector * SECTOR_BYTES) as usize;
        assert!(read == content[start..start + read.len()], "{what}: at sector {sector}");
        sector += len;
    }
}
