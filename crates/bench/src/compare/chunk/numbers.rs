//! Numbers of all runs, as the tools said them.

use std::fmt::Display;

use super::ChunkOptions;
use super::cases::SweepJob;
use super::set_up::COUNTERS;
use crate::compare::numbers::{Numbers, reading};
use crate::model::{Found, Spread};
use crate::tool::{fio, qemu_img};

pub(super) const RATE: &str = "bandwidth";
/// Bytes that members moved for each byte asked for.
pub(super) const MOVED: &str = "moved";
/// Unit in which the kernel counts a block device's traffic.
const SECTOR_BYTES: f64 = 512.0;

pub(super) struct Chunks<'a> {
    pub(super) options: &'a ChunkOptions,
    pub(super) numbers: Numbers,
}

impl<'a> Chunks<'a> {
    pub(super) fn of(options: &'a ChunkOptions, found: &Found) -> Self {
        let sweeps = SweepJob::all(options);
        let numbers = Numbers::of(found).read(found, [fio::OUTPUT], |run, [text]| {
            let Some(job) = sweeps.iter().find(|job| job.to_string() == run.job) else {
                return Vec::new();
            };
            let said = fio::parse(text);
            let rate = |section: &String| {
                let one = said.iter().find(|one| one.name == *section)?;
                let side = if job.write() { &one.write } else { &one.read };
                (side.bytes_s > 0.0).then_some(side.bytes_s / 1e6)
            };
            let sections = job.sections(options);
            let one = |section: &String| reading(job.number(section), RATE, "MB/s", rate(section));
            sections.iter().map(one).collect()
        });
        let numbers = numbers.read(found, [qemu_img::OUTPUT], |run, [text]| {
            let rate = qemu_img::parse(text).map(|bench| bench.bytes_s() / 1e6);
            vec![reading(&run.job, RATE, "MB/s", rate)]
        });
        let counted = [COUNTERS, qemu_img::OUTPUT];
        let numbers = numbers.read(found, counted, |run, [counted, text]| {
            let asked = qemu_img::parse(text).map(|bench| bench.requests * bench.bytes);
            let asked = asked.filter(|asked| *asked > 0.0);
            let moved = moved_bytes(counted).zip(asked).map(|(moved, asked)| moved / asked);
            vec![reading(&run.job, MOVED, "B/B", moved)]
        });
        Self { options, numbers }
    }

    pub(super) fn rate(&self, case: impl Display, job: impl Display) -> Option<Spread> {
        self.numbers.spread((case, job, RATE))
    }

    /// The median of a rate by that of another case.
    pub(super) fn ratio(
        &self,
        case: impl Display,
        to: impl Display,
        job: impl Display,
    ) -> Option<f64> {
        self.numbers.by((case, job, RATE), to)
    }

    /// All rounds of a rate by the median of that of another case.
    pub(super) fn ratios(
        &self,
        case: impl Display,
        to: impl Display,
        job: impl Display,
    ) -> Option<Spread> {
        let rate = self.rate(&case, &job)?;
        Some(rate.times(self.ratio(case, to, job)? / rate.median))
    }
}

/// Bytes that all members together have read and written between `before` and `after`.
fn moved_bytes(text: &str) -> Option<f64> {
    let sectors = |when: &str| {
        let lines = text.lines().filter(|line| line.split(' ').next() == Some(when));
        let of_member = |line: &str| {
            let mut words = line.split_whitespace().skip(2);
            let read: f64 = words.nth(2)?.parse().ok()?;
            let written: f64 = words.nth(3)?.parse().ok()?;
            Some(read + written)
        };
        let members: Vec<f64> = lines.map(of_member).collect::<Option<_>>()?;
        (!members.is_empty()).then(|| members.iter().sum::<f64>())
    };
    Some((sectors("after")? - sectors("before")?) * SECTOR_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters of the kernel for two members around 512 writes of 4K on RAID 0.
    const COUNTERS: &str = "\
before loop4 214 0 12000 11 290 0 45056 15 0 24 27 0 0 0 0 0 0
before loop5 214 0 12000 11 290 0 45056 15 0 24 27 0 0 0 0 0 0
after loop4 214 0 12000 11 546 0 47104 15 0 24 27 0 0 0 0 0 0
after loop5 214 0 12008 11 546 0 47104 15 0 24 27 0 0 0 0 0 0
";

    #[test]
    fn what_the_kernel_counts_is_bytes() {
        assert_eq!(moved_bytes(COUNTERS), Some((2048.0 + 2048.0 + 8.0) * 512.0));
        for text in ["", "before", "after loop4 1 2 3", &COUNTERS[..200]] {
            assert_eq!(moved_bytes(text), None, "{text}");
        }
    }
}
