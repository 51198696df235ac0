//! An array that goes from state to state while it is used, and what it says of itself meanwhile.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use super::StateOptions;
use super::case::{Flow, LIMITS};
use super::course::Phase;
use super::sweep::{data, member};
use crate::failure::Failure;
use crate::model::Note;
use crate::rig::{Array, Stack};
use crate::tool::dd;
use crate::tool::mdstat::Recovery;

/// Time between two questions to the array.
const SAMPLE: Duration = Duration::from_millis(200);
const POLL: Duration = Duration::from_millis(1);
/// Length of one `dd`, 16 MiB: short against a phase, long against its beginning and end.
const PIECE: &str = "bs=16M";
const PIECES: u64 = 2;
/// Size of the file that is used, in 10^6 bytes.
pub(super) const PIECES_MB: u64 = 34;

/// Jobs on an array that goes from state to state, or recovers. Each samples five times a second
/// what the array says of its recovery, and notes when each state began.
pub(super) struct Tracing {
    phase: Duration,
    /// Far longer than a recovery takes.
    patience: Duration,
}

impl Tracing {
    pub(super) fn of(options: &StateOptions) -> Self {
        let recovery = options.member_takes(options.traced_member_bytes);
        let patience = recovery * 20 + Duration::from_secs(60);
        Self { phase: Duration::from_secs_f64(options.phase_s), patience }
    }

    /// Through all states, and back to the first.
    pub(super) fn all_states(
        &self,
        stack: &mut Stack,
        flow: Flow,
        note: &mut Note,
    ) -> Result<String, Failure> {
        stack.remount()?;
        let mut trace = Trace::new(stack, self.patience, note)?;
        trace.used(Phase::InSync, flow, self.phase)?;
        trace.member(&["fail", "remove"])?;
        trace.used(Phase::Degraded, flow, self.phase)?;
        trace.member(&["add"])?;
        trace.alone(Phase::Alone, Some(self.phase))?;
        trace.used(Phase::Both, flow, self.phase * 3)?;
        trace.alone(Phase::After, None)?;
        Ok(trace.text)
    }

    /// A recovery under limits, begun for that and given up afterwards.
    pub(super) fn limited(
        &self,
        stack: &Stack,
        (min, max): (&str, &str),
        note: &mut Note,
    ) -> Result<String, Failure> {
        let mut trace = Trace::new(stack, self.patience, note)?;
        trace.sync(&["--min", min, "--max", max])?;
        trace.member(&["add"])?;
        trace.used(Phase::Both, Flow::Write, self.phase * 2)?;
        trace.member(&["fail", "remove"])?;
        let (min, max) = LIMITS[0];
        trace.sync(&["--min", min, "--max", max])?;
        Ok(trace.text)
    }
}

/// One that is being written.
struct Trace<'a> {
    stack: &'a Stack,
    array: &'a Array,
    note: &'a mut Note,
    start: Instant,
    until: Instant,
    sampled: Option<Instant>,
    text: String,
}

impl<'a> Trace<'a> {
    fn new(stack: &'a Stack, patience: Duration, note: &'a mut Note) -> Result<Self, Failure> {
        let none = || Failure::refused("a trace", "there is no array", "see the report");
        let array = stack.running_array().ok_or_else(none)?;
        let start = Instant::now();
        let until = start + patience;
        Ok(Self { stack, array, note, start, until, sampled: None, text: String::new() })
    }

    /// Writes the time at which what follows was said.
    fn head(&mut self, at: Instant, what: &str) {
        let seconds = at.duration_since(self.start).as_secs_f64();
        let _ = writeln!(self.text, "# {seconds:.3} {what}");
    }

    fn member(&mut self, verbs: &[&str]) -> Result<(), Failure> {
        verbs.iter().try_for_each(|verb| member(self.stack, verb, self.note))
    }

    fn sync(&mut self, words: &[&str]) -> Result<(), Failure> {
        self.note.commands.push(format!("braid sync ARRAY {}", words.join(" ")));
        self.array.braid(&[&["sync"], words].concat()).map(drop)
    }

    /// Asks the array, when it is time to, how far it is; whether its recovery goes on.
    fn sample(&mut self) -> Result<Option<Recovery>, Failure> {
        let asked = Instant::now();
        let said = self.array.mdstat()?;
        self.sampled = Some(asked);
        self.head(asked + asked.elapsed() / 2, "mdstat");
        self.text.push_str(&said);
        Ok(Recovery::of(&said))
    }

    fn sample_if_due(&mut self) -> Result<(), Failure> {
        if self.sampled.is_none_or(|at| at.elapsed() >= SAMPLE) {
            self.sample()?;
        }
        Ok(())
    }

    /// Runs a phase with constant use of the array.
    fn used(&mut self, phase: Phase, flow: Flow, time: Duration) -> Result<(), Failure> {
        let start = Instant::now();
        self.head(start, &format!("phase {phase}"));
        let data = data(self.stack);
        let mut piece = 0;
        while start.elapsed() < time {
            let begun = Instant::now();
            let mut dd = match flow {
                Flow::Write => {
                    let of = format!("of={data}");
                    let seek = format!("seek={piece}");
                    let words = ["if=/dev/zero", &of, PIECE, "count=1", &seek];
                    dd::start(&[&words[..], &["oflag=sync", "conv=notrunc"]].concat(), self.note)?
                }
                Flow::Read => {
                    let file = format!("if={data}");
                    let skip = format!("skip={piece}");
                    let words = [&file, "of=/dev/null", PIECE, "count=1", &skip, "iflag=direct"];
                    dd::start(&words, self.note)?
                }
            };
            while !dd.has_ended() {
                self.sample_if_due()?;
                thread::sleep(POLL);
            }
            let said = dd.end()?;
            self.head(begun, "dd");
            self.text.push_str(&said);
            piece = (piece + 1) % PIECES;
        }
        // Where the phase ends is known to the sample.
        self.sample().map(drop)
    }

    /// Runs a phase without use of the array: for a time, or until the recovery has ended.
    fn alone(&mut self, phase: Phase, time: Option<Duration>) -> Result<(), Failure> {
        let start = Instant::now();
        self.head(start, &format!("phase {phase}"));
        while self.sample()?.is_some() {
            if Instant::now() > self.until {
                let reason = "its recovery does not end";
                return Err(Failure::refused("the array", reason, "see braid status"));
            }
            if time.is_some_and(|time| start.elapsed() >= time) {
                break;
            }
            thread::sleep(SAMPLE);
        }
        Ok(())
    }
}
