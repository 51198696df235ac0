//! Redundancy that rows tell before any block is asked: members that hold the same, or add up to
//! nothing, or have one among them without which they do. Rows fix the set and the level, whatever
//! lies on the array, as long as data begin at the same place on all of them.

use std::collections::{BTreeMap, BTreeSet};

use super::gathered::Gathered;
use super::relation::{Redundancy, Relation};
use super::samples::{ROWS_BYTES, rows_spots};
use super::sums::Members;
use super::weights::{Weighed, Weights, weights};
use crate::bytes::is_zero;
use braid_array::SECTOR_BYTES;

const ROW_SECTORS: u64 = 8;
const ROW_BYTES: usize = (ROW_SECTORS * SECTOR_BYTES) as usize;
/// The least number of rows that hold something, and what share of them has to fit.
const LEAST_ROWS: usize = 16;
const LEAST_PERCENT: usize = 99;
/// The least number of rows that depend on each other as they do with two parities alone.
const LEAST_WEIGHED: usize = 4;
/// Rows that say whether it is worth looking at all of them.
const FEW_ROWS: usize = 48;
/// Spots with blocks of a file system that are compared beside those all over a member.
const MARKED_SPOTS: usize = 100;
/// Before the usual place of data, and at ends, superblocks and bitmaps lie.
pub(super) const USUAL_SECTORS: u64 = 2048;
const END_SECTORS: u64 = 256;
/// The most partitions of which anything is kept.
const MOST_STARTS: usize = 16;
/// Sets of more members are not taken apart.
pub(super) const MOST_MEMBERS: usize = 24;

/// A row of all members.
pub(super) struct Row {
    pub(super) sector: u64,
    pub(super) strips: Vec<Vec<u8>>,
}

/// Rows that fit, from some sector on.
struct Fitting {
    lowest: u64,
}

impl Gathered {
    /// Compares rows of the members, and reads their tables of partitions, before it is searched.
    pub fn compare(&mut self, members: &mut Members<'_, '_>) {
        let tables = members.partitions();
        self.are_disks = tables.iter().all(|starts| !starts.is_empty());
        self.starts = tables.into_iter().flatten().take(MOST_STARTS).collect();
        self.redundancy = redundancy(members, self);
    }
}

fn redundancy(members: &mut Members<'_, '_>, gathered: &Gathered) -> Option<Redundancy> {
    let count = members.sizes().len();
    if !(2..=MOST_MEMBERS).contains(&count) {
        return None;
    }
    let rows = rows(members, gathered);
    // Blank members fit anywhere.
    let is_blank = |member: &usize| rows.iter().all(|row| is_zero(&row.strips[*member]));
    let all: Vec<usize> = (0..count).filter(|member| !is_blank(member)).collect();
    if all.len() < 2 {
        return None;
    }
    let mirrors = alike(&rows, &all, &gathered.starts);
    if mirrors.as_ref().is_some_and(|found| found.is_complete(&all)) {
        return mirrors;
    }
    // What holds for all of them says more than what holds for some: where most of each row is
    // zero, parity is a copy.
    let fewer = || subsets(&all).into_iter();
    one_parity(&rows, &all)
        .or_else(|| two_parities(&rows, &all))
        .or_else(|| one_missing(&rows, &all))
        .or(mirrors)
        .or_else(|| fewer().find_map(|some| one_parity(&rows, &some)))
        .or_else(|| fewer().find_map(|some| two_parities(&rows, &some)))
        .or_else(|| fewer().take(all.len()).find_map(|some| one_missing(&rows, &some)))
}

/// Rows that hold something, in order.
pub(super) fn rows(members: &mut Members<'_, '_>, gathered: &Gathered) -> Vec<Row> {
    let sizes = members.sizes();
    let end = sizes.iter().min().map_or(0, |size| size.saturating_sub(END_SECTORS));
    let spot = ROWS_BYTES / SECTOR_BYTES;
    let marked: BTreeSet<u64> = gathered.marks.iter().map(|one| one.sector / spot).collect();
    let every = (marked.len() / MARKED_SPOTS).max(1);
    let all_over = rows_spots(end * SECTOR_BYTES).into_iter().map(|at| at / ROWS_BYTES);
    let spots: BTreeSet<u64> = marked.into_iter().step_by(every).chain(all_over).collect();
    let sectors = spots.into_iter().flat_map(|one| (one * spot..(one + 1) * spot).step_by(8));
    let row = |sector: u64| {
        let strips = (0..sizes.len()).map(|member| members.bytes(member, sector, ROW_BYTES));
        let strips: Vec<Vec<u8>> = strips.collect::<Option<_>>()?;
        let is_empty = strips.iter().all(|strip| is_zero(strip));
        (!is_empty).then_some(Row { sector, strips })
    };
    sectors.filter(|sector| sector + ROW_SECTORS <= end).filter_map(row).collect()
}

