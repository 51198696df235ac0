//! Tests of the simulator, and tests in its worlds, in one program.

mod cluster;
mod members;
mod node;
mod seeds;
