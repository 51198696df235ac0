//! The simulated world: the machines of `braid-array` and `braid-cluster` on seeded disks that
//! delay, reorder, fail and lose power, and a judge that knows the allowed content of each sector.
//!
//! There is one [`world`] of processes: a [`local`] array is one with disks, an array over nodes a
//! [`cluster`] of them with a network. A seed draws an array, its troubles and how devices behave
//! ([`fault`]). Requests and troubles come ([`workload`]), the power is cut, and what is left is
//! assembled. In the end all troubles are mended and every sector is compared. Reads are judged by
//! the [`judge`], here and over nodes. The same seed is the same run, event by event.
#![forbid(unsafe_code)]

pub mod clock;
pub mod cluster;
pub mod compute;
pub mod device_io;
pub mod disk;
pub mod fault;
pub mod judge;
pub mod local;
pub mod oracle;
pub mod report;
pub mod rest;
pub mod rng;
pub mod stamp;
pub mod trace;
pub mod workload;
pub mod world;
