//! Ranges that are worth reading before it is decided.

use std::collections::BTreeSet;
use std::ops::Range;

use braid_array::SECTOR_BYTES;

use super::gathered::Gathered;
use super::hypothesis::{Hypothesis, MemberInRole};
use super::marks::Structure;
use super::shapes::{self, copies};

/// Ranges for [`targets`] around places where something is expected.
const TARGET_BYTES: u64 = 64 << 10;
const MOST_TARGETS: u64 = 600;
/// Blocks that are looked for under all shapes.
const ANYWHERE: usize = 3;

/// The ranges that are to be read, of each member, before it is decided: where the best hypotheses
/// say that something lies which tells where it belongs.
#[must_use]
pub fn targets(
    found: &[Hypothesis],
    sizes: &[u64],
    gathered: &Gathered,
    known: &[Structure],
) -> Vec<Vec<Range<u64>>> {
    let mut all: Vec<Vec<(u64, u64)>> = vec![Vec::new(); sizes.len()];
    for one in found.iter().take(8) {
        let Some(geometry) = one.shape.geometry(one.member_sectors(sizes)) else { continue };
        let usual = one.roles.iter().flatten().next().map_or(0, |place| place.data_offset);
        // Of every member, for other orders are possible, and other members.
        let out = one.left_out(sizes.len()).into_iter();
        let out = out.map(|member| MemberInRole { member, data_offset: usual });
        let places: Vec<MemberInRole> = one.roles.iter().flatten().copied().chain(out).collect();
        for place in gathered.known_places(one.structure, known) {
            for strip in copies(&geometry, one.origin + place) {
                let row = strip.sector * SECTOR_BYTES / TARGET_BYTES;
                for place in &places {
                    let at = (place.data_offset + strip.sector) * SECTOR_BYTES;
                    all[place.member].push((at / TARGET_BYTES * TARGET_BYTES, row));
                }
            }
        }
    }
    let anywhere = under_all_shapes(found, sizes, gathered, known);
    for starts in &mut all {
        starts.extend(anywhere.iter().map(|start| (*start, start / TARGET_BYTES)));
        starts.sort_unstable();
        starts.dedup_by_key(|(start, _)| *start);
    }
    let most = all.iter().map(Vec::len).max().unwrap_or(0) as u64;
    // Of all members the same rows: a block that was seen in parity alone would speak against the
    // place where nobody looked.
    let is_kept = |row: u64| most <= MOST_TARGETS || scatter(row) % most < MOST_TARGETS;
    let ranges = all.into_iter().zip(sizes).map(|(starts, size)| {
        let range = |(start, row): (u64, u64)| {
            let end = (start + TARGET_BYTES).min(size * SECTOR_BYTES);
            (is_kept(row) && start < end).then_some(start..end)
        };
        starts.into_iter().filter_map(range).collect()
    });
    ranges.collect()
}

/// A number that has nothing to do with its neighbours.
const fn scatter(number: u64) -> u64 {
    number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24
}

/// Where on members a few blocks would lie, under whatever shape, in bytes: on large members what
/// is read first may hold too few blocks to tell one shape from another.
fn under_all_shapes(
    found: &[Hypothesis],
    sizes: &[u64],
    gathered: &Gathered,
    known: &[Structure],
) -> BTreeSet<u64> {
    let mut starts = BTreeSet::new();
    let Some(one) = found.first() else { return starts };
    let Some(place) = one.roles.iter().flatten().next() else { return starts };
    let sectors = one.member_sectors(sizes);
    let places = gathered.known_places(one.structure, known);
    for shape in shapes::all(sizes.len()) {
        let Some(geometry) = shape.geometry(sectors) else { continue };
        for part in 1..=ANYWHERE {
            let Some(at) = places.get(places.len() * part / (ANYWHERE + 1)) else { continue };
            let strips = copies(&geometry, one.origin + at).take(1);
            starts.extend(strips.map(|strip| {
                let at = (place.data_offset + strip.sector) * SECTOR_BYTES;
                at / TARGET_BYTES * TARGET_BYTES
            }));
        }
    }
    starts
}
