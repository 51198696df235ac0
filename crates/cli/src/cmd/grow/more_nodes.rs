//! More nodes for an array over nodes: an array is made beside it over all nodes, and the process
//! that serves it goes on with both while all data move.

use std::path::Path;

use braid_array::format::{MoveNote, Superblock};
use braid_array::grow::Grow;
use braid_array::refusal::Advised;
use braid_array::status::{ArrayState, MemberState, Status};
use braid_array::{Refusal, SECTOR_BYTES};
use braid_cluster::VolumeAddress;
use braid_cluster::assemble::member_parts;
use braid_cluster::create::{Blueprint, NewArray};
use braid_cluster::grow::{self, NewSize};
use braid_cluster::ids::Epoch;
use braid_cluster::pair::{is_later, is_other_name, later_uuid, other_volume};
use braid_cluster::wire::valid_volume_name;
use braid_host::control::wire::{ControlStatus, Verb};
use braid_host::fabric::Network;
use braid_host::remote::{self, NodeSurvey, Remote, RemoteError};
use braid_host::serve::remove_volume;
use uuid::Uuid;

use super::alone::alone;
use super::{OPERATION, left, wait};
use crate::args::{GrowArgs, NodeArg, parse_node_member};
use crate::cmd::assemble::ask_all;
use crate::cmd::create::volumes::{VolumeToMake, make};
use crate::cmd::create::votes;
use crate::cmd::families::title;
use crate::cmd::key::whole;
use crate::cmd::nodes::{connect, failed, network};
use crate::cmd::{running, upgrade, writes};
use crate::config::Config;
use crate::failure::Failure;
use crate::invocation::shell_word;
use crate::output;
use crate::output::growth::Growth;

/// The array to be made.
struct NewNodes {
    array: NewArray,
    size: NewSize,
    blueprint: Blueprint,
    /// By role.
    places: Vec<VolumeToMake>,
    /// Those of the nodes that are added.
    added: Vec<String>,
    /// Volumes that an interrupted attempt has left there, by UUID.
    leftovers: Vec<(VolumeAddress, [u8; 16])>,
}

pub(super) fn run(run_dir: &Path, args: &GrowArgs) -> Result<(), Failure> {
    let name = &args.name;
    let network = network(OPERATION, &args.network)?;
    network.key.map_or(Ok(()), |key| whole(OPERATION, name, key))?;
    let (lock, before) = alone(run_dir, args)?;
    let new = planned(args, &before.array, network)?;
    let nodes = new.places.len() as u32;
    let mut growth = Growth::to_more_nodes(&before, &new.size, nodes, &new.added);
    growth.dry_run = args.dry_run;
    if !args.json {
        output::answer(&growth.plan())?;
    }
    // Whatever would stand against it is told before anything is made.
    hand_over(run_dir, name, Vec::new(), true)?;
    if !args.dry_run {
        let served = running::status(OPERATION, run_dir, name)?;
        still_owned(name, &served.array, network)?;
        create(&new, &served.array, network)?;
        go_over(run_dir, name, &new, network)?;
        new.added.iter().for_each(|node| remember(run_dir, name, node));
    }
    // Whoever comes now is told that data move.
    drop(lock);
    conclude(run_dir, args, &growth)
}

/// Has what has moved move back.
pub(super) fn undo(run_dir: &Path, args: &GrowArgs, before: &ControlStatus) -> Result<(), Failure> {
    let refused = match MoveNote::of(&before.array.superblock) {
        MoveNote::Target { .. } if before.array.state == ArrayState::ReadOnly => {
            Some(("it is read-only, and nothing moves", "assemble it without --readonly"))
        }
        MoveNote::Target { back: false, .. } => None,
        MoveNote::Target { back: true, .. } => {
            Some(("its data go back already", "wait for the end"))
        }
        MoveNote::Source | MoveNote::Apart => {
            Some(("no data are being moved", "see braid status for what the array does"))
        }
    };
    if let Some((reason, next)) = refused {
        return Err(Failure::refused(OPERATION, &args.name, reason, next));
    }
    let mut growth = Growth::back_to_nodes(before);
    growth.dry_run = args.dry_run;
    if !args.json {
        output::answer(&growth.plan())?;
    }
    if !args.dry_run {
        let verb = Verb::Grow { grow: Grow::Undo, suspend_policy: false };
        running::call(OPERATION, run_dir, &args.name, verb)?;
    }
    conclude(run_dir, args, &growth)
}

fn conclude(run_dir: &Path, args: &GrowArgs, growth: &Growth) -> Result<(), Failure> {
    let name = &args.name;
    if args.dry_run {
        return if args.json { output::print_json(growth) } else { Ok(()) };
    }
    let after =
        if args.wait { wait(run_dir, name)? } else { running::status(OPERATION, run_dir, name)? };
    if args.json { output::print_json(growth) } else { output::answer(&growth.done(&left(&after))) }
}

