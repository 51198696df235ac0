//! Rows with two parities of which one member is missing: the rest adds up to zero where each of
//! its strips has its weight in GF(2^8). Weights follow from the strips alone, and tell who is P,
//! who is Q, and in which order data lie, whatever they are.

use braid_array::Role;
use braid_array::geometry::Geometry;
use braid_parity::gf::{div, inv, mul};

use crate::bytes::is_zero;

/// Rows that are looked at to tell roles.
const MOST_ROWS: usize = 64;

/// Bytes in turn that say nothing new, after which the rest of a row is not looked at.
const MOST_VAIN: usize = 1024;

/// The dependence of the strips of a row on each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Weights {
    /// Some strip does not depend on the others.
    None,
    /// These weights alone bring all strips to zero. The first is one.
    Only(Vec<u8>),
    /// Different weights do.
    Many,
}

/// A row by its sector, and the weights of its strips.
pub(super) type Weighed = (u64, Vec<u8>);

/// The weights with which strips of one length add up to zero.
pub(super) fn weights(strips: &[&[u8]]) -> Weights {
    let count = strips.len();
    let length = strips.first().map_or(0, |strip| strip.len());
    // Equations for the weights, each solved for one of them that is in no other.
    let mut solved: Vec<(usize, Vec<u8>)> = Vec::new();
    let mut last = vec![0; count];
    let mut vain = 0;
    for at in 0..length {
        let same = strips.iter().zip(&last).all(|(strip, last)| strip[at] == *last);
        if same {
            continue;
        }
        last = strips.iter().map(|strip| strip[at]).collect();
        vain += 1;
        if let Some((pivot, equation)) = reduced(&last, &solved) {
            vain = 0;
            for (_, other) in &mut solved {
                let factor = other[pivot];
                add(other, &equation, factor);
            }
            solved.push((pivot, equation));
            let is_alone = |one: &[u8]| one.iter().filter(|weight| **weight != 0).count() == 1;
            if solved.iter().any(|(_, one)| is_alone(one)) {
                return Weights::None;
            }
        }
        if solved.len() + 1 == count {
            return only(strips, &solved);
        }
        if vain > MOST_VAIN {
            break;
        }
    }
    Weights::Many
}

/// The rest of an equation beside those that are solved, and the weight for which it is solved.
fn reduced(equation: &[u8], solved: &[(usize, Vec<u8>)]) -> Option<(usize, Vec<u8>)> {
    let mut rest = equation.to_vec();
    for (pivot, other) in solved {
        let factor = rest[*pivot];
        add(&mut rest, other, factor);
    }
    let pivot = rest.iter().position(|weight| *weight != 0)?;
    let unit = inv(rest[pivot]);
    rest.iter_mut().for_each(|weight| *weight = mul(*weight, unit));
    Some((pivot, rest))
}

fn add(to: &mut [u8], other: &[u8], factor: u8) {
    to.iter_mut().zip(other).for_each(|(to, other)| *to ^= mul(*other, factor));
}

/// The weights where all but one follow from that one.
fn only(strips: &[&[u8]], solved: &[(usize, Vec<u8>)]) -> Weights {
    let is_solved = |index: &usize| solved.iter().any(|(pivot, _)| pivot == index);
    let Some(free) = (0..strips.len()).find(|index| !is_solved(index)) else {
        return Weights::None;
    };
    let mut weights = vec![1; strips.len()];
    for (pivot, equation) in solved {
        weights[*pivot] = equation[free];
    }
    let mut sum = vec![0; strips[0].len()];
    braid_parity::combine(&mut [&mut sum], &weights, strips, false);
    if !is_zero(&sum) {
        return Weights::None;
    }
    let first = weights[0];
    Weights::Only(weights.iter().map(|weight| div(*weight, first)).collect())
}

/// The weight of each role in a stripe without one; that of the missing one is zero.
fn expected(geometry: &Geometry, stripe: u64, missing: usize) -> Vec<u8> {
    let mut weights = vec![0; geometry.raid_disks() as usize];
    let (p, q) = geometry.parity_roles(stripe);
    let is_missing = |role: Role| role.index() == missing;
    let without_q = q.is_none_or(is_missing);
    let data = || {
        let each = 0..geometry.data_disks();
        each.map(|index| (geometry.data_role(stripe, index), geometry.q_coef(stripe, index)))
    };
    // Q less so many times P, that the missing one is in neither.
    let lost = data().find(|(role, _)| is_missing(*role)).map_or(0, |(_, coef)| coef);
    for (role, coef) in data() {
        weights[role.index()] = if without_q { 1 } else { coef ^ lost };
    }
    weights[p.index()] = if without_q { 1 } else { lost };
    if let Some(q) = q {
        weights[q.index()] = u8::from(!without_q);
    }
    weights
}

