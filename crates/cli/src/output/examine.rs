//! `mdadm --examine` for one member: the text, the `--export` lines, JSON.

use std::fmt::Write as _;

use braid_array::SECTOR_BYTES;
use braid_array::format::superblock::{devflag, feature};
use braid_array::format::{BitmapSuperblock, DevRole, Superblock, Version};
use serde_json::{Value, json};

use super::examined::{Examined, field, layout, reshape};
use super::{examine_090, human, names, shape, time};

/// The lines of `mdadm --examine`.
pub(crate) fn text(member: &Examined) -> String {
    if member.superblock.version == Version::V0_90 {
        return examine_090::text(member);
    }
    let mut text = format!("{}:\n", member.device);
    head(&mut text, &member.superblock);
    sizes(&mut text, &member.superblock);
    place(&mut text, member);
    reshape(&mut text, &member.superblock);
    update(&mut text, member);
    layout(&mut text, &member.superblock);
    roles(&mut text, &member.superblock);
    text
}

fn head(text: &mut String, sb: &Superblock) {
    let name = sb.name();
    field(text, "Magic", "a92b4efc");
    field(text, "Version", shape::version_name(sb.version));
    field(text, "Feature Map", format!("{:#x}", sb.feature_map));
    field(text, "Array UUID", sb.uuid_text());
    field(text, "Name", format!("{name}{}", super::local_note(&name)));
    field(text, "Creation Time", time::ctime(sb.ctime));
    field(text, "Raid Level", shape::level_name(sb.level));
    field(text, "Raid Devices", sb.raid_disks);
    text.push('\n');
}

fn sectors_both(sectors: u64) -> String {
    format!("{sectors} sectors{}", human::size_both(sectors.saturating_mul(SECTOR_BYTES)))
}

fn sizes(text: &mut String, sb: &Superblock) {
    field(text, "Avail Dev Size", sectors_both(sb.data_size));
    if let Some(bytes) = shape::array_bytes(sb) {
        field(text, "Array Size", format!("{} KiB{}", bytes >> 10, human::size_both(bytes)));
    }
    // mdadm compares the level unsigned: linear gets the line too, raid0 does not.
    if sb.level != 0 && sb.size_sectors != sb.data_size {
        field(text, "Used Dev Size", sectors_both(sb.size_sectors));
    }
    // mdadm 4.2 does not know it; the name is that of the field.
    if sb.logical_block_bytes != 0 {
        field(text, "Block Size", format!("{} bytes", sb.logical_block_bytes));
    }
}

fn place(text: &mut String, member: &Examined) {
    let sb = &member.superblock;
    if sb.data_offset != 0 {
        field(text, "Data Offset", format!("{} sectors", sb.data_offset));
    }
    if sb.has(feature::NEW_OFFSET) {
        let new = sb.data_offset.wrapping_add_signed(sb.reshape.new_offset.into());
        field(text, "New Offset", format!("{new} sectors"));
    }
    field(text, "Super Offset", format!("{} sectors", sb.super_offset));
    if sb.has(feature::RECOVERY_OFFSET) {
        let label = if sb.has(feature::JOURNAL) { "Journal Offset" } else { "Recovery Offset" };
        field(text, label, format!("{} sectors", sb.recovery_offset));
    }
    let (before, after) = unused(member);
    if !sb.has(feature::NEW_OFFSET) {
        let after_text = if after < 0 {
            format!("-{} sectors DEVICE TOO SMALL", after.unsigned_abs())
        } else {
            format!("{after} sectors")
        };
        field(text, "Unused Space", format!("before={before} sectors, after={after_text}"));
    }
    let state = if shape::is_clean(sb) { "clean" } else { "active" };
    let truncated = if after < 0 { " TRUNCATED DEVICE" } else { "" };
    field(text, "State", format!("{state}{truncated}"));
    field(text, "Device UUID", human::uuid(sb.device_uuid));
    text.push('\n');
    if sb.has(feature::BITMAP_OFFSET) {
        let offset = sb.bitmap_offset_sectors;
        field(text, "Internal Bitmap", format!("{offset} sectors from superblock"));
    } else if sb.has(feature::PPL | feature::MULTIPLE_PPLS) {
        let [o0, o1, s0, s1] = sb.bitmap_offset_sectors.to_le_bytes();
        let offset = i16::from_le_bytes([o0, o1]);
        let size = u16::from_le_bytes([s0, s1]);
        let place = format!("{size} sectors at offset {offset} sectors from superblock");
        field(text, "PPL", place);
    }
}