/// Looks for the row from which on nearly all rows of these members fit: other things lie before
/// the data. `fits` has nothing to say about some. Members that hold nothing there, or what does
/// not fit, are none of them.
fn fitting(
    rows: &[Row],
    members: &[usize],
    fits: impl Fn(&Row) -> Option<bool>,
) -> Option<Fitting> {
    let found: Vec<(&Row, bool)> = rows.iter().filter_map(|row| Some((row, fits(row)?))).collect();
    let mut agree = found.iter().filter(|(_, fits)| *fits).count();
    for (index, (row, fits)) in found.iter().enumerate() {
        let rest = found.len() - index;
        if rest < LEAST_ROWS || rest * 2 < found.len() {
            return None;
        }
        if *fits && agree * 100 >= rest * LEAST_PERCENT {
            let take_part = members.iter().all(|member| takes_part(&found[index..], *member));
            return take_part.then_some(Fitting { lowest: row.sector });
        }
        agree -= usize::from(*fits);
    }
    None
}

/// Returns whether most rows fit in which this member holds something.
fn takes_part(rows: &[(&Row, bool)], member: usize) -> bool {
    let own = || rows.iter().filter(|(row, _)| !is_zero(&row.strips[member]));
    own().filter(|(_, fits)| *fits).count() * 2 > own().count()
}

/// Groups of members that hold the same.
fn alike(rows: &[Row], all: &[usize], starts: &BTreeSet<u64>) -> Option<Redundancy> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut lowest = u64::MAX;
    let may_be_metadata = |sector: u64| {
        let mut starts = starts.iter().chain([&0]);
        starts.any(|start| (*start..start + USUAL_SECTORS).contains(&sector))
    };
    for &member in all {
        let same = |other: usize| {
            fitting(rows, &[member, other], |row| {
                let strips = [&row.strips[member], &row.strips[other]];
                let is_empty = strips.iter().all(|strip| is_zero(strip));
                // Bitmaps are alike, too, and logs of bad blocks, in which there is nothing.
                let is_log = strips.iter().all(|strip| strip.iter().all(|byte| *byte == 0xff));
                let tells = !is_empty && !is_log && !may_be_metadata(row.sector);
                tells.then(|| strips[0] == strips[1])
            })
        };
        let known = groups.iter_mut().find_map(|group| Some((same(group[0])?, group)));
        match known {
            Some((fitting, group)) => {
                lowest = lowest.min(fitting.lowest);
                group.push(member);
            }
            None => groups.push(vec![member]),
        }
    }
    let largest = groups.iter().map(Vec::len).max().unwrap_or(0);
    let alone = groups.iter().filter(|group| group.len() < largest).count();
    let whole: Vec<&Vec<usize>> = groups.iter().filter(|group| group.len() == largest).collect();
    match whole.len() {
        _ if largest < 2 => None,
        // One mirror, and members that have nothing to do with it; or one of several pairs.
        1 if largest > 2 || alone == 0 || is_foreign(rows, whole[0], all) => {
            let members = whole[0].clone();
            Some(Redundancy { relation: Relation::Alike, members, lowest })
        }
        _ => {
            let relation = Relation::Groups(groups);
            Some(Redundancy { relation, members: all.to_vec(), lowest })
        }
    }
}

/// Returns whether the rest begin or end elsewhere than these. A mirror's half has the beginning of
/// the array.
fn is_foreign(rows: &[Row], pair: &[usize], all: &[usize]) -> bool {
    let holds = |member: usize| rows.iter().filter(|row| !is_zero(&row.strips[member])).count();
    let rest = all.iter().filter(|member| !pair.contains(member));
    rest.map(|member| holds(*member)).all(|rows| rows < LEAST_ROWS)
}

