//! The lines, bars and rules of a plot.

use plotters::element::{DashedPathElement, PathElement, Rectangle};
use plotters::style::{Color, RGBColor};

use super::look::{INK, Look, PALE_INK};
use super::{Area, Chart, Drawn, Layout, draw_mark};
use crate::model::{Plot, Point, Scale, Style};

/// A line through more points than these has no marks: they would hide it.
const MOST_MARKS: usize = 40;

/// Field in which things are drawn.
pub(super) struct Field<'a, 'b, 'c> {
    pub(super) area: &'a Area<'b>,
    pub(super) chart: &'a Chart<'c, 'b>,
    pub(super) layout: &'a Layout,
}

impl Field<'_, '_, '_> {
    pub(super) fn draw(&self, plot: &Plot) -> Drawn {
        let is_bars = matches!(plot.x.scale, Scale::Names(_));
        for (index, (series, look)) in plot.series.iter().zip(&self.layout.looks).enumerate() {
            if is_bars {
                let turn = (index, plot.series.len());
                series.points.iter().try_for_each(|point| self.bar(*look, *point, turn))?;
            } else {
                self.line(*look, &series.points)?;
            }
        }
        let x = &self.layout.x;
        let y = &self.layout.y;
        for place in plot.rules.iter().filter_map(|rule| y.place(rule.value)) {
            let ends = [(x.low, place), (x.high, place)];
            let ends = ends.map(|end| self.chart.backend_coord(&end));
            let style = PALE_INK.stroke_width(2);
            self.area.draw(&DashedPathElement::new(ends, 2, 3, style))?;
        }
        Ok(())
    }

    fn line(&self, look: Look, points: &[Point]) -> Drawn {
        let x = &self.layout.x;
        let y = &self.layout.y;
        let place = |point: &Point| {
            let place = (x.place(point.x)?, y.place(point.y)?);
            Some((self.chart.backend_coord(&place), point.range))
        };
        let places: Vec<_> = points.iter().filter_map(place).collect();
        let path: Vec<(i32, i32)> = places.iter().map(|(at, _)| *at).collect();
        let width = if look.style == Style::Published { 1 } else { 2 };
        let style = look.colour.stroke_width(width);
        if look.style == Style::Bound {
            return self.area.draw(&DashedPathElement::new(path, 6, 4, style));
        }
        self.area.draw(&PathElement::new(path, style))?;
        if places.len() > MOST_MARKS {
            return Ok(());
        }
        for (at, range) in places {
            self.range(at.0, range, look.colour)?;
            draw_mark(self.area, look, at)?;
        }
        Ok(())
    }

    /// The bars of a place stand side by side and leave a fifth of it free.
    fn bar(&self, look: Look, point: Point, (index, many): (usize, usize)) -> Drawn {
        let x = &self.layout.x;
        let y = &self.layout.y;
        let (Some(place), Some(top)) = (x.place(point.x), y.place(point.y)) else {
            return Ok(());
        };
        let width = 0.8 / as_number(many.max(1));
        let left = place - 0.4 + width * as_number(index);
        let ground = if y.low < 0.0 && y.high > 0.0 { 0.0 } else { y.low };
        let (near, high) = self.chart.backend_coord(&(left, top));
        let (far, low) = self.chart.backend_coord(&(left + width, ground));
        let far = (far - 1).max(near + 1);
        draw_bar(self.area, look, (near, high), (far, low))?;
        self.range(near.midpoint(far), point.range, INK)
    }

    /// Draws the range from the least to the most, where they are not the same.
    fn range(&self, x: i32, range: Option<(f64, f64)>, colour: RGBColor) -> Drawn {
        let height = |value: f64| {
            let place = self.layout.y.place(value)?;
            Some(self.chart.backend_coord(&(self.layout.x.low, place)).1)
        };
        let ends = range.and_then(|(low, high)| Some((height(low)?, height(high)?)));
        let Some((low, high)) = ends.filter(|(low, high)| low != high) else { return Ok(()) };
        let cap = |y: i32| vec![(x - 4, y), (x + 4, y)];
        [vec![(x, low), (x, high)], cap(low), cap(high)]
            .into_iter()
            .try_for_each(|path| self.area.draw(&PathElement::new(path, colour.stroke_width(1))))
    }
}

/// Between two corners.
pub(super) fn draw_bar(area: &Area<'_>, look: Look, one: (i32, i32), other: (i32, i32)) -> Drawn {
    let around = vec![one, (other.0, one.1), other, (one.0, other.1), one];
    let edge = look.colour.stroke_width(1);
    match look.style {
        Style::Measured => area.draw(&Rectangle::new([one, other], look.colour.filled())),
        Style::Published => {
            area.draw(&Rectangle::new([one, other], look.colour.mix(0.15).filled()))?;
            area.draw(&PathElement::new(around, edge))
        }
        Style::Bound => {
            area.draw(&DashedPathElement::new(around, 5, 3, look.colour.stroke_width(2)))
        }
    }
}

fn as_number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
