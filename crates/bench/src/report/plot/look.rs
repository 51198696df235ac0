//! Looks of series: colours that people of every sight tell apart, and, where there is no colour,
//! marks; what was measured is solid, what was published hollow, what was computed dashed.

use plotters::style::RGBColor;

use crate::model::{Plot, Series, Style};

/// Colours of Okabe and Ito, without the yellow, which does not show on white.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(60, 60, 60),
];

pub(super) const INK: RGBColor = RGBColor(32, 36, 40);
pub(super) const PALE_INK: RGBColor = RGBColor(92, 98, 104);
pub(super) const GRID: RGBColor = RGBColor(226, 229, 233);

/// Drawn where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Circle,
    Square,
    Triangle,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Look {
    pub(super) colour: RGBColor,
    pub(super) mark: Mark,
    pub(super) style: Style,
}

/// Returns the looks of all series of a plot. One that bears the name of a measured one, as in
/// `RAID 5, published`, has its colour.
pub(super) fn looks(plot: &Plot) -> Vec<Look> {
    let series = &plot.series;
    let is_measured = |index: &usize| series[*index].style == Style::Measured;
    let measured: Vec<usize> = (0..series.len()).filter(is_measured).collect();
    let mut next = measured.len();
    let look = |(index, of): (usize, &Series)| {
        let own = measured.iter().position(|other| *other == index);
        let akin = || {
            let named = |at: &usize| names(&of.name, &series[measured[*at]].name);
            (0..measured.len()).filter(named).max_by_key(|at| series[measured[*at]].name.len())
        };
        let number = own.or_else(akin).unwrap_or_else(|| {
            next += 1;
            next - 1
        });
        let mark = [Mark::Circle, Mark::Square, Mark::Triangle][number % 3];
        Look { colour: COLOURS[number % COLOURS.len()], mark, style: of.style }
    };
    series.iter().enumerate().map(look).collect()
}

/// Returns whether a name stands in another one as words of their own: `RAID 1` does not in `RAID
/// 10`.
fn names(text: &str, name: &str) -> bool {
    let is_end = |c: Option<char>| !c.is_some_and(char::is_alphanumeric);
    let stands = |at: usize| {
        is_end(text[..at].chars().next_back()) && is_end(text[at + name.len()..].chars().next())
    };
    !name.is_empty() && text.match_indices(name).any(|(at, _)| stands(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Axis, Scale};

    #[test]
    fn a_published_series_has_the_colour_of_the_measured_one() {
        let axis = || Axis { label: String::new(), scale: Scale::Linear };
        let one = |name: &str, style: Style| Series { name: name.into(), style, points: vec![] };
        let plot = Plot {
            id: String::new(),
            title: String::new(),
            x: axis(),
            y: axis(),
            series: vec![
                one("ceiling", Style::Bound),
                one("RAID 10, published", Style::Published),
                one("RAID 1", Style::Measured),
                one("RAID 10", Style::Measured),
                one("RAID 100, published", Style::Published),
            ],
            rules: vec![],
        };
        let looks = looks(&plot);
        assert_eq!(looks[1].colour, looks[3].colour);
        assert_eq!(looks[1].mark, looks[3].mark);
        let others = [looks[0].colour, looks[2].colour, looks[3].colour, looks[4].colour];
        for (index, colour) in others.iter().enumerate() {
            assert!(!others[..index].contains(colour), "{others:?}");
        }
    }
}
