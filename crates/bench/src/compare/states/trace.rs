//! An array that goes from state to state while it is used, and what it says of itself meanwhile.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use super::Options;
use super::case::{Flow, LIMITS, Level, Task};
use super::course::Phase;
use super::stand::Stand;
use crate::failure::Failure;
use crate::model::{Note, Standing};
use crate::rig::{Array, Room};
use crate::tool::dd;
use crate::tool::mdstat::Recovery;

/// How often the array is asked.
const SAMPLE: Duration = Duration::from_millis(200);
const POLL: Duration = Duration::from_millis(1);
/// Of one `dd`: short against a phase, long against its beginning and end. It is 16 MiB.
const PIECE: &str = "bs=16M";
const PIECES: u64 = 2;
const PIECES_MB: u64 = 34;

/// An array in sync, or without its last member, on which jobs are run while it goes from state to
/// state. Each job samples five times a second what the array says of its recovery, and notes when
/// each state began.
pub(super) struct Tracing {
    stand: Stand,
    phase: Duration,
    /// Far longer than a recovery takes.
    patience: Duration,
}

impl Tracing {
    /// An array in sync.
    pub(super) fn new(room: &Room, options: &Options, level: Level) -> Result<Self, Failure> {
        let bytes = options.traced_member_bytes;
        let stand = Stand::array(room, options, level, (&format!("raid{}", level.number), bytes))?;
        stand.fill(PIECES_MB)?;
        let patience = options.member_takes(bytes) * 20 + Duration::from_secs(60);
        Ok(Self { stand, phase: Duration::from_secs_f64(options.phase_s), patience })
    }

    /// One whose last member waits to be added.
    pub(super) fn degraded(room: &Room, options: &Options, level: Level) -> Result<Self, Failure> {
        let tracing = Self::new(room, options, level)?;
        tracing.stand.member("fail", &mut Note::default())?;
        tracing.stand.member("remove", &mut Note::default())?;
        Ok(tracing)
    }

    /// Through all states, and back to the first.
    fn all_states(&mut self, flow: Flow, note: &mut Note) -> Result<String, Failure> {
        self.stand.fs.remount()?;
        let mut trace = Trace::new(self, note)?;
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
    fn limited(&mut self, (min, max): (&str, &str), note: &mut Note) -> Result<String, Failure> {
        let mut trace = Trace::new(self, note)?;
        trace.sync(&["--min", min, "--max", max])?;
        trace.member(&["add"])?;
        trace.used(Phase::Both, Flow::Write, self.phase * 2)?;
        trace.member(&["fail", "remove"])?;
        let (min, max) = LIMITS[0];
        trace.sync(&["--min", min, "--max", max])?;
        Ok(trace.text)
    }
}

impl Standing for Tracing {
    fn run(&mut self, job: &str, note: &mut Note) -> Result<(), Failure> {
        self.stand.introduce(note);
        let text = match Task::named(job) {
            Some(Task::Trace(flow)) => self.all_states(flow, note)?,
            Some(Task::Limits(index)) => self.limited(LIMITS[index], note)?,
            _ => return Err(Failure::usage(job, "no job has this name here", "see the report")),
        };
        note.file("trace.txt", text);
        let mut known = HashSet::new();
        note.commands.retain(|command| known.insert(command.clone()));
        Ok(())
    }

    fn server(&self) -> Option<u32> {
        self.stand.array.as_ref().map(Array::pid)
    }
}

/// One that is being written.
struct Trace<'a> {
    stand: &'a Stand,
    array: &'a Array,
    note: &'a mut Note,
    start: Instant,
    until: Instant,
    sampled: Option<Instant>,
    text: String,
}

impl<'a> Trace<'a> {
    fn new(tracing: &'a Tracing, note: &'a mut Note) -> Result<Self, Failure> {
        let none = || Failure::refused("a trace", "there is no array", "see the report");
        let stand = &tracing.stand;
        let array = stand.array.as_ref().ok_or_else(none)?;
        let start = Instant::now();
        let until = start + tracing.patience;
        let text = String::new();
        Ok(Self { stand, array, note, start, until, sampled: None, text })
    }

    /// What follows was said at this time.
    fn head(&mut self, at: Instant, what: &str) {
        let seconds = at.duration_since(self.start).as_secs_f64();
        let _ = writeln!(self.text, "# {seconds:.3} {what}");
    }

    fn member(&mut self, verbs: &[&str]) -> Result<(), Failure> {
        verbs.iter().try_for_each(|verb| self.stand.member(verb, self.note))
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

    /// Somebody uses the array all the time.
    fn used(&mut self, phase: Phase, flow: Flow, time: Duration) -> Result<(), Failure> {
        let start = Instant::now();
        self.head(start, &format!("phase {}", phase.name()));
        let data = self.stand.data();
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

    /// Nobody does: for a time, or until the recovery has ended.
    fn alone(&mut self, phase: Phase, time: Option<Duration>) -> Result<(), Failure> {
        let start = Instant::now();
        self.head(start, &format!("phase {}", phase.name()));
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
