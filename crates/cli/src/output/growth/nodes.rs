//! The plan for an array over nodes, which gets another size or more nodes.

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
            suspends_policy: None,
            may_fail_meanwhile: may_fail,
            may_fail_after: may_fail,
            exports: exports.filter_map(|export| notice(&array.name, export, true)).collect(),
            moves: false,
            missing: 0,
            spill: None,
        }
    }
}

impl Growth {
    /// Plans a move of all data to an array over so many nodes.
    pub(crate) fn to_more_nodes(
        array: &ControlStatus,
        new: &NewSize,
        nodes: u32,
        added: &[String],
    ) -> Self {
        let status = &array.array;
        let before = &status.superblock;
        let after = Superblock { raid_disks: nodes, ..before.clone() };
        let add = |node: &String| GrowthStep {
            action: "add",
            device: Some(node.clone()),
            role: None,
            bytes: None,
        };
        let bytes = Some(status.array_sectors * SECTOR_BYTES);
        let reshape = GrowthStep { action: "reshape", device: None, role: None, bytes };
        let grows = new.array_sectors > status.array_sectors;
        let exports = if grows { array.exports.as_slice() } else { &[] };
        let told = exports.iter().filter_map(|export| notice(&array.name, export, true));
        Self {
            schema: SCHEMA,
            name: array.name.clone(),
            dry_run: false,
            from: ShapeJson::of(before, status.used_member_sectors, status.array_sectors),
            to: ShapeJson::of(&after, new.member_sectors, new.array_sectors),
            steps: added.iter().map(add).chain([reshape]).collect(),
            suspends_policy: None,
            may_fail_meanwhile: may_fail(before).min(may_fail(&after)),
            may_fail_after: may_fail(&after),
            exports: told.collect(),
            moves: true,
            missing: 0,
            spill: None,
        }
    }

    /// Plans that such a move goes back.
    pub(crate) fn back_to_nodes(array: &ControlStatus) -> Self {
        let status = &array.array;
        let now = &status.superblock;
        let added = u32::try_from(now.reshape.delta_disks).unwrap_or(0);
        let raid_disks = now.raid_disks.saturating_sub(added);
        let before = Superblock { raid_disks, ..now.clone() };
        let bytes = Some(status.sync.done_sectors * SECTOR_BYTES);
        let undo = GrowthStep { action: "undo", device: None, role: None, bytes };
        Self {
            schema: SCHEMA,
            name: array.name.clone(),
            dry_run: false,
            from: ShapeJson::of(now, status.used_member_sectors, status.array_sectors),
            to: ShapeJson::of(&before, 0, status.array_sectors),
            steps: vec![undo],
            suspends_policy: None,
            may_fail_meanwhile: may_fail(&before).min(may_fail(now)),
            may_fail_after: may_fail(&before),
            exports: Vec::new(),
            moves: true,
            missing: 0,
            spill: None,
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
