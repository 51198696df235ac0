//! Refusals of volumes that do not hold the expected member.

use braid_array::Refusal;
use braid_array::format::{Superblock, SuperblockError};

/// Advice for a node that holds another volume than the member's.
pub(super) const ITS_STORE: &str =
    "start the node on the store that it had, or remove the member and add the node again";

/// Advice for an absent member that is not in its place.
pub(super) const IN_ITS_PLACE: &str =
    "start the node on the store that it had, or add another node in its place";

pub(super) const ANOTHERS: &str = "its volume is that of another member of the array";

/// Returns the refusal of a volume that holds no member of the array.
pub(super) fn is_of_another(
    array: [u8; 16],
    found: &Result<Superblock, SuperblockError>,
) -> Option<Refusal> {
    let reason = match found {
        Err(SuperblockError::NoMagic) => "its volume is empty: it has no superblock".to_owned(),
        Err(error) => format!("the superblock of its volume is damaged: {error}"),
        Ok(found) if found.set_uuid != array => {
            format!("its volume is of another array, {}", found.uuid_text())
        }
        Ok(_) => return None,
    };
    Some(Refusal::new(reason, ITS_STORE))
}

/// Returns the refusal of a volume that does not hold the lost member.
pub(super) fn is_other(
    member: &Superblock,
    found: &Result<Superblock, SuperblockError>,
) -> Option<Refusal> {
    let another = is_of_another(member.set_uuid, found);
    let (Ok(found), None) = (found, &another) else { return another };
    let reason = if found.device_uuid != member.device_uuid {
        ANOTHERS
    } else if found.data_offset != member.data_offset {
        "its volume was made anew: the data begins at another sector"
    } else {
        return None;
    };
    Some(Refusal::new(reason, ITS_STORE))
}
