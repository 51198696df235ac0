//! Selection of the volumes that are members of an array, and the decision whether the array starts
//! with them.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::{Duration, Instant};

use braid_array::Refusal;
use braid_array::assemble::Verdict;
use braid_array::format::Superblock;
use braid_cluster::ClientConfig;
use braid_cluster::assemble::{
    Assembly, Candidate, Options, Start, Startable, decide, member_name,
};
use braid_cluster::pair::other_volume;
use braid_host::fabric::Network;
use braid_host::remote::{self, Remote, RemoteError, RemoteErrorKind};
use uuid::Uuid;

use crate::args::NodeArg;
use crate::cmd::families::{Unclear, title};
use crate::cmd::found::is_called;
use crate::cmd::nodes::{Missing, STORE, failed, same_node};
use crate::failure::Failure;
use crate::output;
use crate::output::explained::Judged as Verdicted;

/// Time for volumes in use to become free, for all of them together.
const PATIENCE: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_millis(100);
/// Fate of a member that a command made faulty.
const MADE_FAULTY: &str =
    "stays out until it is removed and added, as a command made it faulty or removed it";
const MOVE: &str = "move it to another node";

/// The volumes, by full name.
pub(in crate::cmd) fn volumes(
    operation: &str,
    name: Option<&str>,
    nodes: &[NodeArg],
) -> Result<Vec<NodeArg>, Failure> {
    let mut volumes: Vec<NodeArg> = Vec::new();
    for node in nodes {
        let Some(volume) = node.volume.as_deref().or(name) else {
            let next = "write node://HOST:PORT/VOLUME, or a name before the members";
            return Err(Failure::usage(operation, node, "which volume was not said", next));
        };
        let node = NodeArg { address: node.address.clone(), volume: Some(volume.to_owned()) };
        if volumes.contains(&node) {
            return Err(Failure::usage(operation, node, "was given twice", "name it once"));
        }
        if let Some(other) = volumes.iter().find(|other| other.address == node.address) {
            let reason = on_the_node_of(other);
            return Err(Failure::usage(operation, node, reason, MOVE));
        }
        volumes.push(node);
    }
    Ok(volumes)
}

pub(super) fn probe(remote: &mut Remote, node: &NodeArg) -> Result<Candidate, RemoteError> {
    let volume = node.volume.as_deref().unwrap_or_default();
    remote::probe(remote, &node.address, volume, false)
}

/// Probes a volume on a connection of its own. A volume in use is probed again for a moment: its
/// client may be about to end, or the end may not have reached the node yet.
fn probe_free(
    node: &NodeArg,
    connect: impl Fn(&NodeArg) -> Result<Remote, RemoteError>,
    until: Instant,
) -> Result<(Remote, Candidate), RemoteError> {
    loop {
        let mut remote = connect(node)?;
        let found = probe(&mut remote, node)?;
        if !remote.used() {
            return Ok((remote, found));
        }
        if Instant::now() >= until {
            return Err(RemoteError { why: in_use(), kind: RemoteErrorKind::Busy });
        }
        std::thread::sleep(RETRY);
    }
}

pub(super) fn in_use() -> Refusal {
    let next = "stop that array first, or take it over with --take-over";
    Refusal::new("is in use by another client", next)
}

pub(super) fn on_the_node_of(other: impl Display) -> String {
    format!("is on the same node as {other}")
}

/// Findings about an array.
pub(super) struct JudgedArray {
    pub(super) assembly: Assembly,
    /// Members of which nothing is known, and why.
    pub(super) missing: Vec<Missing>,
    /// Volumes that belong to arrays of other names.
    others: Vec<Verdicted>,
}

impl JudgedArray {
    /// Returns the plan of the start, or the reason against it: possibly a missing member.
    pub(super) fn start(&self) -> Result<&Startable, (Option<&NodeArg>, Refusal)> {
        match (&self.assembly.start, self.missing.first()) {
            (Start::Ready(plan), _) => Ok(plan),
            (Start::Refused(why), None) => Err((None, why.clone())),
            (Start::Refused(why), Some(first)) if self.assembly.newest.is_some() => {
                let Refusal { reason, next } = first.why();
                let reason = format!("{reason}, and without it {}", why.reason);
                Err((Some(&first.node), Refusal { reason, next }))
            }
            (Start::Refused(_), Some(first)) => Err((Some(&first.node), first.error.why.clone())),
        }
    }

