//! What an engine is made of: the machine of an array, its members or nodes, and its memory.

use std::path::Path;

use braid_array::array::Scratch;
use braid_array::assemble::Config;
use braid_array::integrity::FoundArea;
use braid_array::stack::Stack;
use braid_array::verified::IntegrityMachine;
use braid_array::{Array, BlockMachine, Instant, MemberId, Refusal};
use braid_cluster::moving::NEW_PEERS;
use braid_cluster::{Client, ClientConfig, FailoverClient, MovingClient};

use super::again::{Again, Search};
use super::nodes::Nodes;
use super::sums::Sums;
use super::{Assembled, ExportPlace, ExportSpec};
use crate::arena::Arena;
use crate::engine::REQUEST_BYTES;
use crate::fabric::Network;
use crate::member::{MemberFile, OpenError, check_distinct};
use crate::system::{refused_by_system, since_1970};

/// Mounts that may come while an array runs, besides those that it begins with.
const SPARE_MOUNTS: u32 = 2;

/// Next step for a configuration that makes no array.
const LOOK_AT_MEMBERS: &str = "compare the superblocks of its members";

/// Parts from which an engine is made.
pub(super) struct Machinery {
    pub(super) machine: Box<dyn BlockMachine + Send>,
    pub(super) members: Vec<(MemberId, MemberFile)>,
    pub(super) arena: Arena,
    /// Connections, for an array over nodes.
    pub(super) nodes: Option<Nodes>,
    /// Lines about members that it starts without.
    pub(super) missing: Vec<String>,
    /// Number of mounts for which there is memory.
    pub(super) mounts: u32,
}

impl Machinery {
    /// Prepares an array for these exports. Members without checksums get some in the directory of
    /// `stores`.
    pub(super) fn new(
        array: Assembled,
        exports: &[ExportSpec],
        stores: Option<&Path>,
    ) -> Result<Self, Refusal> {
        let mounts =
            exports.iter().filter(|export| matches!(export.place, ExportPlace::Fuse(_))).count();
        // More may come while it runs. All are but addresses until they are used.
        let mounts = u32::try_from(mounts).unwrap_or(u32::MAX).saturating_add(SPARE_MOUNTS);
        let (outer, inner, are_distinct) = match array {
            Assembled::Array { config, members } => {
                return Self::of_devices(config, members, stores, mounts);
            }
            Assembled::Nested { outer, inner } => (outer, inner, true),
            Assembled::Pieces { whole, arrays } => (whole, arrays, false),
            Assembled::Cluster { config, network, again, missing } => {
                return Ok(Self { missing, ..Self::of_nodes(config, network, again, mounts)? });
            }
            Assembled::Moving { arrays, network, missing } => {
                return Ok(Self { missing, ..Self::of_moving(*arrays, network, mounts)? });
            }
        };
        let mut sums = Sums::default();
        let mut inner = inner;
        for (number, (config, files)) in (0u16..).zip(&mut inner) {
            sums.find(config, files, stores, |id| Stack::leaf(number, id));
        }
        let Sums { areas, lines: missing } = sums;
        let configs = inner.iter().map(|(config, _)| config).chain([&outer]);
        let scratch_bytes = configs.map(Array::scratch_bytes).sum::<u64>() + sums_bytes(&areas);
        let arena = Arena::for_exports(scratch_bytes, REQUEST_BYTES, mounts, false)
            .map_err(|error| refused_by_system(&error))?;
        let mut scratch = arena.scratch();
        let mut members = Vec::new();
        let mut arrays = Vec::new();
        for (number, (config, files)) in (0u16..).zip(inner) {
            let ids = config.member_ids().map(|id| Stack::leaf(number, id)).collect::<Vec<_>>();
            members.extend(ids.into_iter().zip(files));
            arrays.push(start(config, &mut scratch)?);
        }
        if are_distinct {
            check_distinct(members.iter().map(|(_, member)| member)).map_err(not_distinct)?;
        }
        let outer = start(outer, &mut scratch)?;
        let machine = Stack::new(outer, arrays)
            .map_err(|reason| Refusal::new(reason, "use fewer, larger arrays"))?;
        let machine = verified(machine, areas, &mut scratch);
        Ok(Self { machine, members, arena, nodes: None, missing, mounts })
    }

    fn of_nodes(
        config: ClientConfig,
        network: Network,
        again: Option<Again>,
        mounts: u32,
    ) -> Result<Self, Refusal> {
        let arena = nodes_arena(Client::scratch_bytes(&config), mounts)?;
        let nodes = Some(Nodes::of(&config, network));
        let machine: Box<dyn BlockMachine + Send> = match again {
            Some(again) => Box::new(failover(config, again, arena.scratch())?),
            None => {
                let client = Client::new(config, arena.scratch());
                let mut client = client.map_err(|reason| Refusal::new(reason, LOOK_AT_MEMBERS))?;
                client.set_epoch(epoch_micros());
                Box::new(client)
            }
        };
        Ok(Self { machine, members: Vec::new(), arena, nodes, missing: Vec::new(), mounts })
    }

