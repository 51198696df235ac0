mod array;
mod degraded;
mod hostile;
mod sets;
mod setup;
mod thin;
mod votes;
mod world;
