//! What programs that we did not write put on disks, read by the decoders.

mod kinds;
mod lvm;
mod map_files;
mod partitions;
mod reach;
mod recover;
mod support;
