//! A line chart over named places, as SVG.

use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 56.0;

/// A chart. Values start at 0.
#[derive(Clone, Debug, Default)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) x_label: String,
    pub(super) y_label: String,
    /// From left to right.
    pub(super) places: Vec<String>,
    pub(super) series: Vec<Series>,
    pub(super) rules: Vec<Rule>,
}

/// One line of a chart.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) colour: &'static str,
    /// By place.
    pub(super) points: Vec<Option<Point>>,
    /// By place: a bound, drawn dashed in the same colour.
    pub(super) bounds: Vec<Option<f64>>,
}

/// A value, and between what it lay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) value: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

/// A value with a name, the same everywhere.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) value: f64,
    pub(super) colour: &'static str,
}

impl Chart {
    /// The whole document.
    pub(super) fn to_svg(&self) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n"
        );
        text(&mut svg, LEFT, 24.0, "start", "font-size=\"15\"", &self.title);
        self.axes(&mut svg);
        for rule in &self.rules {
            let y = self.y(rule.value);
            let style = format!("stroke=\"{}\" stroke-dasharray=\"2 3\"", rule.colour);
            line(&mut svg, [LEFT, y, WIDTH - RIGHT, y], &style);
        }
        for series in &self.series {
            self.draw(&mut svg, series);
        }
        self.legend(&mut svg);
        svg.push_str("</svg>\n");
        svg
    }

    /// A round number above all values.
    fn top(&self) -> f64 {
        let points = self.series.iter().flat_map(|series| series.points.iter().flatten());
        let bounds = self.series.iter().flat_map(|series| series.bounds.iter().flatten());
        let values = points.map(|point| point.max).chain(bounds.copied());
        let most = values.chain(self.rules.iter().map(|rule| rule.value)).fold(0.0, f64::max);
        let step = step(most);
        ((most * 1.05 / step).ceil() * step).max(step)
    }

    fn x(&self, place: usize) -> f64 {
        let each = (WIDTH - LEFT - RIGHT) / self.places.len().max(1) as f64;
        LEFT + each * (place as f64 + 0.5)
    }

    fn y(&self, value: f64) -> f64 {
        let height = HEIGHT - TOP - BOTTOM;
        TOP + height * (1.0 - value / self.top())
    }

    fn axes(&self, svg: &mut String) {
        let (top, right, bottom) = (self.top(), WIDTH - RIGHT, HEIGHT - BOTTOM);
        let step = step(top);
        let ticks = (top / step).round() as u32;
        for tick in 0..=ticks {
            let value = f64::from(tick) * step;
            let y = self.y(value);
            line(svg, [LEFT, y, right, y], "stroke=\"#ddd\"");
            text(svg, LEFT - 6.0, y + 4.0, "end", "", &format!("{value:.1}"));
        }
        line(svg, [LEFT, bottom, right, bottom], "stroke=\"#000\"");
        for (number, place) in self.places.iter().enumerate() {
            text(svg, self.x(number), bottom + 18.0, "middle", "", place);
        }
        text(svg, f64::midpoint(LEFT, right), HEIGHT - 14.0, "middle", "", &self.x_label);
        text(svg, LEFT, TOP - 8.0, "start", "fill=\"#555\"", &self.y_label);
    }

    fn draw(&self, svg: &mut String, series: &Series) {
        let colour = series.colour;
        let bounds = series.bounds.iter().enumerate();
        let bounds = bounds.filter_map(|(place, bound)| Some([self.x(place), self.y((*bound)?)]));
        let style = format!("stroke=\"{colour}\" stroke-dasharray=\"7 4\" opacity=\"0.6\"");
        path(svg, bounds, &style);
        let points = || {
            let points = series.points.iter().enumerate();
            points.filter_map(|(place, point)| Some((self.x(place), (*point)?)))
        };
        let tops = points().map(|(x, point)| [x, self.y(point.value)]);
        path(svg, tops, &format!("stroke=\"{colour}\" stroke-width=\"2\""));
        for (x, point) in points() {
            let y = self.y(point.value);
            let style = format!("stroke=\"{colour}\"");
            line(svg, [x, self.y(point.min), x, self.y(point.max)], &style);
            let _ =
                writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>");
        }
    }

    fn legend(&self, svg: &mut String) {
        let (x, mut y) = (WIDTH - RIGHT + 14.0, TOP + 10.0);
        let mut entry = |name: &str, style: &str| {
            line(svg, [x, y - 4.0, x + 22.0, y - 4.0], style);
            text(svg, x + 28.0, y, "start", "", name);
            y += 19.0;
        };
        for series in &self.series {
            entry(&series.name, &format!("stroke=\"{}\" stroke-width=\"2\"", series.colour));
        }
        if self.series.iter().any(|series| series.bounds.iter().any(Option::is_some)) {
            entry("dashed: its bound", "stroke=\"#555\" stroke-dasharray=\"7 4\"");
        }
        for rule in &self.rules {
            let style = format!("stroke=\"{}\" stroke-dasharray=\"2 3\"", rule.colour);
            entry(&rule.name, &style);
        }
    }
}

