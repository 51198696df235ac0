//! A new array over nodes: the sizes of its volumes, and their content. New volumes read as zeroes,
//! which is a state that every code agrees with, so the array is clean from the start.

use braid_array::SECTOR_BYTES;
pub use braid_array::create::NewBitmap;
use braid_array::create::{self, NewDevice, NewLog};
use braid_array::format::{MoveNote, Version};
use braid_array::level::Layout;
use braid_array::refusal::{Advised, Next};

use crate::family::{Family, FamilyError};
use crate::journal::{HEADERS_BYTES, Header};
use crate::pipeline::{Params, PipelineError};

#[cfg(test)]
mod tests;

/// Specification of a new array.
#[derive(Clone, Debug)]
pub struct NewArray {
    /// Name as it is stored: `HOST:NAME`, at most 32 bytes.
    pub name: String,
    /// UUID.
    pub set_uuid: [u8; 16],
    /// Time, coded as in a superblock.
    pub ctime: u64,
    /// The code.
    pub family: Family,
    /// Length of a block, a multiple of 4096; by default a length that suits the code. Mirrors have
    /// none.
    pub chunk_bytes: Option<u32>,
    /// Data on each member; rounded down to whole stripes.
    pub size_bytes: u64,
    /// The write-intent bitmap; by default there is one where there is redundancy, however small
    /// the array: without it, a node that was away for a moment would have to be written anew.
    pub bitmap: NewBitmap,
    /// Size of the journal on each volume, behind the data; 0 without one.
    pub journal_bytes: u64,
    /// Only writes to parts of stripes are recorded there.
    pub parts_only: bool,
    /// Its part in a move of data.
    pub note: MoveNote,
}

/// Specification of the volumes of a new array.
#[derive(Clone, Debug)]
pub struct Blueprint {
    /// Size of each.
    pub volume_bytes: u64,
    /// By role: the writes, as sectors and whole sectors of bytes, in this order.
    pub writes: Vec<Vec<(u64, Vec<u8>)>>,
}

