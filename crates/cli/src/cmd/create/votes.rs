//! Witnesses of a new array over nodes. An array with witnesses gets its first view recorded before
//! its superblocks are written: a later assembly finds the voters and their addresses in the view.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use braid_array::Refusal;
use braid_cluster::client::MAX_WITNESSES;
use braid_cluster::ids::{Epoch, NodeId};
use braid_cluster::view::{View, Witness};
use braid_host::fabric::Network;
use braid_host::remote::{Granted, Remote, RemoteError, RemoteErrorKind};
use uuid::Uuid;

use crate::args::{CreateArgs, NodeArg};
use crate::cmd::nodes::{NO_MEMBER, check_witnesses};
use crate::failure::Failure;

/// The addresses of the witnesses, on nodes of their own.
pub(super) fn witnesses(args: &CreateArgs, members: &[NodeArg]) -> Result<(), Failure> {
    check_witnesses("create", &args.witness, members)?;
    if args.witness.len() > MAX_WITNESSES {
        let reason = "so many witnesses are of no use";
        return Err(Failure::usage("create", &args.name, reason, "name one or two"));
    }
    Ok(())
}

/// Records the first view, which lists the voters, on all members and witnesses. Returns the
/// address of a failed node with its error.
pub(in crate::cmd) fn record(
    array: [u8; 16],
    members: &[NodeArg],
    witnesses: &[String],
    network: Network,
) -> Result<(), (String, RemoteError)> {
    if witnesses.is_empty() {
        return Ok(());
    }
    let addresses: Vec<&String> =
        members.iter().map(|member| &member.address).chain(witnesses).collect();
    let (client, _) = Uuid::new_v4().as_u64_pair();
    let mut asked: Vec<(Remote, Granted)> = Vec::new();
    for address in &addresses {
        let granted = Remote::connect(address, network).and_then(|mut remote| {
            let granted = remote.fence(array, client)?;
            if asked.iter().any(|(_, other)| other.node == granted.node) {
                let why = Refusal::new("is the node of a member or of another witness", NO_MEMBER);
                return Err(RemoteError { why, kind: RemoteErrorKind::Other });
            }
            Ok((remote, granted))
        });
        asked.push(granted.map_err(|error| ((*address).clone(), error))?);
    }
    let (of_members, of_witnesses) = asked.split_at(members.len());
    let voters: BTreeSet<NodeId> = asked.iter().map(|(_, granted)| granted.node).collect();
    let at = |((_, granted), address): (&(Remote, Granted), &String)| Witness {
        node: granted.node,
        address: address.clone(),
    };
    let view = View {
        epoch: asked.iter().map(|(_, granted)| granted.epoch).max().unwrap_or(Epoch(1)),
        count: 1,
        members: of_members
            .iter()
            .map(|(_, granted)| NonZeroU64::new(granted.incarnation))
            .collect(),
        voters: voters.into_iter().collect(),
        witnesses: of_witnesses.iter().zip(witnesses).map(at).collect(),
        ..View::default()
    };
    for ((remote, _), address) in asked.iter_mut().zip(&addresses) {
        remote.record(view.clone()).map_err(|error| ((*address).clone(), error))?;
    }
    Ok(())
}
