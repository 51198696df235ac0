//! The search among members that rows prove to belong together: their set and the level are known,
//! and data begin at the same place on all of them. Blocks tell order, layout and chunk.

use std::collections::{BTreeMap, HashMap};

use braid_array::Role;
use braid_array::geometry::{Geometry, Strip};
use braid_array::level::{Layout, Level};

use super::contrast::Explained;
use super::equations::{Equations, FEW, MANY};
use super::hypothesis::{Hypothesis, MemberInRole};
use super::relation::{Redundancy, Relation};
use super::score::score;
use super::shapes::{self, Shape, copies};
use super::weights::{Weighed, roles};

/// Offsets and origins that are tried for each shape.
const MOST_OFFSETS: usize = 8;
const MOST_ORIGINS: usize = 2;
/// Hypotheses that are looked at closely.
const BEST: usize = 2000;
/// With fewer blocks for each of at most so many members, all orders are tried.
const FEW_BLOCKS: usize = 4;
const MOST_ORDERED: usize = 6;
/// Members about which neither rows nor blocks say anything, and which are put into each order.
const MOST_UNTOLD: usize = 3;
/// More groups of copies are not put into each order.
const MOST_GROUPS: usize = 5;

/// The facts that are searched.
struct Search<'a> {
    proven: &'a Redundancy,
    sizes: &'a [u64],
    equations: &'a Equations,
    labelled: Vec<u64>,
}

/// Hypotheses of these members alone, all of them with a role.
pub(super) fn search_proven(
    proven: &Redundancy,
    sizes: &[u64],
    equations: &Equations,
) -> Vec<Hypothesis> {
    let labelled = equations.labelled(&proven.members);
    let within = Search { proven, sizes, equations, labelled };
    let mut found: Vec<Hypothesis> =
        within.shapes().iter().flat_map(|shape| within.of_shape(shape)).collect();
    found.sort_by_key(|one| (std::cmp::Reverse(one.met), one.of, one.shape.rarity()));
    found.truncate(BEST);
    for one in &mut found {
        within.improve(one);
    }
    found.retain(|one| one.met > 0);
    found
}

/// Members that rows prove to be a part of the array, and equations of that part: what lies in it
/// has the places of the part.
pub(super) struct Placed<'a>(Search<'a>);

impl<'a> Placed<'a> {
    pub(super) fn new(proven: &'a Redundancy, sizes: &'a [u64], equations: &'a Equations) -> Self {
        Self(Search { proven, sizes, equations, labelled: Vec::new() })
    }

    /// Shapes that these members may have.
    pub(super) fn shapes(&self) -> Vec<Shape> {
        self.0.shapes()
    }

    /// Where data may begin under a shape.
    pub(super) fn offsets(&self, shape: &Shape) -> Vec<u64> {
        let largest = self.0.sizes.iter().copied().max().unwrap_or(0);
        let geometry = shape.geometry(largest);
        geometry.map_or_else(Vec::new, |it| self.0.offsets(&self.0.offsets_by_blocks(&it)))
    }

    /// The members in roles by votes of blocks, if data begin there.
    pub(super) fn assigned(&self, shape: &Shape, data_offset: u64) -> Option<Hypothesis> {
        let largest = self.0.sizes.iter().copied().max()?;
        let geometry = shape.geometry(largest)?;
        let mut all = self.0.assigned(shape, &geometry, data_offset, 0);
        for one in &mut all {
            score(one, self.0.sizes, self.0.equations, FEW);
        }
        all.into_iter().min_by_key(|one| (std::cmp::Reverse(one.met), one.of))
    }

    /// Returns whether blocks say which member has which role, or rows do.
    pub(super) fn is_told(&self, one: &Hypothesis) -> bool {
        let Search { sizes, equations, .. } = self.0;
        let own = Explained::by(one, sizes, equations);
        let favours = |other: Hypothesis| {
            own.blocks_against(&Explained::by(&other, sizes, equations)).favours()
        };
        !self.0.is_ordered_by_blocks() || swapped(one).all(favours)
    }

    /// Exchanges members where that meets more.
    pub(super) fn improve(&self, one: &mut Hypothesis) {
        self.0.improve(one);
    }
}

