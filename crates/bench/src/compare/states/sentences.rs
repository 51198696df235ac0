//! Sentences that follow from the numbers.

use super::case::{Flow, MIRROR, StateCase, Task, states};
use super::course::Phase;
use super::numbers::{States, figure, finish_error, kept, used};
use super::published;

/// The default of `braid sync --min`, in MB/s.
const DEFAULT_MIN_MB_S: f64 = 10.485_76;
/// Shares that are asked for: of dd, and of the recovery.
const WANTED: (f64, f64) = (0.95, 0.3);
const WANTED_READERS: f64 = 1.5;

/// The sentences of the chapter, each of them where there are numbers for it.
pub(super) fn sentences(numbers: &States<'_>) -> Vec<String> {
    let mut says = Vec::new();
    says.extend(Flow::ALL.into_iter().filter_map(|flow| cost(numbers, flow)));
    says.extend(Flow::ALL.into_iter().filter_map(|flow| give_and_take(numbers, flow)));
    says.extend(readers(numbers));
    says.extend(cliff(numbers));
    says.extend(estimate(numbers));
    says.extend(worst(numbers));
    says
}

/// Says what the states of a mirror cost.
fn cost(numbers: &States<'_>, flow: Flow) -> Option<String> {
    let of = |case| {
        let [ours, theirs] = numbers.mean_ratio(case, flow)?;
        Some(format!("{} (published {})", figure(ours), figure(theirs)))
    };
    let [in_sync, degraded, recovering] = states(MIRROR).map(of);
    let verb = match flow {
        Flow::Write => "Writing to",
        Flow::Read => "Reading from",
    };
    Some(format!(
        "{verb} a mirror gives, beside a member on its own, {} in sync, {} degraded and {} while \
         it recovers: means over the sizes that were measured.",
        in_sync?, degraded?, recovering?
    ))
}

/// Says what dd and a recovery leave to each other.
fn give_and_take(numbers: &States<'_>, flow: Flow) -> Option<String> {
    let dd = numbers.middle((MIRROR, flow), kept(used(Phase::Both)))?;
    let recovery = numbers.middle((MIRROR, flow), kept(Phase::Both))?;
    let mut text = format!(
        "While a mirror recovers, a dd that {flow}s keeps {} of its speed (published {}), and the \
         recovery keeps {} of its own (published {:.2}).",
        figure(dd),
        published::USE_KEPT,
        figure(recovery),
        published::RECOVERY_IN_USE,
    );
    if flow == Flow::Read && dd > 1.05 {
        text.push_str(" It reads faster than before, for what has been recovered serves already.");
    }
    if dd < WANTED.0 || recovery < WANTED.1 {
        text.push_str(&format!(" {} and {} were wanted.", WANTED.0, WANTED.1));
        text.extend(why(numbers, flow));
    }
    Some(text)
}

/// Says why they do not get what was wanted.
fn why(numbers: &States<'_>, flow: Flow) -> Option<String> {
    let speed = numbers.middle((MIRROR, flow), Phase::Both)?;
    let alone = numbers.middle((MIRROR, flow), Phase::Alone)?;
    let degraded = numbers.middle((MIRROR, flow), used(Phase::Degraded))?;
    let mut text = String::new();
    if (speed / DEFAULT_MIN_MB_S - 1.0).abs() < 0.25 {
        text = format!(
            " The recovery's {} MB/s are its default --min of 10 MiB/s, to which it is held \
             while the array is used.",
            figure(speed)
        );
    }
    // One leg is left, whichever way data goes.
    let member = numbers.member_mb_s()?;
    let asked = (WANTED.0 * degraded + WANTED.1 * alone) / member;
    text.push_str(&format!(
        " Both together would take {} of a member, of which dd alone takes {}: {}.",
        figure(asked),
        figure(degraded / member),
        if asked > 1.0 { "what one gains the other loses" } else { "there is room for both" }
    ));
    Some(text)
}

fn readers(numbers: &States<'_>) -> Option<String> {
    let mirror = states(MIRROR)[0];
    let largest = Task::Sized(Flow::Read, numbers.options.largest_mb());
    let alone = numbers.dd(StateCase::Alone, largest)?.median;
    let two = numbers.dd(mirror, Task::TwoReaders)?.median / alone;
    let one = numbers.dd(mirror, largest)?.median / alone;
    let verdict = if two > WANTED_READERS { "both legs serve" } else { "the legs do not add up" };
    Some(format!(
        "Two readers of a mirror get {} of what one gets of a member on its own, and one reader \
         gets {}: {verdict}.",
        figure(two),
        figure(one)
    ))
}

/// Says where the page cache takes no more.
fn cliff(numbers: &States<'_>) -> Option<String> {
    let mirror = states(MIRROR)[0];
    let speed = |&mb: &u64| Some((mb, numbers.dd(mirror, Task::Cached(mb))?.median));
    let all: Vec<(u64, f64)> = numbers.options.sizes_mb.iter().filter_map(speed).collect();
    let (last, at_last) = all.last()?;
    let fall = all.windows(2).find(|pair| pair[1].1 < pair[0].1 / 2.0);
    Some(match fall {
        Some(pair) => format!(
            "Without oflag=sync the speed falls from {} to {} MB/s between {} and {} MB: from \
             there on it is the disks' (published: from 264 to 30.1 between 512 and 1024 MB).",
            figure(pair[0].1),
            figure(pair[1].1),
            pair[0].0,
            pair[1].0
        ),
        None => format!(
            "Without oflag=sync the page cache takes all up to {last} MB ({} MB/s there): the \
             published fall between 512 and 1024 MB is not seen.",
            figure(*at_last)
        ),
    })
}

fn estimate(numbers: &States<'_>) -> Option<String> {
    let error = |phase| numbers.middle((MIRROR, Flow::Write), finish_error(phase));
    Some(format!(
        "What mdstat says is left of a recovery is off by {:.0} % while dd writes and by {:.0} % \
         after it: it reckons with the mean speed of up to 30 s.",
        error(Phase::Both)? * 100.0,
        error(Phase::After)? * 100.0
    ))
}

/// Says where most is lost.
fn worst(numbers: &States<'_>) -> Option<String> {
    let mut all = Vec::new();
    for flow in Flow::ALL {
        for case in states(MIRROR) {
            for &mb in &numbers.options.sizes_mb {
                let ratio = numbers.ratio(case, Task::Sized(flow, mb));
                all.extend(ratio.map(|ratio| (ratio, format!("{flow} {mb} MB, {case}"))));
            }
        }
    }
    let (ratio, what) = all.into_iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(if ratio < 1.0 {
        format!("Most is lost with {what}: {} of a member on its own.", figure(ratio))
    } else {
        format!("Nothing is lost: the least is {} ({what}).", figure(ratio))
    })
}
