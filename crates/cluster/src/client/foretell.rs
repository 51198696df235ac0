//! Whether an array starts, for who only asks: a client is made as for a start, and is told what it
//! would be granted. So the answer is that of the start, and nobody is asked for anything.

use std::iter;

use braid_array::array::Scratch;
use braid_array::{Refusal, Role};

use super::ownership::decision::Grant;
use super::{Client, ClientConfig, ClientMember};
use crate::ids::{Epoch, NodeId, VoterNo};
use crate::view::{View, Witness};

/// What a node that votes says to who only asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Voter {
    /// The highest epoch that it has granted.
    pub granted: Epoch,
    /// The newest view that it was told of.
    pub view: Option<View>,
    /// As a member of which it would be in sync now.
    pub incarnation: u64,
    /// Who it is as a voter.
    pub node: NodeId,
}

/// Who may have to be asked besides the members, by what they say: the witnesses of the newest
/// view.
#[must_use]
pub fn witnesses(voters: &[Voter]) -> &[Witness] {
    let newest =
        voters.iter().filter_map(|voter| voter.view.as_ref()).max_by_key(|view| view.order());
    newest.map_or(&[], |view| &view.witnesses)
}

/// Would an array start of which these are the voters that are there: the nodes of its members, by
/// their addresses, and witnesses?
///
/// # Errors
/// [`Refusal`]: what its start would be refused with.
pub fn foretell(
    config: ClientConfig,
    members: &[(String, Voter)],
    witnesses: &[Voter],
) -> Result<(), Refusal> {
    let scratch = Scratch { offset: 0, bytes: Client::scratch_bytes(&config) };
    let grant = |voter: &Voter| {
        let Voter { view, incarnation, node, .. } = voter.clone();
        Grant { view, incarnation, node }
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
