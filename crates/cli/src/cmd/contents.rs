//! Partitions and volumes on arrays, selected by their names.

use braid_rescue::contents::{Content, Place, readable};

use crate::failure::Failure;

const LIST: &str = "see what lies there by `braid cat --list`";

/// Where the part of this name lies.
pub(super) fn place_of<'a>(
    operation: &str,
    found: &'a [Content],
    name: &str,
) -> Result<&'a Place, Failure> {
    let mut all = found.iter().flat_map(Content::all);
    let Some(content) = all.find(|content| content.name == name) else {
        let names: Vec<&str> =
            readable(found).into_iter().map(|(_, content)| content.name.as_str()).collect();
        let there = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
        let reason = format!("has no such part, but {there}");
        return Err(Failure::refused(operation, name, reason, LIST));
    };
    content.place.as_ref().ok_or_else(|| {
        let reason = content.remarks.first().map_or("it is no range of bytes", String::as_str);
        Failure::refused(operation, name, reason, LIST)
    })
}
