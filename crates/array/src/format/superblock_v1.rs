//! Superblock 1.x: the codec. Offsets as in the kernel's `include/uapi/linux/raid/md_p.h`
//! (`struct mdp_superblock_1`), all numbers little-endian:
//!
//! ```text
//!   0 magic          4 major_version    8 feature_map   12 pad0          16 set_uuid[16]
//!  32 set_name[32]  64 ctime           72 level         76 layout        80 size
//!  88 chunksize     92 raid_disks      96 bitmap_offset 100 new_level    104 reshape_position
//! 112 delta_disks  116 new_layout     120 new_chunk     124 new_offset   128 data_offset
//! 136 data_size    144 super_offset   152 recovery_offset / journal_tail 160 dev_number
//! 164 cnt_corrected_read              168 device_uuid[16]                184 devflags
//! 185 bblog_shift  186 bblog_size     188 bblog_offset  192 utime        200 events
//! 208 resync_offset                   216 sb_csum       220 max_dev      224 logical_block_size
//! 228 pad3[28]
//! 256 dev_roles[max_dev], two bytes each
//! ```

use super::bytes::{array_at, checksum, i32_at, put, u16_at, u32_at, u64_at};
use super::superblock::{
    DevRole, MAX_DEV, MAX_EVENTS, Reshape, Superblock, SuperblockError, Version,
};
use crate::Role;

/// `MD_SB_MAGIC`.
pub(crate) const MAGIC: u32 = 0xa92b_4efc;

/// Bytes before the roles.
const FIXED_BYTES: usize = 256;

/// Offset of the checksum.
const CHECKSUM_AT: usize = 216;

/// The largest role number a device can have (`MD_DISK_ROLE_MAX`).
const ROLE_MAX: u16 = 0xff00;
const ROLE_JOURNAL: u16 = 0xfffd;
const ROLE_FAULTY: u16 = 0xfffe;
const ROLE_SPARE: u16 = 0xffff;

/// With this bit, Synology's md marks the role of a disk that had errors, and goes on with it.
const ROLE_ERROR: u16 = 0x8000;

/// Decodes a 1.x superblock that was read at `sector`.
pub(super) fn decode(
    version: Version,
    sector: u64,
    bytes: &[u8],
) -> Result<Superblock, SuperblockError> {
    if bytes.len() < 4 || u32_at(bytes, 0) != MAGIC {
        return Err(SuperblockError::NoMagic);
    }
    if bytes.len() < FIXED_BYTES {
        return Err(SuperblockError::Truncated { bytes: bytes.len() });
    }
    let major = u32_at(bytes, 4);
    if major != 1 {
        let minor = if major == 0 { u32_at(bytes, 8) } else { 0 };
        return Err(SuperblockError::WrongVersion { major, minor });
    }
    let max_dev = u32_at(bytes, 220);
    if max_dev > MAX_DEV {
        return Err(malformed("max_dev", format!("is {max_dev}, more than {MAX_DEV}")));
    }
    let used_bytes = FIXED_BYTES + 2 * max_dev as usize;
    let Some(used) = bytes.get(..used_bytes) else {
        return Err(SuperblockError::Truncated { bytes: bytes.len() });
    };
    let stored = u32_at(used, CHECKSUM_AT);
    let computed = checksum_of(used);
    if stored != computed {
        return Err(SuperblockError::BadChecksum { stored, computed });
    }
    let superblock = fields(version, used);
    check(&superblock, sector)?;
    Ok(superblock)
}

