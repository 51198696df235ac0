//! Course of a trace: speeds over time, and how well the array knew when it would be done.

use std::ops::Range;

use crate::compare::words::names;
use crate::tool::dd::{self, Said};
use crate::tool::mdstat::Recovery;

/// Estimates are judged from here on: of less than a second, mdstat can tell nothing ...
const FIRST_S: f64 = 1.0;
/// ... and to here before the end: less than a sample is left.
const LAST_S: f64 = 0.3;

names! {
    /// Phase of a trace: the array is used or not, and in sync, without a member, or recovering.
    pub(super) enum Phase {
        InSync = "in-sync",
        Degraded = "degraded",
        Alone = "recovery-alone",
        Both = "recovery-in-use",
        After = "recovery-after",
    }
}

/// A trace that was read. Times are in seconds from its beginning.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Course {
    phases: Vec<(f64, Phase)>,
    /// Answers of the array; `None`: no recovery.
    samples: Vec<(f64, Option<Recovery>)>,
    /// Start of each `dd`, and what it said.
    pieces: Vec<(f64, Said)>,
}

impl Course {
    /// Reads a trace: lines `# TIME phase NAME`, `# TIME mdstat` and `# TIME dd`, and after the
    /// latter two what was said.
    pub(super) fn of(text: &str) -> Self {
        let mut course = Self::default();
        for part in text.split("# ").filter(|part| !part.is_empty()) {
            let (head, said) = part.split_once('\n').unwrap_or((part, ""));
            let Some((at, what)) = head.split_once(' ') else { continue };
            let Ok(at) = at.parse::<f64>() else { continue };
            match what {
                "mdstat" => course.samples.push((at, Recovery::of(said))),
                "dd" => course.pieces.extend(dd::all(said).map(|said| (at, said))),
                _ => {
                    let named = |phase: &Phase| what.strip_prefix("phase ") == Some(phase.name());
                    let phase = Phase::ALL.into_iter().find(named);
                    course.phases.extend(phase.map(|phase| (at, phase)));
                }
            }
        }
        course
    }

    fn time(&self, phase: Phase) -> Option<Range<f64>> {
        let index = self.phases.iter().position(|(_, one)| *one == phase)?;
        let end = self.phases.get(index + 1).map_or(f64::INFINITY, |(at, _)| *at);
        Some(self.phases[index].0..end)
    }

    /// Speed of use in a phase, in MB/s: all that was moved in all its time.
    pub(super) fn use_mb_s(&self, phase: Phase) -> Option<f64> {
        let time = self.time(phase)?;
        let within = self.pieces.iter().filter(|(at, _)| time.contains(at));
        let (bytes, seconds) = within.fold((0, 0.0), |(bytes, seconds), (_, said)| {
            (bytes + said.bytes, seconds + said.seconds)
        });
        (seconds > 0.0).then(|| Said { bytes, seconds }.mb_s())
    }

    /// Speed of the recovery, in MB/s of each member: from the first to the last that it said.
    pub(super) fn recovery_mb_s(&self, phase: Phase) -> Option<f64> {
        let time = self.time(phase)?;
        let mut within = self.progress().filter(|(at, _)| time.contains(at));
        let from = within.next()?;
        let to = within.last()?;
        Some(speed_mb_s(from, to))
    }

    fn progress(&self) -> impl Iterator<Item = (f64, Recovery)> {
        self.samples.iter().filter_map(|&(at, recovery)| Some((at, recovery?)))
    }

    /// The use over time: (time, MB/s).
    pub(super) fn use_points(&self) -> Vec<(f64, f64)> {
        let middle = |(at, said): &(f64, Said)| (at + said.seconds / 2.0, said.mb_s());
        self.pieces.iter().map(middle).collect()
    }

    /// The recovery over time: (time, MB/s) between one sample and the next.
    pub(super) fn recovery_points(&self) -> Vec<(f64, f64)> {
        let all: Vec<(f64, Recovery)> = self.progress().collect();
        let speed = |pair: &[(f64, Recovery)]| {
            (f64::midpoint(pair[0].0, pair[1].0), speed_mb_s(pair[0], pair[1]))
        };
        all.windows(2).filter(|pair| pair[1].0 - pair[0].0 > 0.05).map(speed).collect()
    }

    /// Time at which the recovery was found to have ended.
    fn end(&self) -> Option<f64> {
        let last = self.samples.iter().rposition(|(_, recovery)| recovery.is_some())?;
        self.samples.get(last + 1).map(|(at, _)| *at)
    }

