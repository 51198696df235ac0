//! Members whose nodes are there again and are not taken back: why. It is told once for each
//! reason, however often they are tried: to people, and to the node for its log.

use braid_array::Refusal;
use braid_array::events::ArrayEvent;
use braid_array::format::{Superblock, SuperblockError};
use braid_array::status::Status;

use crate::client::{Client, Message};
use crate::node::PARTING_TAG;

/// What helps when another volume lies there than the member's.
pub(in crate::client) const ITS_STORE: &str =
    "start the node on the store that it had, or remove the member and add the node again";

pub(in crate::client) const ANOTHERS: &str = "its volume is that of another member of the array";

/// Why what lies on a volume is no member of the array, if it is none.
pub(in crate::client) fn is_of_another(
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

/// Why what lies on a volume is not the member that was lost, if it is not.
pub(in crate::client) fn is_other(
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

impl Client {
    /// The node of this role cannot be taken back as it is; it is tried again later.
    pub(in crate::client) fn refuse_return(&mut self, role: u16, why: Refusal) {
        if self.is_recovery_target(role) {
            self.target_hears(role, why);
        } else if self.sessions[usize::from(role)].refused.as_ref() != Some(&why) {
            let told = Message::Refused {
                tag: PARTING_TAG,
                busy: false,
                reason: why.reason.clone(),
                advice: why.next.advice.to_string(),
            };
            self.send(role, &told);
            let member = self.member_id(role);
            let event = ArrayEvent::MemberRefused { member, why: why.clone() };
            self.out.notify(event);
            self.sessions[usize::from(role)].refused = Some(why);
        }
        self.return_fails(role);
    }

    pub(in crate::client) fn mark_refused(&self, status: &mut Status) {
        for session in &self.sessions {
            let member = status.members.iter_mut().find(|member| Some(member.member) == session.id);
            if let Some(member) = member {
                member.refused.clone_from(&session.refused);
            }
        }
    }
}
