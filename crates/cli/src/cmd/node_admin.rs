//! `braid node status`, `delete`, `forget` and `stop`: looking after storage nodes.

use std::time::{Duration, Instant};

use braid_array::format::{Superblock, SuperblockError, Version};
use braid_array::{Refusal, SECTOR_BYTES};
use braid_cluster::ids::Epoch;
use braid_cluster::wire::SessionInfo;
use braid_host::fabric::Network;
use braid_host::key::text_of_uuid;
use braid_host::remote::{self, NodeSurvey, Remote, RemoteError, RemoteErrorKind};
use serde_json::{Value, json};

use super::families::title;
use super::found::is_called;
use super::key;
use super::nodes::{failed, network, options};
use crate::args::{ForgetArgs, NodeStopArgs, NodesArgs, VolumeArgs};
use crate::failure::Failure;
use crate::invocation::shell_word;
use crate::output;
use crate::output::json::SCHEMA;
use crate::output::shape::short_name;

/// A node that says nothing for so long is called silent.
const PATIENCE: Duration = Duration::from_secs(5);

/// A node with its answers, or the error.
struct SeenNode {
    address: String,
    found: Result<NodeAnswers, RemoteError>,
}

/// Answers of a node.
struct NodeAnswers {
    survey: NodeSurvey,
    /// Its clients, in the order in which they came.
    sessions: Vec<SessionInfo>,
    /// Content of each of its volumes.
    contents: Vec<Content>,
    /// Arrays of which it keeps a vote and no member, and the epochs granted.
    votes: Vec<([u8; 16], Epoch)>,
}

/// Values of [`session_has`].
pub(super) const SESSION_HAS: [&str; 5] = ["pipeline", "grant", "volume", "nothing", "leftovers"];

/// Returns the resources of a client on a node: a pipeline of an array granted to the client, the
/// grant alone, an open volume, or nothing. For a client that is gone, returns `leftovers`: the
/// next client of the array resolves them.
pub(super) const fn session_has(session: &SessionInfo) -> &'static str {
    match session {
        SessionInfo { connected: false, .. } => "leftovers",
        SessionInfo { ring_bytes: 1.., .. } => "pipeline",
        SessionInfo { grant: Some(_), .. } => "grant",
        SessionInfo { volume: true, .. } => "volume",
        _ => "nothing",
    }
}

/// Content of a volume.
enum Content {
    /// A member of an array.
    Member {
        uuid: [u8; 16],
        name: String,
        /// Epoch of the last client that served the array.
        epoch: Epoch,
    },
    /// Nothing where its superblock goes: `create` writes the superblock last, so it may have been
    /// interrupted.
    Nothing,
    /// Other content than a superblock, which may be needed.
    Foreign,
    /// Unreadable.
    Unknown,
}

pub(super) fn status(args: &NodesArgs) -> Result<(), Failure> {
    let network = network("node status", &args.network)?;
    // All at the same time: one that is silent holds up no other.
    let all: Vec<SeenNode> = std::thread::scope(|scope| {
        let ask = |address| scope.spawn(move || look(address, network));
        let asked: Vec<_> = args.addresses.iter().map(String::as_str).map(ask).collect();
        asked.into_iter().filter_map(|asked| asked.join().ok()).collect()
    });
    if args.json {
        let nodes: Vec<Value> = all.iter().map(as_json).collect();
        output::print_json(&json!({ "schema": SCHEMA, "nodes": nodes }))?;
    } else {
        let options = options(&args.network);
        output::answer(&all.iter().map(|seen| text(seen, &options)).collect::<String>())?;
    }
    if all.iter().all(|seen| seen.found.is_ok()) { Ok(()) } else { Err(Failure::Silent(1)) }
}

