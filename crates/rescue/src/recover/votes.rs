//! The search: every block that tells where it belongs votes for the role of its member, under
//! every geometry.

use std::collections::{BTreeMap, HashMap, HashSet};

use braid_array::Role;
use braid_array::geometry::Strip;
use braid_array::level::Level;

use super::begins::{USUAL_OFFSETS, may_begin};
use super::equations::{Equations, FEW, MANY};
use super::gathered::Gathered;
use super::hypothesis::{Hints, Hypothesis, MemberInRole, order};
use super::marks::Structure;
use super::proven::search_proven;
use super::score::{misplaced, score};
use super::shapes::{self, Shape, copies};

/// Shapes for which roles are exchanged: by what members with most votes meet, and by votes alone,
/// for where those are in each other's place.
const BEST_SHAPES: usize = 60;
const MOST_VOTES: usize = 40;
/// Shapes under which as many blocks are met as under the best, and that are kept for that.
const MOST_LEVEL: usize = 120;
/// Where file systems begin, in sectors: with the array, in its first partition or volume.
const USUAL_ORIGINS: [u64; 3] = [2048, 4096, 63];

/// A vote: a member, a role, where its data would begin, and how many blocks say so.
type Vote = (usize, Role, u64, usize);

/// A shape for which votes were counted.
struct Counted {
    shape: Shape,
    origin: u64,
    votes: Vec<Vote>,
    bound: usize,
}

/// The best hypotheses, the best first. `sizes` are those of the members in sectors. Superblocks
/// may lie, where somebody has made an array anew: what they say is one possibility more.
#[must_use]
pub fn search(
    sizes: &[u64],
    gathered: &Gathered,
    known: &[Structure],
    hints: Option<&Hints>,
) -> Vec<Hypothesis> {
    let Some(equations) = Equations::of(gathered, known) else { return Vec::new() };
    let mut found = match hints {
        None => Vec::new(),
        Some(hints) => {
            let mut found = search_among(&[hints.shape], sizes, &equations, Some(hints));
            // Without anything else that tells, they are to be believed.
            found.extend(as_told(hints, sizes, &equations));
            found
        }
    };
    let proven = gathered.redundancy.as_ref();
    let among_proven = proven.map(|proven| search_proven(proven, sizes, &equations));
    match among_proven {
        // Rows decide before any block does.
        Some(one) if !one.is_empty() => found.extend(one),
        _ => found.extend(search_among(&shapes::all(sizes.len()), sizes, &equations, None)),
    }
    if let Some(hints) = hints {
        found.iter_mut().for_each(|one| one.behind.clone_from(&hints.behind));
    }
    found.sort_by(order);
    found
}

fn as_told(hints: &Hints, sizes: &[u64], equations: &Equations) -> Option<Hypothesis> {
    let mut one = Hypothesis::empty(hints.shape, equations.structure, 0);
    one.take(hints)?;
    score(&mut one, sizes, equations, MANY);
    Some(one)
}

fn search_among(
    shapes: &[Shape],
    sizes: &[u64],
    equations: &Equations,
    hints: Option<&Hints>,
) -> Vec<Hypothesis> {
    let fits = |found: &[Hypothesis]| found.iter().any(|one| one.percent() >= 80.0);
    let mut found = search_at(&[0], shapes, sizes, equations, hints);
    // Elsewhere it is looked for where it must be: each place more is one more that fits by chance.
    if !fits(&found) || !equations.absolute.is_empty() {
        let usual = [&USUAL_ORIGINS[..], &equations.begins].concat();
        found.extend(search_at(&usual, shapes, sizes, equations, hints));
    }
    if !fits(&found) || !equations.absolute.is_empty() {
        let all: Vec<usize> = (0..sizes.len()).collect();
        let mut offsets = equations.labelled(&all);
        // Where a label is, it says where the array begins.
        if offsets.is_empty() {
            let starts = equations.starts.iter().chain([&0]);
            offsets.extend(starts.flat_map(|start| USUAL_OFFSETS.map(|offset| start + offset)));
        }
        let origins = origins(shapes, sizes, equations, &offsets);
        found.extend(search_at(&origins, shapes, sizes, equations, hints));
    }
    found
}

