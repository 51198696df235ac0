//! Whether an array starts, for who only asks: a client is made as for a start, and is told what it
//! would be granted. So the answer is that of the start, and nobody is asked for anything.

use braid_array::Refusal;
use braid_array::array::Scratch;

use super::ownership::decision::Grant;
use super::{Client, ClientConfig, ClientMember};
use crate::ids::{Epoch, NodeId};
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
    let of_role = |(role, member): (u16, &Option<ClientMember>)| {
        let address = &member.as_ref()?.address;
        let (_, voter) = members.iter().find(|(at, _)| at == address)?;
        Some((role, voter.clone()))
    };
    let granted: Vec<(u16, Voter)> = (0..).zip(&config.members).filter_map(of_role).collect();
    let nodes = config.params.nodes;
    let no_array = |reason| Refusal::new(reason, "compare the superblocks of its members");
    let mut client = Client::new(config, scratch).map_err(no_array)?;
    let behind = (nodes..).zip(witnesses.iter().cloned());
    let grant = |voter: Voter| {
        let Voter { view, incarnation, node, .. } = voter;
        Grant { view, incarnation, node }
    };
    let all = granted.into_iter().chain(behind);
    let grants = all.map(|(number, voter)| (number, grant(voter))).collect();
    let (ownership, cx, facts) = client.parts.ownership();
    ownership.foretell(grants);
    ownership.decision(&cx, facts).map(drop)
}
