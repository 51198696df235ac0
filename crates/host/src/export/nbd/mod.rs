//! The NBD export: a server of our own for the fixed newstyle protocol, in the engine's ring.
//!
//! [`session`] speaks the protocol and does no I/O; [`server`] moves the bytes and turns commands
//! into requests to the machine. The protocol is the one of the NBD project's `doc/proto.md`.

mod certificates;
mod connection;
mod devices;
mod handshakes;
mod server;
mod session;
#[cfg(test)]
mod session_tests;
mod tls;

pub use crate::nbd_proto::MAX_PAYLOAD_BYTES;
pub use certificates::asks_clients;
pub use session::fuzz_session;

pub(crate) use certificates::load;
pub(crate) use devices::{Device, SocketDevices};
pub(crate) use handshakes::Present;
#[cfg(test)]
pub(crate) use server::ClientPatience;
pub(crate) use server::{Listener, NbdServer};
