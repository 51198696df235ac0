//! Making of connections, for every fabric: threads accept and dial, exchange hellos and hand the
//! connections over, so that neither a slow name server nor a silent stranger holds the engine up.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use braid_array::Refusal;
use braid_array::fabric::PeerId;
use rustix::event::EventfdFlags;

use crate::driver;
use crate::fabric::frame::{HELLO_BYTES, Hello, HelloError, TransportKind};
use crate::fabric::seal::{Seals, read_until};
use crate::fabric::{Network, Protection};
use crate::key::{Key, text_of_uuid};
use crate::log::{LineLimit, Verdict};
use crate::system::describe;

/// Limit on connecting and exchanging hellos, up to the first message.
const PATIENCE: Duration = Duration::from_secs(5);

/// Strangers that are greeted at the same time.
const MAX_GREETED: usize = 64;

/// Limit on connections that are made at the same time. Other processes send the addresses to
/// connect to, and each connection takes a thread for up to `PATIENCE`. No array needs more.
const MAX_DIALS: usize = 256;

/// Greeting for every connection.
#[derive(Clone, Debug)]
pub(crate) struct Greeting {
    hello: Arc<Hello>,
    key: Option<Key>,
}

impl Greeting {
    /// Creates the greeting for a fabric of this kind, with its data.
    pub(crate) fn new(network: Network, blob: Vec<u8>) -> Self {
        let Network { kind, key, encrypt } = network;
        let keyed = key.is_some();
        let array = key.and_then(|key| key.array());
        Self { hello: Arc::new(Hello { kind, keyed, encrypt, array, blob }), key }
    }
}

/// A connection on which hellos were exchanged.
#[derive(Debug)]
pub(crate) struct Greeted {
    /// The connection, blocking.
    pub(crate) stream: TcpStream,
    /// Data of the other's fabric.
    #[cfg_attr(not(ofi), expect(dead_code, reason = "what libfabric's needs"))]
    pub(crate) blob: Vec<u8>,
    /// Seals, when both have the cluster key.
    pub(crate) seals: Option<Seals>,
    /// The array that the other's key is limited to, if it is: it has dialled us, then.
    pub(crate) limit: Option<[u8; 16]>,
}

/// Accepts and dials.
#[derive(Debug)]
pub(crate) struct Greeter {
    greeting: Greeting,
    listener: Option<Arc<TcpListener>>,
    /// Counter by its references: one for each connection that is being made, and one more.
    dials: Arc<()>,
    sender: Sender<Met>,
    receiver: Receiver<Met>,
    wake: Arc<OwnedFd>,
}

/// A connection on which hellos were exchanged, or none.
#[derive(Debug)]
pub(crate) struct Met {
    /// Peer that was dialled; `None` for an accepted connection.
    pub(crate) dialled: Option<PeerId>,
    /// Connection, or the reason why there is none, which continues a sentence that begins with the
    /// peer's name. A failed accept is logged instead; the peer notices it itself.
    pub(crate) result: Result<Greeted, Refusal>,
}

