//! Data of the page beyond the current status of arrays: events and the history of the last day. No
//! I/O.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use braid_array::figures::IoFigures;
use braid_host::control::wire::ControlStatus;
use serde::Serialize;
use serde_json::Value;

use super::recent::{Rates, Recent};

/// Seconds covered by one point of a plot.
pub(super) const STEP_S: u64 = 30;
/// A day.
const POINTS: usize = 24 * 60 * 60 / STEP_S as usize;
/// Number of events kept.
const EVENTS: usize = 200;

/// One point of a plot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Point {
    step: u64,
    /// The fastest that background work was, in bytes per second and member.
    bytes_per_s: u64,
    /// I/O errors of members that came.
    errors: u64,
    /// Latency of the slowest of the slow members.
    slow_ms: u64,
    /// Average rates of users' requests.
    rates: Rates,
    /// Requests that failed.
    failed: u64,
}

/// The last day of an array, as long as it was looked at.
#[derive(Clone, Debug, Default)]
struct Ring {
    points: VecDeque<Point>,
    /// All errors of its members, at the last look.
    errors: Option<u64>,
    /// Request figures at the last look, with its time.
    asked: Option<(u64, IoFigures)>,
    /// Between the last two looks.
    latest: Recent,
    /// Since the last point began.
    of_point: Recent,
}

/// The points as columns.
#[derive(Debug, Serialize)]
pub(super) struct Plots {
    /// When each point begins, in seconds since 1970.
    time: Vec<u64>,
    bytes_per_s: Vec<u64>,
    errors: Vec<u64>,
    slow_ms: Vec<u64>,
    read_bytes_s: Vec<u64>,
    write_bytes_s: Vec<u64>,
    read_us: Vec<u64>,
    write_us: Vec<u64>,
    slow_us: Vec<u64>,
    failed: Vec<u64>,
}

/// Events, and the plots of each array. Plots of arrays that are gone are dropped at the end of the
/// day.
#[derive(Debug, Default)]
pub(super) struct Board {
    rings: BTreeMap<String, Ring>,
    events: VecDeque<Value>,
    silent: BTreeSet<String>,
}

impl Board {
    /// All arrays have been looked at.
    pub(super) fn look(&mut self, now_ms: u64, arrays: &[ControlStatus], silent: BTreeSet<String>) {
        self.silent = silent;
        for array in arrays {
            self.rings.entry(array.name.clone()).or_default().look(now_ms, array);
        }
        self.rings.retain(|_, ring| ring.expire(step(now_ms)));
    }

    /// Something has happened.
    pub(super) fn tell(&mut self, event: Value) {
        self.events.push_front(event);
        self.events.truncate(EVENTS);
    }

    /// The latest first.
    pub(super) const fn events(&self) -> &VecDeque<Value> {
        &self.events
    }

    /// Arrays that did not answer.
    pub(super) const fn silent(&self) -> &BTreeSet<String> {
        &self.silent
    }

    /// The speed of an array's background work in the last day.
    pub(super) fn speeds(&self, name: &str) -> Vec<u64> {
        let points = self.rings.get(name).into_iter().flat_map(|ring| &ring.points);
        points.map(|point| point.bytes_per_s).collect()
    }

    /// Returns the recent request rates of an array.
    pub(super) fn rates(&self, name: &str) -> Rates {
        self.rings.get(name).map(|ring| ring.latest.rates()).unwrap_or_default()
    }

    /// Returns the bytes read and written per second by users of an array during the last day.
    pub(super) fn users_speeds(&self, name: &str) -> Vec<u64> {
        let points = self.rings.get(name).into_iter().flat_map(|ring| &ring.points);
        points.map(|point| point.rates.read_bytes_s + point.rates.write_bytes_s).collect()
    }

    /// The last day of each array.
    pub(super) fn plots(&self) -> BTreeMap<&str, Plots> {
        self.rings.iter().map(|(name, ring)| (name.as_str(), ring.plots())).collect()
    }
}

impl Ring {
    fn look(&mut self, now_ms: u64, served: &ControlStatus) {
        let status = &served.array;
        let step = step(now_ms);
        let all = || std::iter::once(status).chain(&status.children);
        let members = || all().flat_map(|array| &array.members);
        let errors: u64 = members().map(|member| member.errors).sum();
        let slow_ms = members().filter_map(|member| member.slow_ms).max().unwrap_or(0);
        let bytes_per_s = all().map(|array| array.sync.bytes_per_s).max().unwrap_or(0);
        // Those of a member that was removed are not counted any more.
        let came = errors.saturating_sub(self.errors.replace(errors).unwrap_or(errors));
        if self.points.back().is_none_or(|last| last.step != step) {
            self.points.push_back(Point { step, ..Point::default() });
            self.of_point = Recent::default();
        }
        self.latest = self.users_io(now_ms, served);
        self.of_point.add(&self.latest);
        if let Some(point) = self.points.back_mut() {
            point.bytes_per_s = point.bytes_per_s.max(bytes_per_s);
            point.errors += came;
            point.slow_ms = point.slow_ms.max(slow_ms);
            point.rates = self.of_point.rates();
            point.failed = self.of_point.errors;
        }
    }

