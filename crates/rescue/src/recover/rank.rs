//! The order of hypotheses, the confidence that each deserves, and the reason.

use super::begins::{Beginning, beginning};
use super::contrast::{Contrast, Explained};
use super::equations::Equations;
use super::explain::{Told, explain, fits_the_content};
use super::gathered::Gathered;
use super::guess::guess;
use super::hypothesis::{Hypothesis, MemberInRole};
use super::judged::{is_cut, judged, offsets, walked};
use super::marks::Structure;
use super::ranked::{Confidence, Ranked};
use super::rivals;
use super::same::reads_the_same;
use super::score::rescore;
use super::sums::{Members, Sums, sums};
use super::votes::search;
use super::walk::walk;

/// Hypotheses that are told from each other by what they read.
const MOST_SORTED: usize = 48;
/// Hypotheses that come level with the best, of which rivals are looked for.
const MOST_LEVEL: usize = 3;
/// The number of hypotheses in the answer.
const ANSWERED: usize = 3;
/// The least for [`Confidence::High`]: equations, and percent of them.
const LEAST_EQUATIONS: usize = 50;
const LEAST_PERCENT: f64 = 95.0;
/// Points before the next that are needed where no rows confirm it.
const LEAST_LEAD: f64 = 20.0;
/// The least percent for [`Confidence::Likely`], with redundancy that agrees and without.
const PROVEN_PERCENT: f64 = 70.0;
const LIKELY_PERCENT: f64 = 90.0;
/// Blocks on a member that is left out that can speak against a hypothesis.
const LEAST_CONTRARY: usize = 8;

/// Looks at rows of the best hypotheses and answers with those that remain, the best first.
pub fn rank(
    found: &[Hypothesis],
    members: &mut Members<'_, '_>,
    gathered: &Gathered,
    known: &[Structure],
    names: &[String],
) -> Vec<Ranked> {
    let told = |one: &Hypothesis| !known[one.structure].is_whole() || !one.hinted.is_empty();
    if !found.iter().any(told) {
        return guess(members, gathered, known, names).into_iter().collect();
    }
    let Some(equations) = Equations::of(gathered, known) else { return Vec::new() };
    let sizes = members.sizes();
    let walked = walked(found, members, known, &equations);
    let is_cut = is_cut(found, &walked);
    let mut all = judged(&walked, members, gathered, known, &equations);
    all.retain(|(one, said)| one.can_be_read(&sizes) && !said.refute());
    if all.is_empty() && gathered.redundancy.is_some() {
        // Where most of each row is zero, parity looks like copies.
        let mut without = gathered.clone();
        without.redundancy = None;
        let found = search(&sizes, &without, known, None);
        return rank(&found, members, &without, known, names);
    }
    sort(&mut all, &sizes, &equations, gathered, known);
    all.truncate(MOST_SORTED);
    for mut other in rivals_of_best(&all, members, &equations) {
        other.walked = walk(&other, members, known);
        rescore(&mut other, &sizes, &equations);
        let said = sums(members, &other, gathered, known);
        if other.can_be_read(&sizes) && !said.refute() {
            all.push((other, said));
        }
    }
    sort(&mut all, &sizes, &equations, gathered, known);
    let distinct = distinct(all, &sizes, known);
    let by_rows = gathered.redundancy.as_ref();
    let begins = |one: &Hypothesis| beginning(one, &sizes, &equations, by_rows);
    let beginnings: Vec<Beginning> = distinct.iter().map(|(one, _)| begins(one)).collect();
    let unconfirmed = distinct.first().filter(|(_, said)| !said.confirm());
    let contrary = unconfirmed.map_or_else(Vec::new, |it| contrary(&it.0, &sizes, &equations));
    let ranked = (0..distinct.len().min(ANSWERED)).map(|index| {
        let (one, said) = &distinct[index];
        let rivals = rivals_of(index, &distinct, &beginnings);
        let next = nearest(rivals.iter().map(|rival| &distinct[*rival].0));
        let own = Explained::by(one, &sizes, &equations);
        let by = |rival: &usize| Explained::by(&distinct[*rival].0, &sizes, &equations);
        let contrasts = rivals.iter().map(|rival| own.against(&by(rival), members, known));
        let contrasts: Vec<Contrast> = contrasts.collect();
        let mut confidence = confidence(index, one, said, &contrasts, beginnings[index]);
        if confidence == Confidence::High && !said.confirm() && !has_lead(one, next) {
            confidence = Confidence::Likely;
        }
        // Where rows prove copies or parity, what has none of it is not meant, nor what has others.
        let differs = said.rows >= 8 && !said.confirm();
        let lacks_proof = by_rows.is_some() && (!one.shape.is_redundant() || differs);
        if !contrary.is_empty() || lacks_proof || is_cut && !is_enough(one) {
            confidence = Confidence::Guess;
        }
        let next = next.map(|next| (next.met, next.of + next.unseen));
        let mut ranked =
            explain(one.clone(), said.clone(), confidence, next, Told { gathered, known, names });
        if index == 0 {
            ranked.evidence.extend(contrary.iter().map(|member| {
                format!("{} has blocks that speak against it in any role", names[*member])
            }));
        }
        ranked
    });
    ranked.collect()
}

