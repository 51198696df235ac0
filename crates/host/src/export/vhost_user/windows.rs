//! The guest's memory as buffers of the engine: data read from members can go there at once,
//! without a copy.

use std::ops::Range;
use std::sync::Arc;

use braid_array::Buf;
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};

use super::chain::Area;
use super::memory::MappedGuest;
use crate::arena::{MappedWindow, Memory};

/// Shorter reads are copied: that takes a microsecond, and they need not wait for a member that
/// was given up (`VhostJobs`).
const LEAST_BYTES: u64 = 64 << 10;
/// Members may be opened in such a way that buffers have to begin at a multiple of this.
const ALIGNMENT: u64 = 4096;

/// Mappable regions of the guest's memory, by guest address.
#[derive(Debug, Default)]
pub(super) struct Windows(Vec<(Range<u64>, MappedWindow)>);

impl Windows {
    /// Maps all regions whose files are sealed against truncation.
    pub(super) fn of(memory: &Arc<Memory>, guest: &MappedGuest) -> Self {
        let windows = guest.iter().filter_map(|region| {
            let start = region.start_addr().0;
            let file = region.file_offset()?;
            let window =
                MappedWindow::open(memory, file.file(), file.start(), region.len()).ok()?;
            Some((start..start + region.len(), window))
        });
        Self(windows.collect())
    }

    /// The buffer that is `len` bytes of areas, from `offset` on. None where these bytes do not
    /// lie side by side in one region, and where copying is as good.
    pub(super) fn find(&self, areas: &[Area], offset: u64, len: u64) -> Option<Buf> {
        if len < LEAST_BYTES {
            return None;
        }
        let start = place(areas, offset, len)?;
        let end = start.checked_add(len)?;
        let holds = |range: &Range<u64>| range.start <= start && end <= range.end;
        let (range, window) = self.0.iter().find(|(range, _)| holds(range))?;
        let buf = window.buf(start - range.start, u32::try_from(len).ok()?)?;
        buf.offset.is_multiple_of(ALIGNMENT).then_some(buf)
    }
}

/// Returns the start in the guest of these bytes of areas, if they lie side by side.
fn place(areas: &[Area], offset: u64, len: u64) -> Option<u64> {
    let mut before = 0;
    let mut start = None;
    let mut next = 0;
    for area in areas {
        let area_len = u64::from(area.len);
        let skipped = offset.saturating_sub(before).min(area_len);
        before += area_len;
        if skipped == area_len {
            continue;
        }
        let at = area.address.0.checked_add(skipped)?;
        if start.is_some() && at != next {
            return None;
        }
        next = area.address.0.checked_add(area_len)?;
        let start = *start.get_or_insert(at);
        if next - start >= len {
            return Some(start);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use vm_memory::GuestAddress;

    use super::*;

    #[test]
    fn bytes_that_lie_side_by_side_are_found_across_areas() {
        let area = |address, len| Area { address: GuestAddress(address), len };
        let areas = [area(0x1000, 0x1000), area(0x2000, 0x2000), area(0x8000, 0x1000)];
        assert_eq!(place(&areas, 0, 0x1000), Some(0x1000));
        assert_eq!(place(&areas, 0, 0x3000), Some(0x1000));
        assert_eq!(place(&areas, 0x800, 0x1000), Some(0x1800));
        assert_eq!(place(&areas, 0x1000, 0x2000), Some(0x2000));
        assert_eq!(place(&areas, 0x3000, 0x1000), Some(0x8000));
        assert_eq!(place(&areas, 0x3000, 0x1001), None, "beyond the end");
        assert_eq!(place(&areas, 0, 0x3001), None, "a gap");
        assert_eq!(place(&areas, 0x2800, 0x1000), None, "a gap");
        assert_eq!(place(&areas, 0x4000, 1), None);
        let edge = [area(u64::MAX - 0xfff, 0x2000)];
        assert_eq!(place(&edge, 0, 0x1000), None);
    }
}
