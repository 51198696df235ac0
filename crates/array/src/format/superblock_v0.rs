//! Superblock 0.90. Offsets as in the kernel's `include/uapi/linux/raid/md_p.h` (`mdp_super_t`),
//! numbers in the byte order of the machine that wrote it. In memory, and as they are written here,
//! all are little-endian:
//!
//! ```text
//!    0 md_magic       4 major_version   8 minor_version  12 patch_version  20 set_uuid0
//!   24 ctime         28 level          32 size (KiB)     36 nr_disks       40 raid_disks
//!   44 md_minor      52 set_uuid1      56 set_uuid2      60 set_uuid3      64 microseconds
//!  128 utime        132 state         136 active_disks  140 working_disks
//!  144 failed_disks 148 spare_disks
//!  152 sb_csum      156 events (64 bit)                 164 cp_events (64 bit)
//!  172 recovery_cp  176 reshape_position                184 new_level     188 delta_disks
//!  192 new_layout   196 new_chunk (bytes)               200 logical_block_size
//!  256 layout       260 chunk_size (bytes)
//!  512 disks[27], 128 bytes each: number, major, minor, raid_disk, state
//! 3968 this_disk, the same
//! ```
//! A member that is active has the number of its role, and others have those behind all roles. The
//! microseconds belong to `utime`, and are there in a reshape of Braid's alone: md has no such
//! field, and writes a zero there.
//!
//! A power cut may leave some of its sectors old and others new. So the sum of each sector behind
//! the first is made to be the same always, by a word at its end that md writes a zero to: the
//! checksum then fits any mixture of two superblocks. What an update of every day changes is in the
//! first sector. A mixture tells of an update in part, and nothing goes by that update before all
//! members were told.

use super::bytes::{array_at, checksum, i32_at, put, u32_at, u64_at};
use super::reshaped::all_roles;
use super::superblock::{
    DevRole, MAX_DEV_0_90, MAX_EVENTS, MAX_SECTOR, Reshape, Superblock, SuperblockError, Version,
    devflag, feature, time_code, time_parts,
};
use super::superblock_v1::MAGIC;
use crate::{Role, SECTOR_BYTES};

const SUPERBLOCK_BYTES: usize = 4096;
const CHECKSUM_AT: usize = 152;
const MICROS_AT: usize = 64;
const DISKS_AT: usize = 512;
const DISK_BYTES: usize = 128;
/// Bytes of a descriptor that have a meaning.
const DISK_FIELDS: usize = 20;
const THIS_DISK_AT: usize = 3968;

/// Numbers of 64 bits: `events`, `cp_events`, `reshape_position`.
const WIDE_AT: [usize; 3] = [156, 164, 176];

/// The four numbers of the UUID.
const UUID_AT: [usize; 4] = [20, 52, 56, 60];

const MINOR: u32 = 90;
/// The minor version in a reshape.
const MINOR_IN_RESHAPE: u32 = 91;

/// Bits of the array's `state`.
const STATE_CLEAN: u32 = 1 << 0;
const STATE_BITMAP_PRESENT: u32 = 1 << 8;

/// Bits of a disk's `state`.
const DISK_FAULTY: u32 = 1 << 0;
const DISK_ACTIVE: u32 = 1 << 1;
const DISK_SYNC: u32 = 1 << 2;
const DISK_REMOVED: u32 = 1 << 3;
const DISK_WRITE_MOSTLY: u32 = 1 << 9;
const DISK_FAILFAST: u32 = 1 << 10;

/// A bitmap lies right behind the superblock.
const BITMAP_OFFSET_SECTORS: i32 = 8;

/// The part of a device that 0.90 can describe: 4 TiB.
const MAX_DATA_SECTORS: u64 = 2 << 32;

/// Decodes a 0.90 superblock that was read at `sector`.
pub(super) fn decode(sector: u64, bytes: &[u8]) -> Result<Superblock, SuperblockError> {
    if bytes.len() < 4 || (u32_at(bytes, 0) != MAGIC && u32_at(bytes, 0) != MAGIC.swap_bytes()) {
        return Err(SuperblockError::NoMagic);
    }
    let Some(bytes) = bytes.get(..SUPERBLOCK_BYTES) else {
        return Err(SuperblockError::Truncated { bytes: bytes.len() });
    };
    if u32_at(bytes, 0) != MAGIC {
        return decode(sector, &in_this_order(bytes));
    }
    let major = u32_at(bytes, 4);
    let minor = u32_at(bytes, 8);
    if major != 0 || !(MINOR..=MINOR_IN_RESHAPE).contains(&minor) {
        let minor = if major == 0 { minor } else { 0 };
        return Err(SuperblockError::WrongVersion { major, minor });
    }
    let mut copy = bytes.to_vec();
    put(&mut copy, CHECKSUM_AT, [0; 4]);
    let stored = u32_at(bytes, CHECKSUM_AT);
    let computed = checksum(&copy);
    if fold(stored) != fold(computed) {
        return Err(SuperblockError::BadChecksum { stored, computed });
    }
    check(sector, bytes)?;
    Ok(fields(sector, minor, bytes))
}

