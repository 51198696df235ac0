//! `braid assemble` with members on nodes.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::Path;
use std::time::{Duration, Instant};

use braid_array::Refusal;
use braid_array::assemble::{self as local, Verdict};
use braid_array::format::Superblock;
use braid_cluster::VolumeAddress;
use braid_cluster::assemble::{
    Assembly, Candidate, Options, Start, Startable, decide, member_name,
};
use braid_cluster::client::{NODE_TIMEOUT_MS, SPARE_PATIENCE_MS, Voter, foretell, witnesses_of};
use braid_cluster::pipeline::Params;
use braid_cluster::view::View;
use braid_cluster::{ClientConfig, ClientMember, Planner};
use braid_host::daemon::Daemon;
use braid_host::fabric::Network;
use braid_host::remote::{self, Remote, RemoteError, RemoteErrorKind};
use braid_host::serve::{Again, Assembled, ExportSpec, Judge};
use uuid::Uuid;

use super::{Called, explain};
use crate::args::{AssembleArgs, NodeArg, WriteSchedule};
use crate::cmd::families::{Unclear, title};
use crate::cmd::found::is_called;
use crate::cmd::launch::{self, launch};
use crate::cmd::nodes::{
    Missing, STORE, check_witnesses, failed, network, options as network_options, same_node,
};
use crate::failure::Failure;
use crate::invocation::next_step;
use crate::output;
use crate::output::explained::{Explained, Explanation, Judged as Verdicted, Prospect};

/// How long a volume that is in use may take to become free, for all together.
const PATIENCE: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_millis(100);
const MOVE: &str = "move it to another node";

pub(super) fn run(
    run_dir: &Path,
    args: &AssembleArgs,
    called: &Called,
    nodes: &[NodeArg],
    exports: Vec<ExportSpec>,
    daemon: Option<Daemon>,
) -> Result<(), Failure> {
    let name = called.wanted();
    let volumes = volumes("assemble", name, nodes)?;
    check_witnesses("assemble", &args.witness, &volumes)?;
    let network = network("assemble", &args.network)?;
    let options = Options { force: args.force, read_only: args.readonly, unclean: true };
    let timeout = Duration::from_secs(args.node_timeout);
    if args.explain {
        return explain_nodes(called, &volumes, options, args);
    }
    let object = called.name.clone().unwrap_or_else(|| volumes[0].to_string());
    launch("assemble", &object, args.foreground, daemon, |daemon| {
        let takeover = (args.take_over, timeout);
        let judged = judge(&volumes, name, options, network, takeover)?;
        let plan = judged.start().cloned().map_err(|(node, Refusal { reason, next })| {
            let object = node.map_or_else(|| object.clone(), NodeArg::to_string);
            Failure::refused("assemble", object, reason, called.named(next))
        })?;
        let name = called.run_name(judged.assembly.newest.as_deref(), &object)?;
        let not_in: Vec<String> = judged
            .missing
            .iter()
            .map(Missing::to_string)
            .chain(not_taken(&plan, &judged.assembly.verdicts))
            .collect();
        not_in.iter().for_each(|line| output::warning(&format!("assemble {name}: {line}")));
        let how = How { schedule: args.schedule.unwrap_or(WriteSchedule::Mix), timeout, network };
        let config = config_of(&name, plan, &how, args.force)?;
        let config = judged.without(config);
        let config = ClientConfig { witnesses: args.witness.clone(), ..config };
        let fail_timeout = Duration::from_secs(args.fail_timeout);
        let again = Some(Again { judge: judge_again(name.clone(), &config, how), fail_timeout });
        let array = Assembled::Cluster { config, network, again, missing: not_in };
        launch::serve("assemble", run_dir, name, array, exports, daemon)
    })
}

/// An array of which so many members are missing, for the process's own use.
pub(in crate::cmd) fn open_nodes(
    members: &[NodeArg],
    missing: u16,
    schedule: WriteSchedule,
    network: Network,
) -> Result<Assembled, Failure> {
    let volumes = volumes("assemble", None, members)?;
    let object = volumes[0].to_string();
    let timeout = Duration::from_millis(NODE_TIMEOUT_MS);
    let judged = judge(&volumes, None, Options::default(), network, (false, timeout))?;
    match judged.start() {
        Ok(plan) if plan.degraded() == usize::from(missing) => {
            let how = How { schedule, timeout, network };
            let config = config_of(&object, plan.clone(), &how, missing > 0)?;
            Ok(Assembled::Cluster { config, network, again: None, missing: Vec::new() })
        }
        Ok(plan) => {
            let reason = format!("{} members are missing, not {missing}", plan.degraded());
            Err(Failure::refused("assemble", object, reason, "name all others"))
        }
        Err((node, why)) => {
            let object = node.map_or_else(|| object.clone(), NodeArg::to_string);
            Err(Failure::explained("assemble", object, why))
        }
    }
}

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

