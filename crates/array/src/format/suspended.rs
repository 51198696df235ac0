//! Logs that are off while an array gets another shape, and come back afterwards. Superblocks keep
//! that in a field which md does not look at without the feature bit of a log or bitmap. Partial
//! parity logs are kept by [`ppl`]; of a journal the field has the number of its device:
//!
//! ```text
//! byte 96  number of the journal × 8 + 5, 2 bytes
//! byte 98  5
//! byte 99  0
//! ```
//! No bitmap begins there, for they begin with a block. The device of the journal is left as it
//! was: it falls behind, so md takes it for none of its own, and nothing that it holds counts.

use super::Superblock;
use super::ppl;
use super::superblock::{DevRole, MAX_DEV, feature};

/// The mark.
const MARK: u8 = 5;

/// Returns whether the array had a log until it was given another shape, and is to have it again
/// afterwards.
#[must_use]
pub fn is_suspended(superblock: &Superblock) -> bool {
    ppl::is_suspended(superblock) || journal_number(superblock).is_some()
}

/// Returns the number of the device that holds the journal which is off for a time, if there is
/// one.
#[must_use]
pub fn journal_number(superblock: &Superblock) -> Option<u32> {
    let [low, high, mark, 0] = superblock.bitmap_offset_sectors.to_le_bytes() else { return None };
    let code = u16::from_le_bytes([low, high]);
    let number = u32::from(code / 8);
    let is_off = !superblock.has(feature::BITMAP_OFFSET | feature::LOGS)
        && mark == MARK
        && code % 8 == u16::from(MARK)
        && number < MAX_DEV;
    is_off.then_some(number)
}

/// Returns whether this is the device of the journal that is off, by what the array says.
pub(crate) fn is_that_journal(device: &Superblock, array: &Superblock) -> bool {
    device.role() == DevRole::Journal
        && journal_number(array) == Some(device.dev_number)
        && !matches!(array.role_of(device.dev_number), DevRole::Active(_))
}

/// Has a superblock say that the journal on the device with this number is off for a time.
pub(crate) fn suspend_journal(superblock: &mut Superblock, number: u32) {
    let [low, high] = (number as u16 * 8 + u16::from(MARK)).to_le_bytes();
    superblock.feature_map &= !feature::JOURNAL;
    superblock.bitmap_offset_sectors = i32::from_le_bytes([low, high, MARK, 0]);
}

/// Has a superblock say that the journal which was off is on.
pub(crate) fn resume_journal(superblock: &mut Superblock) {
    superblock.feature_map |= feature::JOURNAL;
    superblock.bitmap_offset_sectors = 0;
}
