//! The number of equations that a hypothesis meets, and all of the rest that speaks against it.

use std::collections::HashSet;

use braid_array::Role;
use braid_array::geometry::{Geometry, Strip};

use super::begins::is_of_disks;
use super::equations::{Equation, Equations, MANY};
use super::hypothesis::{Hypothesis, MemberInRole};
use super::shapes::copies;

/// The verdict on an equation under a hypothesis.
struct Verdict {
    met: bool,
    /// Whether there is a place for it, where it is or is not.
    seen: bool,
    contradicted: bool,
}

/// A hypothesis with its mapping, by which equations are judged.
struct Judge<'a> {
    one: &'a Hypothesis,
    geometry: Geometry,
    equations: &'a Equations,
}

impl<'a> Judge<'a> {
    fn new(one: &'a Hypothesis, sizes: &[u64], equations: &'a Equations) -> Option<Self> {
        let geometry = one.shape.geometry(one.member_sectors(sizes))?;
        Some(Self { one, geometry, equations })
    }

    /// Where on members these sectors of the array lie.
    fn there(&self, sectors: &[u64]) -> impl Iterator<Item = (usize, u64)> {
        let strips = sectors.iter().flat_map(|at| copies(&self.geometry, *at));
        strips.filter_map(|strip| {
            let place = (*self.one.roles.get(strip.role.index())?)?;
            Some((place.member, place.data_offset + strip.sector))
        })
    }

    fn own(&self, equation: &Equation) -> Verdict {
        let Self { one, geometry, equations } = self;
        let Equation { place, seen, .. } = equation;
        let marked = &equations.marked;
        let sectors: Vec<u64> = equation.places().map(|place| one.origin + place).collect();
        let mut expected = self.there(&sectors).peekable();
        let is_there = expected.peek().is_some();
        let met = expected.any(|(member, at)| equations.found.contains(&(member, at, *place)));
        let seen = met
            || !(is_there && is_sum(one, geometry, seen, marked)
                || !is_there && only_in_parity(one, geometry, &sectors, seen, marked));
        let contradicted = seen && contradicts(one, geometry, &sectors, equation, marked);
        Verdict { met, seen, contradicted }
    }

    fn absolute(&self, equation: &Equation) -> Verdict {
        if is_of_disks(equation, self.one, &self.geometry) {
            return Verdict { met: false, seen: false, contradicted: false };
        }
        let sectors = [equation.place];
        let mut expected = self.there(&sectors).peekable();
        let seen = expected.peek().is_some();
        let met = expected.any(|at| equation.seen.contains(&at));
        Verdict { met, seen, contradicted: false }
    }

    fn all(&self, most: usize) -> impl Iterator<Item = (bool, Verdict)> {
        let own = self.equations.some(most).map(|equation| (true, self.own(equation)));
        own.chain(self.equations.absolute.iter().map(|it| (false, self.absolute(it))))
    }
}

/// Counts the equations that are met.
pub(super) fn score(one: &mut Hypothesis, sizes: &[u64], equations: &Equations, most: usize) {
    let mut met = one.walked.met();
    let mut of = one.walked.of();
    let mut unseen = 0;
    if let Some(judge) = Judge::new(one, sizes, equations) {
        for (is_own, verdict) in judge.all(most) {
            if verdict.seen {
                met += usize::from(verdict.met);
                of += 1 + usize::from(verdict.contradicted);
            } else {
                unseen += usize::from(is_own);
            }
        }
    } else {
        (met, of) = (0, 0);
    }
    (one.met, one.of, one.unseen) = (met, of, unseen);
}

/// Counts the equations that a hypothesis meets, as closely as can be.
pub(super) fn rescore(one: &mut Hypothesis, sizes: &[u64], equations: &Equations) {
    score(one, sizes, equations, MANY);
}

/// The place of a block by a hypothesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Account {
    /// The block is where it belongs.
    Explained,
    /// The block is elsewhere.
    Denied,
    /// The block belongs where nobody can look: parity looks like it.
    Unseen,
}

/// The place of each block by a hypothesis.
pub(super) fn accounts(one: &Hypothesis, sizes: &[u64], equations: &Equations) -> Vec<Account> {
    let Some(judge) = Judge::new(one, sizes, equations) else { return Vec::new() };
    let account = |(_, verdict): (bool, Verdict)| match verdict {
        Verdict { seen: false, .. } => Account::Unseen,
        Verdict { met: true, contradicted: false, .. } => Account::Explained,
        Verdict { .. } => Account::Denied,
    };
    judge.all(MANY).map(account).collect()
}

/// Blocks on the member in this role that belong elsewhere, by the hypothesis. In parity anything
/// may be seen. No more than so many are counted.
pub(super) fn misplaced(
    one: &Hypothesis,
    role: usize,
    sizes: &[u64],
    equations: &Equations,
    most: usize,
) -> usize {
    let Some(geometry) = one.shape.geometry(one.member_sectors(sizes)) else { return 0 };
    let Some(place) = one.roles[role] else { return 0 };
    let role = Role(role as u16);
    let is_elsewhere = |at: u64, equation: &Equation| {
        let sector = at.checked_sub(place.data_offset);
        let there = sector.and_then(|sector| geometry.array_sector_at(Strip { role, sector }));
        there.is_some_and(|there| equation.places().all(|belongs| there != one.origin + belongs))
    };
    let all = equations.some(usize::MAX).flat_map(|equation| {
        let own = equation.seen.iter().filter(|(member, _)| *member == place.member);
        own.filter(move |(_, at)| is_elsewhere(*at, equation))
    });
    all.take(most).count()
}

