//! The real world: files, rings, sockets, threads. Mechanism, no policy.

pub mod control;
pub mod door;
pub mod export;
pub mod member;

#[cfg(test)]
mod testing;
