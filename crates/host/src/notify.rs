//! Notifications to the service manager that has started the process (`sd_notify(3)`): words sent
//! to the socket named in the environment. Without a manager nothing is sent; a manager that misses
//! a message gives up on us by its own timeout.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

pub(crate) mod kept;

/// Time that a stop asks for at once. Asked again after a third of that.
const STOP_TAKES: Duration = Duration::from_secs(30);

/// Reports that the process serves.
pub fn ready() {
    say("READY=1");
}

/// Reports the present activity in one line, for people.
pub fn status(line: &str) {
    say(&format!("STATUS={}", line.replace('\n', " ")));
}

/// Asks for so much time from now on, and a little more, until the process serves or has ended.
pub fn extend(by: Duration) {
    let micros = (by + STOP_TAKES).as_micros();
    say(&format!("EXTEND_TIMEOUT_USEC={micros}"));
}

fn say(words: &str) {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET") {
        let _ = send(&socket, words);
    }
}

fn send(socket: &OsStr, words: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(words.as_bytes(), &address).map(drop)
}

/// Returns the interval in which the manager expects signs of life; `None` if it expects none.
#[must_use]
pub fn watchdog() -> Option<Duration> {
    let variable = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    if variable("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id())) {
        return None;
    }
    variable("WATCHDOG_USEC").filter(|micros| *micros > 0).map(Duration::from_micros)
}

/// Reports to the manager, twice as often as it wants, as long as `is_well` returns true. Ends when
/// the result is dropped.
///
/// # Errors
/// When the thread cannot be started.
pub fn watch(is_well: impl Fn() -> bool + Send + 'static) -> io::Result<Option<Watched>> {
    let Some(interval) = watchdog() else { return Ok(None) };
    let tell = move || {
        if is_well() {
            say("WATCHDOG=1");
        }
    };
    every(interval / 2, tell).map(Some)
}

/// Reports to the manager that it stops, and asks for more time until the result is dropped.
///
/// # Errors
/// When the thread cannot be started.
pub fn stopping() -> io::Result<Option<Watched>> {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return Ok(None);
    }
    say("STOPPING=1\nSTATUS=stops");
    let micros = STOP_TAKES.as_micros();
    let more = format!("EXTEND_TIMEOUT_USEC={micros}\nWATCHDOG=1");
    every(STOP_TAKES / 3, move || say(&more)).map(Some)
}

/// Repeats a notification until it is dropped.
#[derive(Debug)]
pub struct Watched {
    _lives: Sender<()>,
}

fn every(interval: Duration, tell: impl Fn() + Send + 'static) -> io::Result<Watched> {
    let (lives, ended) = mpsc::channel::<()>();
    let run = move || {
        tell();
        while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
            tell();
        }
    };
    thread::Builder::new().name("notify".into()).spawn(run)?;
    Ok(Watched { _lives: lives })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_a_socket_of_either_kind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("@braid-notify-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name.as_bytes()[1..]).unwrap();
        let sockets = [
            (UnixDatagram::bind(&path).unwrap(), path.into_os_string()),
            (UnixDatagram::bind_addr(&abstract_name).unwrap(), name.into()),
        ];
        for (socket, address) in sockets {
            send(&address, "READY=1").unwrap();
            let mut buffer = [0; 64];
            let length = socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"READY=1");
        }
    }

    #[test]
    fn it_is_told_until_it_goes() {
        let (told, tells) = mpsc::channel();
        let watched = every(Duration::from_millis(1), move || {
            // Nobody listens after the last one.
            let _ = told.send(());
        })
        .unwrap();
        for _ in 0..3 {
            tells.recv().unwrap();
        }
        drop(watched);
        // The thread ends, and its end of the channel with it.
        while tells.recv().is_ok() {}
    }
}