/// Finds the redundancy of these where they add up to zero.
pub(super) fn one_parity(rows: &[Row], members: &[usize]) -> Option<Redundancy> {
    if members.len() < 3 {
        return None;
    }
    let fitting = fitting(rows, members, |row| {
        (!is_same(row, members)).then(|| is_zero(&sum(&strips(row, members))))
    })?;
    let lowest = fitting.lowest;
    Some(Redundancy { relation: Relation::OneParity, members: members.to_vec(), lowest })
}

/// Finds the redundancy of these where, in each row, all but one add up to zero.
pub(super) fn two_parities(rows: &[Row], members: &[usize]) -> Option<Redundancy> {
    if members.len() < 4 {
        return None;
    }
    if are_pairs(rows, members) {
        return None;
    }
    let beside = |row: &Row| {
        let strips = strips(row, members);
        let whole = sum(&strips);
        // Without that one the rest is its own sum.
        let alone = (0..members.len()).filter(|index| strips[*index] == whole.as_slice());
        let alone: Vec<usize> = alone.map(|index| members[index]).collect();
        (!is_same(row, members)).then_some(alone)
    };
    let found = fitting(rows, members, |row| beside(row).map(|alone| !alone.is_empty()))?;
    let single = rows.iter().filter(|row| row.sector >= found.lowest).filter_map(|row| {
        let alone = beside(row)?;
        if alone.len() == 1 { Some((row.sector, alone[0])) } else { None }
    });
    let single: Vec<(u64, usize)> = single.collect();
    let different: BTreeSet<usize> = single.iter().map(|(_, member)| *member).collect();
    let is_told = different.len() > 1 || depend(rows, members, &single);
    is_told.then(|| Redundancy {
        relation: Relation::TwoParities(single),
        members: members.to_vec(),
        lowest: found.lowest,
    })
}

/// Returns whether the strip that is alone in its row is a weighed sum of the others, as Q is: one
/// member may have Q wherever a nearly empty array holds anything.
fn depend(rows: &[Row], members: &[usize], single: &[(u64, usize)]) -> bool {
    let own = single.iter().filter_map(|(sector, member)| {
        let row = rows.iter().find(|row| row.sector == *sector)?;
        (!is_zero(&row.strips[*member])).then(|| weights(&strips(row, members)) != Weights::None)
    });
    let own: Vec<bool> = own.collect();
    let depend = own.iter().filter(|depends| **depends).count();
    depend >= LEAST_WEIGHED && depend * 100 >= own.len() * LEAST_PERCENT
}

/// Returns whether nearly all full rows are pairs of copies and one that is alone. Such rows are a
/// mirror of an odd number.
fn are_pairs(rows: &[Row], members: &[usize]) -> bool {
    let mut full = 0;
    let mut pairs = 0;
    for row in rows {
        let strips = strips(row, members);
        if strips.iter().all(|strip| !is_zero(strip)) {
            let has_copy = |one: &&&[u8]| strips.iter().filter(|other| other == one).count() > 1;
            full += 1;
            pairs += usize::from(strips.iter().filter(|one| !has_copy(one)).count() == 1);
        }
    }
    full > 0 && pairs * 10 >= full * 9
}

/// Members that make up an array with two parities with another one.
fn one_missing(rows: &[Row], members: &[usize]) -> Option<Redundancy> {
    // Most sets of members are none: a few rows say so.
    let every = rows.len().div_ceil(FEW_ROWS).max(1);
    let few = || rows.iter().step_by(every);
    let fits = |row: &&Row| weights(&strips(row, members)) != Weights::None;
    if members.len() < 3 || few().filter(fits).count() * 2 < few().count() {
        return None;
    }
    let all_weights = rows.iter().map(|row| (row.sector, weights(&strips(row, members))));
    let all_weights: BTreeMap<u64, Weights> = all_weights.collect();
    let found = fitting(rows, members, |row| {
        (!is_same(row, members)).then(|| all_weights[&row.sector] != Weights::None)
    })?;
    let of_data = all_weights.into_iter().filter(|(sector, _)| *sector >= found.lowest);
    let weighed = of_data.filter_map(|(sector, weights)| match weights {
        Weights::Only(weights) => Some((sector, weights)),
        Weights::None | Weights::Many => None,
    });
    let weighed: Vec<Weighed> = weighed.collect();
    // One parity alone has all of them alike.
    let differ = weighed.iter().filter(|(_, weights)| weights.iter().any(|one| *one != 1));
    (differ.count() >= LEAST_WEIGHED).then_some(Redundancy {
        relation: Relation::OneMissing(weighed),
        members: members.to_vec(),
        lowest: found.lowest,
    })
}

