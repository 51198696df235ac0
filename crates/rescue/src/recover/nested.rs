//! Several arrays among the members, and RAID 50 and 60, which are a raid0 over several raid5 or
//! raid6, found by what lies on it. Rows tell the members of each leg; the order of legs and the
//! outer chunk are those by which blocks lie in their places.

use std::collections::BTreeSet;

use braid_array::level::{Layout, Level};

use super::begins::USUAL_OFFSETS;
use super::equations::Equations;
use super::gathered::Gathered;
use super::hypothesis::{Hypothesis, order};
use super::legs::{Legs, legs};
use super::marks::Structure;
use super::proven::{Placed, permutations, search_proven};
use super::rank::rank;
use super::ranked::{Confidence, Ranked};
use super::relation::Redundancy;
use super::shapes::{CHUNKS, Shape};
use super::sums::{Members, sums};

/// Where on the outer array a file system may begin, in sectors, beside where something says so.
const USUAL_ORIGINS: [u64; 2] = [0, 2048];
/// More legs are not put into each order.
const MOST_LEGS: usize = 5;
/// Ones that are looked at closely.
const MOST_IMPROVED: usize = 200;
/// The least for [`Confidence::Likely`]: blocks, percent of them, points before the next.
const LEAST_BLOCKS: usize = 24;
const LIKELY_PERCENT: f64 = 90.0;
const LEAST_LEAD: f64 = 20.0;
/// The percent with which nothing further is looked for.
const ENOUGH_PERCENT: f64 = 80.0;

/// A raid0 whose members are arrays.
#[derive(Clone, Debug)]
pub struct Nested {
    /// The outer array.
    pub shape: Shape,
    /// Where its data begin in each leg, in sectors.
    pub data_offset: u64,
    /// The legs, in the order of their roles.
    pub legs: Vec<Hypothesis>,
    /// The confidence that it deserves.
    pub confidence: Confidence,
    /// Evidence for it, for people.
    pub evidence: Vec<String>,
    /// Where in the array the structure ends by which it was found, in sectors, where that is
    /// known.
    pub needed_sectors: Option<u64>,
}

/// A possible outer array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outer {
    chunk: u64,
    legs: u64,
    data_offset: u64,
    origin: u64,
}

impl Outer {
    /// Where a sector of the array lies in the leg in this role, if it does.
    fn in_leg(self, role: u64, sector: u64) -> Option<u64> {
        let stripe = sector / self.chunk;
        let within = stripe / self.legs * self.chunk + sector % self.chunk;
        (stripe % self.legs == role).then_some(within + self.data_offset)
    }
}

/// One that was tried.
struct TriedLegs {
    outer: Outer,
    legs: Vec<Hypothesis>,
    /// The leg in each role.
    order: Vec<usize>,
}

impl TriedLegs {
    fn met(&self) -> usize {
        self.legs.iter().map(|leg| leg.met).sum()
    }

    fn of(&self) -> usize {
        self.legs.iter().map(|leg| leg.of + leg.unseen).sum()
    }

    fn percent(&self) -> f64 {
        self.met() as f64 * 100.0 / self.of().max(1) as f64
    }
}

/// The facts that are searched.
struct LegSearch<'a> {
    legs: &'a [Redundancy],
    sizes: &'a [u64],
    equations: &'a Equations,
}

/// Several arrays that are found among the members.
#[derive(Clone, Debug)]
pub enum Arrays {
    /// The arrays are the members of one more.
    Nested(Nested),
    /// Each is one by itself.
    Several(Vec<Ranked>),
}

/// The arrays of which these are members, if rows prove that there are several.
pub fn arrays(
    members: &mut Members<'_, '_>,
    gathered: &Gathered,
    known: &[Structure],
    names: &[String],
) -> Option<Arrays> {
    let Legs { whole, lacking } = legs(members, gathered)?;
    if whole.len() + usize::from(lacking.is_some()) > MOST_LEGS {
        return None;
    }
    let sizes = members.sizes();
    let alone: Vec<Alone> =
        whole.iter().map(|leg| Alone::new(leg, &sizes, gathered, known)).collect();
    let most = alone.iter().map(Alone::percent).fold(0.0, f64::max);
    // Nothing but blocks says that there is a leg without one of its members.
    let with = lacking.and_then(|lacking| {
        let legs = [&whole[..], &[lacking]].concat();
        nested(&legs, members, gathered, known, names)
    });
    let is_likely = |(one, percent): &(Nested, f64)| {
        one.confidence == Confidence::Likely && percent - most >= LEAST_LEAD
    };
    if let Some((one, _)) = with.filter(is_likely) {
        return Some(Arrays::Nested(one));
    }
    if whole.len() < 2 {
        return None;
    }
    match nested(&whole, members, gathered, known, names) {
        Some((mut nested, percent)) if percent > most => {
            if percent - most < LEAST_LEAD {
                nested.confidence = Confidence::Guess;
            }
            Some(Arrays::Nested(nested))
        }
        _ => {
            let each = alone.iter().filter_map(|one| one.rank(members, known, names));
            let each: Vec<Ranked> = each.collect();
            (!each.is_empty()).then_some(Arrays::Several(each))
        }
    }
}

