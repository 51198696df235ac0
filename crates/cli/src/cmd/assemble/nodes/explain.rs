//! `braid assemble --explain` over nodes: predicts the answer to a start, without requesting any
//! grant.

use std::collections::BTreeSet;
use std::time::Duration;

use braid_array::Refusal;
use braid_array::assemble::{self as local, Verdict};
use braid_cluster::assemble::{Candidate, Options, Start, Startable, decide};
use braid_cluster::client::{Voter, foretell, witnesses_of};
use braid_cluster::ids::Epoch;
use braid_host::fabric::Network;
use braid_host::remote::{Remote, RemoteError};

use super::config::{HowOverNodes, config_of};
use super::judge::{ask_all, in_use, missing, on_the_node_of, others, probe};
use crate::args::{AssembleArgs, NodeArg, WriteSchedule};
use crate::cmd::assemble::{Called, explain};
use crate::cmd::nodes::{network, options as network_options};
use crate::failure::Failure;
use crate::invocation::next_step;
use crate::output::explained::{Explained, Explanation, Judged as Verdicted, Prospect};

/// An examined volume, with the vote of its node.
struct Looked {
    candidate: Candidate,
    voter: Voter,
    used: bool,
}

/// On one connection; a volume without a superblock belongs to no array.
fn look(node: &NodeArg, network: Network, timeout: Duration) -> Result<Looked, RemoteError> {
    let mut remote = Remote::connect_within(&node.address, network, timeout)?;
    let candidate = probe(&mut remote, node)?;
    let voter = match &candidate.superblock {
        Ok(superblock) => remote.vote(superblock.set_uuid)?,
        Err(_) => {
            let node = remote.node().unwrap_or_default();
            Voter { granted: Epoch::BEFORE_ANY, view: None, incarnation: 0, node }
        }
    };
    Ok(Looked { candidate, voter, used: remote.used() })
}

/// Explains an array, or both where data move from one to the other: the second one has all nodes.
pub(super) fn explain_nodes(
    called: &Called,
    arrays: &[Vec<NodeArg>],
    options: Options,
    args: &AssembleArgs,
) -> Result<(), Failure> {
    let explained = arrays.iter().map(|volumes| explained(called, volumes, options, args));
    let mut arrays = explained.collect::<Result<Vec<_>, _>>()?;
    if let [old, _] = &mut arrays[..] {
        old.next = None;
    }
    explain::answer(&Explained { arrays, ..Explained::default() }, args.json)
}

fn explained(
    called: &Called,
    volumes: &[NodeArg],
    options: Options,
    args: &AssembleArgs,
) -> Result<Explanation, Failure> {
    let network = network("assemble", &args.network)?;
    let timeout = Duration::from_secs(args.node_timeout);
    let mut looked: Vec<Looked> = Vec::new();
    let mut out: Vec<Verdicted> = Vec::new();
    for (node, found) in volumes.iter().zip(ask_all(volumes, |node| look(node, network, timeout))) {
        let same = |found: &Looked| looked.iter().find(|one| one.voter.node == found.voter.node);
        let found = found.map_err(|error| error.why.reason).and_then(|found| match same(&found) {
            Some(other) => Err(on_the_node_of(other.candidate.name())),
            None => Ok(found),
        });
        match found {
            Ok(found) => looked.push(found),
            Err(reason) => out.push((node.to_string(), Verdict::Unreadable { reason })),
        }
    }
    let candidates: Vec<Candidate> = looked.iter().map(|one| one.candidate.clone()).collect();
    if let Some(name) = called.wanted() {
        for (index, verdict) in others(name, &candidates)?.into_iter().rev() {
            out.insert(0, (looked.remove(index).candidate.name(), verdict));
        }
    }
    let candidates: Vec<Candidate> = looked.iter().map(|one| one.candidate.clone()).collect();
    let assembly = decide(&candidates, options);
    let mut verdicts = assembly.verdicts.clone();
    verdicts.extend(out);
    let attached = verdicts.iter().filter(|(_, verdict)| verdict.attached());
    let attached: Vec<&str> = attached.map(|(member, _)| member.as_str()).collect();
    let command = |force| {
        let options = local::Options { force, read_only: options.read_only, run: false };
        let next = next_step(&called.invocation(options, attached.clone()).into());
        format!("{next}{}", network_options(&args.network))
    };
    let starts = |force| match &assembly.start {
        Start::Refused(why) => Err(why.clone()),
        Start::Ready(_) if looked.iter().any(|one| one.used) => Err(in_use()),
        Start::Ready(plan) => foretell_start(plan, &looked, args, force).map(|()| plan),
    };
    let (prospect, next) = match starts(options.force) {
        Ok(plan) => {
            (Prospect::Ready { condition: condition(plan), replay: None }, command(options.force))
        }
        Err(Refusal { reason, next }) => {
            let condition = next.condition;
            let next = next_step(&called.named(next));
            let by_force = matches!(assembly.start, Start::Ready(_)) && starts(true).is_ok();
            let next = if by_force { format!("{next}: {}", command(true)) } else { next };
            (Prospect::Refused { reason, condition }, next)
        }
    };
    let superblock = assembly.newest.map(|newest| *newest);
    let within = Vec::new();
    Ok(Explanation { superblock, verdicts, within, prospect, next: Some(next), later: None })
}

/// Predicts whether an array with these voters present would start. Asks its witnesses.
fn foretell_start(
    plan: &Startable,
    looked: &[Looked],
    args: &AssembleArgs,
    force: bool,
) -> Result<(), Refusal> {
    let network = network("assemble", &args.network).map_err(Failure::into_refusal)?;
    let timeout = Duration::from_secs(args.node_timeout);
    let how = HowOverNodes { schedule: WriteSchedule::Mix, timeout, network };
    let config = config_of("", plan.clone(), &how, force);
    let config = config.map_err(Failure::into_refusal)?;
    let array = config.members.iter().flatten().next().map(|member| member.superblock.set_uuid);
    let members: Vec<(String, Voter)> =
        looked.iter().map(|one| (one.candidate.address.clone(), one.voter.clone())).collect();
    let voters: Vec<Voter> = members.iter().map(|(_, voter)| voter.clone()).collect();
    let named = witnesses_of(&voters).iter().map(|witness| witness.address.clone());
    let addresses: BTreeSet<String> = named.chain(args.witness.iter().cloned()).collect();
    let ask = |address: &String| {
        let mut remote = Remote::connect_within(address, network, timeout).ok()?;
        remote.vote(array?).ok()
    };
    // One that does not answer is one that does not vote.
    let witnesses: Vec<Voter> = addresses.iter().filter_map(ask).collect();
    foretell(config, &members, &witnesses)
}

fn condition(plan: &Startable) -> String {
    let mut parts = Vec::new();
    match plan.degraded() {
        0 => {}
        _ => parts.push(format!("degraded, {}", missing(plan))),
    }
    match plan.behind() {
        0 => {}
        1 => parts.push("a member is given what it missed".to_owned()),
        count => parts.push(format!("{count} members are given what they missed")),
    }
    match plan.made_faulty() {
        0 => {}
        1 => parts.push("a member stays out that a command made faulty".to_owned()),
        count => parts.push(format!("{count} members stay out that a command made faulty")),
    }
    if plan.dirty {
        let resync = match (plan.read_only, plan.by_bitmap) {
            (true, _) => "",
            (false, true) => ", resync of what the bitmap marks",
            (false, false) => ", resync of everything",
        };
        parts.push(format!("not stopped cleanly{resync}"));
    }
    if parts.is_empty() {
        parts.push("clean and complete".to_owned());
    }
    parts.join("; ")
}