/// The roles that members may have in an array of one more, by the weights of rows: the role of
/// each strip.
pub(super) fn roles(geometry: &Geometry, data_offset: u64, rows: &[Weighed]) -> Vec<Vec<usize>> {
    let chunk = u64::from(geometry.chunk_sectors());
    let of_data = rows.iter().filter(|(sector, _)| *sector >= data_offset);
    let every = rows.len().div_ceil(MOST_ROWS).max(1);
    let rows: Vec<(u64, &[u8])> = of_data
        .step_by(every)
        .map(|(sector, weights)| ((sector - data_offset) / chunk, weights.as_slice()))
        .collect();
    let count = geometry.raid_disks() as usize;
    let missing = 0..count;
    let found = missing.flat_map(|missing| {
        let each = rows.iter().map(|(stripe, own)| (*own, expected(geometry, *stripe, missing)));
        let each: Vec<(&[u8], Vec<u8>)> = each.collect();
        let first = (0..count).filter(move |first| *first != missing);
        first.filter_map(move |first| roles_beside(first, &each)).collect::<Vec<_>>()
    });
    found.collect()
}

/// The roles of all strips, where the first one has this one; `None` where rows say otherwise, or
/// leave it open. Rows are weights as they are, and as they are to be by role.
fn roles_beside(first: usize, rows: &[(&[u8], Vec<u8>)]) -> Option<Vec<usize>> {
    let count = rows.first()?.1.len();
    let fits = |strip: usize, role: usize| {
        rows.iter().all(|(own, expected)| {
            let unit = expected[first];
            unit != 0 && expected[role] == mul(own[strip], unit)
        })
    };
    let mut roles = vec![first];
    for strip in 1..count - 1 {
        let mut all = (0..count).filter(|role| fits(strip, *role));
        let role = all.next().filter(|role| !roles.contains(role))?;
        if all.next().is_some() {
            return None;
        }
        roles.push(role);
    }
    Some(roles)
}

#[cfg(test)]
mod tests {
    use super::*;

    use braid_array::level::{Layout, Level};

    use super::super::shapes::Shape;

    fn noise(strip: u8) -> Vec<u8> {
        let word = |n: u32| (n.wrapping_mul(0x9e37_79b9).wrapping_add(u32::from(strip) << 13)) >> 9;
        (0..512).map(|n| word(n * 7 + u32::from(strip)) as u8).collect()
    }

    #[test]
    fn weights_are_those_that_leave_nothing() {
        let a = noise(1);
        let b = noise(2);
        let none = vec![0; 512];
        let weighed = |x: u8, y: u8| {
            let bytes = a.iter().zip(&b).map(|(a, b)| mul(*a, x) ^ mul(*b, y));
            bytes.collect::<Vec<u8>>()
        };
        let both = weighed(1, 1);
        assert_eq!(weights(&[&a, &b, &both]), Weights::Only(vec![1, 1, 1]));
        let q = weighed(2, 4);
        assert_eq!(weights(&[&a, &b, &q]), Weights::Only(vec![1, 2, inv(2)]));
        assert_eq!(weights(&[&a, &b, &both, &q]), Weights::Many);
        assert_eq!(weights(&[&a, &b, &none]), Weights::None);
        assert_eq!(weights(&[&a, &a, &b]), Weights::None);
        assert_eq!(weights(&[&a, &none, &a]), Weights::Many);
        assert_eq!(weights(&[&a, &none, &none]), Weights::None);
        assert_eq!(weights(&[&none, &none]), Weights::Many);
        let mut torn = q.clone();
        torn[511] ^= 1;
        assert_eq!(weights(&[&a, &b, &torn]), Weights::None);
    }

    #[test]
    fn weights_tell_roles() {
        for (layout, count) in [("ls", 6), ("ra", 4), ("ddf-zero-restart", 5), ("rs", 5)] {
            let layout = Layout::parse(Level::Raid6, layout).unwrap();
            let shape = Shape { level: Level::Raid6, layout, chunk_sectors: 16, raid_disks: count };
            let geometry = shape.geometry(1 << 12).unwrap();
            let count = count as usize;
            for missing in 0..count {
                // In the opposite order.
                let order: Vec<usize> = (0..count).rev().filter(|role| *role != missing).collect();
                let row = |stripe: u64| {
                    let by_role = expected(&geometry, stripe, missing);
                    let own = order.iter().map(|role| div(by_role[*role], by_role[order[0]]));
                    (264 + stripe * 16, own.collect())
                };
                let rows: Vec<Weighed> = (0..2 * count as u64).map(row).collect();
                assert_eq!(roles(&geometry, 264, &rows), vec![order], "{layout:?} of {count}");
            }
        }
    }
}
