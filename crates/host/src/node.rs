//! A storage node: an engine with a node's machine, a fabric that listens, and a store.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use braid_array::action::Command;
use braid_array::array::Scratch;
use braid_array::events::ArrayEvent;
use braid_array::{AnyMachine, Machine, Refusal};
use braid_cluster::ids::NodeId;
use braid_cluster::node::CLEAN_END;

use rustix::process::{Resource, Rlimit, setrlimit};

use crate::arena::Arena;
use crate::control::StopRequest;
use crate::engine::Engine;
use crate::fabric::Network;
use crate::fabric::frame::TransportKind;
use crate::log::{self, LineLimit, Verdict};
use crate::notify;
use crate::serve::watch_signals;
use crate::store::{MadeDirectories, Store};
use crate::submission::{Message, SubmissionQueue};
use crate::system::{describe, refused_by_system};

#[cfg(test)]
mod tests;

/// Memory for requests, of which a node has none.
const REQUEST_BYTES: u64 = 1 << 20;

/// Ratio of addresses to memory for rings. Most rings use only the base.
const ADDRESSES: u64 = 24;

/// Settings of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSetup {
    /// Address to listen on: `HOST:PORT`.
    pub listen: String,
    /// Storage of its volumes.
    pub storage: Storage,
    /// Set for a witness: no volumes, only votes.
    pub witness: bool,
    /// Memory that clients and other nodes put slices into.
    pub ring_bytes: u64,
    /// Network by which they do it, with its key.
    pub network: Network,
}

impl NodeSetup {
    /// Returns whether memory may be taken and given back on demand. Devices that register its
    /// pages rule that out.
    fn is_lean(&self) -> bool {
        self.network.kind == TransportKind::Tcp
    }
}

/// Storage of a node's volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Files in this directory.
    Directory(PathBuf),
    /// Memory; gone when the process ends.
    Memory,
}

/// A node that runs within this process.
#[derive(Debug)]
pub struct RunningNode {
    address: SocketAddr,
    submissions: SubmissionQueue,
    engine: Option<JoinHandle<io::Result<()>>>,
    /// Directories that go again should the node never have been ready.
    made: Option<MadeDirectories>,
}

/// Serves a node until SIGTERM, SIGINT or SIGHUP. Calls `ready` with its address when it can be
/// connected to.
///
/// # Errors
/// [`Refusal`], a line for people.
pub fn serve_node(
    setup: &NodeSetup,
    ready: impl FnOnce(SocketAddr) -> io::Result<()>,
) -> Result<(), Refusal> {
    log::begin();
    let system = |error: io::Error| refused_by_system(&error);
    let (stop, stops) = mpsc::channel();
    let signals = watch_signals(stop.clone()).map_err(system)?;
    let mut node = RunningNode::launch(setup, node_machine(setup), Some(stop))?;
    let result = match ready(node.address) {
        Err(error) => node.stop().and(Err(system(error))),
        Ok(()) => {
            node.keep_directories();
            tracing::info!(address = %node.address, "node serves");
            let submissions = node.submissions.clone();
            let watched =
                notify::watch(move || submissions.call(|done| Message::Clients { done }).is_some());
            let _watched = watched.map_err(system)?;
            // Somebody always says something before the channel closes: the engine at its end.
            match stops.recv() {
                Ok(StopRequest::EngineEnded) | Err(_) => Err(node.ended_by_itself()),
                Ok(_) => {
                    let _stopping = notify::stopping();
                    node.stop()
                }
            }
        }
    };
    signals.close();
    result
}

/// Every connection is a file, and every volume: as many as the system allows may be open.
fn allow_many_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    // With less there is an end to connections sooner.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

fn node_machine(setup: &NodeSetup) -> impl FnOnce(Scratch, u64) -> Box<dyn Machine + Send> + use<> {
    let witness = setup.witness;
    let limit = setup.is_lean().then_some(setup.ring_bytes);
    move |scratch, id| {
        // The keys of hash maps are random, and different for everybody.
        let incarnation = RandomState::new().hash_one(std::process::id()).max(1);
        let node = braid_cluster::node::Node::new(scratch, NodeId(id), incarnation);
        let node = match limit {
            Some(bytes) => node.with_limit(bytes),
            None => node,
        };
        Box::new(if witness { node.as_witness() } else { node })
    }
}

impl RunningNode {
    /// Starts a node on a thread of its own.
    ///
    /// # Errors
    /// [`Refusal`], a line for people.
    pub fn start(setup: &NodeSetup) -> Result<Self, Refusal> {
        let mut node = Self::launch(setup, node_machine(setup), None)?;
        node.keep_directories();
        Ok(node)
    }

    fn keep_directories(&mut self) {
        self.made.take().into_iter().for_each(MadeDirectories::keep);
    }