pub(super) fn delete(args: &VolumeArgs) -> Result<(), Failure> {
    let network = network("node delete", &args.network)?;
    let object = format!("node://{}/{}", args.address, args.volume);
    let mut remote = connect("node delete", &args.address, network)?;
    let error = |error: RemoteError| failed("node delete", &object, &error);
    let held = held(&mut remote, &args.volume).map_err(error)?;
    check_meant(args, &object, held.as_ref())?;
    let array = held.and_then(Result::ok).map(|superblock| superblock.set_uuid);
    if let Some(array) = remove(&mut remote, array).map_err(error)? {
        output::warning(&format!(
            "{object} is removed; what the node has voted of its array stays, as a client may \
             count on it: once the array is gone, or has replaced this node and has had all of \
             its nodes since, {}",
            forgetting(&args.address, array)
        ));
    }
    Ok(())
}

/// The superblock of a volume, which is opened; `None` where there is no room for one.
fn held(
    remote: &mut Remote,
    volume: &str,
) -> Result<Option<Result<Superblock, SuperblockError>>, RemoteError> {
    let bytes = remote.open_volume(volume, true)?;
    match Version::V1_2.location(bytes / SECTOR_BYTES) {
        Some(_) => remote::superblock(remote).map(Some),
        None => Ok(None),
    }
}

/// Refuses to remove a member of an array that is not named.
fn check_meant(
    args: &VolumeArgs,
    object: &str,
    held: Option<&Result<Superblock, SuperblockError>>,
) -> Result<(), Failure> {
    let refused =
        |reason: String, next: String| Err(Failure::refused("node delete", object, reason, next));
    let forced = "or say --force, to remove it whatever it holds";
    match (held, &args.array) {
        _ if args.force => Ok(()),
        (Some(Ok(superblock)), None) => refused(
            format!("is a member of the array {}, which loses what it holds", title(superblock)),
            "see whether another array or volume was meant; if not, say which array loses a \
             member: --array NAME"
                .to_owned(),
        ),
        (Some(Ok(superblock)), Some(name)) if !is_called(superblock, name) => refused(
            format!("is a member of the array {}, not of {name}", title(superblock)),
            "see braid node status for what lies where".to_owned(),
        ),
        (Some(Err(SuperblockError::NoMagic)) | None, Some(name)) => refused(
            format!("has no superblock, so it is no member of {name}"),
            format!("see braid node status for what lies where, {forced}"),
        ),
        (Some(Err(SuperblockError::NoMagic)) | None, None) | (Some(Ok(_)), Some(_)) => Ok(()),
        (Some(Err(error)), _) => refused(
            format!("nobody can tell of which array it is a member: {error}"),
            format!("repair it, {forced}"),
        ),
    }
}

/// Removes a volume of this array. Returns the array if the node still keeps a vote of it.
fn remove(remote: &mut Remote, array: Option<[u8; 16]>) -> Result<Option<[u8; 16]>, RemoteError> {
    remote.remove_volume()?;
    let Some(array) = array else { return Ok(None) };
    Ok(remote.vote(array).is_ok_and(|vote| vote.granted > Epoch::BEFORE_ANY).then_some(array))
}

pub(super) fn forget(args: &ForgetArgs) -> Result<(), Failure> {
    let array = key::uuid("node forget", &args.array)?;
    let network = network("node forget", &args.network)?;
    let mut remote = connect("node forget", &args.address, network)?;
    remote.forget(array).map_err(|error| failed("node forget", &args.address, &error))
}

pub(super) fn stop(args: &NodeStopArgs) -> Result<(), Failure> {
    let network = network("node stop", &args.network)?;
    let mut remote = connect("node stop", &args.address, network)?;
    remote.shut_down().map_err(|error| failed("node stop", &args.address, &error))
}

fn connect(operation: &str, address: &str, network: Network) -> Result<Remote, Failure> {
    let remote = Remote::connect_within(address, network, PATIENCE);
    remote.map_err(|error| failed(operation, address, &error))
}

