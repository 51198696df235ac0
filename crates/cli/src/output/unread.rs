//! Text about ranges that background work could not read, and ranges rebuilt from unverified
//! parity.

use std::fmt::Write as _;

use braid_array::SECTOR_BYTES;
use braid_array::status::{Status, Unreadable};

/// A place, and the array that its offset is of, where that is another one.
pub(crate) type ArrayPlace<'a> = (&'a Unreadable, Option<String>);

/// Returns the unreadable ranges of an array and the arrays within it.
pub(crate) fn places(status: &Status) -> Vec<ArrayPlace<'_>> {
    places_of(status, |array| &array.unreadable)
}

/// Returns the ranges that a repair rewrote from unverified parity.
pub(crate) fn trusted(status: &Status) -> Vec<ArrayPlace<'_>> {
    places_of(status, |array| &array.trusted)
}

fn places_of(status: &Status, of: impl Fn(&Status) -> &[Unreadable]) -> Vec<ArrayPlace<'_>> {
    let own = of(status).iter().map(|place| (place, None));
    let within = status
        .children
        .iter()
        .flat_map(|child| of(child).iter().map(|place| (place, Some(child.short_name()))));
    own.chain(within).collect()
}

/// The devices that could not read a place.
pub(crate) fn devices<'a>(status: &'a Status, place: &Unreadable) -> Vec<&'a str> {
    let members = place.members.iter().filter_map(|id| status.member(*id));
    members.map(|member| member.device.as_str()).collect()
}

/// Returns a line for each of the first `most` places of each kind.
pub(crate) fn lines(status: &Status, most: usize) -> String {
    let unread = |devices: &str| match devices {
        "" => "could not be read".to_owned(),
        devices => format!("could not be read from {devices}"),
    };
    let rewritten = |devices: &str| {
        let on = if devices.is_empty() { String::new() } else { format!(" on {devices}") };
        format!("were rewritten{on} from parity that may not fit; compare them with a backup")
    };
    lines_of(status, &places(status), most, unread)
        + &lines_of(status, &trusted(status), most, rewritten)
}

fn lines_of(
    status: &Status,
    places: &[ArrayPlace<'_>],
    most: usize,
    fate: impl Fn(&str) -> String,
) -> String {
    let mut text = String::new();
    for (place, within) in places.iter().take(most) {
        let sectors = place.sectors;
        let offset = place.array_sector * SECTOR_BYTES;
        let within = within.as_ref().map_or_else(String::new, |name| format!(" of {name}"));
        let fate = fate(&devices(status, place).join(", "));
        let _ = writeln!(text, "  {sectors} sectors at array offset {offset}{within} {fate}");
    }
    if places.len() > most {
        let _ = writeln!(text, "  and in {} more places", places.len() - most);
    }
    text
}
