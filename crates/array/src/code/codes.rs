//! The codes of an array's stripes, made when they are first needed, and what was found out about
//! them.

use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::decode::{Recovery, Sums};
use super::levels;
use super::stripe::{Cell, StripeCode};
use crate::geometry::Geometry;

/// More cells than these are not kept, but made again each time: a few megabytes.
const MAX_CELLS: u64 = 1 << 16;

/// Answers that are kept of each code: for the data strips that one member after the other lacks.
const ANSWERS: usize = 8;

/// A code that remembers how cells of it came back: while the same members are missing, the same
/// is asked for each request.
#[derive(Debug)]
pub struct KnownCode {
    code: StripeCode,
    answers: Mutex<Vec<Answer>>,
}

#[derive(Debug)]
struct Answer {
    lost: Vec<usize>,
    wanted: Vec<usize>,
    /// `None`: they do not come back.
    sums: Option<Arc<Vec<Sums>>>,
}

impl From<StripeCode> for KnownCode {
    fn from(code: StripeCode) -> Self {
        Self { code, answers: Mutex::default() }
    }
}

impl Deref for KnownCode {
    type Target = StripeCode;

    fn deref(&self) -> &StripeCode {
        &self.code
    }
}

impl KnownCode {
    /// The `wanted` cells, all of them lost, so many at once, as sums of cells that are there
    /// without the `lost` ones; `None` when they do not come back. Cells go by their numbers.
    #[must_use]
    pub fn sums(&self, lost: &[usize], wanted: &[usize], at_once: usize) -> Option<Arc<Vec<Sums>>> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = |answer: &&Answer| answer.lost == lost && answer.wanted == wanted;
        if let Some(answer) = answers.iter().find(known) {
            return answer.sums.clone();
        }
        let cells = |numbers: &[usize]| -> Vec<Cell> {
            numbers.iter().map(|&number| self.code.cell(number)).collect()
        };
        let recovery = Recovery::of(&self.code, &cells(lost), &cells(wanted));
        let sums = recovery.map(|recovery| {
            let some = |wanted: &[usize]| recovery.direct(&self.code, &cells(wanted));
            Arc::new(wanted.chunks(at_once).map(some).collect::<Vec<Sums>>())
        });
        if answers.len() == ANSWERS {
            answers.remove(0);
        }
        let (lost, wanted) = (lost.to_vec(), wanted.to_vec());
        answers.push(Answer { lost, wanted, sums: sums.clone() });
        sums
    }
}

/// The codes of the stripes of an array with parity.
#[derive(Debug)]
pub struct Codes {
    /// By stripe, modulo their number; none when they would be too large.
    kept: Vec<OnceLock<Arc<KnownCode>>>,
}

impl Codes {
    /// None is made yet.
    #[must_use]
    pub fn new(geometry: &Geometry) -> Self {
        let period = levels::period(geometry.layout(), geometry.raid_disks());
        let cells = u64::from(period) * u64::from(geometry.raid_disks());
        let kept = if cells <= MAX_CELLS { period } else { 0 };
        Self { kept: (0..kept).map(|_| OnceLock::new()).collect() }
    }

    /// The code of a stripe. `geometry` is that of the array.
    ///
    /// # Panics
    /// On a level without parity.
    #[must_use]
    pub fn of_stripe(&self, geometry: &Geometry, stripe: u64) -> Arc<KnownCode> {
        let make = || Arc::new(KnownCode::from(levels::parity(geometry, stripe)));
        match stripe.checked_rem(self.kept.len() as u64) {
            Some(place) => self.kept[place as usize].get_or_init(make).clone(),
            None => make(),
        }
    }
}
