//! The vhost-user export: the array as a virtio block device of a virtual machine, whose memory and
//! rings of requests are shared with us. No system call and no copy by the front end stands between
//! the guest and the engine.
//!
//! The pure part reads the guests' bytes: [`chain`] and [`request`] decode descriptors into
//! requests, [`ring`] reads a ring, and [`inflight`] notes requests in flight, so that the next
//! server of a front end can do them again. None of them does any I/O but on mapped memory, and
//! none trusts it. [`device`] has the properties that a guest sees.
//!
//! Around it, [`front_end_thread`] accepts front ends: each socket has a thread, on which
//! [`front_end`] follows the protocol (the crate `vhost` reads its messages, and waits for them),
//! and tells the engine by [`endpoint_messages`]; the [`back_channel`] tells a front end that the
//! array has grown. In the engine's own loop an [`endpoint`] has the rings, [`jobs`] copy data and
//! make requests, and [`server`] watches the kicks.
//!
//! The rings come from the crate `virtio-queue`, the chains do not: that crate cannot begin a chain
//! at a given head, as for requests in flight at a crash, and takes a broken chain for a short one.

mod back_channel;
mod chain;
mod device;
mod endpoint;
mod endpoint_messages;
mod front_end;
mod front_end_thread;
mod fuzz;
#[cfg(test)]
mod grown_tests;
mod inflight;
mod jobs;
mod memory;
mod request;
mod ring;
mod server;
#[cfg(test)]
mod tests;
mod windows;

pub(crate) use device::{ExportedDevice, MAX_RINGS};
pub use fuzz::{FUZZ_MEMORY_BYTES, fuzz_ring};
pub(crate) use server::VhostServer;
