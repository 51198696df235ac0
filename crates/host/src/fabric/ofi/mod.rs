//! The fabric over libfabric: puts are RDMA writes with 32 bits of immediate data, so where the
//! hardware can place them alone, the receiver's processor does nothing.

mod conversation;
mod domain;
mod endpoint;
mod ffi;
mod info;
mod introduction;
mod library;
mod link;
mod outbox;
mod parting;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use braid_array::action::Event;
use braid_array::fabric::{FabricEvent, FabricOp, PeerId};
use braid_array::{IoError, Refusal};
use rustix::io::Errno;

use self::domain::{Domain, RegisteredRegion};
use self::info::{OfiError, ProviderInfo};
use self::library::Library;
use self::link::Link;
use self::outbox::OutgoingTransfer;
use crate::arena::FabricMemory;
use crate::driver::{self, Driver, Op, OutgoingBytes as DriverOutgoing};
use crate::fabric::frame::Provider;
use crate::fabric::greet::{Greeted, Greeter, Greeting, Met};
use crate::fabric::tcp::connection;
use crate::fabric::{Fabric, Network, Protection};
use crate::system::{describe, refused_by_system};
use crate::token::{FabricToken, Token};

/// Connections at a time: each has a thread, and buffers of the provider's.
const MAX_LINKS: usize = 256;

/// Limit on events that wait for the engine. Beyond it, the threads that bring more have to wait.
const MANY_EVENTS: usize = 4096;

/// Queue of events from the threads to the engine.
#[derive(Debug)]
struct ThreadEvents {
    events: Mutex<VecDeque<Event>>,
    wake: Arc<OwnedFd>,
}

impl ThreadEvents {
    fn tell(&self, more: Vec<Event>) {
        if more.is_empty() {
            return;
        }
        self.events.lock().unwrap_or_else(PoisonError::into_inner).extend(more);
        driver::signal(&self.wake);
    }

    /// The engine has enough to do.
    fn is_full(&self) -> bool {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).len() > MANY_EVENTS
    }
}

/// The devices in use, by the address of ours that they have, and the arena as each knows it.
#[derive(Debug)]
struct DevicesInUse {
    provider: String,
    has_ip: bool,
    place: FabricMemory,
    arenas: Mutex<BTreeMap<Option<IpAddr>, Arc<RegisteredRegion>>>,
}

impl DevicesInUse {
    /// The arena, as the device knows it that has this address.
    fn arena(&self, ours: IpAddr) -> Result<Arc<RegisteredRegion>, Refusal> {
        let address = self.has_ip.then_some(ours);
        let mut arenas = self.arenas.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(arena) = arenas.get(&address) {
            return Ok(Arc::clone(arena));
        }
        let why = |error: OfiError| {
            format!("cannot be reached from {ours} by libfabric's {}: {error}", self.provider)
        };
        let domain =
            Domain::open(&self.provider, address).map_err(|error| Refusal::plain(why(error)))?;
        // Puts come from here. Where they may go to, each peer is told for itself.
        let all = self.place.window(0..u64::MAX);
        let access = ffi::FI_READ | ffi::FI_WRITE;
        let arena = RegisteredRegion::register(&domain, &self.place.memory, all, access);
        let arena = arena.map_err(|error| {
            Refusal::new(why(error), "check the limit of locked memory, `ulimit -l`")
        })?;
        let arena = Arc::new(arena);
        arenas.insert(address, Arc::clone(&arena));
        Ok(arena)
    }
}

/// A connection, for the engine.
#[derive(Debug)]
struct Peer {
    /// `None`: still dialling.
    link: Option<Arc<Link>>,
    /// The machine has heard of it.
    known: bool,
}

/// All connections of an engine over libfabric, as a [`Fabric`]. Every connection has an endpoint,
/// a completion queue and a thread of its own that sleeps until something happens there
/// (`conversation`). The engine hands puts and messages to the device itself (`outbox`), and hears
/// from the threads through an eventfd. A peer is told the key to its own window and to nothing
/// else; until it is, it has nowhere to write. Dropping this ends all connections and joins their
/// threads.
#[derive(Debug)]
pub(crate) struct Ofi {
    greeter: Greeter,
    devices: Arc<DevicesInUse>,
    news: Arc<ThreadEvents>,
    /// Peers that the machine has not hung up on.
    peers: BTreeMap<PeerId, Peer>,
    threads: Vec<(Arc<Link>, JoinHandle<()>)>,
    /// The id of the next that we accept.
    next_accepted: u32,
    closing: bool,
}

