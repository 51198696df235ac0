//! Requests through the door of the engine, so many at a time, and how long each took.

use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use braid_array::RequestError;
use braid_host::door::{Door, Message};
use hdrhistogram::Histogram;

use crate::compare::figures::Figures;
use crate::compare::under_fio::Requests;
use crate::rig::talk::cpu_seconds;

const KIB: u32 = 1024;
const MIB: u32 = 1024 * KIB;
/// Lengths of requests, and so many at a time.
const LOADS: [(u32, usize); 6] =
    [(4 * KIB, 1), (4 * KIB, 32), (64 * KIB, 1), (64 * KIB, 32), (MIB, 1), (MIB, 8)];

/// How long to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Latencies are counted in nanoseconds, to three digits, up to this.
const LONGEST_NANOS: u64 = 60_000_000_000;

/// All loads.
pub(super) fn loads() -> impl Iterator<Item = Load> {
    [false, true].into_iter().flat_map(|writes| {
        LOADS.into_iter().map(move |(bytes, depth)| Load { writes, bytes, depth })
    })
}

/// What is asked for, at random places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) writes: bool,
    /// Length of a request.
    pub(super) bytes: u32,
    /// Requests at a time.
    pub(super) depth: usize,
}

impl Load {
    pub(super) fn name(self) -> String {
        let what = if self.writes { "write" } else { "read" };
        format!("{what} {}K x{}", self.bytes >> 10, self.depth)
    }

    /// The same for fio.
    pub(super) fn requests(self) -> Requests {
        Requests {
            read_percent: if self.writes { 0 } else { 100 },
            bytes: self.bytes.into(),
            depth: self.depth,
            writes_a_flush: None,
        }
    }

    /// The place of a request. Requests lie side by side and never overlap.
    const fn offset(self, number: u64, area_bytes: u64) -> u64 {
        let places = area_bytes / self.bytes as u64;
        scramble(number) % places * self.bytes as u64
    }
}

/// A number without relation to its neighbours (the finalizer of `SplitMix64`).
const fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// When a request was sent and when it was answered.
type Answer = (Instant, Instant, Result<(), RequestError>);

/// Asks for so long. What comes in the first tenth before that warms up.
pub(super) fn drive(
    door: &Door,
    area_bytes: u64,
    load: Load,
    length: Duration,
) -> Result<Figures, String> {
    let content = content(load.bytes);
    let mut asker = Asker { door, area_bytes, load, content, number: 0 };
    asker.ask_for(length / 10, |_| ())?;
    let mut latencies =
        Histogram::<u64>::new_with_max(LONGEST_NANOS, 3).expect("three digits up to a minute");
    let before = engine_cpu_s();
    let begun = Instant::now();
    asker.ask_for(length, |took| {
        latencies.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let cpu_s = (engine_cpu_s() - before).max(0.0);
    let percentile = |of: f64| Some(latencies.value_at_quantile(of) as f64 / 1000.0);
    let requests = latencies.len() as f64;
    Ok(Figures {
        requests,
        iops: requests / seconds,
        cpu_s: Some(cpu_s),
        p50_us: percentile(0.5),
        p99_us: percentile(0.99),
        p999_us: percentile(0.999),
    })
}

fn content(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251 + 1) as u8).collect()
}

/// Writes the area once, so that no hole is read.
pub(super) fn fill(door: &Door, area_bytes: u64) -> Result<(), String> {
    for offset in (0..area_bytes / u64::from(MIB)).map(|number| number * u64::from(MIB)) {
        let (answer, answers) = mpsc::channel();
        let done = Box::new(move |result| {
            // After an error nobody listens any longer.
            let _ = answer.send(result);
        });
        let message = Message::Write { offset, data: content(MIB), fua: false, done };
        if !door.send(message) {
            return Err("the engine has ended".to_owned());
        }
        let answered = answers.recv_timeout(PATIENCE);
        let result = answered.map_err(|_| "no answer for a minute".to_owned())?;
        result.map_err(|error: RequestError| format!("a write failed: {error}"))?;
    }
    Ok(())
}

/// CPU time of the process but for this thread.
fn engine_cpu_s() -> f64 {
    let of = |who| cpu_seconds(who).unwrap_or_default();
    of("self") - of("thread-self")
}

struct Asker<'a> {
    door: &'a Door,
    area_bytes: u64,
    load: Load,
    content: Vec<u8>,
    /// Of the next request.
    number: u64,
}

impl Asker<'_> {
    /// Asks for so long, and tells how long each request took.
    fn ask_for(&mut self, length: Duration, mut took: impl FnMut(Duration)) -> Result<(), String> {
        let (answer, answers) = mpsc::channel::<Answer>();
        let until = Instant::now() + length;
        let mut in_flight = 0;
        for _ in 0..self.load.depth {
            self.ask(&answer)?;
            in_flight += 1;
        }
        while in_flight > 0 {
            let answered = answers.recv_timeout(PATIENCE);
            let (sent, at, result) = answered.map_err(|_| "no answer for a minute".to_owned())?;
            result.map_err(|error| format!("a request failed: {error}"))?;
            took(at - sent);
            if at < until {
                self.ask(&answer)?;
            } else {
                in_flight -= 1;
            }
        }
        Ok(())
    }

    fn ask(&mut self, answer: &Sender<Answer>) -> Result<(), String> {
        let Load { writes, bytes, .. } = self.load;
        let offset = self.load.offset(self.number, self.area_bytes);
        self.number += 1;
        let answer = answer.clone();
        let sent = Instant::now();
        let tell = move |result| {
            // After an error nobody listens any longer.
            let _ = answer.send((sent, Instant::now(), result));
        };
        let message = if writes {
            let data = self.content.clone();
            Message::Write { offset, data, fua: false, done: Box::new(tell) }
        } else {
            let done = Box::new(move |result: Result<Vec<u8>, _>| tell(result.map(drop)));
            Message::Read { offset, len: bytes, done }
        };
        if self.door.send(message) { Ok(()) } else { Err("the engine has ended".to_owned()) }
    }
}
