//! Level, layout and the like from the numbers of a superblock, as mdadm words them. A superblock
//! may hold numbers that mean nothing here, and is shown nevertheless.

use std::fmt::Write as _;

use braid_array::format::reshaped::{Side, shape_of_side};
use braid_array::format::superblock::{MAX_SECTOR, feature};
use braid_array::format::{MoveNote, Superblock, Version};
use braid_array::level::{Layout, Level};
use braid_cluster::family::{XOR2D_MD_LEVEL, XOR2D_NAME};

/// `raid5`, or the number when it means nothing here.
pub(crate) fn level_name(number: i32) -> String {
    Level::from_md(like_md(number))
        .map_or_else(|| number.to_string(), |level| level.name().to_owned())
}

/// md's number for the level: the 2-D XOR code is a raid6 with a layout of its own.
const fn like_md(number: i32) -> i32 {
    if number == XOR2D_MD_LEVEL { 6 } else { number }
}

/// `1.2`.
pub(crate) const fn version_name(version: Version) -> &'static str {
    match version {
        Version::V0_90 => "0.90",
        Version::V1_0 => "1.0",
        Version::V1_1 => "1.1",
        Version::V1_2 => "1.2",
    }
}

/// The layout as mdadm prints it on its `Layout` line; `None` where it prints no such line.
pub(crate) fn layout_name(sb: &Superblock) -> Option<String> {
    if sb.level == XOR2D_MD_LEVEL {
        return Some(XOR2D_NAME.to_owned());
    }
    let level = Level::from_md(sb.level)?;
    if level == Level::Raid0 && !sb.has(feature::RAID0_LAYOUT) {
        return None;
    }
    let named = Layout::decode(level, sb.layout, sb.raid_disks).map(Layout::name);
    named.unwrap_or_else(|_| Some("-unknown-".to_owned()))
}

/// The layout as `--layout` takes it.
pub(crate) fn layout_option(sb: &Superblock) -> Option<String> {
    if sb.level != Level::Raid10.to_md() {
        return layout_name(sb);
    }
    let [near, far, ..] = sb.layout.to_le_bytes();
    let far_letter = if sb.layout & 1 << 16 != 0 { 'o' } else { 'f' };
    Some(match (near, far) {
        (_, 1) => format!("n{near}"),
        (1, _) => format!("{far_letter}{far}"),
        _ => format!("n{near}{far_letter}{far}"),
    })
}

/// Returns whether the level divides members into chunks.
pub(crate) const fn has_chunk(level: i32) -> bool {
    matches!(like_md(level), 0 | 4 | 5 | 6 | 10)
}

/// Returns whether the level can lose a member.
pub(crate) const fn has_redundancy(level: i32) -> bool {
    matches!(like_md(level), 1 | 4 | 5 | 6 | 10)
}

/// Returns the shapes before and after the reshape that a superblock tells of. Of a move over nodes
/// the status of an array tells, with the number of nodes that are added.
pub(crate) fn of_reshape(sb: &Superblock) -> Option<(Superblock, Superblock)> {
    if let MoveNote::Target { back, .. } = MoveNote::of(sb) {
        let added = u32::try_from(sb.reshape.delta_disks).ok().filter(|added| *added != 0)?;
        let raid_disks = sb.raid_disks.checked_sub(added)?;
        let smaller = Superblock { raid_disks, ..sb.clone() };
        return Some(if back { (sb.clone(), smaller) } else { (smaller, sb.clone()) });
    }
    if !sb.has(feature::RESHAPE_ACTIVE) {
        return None;
    }
    Some((shape_of_side(sb, Side::Old)?, shape_of_side(sb, Side::New)?))
}

/// `old: raid5 of 3, new: raid5 of 4`; layout and chunk where they change.
pub(crate) fn reshape_in_words(sb: &Superblock) -> Option<String> {
    let (from, to) = of_reshape(sb)?;
    let words = |of: &Superblock| {
        let mut words = format!("{} of {}", level_name(of.level), of.raid_disks);
        if from.layout != to.layout
            && let Some(layout) = layout_option(of)
        {
            let _ = write!(words, " {layout}");
        }
        if from.chunk_sectors != to.chunk_sectors {
            let _ = write!(words, " chunk {}K", of.chunk_sectors / 2);
        }
        words
    };
    Some(format!("old: {}, new: {}", words(&from), words(&to)))
}

/// Array size from one superblock, as mdadm computes it: bytes, or `None` where the sizes of all
/// members would be needed.
pub(crate) fn array_bytes(sb: &Superblock) -> Option<u64> {
    let (data, of) = match like_md(sb.level) {
        1 => (1, 1),
        4 | 5 => (sb.raid_disks.checked_sub(1)?, 1),
        6 => (sb.raid_disks.checked_sub(2)?, 1),
        10 => {
            let [near, far, ..] = sb.layout.to_le_bytes();
            (sb.raid_disks, u32::from(near) * u32::from(far))
        }
        _ => return None,
    };
    let bytes = u128::from(sb.size_sectors) * 512 * u128::from(data);
    if data == 0 {
        return None;
    }
    u64::try_from(bytes.checked_div(u128::from(of))?).ok()
}

/// Returns the consistency policy: the repair after an unclean stop.
pub(crate) fn consistency_policy(sb: &Superblock) -> &'static str {
    if sb.has(feature::PPL | feature::MULTIPLE_PPLS | feature::NODE_PPL) {
        "ppl"
    } else if sb.has(feature::JOURNAL | feature::NODE_JOURNALS) {
        "journal"
    } else if sb.has(feature::BITMAP_OFFSET) {
        "bitmap"
    } else if has_redundancy(sb.level) {
        "resync"
    } else {
        "none"
    }
}

/// Returns whether the superblocks record a clean stop.
pub(crate) const fn is_clean(sb: &Superblock) -> bool {
    sb.resync_offset == MAX_SECTOR
}

/// The name without the host before it, for paths and commands.
pub(crate) fn short_name(full: &str) -> &str {
    full.split_once(':').map_or(full, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_over_nodes_is_from_fewer_nodes_to_more_and_back() {
        let mut superblock = Superblock::blank();
        superblock.level = 5;
        superblock.raid_disks = 4;
        assert_eq!(reshape_in_words(&superblock), None);
        superblock.feature_map = MoveNote::Target { front: 8, back: false }.features();
        assert_eq!(reshape_in_words(&superblock), None, "it is unknown how many were added");
        superblock.reshape.delta_disks = 1;
        let there = reshape_in_words(&superblock);
        assert_eq!(there.as_deref(), Some("old: raid5 of 3, new: raid5 of 4"));
        superblock.feature_map = MoveNote::Target { front: 8, back: true }.features();
        let back = reshape_in_words(&superblock);
        assert_eq!(back.as_deref(), Some("old: raid5 of 4, new: raid5 of 3"));
    }
}
