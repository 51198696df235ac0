//! `braid monitor`: looks at all arrays periodically, reports events, serves metrics.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, mem, thread};

use chrono::{SecondsFormat, Utc};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

mod ask;
mod board;
mod event;
mod events;
mod health;
mod http;
mod kept;
mod message;
mod metrics;
mod next;
mod nodes;
mod outbox;
mod recent;
mod secret;
mod seen;
mod sinks;
mod smart;
mod smtp;
pub(super) mod top;
mod web;

use self::ask::Asker;
use self::board::Board;
use self::events::{Alert, Watch};
use self::kept::{MonitorState, StateFile};
use self::message::Message;
use self::nodes::Nodes;
use self::outbox::Outbox;
use self::seen::Seen;
use self::sinks::{Latest, Sink};
use self::smart::{Smart, Warnings};
use crate::args::MonitorArgs;
use crate::failure::{Failure, system_error};
use crate::output;

/// Time to deliver pending messages at the end.
const LAST_MOMENT: Duration = Duration::from_secs(5);

pub(super) fn run(run_dir: &Path, args: &MonitorArgs) -> Result<(), Failure> {
    let latest = Latest::default();
    let sinks = sinks::sinks(args, &latest)?;
    if sinks.is_empty() && args.metrics.is_none() && args.web.is_none() {
        let next = "give --program, --mail, --webhook, --metrics or --web";
        return Err(Failure::usage("monitor", run_dir.display(), "nobody is told", next));
    }
    if args.oneshot {
        return oneshot(run_dir, args, &sinks, &latest);
    }
    Monitor::start(run_dir, args, sinks, latest)?.run(args.test)
}

/// Reports degraded arrays. Fails if an array did not answer or a message could not be delivered.
fn oneshot(
    run_dir: &Path,
    args: &MonitorArgs,
    sinks: &[Sink],
    latest: &Latest,
) -> Result<(), Failure> {
    let answers = Asker::new(run_dir).ask().map_err(|error| unreadable(run_dir, &error))?;
    let seen: Vec<Seen> = answers.arrays.iter().flat_map(Seen::all).collect();
    latest.set(answers.arrays);
    let mut alerts = if args.test { seen.iter().map(Alert::test).collect() } else { Vec::new() };
    alerts.extend(seen.iter().filter_map(Alert::degraded));
    let mut failed = !answers.silent.is_empty();
    for message in messages(alerts) {
        say(&message);
        for sink in sinks.iter().filter(|sink| sink.wants(message.alert.event)) {
            if let Err(reason) = sink.tell(&message) {
                let line = format!("monitor {}: {reason}", sink.name());
                output::warning(&format!("{line}; {} was not told", message.line()));
                failed = true;
            }
        }
    }
    if failed { Err(Failure::Silent(Failure::REFUSED)) } else { Ok(()) }
}

fn unreadable(run_dir: &Path, error: &io::Error) -> Failure {
    let next = "use its owner or root, or name another with --run-dir";
    Failure::refused("monitor", run_dir.display(), system_error(error), next)
}

fn messages(alerts: Vec<Alert>) -> Vec<Message> {
    let time = Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true);
    alerts.into_iter().map(|alert| Message { alert, time: time.clone() }).collect()
}

/// Prints a message to stdout, for the journal.
fn say(message: &Message) {
    // With stdout gone the sinks are still told.
    let _ = output::answer(&format!("{}\n", message.line()));
}

/// Reasons to wake the monitor between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    /// A message was delivered.
    Told,
    /// A signal.
    End,
}

/// Looks until a signal.
#[derive(Debug)]
struct Monitor {
    run_dir: PathBuf,
    asker: Asker,
    watch: Watch,
    outbox: Arc<Outbox>,
    /// State file; `None` if there are no sinks.
    kept: Option<StateFile>,
    latest: Latest,
    /// For the page.
    board: Arc<Mutex<Board>>,
    host: String,
    smart: Option<Smart>,
    wakes: Receiver<Wake>,
    delay: Duration,
    /// Last warning about a failed look.
    trouble: Option<String>,
}

