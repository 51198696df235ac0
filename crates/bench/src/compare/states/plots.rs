//! Plots of the chapter.

use super::case::{Flow, LIMITS, MIRROR, Task, mirror};
use super::course::Phase;
use super::numbers::{States, Traced, used};
use super::published;
use crate::model::{Axis, Plot, Point, Rule, Scale, Series, Style};

/// The plots of the chapter, without those that have no measured point.
pub(super) fn plots(numbers: &States<'_>) -> Vec<Plot> {
    let written = "Written with oflag=sync to a mirror";
    let read = "Read from a mirror after the file system was mounted anew";
    let cached = "Written without oflag=sync: what the page cache takes";
    let log = Axis { label: "MB/s".to_owned(), scale: Scale::Log10 };
    let mut plots = vec![
        by_size(numbers, "write", written, Axis::linear("MB/s"), |mb| Task::Sized(Flow::Write, mb)),
        by_size(numbers, "read", read, Axis::linear("MB/s"), |mb| Task::Sized(Flow::Read, mb)),
        by_size(numbers, "cached", cached, log, Task::Cached),
    ];
    plots.extend(numbers.traces().into_iter().filter_map(|traced| trace(numbers, traced)));
    plots.push(limits(numbers));
    let rule = || numbers.member_mb_s().map(|value| Rule::new("limit of a member", value));
    let mut plots: Vec<Plot> = plots.into_iter().map(|plot| plot.with_rules(rule())).collect();
    plots.extend(Flow::ALL.into_iter().filter_map(|flow| estimates(numbers, flow)));
    plots.into_iter().filter_map(Plot::if_measured).collect()
}

/// The cases of a mirror against the size of what is moved, as published, with ours in them.
fn by_size(
    numbers: &States<'_>,
    id: &str,
    title: &str,
    y: Axis,
    task: impl Fn(u64) -> Task + Copy,
) -> Plot {
    let ours = mirror().map(|(case, name)| {
        let point = |&mb: &u64| Some(Point::of(mb as f64, numbers.dd(case, task(mb))?));
        Series::measured(name, numbers.options.sizes_mb.iter().filter_map(point))
    });
    let theirs = mirror().map(|(case, name)| {
        let point = |mb| Some(Point::at(mb as f64, published::mb_s(case, task(mb))?));
        let points = published::SIZES_MB.into_iter().filter_map(point);
        let name = if id == "cached" { "published".into() } else { format!("{name}, published") };
        Series::new(name, Style::Published, points)
    });
    let theirs = theirs.into_iter().filter(|series| !series.points.is_empty());
    let axes = [Axis::log2("size, MB"), y];
    Plot::new(format!("states-{id}"), title, axes, ours.into_iter().chain(theirs))
}

fn line(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
    Series::measured(name, points.into_iter().map(|(x, y)| Point::at(x, y)))
}

fn trace(numbers: &States<'_>, traced: Traced) -> Option<Plot> {
    let course = numbers.course(traced)?;
    let (level, flow) = traced;
    let number = level.number;
    let series = [
        line(format!("dd, {flow}"), course.use_points()),
        line("recovery, each member", course.recovery_points()),
    ];
    let title = format!("RAID {number}: dd in sync, degraded, and beside the recovery ({flow})");
    let axes = [Axis::linear("seconds"), Axis::linear("MB/s")];
    Some(Plot::new(format!("states-trace-{flow}-raid{number}"), title, axes, series))
}

fn limits(numbers: &States<'_>) -> Plot {
    let bars = |name: &str, metric: &str| {
        let bar = |index: usize| Some(Point::of(index as f64, numbers.limited(index, metric)?));
        Series::measured(name, (0..LIMITS.len()).filter_map(bar))
    };
    let series = [bars("dd", &used(Phase::Both)), bars("recovery", Phase::Both.name())];
    let names = LIMITS.map(|(min, max)| format!("{min} … {max}"));
    let axes = [Axis::names("--min … --max", names), Axis::linear("MB/s")];
    Plot::new("states-limits", "A mirror that recovers while dd writes, under limits", axes, series)
}

/// Draws what was said to be left of a mirror's recovery, and what was.
fn estimates(numbers: &States<'_>, flow: Flow) -> Option<Plot> {
    let all = numbers.course((MIRROR, flow))?.estimates();
    let left = all.iter().map(|(at, _, left)| Point::at(*at, *left));
    let series = [
        line("what mdstat says", all.iter().map(|(at, said, _)| (*at, *said))),
        Series::new("what was left", Style::Bound, left),
    ];
    let title = format!("RAID 1: when mdstat says it finishes, and when it did ({flow})");
    let axes = [Axis::linear("seconds"), Axis::linear("seconds left")];
    Some(Plot::new(format!("states-finish-{flow}"), title, axes, series))
}
