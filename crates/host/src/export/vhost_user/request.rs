//! Requests of a guest's block driver (virtio 1.2, 5.2.6), from the chains they come in.
//!
//! The header and the segments of a discard are copied out once and never looked at again: the
//! guest may change them meanwhile. All data must lie in the guest's memory, and all of the range
//! in the device.

use std::ops::Range;

use braid_array::SECTOR_BYTES;
use vm_memory::{Bytes, GuestAddress, GuestMemory, Permissions};

use super::chain::{Area, BrokenChain, Chain, bytes, skip};
use super::memory::MappedGuest;

/// u32 type, u32 reserved, u64 sector, little-endian.
const HEADER_BYTES: u32 = 16;
/// u64 sector, u32 number of sectors, u32 flags, little-endian.
const SEGMENT_BYTES: u32 = 16;
/// Segments of a discard or of zeroes at most.
pub(super) const MAX_SEGMENTS: u32 = 16;
/// Sectors of a segment at most.
pub(super) const MAX_SEGMENT_SECTORS: u32 = 1 << 22;
/// Length of the string that identifies the device.
pub(super) const ID_BYTES: usize = 20;

/// Types of requests.
mod kind {
    pub(super) const READ: u32 = 0;
    pub(super) const WRITE: u32 = 1;
    pub(super) const FLUSH: u32 = 4;
    pub(super) const GET_ID: u32 = 8;
    pub(super) const DISCARD: u32 = 11;
    pub(super) const WRITE_ZEROES: u32 = 13;
}
const FLAG_UNMAP: u32 = 1;

/// Result of a request, as the guest is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ok = 0,
    IoError = 1,
    Unsupported = 2,
}

/// Operation of a request. Ranges are bytes of the array, whole blocks and not empty; areas lie in
/// the guest's memory, and are as long as the range.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BlockOperation {
    Read { range: Range<u64>, into: Vec<Area> },
    Write { range: Range<u64>, from: Vec<Area> },
    Flush,
    Discard(Vec<Range<u64>>),
    Zero(Vec<(Range<u64>, bool)>),
    Id { into: Vec<Area> },
}

/// A request, and where its status goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct VirtioRequest {
    pub(super) status: GuestAddress,
    /// Operation to be done, or the status with which the request has ended already.
    pub(super) ask: Result<BlockOperation, Status>,
}

/// Limits of requests to the array.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestLimits {
    pub(super) size_bytes: u64,
    pub(super) block_bytes: u32,
    pub(super) read_only: bool,
}

/// A segment of a discard or of zeroes.
struct Segment {
    range: Range<u64>,
    flags: u32,
}

impl VirtioRequest {
    /// Decodes the request of a chain.
    ///
    /// # Errors
    /// [`BrokenChain`] when it cannot even be answered.
    pub(super) fn of(
        guest: &MappedGuest,
        chain: Chain,
        limits: &RequestLimits,
    ) -> Result<Self, BrokenChain> {
        let Chain { readable, mut writable } = chain;
        let last = writable.iter_mut().rfind(|area| area.len > 0).ok_or(BrokenChain::NoStatus)?;
        last.len -= 1;
        let status = last.address.0.checked_add(last.len.into()).ok_or(BrokenChain::NoStatus)?;
        let status = GuestAddress(status);
        if !guest.check_range(status, 1, Permissions::Write) {
            return Err(BrokenChain::NoStatus);
        }
        writable.retain(|area| area.len > 0);
        Ok(Self { status, ask: limits.ask(guest, readable, writable) })
    }
}

impl RequestLimits {
    fn ask(
        &self,
        guest: &MappedGuest,
        mut readable: Vec<Area>,
        writable: Vec<Area>,
    ) -> Result<BlockOperation, Status> {
        let lies_inside = |area: &Area, access| {
            usize::try_from(area.len).is_ok_and(|len| guest.check_range(area.address, len, access))
        };
        let known = readable.iter().all(|area| lies_inside(area, Permissions::Read))
            && writable.iter().all(|area| lies_inside(area, Permissions::Write));
        if !known || bytes(&readable) < HEADER_BYTES.into() {
            return Err(Status::IoError);
        }
        let header: [u8; HEADER_BYTES as usize] = read(guest, &readable)?;
        skip(&mut readable, HEADER_BYTES);
        let kind = u32::from_le_bytes(header[..4].try_into().expect("four bytes"));
        let sector = u64::from_le_bytes(header[8..].try_into().expect("eight bytes"));
        let changes = matches!(kind, kind::WRITE | kind::DISCARD | kind::WRITE_ZEROES);
        if changes && self.read_only {
            return Err(Status::IoError);
        }
        match kind {
            kind::READ => {
                let range = self.range(sector, bytes(&writable))?;
                Ok(BlockOperation::Read { range, into: writable })
            }
            kind::WRITE => {
                let range = self.range(sector, bytes(&readable))?;
                Ok(BlockOperation::Write { range, from: readable })
            }
            kind::FLUSH => Ok(BlockOperation::Flush),
            kind::GET_ID => Ok(BlockOperation::Id { into: writable }),
            kind::DISCARD => self.discard(&segments(guest, readable)?),
            kind::WRITE_ZEROES => self.zero(&segments(guest, readable)?),
            _ => Err(Status::Unsupported),
        }
    }

