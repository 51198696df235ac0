//! Sentences that follow from the numbers.

use super::case::{Built, Cache, LevelCase};
use super::level::Level;
use super::numbers::{Against, Levels, RATE};
use super::published;
use crate::compare::words::number;
use crate::model::Spread;

/// Ratios closer than this are the same.
const SAME: f64 = 0.05;
/// A cache is so many times as fast as what is not in memory.
const CACHED: f64 = 2.0;
/// Number of ratios that are named, the furthest first.
const NAMED: usize = 3;

/// The published figures that were the worst: the job, what it is, and the levels.
const WORST: [(&str, &str, &[Level]); 3] = [
    ("RND4KQ32T16-Write", "Small random writes, many at once", &[Level::Raid5, Level::Raid6]),
    ("RND4KQ1T1-Write", "Small random writes, one at a time", &[Level::Raid5, Level::Raid6]),
    ("SEQ128KQ32T1-Write", "Long writes in pieces of 128K", &[Level::Raid6]),
];

pub(super) fn sentences(numbers: &Levels<'_>) -> Vec<String> {
    let mut says: Vec<String> =
        WORST.iter().filter_map(|(job, what, levels)| worst(numbers, job, what, levels)).collect();
    let lost = says.len().min(2);
    says.splice(lost..lost, below_published(numbers));
    says.extend(cached(numbers));
    if numbers.options.job.is_some() {
        says.extend(kept(numbers));
    }
    for cache in Cache::ALL {
        says.extend(gained(numbers, cache));
    }
    for cache in Cache::ALL {
        says.extend(below_bound(numbers, cache));
        says.extend(rivals(numbers, cache));
    }
    says
}

const fn braid(level: Level, cache: Cache) -> LevelCase {
    LevelCase { built: Built::Braid(level), cache }
}

/// Says what became of the worst that was published.
fn worst(numbers: &Levels<'_>, job: &str, what: &str, levels: &[Level]) -> Option<String> {
    let of = |cache: Cache| -> Vec<(Level, f64, f64)> {
        let one = |level: &Level| {
            let case = braid(*level, cache);
            Some((*level, numbers.kept(case, job)?, numbers.published_ratio(case, job)?))
        };
        levels.iter().filter_map(one).collect()
    };
    let warm = of(Cache::Warm);
    let cold = of(Cache::Cold);
    // Like is compared with like where that was measured.
    let (name, main, other) = match (warm.is_empty(), cold.is_empty()) {
        (true, true) => return None,
        (true, false) => (Cache::Cold, cold, Vec::new()),
        (false, _) => (Cache::Warm, warm, cold),
    };
    let list = |all: &[(Level, f64, f64)], value: fn(&(Level, f64, f64)) -> f64| {
        let one =
            |entry: &(Level, f64, f64)| format!("{:.2} on {}", value(entry), entry.0.facts().name);
        all.iter().map(one).collect::<Vec<_>>().join(" and ")
    };
    let mut text = format!(
        "{what} ({job}) keep {} of the rate without RAID, {} cache; published: {}.",
        list(&main, |entry| entry.1),
        name.name(),
        list(&main, |entry| entry.2)
    );
    for (level, ours, theirs) in &main {
        let word = match ours / theirs {
            ratio if ratio > 1.0 + SAME => "loses less than was published",
            ratio if ratio < 1.0 - SAME => "loses more than was published",
            _ => "loses as much as was published",
        };
        text += &format!(" {} {word}.", level.facts().name);
    }
    if !other.is_empty() {
        text += &format!(" Cold it is {}.", list(&other, |entry| entry.1));
    }
    Some(text)
}

/// Says what the page cache does to the figures.
fn cached(numbers: &Levels<'_>) -> Option<String> {
    let job = published::JOBS[0].0;
    let case = |cache| LevelCase { built: Built::Plain, cache };
    let of = |cache| numbers.numbers.median((case(cache), job, RATE));
    let factor = of(Cache::Warm)? / of(Cache::Cold)?;
    let published = published::figures(Built::Plain, job)?.0;
    let published = published / published::figures(Built::Bare, job)?.0;
    let means = if factor >= CACHED {
        "warm figures are those of a cache, there and here"
    } else {
        "here the members are about as fast as a cache, which that was not"
    };
    Some(format!(
        "Without RAID the page cache makes {job} {} times as fast as it is cold (published: {} \
         times the bare host): {means}.",
        number(factor),
        number(published)
    ))
}

