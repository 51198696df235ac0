//! Plots as SVG: lines over numbers, bars over names. Everything is drawn in one size; whoever
//! shows it scales it.

mod legend;
mod look;
mod names;
mod ruler;
mod series;

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Polygon, Text};
use plotters::prelude::{Cartesian2d, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, RGBColor, TextStyle, WHITE};

use self::look::{GRID, INK, Look, Mark, PALE_INK};
use self::ruler::{Ruler, Tick};
use super::{clean, wrap};
use crate::failure::Failure;
use crate::model::{Plot, Scale, Style};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

const WIDTH: i32 = 600;
/// Width of a plot with many bars.
const WIDE: i32 = 960;
const MANY_BARS: usize = 40;
/// Height of the field in which the lines or bars are.
const FIELD: i32 = 280;
const LEFT: i32 = 66;
const RIGHT: i32 = 18;
const TITLE: f64 = 17.0;
const LABEL: f64 = 15.0;

/// A plot as a whole SVG file, with its size and with words for those who do not see it.
pub(super) fn svg(plot: &Plot) -> Result<String, Failure> {
    let layout = Layout::of(plot);
    let mut drawn = String::new();
    {
        let size = [layout.width, layout.height].map(i32::unsigned_abs);
        let area = SVGBackend::with_string(&mut drawn, size.into()).into_drawing_area();
        draw(&area, plot, &layout).and_then(|()| area.present()).map_err(|error| {
            Failure::refused(&plot.id, error, "report it: a plot cannot be drawn")
        })?;
    }
    let (_, inner) = drawn.split_once('>').unwrap_or_default();
    let width = layout.width;
    let height = layout.height;
    let title = clean(&plot.title);
    let frame = maud::html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(width) height=(height)
            viewBox=(format!("0 0 {width} {height}")) role="img" aria-label=(title) {
            title { (title) }
            (maud::PreEscaped(inner.trim_end().trim_end_matches("</svg>")))
        }
    };
    Ok(frame.into_string() + "\n")
}

/// More than fits in half a page.
pub(super) fn is_wide(plot: &Plot) -> bool {
    matches!(&plot.x.scale, Scale::Names(names) if names.len() * plot.series.len() > MANY_BARS)
}

/// Layout of a plot, in pixels.
struct Layout {
    width: i32,
    height: i32,
    title: Vec<String>,
    /// Upper end of the field.
    top: i32,
    /// Distance between the field and the legend.
    below: i32,
    /// Below the field: the numbers or names of the axis.
    ticks: names::Names,
    looks: Vec<Look>,
    legend: Vec<legend::LegendEntry>,
    x: Ruler,
    y: Ruler,
}

impl Layout {
    fn of(plot: &Plot) -> Self {
        let width = if is_wide(plot) { WIDE } else { WIDTH };
        let points = || plot.series.iter().flat_map(|series| &series.points);
        let ends = points().filter_map(|point| point.range).flat_map(|(low, high)| [low, high]);
        let rules = plot.rules.iter().map(|rule| rule.value);
        let x = Ruler::across(&plot.x, points().map(|point| point.x));
        let y = Ruler::upwards(&plot.y, points().map(|point| point.y).chain(ends).chain(rules));
        let letters = usize::try_from(width / character(TITLE)).unwrap_or(1);
        let title = wrap(&clean(&plot.title), letters);
        let lines = i32::try_from(title.len()).unwrap_or(1);
        let top = 8 + lines * 21 + 32;
        let ticks = names::Names::of(&x.ticks, &plot.x.scale, width - LEFT - RIGHT);
        let looks = look::looks(plot);
        let legend = legend::entries(plot, &looks, width - 2 * 12);
        let below = ticks.height() + if plot.x.label.is_empty() { 6 } else { 30 };
        let height = top + FIELD + below + legend::height(&legend) + 8;
        Self { width, height, title, top, below, ticks, looks, legend, x, y }
    }
}