impl Monitor {
    fn start(
        run_dir: &Path,
        args: &MonitorArgs,
        sinks: Vec<Sink>,
        latest: Latest,
    ) -> Result<Self, Failure> {
        let failed = |error: &io::Error| {
            let reason = system_error(error);
            Failure::refused("monitor", run_dir.display(), reason, "see what the machine lacks")
        };
        let kept = if sinks.is_empty() { None } else { Some(take_over(run_dir)?) };
        let left = kept.as_ref().and_then(|kept| left(kept, run_dir));
        if let Some(address) = &args.metrics {
            let router = metrics::router(latest.clone(), Nodes::of(&args.file.config));
            let at = http::serve("--metrics", address, router)?;
            // With stdout gone they are served all the same.
            let _ = output::answer(&format!("metrics at http://{at}/metrics\n"));
        }
        let board = Arc::new(Mutex::new(Board::default()));
        if let Some(address) = &args.web {
            let token = args.token.as_deref();
            let site = web::Site::new(run_dir, token, latest.clone(), Arc::clone(&board))?;
            let at = http::serve("--web", address, site.router())?;
            let _ = output::answer(&format!("page at http://{at}/\n"));
        }
        let (waker, wakes) = mpsc::channel();
        wake_on_signals(waker.clone()).map_err(|error| failed(&error))?;
        let (watch, MonitorState { pending, warned, .. }) = match left {
            None => (Watch::default(), MonitorState::default()),
            Some(mut state) => (Watch::resume(mem::take(&mut state.told)), state),
        };
        let smart = args.smart.as_ref().map(|smartctl| ask_disks(smartctl, &latest, warned));
        let smart = smart.transpose()?;
        let told = move || {
            // Nobody listens any more while the monitor ends.
            let _ = waker.send(Wake::Told);
        };
        let outbox = Outbox::start(sinks, pending, told).map_err(|error| failed(&error))?;
        Ok(Self {
            run_dir: run_dir.to_owned(),
            asker: Asker::new(run_dir),
            watch,
            outbox,
            kept,
            latest,
            board,
            host: output::host_name(),
            smart,
            wakes,
            delay: Duration::from_secs(args.delay),
            trouble: None,
        })
    }

    fn run(mut self, test: bool) -> Result<(), Failure> {
        let mut test = test;
        loop {
            let next = Instant::now() + self.delay;
            let looked = self.look(&mut test);
            let kept = self.keep();
            self.complain(looked.and(kept).err());
            if self.wait(next) == Wake::End {
                break;
            }
        }
        self.outbox.end(LAST_MOMENT);
        let kept = self.keep();
        self.complain(kept.err());
        Ok(())
    }

    /// Looks at all arrays, and puts the events into the outbox. Test messages come first, once.
    fn look(&mut self, test: &mut bool) -> Result<(), Failure> {
        let answers = self.asker.ask().map_err(|error| unreadable(&self.run_dir, &error))?;
        let seen: Vec<Seen> = answers.arrays.iter().flat_map(Seen::all).collect();
        let now_ms = u64::try_from(Utc::now().timestamp_millis()).unwrap_or(0);
        self.board().look(now_ms, &answers.arrays, answers.silent.clone());
        self.latest.set(answers.arrays);
        let tests = if mem::take(test) { seen.iter().map(Alert::test).collect() } else { vec![] };
        let warnings =
            self.smart.as_mut().map_or_else(Vec::new, |smart| disk_warnings(smart, &seen));
        let alerts = self.watch.look(seen, &answers.silent);
        for message in messages([tests, alerts, warnings].concat()) {
            say(&message);
            self.board().tell(message.json(&self.host));
            self.outbox.put(&message);
        }
        Ok(())
    }

