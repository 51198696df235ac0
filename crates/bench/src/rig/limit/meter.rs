//! How much may go through, and when it may: computed from the time alone.

use serde::{Deserialize, Serialize};

/// What was not used may be made up for within so long: whoever waits for one request before it
/// sends the next is not slowed down by being woken late, and nothing bursts by more than that.
const BURST_S: f64 = 0.02;

/// What goes through at most. `None`: as much as comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Bytes a second, read or written.
    pub bytes_s: Option<f64>,
    /// Requests a second, however long they are and wherever they go, as network volumes count
    /// them: what comes as one request is one.
    pub iops: Option<f64>,
}

/// What has gone through. Times are in seconds since any moment.
#[derive(Debug)]
pub(super) struct Meter {
    rate: Rate,
    /// When the last byte has gone through.
    bytes_until_s: f64,
    /// When the last request has.
    requests_until_s: f64,
}

impl Meter {
    pub(super) fn new(rate: Rate, now_s: f64) -> Self {
        Self { rate, bytes_until_s: now_s, requests_until_s: now_s }
    }

    /// Lets a request of so many bytes in: when it has gone through.
    pub(super) fn take(&mut self, bytes: u64, now_s: f64) -> f64 {
        let mut through_s = now_s;
        if let Some(rate) = self.rate.bytes_s {
            self.bytes_until_s = self.bytes_until_s.max(now_s - BURST_S) + bytes as f64 / rate;
            through_s = through_s.max(self.bytes_until_s);
        }
        if let Some(rate) = self.rate.iops {
            self.requests_until_s = self.requests_until_s.max(now_s - BURST_S) + 1.0 / rate;
            through_s = through_s.max(self.requests_until_s);
        }
        through_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When requests are through that follow each other, each sent so long after the one before.
    fn last(rate: Rate, bytes: u64, count: u32, late_s: f64) -> f64 {
        let mut meter = Meter::new(rate, 0.0);
        (0..count).fold(0.0, |now, _| meter.take(bytes, now + late_s))
    }

    #[test]
    fn what_follows_late_makes_up_for_it_and_no_more() {
        let rate = Rate { bytes_s: Some(1e6), iops: None };
        assert!((last(rate, 10_000, 100, 0.0) - 1.0).abs() < 1e-9);
        assert!((last(rate, 10_000, 100, 0.005) - 1.0).abs() < 1e-9, "within a burst");
        let slow = last(rate, 10_000, 100, 0.1);
        assert!((slow - 10.0).abs() < 0.01, "who sleeps for 100 ms each time gets less: {slow}");
        let mut meter = Meter::new(rate, 0.0);
        let burst = (0..100).filter(|_| meter.take(1000, 50.0) <= 50.0).count();
        assert_eq!(burst, 20, "after any time of rest, 20 ms go through at once");
    }

    #[test]
    fn the_tighter_limit_counts() {
        let both = Rate { bytes_s: Some(1e6), iops: Some(100.0) };
        assert!((last(both, 1000, 100, 0.0) - 1.0).abs() < 1e-9);
        assert!((last(both, 50_000, 100, 0.0) - 5.0).abs() < 1e-9);
        assert_eq!(last(Rate::default(), 1 << 30, 100, 0.0), 0.0);
    }
}