/// A set of members as an array by itself.
struct Alone {
    gathered: Gathered,
    found: Vec<Hypothesis>,
    members: Vec<usize>,
}

impl Alone {
    fn new(leg: &Redundancy, sizes: &[u64], gathered: &Gathered, known: &[Structure]) -> Self {
        let gathered = gathered.within(leg);
        let equations = Equations::of(&gathered, known);
        let found = equations.map(|equations| search_proven(leg, sizes, &equations));
        let mut found = found.unwrap_or_default();
        found.sort_by(order);
        Self { gathered, found, members: leg.members.clone() }
    }

    fn percent(&self) -> f64 {
        self.found.first().map_or(0.0, Hypothesis::percent)
    }

    fn rank(
        &self,
        members: &mut Members<'_, '_>,
        known: &[Structure],
        names: &[String],
    ) -> Option<Ranked> {
        let ranked = rank(&self.found, members, &self.gathered, known, names);
        let mut best = ranked.into_iter().next()?;
        // It is to be looked at alone before anything is written.
        best.confidence = best.confidence.max(Confidence::Likely);
        let mut used = best.hypothesis.roles.iter().flatten();
        used.all(|place| self.members.contains(&place.member)).then_some(best)
    }
}

/// An array of arrays, if blocks say how legs belong together, and the percent of them that agree.
fn nested(
    legs: &[Redundancy],
    members: &mut Members<'_, '_>,
    gathered: &Gathered,
    known: &[Structure],
    names: &[String],
) -> Option<(Nested, f64)> {
    let equations = Equations::of(gathered, known)?;
    let sizes = members.sizes();
    let search = LegSearch { legs, sizes: &sizes, equations: &equations };
    let mut tried = search.all();
    tried.sort_by_key(|one| (std::cmp::Reverse(one.met()), one.of()));
    tried.truncate(MOST_IMPROVED);
    tried.iter_mut().for_each(|one| search.improve(one));
    tried.sort_by_key(|one| (std::cmp::Reverse(one.met()), one.of()));
    // With two parities rows say which are not meant.
    let mut rest = tried.into_iter().filter_map(|one| {
        let said = one.legs.iter().map(|leg| {
            let said = sums(members, leg, gathered, known);
            (!said.refute()).then_some(said)
        });
        let said: Vec<_> = said.collect::<Option<_>>()?;
        Some((one, said))
    });
    let (best, said) = rest.next().filter(|(one, _)| one.met() * 2 > one.of())?;
    let next = rest.map(|(other, _)| other).find(|other| !is_same(&best, other));
    let lead = best.percent() - next.as_ref().map_or(0.0, TriedLegs::percent);
    let is_likely = best.of() >= LEAST_BLOCKS
        && best.percent() >= LIKELY_PERCENT
        && lead >= LEAST_LEAD
        && best.legs.iter().zip(&said).all(|(leg, said)| said.decide() || leg.missing() > 0)
        && search.is_told(&best);
    let structure = &known[equations.structure];
    let next = next.map(|next| format!(", next best {} of {}", next.met(), next.of()));
    let mut evidence = vec![format!(
        "{} of {} {} blocks agree{}",
        best.met(),
        best.of(),
        structure.name(),
        next.unwrap_or_default()
    )];
    for (number, (leg, said)) in best.legs.iter().zip(&said).enumerate() {
        evidence.push(match leg.missing() {
            0 => format!("parity of leg{number} agrees in {} of {} rows", said.agree, said.rows),
            _ => format!("leg{number} lacks a member, so no parity confirms it"),
        });
    }
    let is_used = |member| legs.iter().any(|leg| leg.members.contains(&member));
    let others = (0..names.len()).filter(|member| !is_used(*member));
    evidence.extend(others.map(|member| format!("{} is none of its members", names[member])));
    let shape = Shape {
        level: Level::Raid0,
        layout: Layout::None,
        chunk_sectors: best.outer.chunk as u32,
        raid_disks: legs.len() as u32,
    };
    let percent = best.percent();
    let nested = Nested {
        shape,
        data_offset: best.outer.data_offset,
        confidence: if is_likely { Confidence::Likely } else { Confidence::Guess },
        evidence,
        needed_sectors: structure.sectors().map(|sectors| best.outer.origin + sectors),
        legs: best.legs,
    };
    Some((nested, percent))
}

