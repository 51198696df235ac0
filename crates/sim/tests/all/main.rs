//! The simulator, and what is tested in its worlds, in one program.

mod cluster;
mod members;
mod node;
mod seeds;
