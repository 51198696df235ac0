//! The log of a process that serves: a line for each event, with its time, its level and its
//! subject as fields. Lines go to stderr until the terminal is left, and then to a file, of which
//! the end is kept.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

mod limit;

pub(crate) use limit::{LineLimit, Verdict};

/// A file that has grown beyond this becomes `NAME.log.1`, in place of the one before.
const MAX_FILE_BYTES: u64 = 1 << 20;

static SINK: Mutex<Sink> = Mutex::new(Sink::Stderr);

/// Lines go to stderr from here on. For the process as a whole; more than once does no harm.
pub(crate) fn begin() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let lines = tracing_subscriber::fmt().with_writer(Log).with_target(false).with_ansi(false);
        // Whoever uses this as a library may have one of its own.
        let _ = if goes_to_the_journal() {
            let format = Format::default().without_time().with_level(false).with_target(false);
            let lines = lines.event_format(Journal(format.with_ansi(false)));
            tracing::subscriber::set_global_default(lines.finish())
        } else {
            tracing::subscriber::set_global_default(lines.finish())
        };
    });
}

/// Returns whether stderr is the stream of the system's journal that the environment names
/// (systemd.exec(5)).
fn goes_to_the_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let stat = rustix::fs::fstat(rustix::stdio::stderr());
    stat.is_ok_and(|stat| format!("{}:{}", stat.st_dev, stat.st_ino) == stream)
}

/// Lines for the journal, which has time and process itself, and reads the level in front of each
/// (`SyslogLevelPrefix=`).
struct Journal(Format<Full, ()>);

impl<S, N> FormatEvent<S, N> for Journal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "<{}>", level_of_syslog(*event.metadata().level()))?;
        self.0.format_event(context, writer, event)
    }
}

/// Returns the number of a level in syslog(3).
const fn level_of_syslog(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// Writes lines to this file from here on, as well as all other output to stderr.
///
/// # Errors
/// When it cannot be opened or stderr cannot be replaced.
pub(crate) fn to_file(path: &Path) -> io::Result<()> {
    let kept = Kept::open(path.to_owned(), MAX_FILE_BYTES)?;
    rustix::stdio::dup2_stderr(&kept.file)?;
    *sink() = Sink::File(kept);
    Ok(())
}

fn sink() -> MutexGuard<'static, Sink> {
    SINK.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
enum Sink {
    Stderr,
    File(Kept),
}

/// The end of a log.
#[derive(Debug)]
struct Kept {
    path: PathBuf,
    file: File,
    bytes: u64,
    max_bytes: u64,
}

impl Kept {
    fn open(path: PathBuf, max_bytes: u64) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(&path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path, file, bytes, max_bytes })
    }

    /// Appends; says whether the file is another one since. Where there can be no other one, this
    /// one grows: a file too long is better than lines lost.
    fn append(&mut self, line: &[u8]) -> io::Result<bool> {
        let full = self.bytes > 0 && self.bytes + line.len() as u64 > self.max_bytes;
        let next = full.then(|| self.begin_anew().ok()).flatten();
        let another = next.is_some();
        if let Some(next) = next {
            *self = next;
        }
        self.file.write_all(line)?;
        self.bytes += line.len() as u64;
        Ok(another)
    }

    fn begin_anew(&self) -> io::Result<Self> {
        let mut old = self.path.clone().into_os_string();
        old.push(".1");
        // Done already, when opening the new file failed the last time.
        let _ = std::fs::rename(&self.path, old);
        Self::open(self.path.clone(), self.max_bytes)
    }
}

/// Writes whole lines to wherever they go.
#[derive(Clone, Copy, Debug)]
struct Log;

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }
}

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match &mut *sink() {
            Sink::Stderr => io::stderr().write_all(line)?,
            Sink::File(kept) => {
                if kept.append(line)? {
                    rustix::stdio::dup2_stderr(&kept.file)?;
                }
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_reads_levels_as_syslog_numbers_them() {
        assert_eq!([Level::ERROR, Level::WARN, Level::INFO].map(level_of_syslog), [3, 4, 6]);
    }

    #[test]
    fn a_log_keeps_its_end_in_two_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.log");
        let old = directory.path().join("a.log.1");
        let mut kept = Kept::open(path.clone(), 10).unwrap();
        assert!(!kept.append(b"12345\n").unwrap());
        assert!(!kept.append(b"678\n").unwrap());
        assert!(kept.append(b"next\n").unwrap());
        assert_eq!(std::fs::read(&old).unwrap(), b"12345\n678\n");
        assert!(kept.append(b"a line longer than all of it\n").unwrap());
        assert_eq!(std::fs::read(&old).unwrap(), b"next\n");
        drop(kept);
        // Another process goes on where the first one ended.
        let mut kept = Kept::open(path.clone(), 10).unwrap();
        assert!(kept.append(b"again\n").unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"again\n");
        assert_eq!(std::fs::read(&old).unwrap(), b"a line longer than all of it\n");
    }

    #[test]
    fn a_log_that_cannot_begin_anew_goes_on_and_does_so_later() {
        let directory = tempfile::tempdir().unwrap();
        let run_dir = directory.path().join("run");
        std::fs::create_dir(&run_dir).unwrap();
        let path = run_dir.join("a.log");
        let mut kept = Kept::open(path.clone(), 10).unwrap();
        kept.append(b"12345678\n").unwrap();
        std::fs::remove_dir_all(&run_dir).unwrap();
        assert!(!kept.append(b"nowhere to go\n").unwrap());
        std::fs::create_dir(&run_dir).unwrap();
        assert!(kept.append(b"again\n").unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"again\n");
    }
}