    /// (time, what the array said was left, what was left), in seconds.
    pub(super) fn estimates(&self) -> Vec<(f64, f64, f64)> {
        let Some(end) = self.end() else { return Vec::new() };
        let Some((begun, _)) = self.progress().next() else { return Vec::new() };
        let estimate = |(at, said): (f64, Recovery)| Some((at, said.finish_s()?, end - at));
        let judged = |(at, _, left): &(f64, f64, f64)| *at >= begun + FIRST_S && *left > LAST_S;
        self.progress().filter_map(estimate).filter(judged).collect()
    }

    /// Error of what the array said was left, as a share of that: the median in a phase.
    pub(super) fn estimate_error(&self, phase: Phase) -> Option<f64> {
        let time = self.time(phase)?;
        let all = self.estimates();
        let within = all.iter().filter(|(at, _, _)| time.contains(at));
        let errors: Vec<f64> = within.map(|(_, said, left)| (said - left).abs() / left).collect();
        crate::model::Spread::of(&errors).map(|spread| spread.median)
    }
}

fn speed_mb_s(from: (f64, Recovery), to: (f64, Recovery)) -> f64 {
    let kib = to.1.done_kib.saturating_sub(from.1.done_kib);
    let seconds = to.0 - from.0;
    if seconds > 0.0 { (kib * 1024) as f64 / 1e6 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "# 0.000 phase in-sync
# 0.002 dd
1+0 records in
1+0 records out
16000000 bytes (16 MB, 15 MiB) copied, 0.2 s, 80 MB/s
0.000u 0.020s 0.210 9.52%
# 0.500 phase recovery-alone
# 0.600 mdstat
Personalities : [raid1]
st : active raid1 m1[1] m0[0]
      523264 blocks super 1.2 [2/1] [U_]
      [==>........]  recovery = 10.0% (50000/500000) finish=0.0min speed=100000K/sec

unused devices: <none>
# 1.600 mdstat
      [==>........]  recovery = 20.0% (100000/500000) finish=0.0min speed=50000K/sec
# 1.700 phase recovery-in-use
# 1.800 dd
16000000 bytes (16 MB, 15 MiB) copied, 0.4 s, 40 MB/s
# 2.600 mdstat
      [==>........]  recovery = 21.0% (105000/500000) finish=0.0min speed=0K/sec
# 3.000 phase recovery-after
# 3.100 mdstat
      [==>........]  recovery = 90.0% (450000/500000) finish=0.0min speed=50000K/sec
# 4.600 mdstat
unused devices: <none>
";

    #[test]
    fn a_trace_says_who_was_how_fast() {
        let course = Course::of(TRACE);
        assert!((course.use_mb_s(Phase::InSync).expect("used") - 80.0).abs() < 1e-9);
        assert!((course.use_mb_s(Phase::Both).expect("used") - 40.0).abs() < 1e-9);
        assert_eq!(course.use_mb_s(Phase::Degraded), None);
        let alone = course.recovery_mb_s(Phase::Alone).expect("two samples");
        assert!((alone - 51.2).abs() < 1e-6, "{alone}");
        assert_eq!(course.recovery_mb_s(Phase::Both), None, "one sample is no speed");
        assert_eq!(course.use_points()[1..], [(2.0, 40.0)]);
        let speeds: Vec<i64> =
            course.recovery_points().into_iter().map(|(_, speed)| speed as i64).collect();
        assert_eq!(speeds, [51, 5, 706]);
    }

    #[test]
    fn estimates_are_held_against_the_end() {
        let course = Course::of(TRACE);
        // Its first one came too early; then it said 8 s and it was 3 s.
        let error = course.estimate_error(Phase::Alone).expect("an estimate");
        assert!((error - 5.0 / 3.0).abs() < 1e-9, "{error}");
        assert_eq!(course.estimate_error(Phase::Both), None, "speed 0 is no estimate");
        let unfinished = TRACE.split("# 4.600").next().expect("a beginning");
        assert!(Course::of(unfinished).estimates().is_empty());
    }

    #[test]
    fn half_a_trace_is_read_as_far_as_it_goes() {
        for end in 0..TRACE.len() {
            let course = Course::of(&TRACE[..end]);
            assert!(course.samples.len() <= 5 && course.pieces.len() <= 2);
        }
    }
}
