//! Progress of background work: a bar on a terminal, lines elsewhere.

use std::time::{Duration, Instant};

use braid_array::SECTOR_BYTES;
use braid_array::status::Status;
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
    /// The last printed line, with its time.
    Lines(Option<(String, Instant)>),
}

impl Progress {
    /// Interval between two looks.
    pub(crate) const INTERVAL: Duration = Duration::from_millis(200);
    /// Shortest interval between two lines.
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
        Self::on(bar, name)
    }

    /// Creates a bar on one line: it takes the room left by the words.
    fn on(bar: ProgressBar, name: &str) -> Self {
        let template = "{prefix} [{wide_bar}] {percent}% {msg}";
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| {
            // The template is ours and fixed.
            ProgressStyle::default_bar()
        });
        bar.set_style(style.progress_chars("=> "));
        bar.set_prefix(short(name));
        Self { name: name.to_owned(), shape: Shape::Bar(bar) }
    }

    /// Shows how far it is now.
    pub(crate) fn show(&mut self, status: &Status) -> Result<(), Failure> {
        let sync = &status.sync;
        match &mut self.shape {
            Shape::Bar(bar) => {
                bar.set_length(sync.total_sectors * SECTOR_BYTES);
                bar.set_position(sync.done_sectors * SECTOR_BYTES);
                bar.set_message(format!("{} {}", sync.action.name(), pace(sync)));
                Ok(())
            }
            Shape::Lines(last) => {
                let Some(state) = in_words(status) else { return Ok(()) };
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

/// Shortens a name, so that a line of 80 columns has room for the rest.
fn short(name: &str) -> String {
    const MOST: usize = 20;
    if name.chars().count() <= MOST {
        return name.to_owned();
    }
    name.chars().take(MOST - 3).chain("...".chars()).collect()
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Shape::Bar(bar) = &self.shape {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use braid_array::events::SyncAction;
    use braid_array::status::SyncStatus;
    use indicatif::{ProgressDrawTarget, TermLike};

    use super::*;

    /// A terminal of 80 columns, with the text written to it.
    #[derive(Clone, Debug, Default)]
    struct Terminal(Arc<Mutex<String>>);

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            self.0.lock().unwrap().push('\n');
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn progress_is_one_line_of_a_terminal_of_80_columns() {
        let sync = SyncStatus {
            action: SyncAction::Recovery,
            done_sectors: 1 << 30,
            total_sectors: 1 << 38,
            bytes_per_s: 1_234_567_890,
            finish_s: Some(360_000),
            ..SyncStatus::default()
        };
        for name in ["home", "a name of thirty-two characters."] {
            let terminal = Terminal::default();
            let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
            let mut progress = Progress::on(ProgressBar::with_draw_target(None, target), name);
            progress.show(&Status { sync, ..Status::blank() }).unwrap();
            let shown = terminal.0.lock().unwrap().clone();
            let line = shown.lines().find(|line| line.contains("recovery 1177.3 MiB/s, 100 h"));
            let line = line.unwrap_or_else(|| panic!("{shown:?}"));
            assert!(line.contains("left") && line.contains("0%"), "{line}");
            assert!(line.trim_end().chars().count() <= 80, "{line}");
        }
    }
}
