//! Leaving the terminal: the command starts itself again in a session of its own, and returns when
//! the new process serves or has failed.
//!
//! Until it serves, the new process keeps stdout and stderr, so errors appear on the user's
//! terminal. Its stdin is a socket to the first process, on which it says that it is ready.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

/// Set for the second process, by the first one alone.
const VARIABLE: &str = "BRAID_DAEMON";

const READY: &[u8] = b"ready";

/// Result of starting the second process.
#[derive(Debug)]
pub enum Started {
    /// Serving.
    Serving {
        /// Its process id.
        pid: u32,
    },
    /// Ended, with the reason written to stderr.
    Ended(ExitStatus),
}

/// Runs this program with the same arguments again, as [`Daemon`], and waits until it is ready.
///
/// # Errors
/// When the process cannot be started.
pub fn start() -> io::Result<Started> {
    let mut arguments = std::env::args_os();
    let mut command = Command::new("/proc/self/exe");
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments);
    start_command(command)
}

fn start_command(mut command: Command) -> io::Result<Started> {
    let (mut ours, theirs) = UnixStream::pair()?;
    let mut child = command.env(VARIABLE, "1").stdin(OwnedFd::from(theirs)).spawn()?;
    // The command holds the child's end as well.
    drop(command);
    let mut said = Vec::new();
    // A child that dies with its end unread resets the connection: as good as its end.
    let _ = ours.read_to_end(&mut said);
    if said == READY {
        return Ok(Started::Serving { pid: child.id() });
    }
    Ok(Started::Ended(child.wait()?))
}

/// The second process: to be asked for before anything else is done.
#[derive(Debug)]
pub struct Daemon(());

impl Daemon {
    /// Returns the daemon if this is the second process, which has a session of its own from here
    /// on.
    #[must_use]
    pub fn adopt() -> Option<Self> {
        std::env::var_os(VARIABLE)?;
        // Fails only where it is in a session of its own already.
        let _ = rustix::process::setsid();
        // It was started by /proc/self/exe, and would be called "exe".
        let _ = rustix::thread::set_name(c"braid");
        Some(Self(()))
    }

    /// Says that the array is served, and lets go of the terminal: stderr goes to `log` from here
    /// on, and no file system is held busy by the working directory.
    ///
    /// # Errors
    /// When the log cannot be opened or the descriptors cannot be replaced.
    pub fn ready(self, log: &Path) -> io::Result<()> {
        let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
        std::env::set_current_dir("/")?;
        // When it serves a disk, its own memory must not wait for that disk. Needs a capability.
        let _ = rustix::process::configure_io_flusher_behavior(true);
        rustix::io::write(rustix::stdio::stdin(), READY)?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        crate::log::to_file(log)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn the_first_process_waits_for_the_word_or_the_end() {
        // As `ready` does it: the word, then /dev/null in place of the socket, then it goes on.
        let script = "printf ready >&0; exec 0</dev/null >/dev/null; read _; exec sleep 60";
        let Started::Serving { pid } = start_command(shell(script)).unwrap() else { panic!() };
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();

        let Started::Ended(status) = start_command(shell("exit 3")).unwrap() else { panic!() };
        assert_eq!(status.code(), Some(3));
        let Started::Ended(status) = start_command(shell("kill -9 $$")).unwrap() else { panic!() };
        assert_eq!(status.signal(), Some(9));
        let script = "printf rea >&0; exit 0";
        assert!(matches!(start_command(shell(script)).unwrap(), Started::Ended(_)));
    }
}
