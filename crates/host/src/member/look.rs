//! Looking into members that are more, or something else, than a member of an array.

use braid_array::SECTOR_BYTES;
use braid_rescue::Image;
use braid_rescue::kind::{self, Look};
use braid_rescue::partitions::{self, NoTable, Table};

use super::MemberFile;
use crate::system::describe;

/// A member, as an image to look into.
struct Looked<'a>(&'a MemberFile);

impl Image for Looked<'_> {
    fn size_bytes(&self) -> u64 {
        self.0.sectors * SECTOR_BYTES
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), String> {
        let bytes = self.0.read_at(offset_bytes, into.len()).map_err(|error| describe(&error))?;
        into.copy_from_slice(&bytes);
        Ok(())
    }
}

/// Returns a member as an image to look into. Unreadable bytes of it are missing, and no more.
pub fn as_image(member: &MemberFile) -> impl Image + '_ {
    Looked(member)
}

/// The partition table of a disk or an image of one.
///
/// # Errors
/// Reason why there is none.
pub fn partitions(disk: &MemberFile) -> Result<Table, NoTable> {
    partitions::read(&mut Looked(disk))
}

/// Returns the content of a device that is no member of an array.
#[must_use]
pub fn what_it_is(device: &MemberFile) -> Look {
    kind::look(&mut Looked(device))
}