/// Where parity alone shows a block, by the hypothesis: the number of the member, and the sector of
/// its data.
pub(super) fn only_copies(
    one: &Hypothesis,
    sizes: &[u64],
    equations: &Equations,
) -> Vec<(usize, u64)> {
    let Some(geometry) = one.shape.geometry(one.member_sectors(sizes)) else { return Vec::new() };
    let mut copies = Vec::new();
    for equation in equations.some(MANY) {
        let sectors: Vec<u64> = equation.places().map(|place| one.origin + place).collect();
        for strip in strips(one, &equation.seen) {
            let place = one.roles[strip.role.index()];
            if is_parity_beside(&geometry, &sectors, strip) {
                copies.extend(place.map(|place| (place.member, strip.sector)));
            }
        }
    }
    copies
}

/// Where on members a block was seen, by role.
fn strips<'a>(one: &'a Hypothesis, seen: &'a [(usize, u64)]) -> impl Iterator<Item = Strip> + 'a {
    seen.iter().filter_map(|&(member, at)| {
        let is_it =
            |place: &Option<MemberInRole>| place.is_some_and(|place| place.member == member);
        let role = one.roles.iter().position(is_it)?;
        let sector = at.checked_sub(one.roles[role]?.data_offset)?;
        Some(Strip { role: Role(role as u16), sector })
    })
}

/// Returns whether it was seen in parity alone, of an odd number of such blocks. Such parity looks
/// like a block that it is not, checksums included: these are sums, too.
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

/// Returns whether a block of a missing member was seen in the parity of its row. There it is where
/// the rest of the row is zero.
fn only_in_parity(
    one: &Hypothesis,
    geometry: &Geometry,
    sectors: &[u64],
    seen: &[(usize, u64)],
    marked: &HashSet<(usize, u64)>,
) -> bool {
    if one.shape.level.parity_disks() == 0 {
        return false;
    }
    let is_copy = |strip| is_parity_beside(geometry, sectors, strip);
    strips(one, seen)
        .any(|strip| is_copy(strip) && !has_more(one, geometry, sectors, strip, marked))
}

/// Returns whether this is parity of a row in which the block belongs.
fn is_parity_beside(geometry: &Geometry, sectors: &[u64], strip: Strip) -> bool {
    let mut rows = sectors.iter().flat_map(|at| copies(geometry, *at));
    geometry.array_sector_at(strip).is_none() && rows.any(|row| row.sector == strip.sector)
}

/// Returns whether there are other blocks in the row of this parity. Then it is the sum of all, and
/// not a copy.
fn has_more(
    one: &Hypothesis,
    geometry: &Geometry,
    sectors: &[u64],
    parity: Strip,
    marked: &HashSet<(usize, u64)>,
) -> bool {
    let stripe = parity.sector / u64::from(geometry.chunk_sectors());
    (0..geometry.data_disks()).any(|index| {
        let role = geometry.data_role(stripe, index);
        let place = one.roles.get(role.index()).copied().flatten();
        let is_block =
            place.is_some_and(|at| marked.contains(&(at.member, at.data_offset + parity.sector)));
        let at = geometry.array_sector_at(Strip { role, sector: parity.sector });
        is_block && at.is_some_and(|at| !sectors.contains(&at))
    })
}

/// Returns whether there may be blocks enough in the row of this parity for a sum that looks like
/// one of them.
fn may_be_sum(
    one: &Hypothesis,
    geometry: &Geometry,
    parity: Strip,
    marked: &HashSet<(usize, u64)>,
) -> bool {
    let stripe = parity.sector / u64::from(geometry.chunk_sectors());
    let may_be_block = |index: &u32| {
        let role = geometry.data_role(stripe, *index);
        let place = one.roles.get(role.index()).copied().flatten();
        place.is_none_or(|at| marked.contains(&(at.member, at.data_offset + parity.sector)))
    };
    (0..geometry.data_disks()).filter(may_be_block).count() >= 3
}

/// Returns whether two members of one row hold the same block, though both are said to hold data.
/// Parity is like data where the rest of the row is zero; what is said to be data is not. A block
/// that lies in two places may be found in either, and nowhere else.
fn contradicts(
    one: &Hypothesis,
    geometry: &Geometry,
    sectors: &[u64],
    equation: &Equation,
    marked: &HashSet<(usize, u64)>,
) -> bool {
    let seen = &equation.seen;
    if seen.len() < 2 {
        return false;
    }
    let strips: Vec<Strip> = strips(one, seen).collect();
    if equation.has_copy() && one.shape.level.parity_disks() > 0 {
        let is_no_copy = |strip: &Strip| {
            is_parity_beside(geometry, sectors, *strip)
                && has_more(one, geometry, sectors, *strip, marked)
        };
        let is_no_sum = |strip: &Strip| {
            geometry.array_sector_at(*strip).is_none()
                && !is_parity_beside(geometry, sectors, *strip)
                && !may_be_sum(one, geometry, *strip, marked)
        };
        if strips.iter().any(|strip| is_no_copy(strip) || is_no_sum(strip)) {
            return true;
        }
    }
    strips.iter().enumerate().any(|(index, strip)| {
        let beside = |(other, row): (usize, &Strip)| other != index && row.sector == strip.sector;
        (equation.has_copy() || strips.iter().enumerate().any(beside))
            && geometry.array_sector_at(*strip).is_some_and(|at| !sectors.contains(&at))
    })
}
