//! The chapter of the report.

use super::StateOptions;
use super::case::{Flow, StateCase, StateLevel, Task, states};
use super::course::Phase;
use super::numbers::{DD_CORES, SPEED, States, finish_error, kept, published_ratio, used};
use super::{plots, published, sentences, tables};
use crate::model::{Cell, Chapter, Found, Published};

/// The chapter of the comparison `states`, from its options and from what was found.
pub(super) fn chapter(options: &StateOptions, found: &Found) -> Chapter {
    let numbers = States::of(options, found);
    Chapter {
        title: "What the states of an array cost".to_owned(),
        about: about(&numbers),
        says: sentences::sentences(&numbers),
        tables: tables::tables(&numbers),
        plots: plots::plots(&numbers),
        cells: cells(&numbers),
        published: everything_published(),
        ..Chapter::default()
    }
}

fn about(numbers: &States<'_>) -> Vec<String> {
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

/// Says what the page cache was allowed, as the runs noted it.
fn cache(numbers: &States<'_>) -> Option<String> {
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
    let speed = |case: StateCase, task: Task, value| {
        Published::new(&case.name(), &task.name(), SPEED, value)
    };
    let mirror = states(StateLevel::ALL[0]);
    let mut all = Vec::new();
    for mb in published::SIZES_MB {
        for case in mirror.into_iter().chain([StateCase::Alone]) {
            for flow in Flow::ALL {
                let value = published::mb_s(case, flow, mb);
                all.extend(value.map(|value| speed(case, Task::sized(flow, mb), value)));
            }
        }
        let cached = published::cached_mb_s(mb);
        all.extend(cached.map(|value| speed(mirror[0], Task::Cached(mb), value)));
    }
    all
}

fn cells(numbers: &States<'_>) -> Vec<Cell> {
    let mut cells = Vec::new();
    for level in StateLevel::ALL {
        let alone = (level.number == 1).then_some(StateCase::Alone);
        for case in states(level).into_iter().chain(alone) {
            cells.extend(swept(numbers, case));
        }
    }
    for (level, flow) in numbers.traces() {
        cells.extend(traced(numbers, level, flow));
    }
    for index in States::limits() {
        let metrics = [used(Phase::Both), Phase::Both.name().to_owned()];
        let job = Task::Limits(index).name();
        let cell = |metric: &String| numbers.numbers.cell(&StateCase::Limited.name(), &job, metric);
        cells.extend(metrics.iter().filter_map(cell));
    }
    cells
}

/// Cells of a case of the sweep.
fn swept(numbers: &States<'_>, case: StateCase) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut push = |task: Task, fill: &dyn Fn(&mut Cell)| {
        let cell = |metric| numbers.numbers.cell(&case.name(), &task.name(), metric);
        let Some(mut speed) = cell(SPEED) else { return };
        speed.ratio = numbers.ratio(case, task);
        speed.server_cores = numbers.server_cores(case, task).map(|cores| cores.median);
        fill(&mut speed);
        cells.push(speed);
        cells.extend(cell(DD_CORES));
    };
    for &mb in &numbers.options.sizes_mb {
        for flow in Flow::ALL {
            push(Task::sized(flow, mb), &|cell| {
                cell.published = published::mb_s(case, flow, mb);
                cell.published_ratio = published_ratio(case, flow, mb);
                cell.bound = numbers.bound_mb_s(case, flow);
            });
        }
        push(Task::Cached(mb), &|cell| {
            let in_sync = case == states(StateLevel::ALL[0])[0];
            cell.published = if in_sync { published::cached_mb_s(mb) } else { None };
        });
    }
    push(Task::TwoReaders, &|cell| cell.bound = numbers.bound_mb_s(case, Flow::Read));
    cells
}

/// Cells of a trace.
fn traced(numbers: &States<'_>, level: StateLevel, flow: Flow) -> Vec<Cell> {
    let case = StateCase::Trace { level };
    let cell = |metric: &str, bound, published: Option<f64>| {
        let cell = numbers.numbers.cell(&case.name(), &Task::Trace(flow).name(), metric)?;
        let published_ratio = if level.number == 1 { published } else { None };
        let ratio = numbers.middle(level, flow, &kept(metric));
        Some(Cell { bound, ratio, published_ratio, ..cell })
    };
    let mut cells = Vec::new();
    let by_use = [(Phase::InSync, None), (Phase::Degraded, None)];
    for (phase, published) in by_use.into_iter().chain([(Phase::Both, Some(published::USE_KEPT))]) {
        cells.push(cell(&used(phase), numbers.bound_mb_s(case, flow), published));
    }
    for (phase, published) in [
        (Phase::Alone, 1.0),
        (Phase::Both, published::RECOVERY_IN_USE),
        (Phase::After, published::RECOVERY_AFTER),
    ] {
        cells.push(cell(phase.name(), numbers.member_mb_s(), Some(published)));
        cells.push(cell(&finish_error(phase), None, None));
    }
    cells.into_iter().flatten().collect()
}
