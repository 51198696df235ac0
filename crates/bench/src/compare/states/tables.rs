//! The tables: as published, with what was published beside what was found.

use super::case::{Case, Flow, LIMITS, Level, State, Task};
use super::course::{Course, Phase};
use super::numbers::{Numbers, figure, published_ratio, sized, states, text};
use super::published;
use crate::model::Table;

/// The tables of the chapter, without those that have no rows.
pub(super) fn tables(numbers: &Numbers<'_>) -> Vec<Table> {
    let mut tables: Vec<Table> = Flow::ALL.map(|flow| speeds(numbers, flow)).into();
    tables.extend([ratios(numbers), cached(numbers), readers(numbers), cores(numbers)]);
    for level in &Level::ALL[1..] {
        tables.extend(Flow::ALL.into_iter().filter_map(|flow| parity(numbers, *level, flow)));
    }
    tables.extend([give_and_take(numbers), limits(numbers), estimates(numbers)]);
    tables.retain(|table| !table.rows.is_empty());
    tables
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// The cases of the first sweep, as published.
fn mirror() -> [Case; 4] {
    let [in_sync, degraded, recovering] = states(Level::ALL[0]);
    [in_sync, degraded, recovering, Case::Alone]
}

/// All sizes, published or measured here.
fn sizes(numbers: &Numbers<'_>, flow: Flow) -> Vec<u64> {
    let published = |mb: &u64| published::mb_s(Case::Alone, flow, *mb).is_some();
    let measured = |mb: &u64| numbers.dd(Case::Alone, sized(flow, *mb)).is_some();
    let mut all: Vec<u64> = published::SIZES_MB.into_iter().filter(published).collect();
    all.extend(numbers.options.sizes_mb.iter().copied().filter(measured));
    all.sort_unstable();
    all.dedup();
    all
}

fn speeds(numbers: &Numbers<'_>, flow: Flow) -> Table {
    let row = |mb: u64| {
        let pair = |case: Case| {
            let ours = numbers.dd(case, sized(flow, mb)).map(|measured| measured.spread);
            [text(ours), figure(published::mb_s(case, flow, mb))]
        };
        [mb.to_string()].into_iter().chain(mirror().into_iter().flat_map(pair)).collect()
    };
    let (title, note) = match flow {
        Flow::Write => ("Written with oflag=sync, MB/s", "One dd of one block."),
        Flow::Read => (
            "Read after the file system was mounted anew, MB/s",
            "One dd of one block: one stream, which two members can serve.",
        ),
    };
    let head =
        ["MB", "UU", "published", "U_", "published", "UI", "published", "no RAID", "published"];
    Table {
        title: title.to_owned(),
        head: words(&head),
        rows: sizes(numbers, flow).into_iter().map(row).collect(),
        note: note.to_owned(),
    }
}

fn ratios(numbers: &Numbers<'_>) -> Table {
    let sizes = published::SIZES_MB;
    let head = ["to no RAID".to_owned()].into_iter().chain(sizes.map(|mb| format!("{mb} MB")));
    let mut rows = Vec::new();
    for flow in Flow::ALL {
        for (case, state) in states(Level::ALL[0]).into_iter().zip(["UU", "U_", "UI"]) {
            let mean = numbers.mean_ratio(case, flow);
            let row = |name: String, ratio: &dyn Fn(u64) -> Option<f64>, mean| {
                let all = sizes.into_iter().map(ratio).chain([mean]).map(figure);
                [name].into_iter().chain(all).collect::<Vec<String>>()
            };
            let ours = |mb| numbers.ratio(case, sized(flow, mb));
            let name = format!("{} {state}", flow.name());
            rows.push(row(name, &ours, mean.map(|mean| mean.0)));
            let theirs = |mb| published_ratio(case, flow, mb);
            rows.push(row("  published".to_owned(), &theirs, mean.map(|mean| mean.1)));
        }
    }
    Table {
        title: "Beside a member on its own".to_owned(),
        head: head.chain(["mean".to_owned()]).collect(),
        rows,
        note:
            "The mean is that of the sizes that were measured here, for both. A limited member may \
               catch up on 20 ms, which are 1.6 MB: the smallest sizes say little."
                .to_owned(),
    }
}

fn cached(numbers: &Numbers<'_>) -> Table {
    let row = |mb: u64| {
        let ours = mirror().map(|case| numbers.dd(case, Task::Cached(mb)));
        let ours = ours.map(|measured| text(measured.map(|measured| measured.spread)));
        let published = figure(published::cached_mb_s(mb));
        [mb.to_string(), published].into_iter().chain(ours).collect()
    };
    Table {
        title: "Written without oflag=sync, MB/s".to_owned(),
        head: words(&["MB", "published", "UU", "U_", "UI", "no RAID"]),
        rows: sizes(numbers, Flow::Write).into_iter().map(row).collect(),
        note: "What the page cache takes, until it takes no more.".to_owned(),
    }
}

fn readers(numbers: &Numbers<'_>) -> Table {
    let largest = Task::Read(numbers.options.largest_mb());
    let one = numbers.dd(Case::Alone, largest).map(|measured| measured.spread.median);
    let row = |case: Case| {
        let two = numbers.dd(case, Task::TwoReaders)?.spread;
        let single = numbers.dd(case, largest).map(|measured| measured.spread);
        let bound = numbers.bound_mb_s(case, Flow::Read);
        let ratio = one.map(|one| two.median / one);
        Some(vec![case.name(), text(single), text(Some(two)), figure(ratio), figure(bound)])
    };
    let all = Level::ALL.into_iter().flat_map(states).chain([Case::Alone]);
    Table {
        title: "One reader and two at once, MB/s".to_owned(),
        head: words(&["", "one", "two", "two to one on no RAID", "what members allow"]),
        rows: all.filter_map(row).collect(),
        note: "Two dd read a half of the largest file each. Not published.".to_owned(),
    }
}

fn cores(numbers: &Numbers<'_>) -> Table {
    let largest = numbers.options.largest_mb();
    let row = |case: Case| {
        let pair = |task: Task| {
            let server = numbers.found.server_cores(&case.name(), &task.name());
            [text(numbers.dd_cores(case, task)), text(server)]
        };
        numbers.dd(case, Task::Write(largest))?;
        let both = [pair(Task::Write(largest)), pair(Task::Read(largest))];
        Some([case.name()].into_iter().chain(both.into_iter().flatten()).collect())
    };
    let all = Level::ALL.into_iter().flat_map(states).chain([Case::Alone]);
    Table {
        title: format!("Cores in use with {largest} MB"),
        head: words(&["", "write: dd", "write: Braid", "read: dd", "read: Braid"]),
        rows: all.filter_map(row).collect(),
        note: format!(
            "CPU seconds a second. Published: {} for a dd that writes 2048 MB to a mirror in sync.",
            published::WRITE_CORES
        ),
    }
}

/// The same for a level with parity, where it was measured.
fn parity(numbers: &Numbers<'_>, level: Level, flow: Flow) -> Option<Table> {
    let row = |mb: u64| {
        let found = states(level).map(|case| numbers.dd(case, sized(flow, mb)));
        let alone = numbers.dd(Case::Alone, sized(flow, mb)).map(|alone| alone.spread.median);
        let in_sync = found[0].as_ref().map(|found| found.spread.median);
        let ratio = in_sync.zip(alone).map(|(array, alone)| array / alone);
        let found = found.map(|found| text(found.map(|found| found.spread)));
        [mb.to_string()].into_iter().chain(found).chain([figure(ratio)]).collect()
    };
    let measured =
        |mb: &u64| states(level).iter().any(|case| numbers.dd(*case, sized(flow, *mb)).is_some());
    let rows: Vec<Vec<String>> =
        numbers.options.sizes_mb.iter().copied().filter(measured).map(row).collect();
    let marks = |state: State| Case::Array { level, state }.name();
    let names = State::ALL.map(marks);
    let head = ["MB".to_owned()].into_iter().chain(names).chain(["in sync to no RAID".into()]);
    let allow = State::ALL.map(|state| numbers.bound_mb_s(Case::Array { level, state }, flow));
    let allow = allow.map(figure).join(", ");
    (!rows.is_empty()).then(|| Table {
        title: format!("RAID {}, {} with dd, MB/s", level.number, flow.name()),
        head: head.collect(),
        rows,
        note: format!("What the members allow: {allow} MB/s. Not published."),
    })
}

/// What a recovery and those who use the array take from each other.
fn give_and_take(numbers: &Numbers<'_>) -> Table {
    let mut rows = Vec::new();
    for level in numbers.traced_levels() {
        for flow in Flow::ALL {
            rows.extend(give_and_take_row(numbers, level, flow));
        }
    }
    let kept = published::USE_KEPT;
    let after = published::RECOVERY_AFTER;
    Table {
        title: "What a recovery and a dd take from each other, MB/s".to_owned(),
        head: words(&[
            "",
            "dd in sync",
            "dd degraded",
            "dd in recovery",
            "of degraded",
            "recovery alone",
            "with dd",
            "of alone",
            "members allow",
            "after dd",
            "of alone",
        ]),
        rows,
        note: format!(
            "At the default limits. Published for RAID 1: dd keeps {kept} at the least from 64 MB \
             on; the recovery {:.2} of its speed with dd and {after:.2} after it. 'Members allow' \
             is what dd leaves of a member.",
            published::RECOVERY_IN_USE
        ),
    }
}

fn give_and_take_row(numbers: &Numbers<'_>, level: Level, flow: Flow) -> Option<Vec<String>> {
    let task = Task::Trace(flow);
    let of = |read: &dyn Fn(&Course) -> Option<f64>| numbers.traced(level, task, read);
    let used = |phase| of(&|course| course.use_mb_s(phase)).map(|found| found.spread);
    let recovery = |phase| of(&|course| course.recovery_mb_s(phase)).map(|found| found.spread);
    let kept = numbers.share(level, task, use_kept);
    let slowed = |phase| numbers.share(level, task, |course| recovery_kept(course, phase));
    let both = used(Phase::Both)?;
    let left = left_mb_s(numbers, level, flow, both.median);
    let name = format!("RAID {}, {}", level.number, flow.name());
    let dd = [used(Phase::InSync), used(Phase::Degraded), Some(both)].map(text);
    let with = [text(recovery(Phase::Alone)), text(recovery(Phase::Both))];
    let end = [figure(slowed(Phase::Both)), figure(left), text(recovery(Phase::After))];
    let row = [name].into_iter().chain(dd).chain([figure(kept)]).chain(with).chain(end);
    Some(row.chain([figure(slowed(Phase::After))]).collect())
}

/// What a dd keeps of its speed when a recovery goes on beside it.
pub(super) fn use_kept(course: &Course) -> Option<f64> {
    Some(course.use_mb_s(Phase::Both)? / course.use_mb_s(Phase::Degraded)?)
}

/// What a recovery keeps of its speed alone.
pub(super) fn recovery_kept(course: &Course, phase: Phase) -> Option<f64> {
    Some(course.recovery_mb_s(phase)? / course.recovery_mb_s(Phase::Alone)?)
}

/// What is left of a member for the recovery.
pub(super) fn left_mb_s(
    numbers: &Numbers<'_>,
    level: Level,
    flow: Flow,
    used_mb_s: f64,
) -> Option<f64> {
    let member = numbers.member_mb_s()?;
    let share = used_mb_s / (numbers.bound_mb_s(Case::Trace { level }, flow)? / member);
    Some((member - share).max(0.0))
}

fn limits(numbers: &Numbers<'_>) -> Table {
    let row = |index: usize| {
        let (min, max) = LIMITS[index];
        let of = |read: &dyn Fn(&Course) -> Option<f64>| {
            numbers.limited(index, read).map(|found| found.spread)
        };
        let used = of(&|course| course.use_mb_s(Phase::Both))?;
        let recovery = of(&|course| course.recovery_mb_s(Phase::Both));
        let sum = recovery.map(|recovery| recovery.median + used.median);
        let default = if index == 0 { " (default)" } else { "" };
        let name = format!("--min {min} --max {max}{default}");
        Some(vec![name, text(Some(used)), text(recovery), figure(sum)])
    };
    Table {
        title: "A mirror that recovers under limits while dd writes, MB/s".to_owned(),
        head: words(&["braid sync", "dd", "recovery", "together"]),
        rows: (0..LIMITS.len()).filter_map(row).collect(),
        note: "--min holds for each member as long as somebody uses the array. M is 2^20.".into(),
    }
}

fn estimates(numbers: &Numbers<'_>) -> Table {
    let mut rows = Vec::new();
    for level in numbers.traced_levels() {
        for flow in Flow::ALL {
            let error = |phase: Phase| {
                let read = |course: &Course| course.estimate_error(phase);
                let found = numbers.traced(level, Task::Trace(flow), read)?;
                Some(format!("{:.0} %", found.spread.median * 100.0))
            };
            let errors = [Phase::Alone, Phase::Both, Phase::After].map(error);
            if errors.iter().any(Option::is_some) {
                let name = format!("RAID {}, {}", level.number, flow.name());
                let errors = errors.map(|error| error.unwrap_or_else(|| "-".to_owned()));
                rows.push([name].into_iter().chain(errors).collect());
            }
        }
    }
    Table {
        title: "How far finish= in mdstat was from the end".to_owned(),
        head: words(&["", "before dd", "with dd", "after dd"]),
        rows,
        note: "Of the time that was really left; medians. Before dd begins nobody can know of it, \
               and with it nobody knows when it ends. As the kernel does, mdstat reckons with the \
               mean speed of up to 30 s: short recoveries end before it notices."
            .to_owned(),
    }
}
