//! Undelivered messages: a queue for each sink, served by a thread of its own. A sink that fails or
//! hangs delays neither the other sinks nor the monitoring.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use super::message::Message;
use super::sinks::Sink;
use crate::output;

/// More messages than these do not wait for one sink.
const MAX_WAITING: usize = 1000;
/// When to try again after a failure; each time twice as late.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The queues, shared with the threads that serve them.
#[derive(Debug)]
pub(super) struct Outbox {
    sinks: Vec<Sink>,
    queues: Mutex<Queues>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queues {
    waiting: BTreeMap<String, VecDeque<Message>>,
    /// Sinks that are being told something at the moment.
    busy: usize,
    ended: bool,
}

impl Outbox {
    /// Starts with the messages left by the previous monitor. The thread of each sink calls `told`
    /// after a delivery.
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub(super) fn start(
        sinks: Vec<Sink>,
        mut left: BTreeMap<String, Vec<Message>>,
        told: impl Fn() + Clone + Send + 'static,
    ) -> io::Result<Arc<Self>> {
        let mut queues = Queues::default();
        for sink in &sinks {
            let waiting = left.remove(sink.name()).unwrap_or_default();
            queues.waiting.insert(sink.name().to_owned(), waiting.into());
        }
        let queues = Mutex::new(queues);
        let outbox = Arc::new(Self { sinks, queues, changed: Condvar::new() });
        for at in 0..outbox.sinks.len() {
            let outbox = Arc::clone(&outbox);
            let told = told.clone();
            let serve = move || outbox.serve(&outbox.sinks[at], told);
            thread::Builder::new().name("sink".into()).spawn(serve)?;
        }
        Ok(outbox)
    }

    /// Tells all sinks that want to know of it, as soon as they can be told.
    pub(super) fn put(&self, message: &Message) {
        let mut queues = self.lock();
        for sink in self.sinks.iter().filter(|sink| sink.wants(message.alert.event)) {
            let waiting = queues.waiting.entry(sink.name().to_owned()).or_default();
            waiting.push_back(message.clone());
            if waiting.len() > MAX_WAITING {
                // The first is maybe on its way.
                let lost = waiting.remove(1).map_or_else(String::new, |lost| lost.line());
                let reason = format!("{MAX_WAITING} messages wait already, {lost} is left out");
                output::warning(&format!("monitor {}: {reason}; see why it fails", sink.name()));
            }
        }
        self.changed.notify_all();
    }

    /// Returns the undelivered messages of each sink.
    pub(super) fn waiting(&self) -> BTreeMap<String, Vec<Message>> {
        let queues = self.lock();
        let waiting = queues.waiting.iter().filter(|(_, waiting)| !waiting.is_empty());
        waiting.map(|(sink, waiting)| (sink.clone(), waiting.iter().cloned().collect())).collect()
    }

    /// Begins no more deliveries, and waits for those in progress up to `patience`.
    pub(super) fn end(&self, patience: Duration) {
        let mut queues = self.lock();
        queues.ended = true;
        self.changed.notify_all();
        let ended = self.changed.wait_timeout_while(queues, patience, |queues| queues.busy > 0);
        drop(ended);
    }

    fn serve(&self, sink: &Sink, told: impl Fn()) {
        let mut pause = FIRST_PAUSE;
        while let Some(message) = self.next(sink.name()) {
            let result = sink.tell(&message);
            self.done(sink.name(), result.is_ok());
            match result {
                Ok(()) => {
                    told();
                    pause = FIRST_PAUSE;
                }
                Err(reason) => {
                    let again = pause.as_secs();
                    let line = format!("monitor {}: {reason}", sink.name());
                    output::warning(&format!("{line}; it is tried again in {again} s"));
                    self.wait(pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// The oldest message of a queue, which stays there until it was told.
    fn next(&self, sink: &str) -> Option<Message> {
        let mut queues = self.lock();
        loop {
            if queues.ended {
                return None;
            }
            if let Some(message) = queues.waiting.get(sink).and_then(VecDeque::front).cloned() {
                queues.busy += 1;
                return Some(message);
            }
            queues = self.changed.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn done(&self, sink: &str, well: bool) {
        let mut queues = self.lock();
        queues.busy -= 1;
        if well && let Some(waiting) = queues.waiting.get_mut(sink) {
            waiting.pop_front();
        }
        self.changed.notify_all();
    }

    /// Until the pause is over or the monitor ends.
    fn wait(&self, pause: Duration) {
        let until = Instant::now() + pause;
        let mut queues = self.lock();
        while !queues.ended {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let woken = self.changed.wait_timeout(queues, left);
            queues = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    use crate::args::{ConfigFileArgs, MonitorArgs};
    use crate::cmd::monitor::events::Alert;
    use crate::cmd::monitor::seen::Seen;
    use crate::cmd::monitor::sinks::{Latest, sinks};

    fn message(number: usize) -> Message {
        let alert = Alert::test(&Seen { name: number.to_string(), ..Seen::default() });
        Message { alert, time: String::new() }
    }

    /// Returns a sink on a port without a listener.
    fn unreachable() -> Vec<Sink> {
        let args = MonitorArgs {
            program: Vec::new(),
            mail: Vec::new(),
            mail_from: None,
            smtp: None,
            smtp_password: None,
            webhook: vec!["http://127.0.0.1:1/".to_owned()],
            smart: None,
            metrics: None,
            file: ConfigFileArgs { config: PathBuf::new() },
            web: None,
            token: None,
            oneshot: false,
            test: false,
            delay: 1,
        };
        sinks(&args, &Latest::default()).expect("an address")
    }

    #[test]
    fn a_queue_is_bounded_and_keeps_what_is_on_its_way_and_the_newest() {
        let left = vec![message(0), message(1)];
        let left = BTreeMap::from([("http://127.0.0.1:1/".to_owned(), left)]);
        let outbox = Outbox::start(unreachable(), left, || panic!("told")).expect("a thread");
        for number in 2..=MAX_WAITING {
            outbox.put(&message(number));
        }
        outbox.end(Duration::from_secs(60));
        let mut waiting = outbox.waiting();
        let waiting = waiting.remove("http://127.0.0.1:1/").expect("a queue");
        assert_eq!(waiting.len(), MAX_WAITING);
        assert_eq!(waiting[..2], [message(0), message(2)]);
        assert_eq!(waiting.last(), Some(&message(MAX_WAITING)));
    }
}
