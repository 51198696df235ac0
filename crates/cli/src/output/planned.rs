//! Output of `create --dry-run`: the planned array.

use std::fmt::Write as _;
use std::path::Path;

use braid_array::SECTOR_BYTES;
use braid_array::create::Blueprint;
use braid_array::format::Superblock;
use braid_host::size;

use super::{human, shape};

const NOTHING_WRITTEN: &str = "nothing was written; without --dry-run it is made\n";

/// On files and block devices, of which those without a path are missing. With `journal` the last
/// one holds that.
pub(crate) fn on_devices<'a>(
    blueprint: &Blueprint,
    devices: impl Iterator<Item = Option<&'a Path>>,
    journal: bool,
) -> String {
    let superblocks = &blueprint.superblocks;
    let Some(first) = superblocks.iter().flatten().next() else { return String::new() };
    let capacity_bytes = blueprint.geometry.array_sectors() * SECTOR_BYTES;
    let mut text = head(first, capacity_bytes);
    let roles = first.raid_disks as usize;
    for (index, (device, superblock)) in devices.zip(superblocks).enumerate() {
        let what = if index < roles {
            format!("role {index}")
        } else if journal && index + 1 == superblocks.len() {
            "journal".to_owned()
        } else {
            "spare".to_owned()
        };
        let _ = match (device, superblock) {
            (Some(device), Some(superblock)) => writeln!(
                text,
                "  {what}: {}, data from byte {} on, superblock at byte {}",
                device.display(),
                superblock.data_offset * SECTOR_BYTES,
                superblock.super_offset * SECTOR_BYTES,
            ),
            _ => writeln!(text, "  {what}: missing"),
        };
    }
    text + NOTHING_WRITTEN
}

/// On nodes: the superblock of its first member, the names of all of them, and how large each is.
pub(crate) fn on_nodes(first: &Superblock, nodes: &[String], volume_bytes: u64) -> String {
    let alone =
        first.size_sectors.max(first.data_size) * SECTOR_BYTES * u64::from(first.raid_disks);
    let mut text = head(first, shape::array_bytes(first).unwrap_or(alone));
    let volume = human::size_binary(volume_bytes);
    let roles = first.raid_disks as usize;
    for (index, node) in nodes.iter().enumerate() {
        let what = if index < roles { format!("role {index}") } else { "spare".to_owned() };
        let _ = writeln!(text, "  {what}: {node}, a volume of {volume}");
    }
    text + NOTHING_WRITTEN
}

/// The array as a whole.
fn head(sb: &Superblock, capacity_bytes: u64) -> String {
    let mut text = format!("{}: {}", shape::short_name(&sb.name()), shape::level_name(sb.level));
    if sb.level > 4
        && let Some(layout) = shape::layout_option(sb)
    {
        let _ = write!(text, ", {layout}");
    }
    let members = if sb.raid_disks == 1 { "member" } else { "members" };
    let _ = write!(text, ", {} {members}", sb.raid_disks);
    if shape::has_chunk(sb.level) {
        let chunk = size::typed(u64::from(sb.chunk_sectors) * SECTOR_BYTES);
        let _ = write!(text, ", chunk {chunk}");
    }
    let version = shape::version_name(sb.version);
    let _ = writeln!(text, ", metadata {version}, policy {}", shape::consistency_policy(sb));
    let capacity = human::size_binary(capacity_bytes);
    let _ = writeln!(text, "  capacity {capacity} ({capacity_bytes} bytes)");
    text
}
