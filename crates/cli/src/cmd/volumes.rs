//! Volumes of an array over nodes that is stopped, whose metadata a command changes.
//!
//! ```text
//! look ─► plan ─► every node grants the array ─► open for writing ─► look again ─► prove ─► write
//! ```
//! An array in use is refused: its client keeps it. A client that the nodes do not see at the
//! moment cannot continue after they have granted a later epoch. A client that comes meanwhile
//! keeps the array, since its epoch is no longer free. After the grant no other client can write to
//! a volume, so a volume found unchanged then stays unchanged. From the grant on nothing of others
//! lands on a volume, so what is the same then as it was planned by stays it.

use std::time::{Duration, Instant};

use braid_array::policy::Write;
use braid_array::{Refusal, SECTOR_BYTES};
use braid_cluster::journal::{HEADERS_BYTES, headers_byte};
use braid_cluster::policy::{Plan, Volume};
use braid_host::fabric::Network;
use braid_host::remote::{self, MAX_META_BYTES, Remote, RemoteError, RemoteErrorKind};
use uuid::Uuid;

use super::nodes::{failed, same_node};
use crate::args::NodeArg;
use crate::failure::Failure;

/// Time for the previous client to disconnect, for all volumes together.
const PATIENCE: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_millis(100);

/// Reads the superblocks of all volumes. Volumes in use are refused.
pub(super) fn look_at_all(
    operation: &str,
    nodes: &[NodeArg],
    network: Network,
) -> Result<Vec<Volume>, Failure> {
    let until = Instant::now() + PATIENCE;
    let mut remotes = Vec::with_capacity(nodes.len());
    let mut held = Vec::with_capacity(nodes.len());
    for node in nodes {
        let found = free(node, network, until);
        let (remote, volume) = found.map_err(|error| failed(operation, node, &error))?;
        remotes.push(remote);
        held.push(volume);
    }
    if let Some((index, other)) = same_node(&remotes) {
        let reason = format!("is on the same node as {}", nodes[other]);
        return Err(Failure::refused(operation, &nodes[index], reason, "name each member once"));
    }
    Ok(held)
}

/// Reads a volume as soon as it is free. A client that was stopped may still be connected for a
/// moment.
fn free(node: &NodeArg, network: Network, until: Instant) -> Result<(Remote, Volume), RemoteError> {
    loop {
        let mut remote = Remote::connect(&node.address, network)?;
        let volume = look(&mut remote, node, false)?;
        if !remote.used() {
            return Ok((remote, volume));
        }
        if Instant::now() >= until {
            let why = Refusal::new("is in use by another client", "stop that array first");
            return Err(RemoteError { why, kind: RemoteErrorKind::Busy });
        }
        std::thread::sleep(RETRY);
    }
}

fn look(remote: &mut Remote, node: &NodeArg, write: bool) -> Result<Volume, RemoteError> {
    let volume = node.volume.as_deref().unwrap_or_default();
    let candidate = remote::probe(remote, &node.address, volume, write)?;
    let Ok(superblock) = &candidate.superblock else {
        return Ok(Volume { candidate, headers: Vec::new(), voter: None });
    };
    let voter = Some(remote.vote(superblock.set_uuid)?);
    let headers = match headers_byte(candidate.bytes) {
        Some(byte) => read(remote, byte / SECTOR_BYTES, HEADERS_BYTES)?,
        None => Vec::new(),
    };
    Ok(Volume { candidate, headers, voter })
}

/// Obtains the grant of all nodes, then opens the volumes exclusively. Volumes changed since `held`
/// was read are refused.
fn take_all(
    operation: &str,
    nodes: &[NodeArg],
    network: Network,
    held: &[Volume],
    change: &Plan,
) -> Result<Vec<Remote>, Failure> {
    let (client, _) = Uuid::new_v4().as_u64_pair();
    let grant = |node: &NodeArg| {
        let mut remote = Remote::connect(&node.address, network)?;
        remote.grant(change.array, change.epoch, client)?;
        Ok(remote)
    };
    let granted = |node| grant(node).map_err(|error| failed(operation, node, &error));
    let mut remotes = nodes.iter().map(granted).collect::<Result<Vec<Remote>, Failure>>()?;
    for ((remote, node), volume) in remotes.iter_mut().zip(nodes).zip(held) {
        let now = look(remote, node, true).map_err(|error| failed(operation, node, &error))?;
        if (&now.candidate, &now.headers) != (&volume.candidate, &volume.headers) {
            let reason = "another client changed the array while it was looked at";
            let next = "stop the array if it runs, and say this again";
            return Err(Failure::refused(operation, node, reason, next));
        }
    }
    Ok(remotes)
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

/// Writes it, durably.
fn store(remote: &mut Remote, Write { sector, bytes, .. }: &Write) -> Result<(), RemoteError> {
    let parts = bytes.chunks(MAX_META_BYTES as usize);
    let sectors = (*sector..).step_by((u64::from(MAX_META_BYTES) / SECTOR_BYTES) as usize);
    sectors.zip(parts).try_for_each(|(sector, part)| remote.write(sector, part.to_vec()))
}

/// Rewrites the existing bytes: an unwritable volume is found before any is changed.
fn prove_writable(remote: &mut Remote, write: &Write) -> Result<(), RemoteError> {
    let bytes = read(remote, write.sector, write.bytes.len() as u64)?;
    let unchanged = Write { bytes, ..write.clone() };
    store(remote, &unchanged).map_err(|RemoteError { why: Refusal { reason, .. }, kind }| {
        let reason = format!("cannot be written to: {reason}");
        let why = Refusal::new(reason, "see the log of the node; nothing was changed on any");
        RemoteError { why, kind }
    })
}

/// Opens the volumes exclusively, and writes the planned changes.
pub(super) fn carry_out(
    operation: &str,
    nodes: &[NodeArg],
    network: Network,
    held: &[Volume],
    change: &Plan,
) -> Result<(), Failure> {
    let mut remotes = take_all(operation, nodes, network, held, change)?;
    for write in &change.writes {
        let proved = prove_writable(&mut remotes[write.index], write);
        proved.map_err(|error| failed(operation, &nodes[write.index], &error))?;
    }
    for write in &change.writes {
        store(&mut remotes[write.index], write).map_err(|error| {
            let next = "see the log of the node, and say the same again, which does the rest";
            Failure::refused(operation, &nodes[write.index], error.why.reason, next)
        })?;
    }
    Ok(())
}