fn draw(area: &Area<'_>, plot: &Plot, layout: &Layout) -> Drawn {
    area.fill(&WHITE)?;
    for (line, at) in layout.title.iter().zip((8..).step_by(21)) {
        let bold =
            ("sans-serif", points(TITLE)).into_font().style(plotters::style::FontStyle::Bold);
        area.draw(&Text::new(line.clone(), (12, at), bold.color(&INK)))?;
    }
    let above = (12, layout.top - 29);
    let label = |text: &str| fitting(text, LABEL, layout.width - 2 * 12);
    area.draw(&Text::new(label(&plot.y.label), above, font(LABEL, &PALE_INK)))?;

    let field = area.clone().margin(layout.top, 0, 0, 0).margin(0, 0, LEFT, RIGHT);
    let below = layout.height - layout.top - FIELD;
    let field = field.margin(0, below, 0, 0);
    let x = &layout.x;
    let y = &layout.y;
    let chart = ChartBuilder::on(&field).build_cartesian_2d(x.low..x.high, y.low..y.high)?;
    draw_grid(area, &chart, plot, layout)?;
    series::Field { area, chart: &chart, layout }.draw(plot)?;
    let mut points = plot.series.iter().flat_map(|series| &series.points);
    if points.all(|point| !point.y.is_finite()) {
        let middle = (layout.width / 2, layout.top + FIELD / 2);
        let style = font(LABEL, &PALE_INK).pos(Pos::new(HPos::Center, VPos::Center));
        area.draw(&Text::new("nothing was measured", middle, style))?;
    }
    draw_axes(area, &chart, layout)?;
    let bottom = layout.top + FIELD;
    layout.ticks.draw(area, bottom, |place| chart.backend_coord(&(place, layout.y.low)).0)?;
    if !plot.x.label.is_empty() {
        let at = (LEFT + (layout.width - LEFT - RIGHT) / 2, bottom + layout.ticks.height() + 4);
        let middle = font(LABEL, &PALE_INK).pos(Pos::new(HPos::Center, VPos::Top));
        area.draw(&Text::new(label(&plot.x.label), at, middle))?;
    }
    let from = (12, bottom + layout.below);
    legend::draw(area, &layout.legend, from, &plot.x.scale)
}

fn draw_grid(area: &Area<'_>, chart: &Chart<'_, '_>, plot: &Plot, layout: &Layout) -> Drawn {
    let x = &layout.x;
    let y = &layout.y;
    let across = y.ticks.iter().map(|tick| [(x.low, tick.place), (x.high, tick.place)]);
    let named = matches!(plot.x.scale, Scale::Names(_));
    let upright = if named { &[][..] } else { &x.ticks[..] };
    let upwards = upright.iter().map(|tick| [(tick.place, y.low), (tick.place, y.high)]);
    for line in across.chain(upwards) {
        let line = line.map(|end| chart.backend_coord(&end));
        area.draw(&PathElement::new(line, GRID.stroke_width(1)))?;
    }
    Ok(())
}

/// The lines at the left and below, and the numbers at the left.
fn draw_axes(area: &Area<'_>, chart: &Chart<'_, '_>, layout: &Layout) -> Drawn {
    let corner = |place: (f64, f64)| chart.backend_coord(&place);
    let x = &layout.x;
    let y = &layout.y;
    let ends = [(x.low, y.high), (x.low, y.low), (x.high, y.low)].map(corner);
    area.draw(&PathElement::new(ends.to_vec(), PALE_INK.stroke_width(1)))?;
    for Tick { place, label } in &y.ticks {
        let (left, at) = corner((x.low, *place));
        let right = font(LABEL, &INK).pos(Pos::new(HPos::Right, VPos::Center));
        area.draw(&Text::new(label.clone(), (left - 8, at), right))?;
    }
    Ok(())
}

/// A mark in the style of its series; with nothing to see through it.
fn draw_mark(area: &Area<'_>, look: Look, (x, y): (i32, i32)) -> Drawn {
    let fill = if look.style == Style::Published { WHITE } else { look.colour };
    let edge = look.colour.stroke_width(2);
    let corners = match look.mark {
        Mark::Circle => {
            area.draw(&Circle::new((x, y), 4, fill.filled()))?;
            return area.draw(&Circle::new((x, y), 4, edge));
        }
        Mark::Square => vec![(x - 4, y - 4), (x + 4, y - 4), (x + 4, y + 4), (x - 4, y + 4)],
        Mark::Triangle => vec![(x - 5, y + 4), (x, y - 5), (x + 5, y + 4)],
    };
    area.draw(&Polygon::new(corners.clone(), fill.filled()))?;
    let around = corners.iter().chain(corners.first()).copied().collect::<Vec<(i32, i32)>>();
    area.draw(&PathElement::new(around, edge))
}

fn font(pixels: f64, colour: &'static RGBColor) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", points(pixels)).into_font()).color(colour)
}

/// The library takes the size of a box and writes a font that is smaller.
fn points(pixels: f64) -> f64 {
    pixels * 1.24
}

/// About the width of a character, in pixels: a little more than most have.
fn character(pixels: f64) -> i32 {
    if pixels >= TITLE { 11 } else { 9 }
}

/// A text without what cannot be shown; one that is too long for so many pixels is cut.
fn fitting(text: &str, pixels: f64, width: i32) -> String {
    let text = clean(text);
    let room = usize::try_from(width / character(pixels)).unwrap_or(0);
    if text.chars().count() <= room {
        return text;
    }
    let cut: String = text.chars().take(room.saturating_sub(1)).collect();
    cut + "…"
}
