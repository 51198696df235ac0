//! How many equations a hypothesis meets, and what of the rest speaks against it.

use std::collections::HashSet;

use braid_array::Role;
use braid_array::geometry::{Geometry, Strip};

use super::votes::{Equations, Hypothesis, Place, copies};

/// Counts the equations that are met.
pub(super) fn score(one: &mut Hypothesis, sizes: &[u64], equations: &Equations, most: usize) {
    (one.met, one.of, one.unseen) = (0, 0, 0);
    let Some(geometry) = one.shape.geometry(one.member_sectors(sizes)) else { return };
    let there = |strip: Strip| {
        let place = (*one.roles.get(strip.role.index())?)?;
        Some((place.member, place.data_offset + strip.sector))
    };
    let mut met = 0;
    let mut of = 0;
    let mut unseen = 0;
    for (place, seen) in equations.some(most) {
        let sector = one.origin + place;
        let mut expected = copies(&geometry, sector).filter_map(there).peekable();
        let is_there = expected.peek().is_some();
        let is_met = expected.any(|(member, at)| equations.found.contains(&(member, at, *place)));
        let is_seen = is_met
            || !(is_there && is_sum(one, &geometry, seen, &equations.marked)
                || !is_there && only_in_parity(one, &geometry, sector, seen));
        if is_seen {
            met += usize::from(is_met);
            of += 1 + usize::from(contradicts(one, &geometry, sector, seen));
        } else {
            unseen += 1;
        }
    }
    for (place, seen) in &equations.absolute {
        let expected = || copies(&geometry, *place).filter_map(there);
        if expected().next().is_some() {
            met += usize::from(expected().any(|at| seen.contains(&at)));
            of += 1;
        }
    }
    (one.met, one.of, one.unseen) = (met, of, unseen);
}

/// Where on members a block was seen, by role.
fn strips<'a>(one: &'a Hypothesis, seen: &'a [(usize, u64)]) -> impl Iterator<Item = Strip> + 'a {
    seen.iter().filter_map(|&(member, at)| {
        let is_it = |place: &Option<Place>| place.is_some_and(|place| place.member == member);
        let role = one.roles.iter().position(is_it)?;
        let sector = at.checked_sub(one.roles[role]?.data_offset)?;
        Some(Strip { role: Role(role as u16), sector })
    })
}

/// Was it seen in parity alone, of an odd number of such blocks? That looks like a block that it is
/// not, checksums included: these are sums, too.
fn is_sum(
    one: &Hypothesis,
    geometry: &Geometry,
    seen: &[(usize, u64)],
    marked: &HashSet<(usize, u64)>,
) -> bool {
    if one.shape.level.parity_disks() == 0 || geometry.data_disks().is_multiple_of(2) {
        return false;
    }
    let is_sum = |strip: Strip| {
        let stripe = strip.sector / u64::from(geometry.chunk_sectors());
        let is_block = |index| {
            let role = geometry.data_role(stripe, index);
            let place = one.roles.get(role.index()).copied().flatten();
            place.is_some_and(|at| marked.contains(&(at.member, at.data_offset + strip.sector)))
        };
        geometry.parity_roles(stripe).0 == strip.role && (0..geometry.data_disks()).all(is_block)
    };
    let mut strips = strips(one, seen).peekable();
    strips.peek().is_some() && strips.all(is_sum)
}

/// Was a block of a missing member seen in the parity of its row? There it is where the rest of the
/// row is zero.
fn only_in_parity(
    one: &Hypothesis,
    geometry: &Geometry,
    sector: u64,
    seen: &[(usize, u64)],
) -> bool {
    strips(one, seen).any(|strip| {
        geometry.array_sector_at(strip).is_none()
            && copies(geometry, sector).any(|expected| expected.sector == strip.sector)
    })
}

/// Do two members of one row hold the same block, though both are said to hold data? Parity is like
/// data where the rest of the row is zero; what is said to be data is not.
fn contradicts(one: &Hypothesis, geometry: &Geometry, sector: u64, seen: &[(usize, u64)]) -> bool {
    if seen.len() < 2 {
        return false;
    }
    let strips: Vec<Strip> = strips(one, seen).collect();
    strips.iter().enumerate().any(|(index, strip)| {
        let beside = |(other, row): (usize, &Strip)| other != index && row.sector == strip.sector;
        strips.iter().enumerate().any(beside)
            && geometry.array_sector_at(*strip).is_some_and(|at| at != sector)
    })
}