fn search_at(
    origins: &[u64],
    shapes: &[Shape],
    sizes: &[u64],
    equations: &Equations,
    hints: Option<&Hints>,
) -> Vec<Hypothesis> {
    let pairs = shapes.iter().flat_map(|shape| origins.iter().map(move |origin| (shape, *origin)));
    let mut counted: Vec<(Counted, Hypothesis)> = pairs
        .filter_map(|(shape, origin)| {
            let one = count(shape, origin, sizes, equations)?;
            let first = assign(&one, sizes, equations, hints);
            Some((one, first))
        })
        .collect();
    // Parity looks like data where the rest of its row is zero: then under many shapes there are as
    // many votes, and those of the right one are not the most.
    counted.sort_by(|a, b| order(&a.1, &b.1));
    // Which of those that come level is meant is told later.
    let level =
        counted.iter().filter(|it| (it.1.met, it.1.of) == (counted[0].1.met, counted[0].1.of));
    let kept = level.count().clamp(BEST_SHAPES, MOST_LEVEL).min(counted.len());
    let mut further = counted.split_off(kept);
    further.sort_by_key(|(one, _)| (std::cmp::Reverse(one.bound), one.shape.rarity()));
    further.truncate(MOST_VOTES);
    counted.extend(further);
    let mut found: Vec<Hypothesis> =
        counted.into_iter().map(|(one, first)| refine(&one, first, sizes, equations)).collect();
    found.retain(|one| one.met > 0);
    found
}

/// Counts the votes under one shape.
fn count(shape: &Shape, origin: u64, sizes: &[u64], equations: &Equations) -> Option<Counted> {
    let largest = sizes.iter().copied().max()?;
    let geometry = shape.geometry(largest)?;
    let mut cast: Vec<(usize, Role, u64)> = Vec::new();
    let own = equations
        .some(FEW)
        .flat_map(|one| one.places().map(move |place| (origin + place, &one.seen)));
    let absolute = equations.absolute.iter().map(|one| (one.place, &one.seen));
    let mut number = 0;
    for (sector, seen) in own.chain(absolute) {
        number += 1;
        // Where far copies lie depends on sizes, which are not known yet.
        for strip in copies(&geometry, sector).take(shape.near_copies()) {
            for &(member, at) in seen {
                let Some(data_offset) = at.checked_sub(strip.sector) else { continue };
                if may_begin(data_offset) {
                    cast.push((member, strip.role, data_offset));
                }
            }
        }
    }
    cast.sort_unstable();
    let mut votes: Vec<Vote> = cast
        .chunk_by(|a, b| a == b)
        .map(|same| (same[0].0, same[0].1, same[0].2, same.len()))
        .collect();
    votes.sort_by_key(|vote| (std::cmp::Reverse(vote.3), vote.1, vote.2));
    let best = |member| votes.iter().find(|vote| vote.0 == member).map_or(0, |vote| vote.3);
    let copies = (geometry.copies() as usize).min(shape.near_copies()).min(sizes.len()).max(1);
    let bound = (0..sizes.len()).map(best).sum::<usize>() / copies;
    (number > 0 && bound > 0).then_some(Counted { shape: *shape, origin, votes, bound })
}

/// Gives the roles to those with most votes.
fn assign(
    counted: &Counted,
    sizes: &[u64],
    equations: &Equations,
    hints: Option<&Hints>,
) -> Hypothesis {
    let Counted { shape, origin, votes, .. } = counted;
    let mut one = Hypothesis::empty(*shape, equations.structure, *origin);
    if let Some(hints) = hints {
        one.take(hints);
    }
    let mut taken: HashSet<usize> = one.hinted.iter().copied().collect();
    for &(member, role, data_offset, _) in votes {
        let free = one.roles.get(role.index()).is_some_and(Option::is_none);
        if free && taken.insert(member) {
            one.roles[role.index()] = Some(MemberInRole { member, data_offset });
        }
    }
    score(&mut one, sizes, equations, FEW);
    one
}

