//! `braid up`: starts the arrays and nodes of the file, each in a process of its own.

use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use braid_array::refusal::{Invocation, Next};
use braid_host::control::{Client, ControlError};
use braid_host::daemon::Daemon;
use braid_host::disk;
use braid_host::notify;
use braid_host::remote::Remote;
use serde_json::json;

use super::launch::launch;
use super::{assemble, found, node, nodes};
use crate::args::{
    AssembleArgs, GeometryArgs, KeyFileArgs, MapArgs, MemberArg, NetworkArgs, NodeArgs,
    OverlayArgs, ReshapeArgs, Size, UpArgs, similar,
};
use crate::config::{ArrayEntry, Config, Located, MdadmConf, NodeEntry, uuid_digits};
use crate::failure::{Failure, system_error};
use crate::output;
use crate::output::json::SCHEMA;

const OPERATION: &str = "up";
/// Said of an array or node that has been started before.
const RUNS_ALREADY: &str = "runs already";
/// Interval of looking for missing members.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// A node on this machine or near it answers by then.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// Default ring memory of a node.
const RING: Size = Size(256 << 20);

pub(super) fn run(run_dir: &Path, args: &UpArgs) -> Result<(), Failure> {
    // Before anything else: whoever waits for this process has to learn how it goes.
    let daemon = Daemon::adopt();
    let config = Config::read(OPERATION, &args.file.config)?;
    let names: Vec<&str> = match &args.names[..] {
        [] => config.names(),
        names => names.iter().map(String::as_str).collect(),
    };
    if let [name] = names[..]
        && !args.json
    {
        return one(run_dir, &config, name, args.foreground, daemon);
    }
    if args.foreground {
        let next = "name one, and start another process for each other";
        return Err(Failure::usage(OPERATION, "--foreground", "one process serves one", next));
    }
    let mut worst = 0;
    let mut entries = Vec::new();
    for name in names {
        let mut command = Command::new("/proc/self/exe");
        command.arg("--run-dir").arg(run_dir);
        command.args([OPERATION, name]).arg("--config").arg(&args.file.config);
        command.stdin(Stdio::inherit()).stderr(Stdio::inherit());
        command.stdout(if args.json { Stdio::piped() } else { Stdio::inherit() });
        let ended = command.output().map_err(|error| {
            Failure::refused(OPERATION, name, system_error(&error), "try again")
        })?;
        let code = ended.status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
        worst = worst.max(code);
        let result = if code > 0 {
            "failed"
        } else if String::from_utf8_lossy(&ended.stdout).contains(RUNS_ALREADY) {
            "running"
        } else {
            "started"
        };
        entries.push(json!({ "name": name, "result": result }));
    }
    if args.json {
        output::print_json(&json!({ "schema": SCHEMA, "entries": entries }))?;
    }
    if worst == 0 { Ok(()) } else { Err(Failure::Silent(worst)) }
}

fn one(
    run_dir: &Path,
    config: &Config,
    name: &str,
    foreground: bool,
    daemon: Option<Daemon>,
) -> Result<(), Failure> {
    if let Some(problem) = config.problem(name) {
        return Err(problem.failure(OPERATION, &config.path));
    }
    if let Some(entry) = config.array(name) {
        if runs(run_dir, entry)? {
            return output::answer(&format!("{name}: {RUNS_ALREADY}\n"));
        }
        let serves_here = foreground || daemon.is_some();
        launch(OPERATION, name, foreground, daemon, |daemon| {
            let mut words = words(entry);
            wait(entry, &mut words)?;
            assemble::start(run_dir, &words, daemon)
        })?;
        return if serves_here { Ok(()) } else { output::answer(&format!("{name}: started\n")) };
    }
    let Some(entry) = config.node(name) else { return Err(unknown(OPERATION, config, name)) };
    let words = node_words(entry, foreground);
    if daemon.is_none() && answers(&words)? {
        return output::answer(&format!("{name}: {RUNS_ALREADY}\n"));
    }
    node::run(run_dir, &words)
}

