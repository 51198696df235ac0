//! What rows say before any block is asked: which members hold the same, or add up to nothing, or
//! have one among them without which they do. That fixes the set and the level, whatever lies on
//! the array, as long as data begin at the same place on all of them.

use std::collections::BTreeSet;

use super::gathered::Gathered;
use super::samples::{ROWS_BYTES, rows_spots};
use super::sums::Members;
use crate::bytes::is_zero;
use braid_array::SECTOR_BYTES;

const ROW_SECTORS: u64 = 8;
const ROW_BYTES: usize = (ROW_SECTORS * SECTOR_BYTES) as usize;
/// The least number of rows that hold something, and what share of them has to fit.
const LEAST_ROWS: usize = 16;
const LEAST_PERCENT: usize = 99;
/// Spots with blocks of a file system that are compared beside those all over a member.
const MARKED_SPOTS: usize = 100;
/// Before the usual place of data, and at ends, superblocks and bitmaps lie.
const USUAL_SECTORS: u64 = 2048;
const END_SECTORS: u64 = 256;
/// Sets of more members are not taken apart.
const MOST_MEMBERS: usize = 24;

/// How members belong together, by their rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// They hold the same.
    Alike,
    /// Some hold the same as another each; others are alone.
    Groups(Vec<Vec<usize>>),
    /// They add up to zero.
    OneParity,
    /// Without one of them they add up to zero: in these rows it is this one alone.
    TwoParities(Vec<(u64, usize)>),
}

/// A set of members that rows prove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Redundancy {
    pub(super) relation: Relation,
    /// In the order in which they were given.
    pub(super) members: Vec<usize>,
    /// The lowest sector at which rows fit that hold something of the array.
    pub(super) lowest: u64,
}

/// A row of all members.
struct Row {
    sector: u64,
    strips: Vec<Vec<u8>>,
}

/// Rows that fit, from some sector on.
struct Fitting {
    lowest: u64,
}

impl Gathered {
    /// Compares rows of the members, before it is searched.
    pub fn compare(&mut self, members: &mut Members<'_, '_>) {
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
    alike(&rows, &all).or_else(|| one_parity(&rows, &all)).or_else(|| two_parities(&rows, &all))
}

/// Rows that hold something, in order.
fn rows(members: &mut Members<'_, '_>, gathered: &Gathered) -> Vec<Row> {
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

/// Do nearly all rows fit, but for what lies before the data? `fits` has nothing to say about some.
fn fitting(rows: &[Row], fits: impl Fn(&Row) -> Option<bool>) -> Option<Fitting> {
    let found: Vec<(u64, bool)> =
        rows.iter().filter_map(|row| Some((row.sector, fits(row)?))).collect();
    let mut agree = found.iter().filter(|(_, fits)| *fits).count();
    for (index, (sector, fits)) in found.iter().enumerate() {
        let rest = found.len() - index;
        if rest < LEAST_ROWS || rest * 2 < found.len() {
            return None;
        }
        if *fits && agree * 100 >= rest * LEAST_PERCENT {
            return Some(Fitting { lowest: *sector });
        }
        agree -= usize::from(*fits);
    }
    None
}

/// Groups of members that hold the same.
fn alike(rows: &[Row], all: &[usize]) -> Option<Redundancy> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut lowest = u64::MAX;
    for &member in all {
        let same = |other: usize| {
            fitting(rows, |row| {
                let strips = [&row.strips[member], &row.strips[other]];
                let is_empty = strips.iter().all(|strip| is_zero(strip));
                // Bitmaps are alike, too.
                (!is_empty && row.sector >= USUAL_SECTORS).then(|| strips[0] == strips[1])
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

/// Do the rest begin or end elsewhere than these? A mirror's half has the beginning of the array.
fn is_foreign(rows: &[Row], pair: &[usize], all: &[usize]) -> bool {
    let holds = |member: usize| rows.iter().filter(|row| !is_zero(&row.strips[member])).count();
    let rest = all.iter().filter(|member| !pair.contains(member));
    rest.map(|member| holds(*member)).all(|rows| rows < LEAST_ROWS)
}

/// The largest set that adds up to zero.
fn one_parity(rows: &[Row], all: &[usize]) -> Option<Redundancy> {
    subsets(all, 3).into_iter().find_map(|members| {
        let fitting = fitting(rows, |row| {
            let strips = strips(row, &members);
            // What is the same on all of them says nothing: so are bitmaps.
            let is_same = strips.iter().all(|strip| strip == &strips[0]);
            (!is_same).then(|| is_zero(&sum(&strips)))
        })?;
        let fitting = fitting.lowest;
        Some(Redundancy { relation: Relation::OneParity, members, lowest: fitting })
    })
}

/// The largest set of which, in each row, all but one add up to zero.
fn two_parities(rows: &[Row], all: &[usize]) -> Option<Redundancy> {
    subsets(all, 4).into_iter().find_map(|members| {
        let beside = |row: &Row| {
            let strips = strips(row, &members);
            let is_same = strips.iter().all(|strip| strip == &strips[0]);
            let whole = sum(&strips);
            // Without that one the rest is its own sum.
            let alone = (0..members.len()).filter(|index| strips[*index] == whole.as_slice());
            let alone: Vec<usize> = alone.map(|index| members[index]).collect();
            // Pairs of copies and one that is alone are a mirror of an odd number.
            let has_pair = |one: &&[u8]| strips.iter().filter(|other| *other == one).count() > 1;
            let are_pairs = strips.iter().filter(|one| !has_pair(one)).count() == 1
                && !strips.iter().any(|one| is_zero(one));
            (!is_same).then(|| if are_pairs { Vec::new() } else { alone })
        };
        let found = fitting(rows, |row| beside(row).map(|alone| !alone.is_empty()))?;
        let single = rows.iter().filter(|row| row.sector >= found.lowest).filter_map(|row| {
            let alone = beside(row)?;
            if alone.len() == 1 { Some((row.sector, alone[0])) } else { None }
        });
        let single: Vec<(u64, usize)> = single.collect();
        let different: BTreeSet<usize> = single.iter().map(|(_, member)| *member).collect();
        (different.len() > 1).then_some(Redundancy {
            relation: Relation::TwoParities(single),
            members,
            lowest: found.lowest,
        })
    })
}

fn strips<'a>(row: &'a Row, members: &[usize]) -> Vec<&'a [u8]> {
    members.iter().map(|member| row.strips[*member].as_slice()).collect()
}

fn sum(strips: &[&[u8]]) -> Vec<u8> {
    let mut sum = vec![0; ROW_BYTES];
    braid_parity::xor(&mut sum, strips);
    sum
}

/// All members, all but one, all but two; none of fewer than so many.
fn subsets(all: &[usize], least: usize) -> Vec<Vec<usize>> {
    let without = |out: &[usize]| -> Vec<usize> {
        all.iter().copied().filter(|member| !out.contains(member)).collect()
    };
    let mut sets = vec![all.to_vec()];
    sets.extend(all.iter().map(|one| without(&[*one])));
    for (index, one) in all.iter().enumerate() {
        sets.extend(all[index + 1..].iter().map(|other| without(&[*one, *other])));
    }
    sets.retain(|set| set.len() >= least);
    sets
}
