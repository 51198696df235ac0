//! Voters: the nodes of the members, and witnesses. When another node takes a role the vote moves
//! with the role, in two steps. First, a majority of the old voters and one of the new voters are
//! needed. When enough voters have noted this, so that every majority contains one of them, the new
//! voters vote alone.

use braid_array::Role;
use braid_array::status::ViewStatus;

use super::Ownership;
use super::decision::NodeGrant;
use crate::ids::NodeId;
use crate::view::View;

impl Ownership {
    /// Returns the view that is recorded, or on its way. `address` returns the address of a role's
    /// node.
    pub(in crate::client) fn status(
        &self,
        nodes: u16,
        address: impl Fn(Role) -> Option<String>,
    ) -> Option<ViewStatus> {
        let view = self.view.as_ref()?;
        let View { epoch, count, voters, .. } = view;
        let of_member = |voter: NodeId| {
            let mut grants = self.member_grants(nodes);
            let (role, _) = grants.find(|(_, NodeGrant { node, .. })| *node == voter)?;
            address(role)
        };
        let of = |voter: NodeId| of_member(voter).or_else(|| self.witnesses.address_of(voter));
        let named = |&voter: &NodeId| of(voter).unwrap_or_else(|| format!("{:016x}", voter.0));
        Some(ViewStatus {
            epoch: epoch.0,
            count: *count,
            in_sync: Role::all(nodes).filter(|&role| view.has(role)).collect(),
            voters: voters.iter().map(named).collect(),
            witnesses: self.witnesses.status(),
            absent: Vec::new(),
        })
    }

    /// Makes the next step in a view that is about to be recorded, if one is due.
    pub(super) fn change_voters(&self, view: &mut View, nodes: u16) {
        if !view.voted.is_empty() {
            if self.view_holds() {
                view.voted.clear();
                view.witnesses.retain(|witness| view.voters.contains(&witness.node));
            }
            return;
        }
        if self.voters_due {
            let due = self.due_voters(&view.voters, nodes);
            view.witnesses = self.witnesses.known().collect();
            if due != view.voters {
                view.voted = std::mem::replace(&mut view.voters, due);
            }
        }
    }

    /// Returns the nodes that ought to vote. Where a role's node is unknown, one of the old voters
    /// stays in its place.
    fn due_voters(&self, old: &[NodeId], nodes: u16) -> Vec<NodeId> {
        let of_members = || self.member_grants(nodes).map(|(_, grant)| grant.node);
        let witnesses = || self.witnesses.known().map(|witness| witness.node);
        let known = |voter: &NodeId| of_members().chain(witnesses()).any(|node| node == *voter);
        let unknown = usize::from(nodes).saturating_sub(of_members().count());
        let strangers = old.iter().filter(|voter| !known(voter)).take(unknown);
        let mut voters: Vec<NodeId> = strangers.copied().collect();
        voters.extend(of_members().chain(witnesses()));
        voters.sort_unstable();
        voters.dedup();
        voters
    }
}
