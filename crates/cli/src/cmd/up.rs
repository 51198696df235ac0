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

use super::assemble::{self, Outlook, outlook};
use super::entry::{self, array_words, node_words};
use super::launch::launch;
use super::{found, node, nodes};
use crate::args::{AssembleArgs, MemberArg, NodeArgs, ReshapeArgs, UpArgs, similar};
use crate::config::{ArrayEntry, Config, Located, Problem, uuid_digits};
use crate::failure::{Failure, system_error};
use crate::invocation::shell_word;
use crate::output;
use crate::output::json::SCHEMA;

const OPERATION: &str = "up";
/// Said of an array or node that has been started before.
const RUNS_ALREADY: &str = "runs already";
/// Interval of looking for missing members.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// A node on this machine or near it answers by then.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

pub(super) fn run(run_dir: &Path, args: &UpArgs) -> Result<(), Failure> {
    // Before anything else: whoever waits for this process has to learn how it goes.
    let daemon = Daemon::adopt();
    let config = Config::read(OPERATION, &args.file.config)?;
    let names: Vec<&str> = match &args.names[..] {
        [] => config.names(),
        names => names.iter().map(String::as_str).collect(),
    };
    if let Some(mistake) = config.problems.iter().find(|problem| problem.key.is_empty()) {
        return Err(mistake.failure(OPERATION, &config.path));
    }
    if let [name] = args.names.as_slice()
        && !args.json
    {
        return one(run_dir, &config, name, args, daemon);
    }
    if args.backup_file.is_some() {
        let next = "name that one alone";
        return Err(Failure::usage(OPERATION, "--backup-file", "it is of one array", next));
    }
    if args.foreground {
        let next = "name one, and start another process for each other";
        return Err(Failure::usage(OPERATION, "--foreground", "one process serves one", next));
    }
    let mut worst = 0;
    let mut entries = Vec::new();
    if args.names.is_empty() {
        let of_none = |problem: &&Problem| !names.iter().any(|name| problem.concerns(name));
        for problem in config.problems.iter().filter(of_none) {
            output::failure(&problem.failure(OPERATION, &config.path));
            worst = Failure::REFUSED;
        }
    }
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
    args: &UpArgs,
    daemon: Option<Daemon>,
) -> Result<(), Failure> {
    let foreground = args.foreground;
    if let Some(problem) = config.problem(name) {
        return Err(problem.failure(OPERATION, &config.path));
    }
    if let Some(entry) = config.array(name) {
        if runs(run_dir, entry)? {
            return already(name, foreground);
        }
        if daemon.is_none() {
            config.warnings(name).for_each(|odd| warn(config, odd));
        }
        let serves_here = foreground || daemon.is_some();
        launch(OPERATION, name, foreground, daemon, |daemon| {
            start(run_dir, config, entry, args.backup_file.clone(), daemon)
        })?;
        return if serves_here { Ok(()) } else { output::answer(&format!("{name}: started\n")) };
    }
    let Some(entry) = config.node(name) else { return Err(unknown(OPERATION, config, name)) };
    if let Some(problem) = entry::node_problem(entry) {
        return Err(problem.failure(OPERATION, &config.path));
    }
    let words = node_words(entry, foreground);
    if daemon.is_none() && answers(&words)? {
        return already(name, foreground);
    }
    node::run(run_dir, &words)
}

/// Says that an array or node has been started before. For a service that is a failure: it would
/// wait for one of its own, and be started again and again.
fn already(name: &str, foreground: bool) -> Result<(), Failure> {
    if !foreground {
        return output::answer(&format!("{name}: {RUNS_ALREADY}\n"));
    }
    let next = format!("to start it as a service, stop it first: braid down {}", shell_word(name));
    Err(Failure::refused(OPERATION, name, RUNS_ALREADY, next))
}

/// Starts an array once its members are there, if nothing is wrong with its entry.
fn start(
    run_dir: &Path,
    config: &Config,
    entry: &ArrayEntry,
    backup_file: Option<PathBuf>,
    daemon: Option<Daemon>,
) -> Result<(), Failure> {
    let mut words = array_words(entry);
    words.reshape = ReshapeArgs::of_file(backup_file);
    let present = wait(entry, &words);
    let outlook = present.outlook.as_ref();
    for problem in entry::array_problems(run_dir, entry, outlook, present.absent) {
        if problem.stops {
            return Err(problem.failure(OPERATION, &config.path));
        }
        warn(config, &problem);
    }
    add_members(entry, present, &mut words)?;
    assemble::start(run_dir, &words, !entry.degraded, daemon)
}

