//! Equations: a block that tells where it belongs, and where on the members it was found.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::gathered::Gathered;
use super::marks::Structure;

/// Equations that are looked at for every shape, and for those that are worth it.
pub(super) const FEW: usize = 400;
pub(super) const MANY: usize = 4000;

/// A block by its place.
pub(super) struct Equation {
    /// Its place in the structure, or in the array where it begins with that.
    pub(super) place: u64,
    /// The same block lies there, too: either may be what was found.
    copy: Option<u64>,
    /// Members and their sectors where it was found.
    pub(super) seen: Vec<(usize, u64)>,
}

impl Equation {
    /// Where it belongs.
    pub(super) fn places(&self) -> impl Iterator<Item = u64> + use<> {
        std::iter::once(self.place).chain(self.copy)
    }

    /// Returns whether it lies in two places.
    pub(super) const fn has_copy(&self) -> bool {
        self.copy.is_some()
    }
}

/// Equations of one structure, and of the things that begin with the array.
pub(super) struct Equations {
    pub(super) structure: usize,
    own: Vec<Equation>,
    pub(super) absolute: Vec<Equation>,
    /// Each block where it was found: member, sector, place.
    pub(super) found: HashSet<(usize, u64, u64)>,
    /// Where any block was found.
    pub(super) marked: HashSet<(usize, u64)>,
    /// Where in the array the structure may begin, in sectors, by what lies before it.
    pub(super) begins: Vec<u64>,
    /// Where partitions begin on members that are disks, in sectors.
    pub(super) starts: Vec<u64>,
    /// Whether all members have a table of partitions.
    pub(super) are_disks: bool,
}

impl Equations {
    /// Equations of the structure that has most of them.
    pub(super) fn of(gathered: &Gathered, known: &[Structure]) -> Option<Self> {
        let mut by_structure: HashMap<usize, BTreeMap<u64, Vec<(usize, u64)>>> = HashMap::new();
        for mark in &gathered.marks {
            let places = by_structure.entry(mark.structure).or_default();
            places.entry(mark.place).or_default().push((mark.member, mark.sector));
        }
        let whole = known.iter().position(Structure::is_whole);
        let absolute = whole.and_then(|whole| by_structure.remove(&whole)).unwrap_or_default();
        let (structure, own) = by_structure
            .into_iter()
            .max_by_key(|(index, places)| (places.len(), std::cmp::Reverse(*index)))
            .or_else(|| Some((whole?, BTreeMap::new())))?;
        let mut found = HashSet::new();
        let mut marked = HashSet::new();
        for mark in gathered.marks.iter().filter(|mark| mark.structure == structure) {
            found.insert((mark.member, mark.sector, mark.place));
            marked.insert((mark.member, mark.sector));
        }
        let own = own.into_iter().map(|(place, seen)| {
            let copy = gathered.copy_of(structure, place);
            Equation { place, copy, seen }
        });
        let absolute =
            absolute.into_iter().map(|(place, seen)| Equation { place, copy: None, seen });
        Some(Self {
            structure,
            own: own.collect(),
            absolute: absolute.collect(),
            found,
            marked,
            begins: gathered.begins.clone(),
            starts: gathered.starts.iter().copied().collect(),
            are_disks: gathered.are_disks,
        })
    }

    /// Equations of a part of the array that has these members: places in the structure, and places
    /// in the array, are mapped to places in the part, if they lie in it.
    pub(super) fn within(
        &self,
        members: &[usize],
        own: &dyn Fn(u64) -> Option<u64>,
        absolute: &dyn Fn(u64) -> Option<u64>,
    ) -> Self {
        let there = |seen: &[(usize, u64)]| -> Vec<(usize, u64)> {
            seen.iter().copied().filter(|(member, _)| members.contains(member)).collect()
        };
        let mapped = |one: &Equation, map: &dyn Fn(u64) -> Option<u64>| {
            let mut places = one.places().filter_map(map);
            let place = places.next()?;
            Some(Equation { place, copy: places.next(), seen: there(&one.seen) })
        };
        let all = |from: &[Equation], map| -> Vec<Equation> {
            from.iter().filter_map(|one| mapped(one, map)).collect()
        };
        let own = all(&self.own, own);
        let found = own.iter().flat_map(|one| one.seen.iter().map(|at| (at.0, at.1, one.place)));
        Self {
            structure: self.structure,
            found: found.collect(),
            own,
            absolute: all(&self.absolute, absolute),
            marked: self.marked.iter().copied().filter(|at| members.contains(&at.0)).collect(),
            begins: Vec::new(),
            starts: self.starts.clone(),
            are_disks: self.are_disks,
        }
    }

    /// So many of the structure's, all over it.
    pub(super) fn some(&self, most: usize) -> impl Iterator<Item = &Equation> {
        let every = self.own.len().div_ceil(most).max(1);
        self.own.iter().step_by(every)
    }
}
