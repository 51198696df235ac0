//! What lies at the beginning of a volume: superblock and bitmap of a member, or nothing.

use braid_array::SECTOR_BYTES;
use braid_array::assemble::read_bitmap;
use braid_array::format::superblock::READ_BYTES;
use braid_array::format::{Bitmap, BitmapError, Superblock, SuperblockError, Version};
use braid_cluster::assemble::{Candidate, SUPERBLOCK_SECTOR};

use super::{MAX_META_BYTES, Remote, RemoteError};

/// The superblock of the volume that is open, or why there is none to trust.
///
/// # Errors
/// [`RemoteError`]: it cannot be read.
pub fn superblock(remote: &mut Remote) -> Result<Result<Superblock, SuperblockError>, RemoteError> {
    let read = remote.read(SUPERBLOCK_SECTOR, READ_BYTES)?;
    Ok(Superblock::decode(Version::V1_2, SUPERBLOCK_SECTOR, &read))
}

/// Is nothing where the superblock of the open volume goes? A volume that has no room for one was
/// not made for an array.
///
/// # Errors
/// [`RemoteError`]: it cannot be read.
pub fn is_blank(remote: &mut Remote) -> Result<bool, RemoteError> {
    if Version::V1_2.location(remote.volume_bytes() / SECTOR_BYTES).is_none() {
        return Ok(false);
    }
    let bytes = remote.read(SUPERBLOCK_SECTOR, READ_BYTES)?;
    Ok(bytes.iter().all(|&byte| byte == 0))
}

/// Opens a volume of the node at `address` and reads its superblock and bitmap. The volume stays
/// open as long as the connection is kept.
///
/// # Errors
/// [`RemoteError`]. That there is no superblock to trust is none.
pub fn probe(
    remote: &mut Remote,
    address: &str,
    volume: &str,
    write: bool,
) -> Result<Candidate, RemoteError> {
    let bytes = remote.open_volume(volume, write)?;
    let superblock = match Version::V1_2.location(bytes / SECTOR_BYTES) {
        None => Err(SuperblockError::NoMagic),
        Some(_) => superblock(remote)?,
    };
    let mut bitmap = None;
    if let Ok(superblock) = &superblock
        && superblock.supported_over_nodes().is_ok()
        && let Some(sector) = superblock.bitmap_sector()
    {
        bitmap = Some(remote.bitmap(sector, bytes / SECTOR_BYTES)?);
    }
    let address = address.to_owned();
    let volume = volume.to_owned();
    Ok(Candidate { address, volume, bytes, superblock, bitmap })
}

impl Remote {
    /// Reads the bitmap that begins at this sector of the open volume of so many.
    ///
    /// # Errors
    /// [`RemoteError`]. That there is no bitmap to trust is none.
    fn bitmap(
        &mut self,
        sector: u64,
        volume_sectors: u64,
    ) -> Result<Result<Bitmap, BitmapError>, RemoteError> {
        let mut failed = None;
        let bitmap = read_bitmap(sector, volume_sectors, &mut |sector, bytes| {
            let mut read = Vec::with_capacity(bytes as usize);
            while (read.len() as u32) < bytes {
                let have = read.len() as u32;
                let part = (bytes - have).min(MAX_META_BYTES);
                let at = sector + u64::from(have) / SECTOR_BYTES;
                let part = self.read(at, part).map_err(|error| {
                    let reason = error.to_string();
                    failed = Some(error);
                    reason
                })?;
                read.extend(part);
            }
            Ok(read)
        });
        failed.map_or(Ok(bitmap), Err)
    }
}
