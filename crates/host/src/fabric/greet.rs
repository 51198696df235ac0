//! How connections come about, for every fabric: threads accept and dial, exchange hellos and hand
//! the connections over, so that neither a slow name server nor a silent stranger holds the engine
//! up.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use braid_array::Refusal;
use braid_array::fabric::PeerId;
use rustix::event::EventfdFlags;

use crate::driver;
use crate::fabric::frame::{HELLO_BYTES, Hello, HelloError};
use crate::system::describe;

/// How long connecting and exchanging hellos may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Strangers that are greeted at the same time; more are turned away.
const MAX_GREETED: usize = 64;

/// Accepts and dials.
#[derive(Debug)]
pub(crate) struct Greeter {
    hello: Arc<Hello>,
    listener: Option<Arc<TcpListener>>,
    sender: Sender<Met>,
    receiver: Receiver<Met>,
    wake: Arc<OwnedFd>,
}

/// A connection on which hellos were exchanged, or none.
#[derive(Debug)]
pub(crate) struct Met {
    /// Whom we have dialled; `None` when we were.
    pub(crate) dialled: Option<PeerId>,
    /// The connection, blocking, and what the other's fabric had to tell. Or why there is none,
    /// continuing a sentence that begins with its name. Who dials us in vain hears so himself.
    pub(crate) result: Result<(TcpStream, Vec<u8>), Refusal>,
}

impl Greeter {
    /// Says this hello to everyone.
    ///
    /// # Errors
    /// When the system is out of descriptors.
    pub(crate) fn new(hello: Hello, listener: Option<TcpListener>) -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(rustix::event::eventfd(0, flags)?);
        let (sender, receiver) = mpsc::channel();
        let listener = listener.map(Arc::new);
        Ok(Self { hello: Arc::new(hello), listener, sender, receiver, wake })
    }

    /// Becomes readable when there is something to take; to be read before that.
    pub(crate) const fn wake(&self) -> &Arc<OwnedFd> {
        &self.wake
    }

    /// Starts to accept, if there is a listener.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn accept(&self) -> io::Result<()> {
        let Some(listener) = self.listener.clone() else { return Ok(()) };
        let (hello, tell) = (Arc::clone(&self.hello), self.teller());
        thread::Builder::new()
            .name("fabric-accept".into())
            .spawn(move || accept_all(&listener, &hello, &tell))?;
        Ok(())
    }

    /// Connects to `HOST:PORT`.
    pub(crate) fn dial(&self, peer: PeerId, address: String) {
        let (hello, tell) = (Arc::clone(&self.hello), self.teller());
        let late = tell.clone();
        let dial = move || {
            let result = connect(&address, &hello);
            tell.tell(Met { dialled: Some(peer), result });
        };
        if let Err(error) = thread::Builder::new().name("fabric-dial".into()).spawn(dial) {
            let reason = format!("cannot be reached, for want of a thread: {}", describe(&error));
            let result = Err(Refusal::new(reason, "check the limits of this user"));
            late.tell(Met { dialled: Some(peer), result });
        }
    }

    /// The next connection.
    pub(crate) fn take(&self) -> Option<Met> {
        self.receiver.try_recv().ok()
    }

    /// Accepts nobody any more, and makes `wake` readable.
    pub(crate) fn close(&mut self) {
        if let Some(listener) = self.listener.take() {
            // This ends the accept in the other thread.
            let _ = rustix::net::shutdown(&*listener, rustix::net::Shutdown::Both);
        }
        driver::signal(&self.wake);
    }

    fn teller(&self) -> Teller {
        Teller { sender: self.sender.clone(), wake: Arc::clone(&self.wake) }
    }
}

impl Drop for Greeter {
    fn drop(&mut self) {
        self.close();
    }
}

#[derive(Clone, Debug)]
struct Teller {
    sender: Sender<Met>,
    wake: Arc<OwnedFd>,
}