/// All that is asked of a node is to be answered by then.
fn look(address: &str, network: Network) -> SeenNode {
    let until = Instant::now() + PATIENCE;
    let found = Remote::connect_within(address, network, PATIENCE).and_then(|mut remote| {
        remote.wait_until(until);
        let survey = remote.survey()?;
        let sessions = remote.sessions()?;
        let names = survey.volumes.iter().map(|volume| volume.name.as_str());
        let content = |name| content(address, name, network, until).unwrap_or(Content::Unknown);
        let contents: Vec<Content> = names.map(content).collect();
        let votes = votes(&mut remote, &survey.votes, &contents);
        Ok(NodeAnswers { survey, sessions, contents, votes })
    });
    SeenNode { address: address.to_owned(), found }
}

/// Returns the votes of arrays without a member here. An unreadable volume could hold a member, so
/// the list is then empty.
fn votes(remote: &mut Remote, all: &[[u8; 16]], contents: &[Content]) -> Vec<([u8; 16], Epoch)> {
    if contents.iter().any(|content| matches!(content, Content::Unknown)) {
        return Vec::new();
    }
    let has_member = |array: &[u8; 16]| {
        contents.iter().any(|on| matches!(on, Content::Member { uuid, .. } if uuid == array))
    };
    let alone = all.iter().copied().filter(|array| !has_member(array));
    let vote = |array| Some((array, remote.vote(array).ok()?.granted));
    alone.map_while(vote).collect()
}

/// On a connection of its own: one has no more than one volume open.
fn content(
    address: &str,
    volume: &str,
    network: Network,
    until: Instant,
) -> Result<Content, RemoteError> {
    let left = until.saturating_duration_since(Instant::now());
    let mut remote = Remote::connect_within(address, network, left)?;
    remote.wait_until(until);
    match remote::probe(&mut remote, address, volume, false)?.superblock {
        Ok(superblock) => {
            let uuid = superblock.set_uuid;
            let name = short_name(&superblock.name()).to_owned();
            let epoch = remote.vote(uuid)?.granted;
            Ok(Content::Member { uuid, name, epoch })
        }
        Err(SuperblockError::NoMagic) if remote::is_blank(&mut remote)? => Ok(Content::Nothing),
        Err(SuperblockError::NoMagic) => Ok(Content::Foreign),
        Err(_) => Ok(Content::Unknown),
    }
}

/// `1.5G`: for people.
fn size(bytes: u64) -> String {
    let units = [(40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')];
    match units.into_iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) => format!("{:.1}{unit}", bytes as f64 / (1u64 << shift) as f64),
        None => bytes.to_string(),
    }
}

/// Returns the command that removes a volume, with the same connection options.
pub(super) fn removal(address: &str, volume: &str, options: &str) -> String {
    format!("braid node delete{options} {} {}", shell_word(address), shell_word(volume))
}

/// Returns the command that makes a node forget an array.
fn forgetting(address: &str, array: [u8; 16]) -> String {
    format!("braid node forget {} {}", shell_word(address), text_of_uuid(array))
}

