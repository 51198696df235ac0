//! Progress of background work: a bar on a terminal, elsewhere lines for who wants them.

use std::time::{Duration, Instant};

use braid_array::SECTOR_BYTES;
use braid_array::status::SyncStatus;
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::{Failure, one_line};

/// Follows an array's background work.
#[derive(Debug)]
pub(crate) struct Progress {
    name: String,
    shape: Shape,
}

#[derive(Debug)]
enum Shape {
    Bar(ProgressBar),
    /// What was printed last, and when.
    Lines(Option<(String, Instant)>),
}

impl Progress {
    /// How often to look.
    pub(crate) const INTERVAL: Duration = Duration::from_millis(200);
    /// How often to print a line, at most.
    const LINE_INTERVAL: Duration = Duration::from_secs(1);

    /// A bar on a terminal; in a file or pipe a line for each change, at most one a second.
    pub(crate) fn new(name: &str) -> Self {
        if super::is_read_by_a_program() {
            return Self { name: name.to_owned(), shape: Shape::Lines(None) };
        }
        Self::bar(name)
    }

    /// A bar on a terminal, nothing elsewhere.
    pub(crate) fn bar(name: &str) -> Self {
        let bar = if super::shows_progress() { ProgressBar::new(0) } else { ProgressBar::hidden() };
        let bar = bar.with_prefix(name.to_owned());
        let template = "{prefix} {msg} [{bar:30}] {percent}% {binary_bytes}/{binary_total_bytes}";
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| {
            // The template is ours and fixed.
            ProgressStyle::default_bar()
        });
        bar.set_style(style.progress_chars("=> "));
        Self { name: name.to_owned(), shape: Shape::Bar(bar) }
    }

    /// Shows how far it is now.
    pub(crate) fn show(&mut self, sync: &SyncStatus) -> Result<(), Failure> {
        match &mut self.shape {
            Shape::Bar(bar) => {
                bar.set_length(sync.total_sectors * SECTOR_BYTES);
                bar.set_position(sync.done_sectors * SECTOR_BYTES);
                bar.set_message(message(sync));
                Ok(())
            }
            Shape::Lines(last) => {
                let Some(state) = super::status::sync_line(sync) else { return Ok(()) };
                let new = last
                    .as_ref()
                    .is_none_or(|(line, at)| *line != state && at.elapsed() >= Self::LINE_INTERVAL);
                if !new {
                    return Ok(());
                }
                let line = one_line(&format!("{}: {state}", self.name));
                *last = Some((state, Instant::now()));
                super::answer(&format!("{line}\n"))
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Shape::Bar(bar) = &self.shape {
            bar.finish_and_clear();
        }
    }
}

fn message(sync: &SyncStatus) -> String {
    let action = sync.action.name();
    if sync.paused { format!("{action} (paused)") } else { format!("{action} {}", speed(sync)) }
}

/// `103.2 MiB/s, 12 s left`.
pub(super) fn speed(sync: &SyncStatus) -> String {
    let mib = sync.bytes_per_s / 104_858;
    let speed = format!("{}.{} MiB/s", mib / 10, mib % 10);
    match sync.finish_s {
        None => speed,
        Some(s @ ..120) => format!("{speed}, {s} s left"),
        Some(s @ ..7200) => format!("{speed}, {} min left", s / 60),
        Some(s) => format!("{speed}, {} h {} min left", s / 3600, s % 3600 / 60),
    }
}