/// Reason why there can be no such array.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// The code does not exist over this many nodes.
    #[error(transparent)]
    Family(#[from] FamilyError),
    /// The code exists, but no pipeline for it.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// md would not run it.
    #[error(transparent)]
    Array(#[from] create::CreateError),
    /// Not a multiple of 4 KiB.
    #[error("a chunk of {0} bytes does not suit nodes")]
    Chunk(u32),
    /// Less than a stripe.
    #[error("a size of {size_bytes} bytes is less than a stripe")]
    Size {
        /// The size that was asked for.
        size_bytes: u64,
        /// The bytes that one stripe takes of each member.
        stripe_bytes: u64,
    },
    /// More members than a pipeline has.
    #[error("{0} members are too many")]
    Members(usize),
}

impl Advised for CreateError {
    fn next(&self) -> Next {
        match self {
            Self::Family(error) => error.next(),
            Self::Pipeline(error) => error.next(),
            Self::Array(error) => error.next(),
            Self::Chunk(_) => "use a multiple of 4K".into(),
            Self::Size { stripe_bytes, .. } => format!("use at least {stripe_bytes} bytes").into(),
            Self::Members(_) => "use fewer".into(),
        }
    }
}

impl NewArray {
    /// Plans the array, for one device UUID for each role, and of each spare.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn plan(
        &self,
        device_uuids: &[[u8; 16]],
        spare_uuids: &[[u8; 16]],
    ) -> Result<Blueprint, CreateError> {
        let too_many = |_| CreateError::Members(device_uuids.len());
        let nodes = u16::try_from(device_uuids.len()).map_err(too_many)?;
        let code = self.family.code(nodes, 0)?;
        let has_chunk = self.family.has_chunk();
        let chunk_bytes = if has_chunk { self.chunk_bytes } else { None };
        let chunk_bytes = match chunk_bytes {
            Some(bytes) if bytes == 0 || bytes % 4096 != 0 => {
                return Err(CreateError::Chunk(bytes));
            }
            Some(bytes) => bytes,
            None => Params::default_chunk_bytes(self.family, nodes)?,
        };
        let stripe_bytes = u64::from(code.rows()) * u64::from(chunk_bytes);
        let size_bytes = self.size_bytes / stripe_bytes * stripe_bytes;
        if size_bytes == 0 {
            return Err(CreateError::Size { size_bytes: self.size_bytes, stripe_bytes });
        }
        let size_sectors = size_bytes / SECTOR_BYTES;
        let chunk_sectors = if has_chunk { chunk_bytes / SECTOR_BYTES as u32 } else { 0 };
        let device_sectors = create::device_sectors(size_sectors, chunk_sectors);
        let level = self.family.level();
        let layout = match self.family {
            Family::Md { layout, .. } => layout,
            // The same sizes; which code it is, is written below.
            Family::Xor2d => Layout::default_for(level),
        };
        let array = create::NewArray {
            name: self.name.clone(),
            set_uuid: self.set_uuid,
            ctime: self.ctime,
            level,
            layout,
            chunk_sectors,
            version: Version::V1_2,
            data_offset: None,
            size_sectors: self.family.is_redundant().then_some(size_sectors),
            bitmap: self.bitmap_of(size_bytes),
            log: NewLog::None,
            assume_clean: true,
            integrity: false,
        };
        let device = |&device_uuid| NewDevice { device_sectors, device_uuid };
        let devices: Vec<_> = device_uuids.iter().map(device).map(Some).collect();
        let spares: Vec<_> = spare_uuids.iter().map(device).collect();
        let mut blueprint = array.plan(&devices, &spares)?;
        let (level, layout) = self.family.encode();
        for superblock in blueprint.superblocks.iter_mut().flatten() {
            (superblock.level, superblock.layout) = (level, layout);
            superblock.feature_map |= self.note.features();
        }
        let mut writes: Vec<_> =
            (0..devices.len() + spares.len()).map(|index| blueprint.writes(index)).collect();
        let mut volume_bytes = device_sectors * SECTOR_BYTES;
        if let Some(header) = Header::new(self.journal_bytes, self.parts_only) {
            let headers = header.place(volume_bytes);
            volume_bytes = headers + HEADERS_BYTES;
            let header = (headers / SECTOR_BYTES, header.encode(&self.set_uuid));
            writes.iter_mut().for_each(|writes| writes.insert(0, header.clone()));
        }
        Ok(Blueprint { volume_bytes, writes })
    }

    /// Returns the bitmap, for this much data on each member.
    fn bitmap_of(&self, size_bytes: u64) -> NewBitmap {
        match self.bitmap {
            NewBitmap::Default if !self.family.is_redundant() => NewBitmap::None,
            NewBitmap::Default | NewBitmap::Internal { chunk_bytes: None } => {
                NewBitmap::Internal { chunk_bytes: chunk_of_bitmap(size_bytes) }
            }
            said => said,
        }
    }
}

/// Bits of the bitmap of a member, about. A returning node is thus given not much more than it
/// missed.
const BITS: u64 = 2048;
/// Least chunk: smaller ones would be told to the members too often.
const MIN_BITMAP_CHUNK_BYTES: u64 = 64 << 10;
/// md's own choice for large members.
const MAX_BITMAP_CHUNK_BYTES: u64 = 64 << 20;

/// Returns the bytes of a member for each bit; `None` leaves the choice to md's rule.
pub(crate) fn chunk_of_bitmap(size_bytes: u64) -> Option<u32> {
    let chunk = (size_bytes / BITS).next_power_of_two().max(MIN_BITMAP_CHUNK_BYTES);
    if chunk < MAX_BITMAP_CHUNK_BYTES { u32::try_from(chunk).ok() } else { None }
}
