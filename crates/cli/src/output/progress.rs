//! Progress of background work: a bar on a terminal, elsewhere lines for who wants them.

use std::time::{Duration, Instant};

use braid_array::SECTOR_BYTES;
use braid_array::status::SyncStatus;
use indicatif::{ProgressBar, ProgressStyle};

use super::work::{in_words, pace};
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
                bar.set_message(format!("{} {}", sync.action.name(), pace(sync)));
                Ok(())
            }
            Shape::Lines(last) => {
                let Some(state) = in_words(sync) else { return Ok(()) };
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