    /// Adds the members that are not attached to the configuration of the client.
    pub(super) fn without(self, config: ClientConfig) -> ClientConfig {
        let members = config.members.iter().flatten();
        let taken: Vec<String> = members.map(|m| member_name(&m.address, &m.volume)).collect();
        let left_out = self.assembly.verdicts.into_iter().chain(self.others);
        let left_out =
            left_out.filter(|(member, verdict)| !verdict.attached() && !taken.contains(member));
        let left_out =
            left_out.map(|(member, verdict)| (member, Refusal::new(verdict.to_string(), STORE)));
        let missing = self.missing.iter().map(|one| (one.node.to_string(), one.why()));
        let not_in = missing.chain(left_out).collect();
        let place = |one: &Missing| {
            let NodeArg { address, volume } = one.node.clone();
            (address, volume.unwrap_or_default())
        };
        ClientConfig { absent: self.missing.iter().map(place).collect(), not_in, ..config }
    }
}

/// Asks all nodes at the same time. Returns their answers in order.
pub(in crate::cmd) fn ask_all<T: Send>(
    volumes: &[NodeArg],
    ask: impl Fn(&NodeArg) -> Result<T, RemoteError> + Sync,
) -> Vec<Result<T, RemoteError>> {
    std::thread::scope(|scope| {
        let ask = &ask;
        let asked: Vec<_> = volumes.iter().map(|node| scope.spawn(move || ask(node))).collect();
        let join = |asked: std::thread::ScopedJoinHandle<'_, _>| match asked.join() {
            Ok(answer) => answer,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        asked.into_iter().map(join).collect()
    })
}

/// A volume that was looked at.
pub(super) struct LookedAt {
    pub(super) node: NodeArg,
    pub(super) found: Candidate,
    /// Set if it has the other name of the one that was typed.
    pub(super) other: bool,
}

/// Volumes that were looked at, and those of which nothing is known, and why.
#[derive(Default)]
pub(super) struct Look {
    pub(super) volumes: Vec<LookedAt>,
    pub(super) missing: Vec<Missing>,
}

impl Look {
    /// Returns the names that its volumes have, in the order in which they were typed. A volume of
    /// another array has none.
    pub(super) fn names(&self, typed: &[NodeArg]) -> Vec<NodeArg> {
        let found = self.volumes.iter().map(|one| &one.node);
        let all = found.chain(self.missing.iter().map(|one| &one.node));
        let name = |typed: &NodeArg| all.clone().find(|one| one.address == typed.address);
        typed.iter().filter_map(name).cloned().collect()
    }
}

/// Separates answers from errors, which are the reasons why a member is missing.
fn known<T>(
    operation: &str,
    nodes: &[NodeArg],
    answers: Vec<Result<T, RemoteError>>,
    missing: &mut Vec<Missing>,
) -> Result<Vec<(NodeArg, T)>, Failure> {
    let mut found = Vec::new();
    for (node, answer) in nodes.iter().zip(answers) {
        match answer {
            Ok(answer) => found.push((node.clone(), answer)),
            Err(error) => {
                let without = Missing::new(node, error);
                missing.push(without.map_err(|error| failed(operation, node, &error))?);
            }
        }
    }
    Ok(found)
}

/// Looks at all volumes, on connections of their own, all at once; with `both`, also at those with
/// the other names, which take the place of the first where these are not there.
pub(super) fn look(
    operation: &str,
    nodes: &[NodeArg],
    both: bool,
    network: Network,
    timeout: Duration,
) -> Result<Look, Failure> {
    let connect = |node: &NodeArg| Remote::connect_within(&node.address, network, timeout);
    let probed = |mut remote: Remote, node: &NodeArg, other: bool| {
        let found = probe(&mut remote, node)?;
        Ok(LookedAt { node: node.clone(), found, other })
    };
    let all_of = |node: &NodeArg| {
        let mut remote = connect(node)?;
        let other = other_volume(node.volume.as_deref().unwrap_or_default());
        if !both || !remote.has_volume(&other)? {
            return Ok(vec![probed(remote, node, false)?]);
        }
        drop(remote);
        let other = NodeArg { address: node.address.clone(), volume: Some(other) };
        let other = probed(connect(&other)?, &other, true)?;
        match connect(node).and_then(|remote| probed(remote, node, false)) {
            Ok(first) => Ok(vec![first, other]),
            Err(error) if error.kind == RemoteErrorKind::Refused => Ok(vec![other]),
            Err(error) => Err(error),
        }
    };
    let mut missing = Vec::new();
    let found = known(operation, nodes, ask_all(nodes, all_of), &mut missing)?;
    Ok(Look { volumes: found.into_iter().flat_map(|(_, found)| found).collect(), missing })
}

/// Reads the superblocks on these volumes, and judges the array.
pub(super) fn judge(
    nodes: &[NodeArg],
    options: Options,
    network: Network,
    timeout: Duration,
) -> Result<JudgedArray, Failure> {
    let look = look("assemble", nodes, false, network, timeout)?;
    judge_look(look, None, options, network, (false, timeout))
}

