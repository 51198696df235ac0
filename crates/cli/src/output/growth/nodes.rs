//! The plan for an array over nodes, of which only the size changes.

use braid_array::SECTOR_BYTES;
use braid_array::format::Superblock;
use braid_cluster::Family;
use braid_cluster::grow::NewSize;
use braid_host::control::wire::ControlStatus;

use super::{Growth, GrowthStep, ShapeJson, notice, spare_copies};
use crate::output::json::SCHEMA;

impl Growth {
    /// Plans another size.
    pub(crate) fn over_nodes(array: &ControlStatus, new: &NewSize) -> Self {
        let status = &array.array;
        let superblock = &status.superblock;
        let more = new.member_sectors.saturating_sub(status.used_member_sectors);
        let step = |action, bytes| GrowthStep { action, device: None, role: None, bytes };
        let may_fail = may_fail(superblock);
        let exports = array.exports.iter();
        Self {
            schema: SCHEMA,
            name: array.name.clone(),
            dry_run: false,
            from: ShapeJson::of(superblock, status.used_member_sectors, status.array_sectors),
            to: ShapeJson::of(superblock, new.member_sectors, new.array_sectors),
            steps: vec![step("lengthen", Some(more * SECTOR_BYTES)), step("takeover", None)],
            may_fail_meanwhile: may_fail,
            may_fail_after: may_fail,
            exports: exports.filter_map(|export| notice(&array.name, export, true)).collect(),
            moves: false,
            missing: 0,
        }
    }
}

/// Members that may be lost of a whole array, whichever they are.
fn may_fail(superblock: &Superblock) -> u32 {
    let nodes = superblock.raid_disks;
    match Family::decode(superblock.level, superblock.layout, nodes) {
        Ok(Family::Md { level, layout }) => spare_copies(level, layout, nodes),
        Ok(Family::Xor2d) => 2,
        Err(_) => 0,
    }
}