fn warn(config: &Config, odd: &Problem) {
    output::failure(&odd.failure(OPERATION, &config.path));
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

/// The members of an array that were there when the wait for them ended.
struct Present {
    paths: Vec<PathBuf>,
    /// Number of named members that are not there.
    absent: usize,
    /// Of an array on this machine.
    outlook: Option<Outlook>,
    /// Set if nothing is missing.
    whole: bool,
}

impl Present {
    fn look(entry: &ArrayEntry, words: &AssembleArgs, there: &[bool]) -> Self {
        let paths = found_members(entry, words, there);
        let absent = there.iter().filter(|there| !**there).count();
        let looks = !entry.is_over_nodes() && !paths.is_empty();
        let uuid = words.uuid.as_deref();
        let outlook = looks.then(|| outlook(&entry.name, uuid, &paths, entry.readonly));
        let all = |outlook: &Outlook| outlook.whole || outlook.is_halfway;
        let starts = outlook.as_ref().is_none_or(all);
        let whole = absent == 0 && !paths.is_empty() && starts;
        Self { paths, absent, outlook, whole }
    }

    /// Returns the roles that none of the devices has, in words.
    fn unnamed_roles(&self) -> String {
        let unnamed = self.outlook.iter().flat_map(|outlook| &outlook.unnamed);
        let roles = unnamed.flat_map(|array| &array.roles);
        let roles: Vec<String> = roles.map(|role| format!("role {role}")).collect();
        if roles.is_empty() { "some".to_owned() } else { roles.join(", ") }
    }

    /// Returns whether all named members are there, and too few: waiting does not help.
    fn are_too_few(&self, entry: &ArrayEntry) -> bool {
        let all_there = !entry.members.is_empty() && self.absent == 0;
        let lacks = |outlook: &Outlook| entry::lacks_members(outlook, 0);
        all_there && self.outlook.as_ref().is_some_and(lacks)
    }
}

/// Waits until all members are present, or the time is over.
fn wait(entry: &ArrayEntry, words: &AssembleArgs) -> Present {
    let deadline = Instant::now() + entry.wait;
    notify::extend(entry.wait);
    let mut now = (there(entry), partitions());
    let mut present = Present::look(entry, words, &now.0);
    loop {
        // The names by which people know the disks would come only after the array has stopped.
        let named = || present.paths.iter().all(|member| disk::is_named(member));
        let is_over = Instant::now() >= deadline;
        if is_over || present.whole && named() || present.are_too_few(entry) {
            return present;
        }
        notify::status(&format!("waits for members; {} are there", present.paths.len()));
        std::thread::sleep(LOOK_AGAIN);
        // Devices that are the same as before are not looked at again.
        let before = std::mem::replace(&mut now, (there(entry), partitions()));
        if now != before {
            present = Present::look(entry, words, &now.0);
        }
    }
}

/// Adds the members that are there. Lists those that are missing, and lets the array start without
/// them if it may.
fn add_members(
    entry: &ArrayEntry,
    present: Present,
    words: &mut AssembleArgs,
) -> Result<(), Failure> {
    let seconds = entry.wait.as_secs();
    if present.paths.is_empty() && !entry.members.is_empty() {
        let reason = format!("none of its members is there after {seconds} s");
        let next = "attach them, or see braid config check";
        return Err(Failure::refused(OPERATION, &entry.name, reason, next));
    }
    if entry.is_over_nodes() {
        words.names.extend(entry.members.iter().map(|member| member.value.clone()));
        return Ok(());
    }
    if !present.whole {
        let missing = entry.members.iter().map(|member| member.value.as_str());
        let missing: Vec<&str> = missing.filter(|path| !entry::is_there(path)).collect();
        let missing = if missing.is_empty() { present.unnamed_roles() } else { missing.join(" ") };
        let what = if entry.degraded {
            "it starts without them if it can"
        } else {
            "it must not start without"
        };
        let line = format!("members are missing after {seconds} s: {missing}; {what}");
        output::alert(&format!("{OPERATION} {}: {line}", entry.name));
        words.run = entry.degraded;
    }
    if !entry.members.is_empty() || words.uuid.is_some() {
        words.names.extend(present.paths.iter().map(|path| path.display().to_string()));
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
        _ => entry::is_there(&member.value),
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

#[cfg(test)]
mod tests {
    use braid_array::Role;

    use super::*;
    use crate::cmd::assemble::Unnamed;

    /// Members of an array without a list are found by its name: what is missing has no path.
    #[test]
    fn roles_that_are_missing_are_named() {
        let named = |roles: &[u16]| {
            let unnamed = Unnamed {
                name: "home".to_owned(),
                uuid: [1; 16],
                members: 3,
                roles: roles.iter().copied().map(Role).collect(),
                lost: roles.len(),
            };
            let outlook = Outlook {
                whole: false,
                is_halfway: false,
                start: Ok(roles.len()),
                by_hand: None,
                array: None,
                unnamed: vec![unnamed],
                outsiders: Vec::new(),
                strays: 0,
                unread: Vec::new(),
            };
            let outlook = Some(outlook);
            Present { paths: Vec::new(), absent: 0, outlook, whole: false }.unnamed_roles()
        };
        assert_eq!(named(&[2]), "role 2");
        assert_eq!(named(&[0, 2]), "role 0, role 2");
        assert_eq!(named(&[]), "some");
    }
}
