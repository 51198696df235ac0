//! Superblock of a member, and the part of `mdadm --examine` common to all versions.

use std::fmt::Write as _;

use braid_array::SECTOR_BYTES;
use braid_array::format::superblock::feature;
use braid_array::format::{BitmapSuperblock, Superblock, Version};

use super::{human, shape};

/// Metadata found on a member.
#[derive(Debug)]
pub(crate) struct Examined {
    /// Path.
    pub(crate) device: String,
    /// Size of the device.
    pub(crate) device_sectors: u64,
    /// Decoded, checksum verified.
    pub(crate) superblock: Superblock,
    /// Bytes of the superblock.
    pub(crate) raw: Vec<u8>,
    /// The bitmap's own superblock.
    pub(crate) bitmap: Option<BitmapSuperblock>,
}

impl Examined {
    /// The stored checksum, which is right: it was verified when the superblock was decoded.
    pub(super) fn checksum(&self) -> u32 {
        // Offsets in the superblock of each version.
        let at = match self.superblock.version {
            Version::V0_90 => 152,
            _ => 216,
        };
        let bytes = self.raw.get(at..).and_then(|rest| rest.first_chunk::<4>());
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }
}

/// Appends a line with a right-aligned label, as mdadm does.
pub(super) fn field(text: &mut String, label: &str, value: impl std::fmt::Display) {
    let _ = writeln!(text, "{label:>15} : {value}");
}

/// Prints the change by a reshape, and its progress.
pub(super) fn reshape(text: &mut String, sb: &Superblock) {
    if !sb.has(feature::RESHAPE_ACTIVE) {
        return;
    }
    let new = &sb.reshape;
    let bytes = new.position.saturating_mul(SECTOR_BYTES);
    let position = format!("{}{}", new.position / 2, human::size_both(bytes));
    field(text, "Reshape pos'n", position);
    if new.delta_disks != 0 {
        let old = i64::from(sb.raid_disks) - i64::from(new.delta_disks);
        let change = format!("{} ({old}->{})", new.delta_disks, sb.raid_disks);
        field(text, "Delta Devices", change);
    }
    if new.new_level != sb.level {
        field(text, "New Level", shape::level_name(new.new_level));
    }
    let after = Superblock { layout: new.new_layout, ..sb.clone() };
    if after.layout != sb.layout
        && sb.level != 4
        && let Some(name) = shape::layout_name(&after)
    {
        field(text, "New Layout", name);
    }
    if new.new_chunk_sectors != sb.chunk_sectors {
        let chunk = match sb.version {
            Version::V0_90 => (u64::from(new.new_chunk_sectors) * SECTOR_BYTES).to_string(),
            _ => format!("{}K", new.new_chunk_sectors / 2),
        };
        field(text, "New Chunksize", chunk);
    }
    text.push('\n');
}

/// The lines from the layout to the blank one.
pub(super) fn layout(text: &mut String, sb: &Superblock) {
    if sb.level != 4
        && let Some(name) = shape::layout_name(sb)
    {
        field(text, "Layout", name);
    }
    let chunk_kib = u64::from(sb.chunk_sectors) * SECTOR_BYTES / 1024;
    if shape::has_chunk(sb.level) {
        field(text, "Chunk Size", format!("{chunk_kib}K"));
    } else if sb.level == -1 {
        field(text, "Rounding", format!("{chunk_kib}K"));
    }
    text.push('\n');
}