impl Search<'_> {
    fn shapes(&self) -> Vec<Shape> {
        let count = self.proven.members.len();
        let fits = |shape: &Shape| match &self.proven.relation {
            Relation::Alike => shape.level == Level::Raid1 && shape.raid_disks as usize == count,
            Relation::Groups(groups) => {
                let near = groups.iter().map(Vec::len).max().unwrap_or(2);
                let is_near = matches!(shape.layout, Layout::Raid10(layout)
                    if layout.far == 1 && usize::from(layout.near) == near);
                is_near && shape.raid_disks as usize == near * groups.len()
            }
            Relation::OneParity => {
                let one = matches!(shape.level, Level::Raid4 | Level::Raid5);
                one && shape.raid_disks as usize == count
            }
            Relation::OneLost => {
                let one = matches!(shape.level, Level::Raid4 | Level::Raid5);
                one && shape.raid_disks as usize == count + 1
            }
            Relation::TwoParities(_) => {
                shape.level == Level::Raid6 && shape.raid_disks as usize == count
            }
            Relation::OneMissing(_) => {
                shape.level == Level::Raid6 && shape.raid_disks as usize == count + 1
            }
        };
        let mut all = shapes::all(count);
        all.extend(shapes::all(count + 2));
        let mut kept: Vec<Shape> = Vec::new();
        for shape in all.into_iter().filter(fits) {
            if !kept.contains(&shape) {
                kept.push(shape);
            }
        }
        kept
    }

    fn of_shape(&self, shape: &Shape) -> Vec<Hypothesis> {
        let largest = self.sizes.iter().copied().max().unwrap_or(0);
        let Some(geometry) = shape.geometry(largest) else { return Vec::new() };
        let mut found = Vec::new();
        let first = self.offsets_by_blocks(&geometry);
        for data_offset in self.offsets(&first) {
            if let Relation::OneMissing(rows) = &self.proven.relation {
                found.extend(self.weighed(shape, &geometry, data_offset, rows));
                continue;
            }
            let mut origins = vec![0];
            if !first.contains(&data_offset) || !self.labelled.is_empty() {
                origins.extend(self.origins(&geometry, data_offset, None));
            }
            origins.dedup();
            for origin in origins {
                found.extend(self.assigned(shape, &geometry, data_offset, origin));
            }
        }
        for one in &mut found {
            score(one, self.sizes, self.equations, FEW);
        }
        found
    }

    /// Where data would begin if the structure began with the array, by most of its blocks.
    fn offsets_by_blocks(&self, geometry: &Geometry) -> Vec<u64> {
        let mut votes: HashMap<u64, usize> = HashMap::new();
        for one in self.equations.some(FEW) {
            for strip in one.places().flat_map(|place| copies(geometry, place)) {
                for (_, at) in self.seen(&one.seen) {
                    if let Some(data_offset) = at.checked_sub(strip.sector) {
                        *votes.entry(data_offset).or_default() += 1;
                    }
                }
            }
        }
        let mut votes: Vec<(u64, usize)> = votes.into_iter().collect();
        votes.sort_by_key(|(offset, votes)| (std::cmp::Reverse(*votes), *offset));
        votes.into_iter().map(|(offset, _)| offset).take(3).collect()
    }

    fn seen<'a>(&'a self, seen: &'a [(usize, u64)]) -> impl Iterator<Item = (usize, u64)> + 'a {
        seen.iter().copied().filter(|(member, _)| self.proven.members.contains(member))
    }

    /// Rows fit from the data on: they begin no later than that.
    fn offsets(&self, first: &[u64]) -> Vec<u64> {
        let usual = self.equations.usual_offsets();
        let all = self.labelled.iter().copied().chain(first.iter().copied()).chain(usual);
        let mut offsets: Vec<u64> = Vec::new();
        for offset in all.filter(|offset| *offset <= self.proven.lowest) {
            if !offsets.contains(&offset) {
                offsets.push(offset);
            }
        }
        offsets.truncate(MOST_OFFSETS + self.equations.starts.len() * 4);
        offsets
    }

    /// By weights of rows all members have a role each, wherever the structure begins.
    fn weighed(
        &self,
        shape: &Shape,
        geometry: &Geometry,
        data_offset: u64,
        rows: &[Weighed],
    ) -> Vec<Hypothesis> {
        let mut found = Vec::new();
        for own in roles(geometry, data_offset, rows) {
            let mut roles = vec![None; shape.raid_disks as usize];
            for (&role, &member) in own.iter().zip(&self.proven.members) {
                roles[role] = Some(MemberInRole { member, data_offset });
            }
            let mut origins = vec![0];
            origins.extend(self.origins(geometry, data_offset, Some(&roles)));
            origins.sort_unstable();
            origins.dedup();
            found.extend(origins.into_iter().map(|origin| {
                let empty = Hypothesis::empty(*shape, self.equations.structure, origin);
                Hypothesis { roles: roles.clone(), ..empty }
            }));
        }
        found
    }

    /// Where in the array the structure may begin, if data begin there, by members in these roles,
    /// or in any.
    fn origins(
        &self,
        geometry: &Geometry,
        data_offset: u64,
        roles: Option<&[Option<MemberInRole>]>,
    ) -> Vec<u64> {
        let may_have = |member: usize, role: Role| {
            let place = |roles: &[Option<MemberInRole>]| roles.get(role.index()).copied().flatten();
            roles.is_none_or(|roles| place(roles).is_some_and(|place| place.member == member))
        };
        let mut votes: BTreeMap<u64, usize> = BTreeMap::new();
        for one in self.equations.some(FEW / 4) {
            for (member, at) in self.seen(&one.seen) {
                let Some(sector) = at.checked_sub(data_offset) else { continue };
                let all = (0..geometry.raid_disks() as u16).map(Role);
                for role in all.filter(|role| may_have(member, *role)) {
                    let Some(at) = geometry.array_sector_at(Strip { role, sector }) else {
                        continue;
                    };
                    for origin in one.places().filter_map(|place| at.checked_sub(place)) {
                        *votes.entry(origin).or_default() += 1;
                    }
                }
            }
        }
        let mut votes: Vec<(u64, usize)> = votes.into_iter().collect();
        votes.sort_by_key(|(origin, votes)| (std::cmp::Reverse(*votes), *origin));
        let best = votes.into_iter().map(|(origin, _)| origin).take(MOST_ORIGINS);
        best.chain(self.equations.begins.iter().copied()).collect()
    }

    /// All members in roles: by the rows of Q, by votes of blocks, in each order of the groups.
    fn assigned(
        &self,
        shape: &Shape,
        geometry: &Geometry,
        data_offset: u64,
        origin: u64,
    ) -> Vec<Hypothesis> {
        let empty = Hypothesis::empty(*shape, self.equations.structure, origin);
        let place = |member| Some(MemberInRole { member, data_offset });
        match &self.proven.relation {
            Relation::Alike => {
                let roles = self.proven.members.iter().map(|member| place(*member)).collect();
                vec![Hypothesis { roles, ..empty }]
            }
            Relation::Groups(groups) if groups.len() <= MOST_GROUPS => {
                let near = shape.raid_disks as usize / groups.len();
                let orders = permutations(groups.len());
                let ordered = orders.into_iter().map(|order| {
                    let slot = |slot: usize| groups[order[slot / near]].get(slot % near).copied();
                    let roles = (0..near * groups.len()).map(|one| slot(one).and_then(place));
                    Hypothesis { roles: roles.collect(), ..empty.clone() }
                });
                ordered.collect()
            }
            Relation::Groups(_) | Relation::OneMissing(_) => Vec::new(),
            Relation::OneParity | Relation::OneLost => {
                let votes = self.votes(geometry, data_offset, origin);
                let roles = self.elect(shape, &votes, data_offset);
                let first = Hypothesis { roles, ..empty };
                if self.is_told() { vec![first] } else { all_orders(&first) }
            }
            Relation::TwoParities(rows) => {
                let mut votes = self.votes(geometry, data_offset, origin);
                let chunk = u64::from(geometry.chunk_sectors());
                for (sector, member) in rows.iter().filter(|(sector, _)| *sector >= data_offset) {
                    let (_, q) = geometry.parity_roles((sector - data_offset) / chunk);
                    // A row tells more than any block.
                    let q = q.map_or(0, |role| role.index());
                    *votes.entry((*member, q)).or_default() += 1000;
                }
                let orders = self.elect_all(shape, &votes, data_offset).into_iter();
                orders.map(|roles| Hypothesis { roles, ..empty.clone() }).collect()
            }
        }
    }

    /// Votes of blocks for members and roles.
    fn votes(
        &self,
        geometry: &Geometry,
        data_offset: u64,
        origin: u64,
    ) -> BTreeMap<(usize, usize), usize> {
        let mut votes = BTreeMap::new();
        let own = self
            .equations
            .some(FEW)
            .flat_map(|one| one.places().map(move |place| (origin + place, &one.seen)));
        let absolute = self.equations.absolute.iter().map(|one| (one.place, &one.seen));
        for (sector, seen) in own.chain(absolute) {
            for strip in copies(geometry, sector) {
                for (member, at) in self.seen(seen) {
                    if at == data_offset + strip.sector {
                        *votes.entry((member, strip.role.index())).or_default() += 1;
                    }
                }
            }
        }
        votes
    }

    /// Returns whether there are blocks enough to tell the order.
    fn is_told(&self) -> bool {
        let count = self.proven.members.len();
        count > MOST_ORDERED || self.equations.some(usize::MAX).count() >= count * FEW_BLOCKS
    }

    /// Gives each member a role, those with most votes first.
    fn elect(
        &self,
        shape: &Shape,
        votes: &BTreeMap<(usize, usize), usize>,
        data_offset: u64,
    ) -> Vec<Option<MemberInRole>> {
        let (mut roles, left) = self.elected(shape, votes, data_offset);
        fill(&mut roles, left);
        roles
    }

    /// The same, and members that votes leave without a role in all orders, if they are few.
    fn elect_all(
        &self,
        shape: &Shape,
        votes: &BTreeMap<(usize, usize), usize>,
        data_offset: u64,
    ) -> Vec<Vec<Option<MemberInRole>>> {
        let (roles, left) = self.elected(shape, votes, data_offset);
        let orders = if left.len() <= MOST_UNTOLD { left.len() } else { 1 };
        let filled = permutations(orders).into_iter().map(|order| {
            let rest = left.iter().skip(order.len());
            let ordered = order.iter().map(|index| &left[*index]).chain(rest);
            let mut roles = roles.clone();
            fill(&mut roles, ordered.copied().collect());
            roles
        });
        filled.collect()
    }

    /// Roles by votes, and members that have none by these.
    fn elected(
        &self,
        shape: &Shape,
        votes: &BTreeMap<(usize, usize), usize>,
        data_offset: u64,
    ) -> (Vec<Option<MemberInRole>>, Vec<MemberInRole>) {
        let mut roles = vec![None; shape.raid_disks as usize];
        let mut left: Vec<usize> = self.proven.members.clone();
        let mut best: Vec<(usize, usize, usize)> =
            votes.iter().map(|((member, role), votes)| (*votes, *member, *role)).collect();
        best.sort_by_key(|(votes, member, role)| (std::cmp::Reverse(*votes), *role, *member));
        for (_, member, role) in best {
            if roles[role].is_none() && left.contains(&member) {
                roles[role] = Some(MemberInRole { member, data_offset });
                left.retain(|other| *other != member);
            }
        }
        (roles, left.into_iter().map(|member| MemberInRole { member, data_offset }).collect())
    }

    /// Returns whether rows leave open which member has which role.
    fn is_ordered_by_blocks(&self) -> bool {
        matches!(self.proven.relation, Relation::OneParity | Relation::OneLost)
    }

    /// Exchanges two members where that meets more. The rows of Q leave nothing to exchange.
    fn improve(&self, one: &mut Hypothesis) {
        if self.is_ordered_by_blocks() {
            for _ in 0..4 {
                let better = swapped(one).map(|mut other| {
                    score(&mut other, self.sizes, self.equations, FEW);
                    other
                });
                let best = better.max_by_key(|other| (other.met, std::cmp::Reverse(other.of)));
                match best {
                    Some(best) if (best.met, one.of) > (one.met, best.of) => *one = best,
                    _ => break,
                }
            }
        }
        score(one, self.sizes, self.equations, MANY);
    }
}

