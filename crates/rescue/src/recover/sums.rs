//! Sums over rows of the members: they tell whether parity fits, or copies are alike, and who is to
//! blame where not.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use braid_array::geometry::{Geometry, Strip};
use braid_array::level::Level;
use braid_array::{Role, SECTOR_BYTES};

use super::gathered::Gathered;
use super::hypothesis::{Hypothesis, MemberInRole};
use super::marks::Structure;
use super::samples::{ROWS_BYTES, rows_spots};
use crate::bytes::is_zero;
use crate::image::{self, Image};
use crate::kind::{self, Look};
use crate::partitions;

const ROW_SECTORS: u64 = 8;
const ROW_BYTES: usize = (ROW_SECTORS * SECTOR_BYTES) as usize;
/// Rows are read side by side.
const SPOT_SECTORS: u64 = ROWS_BYTES / SECTOR_BYTES;
/// Spots with blocks of a file system that are compared beside those all over a member.
const MARKED_SPOTS: usize = 125;
/// After so many rows of which most do not fit, no more are read.
const HOPELESS_ROWS: usize = 64;
/// The most that is kept of members, in bytes each.
const CACHE_BYTES: usize = 64 << 20;

/// The outcome of rows. Rows of zeroes do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Rows that could be compared.
    pub rows: usize,
    /// Rows that fit.
    pub agree: usize,
    /// Rows in which this member alone is to blame, by number of the member.
    pub blamed: Vec<usize>,
}

impl Sums {
    /// The share that fits, in percent.
    #[must_use]
    pub fn percent(&self) -> f64 {
        if self.rows == 0 { 0.0 } else { self.agree as f64 * 100.0 / self.rows as f64 }
    }

    /// Returns whether they say that the members do not belong together so.
    #[must_use]
    pub const fn refute(&self) -> bool {
        self.rows >= 8 && self.agree * 10 < self.rows * 7
    }

    /// Returns whether they say that the members belong together.
    #[must_use]
    pub const fn confirm(&self) -> bool {
        self.rows >= 8 && self.agree * 10 >= self.rows * 9
    }

    /// Returns whether nearly all of many rows fit.
    pub(super) const fn decide(&self) -> bool {
        self.rows >= 32 && self.agree * 100 >= self.rows * 99
    }

    /// The member that is behind, where one stands out.
    #[must_use]
    pub fn stale(&self) -> Option<usize> {
        let most = self.blamed.iter().copied().max().filter(|most| *most >= 2)?;
        let rest = self.blamed.iter().sum::<usize>() - most;
        let member = self.blamed.iter().position(|rows| *rows == most)?;
        (rest * 3 <= most).then_some(member)
    }
}

/// Members of which what was read is kept.
pub struct Members<'a, 'b> {
    images: &'a mut [&'b mut dyn Image],
    kept: Vec<HashMap<u64, Vec<u8>>>,
    /// The spots of it that are zeroes.
    zero: Vec<HashSet<u64>>,
    used: usize,
}