    /// Not while `latest` is looked at: the page looks at both, in that order.
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the reported state and the undelivered messages, for the next monitor.
    fn keep(&mut self) -> Result<(), Failure> {
        let Some(kept) = &mut self.kept else { return Ok(()) };
        let warned = self.smart.as_ref().map_or_else(Warnings::new, |smart| smart.told().clone());
        let state =
            MonitorState { told: self.watch.told(), pending: self.outbox.waiting(), warned };
        kept.write(state).map_err(|error| {
            let reason = format!("cannot keep what was told: {}", system_error(&error));
            let next = "make room; events may be told again after a restart";
            Failure::refused("monitor", self.run_dir.display(), reason, next)
        })
    }

    /// Waits until the next look is due. Deliveries meanwhile are recorded at once.
    fn wait(&mut self, until: Instant) -> Wake {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.wakes.recv_timeout(left) {
                Ok(Wake::End) => return Wake::End,
                Err(_) => return Wake::Told,
                Ok(Wake::Told) => {
                    if let Err(failure) = self.keep() {
                        self.complain(Some(failure));
                    }
                }
            }
        }
    }

    /// Prints a failure, unless it is the same as before.
    fn complain(&mut self, failure: Option<Failure>) {
        let trouble = failure.as_ref().map(|failure| format!("{failure:?}"));
        if trouble != self.trouble
            && let Some(failure) = &failure
        {
            output::failure(failure);
        }
        self.trouble = trouble;
    }
}

/// Begins to ask the disks of members.
fn ask_disks(smartctl: &Path, latest: &Latest, told: Warnings) -> Result<Smart, Failure> {
    Smart::start(smartctl, latest.clone(), told).map_err(|error| {
        let reason = format!("cannot be run: {}", system_error(&error));
        let next = "install smartmontools, or name the program";
        Failure::refused("monitor --smart", smartctl.display(), reason, next)
    })
}

/// Returns alerts for new warnings of disks that are members of these arrays.
fn disk_warnings(smart: &mut Smart, seen: &[Seen]) -> Vec<Alert> {
    let news = smart.news().into_iter();
    let alert = |(member, warning): (String, String)| {
        let array = seen.iter().find(|array| array.members.contains_key(&member))?;
        Some(Alert::disk(array, &member, warning))
    };
    news.filter_map(alert).collect()
}

/// Locks the state file in this run directory.
fn take_over(run_dir: &Path) -> Result<StateFile, Failure> {
    StateFile::open(run_dir).map_err(|error| {
        let refused = |reason: &str, next: &'static str| {
            Failure::refused("monitor", run_dir.display(), reason, next)
        };
        match error.kind() {
            io::ErrorKind::WouldBlock => {
                refused("another monitor tells of its arrays", "end that one, or give it all sinks")
            }
            _ => unreadable(run_dir, &error),
        }
    })
}

/// Reads the state that the previous monitor left.
fn left(kept: &StateFile, run_dir: &Path) -> Option<MonitorState> {
    kept.read().unwrap_or_else(|error| {
        let reason = format!("cannot read what was told before: {}", system_error(&error));
        let object = run_dir.display();
        output::warning(&format!("monitor {object}: {reason}; all is told as if it were new"));
        None
    })
}

fn wake_on_signals(waker: Sender<Wake>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let wait = move || {
        for _ in signals.forever() {
            // Nobody listens any more while the monitor ends.
            let _ = waker.send(Wake::End);
        }
    };
    thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;

    use tempfile::TempDir;

    /// A program that a shell reads, and the directory that it is in. Another process writes it: a
    /// file that this one has open for writing is open in each child that another test is about to
    /// start, too, and cannot be run until that child is (ETXTBSY).
    pub(super) fn script(text: &str) -> (TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("a directory");
        let written = dir.path().join("written");
        let program = dir.path().join("program");
        std::fs::write(&written, format!("#!/bin/sh\n{text}\n")).expect("a script");
        let status =
            Command::new("install").args(["-m", "0755"]).args([&written, &program]).status();
        assert!(status.expect("install(1)").success());
        (dir, program)
    }
}
