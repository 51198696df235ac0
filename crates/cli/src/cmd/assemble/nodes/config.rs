//! Configuration of the client of an array over nodes, at its start and at a restart.

use std::time::Duration;

use braid_array::format::{MoveNote, Superblock};
use braid_array::{Refusal, Role};
use braid_cluster::assemble::{Options, Startable};
use braid_cluster::client::SPARE_PATIENCE_MS;
use braid_cluster::ids::Epoch;
use braid_cluster::pipeline::Params;
use braid_cluster::{ClientConfig, ClientMember, Planner, VolumeAddress};
use braid_host::fabric::Network;
use braid_host::serve::Judge;
use uuid::Uuid;

use super::judge::judge;
use crate::args::{NodeArg, WriteSchedule};
use crate::failure::Failure;

/// Options for serving an array over nodes.
#[derive(Clone, Copy)]
pub(super) struct HowOverNodes {
    pub(super) schedule: WriteSchedule,
    pub(super) timeout: Duration,
    pub(super) network: Network,
}

/// Judges the array again, as it was when it was started: see [`Again`]. Its superblocks are to say
/// this of a move, if anything.
pub(super) fn judge_again(
    name: String,
    config: &ClientConfig,
    how: HowOverNodes,
    expected: Option<MoveNote>,
) -> Judge {
    let of = |members: &[Option<ClientMember>]| {
        members.iter().flatten().next().map(|member| member.superblock.set_uuid)
    };
    let array = of(&config.members);
    let shape = config.params;
    let read_only = config.read_only;
    Box::new(move |places| {
        let node = |place: &VolumeAddress| NodeArg {
            address: place.address.clone(),
            volume: Some(place.volume.clone()),
        };
        let volumes: Vec<NodeArg> = places.iter().map(node).collect();
        let options = Options { unclean: true, read_only, ..Options::default() };
        let judged = judge(&volumes, options, how.network, how.timeout);
        let judged = judged.map_err(Failure::into_refusal)?;
        check_note(judged.assembly.newest.as_deref(), expected)?;
        let plan = judged.start().cloned().map_err(|(_, why)| why)?;
        let config = config_of(&name, plan, &how, false).map_err(Failure::into_refusal)?;
        let config = judged.without(config);
        // The array may have another size by now.
        let Params { session, epoch, stripes, .. } = shape;
        let same = Params { session, epoch, stripes, ..config.params } == shape;
        if of(&config.members) != array || !same {
            return Err(Refusal::new("its nodes hold another array now", "stop it"));
        }
        Ok(config)
    })
}

/// Checks that superblocks say this of a move, if anything: data may have begun to move since the
/// array was chosen, or moved on.
pub(super) fn check_note(
    newest: Option<&Superblock>,
    expected: Option<MoveNote>,
) -> Result<(), Refusal> {
    let found = newest.map(MoveNote::of);
    let (reason, next) = match expected {
        Some(expected) if found.is_some_and(|found| found != expected) => match expected {
            MoveNote::Apart => (
                "its data are on their way to other nodes since it was looked at",
                "assemble it again, with all nodes of both arrays named",
            ),
            MoveNote::Source | MoveNote::Target { .. } => {
                ("its data have moved on since it was looked at", "assemble it again")
            }
        },
        _ => return Ok(()),
    };
    Err(Refusal::new(reason, next))
}

/// Builds the configuration of the client.
pub(super) fn config_of(
    name: &str,
    plan: Startable,
    &HowOverNodes { schedule, timeout, .. }: &HowOverNodes,
    force: bool,
) -> Result<ClientConfig, Failure> {
    let planner = match schedule {
        WriteSchedule::Mix | WriteSchedule::Encoder => Planner::Encoder { node: Role(0) },
        WriteSchedule::Chain => Planner::Chain,
        WriteSchedule::Static => Planner::Static,
        WriteSchedule::Client => Planner::Client,
    };
    let nodes = u16::try_from(plan.members.len())
        .map_err(|error| Failure::refused("assemble", name, error, "use fewer members"))?;
    let params = Params::for_array(plan.family, nodes, plan.chunk_bytes, plan.stripes, planner)
        .map_err(|error| Failure::explained("assemble", name, error))?;
    let (session, _) = Uuid::new_v4().as_u64_pair();
    // Where this epoch is not enough the nodes say so.
    let config = ClientConfig::new(Params { session, epoch: Epoch(1), ..params }, plan.members);
    Ok(ClientConfig {
        found: plan.found,
        spares: plan.spares,
        bitmap: plan.bitmap,
        read_only: plan.read_only,
        mix: schedule == WriteSchedule::Mix,
        spare_patience_ms: SPARE_PATIENCE_MS,
        node_timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        force,
        ..config
    })
}