/// Bytes that a machine of the other byte order wrote, as one of this order would have them. There,
/// numbers of 64 bits have their halves exchanged.
fn in_this_order(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|word| word.reverse());
    for at in WIDE_AT {
        let halves: [u8; 8] = array_at(&bytes, at);
        put(&mut bytes, at, array_at::<4>(&halves, 4));
        put(&mut bytes, at + 4, array_at::<4>(&halves, 0));
    }
    bytes
}

/// Checks the fields that are useless with other values.
fn check(sector: u64, bytes: &[u8]) -> Result<(), SuperblockError> {
    let malformed = |field, reason| Err(SuperblockError::Malformed { field, reason });
    let raid_disks = u32_at(bytes, 40);
    if !(1..=MAX_DEV_0_90).contains(&raid_disks) {
        return malformed("raid_disks", format!("is {raid_disks}, not within 1 to {MAX_DEV_0_90}"));
    }
    let number = u32_at(bytes, THIS_DISK_AT);
    if number >= MAX_DEV_0_90 {
        return malformed("this_disk.number", format!("is {number}, not below {MAX_DEV_0_90}"));
    }
    for (field, at) in [("chunk_size", 260), ("new_chunk", 196)] {
        if !u32_at(bytes, at).is_multiple_of(512) {
            return malformed(field, format!("is {} bytes, not whole sectors", u32_at(bytes, at)));
        }
    }
    let events = u64_at(bytes, 156);
    if events > MAX_EVENTS {
        return malformed("events", format!("is {events}, which no array reaches"));
    }
    if sector == 0 {
        return malformed("size", "leaves no room for data".to_owned());
    }
    Ok(())
}

fn fields(sector: u64, minor: u32, bytes: &[u8]) -> Superblock {
    let state = u32_at(bytes, 132);
    let events = u64_at(bytes, 156);
    let level = i32_at(bytes, 28);
    let dev_number = u32_at(bytes, THIS_DISK_AT);
    let bitmap = state & STATE_BITMAP_PRESENT != 0;
    let mut feature_map = 0;
    if bitmap {
        feature_map |= feature::BITMAP_OFFSET;
    }
    let reshape = reshape(minor, bytes);
    let micros = if minor == MINOR_IN_RESHAPE { u32_at(bytes, MICROS_AT) } else { 0 };
    let mut recovery_offset = MAX_SECTOR;
    if minor == MINOR_IN_RESHAPE {
        feature_map |= feature::RESHAPE_ACTIVE;
        // Without a field of its own: a member that is active and not in sync has what the reshape
        // has moved (`super_90_sync` in the kernel's `md.c`).
        let state = disk_state(bytes, dev_number);
        if state & DISK_ACTIVE != 0 && state & DISK_SYNC == 0 {
            feature_map |= feature::RECOVERY_OFFSET;
            recovery_offset = reshape.position;
        }
    }
    let mut set_uuid = [0; 16];
    for (group, at) in UUID_AT.into_iter().enumerate() {
        put(&mut set_uuid, 4 * group, array_at::<4>(bytes, at));
    }
    Superblock {
        version: Version::V0_90,
        feature_map,
        set_uuid,
        set_name: [0; 32],
        ctime: time_code(u32_at(bytes, 24).into(), 0),
        level,
        layout: u32_at(bytes, 256),
        size_sectors: if level < 1 { 0 } else { u64::from(u32_at(bytes, 32)) * 2 },
        chunk_sectors: u32_at(bytes, 260) / 512,
        raid_disks: u32_at(bytes, 40),
        bitmap_offset_sectors: if bitmap { BITMAP_OFFSET_SECTORS } else { 0 },
        reshape,
        data_offset: 0,
        data_size: if level < 1 { sector } else { sector.min(MAX_DATA_SECTORS) },
        super_offset: sector,
        recovery_offset,
        dev_number,
        corrected_reads: 0,
        device_uuid: [0; 16],
        devflags: devflags(disk_state(bytes, dev_number)),
        bblog_shift: 0,
        bblog_size_sectors: 0,
        bblog_offset_sectors: 0,
        utime: time_code(u32_at(bytes, 128).into(), micros),
        events,
        resync_offset: if state & STATE_CLEAN != 0 {
            MAX_SECTOR
        } else if events == u64_at(bytes, 164) {
            u32_at(bytes, 172).into()
        } else {
            0
        },
        logical_block_bytes: u32_at(bytes, 200),
        preferred_minor: u32_at(bytes, 44),
        padding: [0; 32],
        error_mark: false,
        roles: roles(minor, bytes),
    }
}