impl Teller {
    fn tell(&self, met: Met) {
        if self.sender.send(met).is_ok() {
            driver::signal(&self.wake);
        }
    }
}

fn accept_all(listener: &TcpListener, hello: &Arc<Hello>, tell: &Teller) {
    let greeted = Arc::new(AtomicUsize::new(0));
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            // It was shut down.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            // Out of descriptors: some will be given back.
            Err(_) => {
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if greeted.fetch_add(1, Ordering::Relaxed) >= MAX_GREETED {
            greeted.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (hello, tell, count) = (Arc::clone(hello), tell.clone(), Arc::clone(&greeted));
        let greet = move || {
            if let Ok(blob) = exchange(&stream, &hello, Instant::now() + PATIENCE) {
                tell.tell(Met { dialled: None, result: Ok((stream, blob)) });
            }
            count.fetch_sub(1, Ordering::Relaxed);
        };
        if thread::Builder::new().name("fabric-greet".into()).spawn(greet).is_err() {
            greeted.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Connects to `HOST:PORT` and exchanges hellos: the connection, blocking, and what the other's
/// fabric had to tell.
///
/// # Errors
/// The reason continues a sentence that begins with the address.
pub fn connect(address: &str, hello: &Hello) -> Result<(TcpStream, Vec<u8>), Refusal> {
    let deadline = Instant::now() + PATIENCE;
    let unknown = |error: io::Error| {
        Refusal::new(format!("is no address to connect to: {}", describe(&error)), "check it")
    };
    let candidates = address.to_socket_addrs().map_err(unknown)?;
    let mut failed = Refusal::new("is no address to connect to", "check it");
    for candidate in candidates {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(&candidate, left) {
            Ok(stream) => return exchange(&stream, hello, deadline).map(|blob| (stream, blob)),
            Err(error) => failed = why_not_connected(&error),
        }
    }
    Err(failed)
}

fn why_not_connected(error: &io::Error) -> Refusal {
    const CHECK: &str = "check the address and the network";
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            Refusal::new("refuses the connection", "check that a node listens there")
        }
        io::ErrorKind::TimedOut => Refusal::new("does not answer", CHECK),
        _ => Refusal::new(format!("cannot be reached: {}", describe(error)), CHECK),
    }
}

/// Says hello and hears the other's.
///
/// # Errors
/// As for `connect`.
fn exchange(stream: &TcpStream, hello: &Hello, deadline: Instant) -> Result<Vec<u8>, Refusal> {
    const CHECK: &str = "check that it is a braid node";
    let broken = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            Refusal::new("takes the connection, but says nothing", CHECK)
        }
        io::ErrorKind::UnexpectedEof => Refusal::new("closes the connection without a word", CHECK),
        _ => Refusal::new(format!("cannot be talked to: {}", describe(&error)), CHECK),
    };
    stream.set_nodelay(true).map_err(broken)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(broken)?;
    (&*stream).write_all(&hello.encode()).map_err(broken)?;
    let mut head = [0; HELLO_BYTES];
    let got = read_until(stream, &mut head, deadline).map_err(broken)?;
    // A stranger may have said less than a hello takes.
    if got < HELLO_BYTES && got > 0 {
        return Err(HelloError::Stranger.into());
    }
    if got == 0 {
        return Err(broken(io::ErrorKind::UnexpectedEof.into()));
    }
    let mut blob = vec![0; hello.check(&head)?];
    if read_until(stream, &mut blob, deadline).map_err(broken)? < blob.len() {
        return Err(broken(io::ErrorKind::UnexpectedEof.into()));
    }
    stream.set_read_timeout(None).map_err(broken)?;
    stream.set_write_timeout(None).map_err(broken)?;
    Ok(blob)
}

/// Fills `bytes`, or less at the end of the stream or, if something was there, at the deadline.
fn read_until(mut stream: &TcpStream, bytes: &mut [u8], deadline: Instant) -> io::Result<usize> {
    let mut got = 0;
    while got < bytes.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(&mut bytes[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if got > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