/// All fields of a superblock whose length is right.
fn fields(version: Version, bytes: &[u8]) -> Superblock {
    Superblock {
        version,
        feature_map: u32_at(bytes, 8),
        set_uuid: array_at(bytes, 16),
        set_name: array_at(bytes, 32),
        ctime: u64_at(bytes, 64),
        level: i32_at(bytes, 72),
        layout: u32_at(bytes, 76),
        size_sectors: u64_at(bytes, 80),
        chunk_sectors: u32_at(bytes, 88),
        raid_disks: u32_at(bytes, 92),
        bitmap_offset_sectors: i32_at(bytes, 96),
        reshape: Reshape {
            new_level: i32_at(bytes, 100),
            position: u64_at(bytes, 104),
            delta_disks: i32_at(bytes, 112),
            new_layout: u32_at(bytes, 116),
            new_chunk_sectors: u32_at(bytes, 120),
            new_offset: i32_at(bytes, 124),
        },
        data_offset: u64_at(bytes, 128),
        data_size: u64_at(bytes, 136),
        super_offset: u64_at(bytes, 144),
        recovery_offset: u64_at(bytes, 152),
        dev_number: u32_at(bytes, 160),
        corrected_reads: u32_at(bytes, 164),
        device_uuid: array_at(bytes, 168),
        devflags: bytes[184],
        bblog_shift: bytes[185],
        bblog_size_sectors: u16_at(bytes, 186),
        bblog_offset_sectors: i32_at(bytes, 188),
        utime: u64_at(bytes, 192),
        events: u64_at(bytes, 200),
        resync_offset: u64_at(bytes, 208),
        logical_block_bytes: u32_at(bytes, 224),
        preferred_minor: 0,
        padding: padding(bytes),
        error_mark: {
            let number = u32_at(bytes, 160) as usize;
            let own = bytes[FIXED_BYTES..].as_chunks().0.get(number);
            own.is_some_and(|raw| is_marked(u16::from_le_bytes(*raw)))
        },
        roles: bytes[FIXED_BYTES..].as_chunks().0.iter().map(|raw| role(*raw)).collect(),
    }
}

/// `pad0` and `pad3`, one behind the other.
fn padding(bytes: &[u8]) -> [u8; 32] {
    let mut padding = [0; 32];
    put(&mut padding, 0, array_at::<4>(bytes, 12));
    put(&mut padding, 4, array_at::<28>(bytes, 228));
    padding
}

/// Checks the fields that md itself checks when it loads a superblock.
fn check(superblock: &Superblock, sector: u64) -> Result<(), SuperblockError> {
    if superblock.super_offset != sector {
        let reason = format!("is {}, but it was read at {sector}", superblock.super_offset);
        return Err(malformed("super_offset", reason));
    }
    if superblock.data_size < 10 {
        return Err(malformed("data_size", format!("is only {} sectors", superblock.data_size)));
    }
    if superblock.data_offset.checked_add(superblock.data_size).is_none() {
        return Err(malformed("data_offset", "and data_size end beyond any device".to_owned()));
    }
    // A role is a number below `ROLE_MAX`, so there are at most as many.
    if superblock.raid_disks > ROLE_MAX.into() {
        let reason = format!("is {}, more than {ROLE_MAX}", superblock.raid_disks);
        return Err(malformed("raid_disks", reason));
    }
    if superblock.events > MAX_EVENTS {
        let reason = format!("is {}, which no array reaches", superblock.events);
        return Err(malformed("events", reason));
    }
    Ok(())
}

/// The bytes of a superblock, rounded up to whole sectors.
pub(super) fn encode(superblock: &Superblock) -> Vec<u8> {
    let used_bytes = FIXED_BYTES + 2 * superblock.roles.len();
    let mut bytes = vec![0; used_bytes.next_multiple_of(512)];
    put_array_fields(superblock, &mut bytes);
    put_device_fields(superblock, &mut bytes);
    for (number, role) in superblock.roles.iter().enumerate() {
        let is_own = number == superblock.dev_number as usize;
        let mark = if superblock.error_mark && is_own { ROLE_ERROR } else { 0 };
        put(&mut bytes, FIXED_BYTES + 2 * number, (role_code(*role) | mark).to_le_bytes());
    }
    let sum = checksum_of(&bytes[..used_bytes]);
    put(&mut bytes, CHECKSUM_AT, sum.to_le_bytes());
    bytes
}

