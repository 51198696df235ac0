//! The real world: files, rings, sockets, threads. Mechanism, no policy.

pub mod access;
pub mod arena;
pub mod control;
pub mod daemon;
pub mod disk;
mod driver;
pub mod engine;
mod execute;
mod execve;
pub mod export;
pub mod fabric;
pub mod handover;
mod heap;
pub mod key;
pub mod limits;
mod lock;
mod log;
mod mailbox;
pub mod member;
mod nbd_proto;
pub mod node;
pub mod notify;
pub mod reader;
pub mod remote;
pub mod run_dir;
pub mod serve;
pub mod served_array;
pub mod size;
pub mod store;
pub mod submission;
mod sysfs;
mod system;
mod token;
pub mod users;

#[cfg(test)]
mod testing;
