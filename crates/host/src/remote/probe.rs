//! Content at the beginning of a volume: superblock, bitmap and bad-block log of a member, or
//! nothing.

use braid_array::SECTOR_BYTES;
use braid_array::assemble::{read_bad_blocks, read_bitmap};
use braid_array::format::superblock::READ_BYTES;
use braid_array::format::{BadBlocks, BadBlocksError, Superblock, SuperblockError, Version};
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

/// Returns the list of bad blocks of which the superblock of the open volume speaks.
///
/// # Errors
/// [`RemoteError`]: it cannot be read.
pub fn bad_blocks(
    remote: &mut Remote,
    superblock: &Superblock,
) -> Result<Result<BadBlocks, BadBlocksError>, RemoteError> {
    let sectors = remote.volume_bytes() / SECTOR_BYTES;
    remote.read_by(|read| read_bad_blocks(superblock, sectors, read))
}

/// Returns whether the place of the superblock is empty on the open volume. A volume without room
/// for one was not made for an array.
///
/// # Errors
/// [`RemoteError`] when it cannot be read.
pub fn is_blank(remote: &mut Remote) -> Result<bool, RemoteError> {
    if Version::V1_2.location(remote.volume_bytes() / SECTOR_BYTES).is_none() {
        return Ok(false);
    }
    let bytes = remote.read(SUPERBLOCK_SECTOR, READ_BYTES)?;
    Ok(bytes.iter().all(|&byte| byte == 0))
}

/// Opens a volume of the node at `address` and reads its superblock, bitmap and bad-block log. The
/// volume stays open as long as the connection is kept.
///
/// # Errors
/// [`RemoteError`]. A missing or damaged superblock is no error.
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
    let mut bad_blocks = Ok(BadBlocks::default());
    if let Ok(superblock) = &superblock
        && superblock.supported_over_nodes().is_ok()
    {
        let sectors = bytes / SECTOR_BYTES;
        if let Some(sector) = superblock.bitmap_sector() {
            bitmap = Some(remote.read_by(|read| read_bitmap(sector, sectors, read))?);
        }
        bad_blocks = self::bad_blocks(remote, superblock)?;
    }
    let address = address.to_owned();
    let volume = volume.to_owned();
    Ok(Candidate { address, volume, bytes, superblock, bitmap, bad_blocks })
}

type Read<'a> = dyn FnMut(u64, u32) -> Result<Vec<u8>, String> + 'a;

impl Remote {
    /// Reads metadata of the open volume as a decoder asks for them.
    ///
    /// # Errors
    /// [`RemoteError`]. A decoder's failure is no error here.
    fn read_by<T>(
        &mut self,
        decode: impl FnOnce(&mut &mut Read<'_>) -> T,
    ) -> Result<T, RemoteError> {
        let mut failed = None;
        let read: &mut Read<'_> = &mut |sector, bytes| {
            self.read_long(sector, bytes).map_err(|error| {
                let reason = error.to_string();
                failed = Some(error);
                reason
            })
        };
        let decoded = decode(&mut { read });
        failed.map_or(Ok(decoded), Err)
    }

    /// Reads more of the open volume than one answer holds.
    fn read_long(&mut self, sector: u64, bytes: u32) -> Result<Vec<u8>, RemoteError> {
        let mut read = Vec::with_capacity(bytes as usize);
        while (read.len() as u32) < bytes {
            let have = read.len() as u32;
            let part = (bytes - have).min(MAX_META_BYTES);
            read.extend(self.read(sector + u64::from(have) / SECTOR_BYTES, part)?);
        }
        Ok(read)
    }
}
