//! The tables: as published, with what was published beside what was found.

use super::case::{
    Flow, LEVELS, LIMITS, State, StateCase, StateLevel, Task, all_states, mirror, states,
};
use super::course::Phase;
use super::numbers::{DD_CORES, States, Traced, figure, finish_error, kept, used};
use super::published;
use crate::compare::words::{median_as, word};
use crate::model::{Spread, Table};

/// The tables of the chapter, without those that have no rows.
pub(super) fn tables(numbers: &States<'_>) -> Vec<Table> {
    let mut tables: Vec<Table> = Flow::ALL.map(|flow| speeds(numbers, flow)).into();
    tables.extend([ratios(numbers), cached(numbers), readers(numbers), cores(numbers)]);
    for level in &LEVELS[1..] {
        tables.extend(Flow::ALL.map(|flow| parity(numbers, *level, flow)));
    }
    tables.extend([give_and_take(numbers), limits(numbers), estimates(numbers)]);
    tables.into_iter().filter_map(Table::unless_empty).collect()
}

fn text(spread: Option<Spread>) -> String {
    median_as(spread, figure)
}

fn plain(number: Option<f64>) -> String {
    word(number, figure)
}

/// All sizes, published or measured here.
fn sizes(numbers: &States<'_>, flow: Flow) -> impl Iterator<Item = (String, u64)> {
    let is_there = |mb: &u64| {
        let task = Task::Sized(flow, *mb);
        let published = published::mb_s(StateCase::Alone, task).is_some();
        published || numbers.dd(StateCase::Alone, task).is_some()
    };
    let all = published::SIZES_MB.iter().chain(&numbers.options.sizes_mb).copied();
    let mut all: Vec<u64> = all.filter(is_there).collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter().map(|mb| (mb.to_string(), mb))
}

fn speeds(numbers: &States<'_>, flow: Flow) -> Table {
    let (title, note) = match flow {
        Flow::Write => ("Written with oflag=sync, MB/s", "One dd of one block."),
        Flow::Read => (
            "Read after the file system was mounted anew, MB/s",
            "One dd of one block: one stream, which two members can serve.",
        ),
    };
    let pair = |(case, name)| [(name, (case, false)), ("published", (case, true))];
    let columns = mirror().into_iter().flat_map(pair);
    let speed = |&mb: &u64, &(case, is_published): &(StateCase, bool)| {
        let task = Task::Sized(flow, mb);
        if is_published { plain(published::mb_s(case, task)) } else { text(numbers.dd(case, task)) }
    };
    Table::grid(title, "MB", columns, sizes(numbers, flow), speed, note)
}

fn ratios(numbers: &States<'_>) -> Table {
    let heads = published::SIZES_MB.map(|mb| (format!("{mb} MB"), Some(mb)));
    let heads = heads.into_iter().chain([("mean".to_owned(), None)]);
    let rows = Flow::ALL.into_iter().flat_map(|flow| {
        mirror().into_iter().take(3).flat_map(move |(case, state)| {
            let ours = (format!("{flow} {state}"), (flow, case, 0));
            [ours, ("  published".to_owned(), (flow, case, 1))]
        })
    });
    let ratio = |&(flow, case, whose): &(Flow, StateCase, usize), mb: &Option<u64>| {
        let Some(mb) = *mb else {
            return plain(numbers.mean_ratio(case, flow).map(|it| it[whose]));
        };
        let task = Task::Sized(flow, mb);
        plain(if whose == 0 { numbers.ratio(case, task) } else { published::ratio(case, task) })
    };
    Table::grid(
        "Beside a member on its own",
        "to no RAID",
        heads,
        rows,
        ratio,
        "The mean is that of the sizes that were measured here, for both. A limited member may \
         catch up on 20 ms, which are 1.6 MB: the smallest sizes say little.",
    )
}

fn cached(numbers: &States<'_>) -> Table {
    let columns = mirror().map(|(case, name)| (name, Some(case)));
    Table::grid(
        "Written without oflag=sync, MB/s",
        "MB",
        [("published", None)].into_iter().chain(columns),
        sizes(numbers, Flow::Write),
        |&mb, case| match case {
            Some(case) => text(numbers.dd(*case, Task::Cached(mb))),
            None => plain(published::mb_s(mirror()[0].0, Task::Cached(mb))),
        },
        "What the page cache takes, until it takes no more.",
    )
}

fn readers(numbers: &States<'_>) -> Table {
    let largest = Task::Sized(Flow::Read, numbers.options.largest_mb());
    let two = |case: &StateCase| numbers.dd(*case, Task::TwoReaders);
    let one = |case: &StateCase| numbers.dd(*case, largest);
    let ratio = |case: &StateCase| Some(two(case)?.median / one(&StateCase::Alone)?.median);
    Table::of_columns(
        "One reader and two at once, MB/s",
        all_states().filter(|case| two(case).is_some()),
        &[
            ("", &|case| case.to_string()),
            ("one", &|case| text(one(case))),
            ("two", &|case| text(two(case))),
            ("two to one on no RAID", &|case| plain(ratio(case))),
            ("what members allow", &|case| plain(numbers.bound_mb_s(*case, Flow::Read))),
        ],
        "Two dd read a half of the largest file each. Not published.",
    )
}

