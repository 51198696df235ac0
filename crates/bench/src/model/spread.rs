//! A number measured several times.

use serde::{Deserialize, Serialize};

/// Runs that lie further apart than this share of their median mark a figure as noisy.
pub const NOISY: f64 = 0.25;

/// Median, least and most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The number in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// `None` for no numbers.
    #[must_use]
    pub fn of(numbers: &[f64]) -> Option<Self> {
        let mut sorted = numbers.to_vec();
        sorted.sort_by(f64::total_cmp);
        let min = *sorted.first()?;
        let max = *sorted.last()?;
        let half = sorted.len() / 2;
        let lower = sorted[(sorted.len() - 1) / 2];
        Some(Self { median: f64::midpoint(lower, sorted[half]), min, max })
    }

    /// The runs lie so far apart that the median says little.
    #[must_use]
    pub fn is_noisy(&self) -> bool {
        self.max - self.min > NOISY * self.median.abs()
    }

    /// The same in another unit.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self { median: self.median * factor, min: self.min * factor, max: self.max * factor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_in_the_middle() {
        let spread = |numbers: &[f64]| Spread::of(numbers).expect("numbers");
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(spread(&[4.0, 1.0]).median, 2.5);
        assert_eq!(spread(&[7.0]).median, 7.0);
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn noise_is_a_share_of_the_median() {
        let noisy = |numbers: &[f64]| Spread::of(numbers).expect("numbers").is_noisy();
        assert!(noisy(&[80.0, 100.0, 106.0]) && !noisy(&[90.0, 100.0, 110.0]) && !noisy(&[0.0]));
    }
}
