//! The codes of an array's stripes, and what was found out about them.

use std::ops::Deref;
use std::sync::Arc;

use super::decode::{Recovery, Sums};
use super::levels;
use super::stripe::{Cell, StripeCode};
use crate::geometry::Geometry;
use crate::level::Level;

/// More cells than these are not kept, but made again each time: a few megabytes.
const MAX_CELLS: u64 = 1 << 16;

/// Answers that are kept of each code: for the data strips that one member after the other lacks.
const ANSWERS: usize = 8;

/// A code with its number among those that are kept.
#[derive(Debug)]
pub struct KnownCode {
    code: StripeCode,
    number: Option<usize>,
}

impl Deref for KnownCode {
    type Target = StripeCode;

    fn deref(&self) -> &StripeCode {
        &self.code
    }
}

/// One of which nothing is kept.
impl From<StripeCode> for KnownCode {
    fn from(code: StripeCode) -> Self {
        Self { code, number: None }
    }
}

#[derive(Debug)]
struct Answer {
    lost: Vec<usize>,
    wanted: Vec<usize>,
    /// `None`: they do not come back.
    sums: Option<Arc<Vec<Sums>>>,
}

/// Earlier findings how cells come back: while the same members are missing, the same is asked for
/// each request.
#[derive(Debug, Default)]
pub struct Answers {
    /// Answers, by the numbers of the codes.
    known: Vec<Vec<Answer>>,
}

impl Answers {
    /// The `wanted` cells, all of them lost, so many at once, as sums of cells that are there
    /// without the `lost` ones; `None` when they do not come back. Cells go by their numbers.
    pub fn sums(
        &mut self,
        code: &KnownCode,
        lost: &[usize],
        wanted: &[usize],
        at_once: usize,
    ) -> Option<Arc<Vec<Sums>>> {
        let Some(number) = code.number else { return solve(code, lost, wanted, at_once) };
        if number >= self.known.len() {
            self.known.resize_with(number + 1, Vec::new);
        }
        let answers = &mut self.known[number];
        let known = |answer: &&Answer| answer.lost == lost && answer.wanted == wanted;
        if let Some(answer) = answers.iter().find(known) {
            return answer.sums.clone();
        }
        let sums = solve(code, lost, wanted, at_once);
        if answers.len() == ANSWERS {
            answers.remove(0);
        }
        answers.push(Answer { lost: lost.to_vec(), wanted: wanted.to_vec(), sums: sums.clone() });
        sums
    }
}

fn solve(
    code: &StripeCode,
    lost: &[usize],
    wanted: &[usize],
    at_once: usize,
) -> Option<Arc<Vec<Sums>>> {
    let cells = |numbers: &[usize]| -> Vec<Cell> {
        numbers.iter().map(|&number| code.cell(number)).collect()
    };
    let recovery = Recovery::of(code, &cells(lost), &cells(wanted))?;
    let some = |wanted: &[usize]| recovery.direct(code, &cells(wanted));
    Some(Arc::new(wanted.chunks(at_once).map(some).collect()))
}

/// The codes of the stripes of an array with parity.
#[derive(Debug)]
pub struct Codes {
    /// Codes by stripe, modulo their number; none without parity, or when they would be too large.
    kept: Vec<Arc<KnownCode>>,
}

impl Codes {
    /// Makes them.
    #[must_use]
    pub fn new(geometry: &Geometry) -> Self {
        Self::numbered(geometry, 0)
    }

    /// The codes of another map of the same array, with numbers that these do not have.
    #[must_use]
    pub fn beside(&self, geometry: &Geometry) -> Self {
        Self::numbered(geometry, self.kept.len())
    }

    fn numbered(geometry: &Geometry, first: usize) -> Self {
        let period = u64::from(levels::period(geometry.layout(), geometry.raid_disks()));
        let cells = period * u64::from(geometry.raid_disks());
        let has_parity = matches!(geometry.level(), Level::Raid4 | Level::Raid5 | Level::Raid6);
        let kept = if has_parity && cells <= MAX_CELLS { period } else { 0 };
        let make = |stripe| KnownCode {
            code: levels::parity(geometry, stripe),
            number: Some(first + stripe as usize),
        };
        Self { kept: (0..kept).map(|stripe| Arc::new(make(stripe))).collect() }
    }

    /// The code of a stripe. `geometry` is that of the array.
    ///
    /// # Panics
    /// On a level without parity.
    #[must_use]
    pub fn of_stripe(&self, geometry: &Geometry, stripe: u64) -> Arc<KnownCode> {
        match stripe.checked_rem(self.kept.len() as u64) {
            Some(place) => self.kept[place as usize].clone(),
            None => Arc::new(levels::parity(geometry, stripe).into()),
        }
    }
}