/// Between two marks of an axis that reaches this far.
fn step(most: f64) -> f64 {
    let steps = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];
    steps.into_iter().find(|step| most / step <= 8.0).unwrap_or(most / 5.0)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, style: &str, words: &str) {
    let words = escape(words);
    let place = format!("x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"");
    let _ = writeln!(svg, "<text {place} {style}>{words}</text>");
}

fn line(svg: &mut String, [x1, y1, x2, y2]: [f64; 4], style: &str) {
    let ends = format!("x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"");
    let _ = writeln!(svg, "<line {ends} {style}/>");
}

fn path(svg: &mut String, points: impl Iterator<Item = [f64; 2]>, style: &str) {
    let points: Vec<String> = points.map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
    if points.len() > 1 {
        let points = points.join(" ");
        let _ = writeln!(svg, "<polyline points=\"{points}\" fill=\"none\" {style}/>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every element is closed in the right order, and every `<` and `&` belongs to the form.
    fn is_well_formed(svg: &str) -> bool {
        let mut open = Vec::new();
        let mut pieces = svg.split('<');
        if pieces.next() != Some("") {
            return false;
        }
        for piece in pieces {
            let Some((tag, words)) = piece.split_once('>') else { return false };
            if words.contains('>') || tag.matches('"').count() % 2 != 0 {
                return false;
            }
            let known = ["&amp;", "&lt;", "&gt;"];
            let mut ampersands = words.match_indices('&').map(|(at, _)| &words[at..]);
            if !ampersands.all(|rest| known.iter().any(|name| rest.starts_with(name))) {
                return false;
            }
            let name = tag.split([' ', '/']).find(|name| !name.is_empty()).unwrap_or("");
            match (tag.starts_with('/'), tag.ends_with('/')) {
                (true, _) if open.pop() != Some(name) => return false,
                (false, false) => open.push(name),
                _ => {}
            }
        }
        open.is_empty()
    }

    #[test]
    fn a_chart_is_well_formed() {
        let point = |value| Some(Point { value, min: value * 0.9, max: value * 1.1 });
        let chart = Chart {
            title: "a < b & c".into(),
            x_label: "block".into(),
            y_label: "lines".into(),
            places: vec!["16K".into(), "32K".into(), "64K".into()],
            series: vec![Series {
                name: "encoder".into(),
                colour: "#009e73",
                points: vec![point(0.9), None, point(0.97)],
                bounds: vec![Some(1.0); 3],
            }],
            rules: vec![Rule { name: "line".into(), value: 1.0, colour: "#000" }],
        };
        let svg = chart.to_svg();
        assert!(is_well_formed(&svg), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains("a &lt; b &amp; c"));
        // The axis reaches past the largest value: nothing is drawn above it.
        assert!(chart.top() > 0.97 * 1.1 && chart.y(chart.top()) == TOP);
        assert!(!is_well_formed("<svg><g></svg></g>") && !is_well_formed("<svg>a & b</svg>"));
        assert!(is_well_formed(&Chart::default().to_svg()));
    }
}