/// Hypotheses that may be meant instead of the best one, or of others that come level with it and
/// may read the same.
fn rivals_of_best(
    all: &[(Hypothesis, Sums)],
    members: &mut Members<'_, '_>,
    equations: &Equations,
) -> Vec<Hypothesis> {
    let Some((best, said)) = all.first() else { return Vec::new() };
    let sizes = members.sizes();
    let is_level =
        |one: &&Hypothesis| (one.met, one.of, one.unseen) == (best.met, best.of, best.unseen);
    let mut level: Vec<&Hypothesis> = all.iter().map(|(one, _)| one).filter(is_level).collect();
    // One of each level: layouts that read the same have the same rivals.
    level.sort_by_key(|one| one.shape.level != best.shape.level);
    level.dedup_by_key(|one| one.shape.level);
    level.truncate(MOST_LEVEL);
    let mut rivals: Vec<Hypothesis> =
        level.into_iter().flat_map(|one| rivals::near(one, &sizes, equations)).collect();
    if !said.confirm() {
        rivals.extend(rivals::hidden(best, members, equations));
    }
    rivals.retain(|rival| {
        all.iter().all(|(one, _)| one.roles != rival.roles || one.shape != rival.shape)
    });
    rivals
}

/// Hypotheses that may be meant instead of this one.
fn rivals_of(index: usize, all: &[(Hypothesis, Sums)], beginnings: &[Beginning]) -> Vec<usize> {
    let (one, said) = &all[index];
    let others = all.iter().enumerate().filter(|(other, _)| *other != index);
    // Nothing lies before the file system that says what it is part of: then it begins the array
    // where data usually begin, and does not happen to lie there.
    let is_moved = |other: usize| {
        beginnings[index] <= Beginning::First
            && beginnings[other] > Beginning::First
            && all[other].0.origin != one.origin
            && all[other].0.percent_of_all() <= one.percent()
    };
    others
        .filter(|(other, _)| !is_moved(*other))
        // With the member that rows prove to be one, it comes in again, and has it against it.
        .filter(|(_, (other, by_rows))| {
            let undecided = by_rows.rows < 8 && !has_fewer(other, &used(one));
            !said.confirm() || by_rows.confirm() || undecided
        })
        .map(|(other, _)| other)
        .collect()
}

/// Members that a hypothesis leaves out, although they hold blocks of the same structure, which
/// speak against it whatever role they are given. A member that is out of its array because it is
/// behind has its blocks where they belong.
fn contrary(one: &Hypothesis, sizes: &[u64], equations: &Equations) -> Vec<usize> {
    let empty: Vec<usize> =
        (0..one.roles.len()).filter(|role| one.roles[*role].is_none()).collect();
    if !one.shape.is_redundant() || empty.is_empty() {
        return Vec::new();
    }
    let own = |member: usize| equations.marked.iter().filter(|mark| mark.0 == member).count();
    let has_blocks = |member: &usize| own(*member) >= LEAST_CONTRARY.max(one.of / 20);
    let offsets = offsets(one);
    let fits = |member: usize| {
        let places = empty.iter().flat_map(|role| offsets.iter().map(move |o| (*role, *o)));
        let mut with = places.map(|(role, data_offset)| {
            let mut other = one.clone();
            other.roles[role] = Some(MemberInRole { member, data_offset });
            rescore(&mut other, sizes, equations);
            other
        });
        with.any(|other| other.percent() + 1.0 >= one.percent())
    };
    one.left_out(sizes.len()).into_iter().filter(has_blocks).filter(|m| !fits(*m)).collect()
}