impl<'a, 'b> Members<'a, 'b> {
    /// In their order.
    pub fn new(images: &'a mut [&'b mut dyn Image]) -> Self {
        let kept = images.iter().map(|_| HashMap::new()).collect();
        let zero = images.iter().map(|_| HashSet::new()).collect();
        Self { images, kept, zero, used: 0 }
    }

    /// Sizes in sectors.
    #[must_use]
    pub fn sizes(&self) -> Vec<u64> {
        self.images.iter().map(|image| image.size_bytes() / SECTOR_BYTES).collect()
    }

    /// Where partitions of each member begin by its table, in sectors.
    pub(super) fn partitions(&mut self) -> Vec<Vec<u64>> {
        let starts = |image: &mut &mut dyn Image| -> Vec<u64> {
            let all =
                partitions::read(&mut **image).map_or_else(|_| Vec::new(), |it| it.partitions);
            let own = all.iter().filter(|one| !one.kind.is_extended() && one.start_bytes > 0);
            own.map(|one| one.start_bytes / SECTOR_BYTES).collect()
        };
        self.images.iter_mut().map(starts).collect()
    }

    /// The kind of a member that is none of md.
    pub(super) fn look(&mut self, member: usize) -> Look {
        kind::look(&mut *self.images[member])
    }

    /// Returns whether all members of a hypothesis hold zeroes about a sector of their data.
    fn are_zero(&mut self, one: &Hypothesis, sector: u64) -> bool {
        one.roles.iter().flatten().all(|place| {
            let at = (place.data_offset + sector) * SECTOR_BYTES;
            let ends = [at, at + ROW_BYTES as u64 - 1];
            ends.into_iter().all(|at| {
                let spot = at - at % ROWS_BYTES;
                self.fetch(place.member, spot);
                self.zero[place.member].contains(&spot)
            })
        })
    }

    /// Reads a spot, unless it is kept.
    fn fetch(&mut self, member: usize, spot: u64) {
        if !self.kept[member].contains_key(&spot) {
            let image = &mut *self.images[member];
            let read = image::read_patchy(image, spot, ROWS_BYTES as usize);
            let bytes = if read.holes.is_empty() { read.bytes } else { Vec::new() };
            self.keep(member, spot, bytes);
        }
    }

    /// The strips of the members of a hypothesis at a sector of their data, by role; `None` where
    /// one of them cannot be read.
    fn strips(
        &mut self,
        one: &Hypothesis,
        sector: u64,
        length: usize,
    ) -> Option<Vec<Option<Vec<u8>>>> {
        let each = one.roles.iter().map(|role| match role {
            Some(place) => {
                let bytes = self.bytes(place.member, place.data_offset + sector, length);
                bytes.map(Some)
            }
            None => Some(None),
        });
        each.collect()
    }

    /// So much of a member; `None` where it cannot be read.
    pub(super) fn bytes(&mut self, member: usize, sector: u64, length: usize) -> Option<Vec<u8>> {
        let at = sector * SECTOR_BYTES;
        let mut found = Vec::with_capacity(length);
        let mut spot = at - at % ROWS_BYTES;
        while found.len() < length {
            self.fetch(member, spot);
            let begin = (at + found.len() as u64 - spot) as usize;
            let bytes = self.kept[member][&spot].get(begin..).filter(|rest| !rest.is_empty())?;
            found.extend_from_slice(&bytes[..bytes.len().min(length - found.len())]);
            spot += ROWS_BYTES;
        }
        Some(found)
    }

    /// Keeps what was read of a member at one of the ranges of [`compared`]; nothing where it could
    /// not be read.
    pub fn keep(&mut self, member: usize, offset_bytes: u64, bytes: Vec<u8>) {
        if self.used > CACHE_BYTES * self.images.len() {
            self.kept.iter_mut().for_each(HashMap::clear);
            self.zero.iter_mut().for_each(HashSet::clear);
            self.used = 0;
        }
        self.used += bytes.len();
        if !bytes.is_empty() && is_zero(&bytes) {
            self.zero[member].insert(offset_bytes);
        }
        self.kept[member].insert(offset_bytes, bytes);
    }
}

/// The outcome of a row.
enum Outcome {
    Agrees,
    Differs { by: Option<Role> },
}

/// Compares rows of a hypothesis.
pub fn sums(
    members: &mut Members<'_, '_>,
    one: &Hypothesis,
    gathered: &Gathered,
    known: &[Structure],
) -> Sums {
    let mut found = Sums { blamed: vec![0; members.sizes().len()], ..Sums::default() };
    let used = one.member_sectors(&members.sizes());
    let Some(geometry) = one.shape.geometry(used) else { return found };
    if !one.shape.is_redundant() {
        return found;
    }
    let structure = &known[one.structure];
    let proves = |role: Role, sector: u64, bytes: &[u8]| {
        let at = geometry.array_sector_at(Strip { role, sector })?;
        let place = at.checked_sub(one.origin)?;
        gathered.proves(structure, one.structure, bytes, place)
    };
    let block_bytes = ROW_BYTES.max(structure.block_bytes() as usize);
    for sector in rows(one, &members.sizes(), used, gathered) {
        if members.are_zero(one, sector) {
            continue;
        }
        let Some(row) = members.strips(one, sector, ROW_BYTES) else { continue };
        if row.iter().flatten().all(|bytes| is_zero(bytes)) {
            continue;
        }
        let outcome = match one.shape.level {
            Level::Raid4 | Level::Raid5 | Level::Raid6 => {
                let chunk = u64::from(geometry.chunk_sectors());
                let room = (chunk - sector % chunk) * SECTOR_BYTES;
                let length = if block_bytes as u64 <= room { block_bytes } else { ROW_BYTES };
                let mut behind = |role: Role| {
                    let block = members.strips(one, sector, length);
                    block.is_some_and(|block| {
                        is_behind(&block, role, &|role, bytes: &[u8]| proves(role, sector, bytes))
                    })
                };
                parity(&geometry, sector, &row, &mut behind)
            }
            Level::Raid1 => copies(&row),
            Level::Raid10 => mirrored(members, one, &geometry, sector),
            Level::Linear | Level::Raid0 => None,
        };
        match outcome {
            Some(Outcome::Agrees) => (found.rows, found.agree) = (found.rows + 1, found.agree + 1),
            Some(Outcome::Differs { by }) => {
                found.rows += 1;
                let place = by.and_then(|role| one.roles.get(role.index()).copied().flatten());
                if let Some(place) = place {
                    found.blamed[place.member] += 1;
                }
            }
            None => {}
        }
        if found.rows >= HOPELESS_ROWS && found.agree * 4 < found.rows {
            break;
        }
    }
    found
}

