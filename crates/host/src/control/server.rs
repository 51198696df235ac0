//! The server's side of the control socket: a thread that accepts, and one for each connection.

use std::io::{self, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use braid_array::refusal::{Invocation, Next, Refusal};

use super::connections::{ConnectionSlot, Connections, MAX_READERS};
use super::served::{NextProgram, Served, StopAnswer, StopRequest};
use super::verbs::VerbOutcome;
use super::wire::{Answer, ControlRequest, Reply, Response, VERSION, Verb, Versioned};
use super::{ListenError, SocketFile, listen, make_run_dir, read_line, socket_path};
use crate::access::Access;
use crate::handover::{self, Handover};
use crate::system::describe;

/// Time without a command after which a client is disconnected.
const IDLE: Duration = Duration::from_secs(60);

/// A bound control socket. The name is taken from here on; questions are answered once it runs.
#[derive(Debug)]
pub struct ControlServer {
    /// Socket file, until the name is given free.
    file: Option<SocketFile>,
    listener: Arc<UnixListener>,
    acceptor: Option<JoinHandle<()>>,
}

impl ControlServer {
    /// Takes the name of an array.
    ///
    /// # Errors
    /// A line for people, when an array of this name runs or the socket cannot be made.
    pub fn bind(run_dir: &Path, name: &str) -> Result<Self, Refusal> {
        let path = socket_path(run_dir, name);
        let stop = Invocation::Stop { array: Some(name.to_owned()), force: false };
        let fail = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => Refusal::new(
                format!("an array named {name} is already running"),
                Next::by("start this one under another with --rename, or stop that one", stop),
            ),
            io::ErrorKind::TimedOut => Refusal::new(
                describe(&error),
                "end that process, or name another run directory with --run-dir",
            ),
            _ => Refusal::new(
                format!(
                    "the control socket {} cannot be made: {}",
                    path.display(),
                    describe(&error)
                ),
                "check the run directory, or name another with --run-dir",
            ),
        };
        let made = make_run_dir(run_dir).map_err(ListenError::from);
        // Whoever may connect may do everything.
        let made = made.and_then(|()| listen(run_dir, &path, &Access::default()));
        let made =
            made.map_err(|(ListenError::Socket(error) | ListenError::Owner(error))| fail(error));
        made.map(|(listener, file)| Self {
            file: Some(file),
            listener: Arc::new(listener),
            acceptor: None,
        })
    }

    /// Gives the socket to the process that comes after this one.
    pub(crate) fn hand_over(&self, to: &mut Handover) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| file.hand_over(to))
    }

    /// Starts to answer.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn run(&mut self, served: Arc<Served>) -> io::Result<()> {
        let listener = Arc::clone(&self.listener);
        let accept = move || accept(&listener, &served);
        self.acceptor = Some(thread::Builder::new().name("control".into()).spawn(accept)?);
        Ok(())
    }
}

impl Drop for ControlServer {
    /// Gives the name free. Connections that are open stay until their ends close them.
    fn drop(&mut self) {
        // The program that this one goes back to listens on.
        if self.file.as_ref().is_some_and(SocketFile::is_on_loan) {
            return;
        }
        // The file first: once the listener is shut down, another process may put its own there.
        self.file = None;
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn accept(listener: &UnixListener, served: &Arc<Served>) {
    let connections = Arc::new(Connections::default());
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            // Shut down.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            Err(_) => {
                // Out of descriptors, most likely: others have to close theirs first.
                thread::sleep(Duration::from_millis(50));
                continue;
            }
        };
        let Ok(place) = Connections::enter(&connections, &stream) else {
            let reason = "too many commands are under way";
            let refusal = Refusal::new(reason, "try again when one has ended");
            let _ = answer(&mut &stream, Reply::Error(refusal));
            continue;
        };
        let served = Arc::clone(served);
        let run = move || {
            // A client that went away is nothing to report, nor is one that had nothing to say.
            let _ = converse(&stream, &served, &place);
        };
        let _ = thread::Builder::new().name("control-client".into()).spawn(run);
    }
}

