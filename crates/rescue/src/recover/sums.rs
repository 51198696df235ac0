//! What rows of the members say: whether parity fits, or copies are alike, and who is to blame
//! where not.

use std::collections::HashMap;

use braid_array::geometry::{Geometry, Strip};
use braid_array::level::Level;
use braid_array::{Role, SECTOR_BYTES};

use super::marks::{Gathered, Structure};
use super::votes::Hypothesis;
use crate::bytes::is_zero;
use crate::image::{self, Image};

const ROW_SECTORS: u64 = 8;
const ROW_BYTES: usize = (ROW_SECTORS * SECTOR_BYTES) as usize;
/// Rows are read side by side, and as many as this are looked for.
const SPOT_ROWS: u64 = 8;
const SPOTS: u64 = 250;
/// After so many rows of which most do not fit, no more are read.
const HOPELESS_ROWS: usize = 64;
/// What is kept of members, in bytes each.
const CACHE_BYTES: usize = 64 << 20;

/// What the rows said. Rows of zeroes do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Rows that could be compared.
    pub rows: usize,
    /// Those that fit.
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

    /// Do they say that the members do not belong together so?
    #[must_use]
    pub const fn refute(&self) -> bool {
        self.rows >= 8 && self.agree * 10 < self.rows * 7
    }

    /// Do they say that the members belong together?
    #[must_use]
    pub const fn confirm(&self) -> bool {
        self.rows >= 8 && self.agree * 10 >= self.rows * 9
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
    used: usize,
}

impl<'a, 'b> Members<'a, 'b> {
    /// In their order.
    pub fn new(images: &'a mut [&'b mut dyn Image]) -> Self {
        let kept = images.iter().map(|_| HashMap::new()).collect();
        Self { images, kept, used: 0 }
    }

    /// Sizes in sectors.
    #[must_use]
    pub fn sizes(&self) -> Vec<u64> {
        self.images.iter().map(|image| image.size_bytes() / SECTOR_BYTES).collect()
    }

    /// A row of a member; `None` where it cannot be read.
    fn row(&mut self, member: usize, sector: u64) -> Option<Vec<u8>> {
        const SPOT_BYTES: u64 = SPOT_ROWS * ROW_SECTORS * SECTOR_BYTES;
        let at = sector * SECTOR_BYTES;
        let mut row = Vec::with_capacity(ROW_BYTES);
        let mut spot = at - at % SPOT_BYTES;
        while row.len() < ROW_BYTES {
            if !self.kept[member].contains_key(&spot) {
                if self.used > CACHE_BYTES * self.images.len() {
                    self.kept.iter_mut().for_each(HashMap::clear);
                    self.used = 0;
                }
                let image = &mut *self.images[member];
                let found = image::read_patchy(image, spot, SPOT_BYTES as usize);
                let bytes = if found.holes.is_empty() { found.bytes } else { Vec::new() };
                self.used += bytes.len();
                self.kept[member].insert(spot, bytes);
            }
            let begin = (at + row.len() as u64 - spot) as usize;
            let bytes = self.kept[member][&spot].get(begin..).filter(|rest| !rest.is_empty())?;
            row.extend_from_slice(&bytes[..bytes.len().min(ROW_BYTES - row.len())]);
            spot += SPOT_BYTES;
        }
        Some(row)
    }
}

/// How a row came out.
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
    for sector in rows(one, used, gathered) {
        let each = one.roles.iter().map(|role| {
            let place = (*role)?;
            members.row(place.member, place.data_offset + sector)
        });
        let row: Vec<Option<Vec<u8>>> = each.collect();
        let unread = row.iter().zip(&one.roles).any(|(row, role)| row.is_none() && role.is_some());
        if unread || row.iter().flatten().all(|bytes| is_zero(bytes)) {
            continue;
        }
        let proves = |role: Role, bytes: &[u8]| {
            let at = geometry.array_sector_at(Strip { role, sector })?;
            let (place, by_sum) = gathered.proven(&known[one.structure], one.structure, bytes)?;
            (one.origin + place == at).then_some(by_sum)
        };
        let outcome = match one.shape.level {
            Level::Raid4 | Level::Raid5 | Level::Raid6 => parity(&geometry, sector, &row, &proves),
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

/// Sectors of the data area to look at: where something is known to lie, and all over it.
fn rows(one: &Hypothesis, used: u64, gathered: &Gathered) -> Vec<u64> {
    const SPOT: u64 = SPOT_ROWS * ROW_SECTORS;
    let spots = (used / SPOT).max(1);
    let offset = |member| one.roles.iter().flatten().find(|place| place.member == member);
    let marked: Vec<u64> = gathered
        .marks
        .iter()
        .filter_map(|mark| mark.sector.checked_sub(offset(mark.member)?.data_offset))
        .map(|sector| sector / SPOT)
        .collect();
    let every = (marked.len() / (SPOTS / 2) as usize).max(1);
    let mut all: Vec<u64> = marked.into_iter().step_by(every).collect();
    if spots <= SPOTS {
        all.extend(0..spots);
    } else {
        let spot = |index: u64| index.wrapping_mul(0x9e37_79b9_7f4a_7c15) % spots;
        all.extend((1..=SPOTS).map(spot));
    }
    all.sort_unstable();
    all.dedup();
    let sectors = all.into_iter().flat_map(|spot| (0..SPOT_ROWS).map(move |row| (spot, row)));
    let sectors = sectors.map(|(spot, row)| spot * SPOT + row * ROW_SECTORS);
    sectors.filter(|sector| sector + ROW_SECTORS <= used).collect()
}

type Row = [Option<Vec<u8>>];

fn xor(row: &Row, without: Option<usize>) -> Vec<u8> {
    let strips = row.iter().enumerate().filter(|(role, _)| Some(*role) != without);
    let strips: Vec<&[u8]> = strips.filter_map(|(_, bytes)| bytes.as_deref()).collect();
    let mut sum = vec![0; ROW_BYTES];
    braid_parity::xor(&mut sum, &strips);
    sum
}

fn parity(
    geometry: &Geometry,
    sector: u64,
    row: &Row,
    proves: &dyn Fn(Role, &[u8]) -> Option<bool>,
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
        // What the others say of a member proves itself where that member is behind.
        let says = |index: &usize| {
            let role = Role(*index as u16);
            let own = row[*index].as_deref().and_then(|bytes| proves(role, bytes));
            match proves(role, &xor(row, Some(*index))) {
                Some(by_sum) => by_sum || own.is_none(),
                None => false,
            }
        };
        let mut behind = (0..row.len()).filter(says);
        let by = only(&mut behind);
        return Some(Outcome::Differs { by: by.map(|role| Role(role as u16)) });
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
fn copies(row: &Row) -> Option<Outcome> {
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
            let bytes = members.row(place.member, place.data_offset + strip.sector)?;
            match &first {
                None => first = Some(bytes),
                Some(first) if *first != bytes => return Some(Outcome::Differs { by: None }),
                Some(_) => compared |= !is_zero(&bytes),
            }
        }
    }
    compared.then_some(Outcome::Agrees)
}
