mod array;
mod degraded;
mod hostile;
mod sets;
mod setup;
mod votes;
mod world;
