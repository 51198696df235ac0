//! Legend below a plot.

use plotters::element::{DashedPathElement, PathElement, Text};
use plotters::style::{Color, RGBColor};

use super::look::{INK, Look, PALE_INK};
use super::series::draw_bar;
use super::{Area, Drawn, LABEL, character, draw_mark, fitting, font};
use crate::model::{Plot, Scale, Style};

const ROW: i32 = 22;
const SAMPLE: i32 = 26;
const GAP: i32 = 20;

/// A sample with its name, and where it stands in the legend.
pub(super) struct LegendEntry {
    at: (i32, i32),
    name: String,
    /// `None` for a rule.
    look: Option<Look>,
}

/// Rows of a width that is given.
pub(super) fn entries(plot: &Plot, looks: &[Look], width: i32) -> Vec<LegendEntry> {
    let series = plot.series.iter().zip(looks).map(|(series, look)| (&series.name, Some(*look)));
    let rules = plot.rules.iter().map(|rule| (&rule.name, None));
    let mut at = (0, 0);
    let place = |(name, look): (&String, Option<Look>)| {
        let name = fitting(name, LABEL, width - SAMPLE - 8);
        let taken = SAMPLE + 8 + text_width(&name);
        if at.0 > 0 && at.0 + taken > width {
            at = (0, at.1 + ROW);
        }
        let entry = LegendEntry { at, name, look };
        at.0 += taken + GAP;
        entry
    };
    series.chain(rules).map(place).collect()
}

pub(super) fn height(entries: &[LegendEntry]) -> i32 {
    entries.last().map_or(0, |last| last.at.1 + ROW)
}

pub(super) fn draw(area: &Area<'_>, entries: &[LegendEntry], from: (i32, i32), x: &Scale) -> Drawn {
    let is_bars = matches!(x, Scale::Names(_));
    for entry in entries {
        let left = from.0 + entry.at.0;
        let top = from.1 + entry.at.1;
        draw_sample(area, entry.look, (left, top + ROW / 2), is_bars)?;
        let at = (left + SAMPLE + 8, top + ROW / 2 - 8);
        area.draw(&Text::new(entry.name.clone(), at, font(LABEL, &INK)))?;
    }
    Ok(())
}

fn draw_sample(area: &Area<'_>, look: Option<Look>, (x, y): (i32, i32), bars: bool) -> Drawn {
    let line = [(x, y), (x + SAMPLE, y)];
    let dashed = |size, gap, colour: RGBColor| {
        DashedPathElement::new(line, size, gap, colour.stroke_width(2))
    };
    let Some(look) = look else { return area.draw(&dashed(2, 3, PALE_INK)) };
    if bars {
        return draw_bar(area, look, (x + 6, y - 7), (x + SAMPLE - 6, y + 7));
    }
    if look.style == Style::Bound {
        return area.draw(&dashed(6, 4, look.colour));
    }
    let width = if look.style == Style::Published { 1 } else { 2 };
    area.draw(&PathElement::new(line, look.colour.stroke_width(width)))?;
    draw_mark(area, look, (x + SAMPLE / 2, y))
}

fn text_width(text: &str) -> i32 {
    character(LABEL) * i32::try_from(text.chars().count()).unwrap_or(i32::MAX / 100)
}
