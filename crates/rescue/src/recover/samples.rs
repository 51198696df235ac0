//! The parts of a member that are read.

use std::ops::Range;

/// Members up to this size are read as a whole, and of larger ones so much from their beginning:
/// on large disks mdadm has the data begin at 128 MiB or a little behind that.
const BEGINNING_BYTES: u64 = 256 << 20;
/// Further parts of larger members, about so many, and their length.
const SPOTS: u64 = 1000;
const SPOT_BYTES: u64 = 128 << 10;
/// The length that is read of their ends, where copies of partition tables lie.
const END_BYTES: u64 = 1 << 20;
/// Rows are compared in spots of this length, at about so many of those that are read.
pub(super) const ROWS_BYTES: u64 = 32 << 10;
const ROWS_SPOTS: u64 = 250;
/// The number of these behind the beginning of a large member.
const FURTHER_ROWS_SPOTS: u64 = 200;

/// The ranges of a member of so many bytes that are read first.
#[must_use]
pub fn samples(size_bytes: u64) -> Vec<Range<u64>> {
    if size_bytes <= BEGINNING_BYTES {
        return std::iter::once(0..size_bytes).collect();
    }
    let spots = spots(size_bytes).map(|start| start..(start + SPOT_BYTES).min(size_bytes));
    let end = size_bytes.saturating_sub(END_BYTES) / SPOT_BYTES * SPOT_BYTES..size_bytes;
    let mut all: Vec<Range<u64>> = std::iter::once(0..BEGINNING_BYTES).chain(spots).collect();
    all.retain(|range| range.end <= end.start);
    all.dedup();
    all.push(end);
    all
}

/// The ranges in which superblocks are looked for: the beginning.
#[must_use]
pub fn beginning(size_bytes: u64) -> Range<u64> {
    0..size_bytes.min(BEGINNING_BYTES)
}

/// Where spots begin behind the beginning of a large member. In members of nearly one size they lie
/// at the same offsets: rows need all of them.
fn spots(size_bytes: u64) -> impl Iterator<Item = u64> {
    let rest = size_bytes.saturating_sub(BEGINNING_BYTES);
    let apart = (rest / SPOTS).max(1);
    let unit = (apart.next_power_of_two() / 16).max(1);
    let apart = (apart / unit * unit).max(SPOT_BYTES);
    let spot = move |index: u64| {
        // Not in step with anything that is laid out in equal parts.
        let jitter = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
        (BEGINNING_BYTES + index * apart + jitter % apart) / SPOT_BYTES * SPOT_BYTES
    };
    (0..rest / apart).map(spot)
}

/// Where in a member of so many bytes rows are compared: in what has been read in any case.
pub(super) fn rows_spots(size_bytes: u64) -> Vec<u64> {
    if size_bytes <= BEGINNING_BYTES {
        return some(size_bytes, ROWS_SPOTS).collect();
    }
    let every = (SPOTS / FURTHER_ROWS_SPOTS) as usize;
    let further = spots(size_bytes).step_by(every);
    some(BEGINNING_BYTES, ROWS_SPOTS - FURTHER_ROWS_SPOTS).chain(further).collect()
}

/// At most so many places for rows in so many bytes.
fn some(bytes: u64, most: u64) -> impl Iterator<Item = u64> {
    let there = bytes / ROWS_BYTES;
    let all = there <= most;
    let spot = move |index: u64| {
        if all { index } else { index.wrapping_mul(0x9e37_79b9_7f4a_7c15) % there }
    };
    (0..there.min(most)).map(move |index| spot(index) * ROWS_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compared_has_been_read() {
        for size in [0, 4096, 100 << 20, 300 << 20, (8 << 40) + 4096, u64::MAX >> 3] {
            let samples = samples(size);
            let bytes: u64 = samples.iter().map(|range| range.end - range.start).sum();
            assert!(bytes <= 420 << 20 && samples.len() <= 1200, "{size}: {bytes}");
            assert!(samples.is_sorted_by(|a, b| a.end <= b.start), "{size}");
            assert_eq!(samples.last().unwrap().end, size);
            let read = |at: &u64| {
                samples.iter().any(|range| range.start <= *at && at + ROWS_BYTES <= range.end)
            };
            let rows = rows_spots(size);
            let missed = rows.iter().filter(|at| !read(at)).count();
            assert!(missed <= 2, "{size}: {missed} of {}", rows.len());
            assert!(rows.len() >= 100 || size < 100 * ROWS_BYTES);
        }
        // Disks of one kind are not of one size to the byte.
        let disk = 8 << 40;
        assert_eq!(rows_spots(disk), rows_spots(disk + (3 << 20)));
    }
}
