//! The simulated world: the machine of `braid-array` on seeded disks that delay, reorder, fail and
//! lose power, and a judge that knows the allowed content of each sector.
//!
//! A seed draws an array, its troubles ([`scenario`]) and how devices behave ([`fault`]). Requests
//! and troubles come ([`workload`], [`troubles`]), the power is cut, and what is left is assembled
//! ([`assembly`]). In the end all troubles are mended and every sector is compared
//! ([`final_check`]). Reads are judged by the [`judge`], here and over nodes. The same seed is the
//! same run, event by event. [`nested`] has arrays of arrays in the same world, and [`cluster`]
//! does the like for arrays over nodes.
#![forbid(unsafe_code)]

pub mod assembly;
pub mod attached;
pub mod clock;
pub mod cluster;
pub mod compute;
pub mod create;
pub mod device_io;
pub mod disk;
pub mod executor;
pub mod fault;
pub mod final_check;
pub mod judge;
pub mod nested;
pub mod oracle;
pub mod part;
pub mod past;
pub mod progress;
pub mod redundancy;
pub mod report;
pub mod rest;
pub mod rng;
pub mod run;
pub mod scenario;
pub mod stamp;
pub mod subject;
pub mod suspects;
pub mod trace;
pub mod troubles;
pub mod workload;
pub mod world;
