//! The bad-block log of a member.
//!
//! On disk (1.x only; `drivers/md/md.c`, `include/linux/badblocks.h`): little-endian 64-bit
//! entries, the upper 54 bits the first unit, the lower 10 the number of units, 1 to 512; a unit is
//! `1 << bblog_shift` sectors, counted from the start of the device. An entry of all ones ends
//! the log, and so does the end of its page. md does not keep the entries in order.

use super::bytes::put;

/// Bytes of the log as it is written: one page.
pub const LOG_BYTES: usize = 4096;

/// Entries in a log.
const MAX_ENTRIES: usize = LOG_BYTES / 8;

/// The most units an entry stands for.
const MAX_UNITS: u64 = 512;

/// The largest `bblog_shift`: units of 32 MiB. mdadm makes it 0.
pub const MAX_SHIFT: u8 = 16;

/// No device has more sectors: what 54 bits can name.
const MAX_SECTORS: u64 = 1 << 54;

/// Bad ranges of one device, in absolute device sectors: sorted, disjoint, not adjacent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadBlocks {
    /// First sector and number of sectors.
    ranges: Vec<(u64, u64)>,
}

/// The reason why bytes are not a bad-block log to trust.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBlocksError {
    /// The log cannot be read.
    #[error("bad-block log cannot be read: {reason}")]
    Read {
        /// The reason.
        reason: String,
    },
    /// More than the page that md allows.
    #[error("bad-block log of {bytes} bytes is larger than a page")]
    TooLarge {
        /// Bytes.
        bytes: usize,
    },
    /// Units that no device has.
    #[error("bad-block log in units of 2^{shift} sectors")]
    Shift {
        /// The `bblog_shift`.
        shift: u8,
    },
    /// A range ends beyond any device.
    #[error("bad-block log entry {entry} ends beyond any device")]
    OutOfRange {
        /// Index of the entry.
        entry: usize,
    },
    /// Entries longer than md makes them, and too many to be written again.
    #[error("bad-block log marks more than a page of entries can")]
    TooMany,
}

impl BadBlocks {
    /// Decodes a log of a superblock with this `bblog_shift`.
    ///
    /// # Errors
    /// [`BadBlocksError`]; a member with such a log must not be used.
    pub fn decode(bytes: &[u8], shift: u8) -> Result<Self, BadBlocksError> {
        if bytes.len() > LOG_BYTES {
            return Err(BadBlocksError::TooLarge { bytes: bytes.len() });
        }
        if shift > MAX_SHIFT {
            return Err(BadBlocksError::Shift { shift });
        }
        let mut ranges = Vec::new();
        for (entry, raw) in bytes.as_chunks().0.iter().enumerate() {
            let raw = u64::from_le_bytes(*raw);
            if raw == u64::MAX {
                break;
            }
            let start = u128::from(raw >> 10) << shift;
            let sectors = (raw & 0x3ff) << shift;
            match u64::try_from(start) {
                Ok(start) if ends_on_a_device(start, sectors) => ranges.push((start, sectors)),
                _ => return Err(BadBlocksError::OutOfRange { entry }),
            }
        }
        ranges.retain(|(_, sectors)| *sectors > 0);
        ranges.sort_unstable();
        let ranges = merged(ranges);
        let needed = |(_, sectors): &(u64, u64)| (sectors >> shift).div_ceil(MAX_UNITS);
        if ranges.iter().map(needed).sum::<u64>() > MAX_ENTRIES as u64 {
            return Err(BadBlocksError::TooMany);
        }
        Ok(Self { ranges })
    }