/// Sectors before and after the data that nothing uses.
fn unused(member: &Examined) -> (u64, i128) {
    // The kernel keeps so much from the superblock on.
    const KERNEL_KEEPS: u64 = 72;
    let sb = &member.superblock;
    // The size is that of members: a journal takes all there is.
    let own = sb.size_sectors == 0 || sb.role() == DevRole::Journal;
    let used = if own { sb.data_size } else { sb.size_sectors };
    let data_end = i128::from(sb.data_offset) + i128::from(used);
    let bitmap = sb.bitmap_sector();
    if sb.super_offset < sb.data_offset {
        let mut end = sb.super_offset + KERNEL_KEEPS;
        if let (Some(at), Some(bitmap)) = (bitmap, &member.bitmap) {
            end = end.max(at.saturating_add(bitmap_sectors(bitmap)));
        }
        if let Some(at) = sb.bblog_sector() {
            end = end.max(at.saturating_add(sb.bblog_size_sectors.into()));
        }
        let after = i128::from(member.device_sectors) - data_end;
        return (sb.data_offset.saturating_sub(end), after);
    }
    let mut first = sb.super_offset;
    if sb.has(feature::BITMAP_OFFSET) {
        first = first.min(bitmap.unwrap_or(first));
    }
    first = first.min(sb.bblog_sector().unwrap_or(first));
    (sb.data_offset, i128::from(first) - data_end)
}

/// Size of a bitmap with its superblock of 256 bytes.
fn bitmap_sectors(bitmap: &BitmapSuperblock) -> u64 {
    let chunk_sectors = (u64::from(bitmap.chunk_bytes) / SECTOR_BYTES).max(1);
    let bits = bitmap.sync_size_sectors.div_ceil(chunk_sectors);
    (bits.div_ceil(8) + 256).div_ceil(SECTOR_BYTES)
}

fn update(text: &mut String, member: &Examined) {
    let sb = &member.superblock;
    if sb.devflags != 0 {
        let flags = [(devflag::WRITE_MOSTLY, " write-mostly"), (devflag::FAILFAST, " failfast")];
        let set = flags.iter().filter(|(bit, _)| sb.devflags & bit != 0);
        let words: String = set.map(|(_, word)| *word).collect();
        let _ = writeln!(text, "{:>15} :{words}", "Flags");
    }
    field(text, "Update Time", time::ctime(sb.utime));
    if sb.bblog_sector().is_some() {
        let entries = u32::from(sb.bblog_size_sectors) * 64;
        let offset = sb.bblog_offset_sectors;
        let bad = if sb.has(feature::BAD_BLOCKS) { " - bad blocks present." } else { "" };
        let log = format!("{entries} entries available at offset {offset} sectors{bad}");
        field(text, "Bad Block Log", log);
    }
    field(text, "Checksum", format!("{:x} - correct", member.checksum()));
    field(text, "Events", sb.events);
    text.push('\n');
}

fn roles(text: &mut String, sb: &Superblock) {
    let role = match sb.role() {
        DevRole::Active(role) if sb.has(feature::REPLACEMENT) => {
            format!("Replacement device {role}")
        }
        DevRole::Active(role) => format!("Active device {role}"),
        DevRole::Journal => "Journal".to_owned(),
        DevRole::Spare | DevRole::Faulty => "spare".to_owned(),
    };
    let meaning = "('A' == active, '.' == missing, 'R' == replacing)";
    let _ = writeln!(text, "   Device Role : {role}");
    let _ = writeln!(text, "   Array State : {} {meaning}", role_marks(sb));
}

fn role_marks(sb: &Superblock) -> String {
    let mut holders = vec![0u32; sb.raid_disks as usize];
    for role in &sb.roles {
        if let DevRole::Active(role) = role
            && let Some(count) = holders.get_mut(role.index())
        {
            *count += 1;
        }
    }
    holders.iter().map(|count| ['.', 'A', 'R', '?'][(*count).min(3) as usize]).collect()
}

/// The lines of `mdadm --examine --export`.
pub(crate) fn export(member: &Examined) -> String {
    let sb = &member.superblock;
    let mut text = String::new();
    let _ = writeln!(text, "MD_LEVEL={}", shape::level_name(sb.level));
    let _ = writeln!(text, "MD_DEVICES={}", sb.raid_disks);
    if sb.version == Version::V0_90 {
        let _ = writeln!(text, "MD_UUID={}", sb.uuid_text());
        // Of 0.90 mdadm prints the creation time here, and scripts may have come to terms with it.
        let _ = writeln!(text, "MD_UPDATE_TIME={}", time::seconds(sb.ctime));
        let _ = writeln!(text, "MD_EVENTS={}", sb.events);
        return text;
    }
    let name = sb.name();
    let name = names::in_export(&name);
    if !name.is_empty() {
        let _ = writeln!(text, "MD_NAME={name}");
    }
    if let Some(bytes) = shape::array_bytes(sb) {
        let _ = writeln!(text, "MD_ARRAY_SIZE={}", human::size_brief(bytes));
    }
    let _ = writeln!(text, "MD_UUID={}", sb.uuid_text());
    let _ = writeln!(text, "MD_UPDATE_TIME={}", time::seconds(sb.utime));
    let _ = writeln!(text, "MD_DEV_UUID={}", human::uuid(sb.device_uuid));
    let _ = writeln!(text, "MD_EVENTS={}", sb.events);
    text
}

