//! The load of one client: requests through the engine's submission queue, as an export sends them,
//! so many at once that every position of the pipeline is busy.

use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use braid_array::action::{Command, NewMember};
use braid_array::events::SyncAction;
use braid_array::status::{MemberState, Status};
use braid_array::{MemberId, RequestError, SECTOR_BYTES};
use braid_host::submission::{Message, SubmissionQueue};
use serde::{Deserialize, Serialize};

use super::setting::Done;
use super::words::Pattern;
use crate::compare::scramble;

const PIECE_BYTES: u64 = 1 << 20;
const SMALL_BYTES: u64 = 4096;
const SMALL_DEPTH: u64 = 64;
const PATIENCE: Duration = Duration::from_secs(60);

/// Requests to be made, and for how long.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ClientLoad {
    /// Kind of requests.
    pub pattern: Pattern,
    /// Time before the measurement.
    pub warm_up: Duration,
    /// Length of the measurement.
    pub length: Duration,
    /// Data in flight, unless writes are small.
    pub in_flight_bytes: u64,
    /// Data of a stripe.
    pub stripe_bytes: u64,
    /// Length of the array, which the client knows.
    pub array_bytes: u64,
}

impl ClientLoad {
    /// Returns what is asked for at once: a stripe, written in pieces sent one right after the
    /// other; or one request.
    const fn unit_bytes(&self) -> u64 {
        match self.pattern {
            Pattern::Write | Pattern::WriteOneLost | Pattern::WriteTwoLost => self.stripe_bytes,
            Pattern::Read
            | Pattern::ReadOneLost
            | Pattern::ReadTwoLost
            | Pattern::WriteAlone
            | Pattern::Rebuild => PIECE_BYTES,
            Pattern::Write4k | Pattern::Write4kDurable => SMALL_BYTES,
        }
    }

    /// Units at once.
    fn depth(&self) -> u64 {
        match self.pattern {
            Pattern::Write4k => SMALL_DEPTH,
            Pattern::WriteAlone | Pattern::Write4kDurable => 1,
            _ => (self.in_flight_bytes / self.unit_bytes()).max(2),
        }
    }

    /// The requests of a unit, as offsets and lengths: units come one after the other, round and
    /// round, or anywhere.
    fn requests(&self, number: u64) -> impl Iterator<Item = (u64, u64)> {
        let unit = self.unit_bytes();
        let place = match self.pattern {
            Pattern::Write4k | Pattern::Write4kDurable => scramble(number),
            _ => number,
        };
        let start = place % (self.array_bytes / unit) * unit;
        let pieces = (0..unit).step_by(PIECE_BYTES as usize);
        pieces.map(move |at| (start + at, PIECE_BYTES.min(unit - at)))
    }
}

/// Counts what is answered within a measurement.
///
/// Answers come in bursts, a stripe at a time. A measurement that began or ended with a burst would
/// be wrong by half of one on average, which is much of a short one; so progress counts as even
/// between the moments at which another unit is complete.
#[derive(Debug)]
struct Window {
    from: Instant,
    until: Instant,
    unit_bytes: u64,
    /// Moment at which the last unit was complete, and how much that was in all.
    mark: (Instant, u64),
    /// Bytes that were answered when the measurement began.
    before: Option<f64>,
    over: bool,
    done: Done,
}

impl Window {
    fn new(load: &ClientLoad, now: Instant) -> Self {
        let from = now + load.warm_up;
        let until = from + load.length;
        let unit_bytes = load.unit_bytes();
        let mark = (now, 0);
        let done = Done::default();
        Self { from, until, unit_bytes, mark, before: None, over: false, done }
    }

    fn note(&mut self, now: Instant, bytes: u64) {
        self.done.total_bytes += bytes;
        let complete = self.done.total_bytes / self.unit_bytes * self.unit_bytes;
        if self.over || complete == self.mark.1 {
            return;
        }
        let mark = (now, complete);
        if self.before.is_none() && now >= self.from {
            self.before = Some(between(self.mark, mark, self.from));
        }
        if let Some(before) = self.before
            && now >= self.until
        {
            self.done.window_bytes = (between(self.mark, mark, self.until) - before) as u64;
            self.done.window_seconds = (self.until - self.from).as_secs_f64();
            self.over = true;
        }
        self.mark = mark;
    }
}

/// Interpolates the progress at a moment between two.
fn between(start: (Instant, u64), end: (Instant, u64), at: Instant) -> f64 {
    let seconds = |until: Instant| (until - start.0).as_secs_f64();
    (end.1 - start.1) as f64 * seconds(at) / seconds(end.0) + start.1 as f64
}

/// Answer to a request: its moment, the length of the request, and the result.
type Answer = (Instant, u64, Result<(), RequestError>);

