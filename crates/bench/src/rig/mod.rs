//! What is set up to be measured: files, devices, arrays, file systems; and taken down, always.

mod room;

pub use room::Room;