impl Greeter {
    /// Says this hello to everyone.
    ///
    /// # Errors
    /// When the system is out of descriptors.
    pub(crate) fn new(greeting: Greeting, listener: Option<TcpListener>) -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(rustix::event::eventfd(0, flags)?);
        let (sender, receiver) = mpsc::channel();
        let listener = listener.map(Arc::new);
        Ok(Self { greeting, listener, dials: Arc::default(), sender, receiver, wake })
    }

    /// Returns the protection of its connections: so many, of which so many seal slices.
    pub(crate) fn protection(&self, nodes: usize, nodes_with_sealed_slices: usize) -> Protection {
        let Hello { kind, keyed, .. } = *self.greeting.hello;
        Protection {
            fabric: kind.to_string(),
            authenticated: keyed,
            limited_to: self.greeting.hello.array.map(text_of_uuid),
            messages_sealed: keyed && kind == TransportKind::Tcp,
            nodes,
            nodes_with_sealed_slices,
        }
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
        let greeting = self.greeting.clone();
        let tell = self.teller();
        thread::Builder::new()
            .name("fabric-accept".into())
            .spawn(move || accept_all(&listener, &greeting, &tell))?;
        Ok(())
    }

    /// Connects to `HOST:PORT`.
    pub(crate) fn dial(&self, peer: PeerId, address: String) {
        let greeting = self.greeting.clone();
        let tell = self.teller();
        let late = tell.clone();
        if Arc::strong_count(&self.dials) > MAX_DIALS {
            let reason = "cannot be reached: too many connections are being made already";
            let result = Err(Refusal::new(reason, "try again"));
            return late.tell(Met { dialled: Some(peer), result });
        }
        let under_way = Arc::clone(&self.dials);
        let dial = move || {
            let result = connect(&address, &greeting);
            drop(under_way);
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

    /// Stops accepting, and makes `wake` readable.
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

/// Accepted connections from which nothing was heard yet, the oldest first.
#[derive(Debug)]
struct Strangers {
    waiting: Mutex<VecDeque<Arc<TcpStream>>>,
    turned_away: Mutex<LineLimit<()>>,
}

impl Strangers {
    /// Adds a connection. When there are too many, the oldest is dropped.
    fn enter(&self, stream: &Arc<TcpStream>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= MAX_GREETED
            && let Some(oldest) = waiting.pop_front()
        {
            // Its thread hears the end of it.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        waiting.push_back(Arc::clone(stream));
    }

    /// Removes a connection. Returns false when it was already dropped to make room.
    fn remove(&self, stream: &Arc<TcpStream>) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let at = waiting.iter().position(|other| Arc::ptr_eq(other, stream));
        at.and_then(|at| waiting.remove(at)).is_some()
    }

    /// Logs a connection that was turned away, unless many were logged of late. The address is
    /// unknown before the connection was accepted.
    fn turned_away(&self, from: Option<SocketAddr>, why: &Refusal) {
        let mut limit = self.turned_away.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        for ((), more) in limit.over(now) {
            tracing::warn!(more, "as many others were turned away");
        }
        let from = from.map(tracing::field::display);
        match limit.count(now, ()) {
            Verdict::Leave => {}
            Verdict::Write => tracing::warn!(from, %why, "turned away"),
            Verdict::WriteLast => tracing::warn!(from, %why, "turned away; others are counted"),
        }
    }
}

fn accept_all(listener: &TcpListener, greeting: &Greeting, tell: &Teller) {
    let waiting = Mutex::default();
    let turned_away = Mutex::new(LineLimit::new());
    let strangers = Arc::new(Strangers { waiting, turned_away });
    loop {
        let (stream, from) = match listener.accept() {
            Ok((stream, from)) => (Arc::new(stream), from),
            // It was shut down.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            // Out of descriptors: some will be given back.
            Err(error) => {
                strangers.turned_away(None, &no_descriptor(&error));
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        strangers.enter(&stream);
        let greeting = greeting.clone();
        let tell = tell.clone();
        let here = Arc::clone(&strangers);
        let own = Arc::clone(&stream);
        let greet = move || {
            let deadline = Instant::now() + PATIENCE;
            let greeted = exchange(&own, &greeting, false, deadline);
            let heard = greeted.and_then(|greeted| await_word(&own, deadline).map(|()| greeted));
            let stays = here.remove(&own);
            match (heard, own.try_clone()) {
                (Ok(heard), Ok(stream)) if stays => {
                    let result = Ok(heard.on(stream));
                    tell.tell(Met { dialled: None, result });
                }
                (Ok(_), Err(error)) if stays => {
                    here.turned_away(Some(from), &no_descriptor(&error));
                }
                (Ok(_), _) => {}
                (Err(why), _) => here.turned_away(Some(from), &why),
            }
        };
        if let Err(error) = thread::Builder::new().name("fabric-greet".into()).spawn(greet) {
            strangers.remove(&stream);
            let reason = format!("no thread is left for a connection: {}", describe(&error));
            strangers.turned_away(Some(from), &Refusal::new(reason, "check this user's limits"));
        }
    }
}

fn no_descriptor(error: &io::Error) -> Refusal {
    let reason = format!("no connection can be taken: {}", describe(error));
    Refusal::new(reason, "allow this process more open files (LimitNOFILE, ulimit -n)")
}

/// Waits until data arrive. A peer without any is not a client yet.
fn await_word(stream: &TcpStream, deadline: Instant) -> Result<(), Refusal> {
    let left = deadline.saturating_duration_since(Instant::now());
    let peek = || {
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let there = stream.peek(&mut [0]);
        stream.set_read_timeout(None)?;
        there
    };
    match peek() {
        Ok(1..) => Ok(()),
        _ => Err(Refusal::plain("it says nothing")),
    }
}

/// Connects to `HOST:PORT` and exchanges hellos.
///
/// # Errors
/// The reason continues a sentence that begins with the address.
pub(crate) fn connect(address: &str, greeting: &Greeting) -> Result<Greeted, Refusal> {
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
            Ok(stream) => {
                let heard = exchange(&stream, greeting, true, deadline)?;
                return Ok(heard.on(stream));
            }
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

/// Result of an exchange of hellos; see [`Greeted`].
struct Heard {
    blob: Vec<u8>,
    seals: Option<Seals>,
    limit: Option<[u8; 16]>,
}

impl Heard {
    fn on(self, stream: TcpStream) -> Greeted {
        let Self { blob, seals, limit } = self;
        Greeted { stream, blob, seals, limit }
    }
}

/// Says hello and hears the other's, and proves the key.
///
/// # Errors
/// As for `connect`.
fn exchange(
    stream: &TcpStream,
    greeting: &Greeting,
    dialled: bool,
    deadline: Instant,
) -> Result<Heard, Refusal> {
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
    let hello = greeting.hello.encode();
    (&mut &*stream).write_all(&hello).map_err(broken)?;
    let mut head = [0; HELLO_BYTES];
    let got = read_until(stream, &mut head, deadline).map_err(broken)?;
    // A stranger may have said less than a hello takes.
    if got < HELLO_BYTES && got > 0 {
        return Err(HelloError::Stranger.into());
    }
    if got == 0 {
        return Err(broken(io::ErrorKind::UnexpectedEof.into()));
    }
    let mut rest = vec![0; greeting.hello.check(&head)?];
    if read_until(stream, &mut rest, deadline).map_err(broken)? < rest.len() {
        return Err(broken(io::ErrorKind::UnexpectedEof.into()));
    }
    let heard = [&head[..], &rest].concat();
    let (limit, blob) = Hello::rest(&head, &rest)?;
    // Nodes have the cluster key itself: whoever is dialled and has less is none.
    if limit.is_some() && (dialled || greeting.hello.array.is_some()) {
        return Err(HelloError::Limited.into());
    }
    let said = if dialled { [hello, heard].concat() } else { [heard, hello].concat() };
    // It is so when either wants it. Who meddles with what they say spoils the proof.
    let slices = greeting.hello.encrypt || Hello::encrypts(&head);
    let key = greeting.key.map(|key| limit.map_or(key, |array| key.limited_to(array)));
    let prove = |key: &Key| Seals::prove(stream, key, &said, (dialled, slices), deadline);
    let seals = key.as_ref().map(prove).transpose()?;
    stream.set_read_timeout(None).map_err(broken)?;
    stream.set_write_timeout(None).map_err(broken)?;
    Ok(Heard { blob: blob.to_vec(), seals, limit })
}
