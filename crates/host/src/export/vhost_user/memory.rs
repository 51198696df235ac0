//! The guest's memory, as the front end gives it to us: files, mapped here.
//!
//! Addresses in requests are the guest's; those of rings are the front end's own, and are
//! translated once. A replaced table stays with its remaining users.
//!
//! The guest may write there at any moment. The front end that passes the files can also truncate
//! them, which kills a process that reads the missing part. Front ends have to avoid that; none
//! known to us does it.

use std::fs::File;
use std::sync::Arc;

use vhost::vhost_user::message::VhostUserMemoryRegion;
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap};

/// The guest's memory.
pub(super) type MappedGuest = GuestMemoryMmap<()>;

/// Regions at most; as many as a guest may have memory modules.
pub(super) const MAX_REGIONS: usize = 509;

/// Reason for which memory is not mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("regions that overlap, or that are not in their files")]
pub(super) struct NotMapped;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MemoryRegion {
    guest: u64,
    user: u64,
    bytes: u64,
}

/// The regions, and the mapping of all of them.
#[derive(Clone, Debug, Default)]
pub(super) struct RegionTable {
    regions: Vec<MemoryRegion>,
    guest: Arc<MappedGuest>,
}

impl RegionTable {
    /// Maps regions.
    ///
    /// # Errors
    /// [`NotMapped`]
    pub(super) fn of(
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
    ) -> Result<Self, NotMapped> {
        let pairs = regions.iter().zip(files);
        pairs
            .into_iter()
            .try_fold(Self::default(), |table, (region, file)| table.with(region, file))
    }

    /// These, and one more.
    ///
    /// # Errors
    /// [`NotMapped`]
    pub(super) fn with(
        &self,
        region: &VhostUserMemoryRegion,
        file: File,
    ) -> Result<Self, NotMapped> {
        let VhostUserMemoryRegion { guest_phys_addr, memory_size, user_addr, mmap_offset } =
            *region;
        let size = usize::try_from(memory_size).map_err(|_| NotMapped)?;
        let place = FileOffset::new(file, mmap_offset);
        let mapped = GuestRegionMmap::from_range(GuestAddress(guest_phys_addr), size, Some(place));
        let mapped = Arc::new(mapped.map_err(|_| NotMapped)?);
        let guest = self.guest.insert_region(mapped).map_err(|_| NotMapped)?;
        let mut regions = self.regions.clone();
        regions.push(MemoryRegion { guest: guest_phys_addr, user: user_addr, bytes: memory_size });
        Ok(Self { regions, guest: Arc::new(guest) })
    }

    /// These without one.
    ///
    /// # Errors
    /// [`NotMapped`] when it is not one of them.
    pub(super) fn without(&self, region: &VhostUserMemoryRegion) -> Result<Self, NotMapped> {
        let VhostUserMemoryRegion { guest_phys_addr, memory_size, .. } = *region;
        let removed = self.guest.remove_region(GuestAddress(guest_phys_addr), memory_size);
        let (guest, _) = removed.map_err(|_| NotMapped)?;
        let mut regions = self.regions.clone();
        regions.retain(|region| region.guest != guest_phys_addr);
        Ok(Self { regions, guest: Arc::new(guest) })
    }

    /// Translates the front end's address `user` into the guest's.
    pub(super) fn translate(&self, user: u64) -> Option<GuestAddress> {
        let mut regions = self.regions.iter();
        let region = regions.find(|region| {
            user.checked_sub(region.user).is_some_and(|offset| offset < region.bytes)
        })?;
        Some(GuestAddress(region.guest + (user - region.user)))
    }

    /// All of it.
    pub(super) const fn guest(&self) -> &Arc<MappedGuest> {
        &self.guest
    }
}