    /// Returns the requests of users since the previous look.
    fn users_io(&mut self, now_ms: u64, served: &ControlStatus) -> Recent {
        let Some(figures) = &served.figures else { return Recent::default() };
        let before = self.asked.replace((now_ms, figures.requests.clone()));
        let Some((then_ms, before)) = before else { return Recent::default() };
        Recent::between(now_ms.saturating_sub(then_ms), &before, &figures.requests)
    }

    /// Drops points older than a day. Returns false when none is left.
    fn expire(&mut self, step: u64) -> bool {
        while self.points.front().is_some_and(|point| point.step + (POINTS as u64) <= step) {
            self.points.pop_front();
        }
        !self.points.is_empty()
    }

    fn plots(&self) -> Plots {
        let column = |of: fn(&Point) -> u64| self.points.iter().map(of).collect();
        Plots {
            time: column(|point| point.step * STEP_S),
            bytes_per_s: column(|point| point.bytes_per_s),
            errors: column(|point| point.errors),
            slow_ms: column(|point| point.slow_ms),
            read_bytes_s: column(|point| point.rates.read_bytes_s),
            write_bytes_s: column(|point| point.rates.write_bytes_s),
            read_us: column(|point| point.rates.read_us),
            write_us: column(|point| point.rates.write_us),
            slow_us: column(|point| point.rates.slow_us),
            failed: column(|point| point.failed),
        }
    }
}

/// Returns the number of the point that contains a moment.
const fn step(now_ms: u64) -> u64 {
    now_ms / 1000 / STEP_S
}

#[cfg(test)]
mod tests {
    use braid_array::figures::Figures;
    use braid_array::status::{Status, SyncStatus};

    use super::*;
    use crate::cmd::monitor::recent::testing::reads;
    use crate::cmd::monitor::seen::testing::served;

    fn array(bytes_per_s: u64) -> ControlStatus {
        let sync = SyncStatus { bytes_per_s, ..SyncStatus::default() };
        served("home", Status { sync, ..Status::blank() })
    }

    #[test]
    fn a_day_is_kept_and_no_more() {
        let mut board = Board::default();
        for (second, speed) in [(60, 5), (75, 9), (89, 7), (90, 1)] {
            board.look(second * 1000, &[array(speed)], BTreeSet::new());
        }
        let plots = &board.plots()["home"];
        assert_eq!((&plots.time[..], &plots.bytes_per_s[..]), (&[60, 90][..], &[9, 1][..]));
        board.look((60 + 86_400 - 30) * 1000, &[array(3)], BTreeSet::new());
        assert_eq!(board.plots()["home"].time, [60, 90, 60 + 86_400 - 30]);
        board.look((60 + 86_400) * 1000, &[array(3)], BTreeSet::new());
        assert_eq!(board.plots()["home"].time.len(), 3, "the first is a day old");
        board.look(3 * 86_400_000, &[], BTreeSet::new());
        assert!(board.plots().is_empty(), "the array is gone for long");
    }

    #[test]
    fn a_point_has_the_speed_of_its_time_and_top_that_of_the_moment() {
        let mut board = Board::default();
        let looks = [(60_000, 1000), (61_000, 1100), (63_000, 1100), (90_500, 3850)];
        for (ms, count) in looks {
            let figures = Some(Figures { requests: reads(count), ..Figures::default() });
            let array = ControlStatus { figures, ..array(0) };
            board.look(ms, &[array], BTreeSet::new());
        }
        let plots = &board.plots()["home"];
        // What was read before the first look is not known to be new.
        assert_eq!(plots.read_bytes_s, [34_133, 100 << 10]);
        assert_eq!((&plots.read_us[..], plots.slow_us[1]), (&[1000, 1000][..], 1024));
        assert_eq!(board.rates("home").reads_s, 100);
        assert_eq!(board.users_speeds("home"), plots.read_bytes_s);
    }

    #[test]
    fn the_latest_events_come_first() {
        let mut board = Board::default();
        (0..EVENTS + 5).for_each(|number| board.tell(number.into()));
        assert_eq!(board.events().len(), EVENTS);
        assert_eq!(board.events()[0], EVENTS + 4);
    }
}
