//! The chapter of the report.

use super::Options;
use super::case::{Case, Flow, LIMITS, Level, Task};
use super::course::Phase;
use super::numbers::{Numbers, published_ratio, sized, states};
use super::{plots, published, says, tables};
use crate::model::{Cell, Chapter, Found, Measured, Published};

/// The chapter of the comparison `states`, from its options and from what was found.
pub(super) fn chapter(options: &Options, found: &Found) -> Chapter {
    let numbers = Numbers { options, found };
    Chapter {
        name: "states".to_owned(),
        title: "What the states of an array cost".to_owned(),
        about: about(&numbers),
        says: says::says(&numbers),
        tables: tables::tables(&numbers),
        plots: plots::plots(&numbers),
        cells: cells(&numbers),
        published: everything_published(),
        ..Chapter::default()
    }
}

fn about(numbers: &Numbers<'_>) -> Vec<String> {
    let options = numbers.options;
    let members = numbers.member_mb_s().map_or_else(
        || "Here the members are those that were named, as they are.".to_owned(),
        |limit| {
            format!(
                "Here the members are files behind a limit of {limit:.0} MB/s each, which is what \
                 the published disks could do at best."
            )
        },
    );
    let sizes: Vec<u64> =
        published::SIZES_MB.into_iter().filter(|mb| !options.sizes_mb.contains(mb)).collect();
    let mut about = vec![
        "A page on software RAID 1 under Debian etch asked what a mirror costs: dd on ext3, in \
         sync (UU), with a failed member (U_), while that member is made right again (UI), and on \
         a member that is mounted without the array. Its machine had one core and two disks of \
         80 GB."
            .to_owned(),
        format!(
            "{members} The file system is ext4 on a loop device, the array is served over FUSE. \
             The member on its own is reached through a loop device that begins where the \
             superblock says that the data do: metadata 1.2 puts the data behind itself, so a \
             leg is readable alone, with an offset."
        ),
        "A recovery begins anew for each measurement and goes on until it is over. RAID 5 has \
         3 members and RAID 6 has 4; for these nothing was published."
            .to_owned(),
    ];
    if !sizes.is_empty() {
        let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
        about.push(format!("Not measured in this run: {} MB.", sizes.join(", ")));
    }
    if let Some(text) = cache(numbers) {
        about.push(text);
    }
    about
}

/// What the page cache was allowed, as the runs noted it.
fn cache(numbers: &Numbers<'_>) -> Option<String> {
    let text = |run| numbers.found.text(run, "cache.txt");
    let said = numbers.found.runs.iter().find_map(text)?;
    let bytes = said.split(' ').next()?.parse::<f64>().ok();
    Some(bytes.map_or_else(
        || "Without oflag=sync, as much may wait in memory as this machine's kernel lets.".into(),
        |bytes| {
            format!(
                "Without oflag=sync, {:.0} MB may wait in memory, as on a machine with less of it: \
                 Linux of that time let 40 % of 2 GB wait.",
                bytes / 1e6
            )
        },
    ))
}

fn everything_published() -> Vec<Published> {
    let speed = |case: Case, task: Task, value: f64| Published {
        case: case.name(),
        job: task.name(),
        metric: "bandwidth".to_owned(),
        value,
    };
    let in_sync = states(Level::ALL[0])[0];
    let mut all = Vec::new();
    for mb in published::SIZES_MB {
        for case in states(Level::ALL[0]).into_iter().chain([Case::Alone]) {
            for flow in Flow::ALL {
                let value = published::mb_s(case, flow, mb);
                all.extend(value.map(|value| speed(case, sized(flow, mb), value)));
            }
        }
        let cached = published::cached_mb_s(mb);
        all.extend(cached.map(|value| speed(in_sync, Task::Cached(mb), value)));
    }
    all
}

fn cells(numbers: &Numbers<'_>) -> Vec<Cell> {
    let mut cells = Vec::new();
    for level in Level::ALL {
        let alone = (level.number == 1).then_some(Case::Alone);
        for case in states(level).into_iter().chain(alone) {
            cells.extend(swept(numbers, case));
        }
    }
    for level in numbers.traced_levels() {
        for flow in Flow::ALL {
            cells.extend(traced(numbers, level, flow));
        }
    }
    cells.extend((0..LIMITS.len()).flat_map(|index| limited(numbers, index)));
    cells
}