/// The role of each device number.
fn roles(minor: u32, bytes: &[u8]) -> Vec<DevRole> {
    let mut roles: Vec<DevRole> =
        (0..used_disks(bytes)).map(|number| role(minor, bytes, number)).collect();
    // Half of an update in which it came to be active: it is what it was.
    let own = u32_at(bytes, THIS_DISK_AT + 16);
    if own & DISK_ACTIVE != 0
        && let Some(role @ DevRole::Faulty) = roles.get_mut(u32_at(bytes, THIS_DISK_AT) as usize)
    {
        *role = DevRole::Spare;
    }
    roles
}

/// Returns how many descriptors there are up to the last one that was ever used.
fn used_disks(bytes: &[u8]) -> u32 {
    let mut descriptors = bytes[DISKS_AT..THIS_DISK_AT].chunks_exact(DISK_BYTES);
    let is_used = |descriptor: &[u8]| descriptor[..DISK_FIELDS].iter().any(|byte| *byte != 0);
    let last = descriptors.rposition(is_used);
    last.map_or(0, |last| last as u32 + 1)
}

/// The bytes of a superblock, as `super_90_sync` in the kernel's `md.c` makes them. Devices by
/// their numbers that there is no room for are left out.
pub(super) fn encode(superblock: &Superblock) -> Vec<u8> {
    let mut bytes = vec![0; SUPERBLOCK_BYTES];
    let mut word = |at, number: u32| put(&mut bytes, at, number.to_le_bytes());
    let Superblock { reshape, events, .. } = superblock;
    let (created, _) = time_parts(superblock.ctime);
    let (updated, micros) = time_parts(superblock.utime);
    let seconds = |time: u64| u32::try_from(time).unwrap_or(u32::MAX);
    word(0, MAGIC);
    word(8, MINOR);
    word(24, seconds(created));
    word(28, superblock.level.cast_unsigned());
    word(32, u32::try_from(superblock.size_sectors / 2).unwrap_or(u32::MAX));
    word(40, superblock.raid_disks);
    word(44, superblock.preferred_minor);
    word(128, seconds(updated));
    word(200, superblock.logical_block_bytes);
    word(256, superblock.layout);
    word(260, superblock.chunk_sectors.saturating_mul(512));
    if superblock.has(feature::RESHAPE_ACTIVE) {
        word(8, MINOR_IN_RESHAPE);
        word(MICROS_AT, micros);
        word(184, reshape.new_level.cast_unsigned());
        word(188, reshape.delta_disks.cast_unsigned());
        word(192, reshape.new_layout);
        word(196, reshape.new_chunk_sectors.saturating_mul(512));
        put(&mut bytes, 176, reshape.position.to_le_bytes());
    }
    for (group, at) in UUID_AT.into_iter().enumerate() {
        put(&mut bytes, at, array_at::<4>(&superblock.set_uuid, 4 * group));
    }
    put(&mut bytes, 156, events.to_le_bytes());
    put_state(superblock, &mut bytes);
    put_disks(superblock, &mut bytes);
    for sector in bytes.chunks_exact_mut(SECTOR_BYTES as usize).skip(1) {
        let last = sector.len() - 4;
        put(sector, last, (u32::MAX - checksum(sector)).to_le_bytes());
    }
    let sum = checksum(&bytes);
    put(&mut bytes, CHECKSUM_AT, sum.to_le_bytes());
    bytes
}

/// The array's state, and how far a resync is.
fn put_state(superblock: &Superblock, bytes: &mut [u8]) {
    let mut state = 0;
    if superblock.has(feature::BITMAP_OFFSET) {
        state |= STATE_BITMAP_PRESENT;
    }
    match superblock.resync_offset {
        MAX_SECTOR => {
            state |= STATE_CLEAN;
            put(bytes, 164, superblock.events.to_le_bytes());
            put(bytes, 172, u32::MAX.to_le_bytes());
        }
        // Of what does not fit, nothing is in sync.
        resynced => {
            if let Ok(resynced @ 1..) = u32::try_from(resynced) {
                put(bytes, 164, superblock.events.to_le_bytes());
                put(bytes, 172, resynced.to_le_bytes());
            }
        }
    }
    put(bytes, 132, state.to_le_bytes());
}

