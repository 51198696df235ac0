//! Clients whose key is good for one array alone: what they may say, and which volumes they get.

use braid_array::Refusal;
use braid_array::format::Version;
use braid_array::format::superblock::uuid_text;

use super::ids::ArrayId;
use crate::wire::Message;

/// What a superblock begins with.
const MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();
const MAJOR: [u8; 4] = 1_u32.to_le_bytes();

/// What becomes of a message that such a client may not send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// The request with this tag is refused.
    Refuse(u32),
    /// No client sends it that means well.
    Part,
}

/// May a client whose key is limited to this array not say this? What is not named here it may not.
pub(super) fn denied(array: &ArrayId, message: &Message) -> Option<Denied> {
    match message {
        // Of the array, as all that follows a grant.
        Message::Grant { array: named, .. } | Message::ReadVote { array: named, .. }
            if named == array =>
        {
            None
        }
        Message::StoreView { .. }
        | Message::ListLeftovers { .. }
        | Message::ResolveLeftovers { .. } => None,
        // Tells no more than that there is a node.
        Message::Identify { .. } | Message::Ping { .. } => None,
        // It is looked at first.
        Message::OpenVolume { .. } => None,
        // Of the volume that it has got, and of the pipeline over that.
        Message::ReadMeta { .. }
        | Message::WriteMeta { .. }
        | Message::Flush { .. }
        | Message::OpenPipeline { .. }
        | Message::ListJournal { .. }
        | Message::ReplayJournal { .. }
        | Message::TrimJournal { .. }
        | Message::LeaseRing { .. }
        | Message::ReturnRing { .. }
        | Message::BeginSet { .. }
        | Message::Commit { .. }
        | Message::Abort { .. }
        | Message::Read { .. }
        | Message::Digest { .. }
        | Message::Copy { .. }
        | Message::StoreCopied { .. }
        | Message::Refused { .. }
        | Message::Without { .. } => None,
        // The node that is sent joins pipelines of the same array alone, and does not tell why it
        // could not.
        Message::Connect { .. } => None,
        Message::Grant { tag, .. }
        | Message::ReadVote { tag, .. }
        | Message::Forget { tag, .. }
        | Message::CreateVolume { tag, .. }
        | Message::DeleteVolume { tag }
        | Message::RemoveVolume { tag }
        | Message::NodeStatus { tag, .. }
        | Message::Shutdown { tag } => Some(Denied::Refuse(*tag)),
        _ => Some(Denied::Part),
    }
}

/// Is this the beginning of a superblock of the array? Its sum is not looked at: what is looked at
/// never changes while somebody writes the rest.
pub(super) fn is_of(array: &ArrayId, superblock: &[u8]) -> bool {
    superblock.get(0..4) == Some(&MAGIC)
        && superblock.get(4..8) == Some(&MAJOR)
        && superblock.get(16..32) == Some(array)
}

pub(super) fn text_of(array: ArrayId) -> String {
    uuid_text(Version::V1_2, array)
}

/// There is no such volume for it. Of volumes that are not its own it does not even hear that they
/// are there.
pub(super) fn not_its_own(array: ArrayId, name: &str) -> Refusal {
    let array = text_of(array);
    let reason =
        format!("there is no volume {name} of array {array}, to which this key is limited");
    Refusal::new(reason, "name volumes of that array, or use the cluster key")
}

/// It is not about this array.
pub(super) fn beyond(array: ArrayId) -> Refusal {
    let reason = format!("this key is limited to array {}", text_of(array));
    Refusal::new(reason, "use the cluster key")
}
