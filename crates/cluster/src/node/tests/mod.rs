mod array;
mod hostile;
mod sets;
mod setup;
mod world;
