//! The tables: as published, with what was published beside what was found.

use super::case::{Flow, LIMITS, StateCase, StateLevel, Task, mirror, states};
use super::course::Phase;
use super::numbers::{DD_CORES, States, figure, finish_error, kept, published_ratio, text, used};
use super::published;
use crate::compare::words::NOTHING;
use crate::model::Table;

/// The tables of the chapter, without those that have no rows.
pub(super) fn tables(numbers: &States<'_>) -> Vec<Table> {
    let mut tables: Vec<Table> = Flow::ALL.map(|flow| speeds(numbers, flow)).into();
    tables.extend([ratios(numbers), cached(numbers), readers(numbers), cores(numbers)]);
    for level in &StateLevel::ALL[1..] {
        tables.extend(Flow::ALL.map(|flow| parity(numbers, *level, flow)));
    }
    tables.extend([give_and_take(numbers), limits(numbers), estimates(numbers)]);
    tables.into_iter().filter_map(Table::unless_empty).collect()
}

fn row(first: impl Into<String>, words: impl IntoIterator<Item = String>) -> Vec<String> {
    std::iter::once(first.into()).chain(words).collect()
}

/// All cases whose state stays, of all levels.
fn all_states() -> impl Iterator<Item = StateCase> {
    StateLevel::ALL.into_iter().flat_map(states).chain([StateCase::Alone])
}

/// All sizes, published or measured here.
fn sizes(numbers: &States<'_>, flow: Flow) -> Vec<u64> {
    let published = |mb: &u64| published::mb_s(StateCase::Alone, flow, *mb).is_some();
    let measured = |mb: &u64| numbers.dd(StateCase::Alone, Task::sized(flow, *mb)).is_some();
    let mut all: Vec<u64> = published::SIZES_MB.into_iter().filter(published).collect();
    all.extend(numbers.options.sizes_mb.iter().copied().filter(measured));
    all.sort_unstable();
    all.dedup();
    all
}

fn speeds(numbers: &States<'_>, flow: Flow) -> Table {
    let of_size = |mb: u64| {
        let pair = |(case, _)| {
            let ours = text(numbers.dd(case, Task::sized(flow, mb)));
            [ours, figure(published::mb_s(case, flow, mb))]
        };
        row(mb.to_string(), mirror().into_iter().flat_map(pair))
    };
    let (title, note) = match flow {
        Flow::Write => ("Written with oflag=sync, MB/s", "One dd of one block."),
        Flow::Read => (
            "Read after the file system was mounted anew, MB/s",
            "One dd of one block: one stream, which two members can serve.",
        ),
    };
    let heads = mirror().into_iter().flat_map(|(_, name)| [name, "published"]);
    let head = std::iter::once("MB").chain(heads);
    Table::new(title, head, sizes(numbers, flow).into_iter().map(of_size), note)
}

fn ratios(numbers: &States<'_>) -> Table {
    let sizes = published::SIZES_MB;
    let mut rows = Vec::new();
    for flow in Flow::ALL {
        for (case, state) in &mirror()[..3] {
            let mean = numbers.mean_ratio(*case, flow);
            let ours = sizes.map(|mb| numbers.ratio(*case, Task::sized(flow, mb)));
            let theirs = sizes.map(|mb| published_ratio(*case, flow, mb));
            let all = ours.into_iter().chain([mean.map(|mean| mean.0)]);
            rows.push(row(format!("{} {state}", flow.name()), all.map(figure)));
            let all = theirs.into_iter().chain([mean.map(|mean| mean.1)]);
            rows.push(row("  published", all.map(figure)));
        }
    }
    let heads = sizes.into_iter().map(|mb| format!("{mb} MB")).chain(["mean".to_owned()]);
    Table::new(
        "Beside a member on its own",
        row("to no RAID", heads),
        rows,
        "The mean is that of the sizes that were measured here, for both. A limited member may \
         catch up on 20 ms, which are 1.6 MB: the smallest sizes say little.",
    )
}