fn probe(remote: &mut Remote, node: &NodeArg) -> Result<Candidate, RemoteError> {
    let volume = node.volume.as_deref().unwrap_or_default();
    remote::probe(remote, &node.address, volume, false)
}

/// As `probe`, on a connection of its own. A client that has the volume may be about to go, or its
/// node may not have heard yet that it has: it gets a moment.
fn probe_free(
    node: &NodeArg,
    connect: impl Fn(&NodeArg) -> Result<Remote, RemoteError>,
    until: Instant,
) -> Result<(Remote, Candidate), RemoteError> {
    loop {
        let mut remote = connect(node)?;
        let found = probe(&mut remote, node)?;
        match remote.used() {
            false => return Ok((remote, found)),
            true if Instant::now() < until => std::thread::sleep(RETRY),
            true => {
                return Err(RemoteError { why: in_use(), kind: RemoteErrorKind::Busy });
            }
        }
    }
}

fn in_use() -> Refusal {
    let next = "stop that array first, or take it over with --take-over";
    Refusal::new("is in use by another client", next)
}

fn on_the_node_of(other: impl Display) -> String {
    format!("is on the same node as {other}")
}

/// What was found of an array.
struct Judged {
    assembly: Assembly,
    /// Members of which nothing is known, and why.
    missing: Vec<Missing>,
    /// Volumes that belong to arrays of other names.
    others: Vec<Verdicted>,
}

impl Judged {
    /// How it starts, if it does; why not may be a member that is missing.
    fn start(&self) -> Result<&Startable, (Option<&NodeArg>, Refusal)> {
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

    /// What the client has to know of those that are not in.
    fn without(self, config: ClientConfig) -> ClientConfig {
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

/// Asks all nodes at the same time; in their order, what each had to say.
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

/// What is known of volumes. Those of which it is nothing are taken out of `volumes`.
fn known<T>(
    volumes: &mut Vec<NodeArg>,
    answers: Vec<Result<T, RemoteError>>,
    missing: &mut Vec<Missing>,
) -> Result<Vec<T>, Failure> {
    let mut found = Vec::new();
    for (node, answer) in std::mem::take(volumes).into_iter().zip(answers) {
        match answer {
            Ok(answer) => {
                found.push(answer);
                volumes.push(node);
            }
            Err(error) => {
                let without = Missing::new(&node, error);
                missing.push(without.map_err(|error| failed("assemble", &node, &error))?);
            }
        }
    }
    Ok(found)
}

/// Reads all superblocks of the array of this name, if one is given, and sees that nobody else has
/// any of the volumes, unless they are to be taken over.
fn judge(
    volumes: &[NodeArg],
    name: Option<&str>,
    options: Options,
    network: Network,
    (take_over, timeout): (bool, Duration),
) -> Result<Judged, Failure> {
    let connect = |node: &NodeArg| Remote::connect_within(&node.address, network, timeout);
    let (mut volumes, mut missing) = (volumes.to_vec(), Vec::new());
    // On connections of their own, all at once.
    let look = ask_all(&volumes, |node| probe(&mut connect(node)?, node));
    let mut looked_at = known(&mut volumes, look, &mut missing)?;
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
    let found = known(&mut volumes, found, &mut missing)?;
    let (remotes, candidates): (Vec<Remote>, Vec<Candidate>) = found.into_iter().unzip();
    if let Some((index, other)) = same_node(&remotes) {
        let reason = on_the_node_of(&volumes[other]);
        return Err(Failure::refused("assemble", &volumes[index], reason, MOVE));
    }
    let assembly = decide(&candidates, options);
    Ok(Judged { assembly, missing, others: foreign })
}

/// The volumes that belong to arrays of other names: by index, and whose they are.
fn others(name: &str, candidates: &[Candidate]) -> Result<Vec<(usize, Verdict)>, Failure> {
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

/// What is to be said of members that are there and not in.
fn not_taken(plan: &Startable, verdicts: &[(String, Verdict)]) -> Vec<String> {
    let taken = plan.members.iter().flatten();
    let taken: Vec<String> = taken.map(|m| member_name(&m.address, &m.volume)).collect();
    let out = verdicts.iter().filter(|(_, verdict)| !verdict.attached());
    let line = |(member, verdict): &(String, Verdict)| {
        let fate = match taken.contains(member) {
            true => "is given what it missed",
            false => "is left out",
        };
        format!("{member} {fate}: {verdict}")
    };
    // Whether it starts without is for the nodes to say.
    let missing = Some(missing(plan)).filter(|_| plan.degraded() > 0);
    out.map(line).chain(missing).collect()
}

/// A volume that is looked at, and what the voter there says of its array.
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
            Voter { granted: 0, view: View::default(), incarnation: 0, node }
        }
    };
    Ok(Looked { candidate, voter, used: remote.used() })
}

fn explain_nodes(
    called: &Called,
    volumes: &[NodeArg],
    options: Options,
    args: &AssembleArgs,
) -> Result<(), Failure> {
    let network = network("assemble", &args.network)?;
    let timeout = Duration::from_secs(args.node_timeout);
    let (mut looked, mut out): (Vec<Looked>, Vec<Verdicted>) = (Vec::new(), Vec::new());
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
        Ok(plan) => (Prospect::Ready { condition: condition(plan) }, command(options.force)),
        Err(Refusal { reason, next }) => {
            let next = next_step(&called.named(next));
            let by_force = matches!(assembly.start, Start::Ready(_)) && starts(true).is_ok();
            let next = if by_force { format!("{next}: {}", command(true)) } else { next };
            (Prospect::Refused { reason }, next)
        }
    };
    let superblock = assembly.newest.map(|newest| *newest);
    let (within, next) = (Vec::new(), Some(next));
    let array = Explanation { superblock, verdicts, within, prospect, next };
    explain::answer(&Explained { arrays: vec![array], ..Explained::default() }, args.json)
}