/// Sends requests until the measurement is over, then waits for those in flight.
pub fn drive(submissions: &SubmissionQueue, load: &ClientLoad) -> Result<Done, String> {
    let words = (0..PIECE_BYTES / 8).flat_map(|word| scramble(word).to_le_bytes());
    let content: Vec<u8> = words.collect();
    let (answer, answers) = mpsc::channel();
    let mut window = Window::new(load, Instant::now());
    let most = load.depth() * load.unit_bytes();
    let mut units = 0;
    let mut in_flight = 0;
    let mut to_be_flushed = false;
    loop {
        while in_flight + load.unit_bytes() <= most && !window.over {
            for (offset, bytes) in load.requests(units) {
                if !submissions.send(message(
                    load.pattern,
                    offset,
                    &content[..bytes as usize],
                    &answer,
                )) {
                    return Err("the engine has ended".to_owned());
                }
                in_flight += bytes;
            }
            units += 1;
            to_be_flushed = load.pattern == Pattern::Write4kDurable;
        }
        if in_flight == 0 {
            return Ok(window.done);
        }
        let answered: Result<Answer, _> = answers.recv_timeout(PATIENCE);
        let (now, bytes, result) = answered.map_err(|_| "no answer for a minute".to_owned())?;
        result.map_err(|error| format!("a request failed: {error}"))?;
        if std::mem::take(&mut to_be_flushed) {
            let answer = answer.clone();
            let tell = move |result| {
                let _ = answer.send((Instant::now(), bytes, result));
            };
            submissions.send(Message::Flush { done: Box::new(tell) });
            continue;
        }
        in_flight -= bytes;
        window.note(now, bytes);
    }
}

fn message(pattern: Pattern, offset: u64, content: &[u8], answer: &Sender<Answer>) -> Message {
    let bytes = content.len() as u64;
    let answer = answer.clone();
    let tell = move |result| {
        // After an error nobody listens any longer.
        let _ = answer.send((Instant::now(), bytes, result));
    };
    if pattern.reads() {
        let done = Box::new(move |result: Result<Vec<u8>, _>| tell(result.map(drop)));
        Message::Read { offset, len: content.len() as u32, done }
    } else {
        Message::Write { offset, data: content.to_vec(), fua: false, done: Box::new(tell) }
    }
}

/// Time between two looks at the progress.
const LOOK: Duration = Duration::from_millis(5);
/// Size larger than any volume.
const MOST_SECTORS: u64 = 1 << 50;
/// The member's id in its new superblock.
const DEVICE: [u8; 16] = [0xbd; 16];

/// Rebuilds one member of an array that has all of them: fails it, and adds it again as if it were
/// new, while nobody uses the array. Bytes are those of the member, and time runs from when the
/// first of them are there.
pub fn rebuild(submissions: &SubmissionQueue) -> Result<Done, String> {
    let ended = || "the engine has ended".to_owned();
    let order = |command| {
        let message = |done| Message::Command { command, device: None, done };
        submissions.call(message).ok_or_else(ended)?.map_err(|refusal| refusal.to_string())
    };
    let status = submissions.status().ok_or_else(ended)?;
    let first = status.members.first().ok_or("an array has members")?;
    order(Command::Fail(first.member))?;
    order(Command::Remove(first.member))?;
    let new = NewMember {
        // The array puts one that is free in its place, and the size that it finds.
        member: MemberId(0),
        device: first.device.clone(),
        device_sectors: MOST_SECTORS,
        superblock: None,
        bad_blocks: None,
        readd: false,
        device_uuid: DEVICE,
    };
    order(Command::Add(Box::new(new)))?;
    let began = Instant::now();
    let mut window = None::<(Instant, u64, u64)>;
    while began.elapsed() < PATIENCE {
        let status = submissions.status().ok_or_else(ended)?;
        let now = Instant::now();
        if let Some((since, before, all)) = window
            && is_whole(&status)
        {
            let window_seconds = (now - since).as_secs_f64();
            return Ok(Done { window_bytes: all - before, window_seconds, total_bytes: all });
        }
        let sync = &status.sync;
        let bytes = |sectors: u64| sectors * SECTOR_BYTES;
        if window.is_none() && sync.action == SyncAction::Recovery && sync.done_sectors > 0 {
            window = Some((now, bytes(sync.done_sectors), bytes(sync.total_sectors)));
        }
        std::thread::sleep(LOOK);
    }
    Err("no member was rebuilt within a minute".to_owned())
}