impl Ofi {
    /// A fabric over the provider of this name, or the one that libfabric likes best, that works in
    /// this place; with a listener, others can connect.
    ///
    /// # Errors
    /// Reason for the failure, for people.
    pub(crate) fn new(
        network: Network,
        place: FabricMemory,
        listener: Option<TcpListener>,
        provider: Provider,
    ) -> Result<Self, Refusal> {
        let absent =
            || Refusal::new("libfabric is not installed here", "install it, or use fabric tcp");
        Library::load().ok_or_else(absent)?;
        let info =
            ProviderInfo::find(provider.name(), None).map_err(|error| match provider.name() {
                Some(name) => Refusal::new(
                    format!("libfabric cannot use provider {name} here: {}", error.reason),
                    "see what it has with `fi_info`",
                ),
                None => Refusal::new(
                    format!("libfabric has no provider for us here: {}", error.reason),
                    "use fabric tcp",
                ),
            })?;
        let provider = info.provider();
        let has_ip = info.has_ip();
        let greeting = Greeting::new(network, provider.clone().into_bytes());
        let greeter =
            Greeter::new(greeting, listener).map_err(|error| refused_by_system(&error))?;
        let wake = Arc::clone(greeter.wake());
        let arenas = Mutex::default();
        Ok(Self {
            devices: Arc::new(DevicesInUse { provider, has_ip, place, arenas }),
            news: Arc::new(ThreadEvents { events: Mutex::default(), wake }),
            greeter,
            peers: BTreeMap::new(),
            threads: Vec::new(),
            next_accepted: PeerId::FIRST_ACCEPTED,
            closing: false,
        })
    }

    fn await_wake(&self, driver: &mut Driver<Token>) {
        let eventfd = Arc::clone(&self.news.wake);
        driver.start(Token::Fabric(FabricToken::Wake), Op::Readable { file: eventfd });
    }

    /// Hands a connection on which hellos were exchanged to a thread.
    fn meet(&mut self, met: Met) {
        let Met { dialled, result } = met;
        // Hung up on while dialling: nobody waits for it.
        if dialled.is_some_and(|peer| !self.peers.contains_key(&peer)) {
            return;
        }
        let begun = result.and_then(|greeted| self.begin_link(dialled, greeted));
        // Who dials us in vain hears so himself.
        if let (Err(why), Some(peer)) = (begun, dialled) {
            let lost = FabricEvent::Lost { peer, why };
            self.news.tell(vec![Event::Fabric(lost)]);
        }
    }

    fn begin_link(&mut self, dialled: Option<PeerId>, greeted: Greeted) -> Result<(), Refusal> {
        let Greeted { stream, blob, limit, .. } = greeted;
        let ours = &self.devices.provider;
        let theirs = String::from_utf8_lossy(&blob);
        if theirs != ours.as_str() {
            let reason = format!("uses libfabric's provider {theirs}, this is {ours}");
            return Err(Refusal::new(reason, "use the same on both"));
        }
        self.threads.retain(|(_, thread)| !thread.is_finished());
        if self.threads.len() >= MAX_LINKS {
            return Err(Refusal::plain("there are too many connections already"));
        }
        let unfit = |error: io::Error| {
            Refusal::plain(format!("its socket cannot be set up: {}", describe(&error)))
        };
        connection::prepare(&stream).map_err(unfit)?;
        let ours = stream.local_addr().map_err(unfit)?.ip();
        let peer = dialled.unwrap_or_else(|| self.accepted());
        let link = Arc::new(Link::new((peer, limit), stream, Arc::clone(&self.news)));
        let shared = Arc::clone(&link);
        let devices = Arc::clone(&self.devices);
        let run = move || conversation::run(&shared, || devices.arena(ours), dialled.is_some());
        let thread = thread::Builder::new().name("fabric-ofi".into()).spawn(run);
        let thread = thread
            .map_err(|error| Refusal::plain(format!("no thread for it: {}", describe(&error))))?;
        self.threads.push((Arc::clone(&link), thread));
        self.peers.insert(peer, Peer { link: Some(link), known: dialled.is_some() });
        Ok(())
    }

    /// An id that no connection has.
    fn accepted(&mut self) -> PeerId {
        loop {
            let peer = PeerId(self.next_accepted);
            self.next_accepted = peer.0.wrapping_add(1).max(PeerId::FIRST_ACCEPTED);
            if !self.peers.contains_key(&peer) {
                return peer;
            }
        }
    }