/// Would an array start of which these voters are there, and its witnesses, which are asked here?
fn foretell_start(
    plan: &Startable,
    looked: &[Looked],
    args: &AssembleArgs,
    force: bool,
) -> Result<(), Refusal> {
    let network = network("assemble", &args.network).map_err(Failure::into_refusal)?;
    let timeout = Duration::from_secs(args.node_timeout);
    let how = How { schedule: WriteSchedule::Mix, timeout, network };
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

fn missing(plan: &Startable) -> String {
    match plan.degraded() {
        1 => "a member is missing".to_owned(),
        count => format!("{count} members are missing"),
    }
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

/// How an array over nodes is served.
#[derive(Clone, Copy)]
struct How {
    schedule: WriteSchedule,
    timeout: Duration,
    network: Network,
}

/// Judges the array again, as it was when it was started: see [`Again`].
fn judge_again(name: String, config: &ClientConfig, how: How) -> Judge {
    let of = |members: &[Option<ClientMember>]| {
        members.iter().flatten().next().map(|member| member.superblock.set_uuid)
    };
    let (array, shape) = (of(&config.members), config.params);
    Box::new(move |places| {
        let node = |place: &VolumeAddress| NodeArg {
            address: place.address.clone(),
            volume: Some(place.volume.clone()),
        };
        let volumes: Vec<NodeArg> = places.iter().map(node).collect();
        let options = Options { unclean: true, ..Options::default() };
        let judged = judge(&volumes, None, options, how.network, (false, how.timeout));
        let judged = judged.map_err(Failure::into_refusal)?;
        let plan = judged.start().cloned().map_err(|(_, why)| why)?;
        let config = config_of(&name, plan, &how, false).map_err(Failure::into_refusal)?;
        let config = judged.without(config);
        let same = Params { session: shape.session, epoch: shape.epoch, ..config.params } == shape;
        if of(&config.members) != array || !same {
            return Err(Refusal::new("its nodes hold another array now", "stop it"));
        }
        Ok(config)
    })
}

/// What the client is made of.
fn config_of(
    name: &str,
    plan: Startable,
    &How { schedule, timeout, .. }: &How,
    force: bool,
) -> Result<ClientConfig, Failure> {
    let planner = match schedule {
        WriteSchedule::Mix | WriteSchedule::Encoder => Planner::Encoder { node: 0 },
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
    let config = ClientConfig::new(Params { session, epoch: 1, ..params }, plan.members);
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
