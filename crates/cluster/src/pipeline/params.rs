//! Parameters that client and nodes agree on, and their choice for a given array.

use std::ops::RangeInclusive;

use super::{PipelineError, Slots};
use crate::family::Family;
use crate::ids::Epoch;
use crate::schedule::Planner;
use crate::set::MAX_POSITIONS;

/// The most nodes of an array.
pub const MAX_NODES: u16 = 64;
/// The longest block.
pub const MAX_CHUNK_BYTES: u32 = 1 << 30;
/// The longest time that nodes bear each other's silence, and the shortest.
const SILENCES_MS: RangeInclusive<u32> = 100..=3_600_000;
/// The longest slot.
pub const MAX_SLOT_BYTES: u32 = 1 << 20;

/// Slices are at most this long.
const MAX_SLICE_BYTES: u32 = 64 << 10;
/// All data slices of a slice-set together are at most this long, where blocks allow.
const MAX_SET_BYTES: u32 = 2 << 20;
/// Wide positions hold this much data, or there are as many as nodes.
const WINDOW_BYTES: u32 = 8 << 20;
/// More wide positions than this give nothing.
const MAX_WIDE: u32 = 128;
/// Small writes that can be under way.
const NARROW: u16 = 64;
/// The longest of them.
const NARROW_BYTES: u32 = 16 << 10;
/// Reads that can be under way at one node.
const READ_WINDOW_BYTES: u32 = 2 << 20;

/// Tolerated silence between nodes unless specified, in milliseconds.
const SILENCE_MS: u32 = 4000;

/// Parameters that client and nodes agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// Random; the same in all connections of the pipeline.
    pub session: u64,
    /// Fences an old writer: grows with every client that opens the array for writing.
    pub epoch: Epoch,
    /// The code.
    pub family: Family,
    /// Nodes of the array.
    pub nodes: u16,
    /// Length of a block; a multiple of 4096.
    pub chunk_bytes: u32,
    /// Stripes of the array.
    pub stripes: u64,
    /// The planner of parities. The encoder named here is ignored: each position has its own.
    pub planner: Planner,
    /// Positions for whole slices. At least as many as nodes: while nodes are missing, the
    /// positions whose encoder is missing are not used.
    pub wide: Slots,
    /// Positions for short ranges; their numbers follow.
    pub narrow: Slots,
    /// At every node, for reads.
    pub reads: Slots,
    /// Time for which a node tolerates the silence of another, in milliseconds.
    pub silence_ms: u32,
}

impl Params {
    /// Returns parameters with positions and slots that suit an array. Session and epoch are left
    /// to the caller.
    ///
    /// # Errors
    /// When there is no such array.
    pub fn for_array(
        family: Family,
        nodes: u16,
        chunk_bytes: u32,
        stripes: u64,
        planner: Planner,
    ) -> Result<Self, PipelineError> {
        let data = family.code(nodes, 0)?.data().len() as u32;
        let slice_bytes = slice_bytes(data).min(chunk_bytes);
        let set_bytes = data.saturating_mul(slice_bytes).max(1);
        let each = u32::from(nodes);
        let wide = WINDOW_BYTES.div_ceil(set_bytes).next_multiple_of(each);
        let wide = wide.min(MAX_WIDE / each * each).max(each);
        let narrow = (NARROW / nodes * nodes).max(nodes);
        let read_bytes = chunk_bytes.min(MAX_SLICE_BYTES);
        let reads = (READ_WINDOW_BYTES / read_bytes.max(1)).clamp(32, 256);
        Ok(Self {
            session: 0,
            epoch: Epoch::BEFORE_ANY,
            family,
            nodes,
            chunk_bytes,
            stripes,
            planner,
            wide: Slots { count: wide as u16, bytes: slice_bytes },
            narrow: Slots { count: narrow, bytes: NARROW_BYTES.min(slice_bytes) },
            reads: Slots { count: reads as u16, bytes: read_bytes },
            silence_ms: SILENCE_MS,
        })
    }

    /// Checks that the parameters can be those of a pipeline.
    pub(super) fn check(&self) -> Result<(), PipelineError> {
        let aligned = |bytes: u32| bytes > 0 && bytes.is_multiple_of(4096);
        let Self { nodes, chunk_bytes, stripes, wide, narrow, reads, .. } = *self;
        let slot = |slots: Slots| aligned(slots.bytes) && slots.bytes <= MAX_SLOT_BYTES;
        let checks = [
            ((1..=MAX_NODES).contains(&nodes), "the number of nodes"),
            (aligned(chunk_bytes) && chunk_bytes <= MAX_CHUNK_BYTES, "the chunk"),
            (stripes > 0, "the size"),
            (slot(wide) && wide.bytes <= chunk_bytes && wide.count > 0, "the slice"),
            (slot(narrow) && narrow.bytes <= wide.bytes, "the size of narrow positions"),
            (wide.count.saturating_add(narrow.count) <= MAX_POSITIONS, "the number of positions"),
            (slot(reads) && (1..=4096).contains(&reads.count), "the slots for reads"),
            (SILENCES_MS.contains(&self.silence_ms), "how long nodes may be silent"),
        ];
        match checks.into_iter().find(|(ok, _)| !ok) {
            Some((_, what)) => Err(PipelineError::Range(what)),
            None => Ok(()),
        }
    }

    /// Returns the default chunk of an array: blocks are slices, so that a sequential writer fills
    /// slice-sets as early as possible.
    ///
    /// # Errors
    /// When there is no such array.
    pub fn default_chunk_bytes(family: Family, nodes: u16) -> Result<u32, PipelineError> {
        Ok(slice_bytes(family.code(nodes, 0)?.data().len() as u32))
    }
}

/// Returns the greatest power of two, from 4 to 64 KiB, that keeps a slice-set short.
fn slice_bytes(data_blocks: u32) -> u32 {
    let mut bytes = MAX_SLICE_BYTES;
    while bytes > 4096 && bytes.saturating_mul(data_blocks) > MAX_SET_BYTES {
        bytes /= 2;
    }
    bytes
}