/// Returns whether a member is behind. Then what the others say of it proves itself, and what it
/// holds does not.
fn is_behind(block: &SumRow, role: Role, proves: &dyn Fn(Role, &[u8]) -> Option<bool>) -> bool {
    let own = block[role.index()].as_deref().and_then(|bytes| proves(role, bytes));
    match proves(role, &xor(block, Some(role.index()))) {
        Some(by_sum) => by_sum || own.is_none(),
        None => false,
    }
}

/// Sectors of the data area to look at: where something is known to lie, and all over it.
fn rows(one: &Hypothesis, sizes: &[u64], used: u64, gathered: &Gathered) -> Vec<u64> {
    let places: Vec<&MemberInRole> = one.roles.iter().flatten().collect();
    let Some(first) = places.first() else { return Vec::new() };
    let all = spots(sizes[first.member], gathered, &places);
    let mut sectors: Vec<u64> = all
        .into_iter()
        .filter_map(|(spot, data_offset)| spot.checked_sub(data_offset))
        .flat_map(|sector| (sector / ROW_SECTORS..).take((SPOT_SECTORS / ROW_SECTORS) as usize))
        .map(|row| row * ROW_SECTORS)
        .filter(|sector| sector + ROW_SECTORS <= used)
        .collect();
    sectors.sort_unstable();
    sectors.dedup();
    sectors
}

/// Sectors of members at which rows are compared, and where the data of that member begin.
fn spots(sectors: u64, gathered: &Gathered, places: &[&MemberInRole]) -> Vec<(u64, u64)> {
    let mut marked: Vec<(u64, u64)> = gathered
        .marks
        .iter()
        .filter_map(|mark| {
            let place = places.iter().find(|place| place.member == mark.member)?;
            Some((mark.sector / SPOT_SECTORS * SPOT_SECTORS, place.data_offset))
        })
        .collect();
    marked.dedup();
    let every = (marked.len() / MARKED_SPOTS).max(1);
    let offset = places.first().map_or(0, |place| place.data_offset);
    let all_over = rows_spots(sectors * SECTOR_BYTES).into_iter();
    let all_over = all_over.map(|at| (at / SECTOR_BYTES, offset));
    marked.into_iter().step_by(every).chain(all_over).collect()
}

/// The ranges of each member that are compared under the best hypothesis: if they have been read at
/// the same time and are given to [`Members::keep`], judging need not read them from one member
/// after the other.
#[must_use]
pub fn compared(found: &[Hypothesis], sizes: &[u64], gathered: &Gathered) -> Vec<Vec<Range<u64>>> {
    let mut all = vec![Vec::new(); sizes.len()];
    let Some(best) = found.first() else { return all };
    let used = best.member_sectors(sizes);
    let places: Vec<MemberInRole> = best.roles.iter().flatten().copied().collect();
    let Some(first) = places.first() else { return all };
    let sectors = rows(best, sizes, used, gathered);
    for (member, ranges) in all.iter_mut().enumerate() {
        let own = places.iter().find(|place| place.member == member).unwrap_or(first);
        let size = sizes[member] * SECTOR_BYTES;
        let spot = |sector: &u64| {
            let at = (own.data_offset + sector) * SECTOR_BYTES / ROWS_BYTES * ROWS_BYTES;
            at..(at + ROWS_BYTES).min(size)
        };
        ranges.extend(sectors.iter().map(spot).filter(|range| range.start < range.end));
        ranges.dedup();
    }
    all
}

type SumRow = [Option<Vec<u8>>];

