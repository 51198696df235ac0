//! Connections to other processes: messages, and buffers put straight into the other side's arena
//! (see `braid_array::fabric`). The engine drives one fabric through its own driver; nothing here
//! decides anything.
//!
//! Every fabric listens and connects by TCP and says [`frame::Hello`] first. The rest is up to
//! each: `tcp` stays on that connection.

use std::io;
use std::net::TcpListener;

use braid_array::Refusal;
use braid_array::action::Event;
use braid_array::fabric::FabricOp;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::arena::FabricMemory;
use crate::driver::{Driver, OutgoingBytes};
use crate::key::{Key, text_of_uuid};
use crate::system::refused_by_system;
use crate::token::{FabricToken, Token};

pub mod frame;
mod greet;
#[cfg(ofi)]
mod ofi;
pub(crate) mod seal;
pub(crate) mod slices;
mod tcp;

/// Network settings of clients and nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Transport of data.
    pub kind: frame::TransportKind,
    /// Key that proves membership; clients may have the key of one array instead.
    pub key: Option<Key>,
    /// Seals slices as well. A connection seals them if either side asks for it.
    pub encrypt: bool,
}

impl From<frame::TransportKind> for Network {
    /// Creates a network without a key.
    fn from(kind: frame::TransportKind) -> Self {
        Self { kind, key: None, encrypt: false }
    }
}

/// Protection of an array's connections, as the client sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    /// Transport of data.
    pub fabric: String,
    /// Both ends of every connection have proved the cluster key.
    pub authenticated: bool,
    /// The UUID of the only array that the client's key is good for, if it is limited so.
    pub limited_to: Option<String>,
    /// Messages are sealed.
    pub messages_sealed: bool,
    /// Nodes that are connected.
    pub nodes: usize,
    /// Number of connected nodes with which slices are sealed, too.
    pub nodes_with_sealed_slices: usize,
}

/// A fabric for this network, at this place.
///
/// # Errors
/// When there is none of this kind here, or the system is out of descriptors.
pub(crate) fn new(
    network: Network,
    place: FabricMemory,
    listener: Option<TcpListener>,
) -> Result<Box<dyn Fabric>, Refusal> {
    if network.encrypt && (network.key.is_none() || network.kind != frame::TransportKind::Tcp) {
        let reason = "slices are sealed with a cluster key and over tcp only";
        return Err(Refusal::new(reason, "give --key, and use fabric tcp"));
    }
    if listener.is_some()
        && let Some(array) = network.key.and_then(|key| key.array())
    {
        let reason = format!("the key is good for array {} alone", text_of_uuid(array));
        return Err(Refusal::new(reason, "give nodes the cluster key"));
    }
    match network.kind {
        frame::TransportKind::Tcp => {
            let fabric = tcp::Tcp::new(network, place, listener);
            Ok(Box::new(fabric.map_err(|error| refused_by_system(&error))?))
        }
        #[cfg(ofi)]
        frame::TransportKind::Ofi(provider) => {
            Ok(Box::new(ofi::Ofi::new(network, place, listener, provider)?))
        }
        #[cfg(not(ofi))]
        frame::TransportKind::Ofi(_) => Err(Refusal::new(
            "this braid was built without libfabric",
            "install libfabric-dev and build again, or use fabric tcp",
        )),
    }
}

/// A fabric. Operations are started on the engine's driver as `Token::Fabric`. All is called on the
/// engine's thread, and nothing may block.
///
/// Duties towards the machine:
/// - Every `Connect` is answered by `Connected` or `Lost`. Requests to a peer before `Connected` or
///   after `Lost` fail: puts are answered with `IoError::GONE`, messages vanish.
/// - Messages of a peer arrive in order. A `Placed` comes when the whole buffer is in the arena.
/// - A put's `Done` comes when its buffer is no longer read; before a peer's `Lost`, all of its
///   puts are answered.
/// - A peer that breaks the rules is disconnected, and `Lost` has the reason.
pub(crate) trait Fabric: Send {
    /// Starts with the engine: connections may come in. Called once, before anything else.
    ///
    /// # Errors
    /// When the system refuses a resource that the fabric cannot do without.
    fn begin(&mut self, driver: &mut Driver<Token>) -> io::Result<()>;

    /// Takes in an operation of the machine. The start may be left to `flush`.
    fn start(&mut self, driver: &mut Driver<Token>, op: FabricOp);

    /// Starts everything that was gathered: the machine has nothing more to ask for now. True when
    /// something is over by that, which `poll` tells.
    fn flush(&mut self, driver: &mut Driver<Token>) -> bool;

    /// Handles the completion of one of its operations.
    fn completed(
        &mut self,
        driver: &mut Driver<Token>,
        token: FabricToken,
        result: Result<u32, Errno>,
        message: Option<Box<OutgoingBytes>>,
    );

    /// The next thing for the machine: `Event::Fabric` or, for a put, `Event::Done`.
    fn poll(&mut self) -> Option<Event>;

    /// Returns the protection of its connections.
    fn protection(&self) -> Protection;

    /// Ends with the engine: accepts no more, and ends every connection once its queued data are on
    /// their way. No event comes after this, but completions still do. Operations of the fabric may
    /// stay in the driver no longer than that takes.
    fn close(&mut self, driver: &mut Driver<Token>);

    /// Ends at once the connections that are left after `close`.
    fn disconnect(&mut self);
}

#[cfg(test)]
mod tests;
