//! A simulated cluster: the client and node machines of `braid-cluster`, each a process of the
//! [`world`](crate::world).
//!
//! A seed draws a [`scenario`]; [`run`] lets clients come and go on their [`nodes`], write
//! ([`session`], [`steps`], [`requests`]), change [`roles`] and meet troubles, which change what is
//! [promised](promises). In the end all content is compared with the volumes ([`final_check`],
//! [`content`]).
//!
//! Some seeds have another array on the same nodes ([`guest`]), a fenced client after a
//! [`takeover`] ([`fenced_client`]), a node that replaces a lost one ([`recovery_target`]) or a
//! serving one ([`spare`]), more absent nodes than the array can do without ([`away`]), witnesses
//! ([`witness`]), or a changed bit on a volume ([`bit_rot`]). Lives end at a drawn [`kill_point`],
//! have an [`idle_phase`], and some clients come for a short time ([`short_lived_clients`]). Some
//! seeds are about many clients in succession ([`relay`]), others about losses of power while whole
//! stripes are written, and arrays that continue without some of their members then ([`torn`]).

mod absent;
mod away;
mod bit_rot;
pub mod content;
mod fenced_client;
mod final_check;
pub mod guest;
mod idle_phase;
mod kill_point;
mod moved;
pub mod nodes;
pub mod promises;
pub mod recovery_target;
mod relay;
mod requests;
mod roles;
pub mod run;
pub mod scenario;
pub mod session;
mod short_lived_clients;
mod spare;
mod start;
mod steps;
pub mod suspects;
mod takeover;
mod torn;
mod troubles;
pub mod witness;