/// Returns the failure for a name that is not in the file.
pub(super) fn unknown(operation: &str, config: &Config, name: &str) -> Failure {
    let meant = similar(name, config.names());
    let meant = meant.map(|meant| format!("did you mean {meant}? ")).unwrap_or_default();
    let reason = format!("{} has no array or node of this name", config.path.display());
    let next = format!("{meant}add it there as [array.NAME], or see braid {operation} --help");
    Failure::refused(operation, name, reason, next)
}

/// Returns whether the array of an entry is running. Another array under its name is an error.
fn runs(run_dir: &Path, entry: &ArrayEntry) -> Result<bool, Failure> {
    let name = &entry.name;
    let status = match Client::connect(run_dir, name).and_then(|mut client| client.status()) {
        Ok(status) => status,
        Err(ControlError::NotRunning | ControlError::Stopped) => return Ok(false),
        Err(error) => return Err(Failure::explained(OPERATION, name, error)),
    };
    let uuid = uuid_digits(&status.array.superblock.uuid_text());
    if entry.uuid.as_ref().is_some_and(|wanted| *wanted != uuid) {
        let reason = "another array runs under this name";
        let stop = Invocation::Stop { array: Some(name.clone()), force: false };
        return Err(Failure::refused(OPERATION, name, reason, Next::by("stop that one", stop)));
    }
    Ok(true)
}

/// The entry as `braid assemble` takes it.
fn words(entry: &ArrayEntry) -> AssembleArgs {
    let uuid = entry.uuid.clone().or_else(|| {
        // Where mdadm knows it by this name, that array is meant.
        let looked_for = entry.members.is_empty();
        let called = || MdadmConf::read().called(&entry.name).map(str::to_owned);
        looked_for.then(called).flatten()
    });
    AssembleArgs {
        names: vec![entry.name.clone()],
        rename: uuid.is_some(),
        scan: false,
        export: entry.exports.iter().map(|export| export.value.to_string()).collect(),
        insecure: entry.insecure,
        readonly: entry.readonly,
        overlay: OverlayArgs::default(),
        maps: MapArgs::default(),
        bare: GeometryArgs::default(),
        reshape: ReshapeArgs::default(),
        part: None,
        run: false,
        force: false,
        explain: false,
        json: false,
        take_over: false,
        witness: entry.witnesses.clone(),
        network: network(entry.fabric.as_ref(), entry.key.as_ref()),
        schedule: entry.schedule,
        node_timeout: entry.node_timeout_s.unwrap_or(AssembleArgs::NODE_TIMEOUT_S),
        fail_timeout: entry.fail_timeout_s.unwrap_or(AssembleArgs::FAIL_TIMEOUT_S),
        foreground: true,
        uuid,
        limits: entry.limits.clone(),
    }
}

fn network(fabric: Option<&String>, key: Option<&PathBuf>) -> NetworkArgs {
    let key = key.map(|key| key.clone().into_os_string());
    NetworkArgs { fabric: fabric.cloned(), key_file: KeyFileArgs { key } }
}