    fn of_moving(
        arrays: [(ClientConfig, Again); 2],
        network: Network,
        mounts: u32,
    ) -> Result<Self, Refusal> {
        let own_bytes = MovingClient::scratch_bytes();
        let bytes = arrays.iter().map(|(config, _)| Client::scratch_bytes(config)).sum::<u64>();
        let arena = nodes_arena(own_bytes + bytes, mounts)?;
        let mut scratch = arena.scratch();
        let nodes = arrays.iter().map(|(config, _)| Nodes::of(config, network));
        let nodes = nodes.reduce(Nodes::and);
        let [(old, old_again), (new, new_again)] = arrays;
        let new = ClientConfig { first_peer: NEW_PEERS, ..new };
        let fail_timeout_ms = old_again.fail_timeout_ms();
        let mut part = |bytes| cut(&mut scratch, bytes);
        let [old_part, new_part] = [&old, &new].map(|config| part(Client::scratch_bytes(config)));
        let old = failover(old, old_again, old_part)?;
        let new = failover(new, new_again, new_part)?;
        let machine = MovingClient::new(old, new, part(own_bytes), fail_timeout_ms);
        let machine = Box::new(machine);
        Ok(Self { machine, members: Vec::new(), arena, nodes, missing: Vec::new(), mounts })
    }

    fn of_devices(
        config: Config,
        mut members: Vec<MemberFile>,
        stores: Option<&Path>,
        mounts: u32,
    ) -> Result<Self, Refusal> {
        check_distinct(&members).map_err(not_distinct)?;
        let mut sums = Sums::default();
        sums.find(&config, &mut members, stores, |id| id);
        let Sums { areas, lines: missing } = sums;
        let scratch_bytes = Array::scratch_bytes(&config) + sums_bytes(&areas);
        let arena = Arena::for_exports(scratch_bytes, REQUEST_BYTES, mounts, false)
            .map_err(|error| refused_by_system(&error))?;
        // The device that a move in place saves to is behind the members.
        let ids = (0u16..).map(MemberId);
        let mut scratch = arena.scratch();
        let machine = verified(start(config, &mut scratch)?, areas, &mut scratch);
        let members = ids.zip(members).collect();
        Ok(Self { machine, members, arena, nodes: None, missing, mounts })
    }
}

/// Bytes of memory for the verification of members with these areas.
const fn sums_bytes(areas: &[(MemberId, FoundArea)]) -> u64 {
    if areas.is_empty() { 0 } else { IntegrityMachine::<Array>::SCRATCH_BYTES }
}

/// Verifies what a machine reads, if any of its members have checksums.
fn verified<M: BlockMachine + Send + 'static>(
    machine: M,
    areas: Vec<(MemberId, FoundArea)>,
    scratch: &mut Scratch,
) -> Box<dyn BlockMachine + Send> {
    if areas.is_empty() {
        return Box::new(machine);
    }
    let own = cut(scratch, IntegrityMachine::<M>::SCRATCH_BYTES);
    Box::new(IntegrityMachine::new(machine, areas, own))
}

fn not_distinct(error: OpenError) -> Refusal {
    Refusal::new(error.to_string(), "assemble it from other members")
}

/// Memory for an array over nodes. Stripes are wide and links are long: more is under way than on
/// one machine.
fn nodes_arena(scratch_bytes: u64, mounts: u32) -> Result<Arena, Refusal> {
    Arena::for_exports(scratch_bytes, 2 * REQUEST_BYTES, mounts, true)
        .map_err(|error| refused_by_system(&error))
}

/// Client of an array over nodes, which goes on after too many nodes were away.
fn failover(
    config: ClientConfig,
    again: Again,
    scratch: Scratch,
) -> Result<FailoverClient, Refusal> {
    let millis = again.fail_timeout_ms();
    let search = Search::new(again.judge).map_err(|error| refused_by_system(&error))?;
    let mut client = FailoverClient::new(config, scratch, Box::new(search), millis)
        .map_err(|reason| Refusal::new(reason, LOOK_AT_MEMBERS))?;
    client.set_epoch(epoch_micros());
    Ok(client)
}

/// Takes a part off the beginning of `scratch`.
const fn cut(scratch: &mut Scratch, bytes: u64) -> Scratch {
    let part = Scratch { offset: scratch.offset, bytes };
    *scratch = Scratch { offset: scratch.offset + bytes, bytes: scratch.bytes - bytes };
    part
}

fn epoch_micros() -> u64 {
    u64::try_from(since_1970().as_micros()).unwrap_or(u64::MAX)
}

/// Starts one machine in its part of `scratch`, which it leaves shorter.
fn start(config: Config, scratch: &mut Scratch) -> Result<Array, Refusal> {
    let own = cut(scratch, Array::scratch_bytes(&config));
    let mut array = Array::new(Instant(0), config, own)
        .map_err(|reason| Refusal::new(reason, LOOK_AT_MEMBERS))?;
    array.set_epoch(epoch_micros());
    Ok(array)
}
