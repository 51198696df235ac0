//! What background work could not read, for people.

use std::fmt::Write as _;

use braid_array::SECTOR_BYTES;
use braid_array::status::{Status, Unreadable};

/// The places of an array and of those within it, each with the array that its offset is of, where
/// that is another one.
pub(crate) fn places(status: &Status) -> Vec<(&Unreadable, Option<String>)> {
    let own = status.unreadable.iter().map(|place| (place, None));
    let within = status
        .children
        .iter()
        .flat_map(|child| child.unreadable.iter().map(|place| (place, Some(child.short_name()))));
    own.chain(within).collect()
}

/// The devices that could not read a place.
pub(crate) fn devices<'a>(status: &'a Status, place: &Unreadable) -> Vec<&'a str> {
    let members = place.members.iter().filter_map(|id| status.member(*id));
    members.map(|member| member.device.as_str()).collect()
}

/// One line for each of the first `most` places.
pub(crate) fn lines(status: &Status, most: usize) -> String {
    let mut text = String::new();
    let places = places(status);
    for (place, within) in places.iter().take(most) {
        let (sectors, offset) = (place.sectors, place.array_sector * SECTOR_BYTES);
        let within = within.as_ref().map_or_else(String::new, |name| format!(" of {name}"));
        let devices = devices(status, place).join(", ");
        let from = if devices.is_empty() { devices } else { format!(" from {devices}") };
        let _ = writeln!(
            text,
            "  {sectors} sectors at array offset {offset}{within} could not be read{from}"
        );
    }
    if places.len() > most {
        let _ = writeln!(text, "  and in {} more places", places.len() - most);
    }
    text
}