/// Judges the array of this name, if one is given. Refuses volumes in use by other clients, unless
/// they are to be taken over.
pub(super) fn judge_look(
    look: Look,
    name: Option<&str>,
    options: Options,
    network: Network,
    (take_over, timeout): (bool, Duration),
) -> Result<JudgedArray, Failure> {
    let connect = |node: &NodeArg| Remote::connect_within(&node.address, network, timeout);
    let Look { volumes, mut missing } = look;
    let (mut volumes, mut looked_at): (Vec<NodeArg>, Vec<Candidate>) =
        volumes.into_iter().map(|one| (one.node, one.found)).unzip();
    let mut foreign = Vec::new();
    if let Some(name) = name {
        for (index, verdict) in others(name, &looked_at)?.into_iter().rev() {
            let node = volumes.remove(index);
            looked_at.remove(index);
            output::warning(&format!("assemble {name}: {node} is left out: {verdict}"));
            foreign.push((node.to_string(), verdict));
        }
    }
    if take_over {
        // What the client at work changes until then would be missed.
        let (client, _) = Uuid::new_v4().as_u64_pair();
        let arrays =
            looked_at.iter().filter_map(|found| Some(found.superblock.as_ref().ok()?.set_uuid));
        for array in arrays.collect::<BTreeSet<_>>() {
            // Who cannot be reached is told of next.
            let _ = ask_all(&volumes, |node| connect(node)?.fence(array, client));
        }
    }
    let until = Instant::now() + PATIENCE;
    let hold = |node: &NodeArg| {
        if !take_over {
            return probe_free(node, connect, until);
        }
        let mut remote = connect(node)?;
        let candidate = probe(&mut remote, node)?;
        Ok((remote, candidate))
    };
    let found = volumes.iter().map(hold).collect();
    let found = known("assemble", &volumes, found, &mut missing)?;
    let (volumes, found): (Vec<NodeArg>, Vec<_>) = found.into_iter().unzip();
    let (remotes, candidates): (Vec<Remote>, Vec<Candidate>) = found.into_iter().unzip();
    if let Some((index, other)) = same_node(&remotes) {
        let reason = on_the_node_of(&volumes[other]);
        return Err(Failure::refused("assemble", &volumes[index], reason, MOVE));
    }
    let assembly = decide(&candidates, options);
    Ok(JudgedArray { assembly, missing, others: foreign })
}

/// Returns the volumes of arrays with other names: index and verdict.
pub(super) fn others(
    name: &str,
    candidates: &[Candidate],
) -> Result<Vec<(usize, Verdict)>, Failure> {
    let superblocks = || candidates.iter().map(|candidate| candidate.superblock.as_ref().ok());
    if !superblocks().flatten().any(|superblock| is_called(superblock, name)) {
        let mut titles: Vec<String> = superblocks().flatten().map(title).collect();
        titles.sort();
        titles.dedup();
        // What has no name of its own goes by any.
        let nameless = superblocks().flatten().all(|superblock| superblock.name().is_empty());
        return match titles.len() {
            0 => Ok(Vec::new()),
            1 if nameless => Ok(Vec::new()),
            _ => Err(Unclear::Other(titles).refusal("assemble", name)),
        };
    }
    let called = superblocks().flatten().filter(|superblock| is_called(superblock, name));
    let mut arrays: Vec<String> = called.map(title).collect();
    arrays.sort();
    arrays.dedup();
    if arrays.len() > 1 {
        return Err(Unclear::Several(arrays).refusal("assemble", name));
    }
    let other = |(index, superblock): (usize, Option<&Superblock>)| {
        let other = superblock.filter(|superblock| !is_called(superblock, name))?;
        Some((index, Verdict::Foreign { uuid: other.uuid_text(), name: other.name() }))
    };
    Ok(superblocks().enumerate().filter_map(other).collect())
}

/// Returns messages about members that are present but not attached.
pub(super) fn not_taken(plan: &Startable, verdicts: &[(String, Verdict)]) -> Vec<String> {
    let taken = |name: &String| {
        let mut members = plan.members.iter().flatten();
        members.find(|m| member_name(&m.address, &m.volume) == *name)
    };
    let out = verdicts.iter().filter(|(_, verdict)| !verdict.attached());
    let line = |(member, verdict): &(String, Verdict)| {
        let fate = match taken(member) {
            Some(member) if member.was_made_faulty() => MADE_FAULTY,
            Some(_) => "is given what it missed",
            None => "is left out",
        };
        format!("{member} {fate}: {verdict}")
    };
    // Whether it starts without is for the nodes to say.
    let missing = (plan.degraded() > 0).then(|| missing(plan));
    out.map(line).chain(missing).collect()
}

pub(super) fn missing(plan: &Startable) -> String {
    match plan.degraded() {
        1 => "a member is missing".to_owned(),
        count => format!("{count} members are missing"),
    }
}