    /// Starts a node as `start` does, with a machine of the caller's choice and a channel for the
    /// engine's end.
    fn launch(
        setup: &NodeSetup,
        machine: impl FnOnce(Scratch, u64) -> Box<dyn Machine + Send>,
        ended: Option<Sender<StopRequest>>,
    ) -> Result<Self, Refusal> {
        let system = |error: io::Error| refused_by_system(&error);
        // Made before all else, and so gone after all else when something goes wrong.
        let made;
        let store = match &setup.storage {
            Storage::Directory(path) => {
                made = Some(MadeDirectories::of(path));
                Store::directory(path).map_err(|error| Refusal::new(error.reason, error.next))?
            }
            Storage::Memory => {
                made = None;
                Store::memory()
            }
        };
        let (listener, address) = listen(&setup.listen)?;
        let arena = if setup.is_lean() {
            Arena::lean(ADDRESSES * setup.ring_bytes, REQUEST_BYTES)
        } else {
            Arena::for_node(setup.ring_bytes, REQUEST_BYTES)
        };
        let arena = arena.map_err(system)?;
        allow_many_files();
        let machine = AnyMachine::Plain(machine(arena.scratch(), store.id()?));
        let mut engine = Engine::new(machine, Vec::new(), arena).map_err(system)?;
        engine.set_fabric(setup.network, Some(listener))?;
        engine.set_store(store);
        let (sender, events) = mpsc::channel();
        let log = sender;
        let stop = ended.clone();
        engine.on_event(Box::new(move |event| match (event, &stop) {
            // Nobody hears it when the node ends by itself.
            (ArrayEvent::StopAsked, Some(stop)) => drop(stop.send(StopRequest::Signal)),
            // The log is written elsewhere; when its thread is gone there is no log to write.
            (event, _) => drop(log.send(event.clone())),
        }));
        thread::Builder::new().name("log".into()).spawn(|| write_log(events)).map_err(system)?;
        let submissions = engine.submissions();
        let run = move || {
            let result = engine.run();
            if let Some(ended) = ended {
                let _ = ended.send(StopRequest::EngineEnded);
            }
            result
        };
        let engine = thread::Builder::new().name("node".into()).spawn(run).map_err(system)?;
        let node = Self { address, submissions, engine: Some(engine), made };
        // The engine answers when the ring is pinned and somebody accepts connections; before that
        // the kernel would accept them, and who has connected would wait for a word.
        if node.submissions.call(|done| Message::Clients { done }).is_none() {
            return Err(node.ended_by_itself());
        }
        Ok(node)
    }

    /// Returns the address on which it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops it: acknowledged data are in the store, and the store is free after this.
    ///
    /// # Errors
    /// [`Refusal`] when the node refuses or has failed.
    pub fn stop(mut self) -> Result<(), Refusal> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Refusal> {
        let Some(engine) = self.engine.take() else { return Ok(()) };
        let stop = |done| Message::Command { command: Command::Stop, device: None, done };
        // No answer means that the engine has ended already; joining tells why.
        let stopped = self.submissions.call(stop).unwrap_or(Ok(()));
        if let Err(error) = stopped {
            self.engine = Some(engine);
            return Err(Refusal::new(error.reason, error.next));
        }
        join(engine)
    }

    fn ended_by_itself(mut self) -> Refusal {
        let ended = self.engine.take().map_or(Ok(()), join);
        let unasked = || Refusal::new("the engine has ended by itself", "start the node again");
        ended.err().unwrap_or_else(unasked)
    }
}

impl Drop for RunningNode {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Writes the node's reports to the log, until it has ended.
fn write_log(events: Receiver<ArrayEvent>) {
    let mut limit: LineLimit<&'static str> = LineLimit::new();
    for event in events {
        let ArrayEvent::Remark { kind, text } = event else { continue };
        for (kind, left) in limit.over(Instant::now()) {
            tracing::warn!(kind, "{left} more lines of this kind in a minute");
        }
        match limit.count(Instant::now(), kind) {
            Verdict::Leave => {}
            _ if kind == CLEAN_END => tracing::info!(kind, "{text}"),
            _ => tracing::warn!(kind, "{text}"),
        }
    }
}

fn listen(address: &str) -> Result<(TcpListener, SocketAddr), Refusal> {
    let bound = TcpListener::bind(address).and_then(|socket| {
        let address = socket.local_addr()?;
        Ok((socket, address))
    });
    bound.map_err(|error| {
        let next = match error.kind() {
            io::ErrorKind::AddrInUse => "stop who listens there, or choose another port",
            io::ErrorKind::PermissionDenied => "choose a port from 1024 on, or run as root",
            _ => "use HOST:PORT with an address of this machine",
        };
        Refusal::new(format!("cannot listen on {address}: {}", describe(&error)), next)
    })
}

fn join(engine: JoinHandle<io::Result<()>>) -> Result<(), Refusal> {
    let next = "start the node again";
    match engine.join() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => {
            Err(Refusal::new(format!("the engine failed: {}", describe(&error)), next))
        }
        Err(_) => Err(Refusal::new("the engine panicked", next)),
    }
}