    fn push(&self, peer: PeerId, outgoing: OutgoingTransfer) {
        let refused = match self.peers.get(&peer).and_then(|peer| peer.link.as_ref()) {
            Some(link) => link.push(outgoing),
            None => Err(outgoing),
        };
        if let Err(OutgoingTransfer::Put { io, .. }) = refused {
            self.news.tell(vec![Event::Done { io, result: Err(IoError::GONE) }]);
        }
    }

    fn hang_up(&mut self, peer: PeerId) {
        if let Some(link) = self.peers.remove(&peer).and_then(|peer| peer.link) {
            link.close();
        }
    }

    /// Returns whether the machine has to get this event; keeps account of the peers it knows.
    fn concerns(&mut self, event: &Event) -> bool {
        let Event::Fabric(event) = event else { return true };
        let (FabricEvent::Accepted { peer: id, .. }
        | FabricEvent::Connected { peer: id }
        | FabricEvent::Lost { peer: id, .. }
        | FabricEvent::Placed { peer: id, .. }
        | FabricEvent::Message { peer: id, .. }) = event;
        let Some(peer) = self.peers.get_mut(id) else { return false };
        peer.known |= matches!(event, FabricEvent::Accepted { .. });
        let known = peer.known;
        if matches!(event, FabricEvent::Lost { .. }) {
            self.peers.remove(id);
        }
        known
    }
}

impl Fabric for Ofi {
    fn begin(&mut self, driver: &mut Driver<Token>) -> io::Result<()> {
        self.await_wake(driver);
        self.greeter.accept()
    }

    fn start(&mut self, _: &mut Driver<Token>, op: FabricOp) {
        match op {
            FabricOp::Connect { peer, address } => {
                self.peers.insert(peer, Peer { link: None, known: true });
                self.greeter.dial(peer, address);
            }
            FabricOp::Admit { peer, window } => {
                if let Some(link) = self.peers.get(&peer).and_then(|peer| peer.link.as_ref()) {
                    link.admit(self.devices.place.window(window));
                }
            }
            FabricOp::BearSilence { peer, millis } => {
                if let Some(link) = self.peers.get(&peer).and_then(|peer| peer.link.as_ref()) {
                    // If that fails it bears as much as any other.
                    let silence = Duration::from_millis(u64::from(millis));
                    let _ = connection::bear_silence(link.stream(), silence);
                }
            }
            FabricOp::Put { io, peer, from, to, imm } => {
                self.push(peer, OutgoingTransfer::Put { io, from, to, imm });
            }
            FabricOp::Send { peer, bytes } => self.push(peer, OutgoingTransfer::Message(bytes)),
            FabricOp::HangUp { peer } => self.hang_up(peer),
            FabricOp::Cut { peer } => {
                if let Some(link) = self.peers.remove(&peer).and_then(|peer| peer.link) {
                    link.cut();
                }
            }
        }
    }

    fn flush(&mut self, _: &mut Driver<Token>) -> bool {
        false
    }

    fn protection(&self) -> Protection {
        self.greeter.protection(self.peers.values().filter(|peer| peer.link.is_some()).count(), 0)
    }

    fn completed(
        &mut self,
        driver: &mut Driver<Token>,
        _: FabricToken,
        _: Result<u32, Errno>,
        _: Option<Box<DriverOutgoing>>,
    ) {
        let _ = rustix::io::read(self.news.wake.as_fd(), &mut [0; 8]);
        if self.closing {
            if !self.threads.iter().all(|(link, _)| link.is_over()) {
                self.await_wake(driver);
            }
            return;
        }
        self.await_wake(driver);
        while let Some(met) = self.greeter.take() {
            self.meet(met);
        }
    }

    fn poll(&mut self) -> Option<Event> {
        loop {
            let event =
                self.news.events.lock().unwrap_or_else(PoisonError::into_inner).pop_front()?;
            if !self.closing && self.concerns(&event) {
                return Some(event);
            }
        }
    }

    fn close(&mut self, _: &mut Driver<Token>) {
        self.closing = true;
        while let Some((&peer, _)) = self.peers.first_key_value() {
            self.hang_up(peer);
        }
        // This also wakes us, once more at least.
        self.greeter.close();
    }

    fn disconnect(&mut self) {
        for (link, _) in &self.threads {
            link.cut();
        }
    }
}

impl Drop for Ofi {
    fn drop(&mut self) {
        // No thread may be left in libfabric when the process ends.
        self.disconnect();
        for (_, thread) in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