fn cached(numbers: &States<'_>) -> Table {
    let of_size = |mb: u64| {
        let ours = mirror().map(|(case, _)| text(numbers.dd(case, Task::Cached(mb))));
        let published = figure(published::cached_mb_s(mb));
        row(mb.to_string(), std::iter::once(published).chain(ours))
    };
    Table::new(
        "Written without oflag=sync, MB/s",
        ["MB", "published", "UU", "U_", "UI", "no RAID"],
        sizes(numbers, Flow::Write).into_iter().map(of_size),
        "What the page cache takes, until it takes no more.",
    )
}

fn readers(numbers: &States<'_>) -> Table {
    let largest = Task::Read(numbers.options.largest_mb());
    let one = numbers.dd(StateCase::Alone, largest).map(|one| one.median);
    let of_case = |case: StateCase| {
        let two = numbers.dd(case, Task::TwoReaders)?;
        let single = text(numbers.dd(case, largest));
        let bound = figure(numbers.bound_mb_s(case, Flow::Read));
        let ratio = figure(one.map(|one| two.median / one));
        Some(row(case.name(), [single, text(Some(two)), ratio, bound]))
    };
    Table::new(
        "One reader and two at once, MB/s",
        ["", "one", "two", "two to one on no RAID", "what members allow"],
        all_states().filter_map(of_case),
        "Two dd read a half of the largest file each. Not published.",
    )
}

fn cores(numbers: &States<'_>) -> Table {
    let largest = numbers.options.largest_mb();
    let of_case = |case: StateCase| {
        let pair = |task: Task| {
            let dd = numbers.numbers.spread(&case.name(), &task.name(), DD_CORES);
            [text(dd), text(numbers.server_cores(case, task))]
        };
        numbers.dd(case, Task::Write(largest))?;
        let both = [Task::Write(largest), Task::Read(largest)].map(pair);
        Some(row(case.name(), both.into_iter().flatten()))
    };
    let note = format!(
        "CPU seconds a second. Published: {} for a dd that writes 2048 MB to a mirror in sync.",
        published::WRITE_CORES
    );
    let head = ["", "write: dd", "write: Braid", "read: dd", "read: Braid"];
    let rows = all_states().filter_map(of_case);
    Table::new(format!("Cores in use with {largest} MB"), head, rows, note)
}

/// The same for a level with parity, where it was measured.
fn parity(numbers: &States<'_>, level: StateLevel, flow: Flow) -> Table {
    let of_size = |&mb: &u64| {
        let task = Task::sized(flow, mb);
        let found = states(level).map(|case| numbers.dd(case, task));
        if found.iter().all(Option::is_none) {
            return None;
        }
        let alone = numbers.dd(StateCase::Alone, task);
        let ratio = found[0].zip(alone).map(|(array, alone)| array.median / alone.median);
        Some(row(mb.to_string(), found.map(text).into_iter().chain([figure(ratio)])))
    };
    let allow = states(level).map(|case| figure(numbers.bound_mb_s(case, flow))).join(", ");
    let heads = states(level).map(StateCase::name).into_iter().chain(["in sync to no RAID".into()]);
    Table::new(
        format!("RAID {}, {} with dd, MB/s", level.number, flow.name()),
        row("MB", heads),
        numbers.options.sizes_mb.iter().filter_map(of_size),
        format!("What the members allow: {allow} MB/s. Not published."),
    )
}

