//! Speed limits of background work, also by the time of day. The array itself knows the limits of
//! the moment alone; a thread here tells it when others begin, by the clock of this machine.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use braid_array::Refusal;
use braid_array::action::Command;
use chrono::Timelike;
use serde::{Deserialize, Serialize};

use crate::submission::{Message, SubmissionQueue};

/// Minutes of a day.
pub const DAY: u16 = 24 * 60;

/// A limit, in bytes per second and member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Limit at all other times.
    pub usual: u64,
    /// Others at times of the day, none of which overlap.
    #[serde(default)]
    pub windows: Vec<DailyWindow>,
}

/// A limit that holds every day at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DailyWindow {
    /// The first minute of the day.
    pub from: u16,
    /// The minute after the last one; before the first one where it goes on after midnight.
    pub until: u16,
    /// The limit.
    pub bytes_per_s: u64,
}

impl DailyWindow {
    /// Returns whether it holds in this minute of the day.
    #[must_use]
    pub const fn holds(&self, minute: u16) -> bool {
        if self.from < self.until {
            self.from <= minute && minute < self.until
        } else {
            self.from <= minute || minute < self.until
        }
    }
}

impl Limit {
    /// The limit in this minute of the day.
    #[must_use]
    pub fn at(&self, minute: u16) -> u64 {
        let window = self.windows.iter().find(|window| window.holds(minute));
        window.map_or(self.usual, |window| window.bytes_per_s)
    }
}

/// Both limits; an unset one is the array's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Speed to be kept up whatever else goes on.
    pub min: Option<Limit>,
    /// Never to exceed.
    pub max: Option<Limit>,
}

impl Limits {
    /// Returns the command that sets the limits of this minute of the day.
    fn command(&self, minute: u16) -> Option<Command> {
        let at = |limit: &Option<Limit>| limit.as_ref().map(|limit| limit.at(minute));
        let min_bytes_s = at(&self.min);
        let max_bytes_s = at(&self.max);
        let any = min_bytes_s.is_some() || max_bytes_s.is_some();
        any.then_some(Command::SpeedLimits { min_bytes_s, max_bytes_s })
    }

    /// Returns these limits, and those of `others` where these are unset.
    #[must_use]
    pub fn over(self, others: Self) -> Self {
        Self { min: self.min.or(others.min), max: self.max.or(others.max) }
    }

    /// Returns whether a limit depends on the time of day.
    fn change(&self) -> bool {
        [&self.min, &self.max].into_iter().flatten().any(|limit| !limit.windows.is_empty())
    }
}

/// Keeps to the limits of a running array.
#[derive(Clone, Debug)]
pub struct LimitKeeper {
    limits: Arc<Mutex<Limits>>,
    submissions: SubmissionQueue,
    changed: Sender<()>,
}

impl LimitKeeper {
    /// Starts without limits. The thread ends when all copies of this are dropped.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(submissions: SubmissionQueue) -> io::Result<Self> {
        let (changed, changes) = mpsc::channel();
        let keeper = Self { limits: Arc::default(), submissions: submissions.clone(), changed };
        let limits = Arc::clone(&keeper.limits);
        let follow = move || follow(&limits, &submissions, &changes);
        thread::Builder::new().name("limits".into()).spawn(follow)?;
        Ok(keeper)
    }

    /// Has an array that does not run yet begin with these limits: nothing goes on in the
    /// background before it knows of them.
    pub fn begin(&self, limits: Limits) {
        if let Some(command) = limits.command(minute_now()) {
            self.tell(command);
        }
        *locked(&self.limits) = limits;
        // The thread lives as long as this.
        let _ = self.changed.send(());
    }

    /// Has it begin with a pause.
    pub fn begin_paused(&self) {
        self.tell(Command::Pause(true));
    }

    /// No array refuses these commands, and one that has ended tells why by itself.
    fn tell(&self, command: Command) {
        let done = Box::new(|_| ());
        let _ = self.submissions.send(Message::Command { command, device: None, done });
    }

    /// Returns the present limits.
    #[must_use]
    pub fn get(&self) -> Limits {
        locked(&self.limits).clone()
    }

    /// Sets one or both from here on.
    ///
    /// # Errors
    /// As the array says. `None` when it has ended.
    pub fn set(&self, change: Limits) -> Option<Result<(), Refusal>> {
        let limits = change.over(self.get());
        let command = limits.command(minute_now());
        let answer = command.map_or(Some(Ok(())), |command| {
            self.submissions.call(|done| Message::Command { command, device: None, done })
        });
        if let Some(Ok(())) = &answer {
            *locked(&self.limits) = limits;
            // The thread ends after this.
            let _ = self.changed.send(());
        }
        answer
    }
}

fn locked(limits: &Mutex<Limits>) -> MutexGuard<'_, Limits> {
    limits.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the array's present limits, every minute while they may change.
fn follow(limits: &Mutex<Limits>, submissions: &SubmissionQueue, changes: &Receiver<()>) {
    loop {
        let now = locked(limits).clone();
        let waited = if now.change() {
            let second = chrono::Local::now().second();
            let to_next_minute = 60u32.saturating_sub(second).max(1);
            changes.recv_timeout(Duration::from_secs(to_next_minute.into()))
        } else {
            changes.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match waited {
            Ok(()) => {}
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let Some(command) = locked(limits).command(minute_now()) else { continue };
                // What is refused now is said again in a minute.
                let done = Box::new(|_| ());
                if !submissions.send(Message::Command { command, device: None, done }) {
                    return;
                }
            }
        }
    }
}

/// The minute of the day, as clocks on the wall here show it.
fn minute_now() -> u16 {
    let now = chrono::Local::now();
    u16::try_from(now.hour() * 60 + now.minute()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_may_go_on_after_midnight() {
        let night = DailyWindow { from: 22 * 60, until: 6 * 60, bytes_per_s: u64::MAX };
        let noon = DailyWindow { from: 12 * 60, until: 13 * 60, bytes_per_s: 5 };
        let limit = Limit { usual: 200, windows: vec![night, noon] };
        let at = |hour: u16, minute: u16| limit.at(hour * 60 + minute);
        assert_eq!([at(21, 59), at(6, 0), at(11, 59), at(13, 0)], [200; 4]);
        assert_eq!([at(22, 0), at(23, 59), at(0, 0), at(5, 59)], [u64::MAX; 4]);
        assert_eq!([at(12, 0), at(12, 59)], [5; 2]);
        let evening = DailyWindow { from: 20 * 60, until: DAY, bytes_per_s: 1 };
        assert!(evening.holds(DAY - 1) && !evening.holds(0));
    }

    #[test]
    fn only_what_is_set_is_told() {
        let limit = |usual| Some(Limit { usual, windows: Vec::new() });
        assert!(Limits::default().command(0).is_none());
        let limits = Limits { min: None, max: limit(7) };
        let told = limits.command(0).unwrap();
        let max = Command::SpeedLimits { min_bytes_s: None, max_bytes_s: Some(7) };
        assert_eq!(format!("{told:?}"), format!("{max:?}"));
        assert!(!limits.change());
    }
}
