//! The node machine under a scripted client, on the simulator's fabric and volumes.

mod array;
mod degraded;
mod forget;
mod hostile;
mod lease;
mod limit;
mod longer;
mod orphans;
mod restore;
mod sets;
mod setup;
mod thin;
mod votes;
mod world;