fn is_whole(status: &Status) -> bool {
    let in_sync = |state: &MemberState| *state == MemberState::InSync;
    status.degraded == 0 && status.members.iter().all(|member| in_sync(&member.state))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn load(pattern: Pattern) -> ClientLoad {
        ClientLoad {
            pattern,
            warm_up: Duration::from_millis(5),
            length: Duration::from_millis(30),
            in_flight_bytes: 7 << 20,
            stripe_bytes: 5 << 19,
            array_bytes: 10 << 20,
        }
    }

    /// An engine that answers everything at once, and notes how much it was asked.
    fn answering(fail_from: u64) -> (SubmissionQueue, std::thread::JoinHandle<u64>) {
        let (sender, messages) = mpsc::channel();
        let wake = eventfd(0, EventfdFlags::empty()).expect("an eventfd");
        let answer = move || {
            let mut bytes = 0;
            for message in messages {
                match message {
                    Message::Write { data, done, .. } => {
                        bytes += data.len() as u64;
                        let fine = bytes <= fail_from;
                        done(if fine { Ok(()) } else { Err(RequestError::Failed) });
                    }
                    Message::Read { len, done, .. } => {
                        bytes += u64::from(len);
                        done(Ok(vec![0; len as usize]));
                    }
                    Message::Flush { done } => done(Ok(())),
                    _ => panic!("neither read, write nor flush"),
                }
            }
            bytes
        };
        (SubmissionQueue::new(sender, Arc::new(wake)), std::thread::spawn(answer))
    }

    #[test]
    fn all_that_is_sent_is_answered_and_counted() {
        for &pattern in Pattern::ALL.iter().filter(|pattern| **pattern != Pattern::Rebuild) {
            let (submissions, engine) = answering(u64::MAX);
            let done = drive(&submissions, &load(pattern)).expect("a measurement");
            drop(submissions);
            assert_eq!(engine.join().expect("no panic"), done.total_bytes, "{pattern:?}");
            assert!(done.window_bytes > 0 && done.window_bytes < done.total_bytes, "{done:?}");
            assert!(done.window_seconds > 0.0, "{done:?}");
        }
        let (submissions, _engine) = answering(1 << 20);
        assert!(drive(&submissions, &load(Pattern::Write)).is_err_and(|e| e.contains("failed")));
    }

    #[test]
    fn units_go_round_the_array() {
        let write = load(Pattern::Write);
        assert_eq!((write.depth(), write.unit_bytes()), (2, 5 << 19));
        let requests: Vec<(u64, u64)> = write.requests(5).collect();
        let mib = 1 << 20;
        let at = |half: u64| half * (mib / 2);
        assert_eq!(requests, [(at(5), mib), (at(7), mib), (at(9), mib / 2)]);
        let reads: Vec<(u64, u64)> = load(Pattern::Read).requests(11).collect();
        assert_eq!(reads, [(mib, mib)]);
        let small = load(Pattern::Write4k);
        let offsets: std::collections::BTreeSet<u64> =
            (0..100).flat_map(|number| small.requests(number)).map(|(offset, _)| offset).collect();
        assert!(offsets.len() > 90 && offsets.iter().all(|offset| offset % 4096 == 0));
        assert!(offsets.iter().all(|&offset| offset < 10 << 20));
    }

    #[test]
    fn progress_is_even_between_units() {
        // From 5 to 35 ms; a unit has 20 bytes.
        let load = ClientLoad { stripe_bytes: 20, ..load(Pattern::Write) };
        let now = Instant::now();
        let mut window = Window::new(&load, now);
        // 20 at 10 ms, 40 at 21 ms, 60 at 41 ms: 10 at the beginning, and 54 at the end.
        for millis in [1, 10, 20, 21, 34, 41, 50] {
            window.note(now + Duration::from_millis(millis), 10);
        }
        assert!(window.over);
        assert_eq!((window.done.total_bytes, window.done.window_bytes), (70, 44));
        assert!((window.done.window_seconds - 0.03).abs() < 1e-9);
    }

    #[test]
    fn bursts_do_not_bias_the_rate() {
        // Stripes of 20 bytes every 100 ms on average, alternately after 50 and 150.
        let load = ClientLoad {
            stripe_bytes: 20,
            length: Duration::from_millis(300),
            ..load(Pattern::Write)
        };
        let now = Instant::now();
        let rates = (0..200).map(|warm_up| {
            let load = ClientLoad { warm_up: Duration::from_millis(500 + warm_up), ..load };
            let mut window = Window::new(&load, now);
            for stripe in 0..30u64 {
                let at = now + Duration::from_millis(stripe * 100 + stripe % 2 * 50);
                (0..2).for_each(|_| window.note(at, 10));
            }
            window.done.window_bytes as f64 / window.done.window_seconds
        });
        let mean = rates.sum::<f64>() / 200.0;
        assert!((mean - 200.0).abs() < 2.0, "{mean}");
    }
}
