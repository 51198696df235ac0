//! Whether two hypotheses read the same bytes: then they are one.

use std::collections::{BTreeSet, HashSet};

use braid_array::Role;
use braid_array::geometry::{Geometry, Strip};

use super::hypothesis::Hypothesis;
use super::shapes::copies;

/// Returns whether two read the same bytes, as far as the structure goes by which they were found.
pub(super) fn reads_the_same(a: &Hypothesis, b: &Hypothesis, sizes: &[u64], length: u64) -> bool {
    let map = |one: &Hypothesis| one.shape.geometry(one.member_sectors(sizes));
    let (Some(map_a), Some(map_b)) = (map(a), map(b)) else { return false };
    let places = |one: &Hypothesis, map: &Geometry, sector: u64| -> HashSet<(usize, u64)> {
        let there = |strip: Strip| {
            let place = one.roles[strip.role.index()]?;
            Some((place.member, place.data_offset + strip.sector))
        };
        copies(map, one.origin + sector).filter_map(there).collect()
    };
    let ends = [(a.origin, &map_a), (b.origin, &map_b)];
    let end = ends.map(|(origin, map)| map.array_sectors().saturating_sub(origin));
    let length = length.min(end[0]).min(end[1]);
    let same = a.shape == b.shape && a.roles == b.roles;
    // With Q, what is missing depends on how that was made.
    let is_rebuilt_alike = |sector: u64| {
        let from = rebuilt_from(a, &map_a, a.origin + sector);
        from.is_some() && from == rebuilt_from(b, &map_b, b.origin + sector)
    };
    let step = (length / 509).max(1) | 1;
    let near = (0..512).map(|index| index * 9);
    near.chain((0..509).map(|index| index * step)).filter(|sector| *sector < length).all(|sector| {
        let a = places(a, &map_a, sector);
        let b = places(b, &map_b, sector);
        a.intersection(&b).next().is_some()
            || (a.is_empty() && b.is_empty() && (same || is_rebuilt_alike(sector)))
    })
}

/// The places whose sum is what a missing member holds there, where P alone brings it back.
fn rebuilt_from(
    one: &Hypothesis,
    geometry: &Geometry,
    sector: u64,
) -> Option<BTreeSet<(usize, u64)>> {
    if one.shape.level.parity_disks() == 0 {
        return None;
    }
    let strip = geometry.copy(sector, 0);
    let (_, q) = geometry.parity_roles(strip.sector / u64::from(geometry.chunk_sectors()));
    let roles = (0..geometry.raid_disks() as u16).map(Role);
    let rest = roles.filter(|role| *role != strip.role && Some(*role) != q);
    let place = |role: Role| {
        let place = one.roles[role.index()]?;
        Some((place.member, place.data_offset + strip.sector))
    };
    rest.map(place).collect()
}