    /// The log as it is written for a superblock with this `bblog_shift`, the same that it was
    /// decoded with: one page. Ranges that are not whole units grow to be.
    ///
    /// # Panics
    /// When the shift is larger than [`MAX_SHIFT`].
    #[must_use]
    pub fn encode(&self, shift: u8) -> Vec<u8> {
        assert!(shift <= MAX_SHIFT, "units of 2^{shift} sectors");
        let unit = 1 << shift;
        let grown = |&(start, sectors): &(u64, u64)| {
            let first = start / unit;
            (first, (start + sectors).div_ceil(unit) - first)
        };
        let units = merged(self.ranges.iter().map(grown).collect());
        let mut page = vec![0xff; LOG_BYTES];
        let entries = units.iter().flat_map(|&range| entries(range));
        for (index, (start, units)) in entries.enumerate() {
            put(&mut page, 8 * index, (start << 10 | units).to_le_bytes());
        }
        page
    }

    /// Returns whether there are no bad blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The bad ranges: first sector and number of sectors.
    #[must_use]
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// Returns whether the range touches a bad one.
    #[must_use]
    pub fn overlaps(&self, sector: u64, sectors: u64) -> bool {
        self.next_bad(sector, sectors).is_some()
    }

    /// The first bad part of a range: first sector and number of sectors, within the range.
    #[must_use]
    pub fn next_bad(&self, sector: u64, sectors: u64) -> Option<(u64, u64)> {
        let end = sector.saturating_add(sectors);
        let index = self.ranges.partition_point(|(start, len)| start + len <= sector);
        let (start, len) = *self.ranges.get(index)?;
        let first = start.max(sector);
        let last = (start + len).min(end);
        (first < last).then(|| (first, last - first))
    }

    /// Mark a range bad. False, and nothing changed, when it would not fit the on-disk log.
    #[must_use]
    pub fn insert(&mut self, sector: u64, sectors: u64) -> bool {
        if sectors == 0 {
            return true;
        }
        if !ends_on_a_device(sector, sectors) {
            return false;
        }
        let mut ranges = self.ranges.clone();
        let index = ranges.partition_point(|range| *range < (sector, sectors));
        ranges.insert(index, (sector, sectors));
        self.replace(merged(ranges))
    }

    /// A range was rewritten: no longer bad. False, and nothing changed, when splitting a range
    /// would not fit the log.
    #[must_use]
    pub fn remove(&mut self, sector: u64, sectors: u64) -> bool {
        let end = sector.saturating_add(sectors);
        let mut ranges = Vec::with_capacity(self.ranges.len() + 1);
        for &(start, len) in &self.ranges {
            let before = (start, sector.clamp(start, start + len) - start);
            let after_start = end.clamp(start, start + len);
            let after = (after_start, start + len - after_start);
            if sectors == 0 || before.1 + after.1 >= len {
                ranges.push((start, len));
                continue;
            }
            ranges.extend([before, after].into_iter().filter(|(_, len)| *len > 0));
        }
        self.replace(ranges)
    }

    /// Takes the new ranges unless the log cannot hold them.
    fn replace(&mut self, ranges: Vec<(u64, u64)>) -> bool {
        let needed: u64 = ranges.iter().map(|(_, len)| len.div_ceil(MAX_UNITS)).sum();
        let fits = needed <= MAX_ENTRIES as u64;
        if fits {
            self.ranges = ranges;
        }
        fits
    }
}

fn ends_on_a_device(sector: u64, sectors: u64) -> bool {
    sector.checked_add(sectors).is_some_and(|end| end <= MAX_SECTORS)
}

/// Joins what overlaps or touches in sorted ranges.
fn merged(sorted: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut out: Vec<(u64, u64)> = Vec::with_capacity(sorted.len());
    for (start, len) in sorted {
        match out.last_mut() {
            Some((first, total)) if start <= *first + *total => {
                *total = (*total).max(start + len - *first);
            }
            _ => out.push((start, len)),
        }
    }
    out
}

/// The entries that a range of units takes.
fn entries((start, units): (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
    (0..units.div_ceil(MAX_UNITS)).map(move |index| {
        let at = start + index * MAX_UNITS;
        (at, (start + units - at).min(MAX_UNITS))
    })
}
