//! Checks of superblocks: what they say of their device must be possible. A machine does I/O at
//! these places without asking again.

use std::ops::Range;

use super::Verdict;
use crate::SECTOR_BYTES;
use crate::format::bad_blocks::MAX_SHIFT;
use crate::format::ppl::{self, PplArea};
use crate::format::superblock::{DevRole, feature};
use crate::format::{Superblock, Version};
use crate::level::Level;

/// A member may miss the last update of the superblocks and still be current: it was cut off
/// while the others were being written.
pub(super) const EVENT_MARGIN: u64 = 1;

/// Returns whether a member missed the last update, and that gave the array another
/// [shape](crate::grow), in which the bytes of each member stay where they are.
pub(super) fn missed_a_shape(superblock: &Superblock, newest: &Superblock) -> bool {
    superblock.events < newest.events
        && superblock.events.saturating_add(EVENT_MARGIN) >= newest.events
        && check_shape(superblock, newest).is_err()
}

/// The superblock of a member that is in: with the shape that the newest one tells of, also where
/// the member missed the update that brought it.
pub(super) fn with_shape(superblock: Superblock, newest: &Superblock) -> Superblock {
    if !missed_a_shape(&superblock, newest) {
        return superblock;
    }
    let data_size = if superblock.version.is_behind_data() {
        superblock.data_size
    } else {
        superblock.data_size.max(newest.size_sectors)
    };
    Superblock {
        level: newest.level,
        layout: newest.layout,
        raid_disks: newest.raid_disks,
        chunk_sectors: newest.chunk_sectors,
        size_sectors: newest.size_sectors,
        roles: newest.roles.clone(),
        data_size,
        ..superblock
    }
}

/// The member's superblock with the bitmap or the partial parity log that the newest one tells of.
/// md has one place for the whole array's bitmap; a member that missed the update which brought it,
/// or took it away, does not know that. With partial parity logs, each member has one in a place of
/// its own; one that missed the update which brought them has it where the newest one has. One that
/// missed that they went off for a time, or on again, has it where it was.
pub(crate) fn adopted(superblock: &Superblock, newest: &Superblock) -> Superblock {
    let mut own = superblock.clone();
    match (newest.has(feature::ANY_PPL), ppl::is_suspended(newest)) {
        (true, _) => ppl::resume(&mut own),
        (_, true) => ppl::suspend(&mut own),
        _ => {}
    }
    if ppl::is_suspended(newest) && ppl::is_suspended(&own) {
        return own;
    }
    let superblock = &own;
    let possible = || matches!(PplArea::of(newest), Ok(Some(_)));
    if newest.has(feature::ANY_PPL) && (superblock.has(feature::ANY_PPL) || !possible()) {
        return superblock.clone();
    }
    let policies = feature::BITMAP_OFFSET | feature::LOGS;
    Superblock {
        feature_map: superblock.feature_map & !policies | newest.feature_map & policies,
        bitmap_offset_sectors: newest.bitmap_offset_sectors,
        ..superblock.clone()
    }
}

/// Checks that the data and all metadata of a member lie on its device, and apart from each other.
/// The bitmap has so many sectors, if there is one.
pub(crate) fn check_places(
    superblock: &Superblock,
    device_sectors: u64,
    bitmap_sectors: u64,
) -> Result<(), Verdict> {
    let needed_sectors = superblock.data_offset.saturating_add(superblock.data_size);
    if needed_sectors > device_sectors {
        return Err(Verdict::TooSmall { needed_sectors, device_sectors });
    }
    if !holds_journal(superblock) && superblock.size_sectors > superblock.data_size {
        return Err(unreadable(format!(
            "its superblock uses {} sectors of a data area of {}",
            superblock.size_sectors, superblock.data_size
        )));
    }
    if superblock.bblog_shift > MAX_SHIFT {
        let shift = superblock.bblog_shift;
        return Err(unreadable(format!("bad-block log in units of 2^{shift} sectors")));
    }
    let places = places(superblock, bitmap_sectors).map_err(unreadable)?;
    for (index, (name, place)) in places.iter().enumerate() {
        if place.end > device_sectors {
            return Err(unreadable(format!("its superblock puts the {name} beyond its end")));
        }
        for (other, other_place) in &places[index + 1..] {
            if place.start < other_place.end && other_place.start < place.end {
                return Err(unreadable(format!("its superblock puts the {name} over the {other}")));
            }
        }
    }
    Ok(())
}

