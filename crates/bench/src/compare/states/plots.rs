//! What is better seen.

use super::case::{Case, Flow, LIMITS, Level, Task};
use super::course::Phase;
use super::numbers::{Numbers, sized, states};
use super::published;
use crate::model::{Axis, Plot, Point, Rule, Scale, Series, Spread, Style};

/// The plots of the chapter, without those that have no measured point.
pub(super) fn plots(numbers: &Numbers<'_>) -> Vec<Plot> {
    let mut plots: Vec<Plot> = Flow::ALL.map(|flow| speeds(numbers, flow)).into();
    plots.push(cached(numbers));
    for level in numbers.traced_levels() {
        plots.extend(Flow::ALL.into_iter().filter_map(|flow| trace(numbers, level, flow)));
    }
    plots.extend([limits(numbers)]);
    plots.extend(Flow::ALL.into_iter().filter_map(|flow| estimates(numbers, flow)));
    let has_points = |plot: &Plot| {
        let measured = plot.series.iter().filter(|series| series.style == Style::Measured);
        measured.into_iter().any(|series| !series.points.is_empty())
    };
    plots.retain(has_points);
    plots
}

fn axis(label: &str, scale: Scale) -> Axis {
    Axis { label: label.to_owned(), scale }
}

fn series(name: &str, style: Style, points: Vec<Point>) -> Series {
    Series { name: name.to_owned(), style, points }
}

const NAMES: [&str; 4] = ["UU", "U_", "UI", "no RAID"];

fn mirror() -> [Case; 4] {
    let [in_sync, degraded, recovering] = states(Level::ALL[0]);
    [in_sync, degraded, recovering, Case::Alone]
}

fn member_rule(numbers: &Numbers<'_>) -> Vec<Rule> {
    let rule = |value| Rule { name: "limit of a member".to_owned(), value };
    numbers.member_mb_s().map(rule).into_iter().collect()
}

/// The published charts, with ours in them.
fn speeds(numbers: &Numbers<'_>, flow: Flow) -> Plot {
    let ours = mirror().into_iter().zip(NAMES).map(|(case, name)| {
        let point = |&mb: &u64| {
            let measured = numbers.dd(case, sized(flow, mb))?;
            Some(Point::of(mb as f64, measured.spread))
        };
        let points = numbers.options.sizes_mb.iter().filter_map(point).collect();
        series(name, Style::Measured, points)
    });
    let theirs = mirror().into_iter().zip(NAMES).map(|(case, name)| {
        let point = |mb| Some(Point::at(mb as f64, published::mb_s(case, flow, mb)?));
        let points = published::SIZES_MB.into_iter().filter_map(point).collect();
        series(&format!("{name}, published"), Style::Published, points)
    });
    let title = match flow {
        Flow::Write => "Written with oflag=sync to a mirror",
        Flow::Read => "Read from a mirror after the file system was mounted anew",
    };
    Plot {
        id: format!("states-{}", flow.name()),
        title: title.to_owned(),
        x: axis("size, MB", Scale::Log2),
        y: axis("MB/s", Scale::Linear),
        series: ours.chain(theirs).collect(),
        rules: member_rule(numbers),
    }
}

fn cached(numbers: &Numbers<'_>) -> Plot {
    let ours = mirror().into_iter().zip(NAMES).map(|(case, name)| {
        let point = |&mb: &u64| {
            let measured = numbers.dd(case, Task::Cached(mb))?;
            Some(Point::of(mb as f64, measured.spread))
        };
        let points = numbers.options.sizes_mb.iter().filter_map(point).collect();
        series(name, Style::Measured, points)
    });
    let point = |mb| Some(Point::at(mb as f64, published::cached_mb_s(mb)?));
    let points = published::SIZES_MB.into_iter().filter_map(point).collect();
    let theirs = series("published", Style::Published, points);
    Plot {
        id: "states-cached".to_owned(),
        title: "Written without oflag=sync: what the page cache takes".to_owned(),
        x: axis("size, MB", Scale::Log2),
        y: axis("MB/s", Scale::Log10),
        series: ours.chain([theirs]).collect(),
        rules: member_rule(numbers),
    }
}

/// One trace, over time.
fn trace(numbers: &Numbers<'_>, level: Level, flow: Flow) -> Option<Plot> {
    let course = numbers.course(level, Task::Trace(flow))?;
    let points = |all: Vec<(f64, f64)>| all.into_iter().map(|(x, y)| Point::at(x, y)).collect();
    let dd = format!("dd, {}", flow.name());
    Some(Plot {
        id: format!("states-trace-{}-raid{}", flow.name(), level.number),
        title: format!(
            "RAID {}: dd in sync, degraded, and beside the recovery ({})",
            level.number,
            flow.name()
        ),
        x: axis("seconds", Scale::Linear),
        y: axis("MB/s", Scale::Linear),
        series: vec![
            series(&dd, Style::Measured, points(course.use_points())),
            series("recovery, each member", Style::Measured, points(course.recovery_points())),
        ],
        rules: member_rule(numbers),
    })
}

fn limits(numbers: &Numbers<'_>) -> Plot {
    let bars = |used: bool| {
        let bar = |index: usize| {
            let measured = numbers.limited(index, |course| {
                if used { course.use_mb_s(Phase::Both) } else { course.recovery_mb_s(Phase::Both) }
            })?;
            let spread: Spread = measured.spread;
            Some(Point::of(index as f64, spread))
        };
        (0..LIMITS.len()).filter_map(bar).collect::<Vec<Point>>()
    };
    let names = LIMITS.map(|(min, max)| format!("{min} … {max}"));
    Plot {
        id: "states-limits".to_owned(),
        title: "A mirror that recovers while dd writes, under limits".to_owned(),
        x: axis("--min … --max", Scale::Names(names.into())),
        y: axis("MB/s", Scale::Linear),
        series: vec![
            series("dd", Style::Measured, bars(true)),
            series("recovery", Style::Measured, bars(false)),
        ],
        rules: member_rule(numbers),
    }
}

/// What was said to be left of a mirror's recovery, and what was.
fn estimates(numbers: &Numbers<'_>, flow: Flow) -> Option<Plot> {
    let all = numbers.course(Level::ALL[0], Task::Trace(flow))?.estimates();
    let said = all.iter().map(|(at, said, _)| Point::at(*at, *said)).collect();
    let left = all.iter().map(|(at, _, left)| Point::at(*at, *left)).collect();
    Some(Plot {
        id: format!("states-finish-{}", flow.name()),
        title: format!("RAID 1: when mdstat says it finishes, and when it did ({})", flow.name()),
        x: axis("seconds", Scale::Linear),
        y: axis("seconds left", Scale::Linear),
        series: vec![
            series("what mdstat says", Style::Measured, said),
            series("what was left", Style::Bound, left),
        ],
        rules: Vec::new(),
    })
}
