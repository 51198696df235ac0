//! The contents of disks and of images of disks, for arrays that have to be found again. Decoders
//! only: no file, socket, thread or clock. The caller reads, through an [`Image`], and gets data.
//!
//! All of it takes hostile bytes: lengths are checked, memory and work are bounded, whatever an
//! image says of itself. Sectors that cannot be read cost what lies in them, and no more.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(clippy::single_range_in_vec_init, reason = "lists of ranges are meant"))]

mod bytes;
pub mod contents;
mod crc;
pub mod image;
pub mod kind;
pub mod lvm;
pub mod map_file;
pub mod partitions;
pub mod reach;
pub mod recover;

pub use image::{Image, Unreadable};
