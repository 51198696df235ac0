//! The plots of `engine`: one for each load, levels beside each other.

use braid_array::level::Level;

use super::Options;
use super::case::{Case, Place, levels};
use super::exports::Export;
use super::load::{Load, loads};
use crate::compare::figures::{Numbers, RATE};
use crate::model::{Axis, Plot, Point, Rule, Scale, Series, Style};

/// All plots of which something was measured.
pub(super) fn plots(options: &Options, numbers: &Numbers) -> Vec<Plot> {
    let drawn = |plot: &Plot| plot.series.iter().any(|series| !series.points.is_empty());
    loads().map(|load| plot(options, numbers, load)).filter(drawn).collect()
}

fn plot(options: &Options, numbers: &Numbers, load: Load) -> Plot {
    let bars = |name: &str, case: &dyn Fn(Level) -> Case| {
        let point = |(place, level): (usize, Level)| {
            let measured = numbers.measured(&case(level).name(), &load.name(), RATE)?;
            Some(Point::of(place as f64, measured.spread))
        };
        let points = levels(options).enumerate().filter_map(point).collect();
        Series { name: name.to_owned(), style: Style::Measured, points }
    };
    let mut series = vec![bars("within the process", &|level| Case::Within(level, Place::Memory))];
    for export in Export::ALL {
        series.push(bars(&format!("over {}", export.name()), &|level| Case::Over(level, export)));
    }
    let rule = |case: &Case| {
        let Case::Beside(anchor) = case else { return None };
        if !anchor.is_served() {
            return None;
        }
        let name = anchor.name().to_owned();
        let value = numbers.measured(&name, &load.name(), RATE)?.spread.median;
        Some(Rule { name, value })
    };
    Plot {
        id: format!("engine-{}", load.name().to_lowercase().replace(' ', "-")),
        title: format!("{}, members of memory", load.name()),
        x: Axis {
            label: String::new(),
            scale: Scale::Names(levels(options).map(|level| level.name().to_owned()).collect()),
        },
        y: Axis { label: "requests a second".to_owned(), scale: Scale::Linear },
        series,
        rules: Place::Memory.cases(options).iter().filter_map(rule).collect(),
    }
}
