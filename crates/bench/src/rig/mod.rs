//! What is set up to be measured: files, devices, arrays, file systems; and taken down, always.

mod array;
mod device;
pub mod leftovers;
mod room;

pub use array::{Array, ArraySpec};
pub use device::{FileSystem, Kind, LoopDevice, drop_caches};
pub(crate) use room::file_name;
pub use room::{MemberFiles, Room};
