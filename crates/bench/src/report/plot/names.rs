//! Words below the field: numbers, or names, which need room.

use plotters::element::Text;
use plotters::style::FontTransform;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::look::INK;
use super::ruler::Tick;
use super::{Area, Drawn, LABEL, character, fitting, font};
use crate::model::Scale;
use crate::report::{clean, wrap};

const LINE: i32 = 18;
const MOST_LINES: usize = 3;
/// Height of names that stand upright, in pixels.
const HIGHEST: i32 = 200;

/// The words below the field, laid so that they do not touch each other.
pub(super) struct Names {
    words: Vec<(f64, Vec<String>)>,
    /// True if they do not fit side by side.
    upright: bool,
}

impl Names {
    pub(super) fn of(ticks: &[Tick], scale: &Scale, width: i32) -> Self {
        let Scale::Names(_) = scale else {
            let words = ticks.iter().map(|tick| (tick.place, vec![tick.label.clone()]));
            return Self { words: words.collect(), upright: false };
        };
        let each = width / i32::try_from(ticks.len().max(1)).unwrap_or(i32::MAX);
        let letters = usize::try_from(each / character(LABEL)).unwrap_or(0);
        let lines = |tick: &Tick| (tick.place, wrap(&clean(&tick.label), letters));
        let words: Vec<(f64, Vec<String>)> = ticks.iter().map(lines).collect();
        let fits = |(_, lines): &(f64, Vec<String>)| {
            lines.len() <= MOST_LINES && lines.iter().all(|line| line.chars().count() <= letters)
        };
        if words.iter().all(fits) {
            return Self { words, upright: false };
        }
        let whole = |tick: &Tick| (tick.place, vec![fitting(&tick.label, LABEL, HIGHEST)]);
        Self { words: ticks.iter().map(whole).collect(), upright: true }
    }

    pub(super) fn height(&self) -> i32 {
        let lines = || self.words.iter().map(|(_, lines)| lines);
        let most = if self.upright {
            let letters = lines().flatten().map(|line| line.chars().count()).max();
            i32::try_from(letters.unwrap_or(0)).unwrap_or(0) * character(LABEL)
        } else {
            i32::try_from(lines().map(Vec::len).max().unwrap_or(0)).unwrap_or(0) * LINE
        };
        most + 10
    }

    pub(super) fn draw(&self, area: &Area<'_>, top: i32, left: impl Fn(f64) -> i32) -> Drawn {
        for (place, lines) in &self.words {
            for (line, at) in lines.iter().zip((top + 7..).step_by(LINE.unsigned_abs() as usize)) {
                let style = font(LABEL, &INK);
                let style = if self.upright {
                    let turned = style.transform(FontTransform::Rotate270);
                    turned.pos(Pos::new(HPos::Right, VPos::Center))
                } else {
                    style.pos(Pos::new(HPos::Center, VPos::Top))
                };
                area.draw(&Text::new(line.clone(), (left(*place), at), style))?;
            }
        }
        Ok(())
    }
}
