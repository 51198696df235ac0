//! Rig: files, devices, arrays, file systems, networks, set up to be measured, and always taken
//! down.

mod array;
mod device;
pub mod lab;
pub mod leftovers;
mod limit;
pub mod place;
pub mod process;
mod room;
mod server;
pub mod spaces;
mod stack;
mod virtual_disk;

pub use array::{Array, ArraySpec};
pub(crate) use device::md_exists;
pub use device::{FileSystem, FileSystemKind, LoopDevice, drop_caches};
pub use limit::{Limits, Rate};
pub use room::Room;
pub(crate) use room::{file_name, memory_available_bytes};
pub use server::{Program, Server, Target};
pub use stack::Stack;
pub use virtual_disk::VirtualDisk;