/// Exchanges what makes it better.
fn refine(
    counted: &Counted,
    mut one: Hypothesis,
    sizes: &[u64],
    equations: &Equations,
) -> Hypothesis {
    for _ in 0..4 {
        let better = neighbours(&one, &counted.votes, sizes.len()).map(|mut other| {
            score(&mut other, sizes, equations, FEW);
            other
        });
        let best = better.max_by_key(|other| (other.met, std::cmp::Reverse(other.of)));
        match best {
            Some(best) if (best.met, one.of) > (one.met, best.of) => one = best,
            _ => break,
        }
    }
    score(&mut one, sizes, equations, MANY);
    // What meets next to nothing is there by accident, unless all that lies on it fits.
    for role in 0..one.roles.len() {
        let Some(place) = one.roles[role] else { continue };
        if one.hinted.contains(&place.member) || mirrors(&one) {
            continue;
        }
        let mut without = one.clone();
        without.roles[role] = None;
        score(&mut without, sizes, equations, MANY);
        let gain = one.met.saturating_sub(without.met);
        if gain * 50 <= one.met
            && (gain == 0 || misplaced(&one, role, sizes, equations, gain) >= gain)
        {
            one = without;
        }
    }
    one
}

/// Returns whether there are copies, so that one member more meets no equation more.
const fn mirrors(one: &Hypothesis) -> bool {
    matches!(one.shape.level, Level::Raid1 | Level::Raid10)
}

/// Hypotheses that differ by two roles, or by a member that has none so far.
pub(super) fn neighbours<'a>(
    one: &'a Hypothesis,
    votes: &'a [Vote],
    members: usize,
) -> impl Iterator<Item = Hypothesis> + 'a {
    let roles = one.roles.len();
    let swaps = (0..roles).flat_map(move |a| (a + 1..roles).map(move |b| (a, b)));
    let hinted =
        move |place: &Option<MemberInRole>| place.is_some_and(|p| one.hinted.contains(&p.member));
    let swapped = swaps.filter_map(move |(a, b)| {
        if hinted(&one.roles[a]) || hinted(&one.roles[b]) {
            return None;
        }
        let mut other = one.clone();
        other.roles.swap(a, b);
        (other.roles[a] != other.roles[b]).then_some(other)
    });
    let left_out = one.left_out(members).into_iter().take(4);
    let replaced = left_out.flat_map(move |member| {
        let own = votes.iter().filter(move |vote| vote.0 == member).take(roles * 2);
        own.filter_map(move |&(member, role, data_offset, _)| {
            let mut other = one.clone();
            if hinted(other.roles.get(role.index())?) {
                return None;
            }
            *other.roles.get_mut(role.index())? = Some(MemberInRole { member, data_offset });
            Some(other)
        })
    });
    swapped.chain(replaced)
}

/// Where the structure may begin in the array, if the data of members begin where they usually do.
fn origins(shapes: &[Shape], sizes: &[u64], equations: &Equations, offsets: &[u64]) -> Vec<u64> {
    let largest = sizes.iter().copied().max().unwrap_or(0);
    let mut best: BTreeMap<u64, usize> = BTreeMap::new();
    for shape in shapes {
        let Some(geometry) = shape.geometry(largest) else { continue };
        for &data_offset in offsets {
            let mut tally: HashMap<u64, usize> = HashMap::new();
            for one in equations.some(FEW / 4) {
                for (role, &(_, at)) in (0..shape.raid_disks as u16)
                    .flat_map(|role| one.seen.iter().map(move |one| (Role(role), one)))
                {
                    let Some(sector) = at.checked_sub(data_offset) else { continue };
                    let Some(found) = geometry.array_sector_at(Strip { role, sector }) else {
                        continue;
                    };
                    for origin in one.places().filter_map(|place| found.checked_sub(place)) {
                        *tally.entry(origin).or_default() += 1;
                    }
                }
            }
            // Far copies would have it begin as far behind.
            let most = tally.into_iter().max_by_key(|one| (one.1, std::cmp::Reverse(one.0)));
            if let Some((origin, votes)) = most {
                let known = best.entry(origin).or_default();
                *known = votes.max(*known);
            }
        }
    }
    let mut best: Vec<(u64, usize)> = best.into_iter().collect();
    best.sort_by_key(|(origin, votes)| (std::cmp::Reverse(*votes), *origin));
    best.into_iter().map(|(origin, _)| origin).take(6).collect()
}
