//! What is set up to be measured: files, devices, arrays, file systems, networks; and taken down,
//! always.

mod array;
mod device;
pub mod lab;
pub mod leftovers;
mod limit;
mod md;
mod nbdkit;
pub mod place;
mod room;
pub mod spaces;
mod storage_daemon;
pub mod talk;
mod virtual_disk;

pub use array::{Array, ArraySpec};
pub use device::{FileSystem, Kind, LoopDevice, drop_caches};
pub use limit::{LimitedDisks, Limits, Rate};
pub use md::{Md, MdSpec};
pub use nbdkit::{NbdFuse, Nbdkit};
pub use room::{MemberFiles, Room};
pub(crate) use room::{file_name, memory_available_bytes};
pub use storage_daemon::StorageDaemon;
pub use virtual_disk::VirtualDisk;