fn xor(row: &SumRow, without: Option<usize>) -> Vec<u8> {
    let strips = row.iter().enumerate().filter(|(role, _)| Some(*role) != without);
    let strips: Vec<&[u8]> = strips.filter_map(|(_, bytes)| bytes.as_deref()).collect();
    let mut sum = vec![0; strips.first().map_or(ROW_BYTES, |bytes| bytes.len())];
    braid_parity::xor(&mut sum, &strips);
    sum
}

fn parity(
    geometry: &Geometry,
    sector: u64,
    row: &SumRow,
    is_behind: &mut dyn FnMut(Role) -> bool,
) -> Option<Outcome> {
    let stripe = sector / u64::from(geometry.chunk_sectors());
    let (p, q) = geometry.parity_roles(stripe);
    let missing: Vec<usize> = (0..row.len()).filter(|role| row[*role].is_none()).collect();
    let Some(q) = q else {
        if !missing.is_empty() {
            return None;
        }
        if is_zero(&xor(row, None)) {
            return Some(Outcome::Agrees);
        }
        let mut behind = (0..row.len() as u16).map(Role).filter(|role| is_behind(*role));
        return Some(Outcome::Differs { by: only(&mut behind) });
    };
    let mut row = row.to_vec();
    match missing[..] {
        [] => {}
        [one] if one == q.index() => {
            let same = is_zero(&xor(&row, None));
            return Some(if same { Outcome::Agrees } else { Outcome::Differs { by: None } });
        }
        [one] => {
            // P or data by the sum of what is there, without Q.
            let q_strip = row[q.index()].take();
            row[one] = Some(xor(&row, None));
            row[q.index()] = q_strip;
        }
        _ => return None,
    }
    let roles: Vec<Role> =
        (0..geometry.data_disks()).map(|index| geometry.data_role(stripe, index)).collect();
    let data: Vec<&[u8]> = roles.iter().filter_map(|role| row[role.index()].as_deref()).collect();
    let coefs: Vec<u8> =
        (0..geometry.data_disks()).map(|index| geometry.q_coef(stripe, index)).collect();
    let found =
        braid_parity::check(&data, &coefs, row[p.index()].as_ref()?, row[q.index()].as_deref());
    Some(match (found.p_differs, found.q_differs) {
        (0, 0) => Outcome::Agrees,
        _ if !missing.is_empty() => Outcome::Differs { by: None },
        (_, 0) => Outcome::Differs { by: Some(p) },
        (0, _) => Outcome::Differs { by: Some(q) },
        _ => {
            let located = found.data_located.and_then(|index| roles.get(usize::from(index)));
            Outcome::Differs { by: located.copied() }
        }
    })
}

/// The one there is, if there is one alone.
fn only<T>(of: &mut impl Iterator<Item = T>) -> Option<T> {
    let first = of.next()?;
    if of.next().is_none() { Some(first) } else { None }
}

/// raid1: all alike, or one that is not like the others.
fn copies(row: &SumRow) -> Option<Outcome> {
    let there: Vec<(usize, &Vec<u8>)> =
        row.iter().enumerate().filter_map(|(role, bytes)| Some((role, bytes.as_ref()?))).collect();
    if there.len() < 2 {
        return None;
    }
    let likes = |one: &Vec<u8>| there.iter().filter(|other| other.1 == one).count();
    if likes(there[0].1) == there.len() {
        return Some(Outcome::Agrees);
    }
    let mut odd = there.iter().filter(|(_, bytes)| likes(bytes) * 2 < there.len());
    let by = only(&mut odd).map(|(role, _)| Role(*role as u16));
    Some(Outcome::Differs { by })
}

/// raid10: the copies of what lies here on each member.
fn mirrored(
    members: &mut Members<'_, '_>,
    one: &Hypothesis,
    geometry: &Geometry,
    sector: u64,
) -> Option<Outcome> {
    let mut compared = false;
    for role in (0..geometry.raid_disks() as u16).map(Role) {
        let Some(at) = geometry.array_sector_at(Strip { role, sector }) else { continue };
        let mut first: Option<Vec<u8>> = None;
        for strip in (0..geometry.copies()).map(|copy| geometry.copy(at, copy)) {
            let Some(place) = one.roles[strip.role.index()] else { continue };
            let bytes = members.bytes(place.member, place.data_offset + strip.sector, ROW_BYTES)?;
            match &first {
                None => first = Some(bytes),
                Some(first) if *first != bytes => return Some(Outcome::Differs { by: None }),
                Some(_) => compared |= !is_zero(&bytes),
            }
        }
    }
    compared.then_some(Outcome::Agrees)
}
