//! The array as a block device of the kernel's, `/dev/ublkbN`, through its driver ublk.
//!
//! The kernel hands requests to a command that waits in the engine's ring, one for each tag, and
//! takes the answer with the next such command: nothing goes through a socket or a file system.
//! `server` does that, and [`proto`] decodes the requests. The steps that make a device, and take
//! it away, go over a ring of its own (`control`, with the commands of `command`): `device` has one
//! from the first step to the last; `resize` follows an array that grows.
//!
//! A device outlives the process that serves it: its users wait, and requests that the process had
//! not answered are repeated. The array's next process takes it over, as `plan` says.

mod command;
mod control;
mod device;
mod plan;
pub mod proto;
mod resize;
mod server;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use device::{UblkDevice, UblkSetup, check_driver, make};
