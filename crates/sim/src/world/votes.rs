//! Votes of nodes: a node grants only epochs that are already in its vote file, so that they
//! survive its restart.

use std::collections::BTreeMap;
use std::fmt::Write;

use braid_cluster::ids::Epoch;
use braid_cluster::node::NOTE_ENDING;
use braid_cluster::view::Vote;

/// Returns the array of a note's name: its id in hex, with dashes, and an ending.
fn array_of(name: &str) -> Option<[u8; 16]> {
    let digits: String = name.chars().take_while(|c| *c != '.').filter(|c| *c != '-').collect();
    Some(u128::from_str_radix(&digits, 16).ok()?.to_be_bytes())
}

/// Returns the name of an array's note.
pub(crate) fn note_of(array: &[u8; 16]) -> String {
    let mut name = String::new();
    for (index, byte) in array.iter().enumerate() {
        let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
        let _ = write!(name, "{dash}{byte:02x}");
    }
    name + NOTE_ENDING
}

/// Returns a node's note of this array, with the view replaced by that of the earlier note.
pub(super) fn without_the_view(name: &str, note: &[u8], before: &[u8]) -> Option<Vec<u8>> {
    let array = array_of(name)?;
    let (sequence, vote) = Vote::newest(&array, note)?;
    let (_, old) = Vote::newest(&array, before)?;
    Some(Vote { view: old.view, ..vote }.encode(&array, sequence))
}

/// Returns whether one of these notes grants this epoch or a higher one.
pub(super) fn is_granted(notes: &BTreeMap<String, Vec<u8>>, epoch: Epoch) -> bool {
    notes.iter().any(|(name, note)| {
        let newest = array_of(name).and_then(|array| Vote::newest(&array, note));
        newest.is_some_and(|(_, vote)| vote.granted >= epoch)
    })
}
