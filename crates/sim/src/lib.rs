//! The pretend world.
