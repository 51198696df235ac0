//! The two arrays between which data move: how they are told from others, and which of them counts.
//!
//! On each node the volume of the new array has the [other name](other_volume) of the old one's, so
//! whoever names a volume means both. The UUID of the new one is [a little later](later_uuid).

use std::collections::BTreeSet;

use braid_array::Refusal;
use braid_array::format::{MoveNote, Superblock};

use crate::assemble::{Candidate, Options, decide};

/// The end of the other name of a volume.
const OTHER: &str = ".2";

/// The number in a UUID that tells the order of arrays, and as many bytes that it changes, so that
/// both halves of the UUID together, by which a device of the array may be known, stay the same.
const NUMBER: std::ops::Range<usize> = 1..5;
const OPPOSITE: std::ops::Range<usize> = 9..13;

/// Returns the name on its node of the volume that data of this one move to: `x.2` for `x`, and
/// `x` again for that.
#[must_use]
pub fn other_volume(volume: &str) -> String {
    volume.strip_suffix(OTHER).map_or_else(|| format!("{volume}{OTHER}"), str::to_owned)
}

/// Returns whether this is the other name of a volume, which nobody gives.
#[must_use]
pub fn is_other_name(volume: &str) -> bool {
    volume.ends_with(OTHER)
}

/// Returns the UUID of an array that data of an array move to. A random number makes it another one
/// each time: a node that was away may have what an earlier one has left.
#[must_use]
pub fn later_uuid(array: [u8; 16], random: u32) -> [u8; 16] {
    let steps = (random >> 1).max(1);
    with_number(array, number(&array).wrapping_add(steps))
}

/// Returns whether data of the `old` array may have moved to the other one.
#[must_use]
pub fn is_later(old: [u8; 16], new: [u8; 16]) -> bool {
    let steps = number(&new).wrapping_sub(number(&old));
    0 < steps && steps <= u32::MAX >> 1 && with_number(old, number(&new)) == new
}

/// Returns two of these arrays between which data move or have moved, the old one first.
#[must_use]
pub fn pair_among(arrays: &BTreeSet<[u8; 16]>) -> Option<[[u8; 16]; 2]> {
    let later = |old: &[u8; 16]| arrays.iter().find(|new| is_later(*old, **new)).copied();
    arrays.iter().find_map(|old| Some([*old, later(old)?]))
}

fn number(array: &[u8; 16]) -> u32 {
    array[NUMBER].iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn with_number(mut array: [u8; 16], number: u32) -> [u8; 16] {
    for ((at, opposite), byte) in NUMBER.zip(OPPOSITE).zip(number.to_be_bytes()) {
        array[opposite] ^= array[at] ^ byte;
        array[at] = byte;
    }
    array
}

/// The array that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// The old one alone.
    Old,
    /// The new one alone.
    New,
    /// Each has a part of the data.
    Both,
}

/// Returns the superblock that counts when an array is assembled from these volumes of it.
#[must_use]
pub fn newest(volumes: &[Candidate]) -> Option<Superblock> {
    decide(volumes, Options::default()).newest.map(|newest| *newest)
}

/// Decides which of two arrays counts, by what was found on the volumes of each.
///
/// # Errors
/// A part of the data is in the array that was not found.
pub fn counts_among(old: &[Candidate], new: &[Candidate]) -> Result<Counts, Refusal> {
    let found = [old, new].map(newest);
    let roles = found[1].as_ref().map_or(0, |superblock| superblock.raid_disks as usize);
    let [old_note, new_note] = found.map(|superblock| superblock.as_ref().map(MoveNote::of));
    counts(old_note, new_note, new.len() == roles)
}

/// Decides which array counts, by what the newest superblock of each says; `None`: there is none.
/// Where nothing has moved yet, a new array is used if it is `complete`.
///
/// # Errors
/// A part of the data is in the array that was not found.
pub fn counts(
    old: Option<MoveNote>,
    new: Option<MoveNote>,
    complete: bool,
) -> Result<Counts, Refusal> {
    let other_is_missing = || {
        let reason = "its data are on their way to other nodes, and one of the two arrays between \
                      which they move was not found on any node named";
        Refusal::new(reason, "name all nodes of both: the old ones and those that were added")
    };
    match (old, new) {
        (Some(MoveNote::Apart), None) => Ok(Counts::Old),
        (_, Some(MoveNote::Apart)) => Ok(Counts::New),
        (Some(MoveNote::Apart), Some(MoveNote::Target { front: 0, back: false })) if complete => {
            Ok(Counts::Both)
        }
        // Nothing is where data were to move to, not even where a node that was away says so: an
        // array stands alone again only when all is back.
        (Some(MoveNote::Apart), Some(MoveNote::Target { .. })) => Ok(Counts::Old),
        (Some(MoveNote::Source), Some(MoveNote::Target { .. })) => Ok(Counts::Both),
        (_, None) | (None, _) => Err(other_is_missing()),
        (Some(_), Some(_)) => {
            Err(Refusal::new("its superblocks do not belong together", "see braid examine"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGINS: MoveNote = MoveNote::Target { front: 0, back: false };

    #[test]
    fn names_change_places_and_uuids_go_up() {
        assert_eq!(other_volume("x"), "x.2");
        assert_eq!(other_volume("x.2"), "x");
        assert!(is_other_name("x.2") && !is_other_name("x2"));
        let half = |array: [u8; 16], at: usize| array[at..at + 8].to_vec();
        let both = |array| half(array, 0).into_iter().zip(half(array, 8)).map(|(a, b)| a ^ b);
        for random in [0, 1, 77, u32::MAX] {
            let old = [0xf7; 16];
            let new = later_uuid(old, random);
            assert!(is_later(old, new) && !is_later(new, old) && !is_later(old, old));
            assert!(both(old).eq(both(new)), "{random}");
        }
        assert!(!is_later([1; 16], [2; 16]));
    }

    #[test]
    fn the_array_that_stands_alone_counts() {
        let target = MoveNote::Target { front: 8, back: true };
        let back = MoveNote::Target { front: 0, back: true };
        let source = Some(MoveNote::Source);
        let apart = Some(MoveNote::Apart);
        for (old, new, complete, found) in [
            (apart, None, true, Counts::Old),
            (None, apart, true, Counts::New),
            (source, apart, false, Counts::New),
            (apart, Some(BEGINS), true, Counts::Both),
            (apart, Some(BEGINS), false, Counts::Old),
            (apart, Some(back), true, Counts::Old),
            (source, Some(BEGINS), false, Counts::Both),
            (source, Some(target), false, Counts::Both),
            (apart, Some(target), true, Counts::Old),
        ] {
            assert_eq!(counts(old, new, complete), Ok(found), "{old:?} {new:?}");
        }
        for (old, new) in [(source, None), (None, Some(target)), (source, Some(MoveNote::Source))] {
            counts(old, new, true).unwrap_err();
        }
    }
}
