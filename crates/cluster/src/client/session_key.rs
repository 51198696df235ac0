//! Keys of the client's sessions, [`SessionKey`].

use braid_array::Role;

/// Purpose of a session. Only a member's session has a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::client) enum SessionKey {
    /// Session with the node that has this role, or is to have it.
    Member(Role),
    /// Session with a node to which a member is copied.
    CopyTarget,
    /// Visit of a member that was absent at the start.
    AbsentVisit,
    /// Visit of a node whose member has left the array.
    DepartedVisit,
}

impl SessionKey {
    /// Keys without a role, in the order of a list of all sessions.
    pub(in crate::client) const BESIDE: [Self; 3] =
        [Self::CopyTarget, Self::AbsentVisit, Self::DepartedVisit];

    /// Returns the keys of the members of an array with this many roles, followed by the copy
    /// target.
    pub(in crate::client) fn of_members(nodes: u16) -> impl Iterator<Item = Self> {
        Role::all(nodes).map(Self::Member).chain([Self::CopyTarget])
    }

    /// Returns the key of an entry in a list of all sessions.
    pub(in crate::client) const fn at(index: usize, nodes: u16) -> Self {
        match index.checked_sub(nodes as usize) {
            None => Self::Member(Role::at(index)),
            Some(beside) => Self::BESIDE[beside],
        }
    }

    /// Returns the index in a list of all sessions, or in one that ends with the copy target.
    pub(in crate::client) fn index(self, nodes: u16) -> usize {
        let beside = usize::from(nodes);
        match self {
            Self::Member(role) => role.index(),
            Self::CopyTarget => beside,
            Self::AbsentVisit => beside + 1,
            Self::DepartedVisit => beside + 2,
        }
    }

    /// Returns the role of a member's session.
    pub(in crate::client) const fn role(self) -> Option<Role> {
        match self {
            Self::Member(role) => Some(role),
            Self::CopyTarget | Self::AbsentVisit | Self::DepartedVisit => None,
        }
    }

    /// Returns whether the session ends with the negotiation.
    pub(in crate::client) const fn is_visit(self) -> bool {
        matches!(self, Self::AbsentVisit | Self::DepartedVisit)
    }
}

impl From<Role> for SessionKey {
    fn from(role: Role) -> Self {
        Self::Member(role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_at_an_index_has_that_index() {
        let keys: Vec<SessionKey> = (0..5).map(|index| SessionKey::at(index, 2)).collect();
        let members = SessionKey::of_members(2);
        assert_eq!(keys, members.chain(SessionKey::BESIDE[1..].to_vec()).collect::<Vec<_>>());
        assert!(keys.iter().map(|key| key.index(2)).eq(0..5));
        assert!(keys.is_sorted());
        let roles: Vec<Role> = keys.into_iter().filter_map(SessionKey::role).collect();
        assert_eq!(roles, [Role(0), Role(1)]);
    }
}