/// Plans the array, and asks all nodes whether there is room for it.
fn planned(args: &GrowArgs, status: &Status, network: Network) -> Result<NewNodes, Failure> {
    let name = &args.name;
    let refused = |why: Refusal| Failure::explained(OPERATION, name, why.about(name));
    grow::check(status).map_err(refused)?;
    let places = places(args, status)?;
    let count = u32::try_from(places.len()).unwrap_or(u32::MAX);
    if args.raid_devices.is_some_and(|typed| typed != count) || args.add.is_empty() {
        let typed = args.raid_devices.unwrap_or(count);
        let reason = format!("{count} nodes are named with those that it has, and not {typed}");
        let next = "name each further node with --add node://HOST:PORT; an array over nodes does \
                    not get fewer";
        return Err(Failure::usage(OPERATION, name, reason, next));
    }
    let nodes = u16::try_from(count).unwrap_or(u16::MAX);
    let mut array = grow::over_more(status, nodes, writes::now()).map_err(refused)?;
    let nodes_of: Vec<NodeArg> = places.iter().map(|place| place.node.clone()).collect();
    let found = ask_all(&nodes_of, |node| look(node, network));
    let mut sites = Vec::new();
    for (node, site) in nodes_of.iter().zip(found) {
        sites.push(site.map_err(|error| failed(OPERATION, node, &error))?);
    }
    let mut leftovers = Vec::new();
    for (place, site) in places.iter().zip(&mut sites) {
        if let Some(array) = site.leftover(place, &status.superblock)? {
            let NodeArg { address, volume } = place.node.clone();
            leftovers.push((VolumeAddress { address, volume: volume.unwrap_or_default() }, array));
        }
    }
    array.set_uuid = later_uuid(status.superblock.set_uuid, Uuid::new_v4().as_fields().0);
    let rooms: Vec<u64> = sites.iter().map(SeenSite::room).collect();
    let (size, blueprint) = fit(&mut array, &places, &rooms, status).map_err(refused)?;
    let had = status.superblock.raid_disks as usize;
    let added = places[had..].iter().map(|place| place.node.to_string()).collect();
    Ok(NewNodes { array, size, blueprint, places, added, leftovers })
}

/// The volumes of the new array: beside those that there are, in the order of their roles, and on
/// the nodes that are added.
fn places(args: &GrowArgs, status: &Status) -> Result<Vec<VolumeToMake>, Failure> {
    let mut members: Vec<_> =
        status.members.iter().filter(|one| one.state == MemberState::InSync).collect();
    members.sort_by_key(|member| member.role);
    let parts = members.iter().filter_map(|member| member_parts(&member.device));
    let mut places: Vec<(String, String)> =
        parts.map(|(address, volume)| (address.to_owned(), other_volume(volume))).collect();
    let usual = places.first().map(|(_, volume)| volume.clone()).unwrap_or_default();
    for typed in &args.add {
        let typed = typed.to_string_lossy();
        let node = parse_node_member(&typed)
            .map_err(|why| Failure::usage(OPERATION, &typed, why.reason, why.next))?;
        let volume = match node.volume {
            Some(volume) if is_other_name(&usual) != is_other_name(&volume) => {
                other_volume(&volume)
            }
            Some(volume) => volume,
            None => usual.clone(),
        };
        if places.iter().any(|(address, _)| *address == node.address) {
            let reason = "has a member of the array already, or is named twice";
            return Err(Failure::usage(OPERATION, &typed, reason, "use another node"));
        }
        places.push((node.address, volume));
    }
    if let Some((_, volume)) = places.iter().find(|(_, volume)| !valid_volume_name(volume)) {
        let reason = format!("'{volume}' would be the name of a volume, and is too long for one");
        let next = "make a new array with a shorter name and copy the data";
        return Err(Failure::refused(OPERATION, &args.name, reason, next));
    }
    let place = |(address, volume): (String, String)| VolumeToMake {
        node: NodeArg { address, volume: Some(volume.clone()) },
        volume,
    };
    Ok(places.into_iter().map(place).collect())
}

/// A node as it was found.
struct SeenSite {
    survey: NodeSurvey,
    /// Size of a volume that has the name of the new one.
    taken_bytes: Option<u64>,
    /// Its superblock, if it has one that can be read.
    superblock: Option<Superblock>,
    /// Set if it has nothing that anybody could need.
    is_blank: bool,
}

