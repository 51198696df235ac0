//! Messages that clients may send whose key is limited to one array.

use braid_array::Refusal;

use crate::node::ids::{ArrayId, text_of};
use crate::wire::Message;

/// Consequence of a message that such a client may not send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// The request with this tag is refused.
    Refuse(u32),
    /// The connection ends: no well-behaved client sends such a message.
    HangUp,
}

/// Returns the consequence of a message that a client with a key for this array may not send;
/// `None` if it may. Messages that are not listed here are denied.
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
        | Message::LengthenVolume { .. }
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
        | Message::ListSessions { tag, .. }
        | Message::Shutdown { tag } => Some(Denied::Refuse(*tag)),
        _ => Some(Denied::HangUp),
    }
}

/// Returns the refusal of a message about something other than this array.
pub(super) fn beyond(array: ArrayId) -> Refusal {
    let reason = format!("this key is limited to array {}", text_of(array));
    Refusal::new(reason, "use the cluster key")
}
