//! Check of whether an array would start, without starting it: a client is made as for a start, and
//! is given the grants that it would get. The answer equals that of the start, and no node is asked
//! for anything.

use std::iter;

use braid_array::array::Scratch;
use braid_array::{Refusal, Role};

use super::ownership::decision::NodeGrant;
use super::{Client, ClientConfig, ClientMember};
use crate::ids::{Epoch, NodeId, VoterNo};
use crate::view::{View, Witness};

/// Answer of a voting node to a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Voter {
    /// The highest epoch that it has granted.
    pub granted: Epoch,
    /// The newest view that the node holds.
    pub view: Option<View>,
    /// Incarnation by which views would list the node as a member in sync.
    pub incarnation: u64,
    /// The node's identity as a voter.
    pub node: NodeId,
}

/// Returns the witnesses of the newest view: further voters that may have to be asked.
#[must_use]
pub fn witnesses(voters: &[Voter]) -> &[Witness] {
    let newest =
        voters.iter().filter_map(|voter| voter.view.as_ref()).max_by_key(|view| view.order());
    newest.map_or(&[], |view| &view.witnesses)
}

/// Checks whether an array would start with these voters: the nodes of its members, by their
/// addresses, and the witnesses.
///
/// # Errors
/// [`Refusal`] of the start, with its reason.
pub fn foretell(
    config: ClientConfig,
    members: &[(String, Voter)],
    witnesses: &[Voter],
) -> Result<(), Refusal> {
    let scratch = Scratch { offset: 0, bytes: Client::scratch_bytes(&config) };
    let grant = |voter: &Voter| {
        let Voter { view, incarnation, node, .. } = voter.clone();
        NodeGrant { view, incarnation, node }
    };
    let of_role = |(role, member): (Role, &Option<ClientMember>)| {
        let address = &member.as_ref()?.address;
        let (_, voter) = members.iter().find(|(at, _)| at == address)?;
        Some((VoterNo::from(role), grant(voter)))
    };
    let of_roles = (0..).map(Role).zip(&config.members).filter_map(of_role);
    let first = VoterNo::first_witness(config.params.nodes);
    let behind = iter::successors(Some(first), |number| Some(number.next()));
    let grants = of_roles.chain(behind.zip(witnesses.iter().map(grant))).collect();
    let no_array = |reason| Refusal::new(reason, "compare the superblocks of its members");
    let mut client = Client::new(config, scratch).map_err(no_array)?;
    let (ownership, cx, facts) = client.parts.ownership();
    ownership.foretell(grants);
    ownership.decision(&cx, facts).map(drop)
}