fn converse(stream: &UnixStream, served: &Served, place: &ConnectionSlot) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    let mut from = BufReader::new(stream);
    let mut to = stream;
    loop {
        let line = match read_line(&mut from) {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let refusal = Refusal::new(error.to_string(), "send one JSON object on a line");
                return answer(&mut to, Reply::Error(refusal));
            }
            Err(error) => return Err(error),
        };
        let _busy = place.begin();
        match parse(&line).and_then(|request| carry_out(served, request.verb, place)) {
            Ok(VerbOutcome::Answer(good)) => answer(&mut to, Reply::Ok(good))?,
            Ok(VerbOutcome::Data(data)) => {
                answer(&mut to, Reply::Ok(Answer::Data { length: data.length() }))?;
                data.send(&mut to)?;
            }
            Ok(VerbOutcome::Stop { force }) => {
                if stop(stream, served, force)? {
                    return Ok(());
                }
            }
            Ok(VerbOutcome::Upgrade { program, takes, check, force, more }) => {
                let asker = if check { None } else { Some(OwnedFd::from(stream.try_clone()?)) };
                let wanted = NextProgram { program, takes, force, more, asker };
                let ask = |told| StopRequest::Upgrade { wanted, told };
                answer(&mut to, upgrade(served, ask))?;
            }
            // Another program answers who asks again.
            Err(refusal) if handover::is_leaving() && refusal == served.ended() => return Ok(()),
            Err(refusal) => answer(&mut to, Reply::Error(refusal))?,
        }
    }
}

fn carry_out<'a>(
    served: &'a Served,
    verb: Verb,
    place: &ConnectionSlot,
) -> Result<VerbOutcome<'a>, Refusal> {
    if matches!(verb, Verb::Read { .. }) && !place.may_read() {
        let reason = format!("its content is being read {MAX_READERS} times already");
        return Err(Refusal::new(reason, "try again when one of them has ended"));
    }
    served.carry_out(verb)
}

/// Asks for a stop, and returns whether it came. The stopping thread writes the answer itself, as
/// the process may end right after it.
fn stop(stream: &UnixStream, served: &Served, force: bool) -> io::Result<bool> {
    let mut to = stream.try_clone()?;
    let (answered, wait) = mpsc::sync_channel(1);
    let told = move |result: Result<(), Refusal>| {
        let stopped = result.is_ok();
        let result = result.map_or_else(Reply::Error, |()| Reply::Ok(Answer::Done));
        // The client may have gone away, and the other end of the channel with it.
        let _ = answer(&mut to, result);
        if stopped {
            // The process may end before this connection's thread, and its files stay open while
            // the kernel waits for I/O on a device that does not answer: who asked would, too.
            let _ = to.shutdown(Shutdown::Both);
        }
        let _ = answered.send(stopped);
    };
    let asked = served.stop.send(StopRequest::Asked { force, told: Box::new(told) }).is_ok();
    match wait.recv() {
        Ok(stopped) if asked => Ok(stopped),
        _ => answer(&mut &*stream, Reply::Error(served.ended())).map(|()| false),
    }
}

/// Asks for another program. Where one takes over this program has ended, and that one answers.
fn upgrade(served: &Served, ask: impl FnOnce(StopAnswer) -> StopRequest) -> Reply {
    let (answered, wait) = mpsc::sync_channel(1);
    let told: StopAnswer = Box::new(move |result| {
        // The client may have gone away.
        let _ = answered.send(result);
    });
    let asked = served.stop.send(ask(told)).is_ok();
    match wait.recv() {
        Ok(result) if asked => result.map_or_else(Reply::Error, |()| Reply::Ok(Answer::Done)),
        _ => Reply::Error(served.ended()),
    }
}

/// Reports to the connection that asked for another program that this one serves the array.
///
/// # Errors
/// When the connection is closed.
pub fn say_upgraded(asker: OwnedFd, pause: Duration, returned: bool) -> io::Result<()> {
    let pause_us = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let mut to = UnixStream::from(asker);
    answer(&mut to, Reply::Ok(Answer::Upgraded { pause_us, version, returned }))
}

/// Reports to the connection that asked for another program that the array is no longer served.
///
/// # Errors
/// When the connection is closed.
pub fn say_ended(asker: OwnedFd, reason: String) -> io::Result<()> {
    let reason = format!("neither the other program nor the one before could serve it: {reason}");
    let refusal = Refusal::new(reason, "see its log, then assemble it again");
    answer(&mut UnixStream::from(asker), Reply::Error(refusal))
}

fn parse(line: &[u8]) -> Result<ControlRequest, Refusal> {
    let bad = |error: serde_json::Error| {
        Refusal::new(format!("not a request: {error}"), "send one JSON object on a line")
    };
    // The version first: a request of another version need not make sense.
    let Versioned { version } = serde_json::from_slice(line).map_err(bad)?;
    if version != VERSION {
        return Err(Refusal::new(
            format!("the array's process speaks version {VERSION}, not {version}"),
            "use the braid command of the version that started the array",
        ));
    }
    serde_json::from_slice(line).map_err(bad)
}

fn answer(to: &mut impl Write, result: Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(&Response { version: VERSION, result })?;
    line.push(b'\n');
    to.write_all(&line)
}
