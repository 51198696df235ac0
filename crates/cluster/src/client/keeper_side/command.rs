//! Facts that the choice of members depends on, and the commands that it leads to.

use braid_array::action::{CommandId, NewMember};
use braid_array::{Instant, MemberId, Refusal, Role};

use crate::client::ClientMember;
use crate::client::session_key::SessionKey;
use crate::client::sessions::negotiation::Purpose;
use crate::client::sessions::session::SessionState;
use crate::member::VolumeAddress;
use crate::set::Roles;

/// Reason for which a node is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum Origin {
    /// An administrator adds it.
    Command(CommandId),
    /// A member that was absent at the start.
    Absent,
    /// A spare that is needed.
    Spare,
    /// A spare to which this member is copied; the command is answered once the copy has begun.
    Copy { command: Option<CommandId>, old: MemberId },
    /// A finished copy, which replaces its original.
    Copied,
}

/// A node that is to have a role, and all content of that role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::client) struct Recovery {
    pub(in crate::client) origin: Origin,
    pub(in crate::client) new: Box<NewMember>,
    pub(in crate::client) place: Role,
}

impl Recovery {
    /// Returns the key of its session: that of its role, or that of the copy target.
    pub(super) fn key(&self) -> SessionKey {
        match self.origin {
            Origin::Copy { .. } => SessionKey::CopyTarget,
            _ => self.place.into(),
        }
    }

    pub(super) const fn purpose(&self) -> Purpose {
        match self.origin {
            Origin::Command(_) | Origin::Absent => Purpose::Recover,
            Origin::Spare | Origin::Copied => Purpose::Spare,
            Origin::Copy { .. } => Purpose::Copy,
        }
    }
}

/// A role that is vacant, and its session, in which no member is there.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) struct Vacancy {
    pub(in crate::client) role: Role,
    pub(in crate::client) state: SessionState,
    /// The role had a member.
    pub(in crate::client) had: bool,
    /// Time of the next attempt, or at which the present attempt is abandoned.
    pub(in crate::client) due: Option<Instant>,
    /// Time of the loss.
    pub(in crate::client) gone_at: Instant,
}

/// Facts that the choice of members depends on.
#[derive(Clone, Debug, Default)]
pub(in crate::client) struct JoinFacts {
    /// Nodes may come back now.
    pub(in crate::client) may_return: bool,
    pub(in crate::client) spares: Vec<NewMember>,
    pub(in crate::client) vacancies: Vec<Vacancy>,
}

impl JoinFacts {
    /// Returns the roles that wait for no known member.
    pub(in crate::client) fn open_roles(&self) -> Roles {
        let open = self.vacancies.iter().filter(|one| one.state == SessionState::Missing);
        open.map(|vacancy| vacancy.role).collect()
    }
}

/// Command for the client. Some are answered by a call, which may lead to further commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::client) enum JoinCommand {
    /// Checks that a node may have its role. Answered by `begin`.
    Recover(Recovery),
    /// Adds a node that gets no role, and answers the command.
    AddSpare(CommandId, Box<NewMember>),
    /// Connects to a node that is to have this role.
    Connect {
        key: SessionKey,
        place: Role,
        member: Box<ClientMember>,
        purpose: Purpose,
    },
    /// Connects to a node that is only visited.
    Visit(SessionKey, VolumeAddress),
    /// Hangs up on a node, and ends its negotiation.
    HangUp(SessionKey),
    /// Gives a session back to the former member of the role. With a role, its member is not copied
    /// to the node any more.
    Restore(SessionKey, Option<Role>),
    /// Has the keeper take in a node that is wired. Answered by `taken_in` or `fail`.
    TakeIn(Recovery),
    /// Begins to copy the member of this role. Answered by `copy_begun` or `fail`.
    BeginCopying(MemberId, Role),
    /// Gives the copy target the role of the retired member.
    Exchange(Role),
    /// Ends the copy of a member before its end.
    EndCopying(MemberId, Refusal),
    Reply(CommandId, Result<(), Refusal>),
}
