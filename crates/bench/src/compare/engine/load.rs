//! Requests through the door of the engine, so many at a time, and how long each took.

use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use braid_array::RequestError;
use braid_host::door::{Door, Message};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::rig::talk::cpu_seconds;

/// How long to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Latencies are counted in nanoseconds, to three digits, up to this.
const LONGEST_NANOS: u64 = 60_000_000_000;

/// What is asked for, at random places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) writes: bool,
    /// Length of a request.
    pub(super) bytes: u32,
    /// Requests at a time.
    pub(super) depth: usize,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    /// Requests that were answered.
    pub(super) requests: u64,
    /// Within so long.
    pub(super) seconds: f64,
    /// CPU time of the process meanwhile but for the thread that asks, by the kernel's accounts.
    pub(super) engine_cpu_s: f64,
    /// Latencies: of so many in a hundred no request took longer.
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
}

impl Load {
    pub(super) fn name(self) -> String {
        let what = if self.writes { "write" } else { "read" };
        format!("{what} {}K x{}", self.bytes >> 10, self.depth)
    }

    /// The place of a request. Requests lie side by side and never overlap.
    const fn offset(self, number: u64, array_bytes: u64) -> u64 {
        let places = array_bytes / self.bytes as u64;
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
    array_bytes: u64,
    load: Load,
    length: Duration,
) -> Result<Measured, String> {
    let content: Vec<u8> = (0..load.bytes).map(|at| (at % 251 + 1) as u8).collect();
    let mut asker = Asker { door, array_bytes, load, content, number: 0 };
    asker.ask_for(length / 10, |_| ())?;
    let mut latencies =
        Histogram::<u64>::new_with_max(LONGEST_NANOS, 3).expect("three digits up to a minute");
    let before = engine_cpu_s();
    let begun = Instant::now();
    asker.ask_for(length, |took| {
        latencies.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let percentile = |of: f64| latencies.value_at_quantile(of) as f64 / 1000.0;
    Ok(Measured {
        requests: latencies.len(),
        seconds,
        engine_cpu_s: (engine_cpu_s() - before).max(0.0),
        p50_us: percentile(0.5),
        p99_us: percentile(0.99),
        p999_us: percentile(0.999),
    })
}

fn engine_cpu_s() -> f64 {
    let of = |who| cpu_seconds(who).unwrap_or_default();
    of("self") - of("thread-self")
}

struct Asker<'a> {
    door: &'a Door,
    array_bytes: u64,
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
        let offset = self.load.offset(self.number, self.array_bytes);
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
