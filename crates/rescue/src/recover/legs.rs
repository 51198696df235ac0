//! Sets of members each of which adds up to zero alone, or all but one of it in each row: the legs
//! of a RAID 50 or RAID 60, or the members of several arrays.

use std::collections::BTreeMap;

use super::gathered::Gathered;
use super::redundancy::{MOST_MEMBERS, Row, USUAL_SECTORS, one_parity, rows, two_parities};
use super::relation::{Redundancy, Relation};
use super::sums::Members;
use crate::bytes::is_zero;

/// Every so many bytes of a row are looked at.
const STEP: usize = 61;
/// The least members of a leg: parity of fewer is a copy.
const LEAST_MEMBERS: usize = 3;

/// The least rows in which members depend on each other, and one in so many of all that do.
const LEAST_ROWS: usize = 2;
const RARE: usize = 200;

/// Sets of members that may be legs of one array.
pub(super) struct Legs {
    /// Sets of as many members each that rows prove.
    pub(super) whole: Vec<Redundancy>,
    /// All other members, where they may be one more set that lacks one.
    pub(super) lacking: Option<Redundancy>,
}

/// Two sets or more, if rows prove all but one of them.
pub(super) fn legs(members: &mut Members<'_, '_>, gathered: &Gathered) -> Option<Legs> {
    let count = members.sizes().len();
    if !(2 * LEAST_MEMBERS - 1..=MOST_MEMBERS).contains(&count) {
        return None;
    }
    let rows = rows(members, gathered);
    let found = with_one_parity(&rows, count).or_else(|| with_two_parities(&rows, count));
    found.filter(|legs| legs.whole.len() + usize::from(legs.lacking.is_some()) > 1)
}

fn with_one_parity(rows: &[Row], count: usize) -> Option<Legs> {
    let sets = dependent(rows, count);
    let most = sets.iter().map(Vec::len).max()?;
    if !are_apart(&sets) || most < LEAST_MEMBERS || sets.iter().any(|set| set.len() != most) {
        return None;
    }
    let whole: Vec<Redundancy> =
        sets.iter().map(|set| one_parity(rows, set)).collect::<Option<_>>()?;
    let is_other = |member: &usize| sets.iter().all(|set| !set.contains(member));
    let holds = |member: &usize| rows.iter().any(|row| !is_zero(&row.strips[*member]));
    let members: Vec<usize> = (0..count).filter(is_other).filter(holds).collect();
    let lowest = whole.iter().map(|set| set.lowest).max()?;
    let may_lack = members.len() + 1 == most;
    let lacking = may_lack.then_some(Redundancy { relation: Relation::OneLost, members, lowest });
    Some(Legs { whole, lacking })
}

/// Sets of members of which in each row all but one add up to zero, and not always the same one.
fn with_two_parities(rows: &[Row], count: usize) -> Option<Legs> {
    let mut seen: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
    for row in rows {
        let own = dependent(std::slice::from_ref(row), count);
        if are_apart(&own) {
            own.into_iter().for_each(|set| *seen.entry(set).or_default() += 1);
        }
    }
    // Blocks that are alike by chance are so in few rows.
    let least = (seen.values().sum::<usize>() / RARE).max(LEAST_ROWS);
    let mut sets: Vec<Vec<usize>> = Vec::new();
    for (mut set, _) in seen.into_iter().filter(|(_, rows)| *rows >= least) {
        // With all sets that have one of its members it is one.
        let has_own = |known: &Vec<usize>| known.iter().any(|one| set.contains(one));
        let (shared, apart): (Vec<_>, Vec<_>) = sets.into_iter().partition(has_own);
        sets = apart;
        set.extend(shared.concat());
        set.sort_unstable();
        set.dedup();
        sets.push(set);
    }
    let first = sets.first()?.len();
    if sets.iter().any(|set| set.len() != first) {
        return None;
    }
    let whole = sets.iter().map(|set| two_parities(rows, set)).collect::<Option<_>>()?;
    Some(Legs { whole, lacking: None })
}

/// Returns whether no member is in two of these.
fn are_apart(sets: &[Vec<usize>]) -> bool {
    let mut all = sets.concat();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    all.len() == count
}

