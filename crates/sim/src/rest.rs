//! When nothing is asked of an array for a while, though more could be.

use std::ops::RangeInclusive;

use braid_array::Instant;

use crate::rng::Rng;

/// A pause in a life, or none. [`draw`](Self::draw) decides for a life; the loop that submits asks
/// [`is_now`](Self::is_now) each time, and says [`is_over`](Self::is_over) when nothing is due.
#[derive(Debug)]
pub(crate) struct Rest {
    /// Before which request it begins.
    at: Option<u64>,
    millis: u64,
    until: Option<Instant>,
}

impl Rest {
    /// Draws the pause of a life, which takes so many milliseconds. The generator is one of its
    /// own: seeds without a pause are unchanged.
    pub(crate) fn draw(aside: &mut Rng, requests: u64, millis: RangeInclusive<u64>) -> Self {
        let at = aside.percent(30).then(|| aside.below(requests));
        Self { at, millis: aside.between(*millis.start(), *millis.end()), until: None }
    }

    /// A pause begins now, and takes until then.
    pub(crate) const fn lasts_until(&mut self, until: Instant) {
        self.until = Some(until);
    }

    /// Returns whether the pause is in force after this number of submitted requests.
    pub(crate) fn is_now(&mut self, now: Instant, submitted: u64) -> bool {
        if self.at.take_if(|at| *at <= submitted).is_some() {
            self.until = Some(now.plus_millis(self.millis));
        }
        self.until.is_some_and(|until| now < until)
    }

    /// Ends the pause, since nothing else is due. Returns whether there was one.
    pub(crate) const fn is_over(&mut self) -> bool {
        self.until.take().is_some()
    }
}