/// Strips that are the same on all members say nothing: so are bitmaps and logs of bad blocks.
fn is_same(row: &Row, members: &[usize]) -> bool {
    members.iter().all(|member| row.strips[*member] == row.strips[members[0]])
}

fn strips<'a>(row: &'a Row, members: &[usize]) -> Vec<&'a [u8]> {
    members.iter().map(|member| row.strips[*member].as_slice()).collect()
}

fn sum(strips: &[&[u8]]) -> Vec<u8> {
    let mut sum = vec![0; ROW_BYTES];
    braid_parity::xor(&mut sum, strips);
    sum
}

/// All members but one, first, and all but two.
fn subsets(all: &[usize]) -> Vec<Vec<usize>> {
    let without = |out: &[usize]| -> Vec<usize> {
        all.iter().copied().filter(|member| !out.contains(member)).collect()
    };
    let mut sets: Vec<Vec<usize>> = all.iter().map(|one| without(&[*one])).collect();
    for (index, one) in all.iter().enumerate() {
        sets.extend(all[index + 1..].iter().map(|other| without(&[*one, *other])));
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;
    use braid_parity::gf::mul;

    /// The relation of members that hold these rows, from the usual place of data on.
    fn relation(rows: &[[u8; 4]]) -> Option<Redundancy> {
        let member = |index: usize| {
            let mut bytes = vec![0; 2 << 20];
            for (row, words) in rows.iter().enumerate() {
                bytes[(1 << 20) + row * ROW_BYTES..][..ROW_BYTES].fill(words[index]);
            }
            bytes
        };
        let held: Vec<Vec<u8>> = (0..4).map(member).collect();
        let mut images: Vec<&[u8]> = held.iter().map(Vec::as_slice).collect();
        let mut images: Vec<&mut dyn Image> =
            images.iter_mut().map(|image| image as &mut dyn Image).collect();
        redundancy(&mut Members::new(&mut images), &Gathered::default())
    }

    #[test]
    fn parity_of_all_is_believed_before_copies_on_some() {
        let full = (0..40).map(|n| [n + 1, 99, 2 * n + 7, (n + 1) ^ 99 ^ (2 * n + 7)]);
        let copied = (0..60).map(|n| [n + 1, n + 1, 0, 0]);
        let rows: Vec<[u8; 4]> = full.chain(copied).collect();
        let found = relation(&rows).unwrap();
        assert_eq!((found.relation, found.lowest), (Relation::OneParity, 2048));
        assert_eq!(found.members, [0, 1, 2, 3]);
        // Where parity does not hold, there are copies. What a member holds only there is no proof.
        let mut alone = rows;
        alone[..40].iter_mut().for_each(|row| row[3] ^= 1);
        let groups = vec![vec![0, 1], vec![2], vec![3]];
        assert_eq!(relation(&alone).unwrap().relation, Relation::Groups(groups));
        // In pairs, a sum of all says nothing more.
        let pairs: Vec<[u8; 4]> = (0..90).map(|n| [n + 1, n + 1, n + 3, n + 3]).collect();
        let groups = vec![vec![0, 1], vec![2, 3]];
        assert_eq!(relation(&pairs).unwrap().relation, Relation::Groups(groups));
    }

    #[test]
    fn one_member_may_have_q_in_all_rows_that_hold_something() {
        // Data of one member each, which parity repeats, and Q has its weight.
        let first = (1..31).map(|n| [n, 0, n, mul(n, 2)]);
        let second = (1..31).map(|n| [0, n, n, mul(n, 4)]);
        let rows: Vec<[u8; 4]> = first.chain(second).collect();
        let found = relation(&rows).unwrap();
        assert_eq!(found.members, [0, 1, 2, 3]);
        let Relation::TwoParities(single) = found.relation else { panic!("{found:?}") };
        assert!(single.len() == 60 && single.iter().all(|(_, member)| *member == 3));
    }
}