fn look(node: &NodeArg, network: Network) -> Result<SeenSite, RemoteError> {
    let survey = Remote::connect(&node.address, network)?.survey()?;
    let mut site = SeenSite { survey, taken_bytes: None, superblock: None, is_blank: false };
    let mut remote = Remote::connect(&node.address, network)?;
    if remote.has_volume(node.volume.as_deref().unwrap_or_default())? {
        site.taken_bytes = Some(remote.volume_bytes());
        site.superblock = remote::superblock(&mut remote)?.ok();
        site.is_blank = remote::is_blank(&mut remote)? && !remote.used();
    }
    Ok(site)
}

impl SeenSite {
    /// Returns the bytes that a new volume may have.
    fn room(&self) -> u64 {
        let free = self.survey.free_bytes.saturating_sub(self.survey.promised_bytes);
        free + self.taken_bytes.unwrap_or_default()
    }

    /// Returns the UUID of what is to be removed first: a volume that an interrupted command has
    /// left, or an earlier array whose data have all moved.
    fn leftover(
        &self,
        place: &VolumeToMake,
        ours: &Superblock,
    ) -> Result<Option<[u8; 16]>, Failure> {
        let node = &place.node;
        if self.survey.witness {
            let reason = "is a witness, which keeps no volumes";
            return Err(Failure::refused(OPERATION, node, reason, "name another node"));
        }
        let (reason, next) = match &self.superblock {
            _ if self.taken_bytes.is_none() => return Ok(None),
            None if self.is_blank => return Ok(Some([0; 16])),
            Some(found) if is_left(found, ours) => return Ok(Some(found.set_uuid)),
            Some(found) => (
                format!("the node has a volume of this name, a member of {}", title(found)),
                "use another node, or remove it if nothing needs it: braid node delete",
            ),
            None => (
                "the node has a volume of this name that holds something else".to_owned(),
                "use another node, or remove it if nothing needs it: braid node delete",
            ),
        };
        Err(Failure::refused(OPERATION, node, reason, next))
    }
}

/// Returns whether this is of an array before ours or after it, while ours stands alone.
fn is_left(found: &Superblock, ours: &Superblock) -> bool {
    let before = is_later(found.set_uuid, ours.set_uuid);
    let begun = matches!(MoveNote::of(found), MoveNote::Target { front: 0, .. });
    before || begun && is_later(ours.set_uuid, found.set_uuid)
}

/// Makes the array as large as its nodes have room for: at most with as much of each member as
/// before, and not smaller than it was.
fn fit(
    array: &mut NewArray,
    places: &[VolumeToMake],
    rooms: &[u64],
    status: &Status,
) -> Result<(NewSize, Blueprint), Refusal> {
    let nodes = u16::try_from(places.len()).unwrap_or(u16::MAX);
    let uuids: Vec<_> = places.iter().map(|_| Uuid::new_v4().into_bytes()).collect();
    let plan = |array: &NewArray| {
        array.plan(&uuids, &[]).map_err(|error| Refusal::new(error.to_string(), error.next()))
    };
    let blueprint = plan(array)?;
    let least = rooms.iter().zip(places).min_by_key(|(room, _)| **room);
    let room = least.map_or(0, |(room, _)| *room);
    let lacks = blueprint.volume_bytes.saturating_sub(room);
    let whole = grow::size_over(array, nodes)?;
    if lacks == 0 && whole.array_sectors >= status.array_sectors {
        return Ok((whole, blueprint));
    }
    let stripe_bytes = whole.member_sectors * SECTOR_BYTES / whole.stripes.max(1);
    let smaller = array.size_bytes.saturating_sub(lacks.next_multiple_of(stripe_bytes.max(1)));
    let needed_bytes = blueprint.volume_bytes;
    array.size_bytes = smaller;
    let fits = grow::size_over(array, nodes)
        .ok()
        .filter(|size| smaller >= stripe_bytes && size.array_sectors >= status.array_sectors);
    let Some(size) = fits else {
        let node = least.map(|(_, place)| place.node.address.clone()).unwrap_or_default();
        let reason = format!(
            "while data move each node needs room for a second volume, of {needed_bytes} bytes or \
             little less, and {node} has {room}"
        );
        return Err(Refusal::new(reason, "make room in its file system, or add more nodes"));
    };
    Ok((size, plan(array)?))
}