/// Returns whether the data area is the journal, whose size is its own.
fn holds_journal(superblock: &Superblock) -> bool {
    superblock.role() == DevRole::Journal
}

/// Returns the ranges of data and metadata, in sectors of the device.
fn places(
    superblock: &Superblock,
    bitmap_sectors: u64,
) -> Result<Vec<(&'static str, Range<u64>)>, String> {
    let used_sectors = match superblock.size_sectors {
        _ if holds_journal(superblock) => superblock.data_size,
        0 => superblock.data_size,
        size => size,
    };
    let superblock_sectors = match superblock.version {
        Version::V0_90 => 8,
        _ => (256 + 2 * superblock.roles.len() as u64).div_ceil(512),
    };
    let mut places = vec![
        ("data", place("data", Some(superblock.data_offset), used_sectors)?),
        ("superblock", place("superblock", Some(superblock.super_offset), superblock_sectors)?),
    ];
    if superblock.bblog_size_sectors != 0 && superblock.bblog_offset_sectors != 0 {
        let sectors = superblock.bblog_size_sectors.into();
        let name = "bad-block log";
        places.push((name, place(name, superblock.bblog_sector(), sectors)?));
    }
    if superblock.has(feature::BITMAP_OFFSET) && superblock.bitmap_offset_sectors != 0 {
        places.push(("bitmap", place("bitmap", superblock.bitmap_sector(), bitmap_sectors)?));
    }
    if let Some(area) = PplArea::of(superblock)? {
        let name = "partial parity log";
        places.push((name, place(name, Some(area.sector), area.sectors)?));
    }
    Ok(places)
}

/// The first of what lies on a member that does not begin with a block, where its device has
/// blocks of so many bytes; and its sector.
#[must_use]
pub fn not_in_blocks(superblock: &Superblock, block_bytes: u32) -> Option<(&'static str, u64)> {
    let sectors = u64::from(block_bytes) / SECTOR_BYTES;
    let places = places(superblock, 1).ok()?;
    let mut starts = places.into_iter().map(|(name, range)| (name, range.start));
    starts.find(|(_, start)| sectors > 1 && !start.is_multiple_of(sectors))
}

fn place(name: &str, start: Option<u64>, sectors: u64) -> Result<Range<u64>, String> {
    start
        .and_then(|start| Some(start..start.checked_add(sectors)?))
        .ok_or_else(|| format!("its superblock puts the {name} outside of any device"))
}

/// Checks that the member is of the same shape as the newest one says.
pub(crate) fn check_shape(superblock: &Superblock, newest: &Superblock) -> Result<(), Verdict> {
    let same = [
        ("level", superblock.level == newest.level),
        ("layout", superblock.layout == newest.layout || has_one_zone(superblock, newest)),
        ("chunk", superblock.chunk_sectors == newest.chunk_sectors),
        ("number of members", superblock.raid_disks == newest.raid_disks),
        ("size", has_size(superblock, newest)),
    ];
    match same.into_iter().find(|(_, same)| !same) {
        Some((name, _)) => {
            Err(unreadable(format!("its superblock has another {name} than the newest one")))
        }
        None => Ok(()),
    }
}

/// Returns whether one of these tells of stripes of which all members use as much: no layout
/// differs from another one there.
fn has_one_zone(superblock: &Superblock, newest: &Superblock) -> bool {
    let has_one = |one: &Superblock| one.level == Level::Raid0.to_md() && one.size_sectors > 0;
    has_one(superblock) || has_one(newest)
}

/// Returns whether a member has as much as is used of each. Stripes without redundancy use all that
/// members have: one that missed the end of a move need not say how much.
fn has_size(superblock: &Superblock, newest: &Superblock) -> bool {
    if newest.level == Level::Raid0.to_md() {
        return newest.size_sectors <= superblock.data_size;
    }
    used_sectors(superblock) == used_sectors(newest)
}

/// The used part of a member. In raid10 md rounds it to equal parts for all far copies and says so
/// with its next update, which a member may have missed.
fn used_sectors(superblock: &Superblock) -> u64 {
    let [_, far, ..] = superblock.layout.to_le_bytes();
    let unit = u64::from(superblock.chunk_sectors) * u64::from(far);
    if superblock.level != Level::Raid10.to_md() || unit == 0 {
        return superblock.size_sectors;
    }
    superblock.size_sectors / unit * unit
}

pub(super) fn unreadable(reason: String) -> Verdict {
    Verdict::Unreadable { reason }
}
