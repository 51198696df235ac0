//! The node machine under a client that says what it wants: on the simulator's pretend fabric and
//! volumes.

mod array;
mod degraded;
mod forget;
mod hostile;
mod lease;
mod limit;
mod orphans;
mod restore;
mod sets;
mod setup;
mod thin;
mod votes;
mod world;
