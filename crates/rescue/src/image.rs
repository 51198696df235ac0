//! Images: a disk, a partition, an array or an image of one, read by the caller.

use std::ops::Range;

use braid_array::SECTOR_BYTES;

/// Reads begin at a multiple of this.
pub const PAGE_BYTES: u64 = 4096;

/// Bytes of known number that can be read anywhere.
pub trait Image {
    /// Bytes there are. Always the same.
    fn size_bytes(&self) -> u64;

    /// Fills `into` with what lies at `offset_bytes`. Reads ask only for bytes within the image:
    /// from a multiple of [`PAGE_BYTES`] to such a multiple or the image's end, at first. A range
    /// that cannot be read is asked for again in single pages, then in single sectors.
    ///
    /// # Errors
    /// The reason for which it cannot be read; `into` may hold anything then.
    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), String>;
}

/// Bytes in memory.
impl Image for &[u8] {
    fn size_bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), String> {
        let from = usize::try_from(offset_bytes).ok().and_then(|offset| self.get(offset..));
        let bytes = from.and_then(|rest| rest.get(..into.len())).ok_or("beyond the end")?;
        into.copy_from_slice(bytes);
        Ok(())
    }
}

/// A range that was needed and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes at byte {offset_bytes} cannot be read: {reason}")]
pub struct Unreadable {
    /// Where it begins.
    pub offset_bytes: u64,
    /// Its length.
    pub bytes: u64,
    /// The reason.
    pub reason: String,
}

/// The bytes of a range that could be read; zeroes are in the place of the rest.
#[derive(Debug, Default)]
pub(crate) struct Patchy {
    pub(crate) bytes: Vec<u8>,
    /// The ranges that could not be read, in order: sectors, as offsets in the image.
    pub(crate) holes: Vec<Range<u64>>,
    /// The reason for which the first of them could not.
    reason: Option<String>,
}

impl Patchy {
    /// The first of what could not be read.
    pub(crate) fn unreadable(self) -> Option<Unreadable> {
        let hole = self.holes.first()?;
        let bytes = hole.end - hole.start;
        Some(Unreadable { offset_bytes: hole.start, bytes, reason: self.reason? })
    }
}

/// Reads `bytes` bytes at `offset_bytes`; the caller bounds the number.
pub(crate) fn read(
    image: &mut dyn Image,
    offset_bytes: u64,
    bytes: usize,
) -> Result<Vec<u8>, Unreadable> {
    let failed = |reason| Unreadable { offset_bytes, bytes: bytes as u64, reason };
    let found = read_patchy(image, offset_bytes, bytes);
    if found.bytes.len() < bytes {
        return Err(failed(format!("there are {} bytes", image.size_bytes())));
    }
    match found.reason {
        Some(reason) => Err(failed(reason)),
        None => Ok(found.bytes),
    }
}

/// Reads as [`read`] does, or as much of it as there is and can be read.
pub(crate) fn read_patchy(image: &mut dyn Image, offset_bytes: u64, bytes: usize) -> Patchy {
    let size_bytes = image.size_bytes();
    let offset_bytes = offset_bytes.min(size_bytes);
    let end = offset_bytes.saturating_add(bytes as u64).min(size_bytes);
    let first = offset_bytes - offset_bytes % PAGE_BYTES;
    let last = end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(size_bytes).min(size_bytes);
    let mut found = Patchy { bytes: vec![0; (last - first) as usize], ..Patchy::default() };
    if !found.bytes.is_empty() && image.read(first, &mut found.bytes).is_err() {
        // What lies beside it may be what cannot be read.
        read_pages(image, first, &mut found.bytes, &mut |hole, why| {
            if hole.start < end && offset_bytes < hole.end {
                found.holes.push(hole);
                found.reason.get_or_insert(why);
            }
        });
    }
    found.bytes.truncate((end - first) as usize);
    found.bytes.drain(..(offset_bytes - first) as usize);
    found
}

/// Page by page, and a page that fails sector by sector; `failed` hears of each that is missing.
fn read_pages(
    image: &mut dyn Image,
    first: u64,
    into: &mut [u8],
    failed: &mut dyn FnMut(Range<u64>, String),
) {
    for (index, page) in into.chunks_mut(PAGE_BYTES as usize).enumerate() {
        let page_at = first + index as u64 * PAGE_BYTES;
        if image.read(page_at, page).is_ok() {
            continue;
        }
        for (index, sector) in page.chunks_mut(SECTOR_BYTES as usize).enumerate() {
            let at = page_at + index as u64 * SECTOR_BYTES;
            if let Err(why) = image.read(at, sector) {
                sector.fill(0);
                failed(at..at + sector.len() as u64, why);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Image, Range, read, read_patchy};

    /// Bytes of which some cannot be read, nor anything together with them.
    pub(crate) struct Torn {
        pub(crate) bytes: Vec<u8>,
        pub(crate) torn: Vec<Range<u64>>,
    }

    impl Image for Torn {
        fn size_bytes(&self) -> u64 {
            self.bytes.len() as u64
        }

        fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), String> {
            let end = offset_bytes + into.len() as u64;
            if self.torn.iter().any(|torn| torn.start < end && offset_bytes < torn.end) {
                return Err("medium error".into());
            }
            self.bytes.as_slice().read(offset_bytes, into)
        }
    }

    #[test]
    fn bad_sectors_cost_themselves_only() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|n| n as u8).collect();
        let mut image = Torn { bytes: bytes.clone(), torn: vec![5000..5010, 9990..9991] };
        assert_eq!(read(&mut image, 4096, 512).unwrap(), bytes[4096..4608]);
        let error = read(&mut image, 4100, 900).unwrap_err();
        assert_eq!(error.to_string(), "900 bytes at byte 4100 cannot be read: medium error");
        let patchy = read_patchy(&mut image, 100, 20_000);
        assert_eq!(patchy.holes, [4608..5120, 9728..10_000]);
        assert_eq!(patchy.bytes.len(), 9900);
        assert_eq!(patchy.bytes[..4508], bytes[100..4608]);
        assert_eq!(patchy.bytes[4508..5020], [0; 512]);
        assert_eq!(patchy.bytes[5020..9628], bytes[5120..9728]);
    }

    #[test]
    fn nothing_is_asked_for_beyond_the_end() {
        let mut image: &[u8] = &[7; 5000];
        assert_eq!(read(&mut image, 4990, 10).unwrap(), [7; 10]);
        let error = read(&mut image, 4990, 11).unwrap_err().to_string();
        assert_eq!(error, "11 bytes at byte 4990 cannot be read: there are 5000 bytes");
        assert!(read(&mut image, u64::MAX, 1).is_err());
        assert!(read_patchy(&mut image, 6000, 512).bytes.is_empty());
    }
}
