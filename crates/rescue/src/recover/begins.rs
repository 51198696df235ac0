//! Where an array begins on its members. The blocks of a file system tell that only if it begins
//! with the array: moved by whole rows, it reads the same. A label, a table, a usual place say so.

use std::collections::BTreeMap;

use braid_array::Role;
use braid_array::geometry::{Geometry, Strip};

use super::equations::{Equation, Equations};
use super::hypothesis::{Hypothesis, MemberInRole};
use super::relation::Redundancy;
use super::shapes::copies;

/// Where data begin, in sectors, as md, mdadm and controllers have it.
pub(super) const USUAL_OFFSETS: [u64; 6] = [2048, 0, 262_144, 264_192, 8, 16];
/// The same of other versions of mdadm, and for devices of other sizes.
const FURTHER_OFFSETS: [u64; 8] = [264, 272, 4096, 8192, 16_384, 32_768, 65_536, 131_072];
/// Labels and tables lie in the first sectors of what they are of.
const LABEL_SECTORS: u64 = 8;

/// The certainty of the place where the array begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Beginning {
    /// A label or a table says so.
    Labelled,
    /// The file system begins there, which is a usual place, or rows fit from there on.
    First,
    /// A usual place, and rows fit above it.
    Usual,
    /// Nothing says so.
    Unsure,
}

impl Equations {
    /// Where data begin by labels and tables, on one of these members, the lowest place first.
    pub(super) fn labelled(&self, members: &[usize]) -> Vec<u64> {
        let mut seen: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for one in self.absolute.iter().filter(|one| one.place < LABEL_SECTORS) {
            for (member, at) in one.seen.iter().filter(|(member, _)| members.contains(member)) {
                if let Some(data_offset) = at.checked_sub(one.place) {
                    seen.entry(data_offset).or_default().push(*member);
                }
            }
        }
        seen.into_keys().collect()
    }
}

/// All offsets that are usual.
fn usual_offsets() -> impl Iterator<Item = u64> {
    USUAL_OFFSETS.into_iter().chain(FURTHER_OFFSETS)
}

impl Equations {
    /// All offsets that are usual, on disks and in their partitions: those in partitions first.
    pub(super) fn usual_offsets(&self) -> impl Iterator<Item = u64> + '_ {
        let within = |start: &u64| {
            let start = *start;
            USUAL_OFFSETS.into_iter().map(move |offset| start + offset)
        };
        self.starts.iter().flat_map(within).chain(usual_offsets())
    }

    fn is_usual(&self, offset: u64) -> bool {
        let starts = self.starts.iter().chain([&0]);
        let mut within = starts.filter_map(|start| offset.checked_sub(*start));
        within.any(|offset| usual_offsets().any(|usual| usual == offset))
    }

    /// Returns whether data begin on disks before any of their partitions, and the file system in
    /// none. Then the tables are not the array's, and something has to say that it lies there.
    fn is_beside_partitions(&self, one: &Hypothesis, begins: u64) -> bool {
        let first = self.starts.iter().min();
        let is_disk = begins == 0 && self.starts.contains(&one.origin);
        first.is_some_and(|first| begins < *first) && !is_disk
    }
}

/// Returns whether data may begin there: md has them begin at 4 KiB of its device: a disk, or a
/// partition that begins there, too, or at sector 63 or 34 as older ones do.
pub(super) const fn may_begin(data_offset: u64) -> bool {
    matches!(data_offset % 8, 0 | 2 | 7)
}

/// Where the data of most members begin.
pub(super) fn data_offset(one: &Hypothesis) -> u64 {
    let all = || one.roles.iter().flatten().map(|place| place.data_offset);
    let count = |offset: &u64| all().filter(|other| other == offset).count();
    all().max_by_key(|offset| (count(offset), std::cmp::Reverse(*offset))).unwrap_or(0)
}

/// Judges the place where a hypothesis has the array begin.
pub(super) fn beginning(
    one: &Hypothesis,
    sizes: &[u64],
    equations: &Equations,
    proven: Option<&Redundancy>,
) -> Beginning {
    let begins = data_offset(one);
    let is_usual = |offset: u64| equations.is_usual(offset);
    let is_beside = equations.is_beside_partitions(one, begins);
    // What fits anywhere on one of the members fits by chance.
    let offsets = || one.roles.iter().flatten().map(|place| place.data_offset);
    let differ = offsets().any(|offset| offset != begins);
    let is_told = proven.is_some() || !one.hinted.is_empty();
    if differ && !is_told && !offsets().all(is_usual) {
        return Beginning::Unsure;
    }
    let is_usual = is_usual(begins);
    // A mirror of whole disks and one of their partitions hold the same there.
    if one.shape.is_mirror()
        && equations.are_disks
        && equations.starts.contains(&(begins + one.origin))
    {
        return Beginning::Unsure;
    }
    let is_labelled = !is_beside && is_labelled(one, sizes, equations);
    if is_labelled || !one.hinted.is_empty() {
        return Beginning::Labelled;
    }
    let members: Vec<usize> = one.roles.iter().flatten().map(|place| place.member).collect();
    // A label further up may be of something within the array.
    let top = begins.max(proven.map_or(u64::MAX, |proven| proven.lowest));
    if equations.labelled(&members).iter().any(|label| *label > 0 && *label <= top) {
        return Beginning::Unsure;
    }
    // Rows that fit below are of the array, too.
    let chunk = u64::from(one.shape.chunk_sectors.max(256));
    let fits_from = proven.map(|proven| proven.lowest);
    match fits_from {
        Some(lowest) if lowest < begins => Beginning::Unsure,
        Some(lowest) if one.origin == 0 && (is_usual || lowest < begins + chunk) => {
            Beginning::First
        }
        Some(_) if is_usual && !is_beside => Beginning::Usual,
        None if one.origin == 0 && is_usual => Beginning::First,
        _ => Beginning::Unsure,
    }
}

/// Returns whether a label or a table lies where the array has its first sectors by this.
fn is_labelled(one: &Hypothesis, sizes: &[u64], equations: &Equations) -> bool {
    let Some(geometry) = one.shape.geometry(one.member_sectors(sizes)) else { return false };
    let place = |role: Role| one.roles.get(role.index()).copied().flatten();
    equations.absolute.iter().any(|label| {
        let is_there = copies(&geometry, label.place).any(|strip| {
            let place = place(strip.role);
            place.is_some_and(|it| label.seen.contains(&(it.member, it.data_offset + strip.sector)))
        });
        is_there && !is_of_disks(label, one, &geometry)
    })
}

/// Returns whether the same label or table lies on members where the array has none, by this:
/// before the data of all, or where the array has something else. Members that are disks have a
/// table each, which is none of the array.
pub(super) fn is_of_disks(label: &Equation, one: &Hypothesis, geometry: &Geometry) -> bool {
    let places = || (0..geometry.raid_disks() as u16).map(Role).zip(one.roles.iter().copied());
    let seen =
        |place: MemberInRole| label.seen.iter().filter(move |(member, _)| *member == place.member);
    let mut before = 0;
    let mut others = 0;
    for (role, place) in places().filter_map(|(role, place)| Some((role, place?))) {
        for (_, at) in seen(place) {
            let sector = at.checked_sub(place.data_offset);
            let own = sector.filter(|sector| *sector == label.place);
            let there = own.and_then(|sector| geometry.array_sector_at(Strip { role, sector }));
            if there.is_some_and(|there| there != label.place) {
                return true;
            }
            if sector.is_none() && *at == label.place { before += 1 } else { others += 1 }
        }
    }
    before > 1 && others == 0
}