    /// Whole blocks, and some of them.
    fn range(&self, sector: u64, len: u64) -> Result<Range<u64>, Status> {
        let start = sector.checked_mul(SECTOR_BYTES).ok_or(Status::IoError)?;
        let end = start.checked_add(len).ok_or(Status::IoError)?;
        let block = u64::from(self.block_bytes);
        let whole = start.is_multiple_of(block) && len.is_multiple_of(block);
        if len == 0 || !whole || end > self.size_bytes {
            return Err(Status::IoError);
        }
        Ok(start..end)
    }

    /// Reduces discards to whole blocks. A guest has no claim to more.
    fn discard(&self, segments: &[Segment]) -> Result<BlockOperation, Status> {
        let block = u64::from(self.block_bytes);
        let mut ranges = Vec::new();
        for Segment { range, flags } in segments {
            if *flags != 0 {
                return Err(Status::Unsupported);
            }
            if range.end > self.size_bytes {
                return Err(Status::IoError);
            }
            let whole = range.start.next_multiple_of(block)..range.end - range.end % block;
            if !whole.is_empty() {
                ranges.push(whole);
            }
        }
        Ok(BlockOperation::Discard(ranges))
    }

    fn zero(&self, segments: &[Segment]) -> Result<BlockOperation, Status> {
        let mut ranges = Vec::new();
        for Segment { range, flags } in segments {
            if flags & !FLAG_UNMAP != 0 {
                return Err(Status::Unsupported);
            }
            let range = self.range(range.start / SECTOR_BYTES, range.end - range.start)?;
            ranges.push((range, flags & FLAG_UNMAP != 0));
        }
        Ok(BlockOperation::Zero(ranges))
    }
}

fn segments(guest: &MappedGuest, mut areas: Vec<Area>) -> Result<Vec<Segment>, Status> {
    let len = bytes(&areas);
    let count = len / u64::from(SEGMENT_BYTES);
    let whole = len.is_multiple_of(SEGMENT_BYTES.into());
    if !whole || !(1..=u64::from(MAX_SEGMENTS)).contains(&count) {
        return Err(Status::IoError);
    }
    let mut segments = Vec::new();
    for _ in 0..count {
        let segment: [u8; SEGMENT_BYTES as usize] = read(guest, &areas)?;
        skip(&mut areas, SEGMENT_BYTES);
        let sector = u64::from_le_bytes(segment[..8].try_into().expect("eight bytes"));
        let sectors = u32::from_le_bytes(segment[8..12].try_into().expect("four bytes"));
        let flags = u32::from_le_bytes(segment[12..].try_into().expect("four bytes"));
        let start = sector.checked_mul(SECTOR_BYTES).ok_or(Status::IoError)?;
        let len = u64::from(sectors) * SECTOR_BYTES;
        let end = start.checked_add(len).ok_or(Status::IoError)?;
        if sectors > MAX_SEGMENT_SECTORS {
            return Err(Status::IoError);
        }
        segments.push(Segment { range: start..end, flags });
    }
    Ok(segments)
}

/// The first bytes of areas that have so many.
fn read<const N: usize>(guest: &MappedGuest, areas: &[Area]) -> Result<[u8; N], Status> {
    let mut found = [0; N];
    copy_out(guest, areas, 0, &mut found).map_err(|_| Status::IoError)?;
    Ok(found)
}

/// Copies the content of areas from `offset` on.
///
/// # Errors
/// When they do not lie in the guest's memory, or are too short.
pub(super) fn copy_out(
    guest: &MappedGuest,
    areas: &[Area],
    offset: u64,
    to: &mut [u8],
) -> Result<(), BrokenChain> {
    let mut done = 0;
    for (address, len) in parts(areas, offset, to.len()) {
        let part = &mut to[done..done + len];
        guest.read_slice(part, address).map_err(|_| BrokenChain::Table)?;
        done += len;
    }
    if done == to.len() { Ok(()) } else { Err(BrokenChain::Table) }
}

/// Copies into areas, from `offset` on.
///
/// # Errors
/// When they do not lie in the guest's memory, or have less room.
pub(super) fn copy_in(
    guest: &MappedGuest,
    areas: &[Area],
    offset: u64,
    from: &[u8],
) -> Result<(), BrokenChain> {
    let mut done = 0;
    for (address, len) in parts(areas, offset, from.len()) {
        guest.write_slice(&from[done..done + len], address).map_err(|_| BrokenChain::Table)?;
        done += len;
    }
    if done == from.len() { Ok(()) } else { Err(BrokenChain::Table) }
}

/// Returns the pieces of `len` bytes of areas from `offset` on.
fn parts(areas: &[Area], offset: u64, len: usize) -> impl Iterator<Item = (GuestAddress, usize)> {
    let mut skip = offset;
    let mut left = len;
    areas.iter().filter_map(move |area| {
        let gone = skip.min(area.len.into());
        skip -= gone;
        let there = usize::try_from(u64::from(area.len) - gone).unwrap_or(usize::MAX);
        let len = there.min(left);
        left -= len;
        let address = GuestAddress(area.address.0.wrapping_add(gone));
        if len > 0 { Some((address, len)) } else { None }
    })
}