/// Waits until all members are present, and adds those that are. After the timeout, lists the
/// missing members, and lets the array start without them if it may.
fn wait(entry: &ArrayEntry, words: &mut AssembleArgs) -> Result<(), Failure> {
    let deadline = Instant::now() + entry.wait;
    notify::extend(entry.wait);
    let mut seen = None;
    let mut members = Vec::new();
    let mut whole = false;
    loop {
        // Devices that are the same as before are not looked at again.
        let now = (there(entry), partitions());
        if seen.as_ref() != Some(&now) {
            members = found_members(entry, words, &now.0);
            whole = is_whole(entry, words, &members);
            seen = Some(now);
            if !whole {
                notify::status(&format!("waits for members; {} are there", members.len()));
            }
        }
        // The names by which people know the disks would come only after the array has stopped.
        let named = || members.iter().all(|member| disk::is_named(member));
        if (whole && named()) || Instant::now() >= deadline {
            break;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    if members.is_empty() && !entry.members.is_empty() {
        let reason = format!("none of its members is there after {} s", entry.wait.as_secs());
        let next = "attach them, or see braid config check";
        return Err(Failure::refused(OPERATION, &entry.name, reason, next));
    }
    if entry.is_over_nodes() {
        words.names.extend(entry.members.iter().map(|member| member.value.clone()));
    } else if !whole {
        let missing = entry.members.iter().map(|member| &member.value);
        let missing: Vec<&str> =
            missing.filter(|path| !Path::new(path).exists()).map(String::as_str).collect();
        let missing = if missing.is_empty() { "some".to_owned() } else { missing.join(" ") };
        let seconds = entry.wait.as_secs();
        let what = if entry.degraded {
            "it starts without them if it can"
        } else {
            "it must not start without"
        };
        let line = format!("members are missing after {seconds} s: {missing}; {what}");
        output::alert(&format!("{OPERATION} {}: {line}", entry.name));
        words.run = entry.degraded;
    }
    if !entry.is_over_nodes() && (!entry.members.is_empty() || words.uuid.is_some()) {
        words.names.extend(members.iter().map(|path| path.display().to_string()));
    }
    Ok(())
}

/// Returns for each named member whether it is present.
fn there(entry: &ArrayEntry) -> Vec<bool> {
    let is_there = |member: &Located<String>| match member.value.parse() {
        Ok(MemberArg::Node(node)) => {
            let addresses = node.address.to_socket_addrs();
            let connects = |address| TcpStream::connect_timeout(&address, ANSWERS_WITHIN).is_ok();
            addresses.is_ok_and(|mut all| all.any(connects))
        }
        _ => Path::new(&member.value).exists(),
    };
    entry.members.iter().map(is_there).collect()
}

/// Changes when block devices come and go.
fn partitions() -> String {
    std::fs::read_to_string("/proc/partitions").unwrap_or_default()
}

fn found_members(entry: &ArrayEntry, words: &AssembleArgs, there: &[bool]) -> Vec<PathBuf> {
    if entry.members.is_empty() {
        let name = words.uuid.as_deref().unwrap_or(&entry.name);
        return found::by_name("assemble", name, name).unwrap_or_default();
    }
    let members = entry.members.iter().zip(there).filter(|(_, there)| **there);
    members.map(|(member, _)| PathBuf::from(&member.value)).collect()
}

fn is_whole(entry: &ArrayEntry, words: &AssembleArgs, members: &[PathBuf]) -> bool {
    if members.len() < entry.members.len() || members.is_empty() {
        return false;
    }
    entry.is_over_nodes() || assemble::is_whole(&entry.name, words.uuid.as_deref(), members)
}

/// The entry as `braid node` takes it.
pub(super) fn node_words(entry: &NodeEntry, foreground: bool) -> NodeArgs {
    NodeArgs {
        command: None,
        listen: Some(entry.listen.clone()),
        store: entry.store.clone(),
        memory: entry.store.is_none(),
        witness: entry.witness,
        ring: entry.ring.unwrap_or(RING),
        network: network(entry.fabric.as_ref(), entry.key.as_ref()),
        no_key: entry.no_key,
        encrypt: entry.encrypt,
        foreground,
    }
}

/// Returns whether the node already serves.
pub(super) fn answers(words: &NodeArgs) -> Result<bool, Failure> {
    let network = nodes::network(OPERATION, &words.network)?;
    let address = address(words);
    Ok(Remote::connect_within(&address, network, ANSWERS_WITHIN).is_ok())
}

/// Where a node on this machine is to be found.
pub(super) fn address(words: &NodeArgs) -> String {
    let listen = words.listen.clone().unwrap_or_default();
    match listen.rsplit_once(':') {
        Some(("0.0.0.0" | "[::]", port)) => format!("localhost:{port}"),
        _ => listen,
    }
}