/// The fields that are the same on all members.
fn put_array_fields(superblock: &Superblock, bytes: &mut [u8]) {
    let max_dev = u32::try_from(superblock.roles.len()).expect("at most MAX_DEV roles");
    assert!(max_dev <= MAX_DEV, "at most MAX_DEV roles");
    put(bytes, 0, MAGIC.to_le_bytes());
    put(bytes, 4, 1u32.to_le_bytes());
    put(bytes, 16, superblock.set_uuid);
    put(bytes, 32, superblock.set_name);
    put(bytes, 64, superblock.ctime.to_le_bytes());
    put(bytes, 72, superblock.level.to_le_bytes());
    put(bytes, 76, superblock.layout.to_le_bytes());
    put(bytes, 80, superblock.size_sectors.to_le_bytes());
    put(bytes, 88, superblock.chunk_sectors.to_le_bytes());
    put(bytes, 92, superblock.raid_disks.to_le_bytes());
    put(bytes, 96, superblock.bitmap_offset_sectors.to_le_bytes());
    put(bytes, 100, superblock.reshape.new_level.to_le_bytes());
    put(bytes, 104, superblock.reshape.position.to_le_bytes());
    put(bytes, 112, superblock.reshape.delta_disks.to_le_bytes());
    put(bytes, 116, superblock.reshape.new_layout.to_le_bytes());
    put(bytes, 120, superblock.reshape.new_chunk_sectors.to_le_bytes());
    put(bytes, 192, superblock.utime.to_le_bytes());
    put(bytes, 200, superblock.events.to_le_bytes());
    put(bytes, 208, superblock.resync_offset.to_le_bytes());
    put(bytes, 220, max_dev.to_le_bytes());
    put(bytes, 224, superblock.logical_block_bytes.to_le_bytes());
    put(bytes, 12, array_at::<4>(&superblock.padding, 0));
    put(bytes, 228, array_at::<28>(&superblock.padding, 4));
}

/// The fields that are the member's own.
fn put_device_fields(superblock: &Superblock, bytes: &mut [u8]) {
    put(bytes, 8, superblock.feature_map.to_le_bytes());
    put(bytes, 124, superblock.reshape.new_offset.to_le_bytes());
    put(bytes, 128, superblock.data_offset.to_le_bytes());
    put(bytes, 136, superblock.data_size.to_le_bytes());
    put(bytes, 144, superblock.super_offset.to_le_bytes());
    put(bytes, 152, superblock.recovery_offset.to_le_bytes());
    put(bytes, 160, superblock.dev_number.to_le_bytes());
    put(bytes, 164, superblock.corrected_reads.to_le_bytes());
    put(bytes, 168, superblock.device_uuid);
    put(bytes, 184, [superblock.devflags, superblock.bblog_shift]);
    put(bytes, 186, superblock.bblog_size_sectors.to_le_bytes());
    put(bytes, 188, superblock.bblog_offset_sectors.to_le_bytes());
}

/// The checksum over the fixed part and the roles, with the checksum field taken as zero.
fn checksum_of(used: &[u8]) -> u32 {
    let mut copy = used.to_vec();
    put(&mut copy, CHECKSUM_AT, [0; 4]);
    checksum(&copy)
}

/// A role from its code. Codes that md gives no meaning keep the device out, as faulty does.
const fn role(raw: [u8; 2]) -> DevRole {
    match u16::from_le_bytes(raw) {
        ROLE_SPARE => DevRole::Spare,
        ROLE_JOURNAL => DevRole::Journal,
        code if is_marked(code) => DevRole::Active(Role(code & !ROLE_ERROR)),
        code if code < ROLE_MAX => DevRole::Active(Role(code)),
        _ => DevRole::Faulty,
    }
}

/// Tells whether a code has Synology's mark. No array has so many members that its roles have it.
const fn is_marked(code: u16) -> bool {
    code & ROLE_ERROR != 0 && ((code & !ROLE_ERROR) as u32) < MAX_DEV
}

/// The code of a role.
const fn role_code(role: DevRole) -> u16 {
    match role {
        DevRole::Active(role) => role.0,
        DevRole::Spare => ROLE_SPARE,
        DevRole::Faulty => ROLE_FAULTY,
        DevRole::Journal => ROLE_JOURNAL,
    }
}

fn malformed(field: &'static str, reason: String) -> SuperblockError {
    SuperblockError::Malformed { field, reason }
}