/// Says how much of one disk each level keeps under a job file of one's own.
fn kept(numbers: &Levels<'_>) -> Vec<String> {
    let mut says = Vec::new();
    for cache in Cache::ALL {
        for &level in &numbers.options.levels {
            let all = figures(numbers, cache, |case, job| {
                (case.built == Built::Braid(level)).then(|| numbers.kept(case, job))?
            });
            if let (Some((least, _, low)), Some((most, _, high))) = (all.first(), all.last()) {
                says.push(format!(
                    "{} keeps from {low:.2} ({least}) to {high:.2} ({most}) of the rate without \
                     RAID, {} cache.",
                    level.facts().name,
                    cache.name()
                ));
            }
        }
    }
    says
}

/// All figures of Braid's with one cache, the least first: job, level and value.
fn figures(
    numbers: &Levels<'_>,
    cache: Cache,
    value: impl Fn(LevelCase, &str) -> Option<f64>,
) -> Vec<(String, Level, f64)> {
    let mut all = Vec::new();
    for &level in &numbers.options.levels {
        for job in numbers.jobs() {
            all.extend(value(braid(level, cache), job).map(|v| (job.to_owned(), level, v)));
        }
    }
    all.sort_by(|one, other| one.2.total_cmp(&other.2));
    all
}

/// Says whether RAID makes anything faster on one divided medium.
fn gained(numbers: &Levels<'_>, cache: Cache) -> Option<String> {
    let all = figures(numbers, cache, |case, job| numbers.kept(case, job));
    let (job, level, most) = all.last()?;
    let count = all.iter().filter(|(_, _, ratio)| *ratio > 1.0 + SAME).count();
    let of = all.len();
    let cache = cache.name();
    Some(if count == 0 {
        format!(
            "RAID makes nothing faster than one disk where all members share one medium, as \
             published ({cache} cache, {of} figures)."
        )
    } else {
        format!(
            "Faster than one disk: {count} of {of} figures ({cache} cache), most of all {} on \
             {job}: {most:.2} times.",
            level.facts().name
        )
    })
}

/// Says where Braid keeps less than was published.
fn below_published(numbers: &Levels<'_>) -> Option<String> {
    let share = |case: LevelCase, job: &str| {
        Some(numbers.kept(case, job)? / numbers.published_ratio(case, job)?)
    };
    let cache =
        Cache::ALL.into_iter().rev().find(|cache| !figures(numbers, *cache, share).is_empty())?;
    let all = figures(numbers, cache, share);
    let below: Vec<_> = all.iter().filter(|(_, _, share)| *share < 1.0 - SAME).collect();
    if below.is_empty() {
        return Some(format!("No ratio lies below a published one ({} cache).", cache.name()));
    }
    let one = |(job, level, _): &&(String, Level, f64)| {
        let case = braid(*level, cache);
        let pair = numbers.kept(case, job).zip(numbers.published_ratio(case, job));
        let (ours, theirs) = pair.unwrap_or_default();
        format!("{} on {job} ({ours:.2} for {theirs:.2})", level.facts().name)
    };
    let named: Vec<String> = below.iter().take(NAMED).map(one).collect();
    Some(format!(
        "Where Braid loses: {} of {} ratios lie below the published ones ({} cache), most of all \
         {}.",
        below.len(),
        all.len(),
        cache.name(),
        named.join(", ")
    ))
}

/// Says where most is left of what the medium allows.
fn below_bound(numbers: &Levels<'_>, cache: Cache) -> Option<String> {
    let share =
        |case: LevelCase, job: &str| Some(numbers.kept(case, job)? / numbers.bound(case, job)?);
    let all = figures(numbers, cache, share);
    let (job, level, least) = all.first()?;
    let middle = &all[all.len() / 2];
    Some(format!(
        "Of what one shared medium allows, Braid reaches {:.2} in the middle ({} cache), and the \
         least with {} on {job}: {least:.2}.",
        middle.2,
        cache.name(),
        level.facts().name
    ))
}

fn rivals(numbers: &Levels<'_>, cache: Cache) -> Vec<String> {
    let mut says = Vec::new();
    for &rival in &numbers.options.against {
        let mut all = numbers.against(rival, cache);
        all.sort_by(|one, other| one.ratio.spread.median.total_cmp(&other.ratio.spread.median));
        let (Some(behind), Some(ahead)) = (all.first(), all.last()) else { continue };
        let faster = all.iter().filter(|one| one.ratio.spread.median > 1.0).count();
        let end = |one: &Against| {
            let Spread { median, min, max } = one.ratio.spread;
            let Against { ours, job, .. } = one;
            format!("{} ({min:.2} to {max:.2}) with {} on {job}", number(median), ours.built)
        };
        says.push(format!(
            "Against {rival} ({cache} cache) Braid is faster in {faster} of {} figures: from {} \
             to {}.",
            all.len(),
            end(behind),
            end(ahead)
        ));
    }
    says
}
