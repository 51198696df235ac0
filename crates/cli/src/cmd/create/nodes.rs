//! `braid create` with members on nodes: a volume on each. All checks, also on every node, come
//! before the first volume is created. After a failure the created volumes are removed.

use std::collections::BTreeMap;
use std::net::ToSocketAddrs;

use braid_array::format::{MoveNote, Superblock, SuperblockError, Version};
use braid_cluster::Family;
use braid_cluster::create::{Blueprint, CreateError, NewArray};
use braid_cluster::journal::LEAST_BYTES;
use braid_cluster::pair::is_other_name;
use braid_cluster::wire::valid_volume_name;
use braid_host::fabric::Network;
use braid_host::remote::{self, Remote};
use uuid::Uuid;

use super::volumes::{VolumeToMake, make, on_the_node_of};
use super::votes;
use super::{bitmap, check_counts, check_name, stored_name, typed};
use crate::args::{CreateArgs, MemberArg, MetadataArg, NodeArg};
use crate::cmd::families::title;
use crate::cmd::found::{is_called, mixed};
use crate::cmd::key::whole;
use crate::cmd::node_admin::removal;
use crate::cmd::nodes::{connect, failed, network, options};
use crate::cmd::shape::family;
use crate::cmd::writes;
use crate::failure::Failure;
use crate::invocation::shell_word;
use crate::output;

/// Default and largest size of a journal on a node.
const DEFAULT_JOURNAL_BYTES: u64 = 64 << 20;
const MAX_JOURNAL_BYTES: u64 = 4 << 30;

pub(super) fn run(args: &CreateArgs) -> Result<(), Failure> {
    check_name(args)?;
    if args.metadata.is_some_and(|version| version != MetadataArg::V1_2)
        || args.data_offset.is_some()
    {
        let reason = "volumes of nodes have metadata 1.2, and data where that leaves room for it";
        let next = "leave --metadata and --data-offset out";
        return Err(Failure::usage("create", &args.name, reason, next));
    }
    let family = family(&typed(args))?;
    let places = places(args)?;
    check_counts(args)?;
    let nodes: Vec<NodeArg> = places.iter().map(|place| place.node.clone()).collect();
    votes::witnesses(args, &nodes)?;
    let array = Uuid::new_v4().into_bytes();
    let blueprint = blueprint(args, array, family, places.len())?;
    let network = network("create", &args.network)?;
    network.key.map_or(Ok(()), |key| whole("create", &args.name, key))?;
    let assembly = assembly(args, &places);
    let mut remotes = reach(args, &places, &assembly, network)?;
    if args.dry_run {
        return show(&places, &blueprint);
    }
    // Spares have no vote.
    let members = &nodes[..nodes.len() - args.spare_devices as usize];
    let vote = || votes::record(array, members, &args.witness, network);
    make("create", &places, &mut remotes, &blueprint, vote)?;
    output::next_command(&assembly)
}

/// Shows the planned array.
fn show(places: &[VolumeToMake], blueprint: &Blueprint) -> Result<(), Failure> {
    let last = blueprint.writes.first().and_then(|writes| writes.last());
    let first = last.and_then(|(at, bytes)| Superblock::decode(Version::V1_2, *at, bytes).ok());
    let Some(first) = first else { return Ok(()) };
    let nodes: Vec<String> = places.iter().map(|place| place.node.to_string()).collect();
    output::answer(&output::planned::on_nodes(&first, &nodes, blueprint.volume_bytes))
}

/// Returns the command that starts the array.
fn assembly(args: &CreateArgs, places: &[VolumeToMake]) -> String {
    let words: Vec<String> =
        places.iter().map(|place| shell_word(&place.node.to_string())).collect();
    let option = options(&args.network);
    format!("braid assemble{option} {} {}", shell_word(&args.name), words.join(" "))
}

/// The volumes, no two of them on one node.
fn places(args: &CreateArgs) -> Result<Vec<VolumeToMake>, Failure> {
    let usage =
        |reason: &str, next: &'static str| Failure::usage("create", &args.name, reason, next);
    let first = args.members.iter().find_map(|member| match member {
        MemberArg::Node(node) => Some(node),
        _ => None,
    });
    let mut places: Vec<VolumeToMake> = Vec::new();
    for member in &args.members {
        let node = match (member, first) {
            (MemberArg::Node(node), _) => node,
            (MemberArg::Missing, _) | (_, None) => {
                let reason = "an array over nodes cannot begin with members missing";
                return Err(usage(reason, "name a node for each member"));
            }
            (_, Some(node)) => return Err(mixed("create", node)),
        };
        let volume = node.volume_or(&args.name);
        if !valid_volume_name(&volume) {
            let reason = format!("'{volume}' cannot be the name of a volume");
            return Err(usage(&reason, "name the volumes: node://HOST:PORT/VOLUME"));
        }
        if is_other_name(&volume) {
            let reason = format!("'{volume}' is the name of what an array over nodes grows into");
            return Err(usage(&reason, "use a name that does not end with .2"));
        }
        let node = NodeArg { address: node.address.clone(), volume: Some(volume.clone()) };
        if let Some(other) = places.iter().find(|other| other.node.address == node.address) {
            if other.volume == volume {
                return Err(Failure::usage("create", &node, "was given twice", "name it once"));
            }
            return Err(on_one_node(&node, &other.node));
        }
        places.push(VolumeToMake { node, volume });
    }
    Ok(places)
}

