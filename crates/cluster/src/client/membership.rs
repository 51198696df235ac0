//! The nodes of an array, as the engine sees them.

use braid_array::fabric::PeerId;
use braid_array::keeper::KeeperView;
use braid_array::{MemberId, Role};

use super::out::ClientOut;
use super::session_key::SessionKey;
use crate::set::Roles;

/// A node with a role, or the copy target behind them.
#[derive(Clone, Debug)]
pub(super) struct MembershipEntry {
    /// Its connection, once there was one.
    pub(super) peer: Option<PeerId>,
    /// The member, as the keeper calls it.
    pub(super) id: Option<MemberId>,
    /// Alive: has a part in writes.
    pub(super) alive: bool,
    /// Wired to the others.
    pub(super) ready: bool,
    /// Where the ring begins in the node's arena.
    pub(super) ring: u64,
    /// First sector of the data on the member.
    pub(super) data_sector: u64,
}

/// The nodes of the array at one moment: made anew by the client, from its sessions, the views and
/// the negotiations under way, before each call of the engine.
#[derive(Debug)]
pub(super) struct Membership {
    /// By role; the copy target comes last.
    pub(super) entries: Vec<MembershipEntry>,
    /// Roles that hold the array by a view that a later client may take for the newest.
    pub(super) claimed: Roles,
    /// The operator guarantees that absent voters are off.
    pub(super) vouched: bool,
    /// A node is being wired to others.
    pub(super) wiring: bool,
    /// Latest version that was open at the loss of any role that is prepared again.
    pub(super) prepared_since: Option<u64>,
}

impl Membership {
    /// Creates a membership of nodes without further knowledge.
    pub(super) fn of(entries: impl Iterator<Item = MembershipEntry>) -> Self {
        Self {
            entries: entries.collect(),
            claimed: Roles::NONE,
            vouched: false,
            wiring: false,
            prepared_since: None,
        }
    }

    pub(super) fn nodes(&self) -> u16 {
        self.entries.len() as u16 - 1
    }

    /// Returns the entry of a role or of the copy target.
    pub(super) fn entry(&self, key: impl Into<SessionKey>) -> &MembershipEntry {
        &self.entries[key.into().index(self.nodes())]
    }

    pub(super) fn alive(&self, role: Role) -> bool {
        self.entry(role).alive
    }

    pub(super) fn alive_roles(&self) -> impl Iterator<Item = Role> + use<'_> {
        Role::all(self.nodes()).filter(|&role| self.alive(role))
    }

    /// Returns the keeper's id for the member of a role, if it has one.
    pub(super) fn id(&self, key: impl Into<SessionKey>) -> Option<MemberId> {
        self.entry(key).id
    }

    /// Returns whether the node of this role is there and in sync.
    pub(super) fn readable(&self, keeper: KeeperView<'_>, role: Role) -> bool {
        self.alive(role) && keeper.is_in_sync(role)
    }

    /// Returns whether voters have to know of losses. Where the operator vouches for the absent
    /// voters, none has to.
    pub(super) fn needs_votes(&self, keeper: KeeperView<'_>) -> bool {
        !(self.vouched || keeper.is_read_only() || writes_over(keeper))
    }

    /// Returns whether views exclude all lost nodes.
    pub(super) fn losses_noted(&self, keeper: KeeperView<'_>) -> bool {
        !self.claimed.iter().any(|role| !self.readable(keeper, role))
    }

    /// Returns whether a later client would learn of all losses: writes made without the lost nodes
    /// may then be answered.
    pub(super) fn losses_told(&self, keeper: KeeperView<'_>, out: &ClientOut) -> bool {
        let noted = !self.needs_votes(keeper) || self.losses_noted(keeper);
        !out.has_losses() && keeper.failures_told() && noted
    }
}

/// Returns whether nothing may change any more.
pub(super) fn writes_over(keeper: KeeperView<'_>) -> bool {
    keeper.writes_over() || keeper.has_failed()
}
