//! Progress of background work, as a bar on a terminal and as nothing elsewhere.

use std::time::Duration;

use braid_array::SECTOR_BYTES;
use braid_array::status::SyncStatus;
use indicatif::{ProgressBar, ProgressStyle};

/// A bar that follows an array's background work.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// How often to look.
    pub(crate) const INTERVAL: Duration = Duration::from_millis(200);

    pub(crate) fn new(name: &str) -> Self {
        if !super::shows_progress() {
            return Self { bar: ProgressBar::hidden() };
        }
        let bar = ProgressBar::new(0).with_prefix(name.to_owned());
        let template = "{prefix} {msg} [{bar:30}] {percent}% {binary_bytes}/{binary_total_bytes}";
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| {
            // The template is ours and fixed.
            ProgressStyle::default_bar()
        });
        bar.set_style(style.progress_chars("=> "));
        Self { bar }
    }

    pub(crate) fn show(&mut self, sync: &SyncStatus) {
        let mut message = sync.action.name().to_owned();
        if sync.paused {
            message.push_str(" (paused)");
        } else {
            message.push_str(&format!(" {}", speed(sync)));
        }
        self.bar.set_length(sync.total_sectors * SECTOR_BYTES);
        self.bar.set_position(sync.done_sectors * SECTOR_BYTES);
        self.bar.set_message(message);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
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
