//! Processes that a measurement talks with, line by line, and what the system says of them.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// The kernel counts CPU time in hundredths of a second on every architecture.
const TICKS_A_SECOND: f64 = 100.0;
/// Time between two looks at what is waited for.
const POLL: Duration = Duration::from_millis(5);

/// A process that is killed when this is dropped. Its stderr goes into a file.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<io::Result<String>>,
    log: PathBuf,
}

impl Process {
    /// Starts a process. Call this on the main thread: the process ends with the thread that starts
    /// it.
    pub fn start(mut command: Command, log: PathBuf) -> io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().map(BufReader::new);
        let (sender, lines) = mpsc::channel();
        thread::Builder::new().name("lines".into()).spawn(move || {
            let mut lines = stdout.into_iter().flat_map(BufRead::lines);
            // Nobody listens any longer when sending fails.
            while lines.next().is_some_and(|line| sender.send(line).is_ok()) {}
        })?;
        Ok(Self { child, stdin, lines, log })
    }

    /// The next line that it says. An error says what it said last on stderr.
    pub fn read_line(&self, patience: Duration) -> Result<String, String> {
        match self.lines.recv_timeout(patience) {
            Ok(Ok(line)) => Ok(line),
            Ok(Err(error)) => Err(error.to_string()),
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("it said nothing for {} seconds", patience.as_secs()))
            }
            Err(RecvTimeoutError::Disconnected) => Err(last_line(&self.log)),
        }
    }

    /// Says a line to it.
    pub fn write_line(&mut self, line: &str) -> io::Result<()> {
        self.stdin.as_mut().map_or(Ok(()), |stdin| writeln!(stdin, "{line}"))
    }

    /// Closes stdin, and waits until the process has ended.
    pub fn finish(&mut self, patience: Duration) -> Result<(), String> {
        drop(self.stdin.take());
        loop {
            match self.lines.recv_timeout(patience) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => return Err("it does not end".to_owned()),
            }
        }
        let status = self.child.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(last_line(&self.log)) }
    }

    /// The last line that it said on stderr.
    pub fn last_error(&self) -> String {
        last_line(&self.log)
    }

    /// Number of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether it is no longer running.
    pub fn has_ended(&self) -> bool {
        !is_running(self.id())
    }

    /// CPU seconds that it has used.
    pub fn cpu_seconds(&self) -> Option<f64> {
        cpu_seconds(self.id())
    }

    /// The most memory that it has used.
    pub fn peak_memory_bytes(&self) -> Option<u64> {
        parse_peak(&fs::read_to_string(format!("/proc/{}/status", self.id())).ok()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns whether a process runs. One that has ended and was not waited for yet does not.
pub fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Waits until something is so, for this time at the most; whether it is.
pub fn until(patience: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + patience;
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        thread::sleep(POLL);
    }
}

/// CPU seconds that a process has used, its threads that have ended included.
pub fn cpu_seconds(pid: impl Display) -> Option<f64> {
    parse_cpu(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn last_line(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    last.map_or_else(|| "it ended early".to_owned(), |line| format!("it says '{line}'"))
}

/// Fields 14 and 15 of /proc/PID/stat. The name, field 2, may contain anything.
fn parse_cpu(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let tick = |number: usize| fields.split_whitespace().nth(number - 3)?.parse::<u64>().ok();
    Some((tick(14)? + tick(15)?) as f64 / TICKS_A_SECOND)
}

fn parse_peak(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_understood() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 9 9 20 0 1 0 5 6 7";
        assert_eq!(parse_cpu(stat), Some(3.0));
        assert_eq!(parse_cpu("7 (a"), None);
        assert_eq!(parse_peak("Name:\ta\nVmHWM:\t    2048 kB\n"), Some(2 << 20));
    }

    #[test]
    fn lines_go_both_ways_and_an_early_end_says_why() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut command = Command::new("sh");
        command.args(["-c", "read word; echo got $word; echo broken >&2; exit 3"]);
        let mut process = Process::start(command, directory.path().join("log")).expect("a process");
        assert!(process.cpu_seconds().is_some() && process.peak_memory_bytes().is_some());
        process.write_line("this").expect("it listens");
        let patience = Duration::from_secs(10);
        assert_eq!(process.read_line(patience), Ok("got this".to_owned()));
        assert_eq!(process.read_line(patience), Err("it says 'broken'".to_owned()));
        assert!(until(patience, || process.has_ended()) && is_running(std::process::id()));
        assert_eq!(process.finish(patience), Err("it says 'broken'".to_owned()));
    }
}
