//! Sets of members each of which adds up to zero alone: the legs of a RAID 50, or the members of
//! several arrays.

use super::gathered::Gathered;
use super::redundancy::{MOST_MEMBERS, Row, USUAL_SECTORS, one_parity, rows};
use super::relation::Redundancy;
use super::sums::Members;

/// Every so many bytes of a row are looked at.
const STEP: usize = 61;
/// The least members of a leg: parity of fewer is a copy.
const LEAST_MEMBERS: usize = 3;

/// Two sets or more of as many members each, if rows prove them.
pub(super) fn legs(members: &mut Members<'_, '_>, gathered: &Gathered) -> Option<Vec<Redundancy>> {
    let count = members.sizes().len();
    if !(2 * LEAST_MEMBERS..=MOST_MEMBERS).contains(&count) {
        return None;
    }
    let rows = rows(members, gathered);
    let sets = dependent(&rows, count);
    let most = sets.iter().map(Vec::len).max()?;
    let alike = sets.len() > 1 && sets.iter().all(|set| set.len() == most);
    let is_once = |member| sets.iter().filter(|set| set.contains(&member)).count() <= 1;
    if !alike || most < LEAST_MEMBERS || !(0..count).all(is_once) {
        return None;
    }
    sets.iter().map(|set| one_parity(&rows, set)).collect()
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
}
