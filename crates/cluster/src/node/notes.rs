//! Names of the vote files of arrays.

use std::fmt::Write;

use super::ids::ArrayId;

/// Suffix of the name of an array's note, after the array's id. No volume has such a name.
pub const NOTE_ENDING: &str = ".vote";

/// Returns the name of an array's note.
pub(crate) fn note_name(array: ArrayId) -> String {
    let mut name = String::new();
    for (index, byte) in array.iter().enumerate() {
        let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
        let _ = write!(name, "{dash}{byte:02x}");
    }
    name + NOTE_ENDING
}

/// Returns the array whose note has this name, if there is one.
pub(crate) fn array_of_note(name: &str) -> Option<ArrayId> {
    let digits: String = name.strip_suffix(NOTE_ENDING)?.split('-').collect();
    let array = u128::from_str_radix(&digits, 16).ok()?.to_be_bytes();
    (note_name(array) == name).then_some(array)
}