/// Returns whether they read the same. Where data begin further on in the legs, and the legs as
/// much before, or where the file system begins elsewhere in the array, they may.
fn is_same(a: &TriedLegs, b: &TriedLegs) -> bool {
    let members = |one: &TriedLegs| -> Vec<Vec<Option<usize>>> {
        let roles = |leg: &Hypothesis| leg.roles.iter().map(|at| at.map(|at| at.member)).collect();
        one.legs.iter().map(roles).collect()
    };
    let shapes = |one: &TriedLegs| one.legs.iter().map(|leg| leg.shape).collect::<Vec<_>>();
    a.outer.chunk == b.outer.chunk && members(a) == members(b) && shapes(a) == shapes(b)
}

impl LegSearch<'_> {
    /// All that is worth trying: what is usual, and the rest where that does not fit.
    fn all(&self) -> Vec<TriedLegs> {
        // Before members are exchanged, less is met.
        let fits = |found: &[TriedLegs]| found.iter().any(|one| one.percent() >= ENOUGH_PERCENT);
        let mut found = self.with(&USUAL_OFFSETS[..1], &USUAL_ORIGINS[..1]);
        if !fits(&found) || !self.equations.absolute.is_empty() {
            let origins = [&USUAL_ORIGINS[1..], &self.equations.begins].concat();
            found.extend(self.with(&USUAL_OFFSETS[..1], &origins));
        }
        if !fits(&found) {
            let origins = [&USUAL_ORIGINS[..], &self.equations.begins].concat();
            found.extend(self.with(&USUAL_OFFSETS[1..], &origins));
        }
        found
    }

    fn with(&self, offsets: &[u64], origins: &[u64]) -> Vec<TriedLegs> {
        let mut found = Vec::new();
        for chunk in CHUNKS.map(u64::from) {
            for (data_offset, origin) in
                offsets.iter().flat_map(|offset| origins.iter().map(|origin| (*offset, *origin)))
            {
                let legs = self.legs.len() as u64;
                found.extend(self.of(Outer { chunk, legs, data_offset, origin }));
            }
        }
        found
    }

    /// Possible legs: all of one shape, with data from the same place on, each in the role in which
    /// it meets most.
    fn of(&self, outer: Outer) -> Vec<TriedLegs> {
        let equations = self.equations_of(outer);
        let placed = self.placed(&equations);
        let Some(first) = placed.first().and_then(|roles| roles.first()) else { return Vec::new() };
        let mut found = Vec::new();
        for shape in first.shapes() {
            let offsets = placed.iter().flatten().flat_map(|leg| leg.offsets(&shape));
            for data_offset in offsets.collect::<BTreeSet<u64>>() {
                let each = placed.iter().map(|roles| {
                    let legs = roles.iter().map(|leg| leg.assigned(&shape, data_offset));
                    legs.collect::<Option<Vec<Hypothesis>>>()
                });
                let each: Option<Vec<_>> = each.collect();
                found.extend(each.map(|each| in_order(outer, &each)));
            }
        }
        found.sort_by_key(|one| (std::cmp::Reverse(one.met()), one.of()));
        found.truncate(MOST_IMPROVED);
        found
    }

    /// Equations of each leg in each role.
    fn equations_of(&self, outer: Outer) -> Vec<Vec<Equations>> {
        let of = |leg: &Redundancy, role: u64| {
            let own = |place: u64| outer.in_leg(role, outer.origin + place);
            let absolute = |place: u64| outer.in_leg(role, place);
            self.equations.within(&leg.members, &own, &absolute)
        };
        let each = self.legs.iter().map(|leg| (0..outer.legs).map(|role| of(leg, role)).collect());
        each.collect()
    }

    fn placed<'b>(&'b self, equations: &'b [Vec<Equations>]) -> Vec<Vec<Placed<'b>>> {
        let each = self.legs.iter().zip(equations).map(|(leg, roles)| {
            roles.iter().map(|own| Placed::new(leg, self.sizes, own)).collect()
        });
        each.collect()
    }

    /// Returns whether blocks or rows say which member of each leg has which role.
    fn is_told(&self, one: &TriedLegs) -> bool {
        let equations = self.equations_of(one.outer);
        let placed = self.placed(&equations);
        let mut legs = one.legs.iter().zip(&one.order).enumerate();
        legs.all(|(role, (leg, number))| placed[*number][role].is_told(leg))
    }

    /// Exchanges members of each leg where that meets more.
    fn improve(&self, one: &mut TriedLegs) {
        let equations = self.equations_of(one.outer);
        let placed = self.placed(&equations);
        for (role, leg) in one.legs.iter_mut().enumerate() {
            placed[one.order[role]][role].improve(leg);
        }
    }
}

/// The legs in the order in which they meet most, of what each is in each role.
fn in_order(outer: Outer, each: &[Vec<Hypothesis>]) -> TriedLegs {
    let met = |order: &Vec<usize>| -> usize {
        order.iter().enumerate().map(|(role, leg)| each[*leg][role].met).sum()
    };
    let order = permutations(each.len()).into_iter().max_by_key(met).unwrap_or_default();
    let legs = order.iter().enumerate().map(|(role, leg)| each[*leg][role].clone());
    TriedLegs { outer, legs: legs.collect(), order }
}
