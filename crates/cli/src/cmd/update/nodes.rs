//! Arrays over nodes. Each volume is opened for writing, which a node allows one client alone;
//! before anything is written every node grants the array anew, so that a client which the nodes do
//! not see at the moment does not go on either.

use std::time::{Duration, Instant};

use braid_array::policy::Write;
use braid_array::{Refusal, SECTOR_BYTES};
use braid_cluster::assemble::Candidate;
use braid_cluster::ids::Epoch;
use braid_cluster::journal::{HEADERS_BYTES, headers_byte};
use braid_cluster::policy::{Policy, Volume, plan};
use braid_host::fabric::Network;
use braid_host::remote::{self, MAX_META_BYTES, Remote, RemoteError, RemoteErrorKind};
use uuid::Uuid;

use super::{again, check_name, has_it_already};
use crate::args::{NewPolicy, NodeArg, UpdateArgs};
use crate::cmd::assemble::volumes;
use crate::cmd::nodes::{failed, network, options, same_node};
use crate::cmd::writes;
use crate::failure::Failure;
use crate::invocation::shell_word;
use crate::output;

/// How long a client that had the array may take to be gone.
const PATIENCE: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_millis(100);

pub(super) fn run(args: &UpdateArgs, nodes: &[NodeArg]) -> Result<(), Failure> {
    let nodes = volumes("update", Some(&args.name), nodes)?;
    let network = network("update", &args.network)?;
    let until = Instant::now() + PATIENCE;
    let mut remotes = Vec::with_capacity(nodes.len());
    let mut candidates = Vec::with_capacity(nodes.len());
    for node in &nodes {
        let (remote, found) =
            open(node, network, until).map_err(|error| failed("update", node, &error))?;
        remotes.push(remote);
        candidates.push(found);
    }
    if let Some((index, other)) = same_node(&remotes) {
        let reason = format!("is on the same node as {}", nodes[other]);
        return Err(Failure::refused("update", &nodes[index], reason, "name each member once"));
    }
    check_name(args, candidates.iter().filter_map(|found| found.superblock.as_ref().ok()))?;
    let mut held = Vec::with_capacity(nodes.len());
    for ((remote, found), node) in remotes.iter_mut().zip(candidates).zip(&nodes) {
        held.push(look(remote, found).map_err(|error| failed("update", node, &error))?);
    }
    let policy = match args.consistency_policy {
        NewPolicy::Resync => Policy::Resync,
        NewPolicy::Bitmap => Policy::Bitmap,
        NewPolicy::Ppl => Policy::PartialParity,
        NewPolicy::Journal => Policy::Journal,
    };
    let writes = plan(&held, policy, writes::now())
        .map_err(|why| Failure::explained("update", &args.name, why))?;
    if writes.is_empty() {
        return has_it_already(args);
    }
    for write in &writes {
        let proved = prove_writable(&mut remotes[write.index], write);
        proved.map_err(|error| failed("update", &nodes[write.index], &error))?;
    }
    let array = held.iter().find_map(|volume| volume.candidate.superblock.as_ref().ok());
    let array = array.map_or([0; 16], |superblock| superblock.set_uuid);
    let (client, _) = Uuid::new_v4().as_u64_pair();
    for (remote, node) in remotes.iter_mut().zip(&nodes) {
        remote.fence(array, client).map_err(|error| failed("update", node, &error))?;
    }
    for write in &writes {
        store(&mut remotes[write.index], write).map_err(|error| {
            Failure::refused("update", &nodes[write.index], error.why.reason, again(args))
        })?;
    }
    let words: Vec<String> = nodes.iter().map(|node| shell_word(&node.to_string())).collect();
    let option = options(&args.network);
    let name = shell_word(&args.name);
    output::answer(&format!("braid assemble{option} {name} {}\n", words.join(" ")))
}

/// Has the volume for itself. A client that was stopped may be about to go.
fn open(
    node: &NodeArg,
    network: Network,
    until: Instant,
) -> Result<(Remote, Candidate), RemoteError> {
    let volume = node.volume.as_deref().unwrap_or_default();
    loop {
        let mut remote = Remote::connect(&node.address, network)?;
        match remote::probe(&mut remote, &node.address, volume, true) {
            Err(error) if error.kind == RemoteErrorKind::Busy && Instant::now() < until => {
                std::thread::sleep(RETRY);
            }
            found => return Ok((remote, found?)),
        }
    }
}

/// What else there is to know of a volume.
fn look(remote: &mut Remote, candidate: Candidate) -> Result<Volume, RemoteError> {
    let Ok(superblock) = &candidate.superblock else {
        return Ok(Volume { candidate, headers: Vec::new(), granted: Epoch::BEFORE_ANY });
    };
    let granted = remote.vote(superblock.set_uuid)?.granted;
    let headers = match headers_byte(candidate.bytes) {
        Some(byte) => read(remote, byte / SECTOR_BYTES, HEADERS_BYTES)?,
        None => Vec::new(),
    };
    Ok(Volume { candidate, headers, granted })
}

fn read(remote: &mut Remote, sector: u64, bytes: u64) -> Result<Vec<u8>, RemoteError> {
    let mut read = Vec::new();
    while (read.len() as u64) < bytes {
        let have = read.len() as u64;
        let part = (bytes - have).min(MAX_META_BYTES.into());
        let part = u32::try_from(part).unwrap_or(MAX_META_BYTES);
        read.extend(remote.read(sector + have / SECTOR_BYTES, part)?);
    }
    Ok(read)
}

fn store(remote: &mut Remote, Write { sector, bytes, .. }: &Write) -> Result<(), RemoteError> {
    let parts = bytes.chunks(MAX_META_BYTES as usize);
    let sectors = (*sector..).step_by((u64::from(MAX_META_BYTES) / SECTOR_BYTES) as usize);
    sectors.zip(parts).try_for_each(|(sector, part)| remote.write(sector, part.to_vec()))
}

/// Writes what is there already: a volume that takes no writes is found before any is changed.
fn prove_writable(remote: &mut Remote, write: &Write) -> Result<(), RemoteError> {
    let bytes = read(remote, write.sector, write.bytes.len() as u64)?;
    let unchanged = Write { bytes, ..write.clone() };
    store(remote, &unchanged).map_err(|RemoteError { why: Refusal { reason, .. }, kind }| {
        let reason = format!("cannot be written to: {reason}");
        let why = Refusal::new(reason, "see the log of the node; nothing was changed on any");
        RemoteError { why, kind }
    })
}
