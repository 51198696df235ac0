//! The chapter of the report.

use super::StateOptions;
use super::case::{Flow, LIMITS, MIRROR, StateCase, Task, all_states, mirror};
use super::course::Phase;
use super::numbers::{DD_CORES, SPEED, States, Traced, finish_error, kept, used};
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
    let said = numbers.first("cache.txt")?;
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
    let speed = |(case, task): (StateCase, Task)| {
        let value = published::mb_s(case, task)?;
        Some(Published::new(&case.to_string(), &task.to_string(), SPEED, value))
    };
    let of_size = |mb: u64| {
        let sized = move |(case, _)| Flow::ALL.map(|flow| (case, Task::Sized(flow, mb)));
        mirror().into_iter().flat_map(sized).chain([(mirror()[0].0, Task::Cached(mb))])
    };
    published::SIZES_MB.into_iter().flat_map(of_size).filter_map(speed).collect()
}

fn cells(numbers: &States<'_>) -> Vec<Cell> {
    // The member on its own comes after the mirror that it is of.
    let (of_mirror, others): (Vec<StateCase>, Vec<StateCase>) =
        all_states().partition(|case| mirror().iter().any(|(one, _)| one == case));
    let cases = of_mirror.into_iter().chain(others);
    let mut cells: Vec<Cell> = cases.flat_map(|case| swept(numbers, case)).collect();
    cells.extend(numbers.traces().into_iter().flat_map(|one| traced(numbers, one)));
    for task in (0..LIMITS.len()).map(Task::Limits) {
        let metrics = [used(Phase::Both), Phase::Both.to_string()];
        let cell = |metric| numbers.numbers.cell((StateCase::Limited, task, metric));
        cells.extend(metrics.into_iter().filter_map(cell));
    }
    cells
}

/// Cells of a case of the sweep.
fn swept(numbers: &States<'_>, case: StateCase) -> Vec<Cell> {
    let of_size =
        |&mb: &u64| [Task::Sized(Flow::Write, mb), Task::Sized(Flow::Read, mb), Task::Cached(mb)];
    let tasks = numbers.options.sizes_mb.iter().flat_map(of_size).chain([Task::TwoReaders]);
    let both = |task: Task| {
        let cell = |metric| numbers.numbers.cell((case, task, metric));
        let bounded = match task {
            Task::Sized(flow, _) => Some(flow),
            Task::TwoReaders => Some(Flow::Read),
            _ => None,
        };
        let speed = Cell {
            ratio: numbers.ratio(case, task),
            server_cores: numbers.numbers.cores(case, task).map(|cores| cores.median),
            published: published::mb_s(case, task),
            published_ratio: published::ratio(case, task),
            bound: bounded.and_then(|flow| numbers.bound_mb_s(case, flow)),
            ..cell(SPEED)?
        };
        Some([Some(speed), cell(DD_CORES)])
    };
    tasks.filter_map(both).flatten().flatten().collect()
}

/// Cells of a trace.
fn traced(numbers: &States<'_>, traced: Traced) -> Vec<Cell> {
    let (level, flow) = traced;
    let case = StateCase::Trace(level);
    let cell = |metric: String, bound, published: Option<f64>| {
        let cell = numbers.numbers.cell((case, Task::Trace(flow), &metric))?;
        let published_ratio = if level == MIRROR { published } else { None };
        let ratio = numbers.middle(traced, kept(metric));
        Some(Cell { bound, ratio, published_ratio, ..cell })
    };
    let mut cells = Vec::new();
    for phase in [Phase::InSync, Phase::Degraded, Phase::Both] {
        let published = (phase == Phase::Both).then_some(published::USE_KEPT);
        cells.push(cell(used(phase), numbers.bound_mb_s(case, flow), published));
    }
    for (phase, published) in [
        (Phase::Alone, 1.0),
        (Phase::Both, published::RECOVERY_IN_USE),
        (Phase::After, published::RECOVERY_AFTER),
    ] {
        cells.push(cell(phase.to_string(), numbers.member_mb_s(), Some(published)));
        cells.push(cell(finish_error(phase), None, None));
    }
    cells.into_iter().flatten().collect()
}
