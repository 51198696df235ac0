mod array;
mod degraded;
mod hostile;
mod sets;
mod setup;
mod world;
