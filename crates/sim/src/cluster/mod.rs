//! A pretend cluster: the client and node machines of `braid-cluster` on a pretend fabric, with
//! pretend volumes, in virtual time.
//!
//! [`world`] runs [`process`]es: it carries out their [`io`] and what they ask of the [`fabric`],
//! and notices by [`claims`] and by what it hears ([`watch`]) what machines must not do. A seed
//! draws a [`scenario`]; [`run`] lets clients come and go on their [`nodes`], write ([`session`],
//! [`requests`]) and meet troubles, which change what is [promised](promises), and in the end
//! compares everything with what lies on the volumes ([`final_check`], [`content`]).
//!
//! At times another array lives on the same nodes ([`guest`]), a client goes on whose array was
//! taken over ([`fenced_client`]), another node takes the place of a lost one ([`recovery_target`])
//! or of one that serves ([`spare`]), and those leave the array; more nodes go away than the array
//! can do without ([`away`]), nodes vote that hold nothing ([`witness`]), or a bit changes on a
//! volume ([`bit_rot`]). Lives end at a drawn [`kill_point`], have an [`idle_phase`], and some
//! clients come for a short time ([`short_lived_clients`]); and some seeds are about many that
//! follow one another ([`relay`]), others about power that is lost while whole stripes are written,
//! and arrays that go on without some of their members then ([`torn`]).

mod absent;
mod away;
mod bit_rot;
pub mod claims;
pub mod content;
pub mod fabric;
mod fenced_client;
mod final_check;
pub mod guest;
mod idle_phase;
pub mod io;
mod kill_point;
pub mod nodes;
pub mod process;
pub mod promises;
pub mod recovery_target;
mod relay;
mod replay;
mod requests;
pub mod run;
pub mod scenario;
pub mod script;
pub mod session;
mod short_lived_clients;
mod spare;
mod start;
pub mod suspects;
mod torn;
mod troubles;
mod votes;
pub mod watch;
pub mod witness;
pub mod world;

#[cfg(test)]
mod tests;