/// Gives the roles that are free to these, in their order.
fn fill(roles: &mut [Option<MemberInRole>], rest: Vec<MemberInRole>) {
    let free = roles.iter_mut().filter(|role| role.is_none());
    free.zip(rest).for_each(|(role, place)| *role = Some(place));
}

/// All with two members exchanged.
fn swapped(one: &Hypothesis) -> impl Iterator<Item = Hypothesis> + use<> {
    let count = one.roles.len();
    let one = one.clone();
    let pairs = (0..count).flat_map(move |a| (a + 1..count).map(move |b| (a, b)));
    pairs.map(move |(a, b)| {
        let mut other = one.clone();
        other.roles.swap(a, b);
        other
    })
}

/// The same with all orders of its members.
fn all_orders(one: &Hypothesis) -> Vec<Hypothesis> {
    let order = |order: Vec<usize>| {
        let roles = order.into_iter().map(|role| one.roles[role]).collect();
        Hypothesis { roles, ..one.clone() }
    };
    permutations(one.roles.len()).into_iter().map(order).collect()
}

/// All orders of so many.
pub(super) fn permutations(count: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for next in 0..count {
        let longer = all.into_iter().flat_map(|order: Vec<usize>| {
            (0..=order.len()).map(move |at| {
                let mut order = order.clone();
                order.insert(at, next);
                order
            })
        });
        all = longer.collect();
    }
    all
}