/// What was found of a case of the sweep.
fn swept(numbers: &Numbers<'_>, case: Case) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut push = |task: Task, fill: &dyn Fn(&mut Cell)| {
        let Some(measured) = numbers.dd(case, task) else { return };
        let raw = measured.raw.clone();
        let mut cell = Cell::new(&case.name(), &task.name(), "bandwidth", "MB/s", measured);
        cell.ratio = numbers.ratio(case, task);
        let server = numbers.found.server_cores(&case.name(), &task.name());
        cell.server_cores = server.map(|cores| cores.median);
        fill(&mut cell);
        cells.push(cell);
        if let Some(spread) = numbers.dd_cores(case, task) {
            let measured = Measured { spread, runs: raw.len(), raw };
            cells.push(Cell::new(&case.name(), &task.name(), "dd-cores", "cores", measured));
        }
    };
    for &mb in &numbers.options.sizes_mb {
        for flow in Flow::ALL {
            push(sized(flow, mb), &|cell| {
                cell.published = published::mb_s(case, flow, mb);
                cell.published_ratio = published_ratio(case, flow, mb);
                cell.bound = numbers.bound_mb_s(case, flow);
            });
        }
        push(Task::Cached(mb), &|cell| {
            let in_sync = case == states(Level::ALL[0])[0];
            cell.published = if in_sync { published::cached_mb_s(mb) } else { None };
        });
    }
    push(Task::TwoReaders, &|cell| cell.bound = numbers.bound_mb_s(case, Flow::Read));
    cells
}

/// What was found of a trace.
fn traced(numbers: &Numbers<'_>, level: Level, flow: Flow) -> Vec<Cell> {
    let case = Case::Trace { level }.name();
    let task = Task::Trace(flow);
    let mut cells = Vec::new();
    for phase in [Phase::InSync, Phase::Degraded, Phase::Both] {
        let measured = numbers.traced(level, task, |course| course.use_mb_s(phase));
        cells.extend(measured.map(|measured| {
            let metric = format!("use {}", phase.name());
            let mut cell = Cell::new(&case, &task.name(), &metric, "MB/s", measured);
            cell.bound = numbers.bound_mb_s(Case::Trace { level }, flow);
            cell.ratio = numbers.share(level, task, |course| {
                Some(course.use_mb_s(phase)? / course.use_mb_s(Phase::Degraded)?)
            });
            if phase == Phase::Both && level.number == 1 {
                cell.published_ratio = Some(published::USE_KEPT);
            }
            cell
        }));
    }
    let published = [(Phase::Alone, 1.0)]
        .into_iter()
        .chain([(Phase::Both, published::RECOVERY_IN_USE)])
        .chain([(Phase::After, published::RECOVERY_AFTER)]);
    for (phase, published) in published {
        let measured = numbers.traced(level, task, |course| course.recovery_mb_s(phase));
        cells.extend(measured.map(|measured| {
            let mut cell = Cell::new(&case, &task.name(), phase.name(), "MB/s", measured);
            cell.bound = numbers.member_mb_s();
            cell.ratio = numbers.share(level, task, |course| {
                Some(course.recovery_mb_s(phase)? / course.recovery_mb_s(Phase::Alone)?)
            });
            cell.published_ratio = (level.number == 1).then_some(published);
            cell
        }));
        let error = numbers.traced(level, task, |course| course.estimate_error(phase));
        let metric = format!("finish-error {}", phase.name());
        cells.extend(error.map(|error| Cell::new(&case, &task.name(), &metric, "share", error)));
    }
    cells
}

fn limited(numbers: &Numbers<'_>, index: usize) -> Vec<Cell> {
    let case = Case::Limited.name();
    let task = Task::Limits(index).name();
    let cell = |metric: &str, measured: Option<Measured>| {
        Some(Cell::new(&case, &task, metric, "MB/s", measured?))
    };
    let used = numbers.limited(index, |course| course.use_mb_s(Phase::Both));
    let recovery = numbers.limited(index, |course| course.recovery_mb_s(Phase::Both));
    let both = [cell("use recovery-in-use", used), cell(Phase::Both.name(), recovery)];
    both.into_iter().flatten().collect()
}