fn text(seen: &SeenNode, options: &str) -> String {
    let NodeAnswers { survey, sessions, contents, votes } = match &seen.found {
        Ok(found) => found,
        Err(RemoteError { why: Refusal { reason, next }, .. }) => {
            return format!("{}: {reason}; {}\n", seen.address, next.advice);
        }
    };
    let mut text = head(&seen.address, survey);
    for (volume, content) in survey.volumes.iter().zip(contents) {
        let used = if volume.written { ", in use" } else { "" };
        let of = match content {
            Content::Member { name, epoch, .. } => format!("member of {name}, epoch {epoch}"),
            Content::Nothing if volume.written => "no superblock yet".to_owned(),
            Content::Nothing => format!(
                "no superblock, maybe left over from a create that was interrupted; {}",
                removal(&seen.address, &volume.name, options)
            ),
            Content::Foreign => "no volume of braid's: it holds something else".to_owned(),
            Content::Unknown => "what lies on it cannot be read".to_owned(),
        };
        text += &format!("  {}: {}{used}, {of}\n", volume.name, size(volume.bytes));
    }
    for session in sessions {
        let Some((array, epoch)) = session.grant else { continue };
        let uuid = text_of_uuid(array);
        let has = match session_has(session) {
            "pipeline" => format!("ring memory {}", size(session.ring_bytes)),
            "leftovers" => "gone, and what it left is not resolved".to_owned(),
            _ => "without a pipeline".to_owned(),
        };
        let age = Duration::from_secs(session.age_ms / 1000);
        text += &format!("  client of array {uuid}, epoch {epoch}, for {age:?}: {has}\n");
    }
    for &(array, epoch) in votes {
        let uuid = text_of_uuid(array);
        let command = forgetting(&seen.address, array);
        let once = "once that is gone, or has replaced this node";
        text += &format!(
            "  votes for array {uuid}, epoch {epoch}, without a member of it; {once}: {command}\n"
        );
    }
    text
}

/// Returns the line about the node as a whole.
fn head(address: &str, survey: &NodeSurvey) -> String {
    let NodeSurvey {
        version, total_bytes, free_bytes, ring_bytes, ring_used_bytes, clients, ..
    } = survey;
    if survey.witness {
        return format!("{address}: version {version}, a witness: it keeps no volumes\n");
    }
    format!(
        "{address}: version {version}, {} of {} free, ring memory {} of {} in use, \
         clients {clients}\n",
        size(*free_bytes),
        size(*total_bytes),
        size(*ring_used_bytes),
        size(*ring_bytes),
    )
}

fn as_json(seen: &SeenNode) -> Value {
    let NodeAnswers { survey, sessions, contents, votes } = match &seen.found {
        Ok(found) => found,
        Err(error) => {
            let state =
                if error.kind == RemoteErrorKind::Unreachable { "silent" } else { "refused" };
            let why = error.why.reason.clone();
            return json!({ "address": seen.address, "state": state, "reason": why });
        }
    };
    let volumes = survey.volumes.iter().zip(contents).map(|(volume, content)| {
        let (array, epoch) = match content {
            Content::Member { name, epoch, .. } => (Some(name), Some(epoch)),
            Content::Nothing | Content::Foreign | Content::Unknown => (None, None),
        };
        let client = volume.written.then_some("in use");
        json!({
            "name": volume.name,
            "array": array,
            "bytes": volume.bytes,
            "client": client,
            "granted_epoch": epoch.map(|epoch| epoch.0),
            "leftover": matches!(content, Content::Nothing) && !volume.written,
        })
    });
    let sessions = sessions.iter().map(|session| {
        json!({
            "has": session_has(session),
            "array_uuid": session.grant.map(|(array, _)| text_of_uuid(array)),
            "granted_epoch": session.grant.map(|(_, epoch)| epoch.0),
            "age_s": session.age_ms / 1000,
            "ring_bytes": session.ring_bytes,
        })
    });
    let votes = votes.iter().map(|&(array, epoch)| {
        let forget = forgetting(&seen.address, array);
        json!({ "array_uuid": text_of_uuid(array), "granted_epoch": epoch.0, "forget": forget })
    });
    json!({
        "address": seen.address,
        "state": "ready",
        "version": survey.version,
        "space_bytes": survey.total_bytes,
        "free_bytes": survey.free_bytes,
        "promised_bytes": survey.promised_bytes,
        "ring_bytes": survey.ring_bytes,
        "ring_used_bytes": survey.ring_used_bytes,
        "clients": survey.clients,
        "witness": survey.witness,
        "sessions": sessions.collect::<Vec<_>>(),
        "volumes": volumes.collect::<Vec<_>>(),
        "votes_without_member": votes.collect::<Vec<_>>(),
    })
}