/// Table of what a recovery and a use of the array take from each other.
fn give_and_take(numbers: &States<'_>) -> Table {
    type Trace = (StateLevel, Flow);
    let of = |(level, flow): &Trace, metric: &str| numbers.traced(*level, *flow, metric);
    let speed = |trace: &Trace, metric: &str| text(of(trace, metric));
    let share =
        |(level, flow): &Trace, metric: &str| figure(numbers.middle(*level, *flow, &kept(metric)));
    let left = |trace: &Trace| {
        let used = of(trace, &used(Phase::Both))?;
        left_mb_s(numbers, trace.0, trace.1, used.median)
    };
    let note = format!(
        "At the default limits. Published for RAID 1: dd keeps {} at the least from 64 MB on; the \
         recovery {:.2} of its speed with dd and {:.2} after it. 'Members allow' is what dd leaves \
         of a member.",
        published::USE_KEPT,
        published::RECOVERY_IN_USE,
        published::RECOVERY_AFTER
    );
    let mut traces = numbers.traces();
    traces.retain(|trace| of(trace, &used(Phase::Both)).is_some());
    Table::of_columns(
        "What a recovery and a dd take from each other, MB/s",
        traces,
        &[
            ("", &|(level, flow)| format!("RAID {}, {}", level.number, flow.name())),
            ("dd in sync", &|trace| speed(trace, &used(Phase::InSync))),
            ("dd degraded", &|trace| speed(trace, &used(Phase::Degraded))),
            ("dd in recovery", &|trace| speed(trace, &used(Phase::Both))),
            ("of degraded", &|trace| share(trace, &used(Phase::Both))),
            ("recovery alone", &|trace| speed(trace, Phase::Alone.name())),
            ("with dd", &|trace| speed(trace, Phase::Both.name())),
            ("of alone", &|trace| share(trace, Phase::Both.name())),
            ("members allow", &|trace| figure(left(trace))),
            ("after dd", &|trace| speed(trace, Phase::After.name())),
            ("of alone", &|trace| share(trace, Phase::After.name())),
        ],
        note,
    )
}

/// Returns what is left of a member for the recovery.
fn left_mb_s(numbers: &States<'_>, level: StateLevel, flow: Flow, used_mb_s: f64) -> Option<f64> {
    let member = numbers.member_mb_s()?;
    let share = used_mb_s / (numbers.bound_mb_s(StateCase::Trace { level }, flow)? / member);
    Some((member - share).max(0.0))
}

fn limits(numbers: &States<'_>) -> Table {
    let of_limit = |index: usize| {
        let (min, max) = LIMITS[index];
        let used = numbers.limited(index, &used(Phase::Both))?;
        let recovery = numbers.limited(index, Phase::Both.name());
        let sum = recovery.map(|recovery| recovery.median + used.median);
        let default = if index == 0 { " (default)" } else { "" };
        let name = format!("--min {min} --max {max}{default}");
        Some(row(name, [text(Some(used)), text(recovery), figure(sum)]))
    };
    Table::new(
        "A mirror that recovers under limits while dd writes, MB/s",
        ["braid sync", "dd", "recovery", "together"],
        States::limits().filter_map(of_limit),
        "--min holds for each member as long as somebody uses the array. M is 2^20.",
    )
}

fn estimates(numbers: &States<'_>) -> Table {
    let of_trace = |(level, flow): (StateLevel, Flow)| {
        let error = |phase: Phase| numbers.middle(level, flow, &finish_error(phase));
        let errors = [Phase::Alone, Phase::Both, Phase::After].map(error);
        if errors.iter().all(Option::is_none) {
            return None;
        }
        let percent = |error: f64| format!("{:.0} %", error * 100.0);
        let words = errors.map(|error| error.map_or_else(|| NOTHING.to_owned(), percent));
        Some(row(format!("RAID {}, {}", level.number, flow.name()), words))
    };
    Table::new(
        "How far finish= in mdstat was from the end",
        ["", "before dd", "with dd", "after dd"],
        numbers.traces().into_iter().filter_map(of_trace),
        "Of the time that was really left; medians. Before dd begins nobody can know of it, and \
         with it nobody knows when it ends. As the kernel does, mdstat reckons with the mean speed \
         of up to 30 s: short recoveries end before it notices.",
    )
}