/// Sets of members that add up to zero in all rows, where none of them has one in common: what is
/// orthogonal to the bits of all rows, of which each is an equation of members.
fn dependent(rows: &[Row], count: usize) -> Vec<Vec<usize>> {
    // By its lowest member each, which no other one has.
    let mut basis: Vec<u32> = vec![0; count];
    for row in rows.iter().filter(|row| row.sector >= USUAL_SECTORS) {
        for at in (0..row.strips[0].len()).step_by(STEP) {
            for bit in 0..8 {
                let has_bit = |member: &usize| row.strips[*member][at] >> bit & 1 == 1;
                let found = (0..count).filter(has_bit).fold(0, |mask, member| mask | 1 << member);
                add(&mut basis, found);
            }
        }
    }
    let free = (0..count).filter(|member| basis[*member] == 0);
    let set = |member: usize| {
        let with = |other: &usize| *other == member || basis[*other] >> member & 1 == 1;
        (0..count).filter(with).collect::<Vec<usize>>()
    };
    // What holds nothing at all is alone.
    free.map(set).filter(|set| set.len() > 1).collect()
}

/// Adds an equation to those that are known, and keeps each of them free of what others begin with.
fn add(basis: &mut [u32], mut one: u32) {
    for (member, known) in basis.iter().enumerate() {
        if *known != 0 && one >> member & 1 == 1 {
            one ^= known;
        }
    }
    if one == 0 {
        return;
    }
    let lowest = one.trailing_zeros();
    for known in basis.iter_mut().filter(|known| **known >> lowest & 1 == 1) {
        *known ^= one;
    }
    basis[lowest as usize] = one;
}

#[cfg(test)]
mod tests {
    use braid_parity::gf::mul;

    use super::*;

    #[test]
    fn each_set_that_adds_up_to_zero_is_told() {
        let noise = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 29) as u8;
        let row = |number: u64| {
            let data = |at: u64| (0..512).map(|n| noise(number * 4096 + at * 512 + n)).collect();
            let xor = |a: &[u8], b: &[u8]| a.iter().zip(b).map(|(a, b)| a ^ b).collect();
            let [a, b, c, d]: [Vec<u8>; 4] = [0, 1, 2, 3].map(data);
            let sums: [Vec<u8>; 2] = [xor(&a, &c), xor(&d, &b)];
            let [first, second] = sums;
            // The last one is alone.
            Row { sector: 2048 + number * 8, strips: vec![a, d, first, b, c, second, vec![0; 512]] }
        };
        let rows: Vec<Row> = (0..4).map(row).collect();
        assert_eq!(dependent(&rows, 7), [vec![0, 2, 4], vec![1, 3, 5]]);
        assert!(dependent(&rows, 4).is_empty());
    }

    #[test]
    fn legs_with_two_parities_are_told_by_all_of_their_rows() {
        let noise = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 29) as u8;
        let leg = |seed: u64, row: u64| {
            let data = |at: u64| (0..4096).map(move |n| noise((seed + row * 8 + at) * 4096 + n));
            let p = data(0).zip(data(1)).map(|(a, b)| a ^ b).collect();
            let q = data(0).zip(data(1)).map(|(a, b)| a ^ mul(b, 2)).collect();
            let mut strips: Vec<Vec<u8>> = vec![data(0).collect(), data(1).collect(), p, q];
            strips.rotate_left((row % 4) as usize);
            strips
        };
        let row = |number: u64| {
            let both = [leg(0, number), leg(1 << 20, number)].concat();
            let strips = [0, 4, 1, 5, 6, 2, 7, 3].map(|at| both[at].clone()).to_vec();
            Row { sector: 2048 + number * 8, strips }
        };
        let mut rows: Vec<Row> = (0..24).map(row).collect();
        let sets = |rows: &[Row]| -> Option<Vec<Vec<usize>>> {
            let legs = with_two_parities(rows, 8)?;
            Some(legs.whole.into_iter().map(|set| set.members).collect())
        };
        assert_eq!(sets(&rows), Some(vec![vec![0, 2, 5, 7], vec![1, 3, 4, 6]]));
        rows.iter_mut().for_each(|row| row.strips[3][0] ^= 1);
        assert_eq!(sets(&rows), None);
    }

    #[test]
    fn the_rest_may_be_a_leg_that_lacks_a_member() {
        let row = |number: u64| {
            let word = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 29) as u8;
            let strip = |at: u64| (0..4096).map(move |n| word((number * 8 + at) * 4096 + n));
            let sum = strip(0).zip(strip(1)).map(|(a, b)| a ^ b).collect();
            let each = [strip(2), strip(0), strip(3), strip(1)].map(Iterator::collect);
            Row { sector: 2048 + number * 8, strips: [each.to_vec(), vec![sum]].concat() }
        };
        let rows: Vec<Row> = (0..24).map(row).collect();
        let found = with_one_parity(&rows, 5).unwrap();
        assert_eq!(found.whole[0].members, [1, 3, 4]);
        let lacking = found.lacking.unwrap();
        assert_eq!((lacking.relation, lacking.members), (Relation::OneLost, vec![0, 2]));
    }
}
