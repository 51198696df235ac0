//! What a node says that it has granted, its vote file says already: whoever starts it again finds
//! it there.

use std::collections::BTreeMap;

use braid_cluster::view::Vote;

/// The array whose note is called so: its id in hex, with dashes, and an ending.
fn array_of(name: &str) -> Option<[u8; 16]> {
    let digits: String = name.chars().take_while(|c| *c != '.').filter(|c| *c != '-').collect();
    Some(u128::from_str_radix(&digits, 16).ok()?.to_be_bytes())
}

/// Is an epoch as high as this granted in one of these notes?
#[must_use]
pub(super) fn is_granted(notes: &BTreeMap<String, Vec<u8>>, epoch: u32) -> bool {
    notes.iter().any(|(name, note)| {
        let newest = array_of(name).and_then(|array| Vote::newest(&array, note));
        newest.is_some_and(|(_, vote)| vote.granted >= epoch)
    })
}