/// Checks that no client of another machine has been granted the array since, before anything is
/// removed or made: what looks like the remains of an interrupted command could be what that client
/// is about to use. One that was granted it later finds what was made, and decides.
fn still_owned(name: &str, status: &Status, network: Network) -> Result<(), Failure> {
    let Some(view) = &status.view else { return Ok(()) };
    let members = status.members.iter().filter_map(|member| member_parts(&member.device));
    let members = members.map(|(address, _)| address.to_owned());
    let witnesses = view.witnesses.iter().map(|witness| witness.address.clone());
    let voters = members.chain(witnesses).map(|address| NodeArg { address, volume: None });
    let voters: Vec<NodeArg> = voters.collect();
    let ask =
        |node: &NodeArg| Remote::connect(&node.address, network)?.vote(status.superblock.set_uuid);
    let votes = ask_all(&voters, ask);
    // One that does not answer is one that the array can do without, or is missed when it is to
    // make a volume.
    let newest = votes.into_iter().flatten().map(|voter| voter.granted).max();
    if newest.is_some_and(|granted| granted > Epoch(view.epoch)) {
        let reason = "another client has taken the array over, and nothing was changed";
        return Err(Failure::refused(OPERATION, name, reason, "type it where that client runs"));
    }
    Ok(())
}

/// Makes the volumes.
fn create(new: &NewNodes, status: &Status, network: Network) -> Result<(), Failure> {
    for (place, array) in &new.leftovers {
        let removed = if *array == [0; 16] {
            remove_blank(place, network)
        } else {
            remove_volume(place, *array, network).map(drop)
        };
        removed.map_err(|error| failed(OPERATION, &place.address, &error))?;
    }
    let members: Vec<NodeArg> = new.places.iter().map(|place| place.node.clone()).collect();
    let mut remotes = Vec::new();
    for node in &members {
        remotes.push(connect(OPERATION, node, network)?);
    }
    let witnesses = status.view.iter().flat_map(|view| &view.witnesses);
    let witnesses: Vec<String> = witnesses.map(|witness| witness.address.clone()).collect();
    let vote = || votes::record(new.array.set_uuid, &members, &witnesses, network);
    make(OPERATION, &new.places, &mut remotes, &new.blueprint, vote)
}

fn remove_blank(place: &VolumeAddress, network: Network) -> Result<(), RemoteError> {
    let mut node = Remote::connect(&place.address, network)?;
    node.open_volume(&place.volume, true)?;
    if remote::is_blank(&mut node)? { node.remove_volume() } else { Ok(()) }
}

/// Has the process that serves the array go on with both arrays.
fn go_over(run_dir: &Path, name: &str, new: &NewNodes, network: Network) -> Result<(), Failure> {
    let handed = hand_over(run_dir, name, new.added.clone(), false);
    let status = running::status(OPERATION, run_dir, name);
    let begun = |status: &ControlStatus| {
        let uuid = status.array.superblock.set_uuid;
        uuid == new.array.set_uuid || MoveNote::of(&status.array.superblock) != MoveNote::Apart
    };
    match (handed, status) {
        (_, Ok(status)) if begun(&status) => Ok(()),
        (handed, Ok(_)) => {
            for place in &new.places {
                let NodeArg { address, volume } = place.node.clone();
                let volume = volume.unwrap_or_default();
                let place = VolumeAddress { address, volume };
                // What stays is removed by the next command of this kind.
                let _ = remove_volume(&place, new.array.set_uuid, network);
            }
            handed?;
            let reason = "the process that serves it did not find the array that was made for it";
            let next = format!("see its log, and try braid upgrade {}", shell_word(name));
            Err(Failure::refused(OPERATION, name, reason, next))
        }
        (Ok(()), Err(why)) => Err(why),
        // Whoever has the array may go on with them at this moment.
        (Err(_), Err(_)) => {
            let reason = "the process that serves it has ended meanwhile, and the volumes that \
                          were made stay";
            let next = "an assembly that names all nodes goes on with them; where another client \
                        has the array without them, its next braid grow removes them";
            Err(Failure::refused(OPERATION, name, reason, next))
        }
    }
}

/// Puts this program in the place of the one that serves the array, and names further members to
/// it; or only asks whether that can be done.
fn hand_over(run_dir: &Path, name: &str, more: Vec<String>, check: bool) -> Result<(), Failure> {
    let unserved = "the array cannot be served with its new nodes, and goes on without";
    upgrade::hand_over(OPERATION, run_dir, name, more, check, unserved)
}

/// Tells that an array of the file of this machine has a node that the file does not name.
fn remember(run_dir: &Path, name: &str, node: &str) {
    let Some(config) = Config::of_machine() else { return };
    let Some(array) = config.array(name) else { return };
    let address = member_parts(node).map_or(node, |(address, _)| address);
    let names_it = |typed: &str| parse_node_member(typed).is_ok_and(|it| it.address == address);
    if run_dir == braid_host::control::run_dir(None)
        && !array.members.iter().any(|member| names_it(&member.value))
    {
        let file = config.path.display();
        output::warning(&format!(
            "{file}:{}: array.{name}.members lacks node://{address}; add it there, or braid up \
             starts the array without it",
            array.line
        ));
    }
}