/// The descriptors of all devices, and how many there are of each kind.
fn put_disks(superblock: &Superblock, bytes: &mut [u8]) {
    let roles = all_roles(superblock);
    let told = u32::try_from(superblock.roles.len()).unwrap_or(u32::MAX);
    // A spare that was away is not told of by the others.
    let devices = told.max(roles).max(superblock.dev_number.saturating_add(1));
    let mut active = 0;
    let mut failed = 0;
    let mut spare = 0;
    let mut removed = 0;
    for number in 0..devices.min(MAX_DEV_0_90) {
        let is_own = number == superblock.dev_number;
        let mut state = if is_own { disk_flags(superblock.devflags) } else { 0 };
        let mut raid_disk = number;
        match superblock.role_of(number) {
            DevRole::Active(role) => {
                // What it is rebuilt to is told by the position of a reshape alone.
                let recovers = is_own && superblock.has(feature::RECOVERY_OFFSET);
                state |= if recovers { DISK_ACTIVE } else { DISK_ACTIVE | DISK_SYNC };
                raid_disk = role.0.into();
                active += 1;
            }
            // Of the first one md says less.
            _ if number == 0 => state = DISK_REMOVED,
            _ if number < roles => {
                state = DISK_FAULTY | DISK_REMOVED;
                removed += 1;
            }
            DevRole::Faulty => {
                state |= DISK_FAULTY;
                failed += 1;
            }
            DevRole::Spare | DevRole::Journal => spare += 1,
        }
        let at = DISKS_AT + DISK_BYTES * number as usize;
        put(bytes, at, number.to_le_bytes());
        put(bytes, at + 12, raid_disk.to_le_bytes());
        put(bytes, at + 16, state.to_le_bytes());
    }
    let own = DISKS_AT + DISK_BYTES * superblock.dev_number.min(MAX_DEV_0_90 - 1) as usize;
    put(bytes, THIS_DISK_AT, array_at::<DISK_BYTES>(bytes, own));
    let counts = [
        (36, active + failed + spare),
        (136, active),
        (140, active + spare),
        (144, removed),
        (148, spare),
    ];
    counts.into_iter().for_each(|(at, count): (_, u32)| put(bytes, at, count.to_le_bytes()));
}

fn reshape(minor: u32, bytes: &[u8]) -> Reshape {
    if minor < MINOR_IN_RESHAPE {
        return Reshape::default();
    }
    Reshape {
        new_level: i32_at(bytes, 184),
        position: u64_at(bytes, 176),
        delta_disks: i32_at(bytes, 188),
        new_layout: u32_at(bytes, 192),
        new_chunk_sectors: u32_at(bytes, 196) / 512,
        new_offset: 0,
    }
}

fn disk_state(bytes: &[u8], number: u32) -> u32 {
    u32_at(bytes, DISKS_AT + DISK_BYTES * number as usize + 16)
}

/// The role of a device number. A descriptor that was never used is all zeroes.
fn role(minor: u32, bytes: &[u8], number: u32) -> DevRole {
    let state = disk_state(bytes, number);
    let raid_disk = u32_at(bytes, DISKS_AT + DISK_BYTES * number as usize + 12);
    if state & (DISK_FAULTY | DISK_REMOVED) != 0 {
        return DevRole::Faulty;
    }
    let active = if minor == MINOR_IN_RESHAPE { DISK_ACTIVE | DISK_SYNC } else { DISK_SYNC };
    match u16::try_from(raid_disk) {
        Ok(raid_disk) if state & active != 0 => DevRole::Active(Role(raid_disk)),
        _ => DevRole::Spare,
    }
}

const fn disk_flags(devflags: u8) -> u32 {
    let mut state = 0;
    if devflags & devflag::WRITE_MOSTLY != 0 {
        state |= DISK_WRITE_MOSTLY;
    }
    if devflags & devflag::FAILFAST != 0 {
        state |= DISK_FAILFAST;
    }
    state
}

const fn devflags(state: u32) -> u8 {
    let mut flags = 0;
    if state & DISK_WRITE_MOSTLY != 0 {
        flags |= devflag::WRITE_MOSTLY;
    }
    if state & DISK_FAILFAST != 0 {
        flags |= devflag::FAILFAST;
    }
    flags
}

/// md compares 0.90 checksums folded to 16 bits, since old kernels stored them so.
const fn fold(sum: u32) -> u32 {
    let once = (sum & 0xffff) + (sum >> 16);
    (once & 0xffff) + (once >> 16)
}
