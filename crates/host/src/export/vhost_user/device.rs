//! The block device that a guest sees: its features, and its configuration space (virtio 1.2,
//! 5.2.3 and 5.2.4).

use braid_array::SECTOR_BYTES;
use vhost::vhost_user::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};

use crate::engine::array_size::ArraySize;

use super::request::{ID_BYTES, MAX_SEGMENT_SECTORS, MAX_SEGMENTS, RequestLimits};

/// Rings at most.
pub(crate) const MAX_RINGS: usize = 64;
/// Segments of the data of a request: with header and status a ring of the usual 128 is full.
const MAX_DATA_SEGMENTS: u32 = 126;
/// The configuration space; behind its fields there are zeroes.
const CONFIG_BYTES: usize = 256;
/// Unit of the media that guests are told.
const PHYSICAL_BLOCK_BYTES: u32 = 4096;

/// Bits of features.
pub(super) mod feature {
    pub(in super::super) const SEG_MAX: u64 = 1 << 2;
    pub(in super::super) const RO: u64 = 1 << 5;
    pub(in super::super) const BLK_SIZE: u64 = 1 << 6;
    pub(in super::super) const FLUSH: u64 = 1 << 9;
    pub(in super::super) const TOPOLOGY: u64 = 1 << 10;
    pub(in super::super) const MQ: u64 = 1 << 12;
    pub(in super::super) const DISCARD: u64 = 1 << 13;
    pub(in super::super) const WRITE_ZEROES: u64 = 1 << 14;
    pub(in super::super) const INDIRECT_DESC: u64 = 1 << 28;
    pub(in super::super) const EVENT_IDX: u64 = 1 << 29;
    pub(in super::super) const VERSION_1: u64 = 1 << 32;
}

/// An array as a block device.
#[derive(Clone, Debug)]
pub(crate) struct ExportedDevice {
    /// Name of the array; guests find it as the serial number.
    pub(crate) name: String,
    /// Size of the array.
    pub(crate) size: ArraySize,
    /// Requests are multiples of this.
    pub(crate) block_bytes: u32,
    /// Refuse writes.
    pub(crate) read_only: bool,
    /// The chunk; 0 where there is none.
    pub(crate) chunk_bytes: u64,
    /// All data of a stripe; 0 where there is none.
    pub(crate) stripe_bytes: u64,
    /// Rings that a guest may use, at most [`MAX_RINGS`].
    pub(crate) rings: u16,
}

impl ExportedDevice {
    /// Returns the present limits of requests to the array.
    pub(super) fn limits(&self) -> RequestLimits {
        RequestLimits {
            size_bytes: self.size.in_blocks(self.block_bytes),
            block_bytes: self.block_bytes,
            read_only: self.read_only,
        }
    }

    /// Returns the features that guests may use.
    pub(super) const fn features(&self) -> u64 {
        let always = feature::SEG_MAX
            | feature::BLK_SIZE
            | feature::FLUSH
            | feature::TOPOLOGY
            | feature::MQ
            | feature::INDIRECT_DESC
            | feature::EVENT_IDX
            | feature::VERSION_1
            | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        let writes = feature::DISCARD | feature::WRITE_ZEROES;
        always | if self.read_only { feature::RO } else { writes }
    }

    /// Returns the features that front ends may use. LOG_SHMFD is missing, so front ends do not
    /// migrate a running guest.
    pub(super) fn protocol_features() -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::BACKEND_REQ
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
    }

    /// A part of the configuration space. `None` when it has no such part.
    pub(super) fn config(&self, offset: u32, size: u32) -> Option<Vec<u8>> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(size).ok()?)?;
        self.config_space().get(start..end).map(<[u8]>::to_vec)
    }

    fn config_space(&self) -> [u8; CONFIG_BYTES] {
        let mut space = [0; CONFIG_BYTES];
        let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
        let block = u64::from(self.block_bytes);
        let blocks = |bytes: u64| if bytes.is_multiple_of(block) { bytes / block } else { 0 };
        let exponent = (PHYSICAL_BLOCK_BYTES / self.block_bytes).max(1).ilog2();
        put(0, &(self.limits().size_bytes / SECTOR_BYTES).to_le_bytes());
        put(12, &MAX_DATA_SEGMENTS.to_le_bytes());
        put(20, &self.block_bytes.to_le_bytes());
        put(24, &[exponent as u8]);
        // What does not fit is not told.
        put(26, &u16::try_from(blocks(self.chunk_bytes)).unwrap_or(0).to_le_bytes());
        put(28, &u32::try_from(blocks(self.stripe_bytes)).unwrap_or(0).to_le_bytes());
        put(34, &self.rings.to_le_bytes());
        if !self.read_only {
            let alignment = self.block_bytes / SECTOR_BYTES as u32;
            put(36, &MAX_SEGMENT_SECTORS.to_le_bytes());
            put(40, &MAX_SEGMENTS.to_le_bytes());
            put(44, &alignment.to_le_bytes());
            put(48, &MAX_SEGMENT_SECTORS.to_le_bytes());
            put(52, &MAX_SEGMENTS.to_le_bytes());
            put(56, &[1]);
        }
        space
    }

    /// The serial number: the name, as far as there is room.
    pub(super) fn id(&self) -> [u8; ID_BYTES] {
        let mut id = [0; ID_BYTES];
        let len = self.name.len().min(ID_BYTES);
        id[..len].copy_from_slice(&self.name.as_bytes()[..len]);
        id
    }
}