fn on_one_node(one: &NodeArg, other: &NodeArg) -> Failure {
    Failure::usage("create", one, on_the_node_of(other), "use another node")
}

fn blueprint(
    args: &CreateArgs,
    set_uuid: [u8; 16],
    family: Family,
    nodes: usize,
) -> Result<Blueprint, Failure> {
    let usage =
        |reason: &str, next: &'static str| Failure::usage("create", &args.name, reason, next);
    let Some(size) = args.size else {
        let reason = "the size of its members is not known";
        return Err(usage(reason, "say how much data each node shall hold with --size"));
    };
    let chunk_bytes = args.shape.chunk.map(|chunk| {
        u32::try_from(chunk.0).map_err(|_| {
            let reason = format!("a chunk of {} bytes is out of range", chunk.0);
            usage(&reason, "use a multiple of 4K; 64K is usual")
        })
    });
    let chunk_bytes = chunk_bytes.transpose()?;
    let array = NewArray {
        name: stored_name(&args.name),
        set_uuid,
        ctime: writes::now(),
        family,
        chunk_bytes,
        size_bytes: size.0,
        bitmap: bitmap(args)?,
        journal_bytes: journal_bytes(args, family)?,
        parts_only: policy(args, family) == Some("ppl"),
        note: MoveNote::Apart,
    };
    let uuids: Vec<_> = (0..nodes).map(|_| Uuid::new_v4().into_bytes()).collect();
    let (roles, spares) = uuids.split_at(args.raid_devices() as usize);
    array.plan(roles, spares).map_err(|error: CreateError| {
        Failure::explained("create", &args.name, error).with_code(Failure::USAGE)
    })
}

/// Returns the requested consistency policy; by default `ppl` for levels with parity.
fn policy(args: &CreateArgs, family: Family) -> Option<&str> {
    let usual = args.bitmap.is_none() && family.has_parities();
    args.consistency_policy.as_deref().or(usual.then_some("ppl"))
}

/// Returns the size of the journal on each volume.
fn journal_bytes(args: &CreateArgs, family: Family) -> Result<u64, Failure> {
    let usage =
        |reason: &str, next: &'static str| Err(Failure::usage("create", &args.name, reason, next));
    let policy = policy(args, family);
    let journal = matches!(policy, Some("journal" | "ppl"));
    let bytes = args.journal_size.map_or(DEFAULT_JOURNAL_BYTES, |size| size.0);
    if !journal && args.journal_size.is_some() {
        return usage("there is no journal", "say --consistency-policy journal or ppl, too");
    }
    if journal && !family.is_redundant() {
        return usage("an array without redundancy has no journal", "use another level");
    }
    if policy == Some("ppl") && !family.has_parities() {
        return usage("policy ppl is for levels with parity", "use journal or bitmap");
    }
    if journal && !(LEAST_BYTES..=MAX_JOURNAL_BYTES).contains(&bytes) {
        return usage("a journal is of 16M to 4G", "leave --journal-size out for 64M");
    }
    Ok(if journal { bytes } else { 0 })
}

/// Connects to all nodes, and sees that none has such a volume.
fn reach(
    args: &CreateArgs,
    places: &[VolumeToMake],
    assembly: &str,
    network: Network,
) -> Result<Vec<Remote>, Failure> {
    let mut seen = BTreeMap::new();
    let mut remotes = Vec::with_capacity(places.len());
    for place in places {
        // Two names may stand for one address. What is none is found out by connecting.
        for address in place.node.address.to_socket_addrs().into_iter().flatten() {
            if let Some(other) = seen.insert(address, place)
                && !std::ptr::eq(other, place)
            {
                return Err(on_one_node(&place.node, &other.node));
            }
        }
        let mut remote = connect("create", &place.node, network)?;
        let has = remote.has_volume(&place.volume);
        if has.map_err(|error| failed("create", &place.node, &error))? {
            return Err(taken(args, place, &mut remote, assembly));
        }
        remotes.push(remote);
    }
    Ok(remotes)
}

/// Returns the failure for a volume whose name is in use. The next step depends on its content.
fn taken(args: &CreateArgs, place: &VolumeToMake, remote: &mut Remote, assembly: &str) -> Failure {
    const OTHER: &str = "name another volume: node://HOST:PORT/VOLUME";
    let (held, next) = match remote::superblock(remote) {
        Ok(Ok(superblock)) => {
            let next = if is_called(&superblock, &args.name) {
                format!("if that is the array you want, start it: {assembly}; otherwise {OTHER}")
            } else {
                OTHER.to_owned()
            };
            (format!("volume of this name, a member of the array {}", title(&superblock)), next)
        }
        Ok(Err(SuperblockError::NoMagic)) if remote::is_blank(remote) == Ok(true) => {
            let options = options(&args.network);
            let removal = removal(&place.node.address, &place.volume, &options);
            let held = "volume of this name without a superblock, maybe left over from a create \
                        that was interrupted";
            (held.to_owned(), format!("name another volume, or remove this one: {removal}"))
        }
        Ok(Err(SuperblockError::NoMagic)) => {
            ("file of this name in its store that is no volume".to_owned(), OTHER.to_owned())
        }
        _ => ("volume of this name that cannot be read".to_owned(), OTHER.to_owned()),
    };
    Failure::refused("create", &place.node, format!("the node has a {held}"), next)
}
