//! Hypotheses that may be meant instead of the best one, and that the search for most blocks passes
//! by.

use super::equations::{Equations, MANY};
use super::hypothesis::{Hypothesis, MemberInRole};
use super::score::{misplaced, only_copies, score};
use super::shapes::{self, Shape};
use super::sums::Members;
use super::votes::neighbours;
use crate::bytes::is_zero;
use braid_array::SECTOR_BYTES;

/// Rivals of each kind that are looked at.
const MOST: usize = 16;
/// The most members of which other orders are tried.
const MOST_MEMBERS: usize = 6;
/// Orders of members that are tried in all.
const MOST_ORDERS: usize = 400;

/// Rivals that differ from this one by members whose roles little or nothing tells: two of them
/// exchanged, or members without a role in roles without a member; and those of another layout.
#[must_use]
pub(super) fn near(one: &Hypothesis, sizes: &[u64], equations: &Equations) -> Vec<Hypothesis> {
    // Superblocks that are left say which layout it is.
    let laid_out = shapes::all(sizes.len()).into_iter().filter_map(|shape| {
        let other = Hypothesis { shape, ..one.clone() };
        let is_alike = Shape { layout: one.shape.layout, ..shape } == one.shape;
        (is_alike && shape != one.shape && one.hinted.is_empty()).then_some(other)
    });
    let near = laid_out.chain(neighbours(one, &[], sizes.len())).map(|mut other| {
        score(&mut other, sizes, equations, MANY);
        other
    });
    near.filter(|other| other.percent_of_all() + 20.0 >= one.percent()).take(MOST).collect()
}

/// Rivals that deny no more blocks than this one does, with data at the same places, and have
/// blocks of a missing member in parity where this one has data: as many as a nearly empty array
/// leaves.
#[must_use]
pub(super) fn hidden(
    one: &Hypothesis,
    members: &mut Members<'_, '_>,
    equations: &Equations,
) -> Vec<Hypothesis> {
    let sizes = members.sizes();
    let places: Vec<MemberInRole> = one.roles.iter().flatten().copied().collect();
    if places.len() > MOST_MEMBERS {
        return Vec::new();
    }
    let most = (one.of - one.met).saturating_sub(one.walked.of() - one.walked.met());
    let mut found = Vec::new();
    for shape in shapes::all(sizes.len()) {
        let has_room = shape.raid_disks as usize > places.len();
        if shape.level.parity_disks() == 0 || !has_room || found.len() >= MOST_ORDERS {
            continue;
        }
        let empty = Hypothesis::empty(shape, one.structure, one.origin);
        place_all(&empty, &places, most, &sizes, equations, &mut found);
    }
    for other in &mut found {
        score(other, &sizes, equations, MANY);
    }
    found.retain(|other| other.met > 0 && other.of - other.met <= most);
    found.sort_by_key(|other| std::cmp::Reverse(other.met));
    found.retain(|other| {
        let denied = other.of - other.met + not_alone(other, members, equations);
        denied <= most
    });
    found.truncate(MOST);
    found
}

/// Gives each of these a role in which no more than so many blocks lie where others belong.
fn place_all(
    one: &Hypothesis,
    rest: &[MemberInRole],
    most: usize,
    sizes: &[u64],
    equations: &Equations,
    found: &mut Vec<Hypothesis>,
) {
    let Some((first, rest)) = rest.split_first() else {
        found.push(one.clone());
        return;
    };
    for role in 0..one.roles.len() {
        if one.roles[role].is_some() || found.len() >= MOST_ORDERS {
            continue;
        }
        let mut other = one.clone();
        other.roles[role] = Some(*first);
        let own = misplaced(&other, role, sizes, equations, most + 1);
        if own <= most {
            place_all(&other, rest, most - own, sizes, equations, found);
        }
    }
}

/// Blocks that it has to say are copies in parity, beside which the row holds something else.
fn not_alone(one: &Hypothesis, members: &mut Members<'_, '_>, equations: &Equations) -> usize {
    let copies = only_copies(one, &members.sizes(), equations);
    let mut is_sum = |copy: &(usize, u64)| {
        let rest = one.roles.iter().flatten().filter(|place| place.member != copy.0);
        let strips = rest.filter_map(|place| {
            members.bytes(place.member, place.data_offset + copy.1, SECTOR_BYTES as usize)
        });
        strips.into_iter().any(|strip| !is_zero(&strip))
    };
    copies.iter().filter(|copy| is_sum(copy)).count()
}