fn cores(numbers: &States<'_>) -> Table {
    let largest = numbers.options.largest_mb();
    let [write, read] = Flow::ALL.map(|flow| Task::Sized(flow, largest));
    let dd = |case: &StateCase, task| text(numbers.numbers.spread((*case, task, DD_CORES)));
    let server = |case: &StateCase, task| text(numbers.numbers.cores(*case, task));
    Table::of_columns(
        format!("Cores in use with {largest} MB"),
        all_states().filter(|case| numbers.dd(*case, write).is_some()),
        &[
            ("", &|case| case.to_string()),
            ("write: dd", &|case| dd(case, write)),
            ("write: Braid", &|case| server(case, write)),
            ("read: dd", &|case| dd(case, read)),
            ("read: Braid", &|case| server(case, read)),
        ],
        format!(
            "CPU seconds a second. Published: {} for a dd that writes 2048 MB to a mirror in sync.",
            published::WRITE_CORES
        ),
    )
}

/// The same for a level with parity, where it was measured.
fn parity(numbers: &States<'_>, level: StateLevel, flow: Flow) -> Table {
    let cases = states(level);
    let is_there =
        |mb: &u64| cases.iter().any(|it| numbers.dd(*it, Task::Sized(flow, *mb)).is_some());
    let sizes = numbers.options.sizes_mb.iter().copied().filter(is_there);
    let allow = cases.map(|case| plain(numbers.bound_mb_s(case, flow))).join(", ");
    let heads = cases.map(|case| (case.to_string(), Some(case))).into_iter();
    Table::grid(
        format!("RAID {}, {flow} with dd, MB/s", level.number),
        "MB",
        heads.chain([("in sync to no RAID".to_owned(), None)]),
        sizes.map(|mb| (mb.to_string(), Task::Sized(flow, mb))),
        |&task, case| match case {
            Some(case) => text(numbers.dd(*case, task)),
            None => plain(numbers.ratio(StateCase::Array(level, State::InSync), task)),
        },
        format!("What the members allow: {allow} MB/s. Not published."),
    )
}

fn name((level, flow): &Traced) -> String {
    format!("RAID {}, {flow}", level.number)
}

/// Table of what a recovery and a use of the array take from each other.
fn give_and_take(numbers: &States<'_>) -> Table {
    let speed = |traced: &Traced, metric: &str| text(numbers.traced(*traced, metric));
    let share = |traced: &Traced, metric: &str| plain(numbers.middle(*traced, kept(metric)));
    let [in_sync, degraded, both] = [Phase::InSync, Phase::Degraded, Phase::Both].map(used);
    // What is left of a member for the recovery.
    let left = |traced: &Traced| {
        let member = numbers.member_mb_s()?;
        let all = numbers.bound_mb_s(StateCase::Trace(traced.0), traced.1)? / member;
        Some((member - numbers.middle(*traced, &both)? / all).max(0.0))
    };
    let mut traces = numbers.traces();
    traces.retain(|traced| numbers.traced(*traced, &both).is_some());
    Table::of_columns(
        "What a recovery and a dd take from each other, MB/s",
        traces,
        &[
            ("", &name),
            ("dd in sync", &|traced| speed(traced, &in_sync)),
            ("dd degraded", &|traced| speed(traced, &degraded)),
            ("dd in recovery", &|traced| speed(traced, &both)),
            ("of degraded", &|traced| share(traced, &both)),
            ("recovery alone", &|traced| speed(traced, Phase::Alone.name())),
            ("with dd", &|traced| speed(traced, Phase::Both.name())),
            ("of alone", &|traced| share(traced, Phase::Both.name())),
            ("members allow", &|traced| plain(left(traced))),
            ("after dd", &|traced| speed(traced, Phase::After.name())),
            ("of alone", &|traced| share(traced, Phase::After.name())),
        ],
        format!(
            "At the default limits. Published for RAID 1: dd keeps {} at the least from 64 MB on; \
             the recovery {:.2} of its speed with dd and {:.2} after it. 'Members allow' is what \
             dd leaves of a member.",
            published::USE_KEPT,
            published::RECOVERY_IN_USE,
            published::RECOVERY_AFTER
        ),
    )
}

fn limits(numbers: &States<'_>) -> Table {
    let used = used(Phase::Both);
    let of = |index: &usize| {
        let recovery = numbers.limited(*index, Phase::Both.name());
        (numbers.limited(*index, &used), recovery)
    };
    let sum = |index: &usize| {
        let (used, recovery) = of(index);
        Some(recovery?.median + used?.median)
    };
    let name = |index: &usize| {
        let (min, max) = LIMITS[*index];
        format!("--min {min} --max {max}{}", if *index == 0 { " (default)" } else { "" })
    };
    Table::of_columns(
        "A mirror that recovers under limits while dd writes, MB/s",
        (0..LIMITS.len()).filter(|index| of(index).0.is_some()),
        &[
            ("braid sync", &name),
            ("dd", &|index| text(of(index).0)),
            ("recovery", &|index| text(of(index).1)),
            ("together", &|index| plain(sum(index))),
        ],
        "--min holds for each member as long as somebody uses the array. M is 2^20.",
    )
}

fn estimates(numbers: &States<'_>) -> Table {
    let phases =
        [("before dd", Phase::Alone), ("with dd", Phase::Both), ("after dd", Phase::After)];
    let error = |traced: Traced, phase| numbers.middle(traced, finish_error(phase));
    let mut traces = numbers.traces();
    traces.retain(|traced| phases.iter().any(|(_, phase)| error(*traced, *phase).is_some()));
    Table::grid(
        "How far finish= in mdstat was from the end",
        "",
        phases,
        traces.into_iter().map(|traced| (name(&traced), traced)),
        |traced, phase| word(error(*traced, *phase), |error| format!("{:.0} %", error * 100.0)),
        "Of the time that was really left; medians. Before dd begins nobody can know of it, and \
         with it nobody knows when it ends. As the kernel does, mdstat reckons with the mean speed \
         of up to 30 s: short recoveries end before it notices.",
    )
}
