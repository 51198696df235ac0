//! `braid cat` with members on nodes: without a takeover, and without writes to volumes. Arrays
//! that a client is writing are refused.

use std::io::{self, Write};

use braid_array::Role;
use braid_array::format::MoveNote;
use braid_cluster::assemble::{Candidate, Options, Start, Startable, decide};
use braid_cluster::pipeline::Params;
use braid_cluster::{ClientConfig, Planner};
use braid_host::fabric::Network;
use braid_host::remote::{self, Remote, RemoteError};
use braid_host::serve::{Assembled, Private};
use uuid::Uuid;

use super::source::Source;
use super::stored::{BLOCK_BYTES, OpenedArray, StoredContent};
use super::{contents, range, stdout_failure, to_read};
use crate::args::{CatArgs, NodeArg};
use crate::cmd::assemble::{ask_all, present_arrays, volumes};
use crate::cmd::nodes::{Missing, failed, network};
use crate::failure::Failure;
use crate::output;

/// Bytes read at once; whole blocks of any array.
const PART_BYTES: u64 = 4 << 20;

/// A volume that is there.
struct SeenVolume {
    found: Candidate,
    /// A client writes to it.
    used: bool,
}

pub(super) fn run(name: Option<&str>, nodes: &[NodeArg], args: &CatArgs) -> Result<(), Failure> {
    let volumes = volumes("cat", name, nodes)?;
    let network = network("cat", &args.network)?;
    let object = name.map_or_else(|| volumes[0].to_string(), str::to_owned);
    let mut opened = Vec::new();
    for volumes in present_arrays("cat", name, &volumes, network)? {
        opened.push(open(&object, &volumes, args, network)?);
    }
    let candidates: Vec<Candidate> =
        opened.iter().flat_map(|array| array.candidates.clone()).collect();
    let content = StoredContent::of(opened)
        .map_err(|reason| Failure::refused("cat", &object, reason, "see braid examine"))?;
    let copied = if contents::are_asked_for(args) {
        contents::run(vec![(object.clone(), Source::Nodes(&content))], args)
    } else {
        range(&object, content.size_bytes(), args)
            .and_then(|(offset, length)| copy(&content, &object, offset, length))
    };
    let stopped = content.stop().map_err(|why| Failure::explained("cat", &object, why));
    copied.and(stopped).and_then(|()| unchanged(&object, &candidates, network))
}

fn open(
    object: &str,
    volumes: &[NodeArg],
    args: &CatArgs,
    network: Network,
) -> Result<OpenedArray, Failure> {
    let candidates = look(object, volumes, network)?;
    let options = Options { force: args.force, read_only: true, unclean: false };
    let assembly = decide(&candidates, options);
    let note = assembly.newest.as_deref().map_or(MoveNote::Apart, MoveNote::of);
    let plan = match assembly.start {
        Start::Ready(plan) => *plan,
        Start::Refused(mut why) => {
            why.next = to_read(why.next);
            return Err(Failure::explained("cat", object, why));
        }
    };
    if plan.dirty {
        let warning = "it was not stopped cleanly: what was written last may be in the memory of \
                       its nodes alone, where only `braid assemble` finds it";
        output::warning(&format!("cat {object}: {warning}"));
    }
    let array = Private::start(config(plan, network, object)?)
        .map_err(|why| Failure::explained("cat", object, why))?;
    Ok(OpenedArray { array, candidates, note })
}

fn probe(node: &NodeArg, network: Network) -> Result<SeenVolume, RemoteError> {
    let mut remote = Remote::connect(&node.address, network)?;
    let volume = node.volume.as_deref().unwrap_or_default();
    let found = remote::probe(&mut remote, &node.address, volume, false)?;
    Ok(SeenVolume { found, used: remote.used() })
}

/// Reads the superblocks of the volumes. Nodes that cannot be reached, and missing volumes, are
/// skipped with a warning.
fn look(object: &str, volumes: &[NodeArg], network: Network) -> Result<Vec<Candidate>, Failure> {
    let mut candidates = Vec::new();
    let mut missing = Vec::new();
    for (node, answer) in volumes.iter().zip(ask_all(volumes, |node| probe(node, network))) {
        match answer {
            Ok(seen) if seen.used => {
                let reason = "a client writes to it";
                let next = "read the array where it is served, with `braid cat NAME`, or stop it";
                return Err(Failure::refused("cat", node, reason, next));
            }
            Ok(seen) => candidates.push(seen.found),
            Err(error) => {
                let one = Missing::new(node, error).map_err(|error| failed("cat", node, &error))?;
                missing.push(one);
            }
        }
    }
    for one in missing {
        if candidates.is_empty() {
            return Err(failed("cat", &one.node, &one.error));
        }
        output::warning(&format!("cat {object}: {one}"));
    }
    Ok(candidates)
}

/// Builds the configuration of a reader of the array.
fn config(plan: Startable, network: Network, object: &str) -> Result<Assembled, Failure> {
    let nodes = u16::try_from(plan.members.len())
        .map_err(|error| Failure::refused("cat", object, error, "use fewer members"))?;
    let planner = Planner::Encoder { node: Role(0) };
    let mut params = Params::for_array(plan.family, nodes, plan.chunk_bytes, plan.stripes, planner)
        .map_err(|error| Failure::explained("cat", object, error))?;
    params.session = Uuid::new_v4().as_u64_pair().0;
    // Nothing is written: as little memory of the nodes as can be.
    (params.wide.count, params.narrow.count) = (nodes, nodes);
    let config = ClientConfig::new(params, plan.members);
    let config = ClientConfig { bitmap: plan.bitmap, read_only: true, looks: true, ..config };
    Ok(Assembled::Cluster { config, network, again: None, missing: Vec::new() })
}

fn copy(array: &StoredContent, object: &str, offset: u64, length: u64) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let mut at = offset;
    let end = offset + length;
    while at < end {
        let from = at / BLOCK_BYTES * BLOCK_BYTES;
        let to = end.next_multiple_of(BLOCK_BYTES).min(from + PART_BYTES);
        let bytes = array.read(from, to - from).ok_or_else(|| {
            let reason = format!("cannot be read from byte {from} on");
            Failure::refused("cat", object, reason, "see whether all of its nodes are well")
        })?;
        let wanted = usize::try_from(at - from).unwrap_or(0)
            ..usize::try_from(to.min(end) - from).unwrap_or(0);
        stdout.write_all(&bytes[wanted]).map_err(|error| stdout_failure(object, &error))?;
        at = to.min(end);
    }
    stdout.flush().map_err(|error| stdout_failure(object, &error))
}

/// Checks that no client used the array during the read: clients update their superblocks before
/// they write.
fn unchanged(object: &str, seen: &[Candidate], network: Network) -> Result<(), Failure> {
    let node = |found: &Candidate| NodeArg {
        address: found.address.clone(),
        volume: Some(found.volume.clone()),
    };
    let volumes: Vec<NodeArg> = seen.iter().map(node).collect();
    let place = |found: &Candidate| {
        found
            .superblock
            .as_ref()
            .ok()
            .map(|superblock| (superblock.events, superblock.resync_offset))
    };
    for (before, now) in seen.iter().zip(ask_all(&volumes, |node| probe(node, network))) {
        // A node that has gone since did not serve to others either.
        if now.is_ok_and(|now| place(&now.found) != place(before) || now.used) {
            let reason = "a client has it by now: some of what was read may be older than the rest";
            let next = "read it where it is served, with `braid cat NAME`";
            return Err(Failure::refused("cat", object, reason, next));
        }
    }
    Ok(())
}