/// The line of `mdadm --examine --scan`.
pub(crate) fn array_line(member: &Examined, spares: usize) -> String {
    let sb = &member.superblock;
    if sb.version == Version::V0_90 {
        return examine_090::array_line(member);
    }
    let name = sb.name();
    let version = shape::version_name(sb.version);
    let mut text = String::from("ARRAY ");
    if !name.is_empty() {
        let _ = write!(text, "{} ", names::conf_path(shape::short_name(&name)));
    }
    let _ = write!(text, " metadata={version} UUID={}", sb.uuid_text());
    text.push_str(&names::conf_field(&name));
    text.push('\n');
    if spares > 0 {
        let _ = writeln!(text, "   spares={spares}");
    }
    text
}

/// Where the partial parity log lies.
fn ppl(sb: &Superblock) -> Option<Value> {
    let [offset_low, offset_high, low, high] = sb.bitmap_offset_sectors.to_le_bytes();
    let place = json!({
        "offset_sectors_from_superblock": i16::from_le_bytes([offset_low, offset_high]),
        "size_sectors": u16::from_le_bytes([low, high]),
        "multiple": sb.has(feature::MULTIPLE_PPLS),
    });
    sb.has(feature::ANY_PPL).then_some(place)
}

/// Every field by mdadm's name.
pub(crate) fn json(member: &Examined) -> Value {
    let sb = &member.superblock;
    let role = match sb.role() {
        DevRole::Active(role) => json!(role),
        DevRole::Spare => json!("spare"),
        DevRole::Faulty => json!("faulty"),
        DevRole::Journal => json!("journal"),
    };
    let (before, after) = unused(member);
    json!({
        "device": member.device,
        "magic": "a92b4efc",
        "version": shape::version_name(sb.version),
        "feature_map": sb.feature_map,
        "array_uuid": sb.uuid_text(),
        "name": sb.name(),
        "creation_time": time::seconds(sb.ctime),
        "raid_level": shape::level_name(sb.level),
        "raid_devices": sb.raid_disks,
        "avail_dev_size_sectors": sb.data_size,
        "array_size_bytes": shape::array_bytes(sb),
        "used_dev_size_sectors": sb.size_sectors,
        "data_offset_sectors": sb.data_offset,
        "super_offset_sectors": sb.super_offset,
        "recovery_offset_sectors":
            sb.has(feature::RECOVERY_OFFSET).then_some(sb.recovery_offset),
        "resync_offset_sectors": (!shape::is_clean(sb)).then_some(sb.resync_offset),
        "unused_space_before_sectors": before,
        "unused_space_after_sectors": i64::try_from(after).ok(),
        "state": if shape::is_clean(sb) { "clean" } else { "active" },
        "device_uuid": human::uuid(sb.device_uuid),
        "internal_bitmap_sectors_from_superblock":
            sb.has(feature::BITMAP_OFFSET).then_some(sb.bitmap_offset_sectors),
        "consistency_policy": shape::consistency_policy(sb),
        "policy": shape::consistency_policy(sb),
        "ppl": ppl(sb),
        "journal_tail_sectors": (sb.role() == DevRole::Journal).then_some(sb.recovery_offset),
        "bitmap": member.bitmap.as_ref().map(|bitmap| json!({
            "version": bitmap.version,
            "events": bitmap.events,
            "events_cleared": bitmap.events_cleared,
            "chunk_bytes": bitmap.chunk_bytes,
            "daemon_sleep_s": bitmap.daemon_sleep_s,
            "sync_size_sectors": bitmap.sync_size_sectors,
        })),
        "flags": {
            "write_mostly": sb.devflags & devflag::WRITE_MOSTLY != 0,
            "failfast": sb.devflags & devflag::FAILFAST != 0,
        },
        "update_time": time::seconds(sb.utime),
        "bad_block_log_entries": u32::from(sb.bblog_size_sectors) * 64,
        "bad_block_log_offset_sectors": sb.bblog_offset_sectors,
        "bad_blocks_present": sb.has(feature::BAD_BLOCKS),
        "checksum": format!("{:x}", member.checksum()),
        "events": sb.events,
        "layout": shape::layout_option(sb),
        "chunk_size_bytes": u64::from(sb.chunk_sectors) * SECTOR_BYTES,
        "logical_block_size_bytes": (sb.logical_block_bytes != 0).then_some(sb.logical_block_bytes),
        "corrected_reads": sb.corrected_reads,
        "device_number": sb.dev_number,
        "device_role": role,
        "replacement": sb.has(feature::REPLACEMENT),
        "array_state": role_marks(sb),
    })
}
