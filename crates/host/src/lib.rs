//! The real world: files, rings, sockets, threads. Mechanism, no policy.

pub mod arena;
pub mod control;
pub mod door;
mod driver;
mod driver_threads;
pub mod engine;
mod engine_core;
mod engine_door;
mod execute;
pub mod export;
pub mod member;
mod slab;
mod uring;

#[cfg(test)]
mod engine_tests;
#[cfg(test)]
mod testing;
