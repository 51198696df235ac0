//! A device that may be a member, and what lies on it.

use super::found_log::{FoundLog, read_log};
use crate::SECTOR_BYTES;
use crate::format::superblock::{Unsupported, time_parts};
use crate::format::{
    BadBlocks, BadBlocksError, Bitmap, BitmapError, BitmapSuperblock, Superblock, SuperblockError,
    locations,
};

/// A device, and what was found on it.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Path, for messages and status.
    pub device: String,
    /// Usable size of the whole device.
    pub device_sectors: u64,
    /// The superblock, or why there is none to trust.
    pub superblock: Result<Superblock, SuperblockError>,
    /// The bad-block log; empty when the superblock says it is.
    pub bad_blocks: Result<BadBlocks, BadBlocksError>,
    /// The bitmap, when the superblock says that there is one.
    pub bitmap: Option<Result<Bitmap, BitmapError>>,
    /// Contents of the log on the device, when there is one and it was [read](Self::with_log).
    pub log: Option<Result<FoundLog, String>>,
}

impl Candidate {
    /// Reads all metadata of a device through `read(sector, bytes)`, which answers with exactly so
    /// many bytes or with the reason why it cannot. Reads are of whole sectors of the device only,
    /// at most [`Candidate::MAX_READ_BYTES`] at a time. Where there are superblocks of several
    /// versions (an old one was never wiped), the array created last counts, as in mdadm.
    pub fn read(
        device: String,
        device_sectors: u64,
        mut read: impl FnMut(u64, u32) -> Result<Vec<u8>, String>,
    ) -> Self {
        let superblock = read_superblock(device_sectors, &mut read);
        let mut bad_blocks = Ok(BadBlocks::default());
        let mut bitmap = None;
        // Of features that are not understood, nothing is read.
        if let Ok(superblock) = &superblock
            && superblock.supported_to_read().is_ok()
        {
            bad_blocks = read_bad_blocks(superblock, device_sectors, &mut read);
            bitmap = superblock
                .bitmap_sector()
                .map(|sector| read_bitmap(sector, device_sectors, &mut read));
        }
        Self { device, device_sectors, superblock, bad_blocks, bitmap, log: None }
    }

    /// Reads the log on the device, if its superblock tells of one. All of what a journal holds is
    /// read: that takes a while, and is done where an array is to start.
    #[must_use]
    pub fn with_log(mut self, mut read: impl FnMut(u64, u32) -> Result<Vec<u8>, String>) -> Self {
        if let Ok(superblock) = &self.superblock
            && superblock.supported().is_ok()
        {
            self.log = read_log(superblock, self.device_sectors, &mut read);
        }
        self
    }

    /// The most that `read` is asked for.
    pub const MAX_READ_BYTES: u32 = 1 << 20;

    /// Checks that this superblock's features can be run.
    pub(super) fn supported(&self) -> Result<(), Unsupported> {
        self.superblock.as_ref().map_or(Ok(()), Superblock::supported)
    }
}

type ReadResult = Result<Vec<u8>, String>;

fn read_superblock(
    device_sectors: u64,
    read: &mut impl FnMut(u64, u32) -> ReadResult,
) -> Result<Superblock, SuperblockError> {
    let mut best = Err(SuperblockError::NoMagic);
    for (version, sector, bytes) in locations(device_sectors) {
        let found = read(sector, bytes)
            .map_err(|reason| SuperblockError::Read { sector, reason })
            .and_then(|bytes| Superblock::decode(version, sector, &bytes));
        let better = match (&best, &found) {
            (Ok(best), Ok(found)) => created(found) > created(best),
            (Err(_), Ok(_)) => true,
            (Err(best), Err(_)) => *best == SuperblockError::NoMagic,
            (Ok(_), Err(_)) => false,
        };
        if better {
            best = found;
        }
    }
    best
}

fn created(superblock: &Superblock) -> u64 {
    time_parts(superblock.ctime).0
}

/// The bad-block log of a member with this superblock; empty where that tells of none.
///
/// # Errors
/// [`BadBlocksError`].
pub fn read_bad_blocks(
    superblock: &Superblock,
    device_sectors: u64,
    read: &mut impl FnMut(u64, u32) -> Result<Vec<u8>, String>,
) -> Result<BadBlocks, BadBlocksError> {
    let Some((sector, bytes)) = bad_blocks_place(superblock, device_sectors)? else {
        return Ok(BadBlocks::default());
    };
    let bytes = read(sector, bytes).map_err(|reason| unreadable(&reason))?;
    BadBlocks::decode(&bytes, superblock.bblog_shift)
}

/// Returns the first sector and the bytes of the list of bad blocks; `None` when a superblock
/// speaks of none.
///
/// # Errors
/// [`BadBlocksError`].
pub fn bad_blocks_place(
    superblock: &Superblock,
    device_sectors: u64,
) -> Result<Option<(u64, u32)>, BadBlocksError> {
    if !superblock.has(crate::format::superblock::feature::BAD_BLOCKS) {
        return Ok(None);
    }
    let sector = superblock.bblog_sector().ok_or_else(|| unreadable("it has no place"))?;
    let sectors = u64::from(superblock.bblog_size_sectors);
    let bytes = sectors * SECTOR_BYTES;
    if bytes > crate::format::bad_blocks::LOG_BYTES as u64 {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        return Err(BadBlocksError::TooLarge { bytes });
    }
    if sector.saturating_add(sectors) > device_sectors {
        return Err(unreadable("it lies beyond the end of the device"));
    }
    Ok(Some((sector, u32::try_from(bytes).expect("a page at most"))))
}

fn unreadable(reason: &str) -> BadBlocksError {
    BadBlocksError::Read { reason: reason.to_owned() }
}

/// The bitmap at this sector of a device.
///
/// # Errors
/// [`BitmapError`].
pub fn read_bitmap(
    sector: u64,
    device_sectors: u64,
    read: &mut impl FnMut(u64, u32) -> Result<Vec<u8>, String>,
) -> Result<Bitmap, BitmapError> {
    let failed = |reason: &str| BitmapError::Read { reason: reason.to_owned() };
    let mut part = |sector: u64, bytes: u64| {
        let end = sector.saturating_add(bytes / SECTOR_BYTES);
        if end > device_sectors {
            return Err(failed("it lies beyond the end of the device"));
        }
        let bytes = u32::try_from(bytes).expect("at most MAX_READ_BYTES");
        read(sector, bytes).map_err(|reason| failed(&reason))
    };
    let mut bytes = part(sector, SECTOR_BYTES)?;
    let needed = BitmapSuperblock::decode(&bytes)?.size_sectors() * SECTOR_BYTES;
    if sector.saturating_add(needed / SECTOR_BYTES) > device_sectors {
        return Err(failed("it ends beyond the end of the device"));
    }
    while (bytes.len() as u64) < needed {
        let have = bytes.len() as u64;
        let next = (needed - have).min(Candidate::MAX_READ_BYTES.into());
        bytes.extend(part(sector + have / SECTOR_BYTES, next)?);
    }
    Bitmap::decode(&bytes)
}
