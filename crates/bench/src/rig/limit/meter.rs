//! Meter of what may go through, and when: computed from the time alone.

/// Credit for late requests, in seconds: a client that waits for each answer may be woken late by
/// this time without becoming slower. A longer pause earns no credit.
const LATE_S: f64 = 0.02;

/// Most that goes through. `None`: as much as comes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Bytes a second, read or written.
    pub bytes_s: Option<f64>,
    /// Requests a second, however long they are, of those that do not begin where the one before
    /// them on the same disk ended: going on costs bytes alone.
    pub iops: Option<f64>,
}

/// Meter of what has gone through. Times are in seconds since any moment.
#[derive(Debug)]
pub(super) struct Meter {
    rate: Rate,
    /// Time at which the last byte has gone through.
    bytes_until_s: f64,
    /// Time at which the last request has.
    requests_until_s: f64,
}

impl Meter {
    pub(super) fn new(rate: Rate, now_s: f64) -> Self {
        Self { rate, bytes_until_s: now_s, requests_until_s: now_s }
    }

    /// Lets a request of so many bytes in, which may go on where the one before it ended: when it
    /// has gone through.
    pub(super) fn take(&mut self, bytes: u64, goes_on: bool, now_s: f64) -> f64 {
        let mut through_s = now_s;
        let mut pass = |until_s: &mut f64, cost_s: f64| {
            let begin_s = if now_s - *until_s > LATE_S { now_s } else { *until_s };
            *until_s = begin_s + cost_s;
            through_s = through_s.max(*until_s);
        };
        if let Some(rate) = self.rate.bytes_s {
            pass(&mut self.bytes_until_s, bytes as f64 / rate);
        }
        if !goes_on && let Some(rate) = self.rate.iops {
            pass(&mut self.requests_until_s, 1.0 / rate);
        }
        through_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time at which requests are through that follow each other, each sent so long after the one
    /// before.
    fn last(rate: Rate, bytes: u64, count: u32, late_s: f64) -> f64 {
        let mut meter = Meter::new(rate, 0.0);
        (0..count).fold(0.0, |now, _| meter.take(bytes, false, now + late_s))
    }

    #[test]
    fn what_follows_late_makes_up_for_it_and_no_more() {
        let rate = Rate { bytes_s: Some(1e6), iops: None };
        assert!((last(rate, 10_000, 100, 0.0) - 1.0).abs() < 1e-9);
        assert!((last(rate, 10_000, 100, 0.005) - 1.0).abs() < 1e-9, "within a burst");
        let slow = last(rate, 10_000, 100, 0.1);
        assert!((slow - 11.0).abs() < 1e-9, "who rests for 100 ms each time gets less: {slow}");
        let mut meter = Meter::new(rate, 0.0);
        assert!((meter.take(1000, false, 50.0) - 50.001).abs() < 1e-9, "nothing was saved up");
    }

    #[test]
    fn the_tighter_limit_counts() {
        let both = Rate { bytes_s: Some(1e6), iops: Some(100.0) };
        assert!((last(both, 1000, 100, 0.0) - 1.0).abs() < 1e-9);
        assert!((last(both, 50_000, 100, 0.0) - 5.0).abs() < 1e-9);
        let mut meter = Meter::new(both, 0.0);
        let on = (0..100).fold(0.0, |now, _| meter.take(1000, true, now));
        assert!((on - 0.1).abs() < 1e-9, "what goes on costs its bytes: {on}");
        assert_eq!(last(Rate::default(), 1 << 30, 100, 0.0), 0.0);
    }
}
