//! A member that is replaced while it serves: a spare is given a copy of it, and then its role.
//!
//! ```text
//!  connected, as who comes back ─► wired to the old one ─► copying ─► little left: flushing,
//!    any failure: all is as before                                     reading back
//!                                                                         ▼
//!        comes back, or a spare ◄── failure ── wired to all ◄── the old one retires, exchanged
//! ```
//! The copy target has a session of its own, behind those with the members. When the two are
//! exchanged, the new one joins like a returning node, and gets the content that the bitmap marks
//! from the others.

use braid_array::action::{CommandId, NewMember};
use braid_array::{MemberId, Refusal, Role};

use super::KeeperSide;
use super::command::{JoinCommand, Origin, Recovery};
use super::recovery::busy;
use crate::client::session_key::SessionKey;

pub(in crate::client) fn too_few_votes() -> Refusal {
    let reason = "without its node too few of those that vote would be left";
    Refusal::new(reason, "start the witness, and replace it then")
}

impl KeeperSide {
    /// Begins to replace the member `old` of a role by a spare. `votes`: enough voters are left
    /// without the member.
    pub(in crate::client) fn replace(
        &mut self,
        command: CommandId,
        old: MemberId,
        place: Option<Role>,
        votes: bool,
        spare: Option<NewMember>,
    ) {
        let next = match (spare, place) {
            _ if self.recovery.is_some() => Err(busy()),
            (None, _) => Err(Refusal::new("there is no spare to copy it to", "add a spare first")),
            (_, None) => Err(Refusal::new("its node is not there", "add a spare")),
            _ if !votes => Err(too_few_votes()),
            (Some(new), Some(place)) => Ok((Box::new(new), place)),
        };
        let origin = Origin::Copy { command: Some(command), old };
        self.commands.push_back(match next {
            Ok((new, place)) => JoinCommand::Recover(Recovery { origin, new, place }),
            Err(why) => JoinCommand::Reply(command, Err(why)),
        });
    }

    /// Begins the copy: the old member's node is connected to the target.
    pub(in crate::client) fn copy_wired(&mut self) {
        let Some((old, place, _)) = self.copied() else {
            return self.fail(SessionKey::CopyTarget, None);
        };
        self.commands.push_back(JoinCommand::BeginCopying(old, place));
    }

    /// Answers the command: the copy has begun.
    pub(in crate::client) fn copy_begun(&mut self) {
        if let Some(Recovery { origin: Origin::Copy { command, .. }, .. }) = &mut self.recovery
            && let Some(id) = command.take()
        {
            self.commands.push_back(JoinCommand::Reply(id, Ok(())));
        }
    }

    /// Returns the member that is copied, its role, and the spare.
    pub(in crate::client) fn copied(&self) -> Option<(MemberId, Role, &NewMember)> {
        let Recovery { origin, new, place } = self.recovery.as_ref()?;
        let Origin::Copy { old, .. } = *origin else { return None };
        Some((old, *place, new))
    }

    /// Gives the copy target the role of the retired member.
    pub(in crate::client) fn exchange(&mut self) {
        let copied = |one: &&mut Recovery| matches!(one.origin, Origin::Copy { .. });
        let Some(recovery) = self.recovery.as_mut().filter(copied) else { return };
        // If it fails now, the old one comes back.
        recovery.origin = Origin::Copied;
        self.commands.push_back(JoinCommand::Exchange(recovery.place));
    }
}
