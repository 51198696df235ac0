//! The hypotheses that are worth comparing rows, and the sums of their rows.

use std::collections::HashMap;

use super::begins::USUAL_OFFSETS;
use super::equations::Equations;
use super::gathered::Gathered;
use super::hypothesis::{Hypothesis, MemberInRole, order};
use super::marks::Structure;
use super::score::rescore;
use super::sums::{Members, Sums, sums};
use super::walk::walk;

/// Hypotheses whose rows are compared, and the most where many meet as many equations.
const COMPARED: usize = 24;
const MOST_COMPARED: usize = 160;
/// Ways to give roles to members about which blocks say nothing.
const MOST_FILLED: usize = 60;

/// The best hypotheses, as they are and filled with members, and what their rows say.
pub(super) fn judged(
    walked: &[Hypothesis],
    members: &mut Members<'_, '_>,
    gathered: &Gathered,
    known: &[Structure],
    equations: &Equations,
) -> Vec<(Hypothesis, Sums)> {
    let sizes = members.sizes();
    let mut all = Vec::new();
    let mut tried = HashMap::new();
    for one in compared_ones(walked) {
        for mut other in filled(one, members, gathered, known, &mut tried) {
            if other.roles != one.roles {
                other.walked = walk(&other, members, known);
            }
            rescore(&mut other, &sizes, equations);
            let said = sums(members, &other, gathered, known);
            all.push((other, said));
        }
    }
    all
}

/// The hypotheses with what is found by walking through what they read, the best first.
pub(super) fn walked(
    found: &[Hypothesis],
    members: &mut Members<'_, '_>,
    known: &[Structure],
    equations: &Equations,
) -> Vec<Hypothesis> {
    let sizes = members.sizes();
    let each = found.iter().map(|one| {
        let mut one = one.clone();
        one.walked = walk(&one, members, known);
        rescore(&mut one, &sizes, equations);
        one
    });
    let mut walked: Vec<Hypothesis> = each.collect();
    walked.sort_by(order);
    walked
}

/// The hypotheses whose rows are compared: the first ones, all that come as near, and those that
/// deny least. Rows tell which of those lacks a member only because nothing on that says so.
fn compared_ones(found: &[Hypothesis]) -> Vec<&Hypothesis> {
    let most = found.first().map_or(0, |one| one.met);
    let further = found.iter().skip(COMPARED).filter(|one| is_near(one, most));
    let mut compared: Vec<&Hypothesis> =
        found.iter().take(COMPARED).chain(further).take(MOST_COMPARED).collect();
    let mut rest: Vec<&Hypothesis> = found
        .iter()
        .skip(COMPARED)
        .filter(|one| !is_near(one, most) && one.met * 2 >= most)
        .collect();
    rest.sort_by_key(|one| (one.of - one.met, std::cmp::Reverse(one.met)));
    compared.extend(rest.into_iter().take(COMPARED));
    compared
}

/// Returns whether too many come level, before or after a walk, for all of them to be compared: the
/// right one may be among the rest.
pub(super) fn is_cut(found: &[Hypothesis], walked: &[Hypothesis]) -> bool {
    found.len() > MOST_COMPARED && near_ones(found) == found.len()
        || near_ones(walked) > MOST_COMPARED
}

fn is_near(one: &Hypothesis, most: usize) -> bool {
    one.met * 50 >= most * 49
}

/// The number of those that meet as many blocks as the first one, or nearly.
fn near_ones(found: &[Hypothesis]) -> usize {
    let most = found.first().map_or(0, |one| one.met);
    found.iter().filter(|one| is_near(one, most)).count()
}

/// Members and where their data begin, of which it is known whether they make up rows by one
/// parity: that is so in any order.
type Tried = HashMap<Vec<MemberInRole>, bool>;

/// A hypothesis as it is, and with members that have no role in roles that have no member, where
/// sums are for it or nothing can be said.
fn filled(
    one: &Hypothesis,
    members: &mut Members<'_, '_>,
    gathered: &Gathered,
    known: &[Structure],
    tried: &mut Tried,
) -> Vec<Hypothesis> {
    let left_out = one.left_out(members.sizes().len());
    let empty: Vec<usize> =
        (0..one.roles.len()).filter(|role| one.roles[*role].is_none()).collect();
    // Other offsets than that of the rest are tried where members do not fit with it.
    let offsets = match (one.is_whole_enough(), offsets(one)) {
        (true, offsets) => offsets,
        (false, offsets) => offsets[..1].to_vec(),
    };
    let mut all = vec![one.clone()];
    for &role in empty.iter().take(4) {
        let before = all.clone();
        for (base, &member) in
            before.iter().flat_map(|base| left_out.iter().map(move |m| (base, m)))
        {
            let taken = base.roles.iter().flatten().any(|place| place.member == member);
            for &data_offset in &offsets {
                if taken || all.len() >= MOST_FILLED {
                    continue;
                }
                let mut other = base.clone();
                other.roles[role] = Some(MemberInRole { member, data_offset });
                all.push(other);
            }
        }
    }
    let whole = one.is_whole_enough();
    let mut kept = vec![one.clone()];
    for other in all.into_iter().skip(1) {
        let key = has_one_parity(&other).then(|| {
            let mut places: Vec<MemberInRole> = other.roles.iter().flatten().copied().collect();
            places.sort_unstable();
            places
        });
        if key.as_ref().is_some_and(|key| tried.get(key) == Some(&false)) {
            continue;
        }
        let said = sums(members, &other, gathered, known);
        let fits = said.confirm() || (!whole && said.rows == 0);
        if let Some(key) = key {
            tried.insert(key, fits);
        }
        if fits {
            kept.push(other);
        }
    }
    kept
}

/// Returns whether its rows add up to zero, in any order.
fn has_one_parity(one: &Hypothesis) -> bool {
    one.shape.level.parity_disks() == 1 && one.missing() == 0
}

/// Where data begin on members of the hypothesis, the usual one first.
pub(super) fn offsets(one: &Hypothesis) -> Vec<u64> {
    let all: Vec<u64> = one.roles.iter().flatten().map(|place| place.data_offset).collect();
    let count = |offset: &u64| all.iter().filter(|other| *other == offset).count();
    let mut offsets = [&all[..], &USUAL_OFFSETS[..3]].concat();
    offsets.sort_by_key(|offset| (std::cmp::Reverse(count(offset)), *offset));
    offsets.dedup();
    offsets.truncate(6);
    offsets
}