/// Sorts the hypotheses that are to be believed first to the front; of those that read the same,
/// the one to name.
fn sort(
    all: &mut [(Hypothesis, Sums)],
    sizes: &[u64],
    equations: &Equations,
    gathered: &Gathered,
    known: &[Structure],
) {
    let by_rows = gathered.redundancy.as_ref();
    let most = all.iter().map(|(one, _)| one.met).max().unwrap_or(0);
    let proven: Vec<Vec<usize>> = all
        .iter()
        .filter(|(one, said)| said.confirm() && one.met * 10 >= most * 9 && one.percent() > 90.0)
        .map(|(one, _)| used(one))
        .collect();
    // Without one of the members that rows prove to belong together, less is said that could be
    // wrong.
    let lacks_proven = |one: &Hypothesis| proven.iter().any(|members| has_fewer(one, members));
    let key = |(one, said): &(Hypothesis, Sums)| {
        (
            // What leaves most of the members out says little of the rest.
            one.met * 2 < most,
            !said.confirm() && lacks_proven(one),
            // What is said of blocks that nobody sees counts less than what is seen.
            std::cmp::Reverse(((one.percent() + one.percent_of_all()) * 5.0) as u64),
            beginning(one, sizes, equations, by_rows),
            std::cmp::Reverse(one.met),
            std::cmp::Reverse(one.hinted.len()),
            !said.confirm(),
            one.missing(),
            std::cmp::Reverse(one.roles.len()),
            gathered.remains.strangers(&places(one)).len(),
            !fits_the_content(one, known),
            one.shape.rarity(),
        )
    };
    all.sort_by_cached_key(key);
}

/// The members that have a role, and where their data begin.
fn places(one: &Hypothesis) -> Vec<(usize, u64)> {
    one.roles.iter().flatten().map(|place| (place.member, place.data_offset)).collect()
}

/// Returns whether its members are some of these, and not all.
fn has_fewer(one: &Hypothesis, members: &[usize]) -> bool {
    let own = used(one);
    own.len() < members.len() && own.iter().all(|member| members.contains(member))
}

/// The members that have a role.
fn used(one: &Hypothesis) -> Vec<usize> {
    one.roles.iter().flatten().map(|place| place.member).collect()
}

/// Leaves out what reads the same bytes as one that comes before it.
fn distinct(
    all: Vec<(Hypothesis, Sums)>,
    sizes: &[u64],
    known: &[Structure],
) -> Vec<(Hypothesis, Sums)> {
    let mut kept: Vec<(Hypothesis, Sums)> = Vec::new();
    for (one, said) in all {
        let length = known[one.structure].sectors().unwrap_or(u64::MAX);
        let same = |other: &(Hypothesis, Sums)| {
            is_part(&one, &other.0) || reads_the_same(&other.0, &one, sizes, length)
        };
        if !kept.iter().any(same) {
            kept.push((one, said));
        }
    }
    kept
}

/// Returns whether it is the other one without some of its members.
fn is_part(one: &Hypothesis, other: &Hypothesis) -> bool {
    let mut roles = one.roles.iter().zip(&other.roles);
    one.shape == other.shape
        && one.origin == other.origin
        && roles.all(|(one, other)| one.is_none() || one == other)
}

/// The one that comes nearest.
fn nearest<'a>(rivals: impl Iterator<Item = &'a Hypothesis>) -> Option<&'a Hypothesis> {
    rivals.max_by(|a, b| a.percent_of_all().total_cmp(&b.percent_of_all()))
}

/// Returns whether it is far before the next. Where nothing but blocks speaks for it, it has to be.
fn has_lead(one: &Hypothesis, next: Option<&Hypothesis>) -> bool {
    one.of == 0 || one.percent() - next.map_or(0.0, Hypothesis::percent_of_all) >= LEAST_LEAD
}

/// Returns whether it is enough to be certain.
fn is_enough(one: &Hypothesis) -> bool {
    let is_enough = |met: usize, of: usize| {
        of >= LEAST_EQUATIONS && met as f64 * 100.0 > of as f64 * LEAST_PERCENT
    };
    // Blocks that prove themselves are enough, where one reads old ones of a member that is behind.
    let walked = &one.walked;
    is_enough(one.met, one.of)
        || one.met >= walked.met() && is_enough(one.met - walked.met(), one.of - walked.of())
}

fn confidence(
    index: usize,
    one: &Hypothesis,
    said: &Sums,
    rivals: &[Contrast],
    begins: Beginning,
) -> Confidence {
    let sums_fit = said.rows < 8 || said.confirm();
    let told = !one.hinted.is_empty() && one.roles.len() - one.missing() <= one.hinted.len() + 1;
    let is_proven = said.decide();
    let least_percent = if is_proven { PROVEN_PERCENT } else { LIKELY_PERCENT };
    if index > 0 {
        Confidence::Guess
    } else if told && one.of == 0 && sums_fit && rivals.is_empty() {
        // Superblocks say all of it, but for one role at most, for which there is one member.
        if said.confirm() { Confidence::High } else { Confidence::Likely }
    } else if !rivals.iter().all(Contrast::favours) || begins == Beginning::Unsure {
        Confidence::Guess
    } else if is_enough(one)
        && begins <= Beginning::First
        && sums_fit
        && rivals.iter().all(Contrast::decides)
    {
        Confidence::High
    } else if one.of >= 4 && one.percent() >= least_percent {
        Confidence::Likely
    } else {
        Confidence::Guess
    }
}
