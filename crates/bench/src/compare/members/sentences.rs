//! Sentences that follow from the numbers.

use super::MembersCase;
use super::class::Class;
use super::numbers::{COLD_READS, CaseNumber, KINDS, Members, WARM_READS, WRITES};
use crate::compare::words::{between, list, range as ends, two};

/// Least ratio at which two members count as writing twice as much as one.
const DOUBLES: f64 = 1.8;
/// Least share of what the limits let through that counts as reached.
const REACHED: f64 = 0.9;
/// Ratio to one volume below which it counts as a loss.
const LOSS: f64 = 0.9;

pub(super) fn sentences(numbers: &Members<'_>) -> Vec<String> {
    let all = [doubling(numbers), plateau(numbers), reads(numbers), seeks(numbers), loses(numbers)];
    all.into_iter().flatten().collect()
}

/// The case of so many members, and the ratio to one, of the classes that have it.
fn ratios(numbers: &Members<'_>, members: u16, what: CaseNumber) -> Vec<(MembersCase, f64)> {
    let case = |class: &&'static Class| MembersCase { class, members };
    let cases = numbers.classes();
    cases.iter().map(case).filter_map(|case| Some((case, numbers.ratio(case, what)?))).collect()
}

/// `1.93 times on m1.large (published 1.93) and 2.00 times on m1.xlarge (published 2.35)`
fn beside(some: &[(MembersCase, f64)], what: CaseNumber) -> String {
    list(some.iter().map(|(case, ratio)| {
        let published = what.published_ratio(*case);
        let published =
            published.map_or_else(String::new, |ratio| format!(" (published {ratio:.2})"));
        format!("{ratio:.2} times on {}{published}", case.class.name)
    }))
}

fn doubling(numbers: &Members<'_>) -> Option<String> {
    let what = WRITES;
    let all = ratios(numbers, 2, what);
    let (doubled, less): (Vec<_>, Vec<_>) = all.iter().partition(|(_, ratio)| *ratio >= DOUBLES);
    let held = |case: MembersCase| {
        case.class.host_binds(2) && numbers.share(case, what).is_some_and(|share| share >= REACHED)
    };
    let why = if less.iter().all(|(case, _)| held(*case)) {
        "where the host lets no more through"
    } else {
        "less than the limits let through"
    };
    let doubled = beside(&doubled, what);
    let nowhere = if doubled.is_empty() { "nowhere " } else { "" };
    let but = match (doubled.is_empty(), less.is_empty()) {
        (true, true) => return None,
        (false, true) => String::new(),
        (true, false) => format!("{}, {why}", beside(&less, what)),
        (false, false) => format!("; but not everywhere: {}, {why}", beside(&less, what)),
    };
    Some(format!("Two members {nowhere}double what one writes: {doubled}{but}."))
}

fn plateau(numbers: &Members<'_>) -> Option<String> {
    let what = WRITES;
    let all = ratios(numbers, 4, what);
    let share = |case: MembersCase| numbers.share(case, what).unwrap_or_default();
    let (reached, below): (Vec<_>, Vec<_>) =
        all.iter().partition(|(case, _)| share(*case) >= REACHED);
    let says = |some: Vec<(MembersCase, f64)>, how: &str, more: &str| {
        let shares = between(ends(some.iter().map(|(case, _)| share(*case)))?, two);
        let beside = beside(&some, what);
        Some(format!("Four members {how} the host lets through ({shares} of it){more}: {beside}."))
    };
    let sentences = [
        says(reached, "write as much as", ", and more members would write no more"),
        says(below, "stay below what", ""),
    ];
    let sentences: Vec<String> = sentences.into_iter().flatten().collect();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

fn reads(numbers: &Members<'_>) -> Option<String> {
    let warm: Vec<f64> = [2, 4]
        .into_iter()
        .flat_map(|members| ratios(numbers, members, WARM_READS))
        .map(|(_, ratio)| ratio)
        .collect();
    let cold = ratios(numbers, 2, COLD_READS);
    if warm.is_empty() || cold.is_empty() {
        return None;
    }
    let colder: Vec<f64> = cold.iter().map(|(_, ratio)| *ratio).collect();
    let most = warm.iter().copied().fold(0.0, f64::max);
    let verdict = if most < 1.25 {
        "more members make them no faster, as published (0.95 to 1.25)"
    } else {
        "the page cache gave as it could, whatever lay below"
    };
    Some(format!(
        "Reads from memory are {} times those over one volume: {verdict}. Reads from the members \
         are a different matter: two give {} times as much as one.",
        range(&warm),
        range(&colder)
    ))
}

fn seeks(numbers: &Members<'_>) -> Option<String> {
    let what = KINDS[3];
    let all = ratios(numbers, 4, what);
    if all.is_empty() {
        return None;
    }
    let words = beside(&all, what);
    let published_loss =
        |case: MembersCase| what.published_ratio(case).is_some_and(|published| published < LOSS);
    let (seen, not): (Vec<_>, Vec<_>) =
        all.iter().filter(|(case, _)| published_loss(*case)).partition(|(_, ratio)| *ratio < LOSS);
    let mut sentence = format!("Four members seek {words}.");
    if !not.is_empty() {
        let names = list(not.iter().map(|(case, _)| case.class.name.to_owned()));
        sentence += &format!(
            " That several seek less than one on {names} is not seen: limits of disks and host do \
             not make it, nor does RAID 0."
        );
    }
    if !seen.is_empty() {
        let names = list(seen.iter().map(|(case, _)| case.class.name.to_owned()));
        sentence += &format!(" That several seek less than one on {names} is seen here, too.");
    }
    Some(sentence)
}

/// Says where least of what the limits let through came through: over an array, and over one
/// volume.
fn loses(numbers: &Members<'_>) -> Option<String> {
    let least = |arrays: bool| {
        let cases = numbers.classes().into_iter().flat_map(MembersCase::of);
        let cases = cases.filter(move |case| (case.members > 1) == arrays);
        let kinds = [WRITES, KINDS[1], COLD_READS];
        cases
            .flat_map(|case| kinds.map(|what| (case, what)))
            .filter_map(|(case, what)| Some((case, what, numbers.share(case, what)?)))
            .min_by(|one, other| one.2.total_cmp(&other.2))
    };
    let (case, what, share) = least(true)?;
    let alone = least(false).map_or_else(String::new, |(_, _, share)| {
        format!(" A volume without an array gives {share:.2} of it at least.")
    });
    let class = case.class.name;
    let members = case.members;
    Some(format!(
        "Braid loses most at \"{}\" over {members} members of {class}: {share:.2} of what the \
         limits let through.{alone}",
        what.name
    ))
}

/// `0.93 to 0.98`, or `0.98`
fn range(numbers: &[f64]) -> String {
    ends(numbers.iter().copied()).map_or_else(String::new, |both| between(both, two))
}
