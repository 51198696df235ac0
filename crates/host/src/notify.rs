//! What a process tells the service manager that has started it (`sd_notify(3)`): words sent to the
//! socket named in the environment. Where there is no manager nothing happens, and one that does
//! not hear it gives up on us by itself.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

pub(crate) mod kept;

/// What a stop may take at a time, and how often it asks for more.
const STOP_TAKES: Duration = Duration::from_secs(30);

/// It serves.
pub fn ready() {
    say("READY=1");
}

/// What it does, for people, in one line.
pub fn status(line: &str) {
    say(&format!("STATUS={}", line.replace('\n', " ")));
}

/// It may take so long from now on, and a little more, until it serves or has ended.
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

/// How often a manager wants to hear that all is well; `None` where it does not.
#[must_use]
pub fn watchdog() -> Option<Duration> {
    let variable = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    if variable("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id())) {
        return None;
    }
    variable("WATCHDOG_USEC").filter(|micros| *micros > 0).map(Duration::from_micros)
}

/// Tells the manager that all is well as long as `is_well` answers, twice as often as it wants.
/// Ends when what is returned goes.
///
/// # Errors
/// There can be no thread.
pub fn watch(is_well: impl Fn() -> bool + Send + 'static) -> io::Result<Option<Watched>> {
    let Some(interval) = watchdog() else { return Ok(None) };
    let tell = move || {
        if is_well() {
            say("WATCHDOG=1");
        }
    };
    every(interval / 2, tell).map(Some)
}

/// Tells the manager that it stops, and asks for more time until what is returned goes.
///
/// # Errors
/// There can be no thread.
pub fn stopping() -> io::Result<Option<Watched>> {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return Ok(None);
    }
    say("STOPPING=1\nSTATUS=stops");
    let micros = STOP_TAKES.as_micros();
    let more = format!("EXTEND_TIMEOUT_USEC={micros}\nWATCHDOG=1");
    every(STOP_TAKES / 3, move || say(&more)).map(Some)
}

/// Something that is told again and again while this lives.
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
