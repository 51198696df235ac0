//! Plots of the chapter.

use super::case::{Flow, LIMITS, StateLevel, Task, mirror};
use super::course::Phase;
use super::numbers::{States, used};
use super::published;
use crate::model::{Axis, Plot, Point, Rule, Scale, Series, Style};

/// The plots of the chapter, without those that have no measured point.
pub(super) fn plots(numbers: &States<'_>) -> Vec<Plot> {
    let mut plots: Vec<Option<Plot>> = Flow::ALL.map(|flow| Some(speeds(numbers, flow))).into();
    plots.push(Some(cached(numbers)));
    plots.extend(numbers.traces().into_iter().map(|(level, flow)| trace(numbers, level, flow)));
    plots.push(Some(limits(numbers)));
    plots.extend(Flow::ALL.map(|flow| estimates(numbers, flow)));
    plots.into_iter().flatten().filter_map(Plot::if_measured).collect()
}

fn member_rule(numbers: &States<'_>) -> Option<Rule> {
    numbers.member_mb_s().map(|value| Rule::new("limit of a member", value))
}

/// Speeds of the cases of a mirror against the size of what is moved.
fn by_size<'a>(
    numbers: &'a States<'_>,
    task: impl Fn(u64) -> Task + 'a,
) -> impl Iterator<Item = Series> + 'a {
    mirror().into_iter().map(move |(case, name)| {
        let point = |&mb: &u64| Some(Point::of(mb as f64, numbers.dd(case, task(mb))?));
        Series::measured(name, numbers.options.sizes_mb.iter().filter_map(point))
    })
}

fn published(name: String, speed: impl Fn(u64) -> Option<f64>) -> Series {
    let point = |mb| Some(Point::at(mb as f64, speed(mb)?));
    Series::new(name, Style::Published, published::SIZES_MB.into_iter().filter_map(point))
}

/// The published charts, with ours in them.
fn speeds(numbers: &States<'_>, flow: Flow) -> Plot {
    let ours = by_size(numbers, |mb| Task::sized(flow, mb));
    let theirs = mirror().into_iter().map(|(case, name)| {
        published(format!("{name}, published"), |mb| published::mb_s(case, flow, mb))
    });
    let title = match flow {
        Flow::Write => "Written with oflag=sync to a mirror",
        Flow::Read => "Read from a mirror after the file system was mounted anew",
    };
    let axes = [Axis::log2("size, MB"), Axis::linear("MB/s")];
    Plot::new(format!("states-{}", flow.name()), title, axes, ours.chain(theirs))
        .with_rules(member_rule(numbers))
}

fn cached(numbers: &States<'_>) -> Plot {
    let ours = by_size(numbers, Task::Cached);
    let theirs = published("published".to_owned(), published::cached_mb_s);
    let title = "Written without oflag=sync: what the page cache takes";
    let y = Axis { label: "MB/s".to_owned(), scale: Scale::Log10 };
    Plot::new("states-cached", title, [Axis::log2("size, MB"), y], ours.chain([theirs]))
        .with_rules(member_rule(numbers))
}

/// One trace, over time.
fn trace(numbers: &States<'_>, level: StateLevel, flow: Flow) -> Option<Plot> {
    let course = numbers.course(level, flow)?;
    let line = |name: String, points: Vec<(f64, f64)>| {
        Series::measured(name, points.into_iter().map(|(x, y)| Point::at(x, y)))
    };
    let number = level.number;
    let flow = flow.name();
    let series = [
        line(format!("dd, {flow}"), course.use_points()),
        line("recovery, each member".to_owned(), course.recovery_points()),
    ];
    let title = format!("RAID {number}: dd in sync, degraded, and beside the recovery ({flow})");
    let axes = [Axis::linear("seconds"), Axis::linear("MB/s")];
    let plot = Plot::new(format!("states-trace-{flow}-raid{number}"), title, axes, series);
    Some(plot.with_rules(member_rule(numbers)))
}

fn limits(numbers: &States<'_>) -> Plot {
    let bars = |name: &str, metric: &str| {
        let bar = |index: usize| Some(Point::of(index as f64, numbers.limited(index, metric)?));
        Series::measured(name, States::limits().filter_map(bar))
    };
    let series = [bars("dd", &used(Phase::Both)), bars("recovery", Phase::Both.name())];
    let names = LIMITS.map(|(min, max)| format!("{min} … {max}"));
    let axes = [Axis::names("--min … --max", names), Axis::linear("MB/s")];
    Plot::new("states-limits", "A mirror that recovers while dd writes, under limits", axes, series)
        .with_rules(member_rule(numbers))
}

/// Draws what was said to be left of a mirror's recovery, and what was.
fn estimates(numbers: &States<'_>, flow: Flow) -> Option<Plot> {
    let all = numbers.course(StateLevel::ALL[0], flow)?.estimates();
    let said = all.iter().map(|(at, said, _)| Point::at(*at, *said));
    let left = all.iter().map(|(at, _, left)| Point::at(*at, *left));
    let series = [
        Series::measured("what mdstat says", said),
        Series::new("what was left", Style::Bound, left),
    ];
    let flow = flow.name();
    let title = format!("RAID 1: when mdstat says it finishes, and when it did ({flow})");
    let axes = [Axis::linear("seconds"), Axis::linear("seconds left")];
    Some(Plot::new(format!("states-finish-{flow}"), title, axes, series))
}
