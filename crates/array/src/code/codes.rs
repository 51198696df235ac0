//! The codes of an array's stripes, made when they are first needed.

use std::sync::{Arc, OnceLock};

use super::levels;
use super::stripe::StripeCode;
use crate::geometry::Geometry;

/// More cells than these are not kept, but made again each time: a few megabytes.
const MAX_CELLS: u64 = 1 << 16;

/// The codes of the stripes of an array with parity.
#[derive(Debug)]
pub struct Codes {
    /// By stripe, modulo their number; none when they would be too large.
    kept: Vec<OnceLock<Arc<StripeCode>>>,
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
    pub fn of_stripe(&self, geometry: &Geometry, stripe: u64) -> Arc<StripeCode> {
        let make = || Arc::new(levels::parity(geometry, stripe));
        match stripe.checked_rem(self.kept.len() as u64) {
            Some(place) => self.kept[place as usize].get_or_init(make).clone(),
            None => make(),
        }
    }
}
