//! The vhost-user export: the array as a virtio block device of a virtual machine, whose memory and
//! rings of requests are shared with us. No system call and no copy by the front end stands between
//! the guest and the engine.
//!
//! The pure part reads what guests write: [`chain`] and [`request`] from descriptors to requests,
//! [`ring`] what a ring has, [`inflight`] what is noted of requests under way, so that a front end
//! can have them done by whoever serves it next. None of them does any I/O but on mapped memory,
//! and none trusts it. [`device`] is what a guest sees.
//!
//! Around it, [`reception`] is a thread for each socket, on which [`front_end`] follows the
//! protocol (the crate `vhost` reads its messages, and waits for them), and tells the engine by
//! [`says`]. There an [`endpoint`] has the rings, [`jobs`] copy data and make requests, and
//! [`server`] watches the kicks, all in the engine's own loop.
//!
//! Of the crate `virtio-queue` the rings are used, not the chains: it can begin none at a given
//! head, as for what was under way at a crash, and takes one that is broken for one that is short.

mod chain;
mod device;
mod endpoint;
mod front_end;
mod fuzz;
mod inflight;
mod jobs;
mod memory;
mod reception;
mod request;
mod ring;
mod says;
mod server;
#[cfg(test)]
mod tests;
mod windows;

pub(crate) use device::{Device, MAX_RINGS};
pub use fuzz::{FUZZ_MEMORY_BYTES, fuzz_ring};
pub(crate) use server::Server;
