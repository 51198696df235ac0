//! GlusterFS beside our arrays: a dispersed volume of 3+2 bricks, on the same links. Its client
//! encodes, so it sends five bytes for three of data.
//!
//! Its daemons take for granted that they are alone on a machine. Each gets mounts of its own over
//! the directories they want to themselves; these go with the process, and so leave nothing.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::line;
use super::nodes;
use super::rig::{MeasurementKind, Rig};
use super::setting::{Counters, DISPERSE, Done, LineRate, Raw, Setting};
use super::words::{Pattern, Policy, Storage};
use crate::failure::{Failure, system_error};
use crate::rig::Room;
use crate::rig::lab;
use crate::rig::leftovers::Guard;
use crate::rig::place::Site;
use crate::rig::process::{self, Process, until};
use crate::rig::spaces::{self, SpaceHost};
use crate::tool::Tool;

/// Schedule of its entries.
pub(super) const NAME: &str = "gluster";
pub(super) const NODES: u16 = 5;
const CLIENT: SpaceHost = SpaceHost::Client(0);
/// Length of a brick's part of a stripe.
const FRAGMENT_BYTES: u64 = 512;
/// Share of the line at which it writes, about.
const LIKELY: f64 = 0.57;
const PATIENCE: Duration = Duration::from_secs(60);
/// Gives a daemon its directories: `$1` is for its files. Then becomes the daemon.
const ALONE: &str = "set -e; dir=$1; shift
    mkdir -p $dir/lib $dir/log $dir/data
    mount --bind $dir/lib /var/lib/glusterd
    mount --bind $dir/log /var/log/glusterfs
    mount -t tmpfs run /run
    mkdir -p /run/gluster /run/lock
    [ $1 = disk ] || mount -t tmpfs data $dir/data
    shift; exec \"$@\"";

/// Returns its setting on the same links, with the same storage.
pub(super) fn beside(setting: &Setting) -> Setting {
    Setting {
        level: "raid6".to_owned(),
        layout: Some(DISPERSE.to_owned()),
        nodes: NODES,
        clients: 1,
        block_bytes: FRAGMENT_BYTES,
        policy: Policy::Resync,
        fabric: "tcp".to_owned(),
        ..*setting
    }
}

#[derive(Debug)]
pub(super) struct Volume {
    setting: Setting,
    seconds: f64,
    file: PathBuf,
    mebibytes: u64,
    client: Process,
    _daemons: Vec<Process>,
    /// Ends what runs in it.
    site: Site,
    /// Goes last, when nothing writes there any more.
    _files: Guard,
}

impl Volume {
    /// Brings up a lab with the volume in it, if it is installed.
    pub(super) fn start(setting: &Setting, seconds: f64, room: &Room) -> Result<Self, Failure> {
        for name in ["glusterd", "glusterfs", "gluster"] {
            Tool::find(name, "glusterfs-server")?;
        }
        Tool::find("unshare", "util-linux")?;
        let (scratch, files) = nodes::directory(room)?;
        let site = nodes::site(room, setting)?;
        let daemons = daemons(&site, &scratch, setting.storage)?;
        let (client, mountpoint) = mount(&site, &scratch)?;
        Ok(Self {
            setting: setting.clone(),
            seconds,
            file: mountpoint.join("file"),
            mebibytes: 0,
            client,
            _daemons: daemons,
            site,
            _files: files,
        })
    }

    fn copy(&self, pattern: Pattern) -> Result<(), Failure> {
        let file = self.file.display();
        let words = match pattern {
            Pattern::Read => format!("if={file} of=/dev/null iflag=direct"),
            _ => format!("of={file} if=/dev/zero oflag=direct conv=fsync"),
        };
        let mut command = within(&self.client);
        command.args(["dd", "bs=1M", "status=none", &format!("count={}", self.mebibytes)]);
        said(command.args(words.split(' '))).map(drop)
    }

    fn count(&self) -> Option<Counters> {
        let lab = self.site.lab.as_ref()?;
        let traffic = lab::traffic(lab.name()).ok()?;
        let cpu = |host| -> Option<f64> {
            let pids = spaces::processes(lab.name(), host);
            pids.into_iter().map(|pid| process::cpu_seconds(pid.as_raw_nonzero().get())).sum()
        };
        let nodes_cpu_s = (0..NODES).map(|number| cpu(SpaceHost::Node(number))).sum();
        Some(Counters { traffic: Some(traffic), clients_cpu_s: cpu(CLIENT), nodes_cpu_s })
    }
}

impl Rig for Volume {
    fn line(&mut self) -> Result<LineRate, Failure> {
        let bytes_s = line::measure(&self.site, self.seconds.min(1.0));
        Ok(LineRate { bytes_s: bytes_s.map_err(failed)?, idle_nodes_cpu: None })
    }

    fn measure(&mut self, kind: MeasurementKind, line: LineRate) -> Result<Raw, Failure> {
        let pattern = kind.pattern;
        let nothing_to_read = self.mebibytes == 0;
        if pattern != Pattern::Read || nothing_to_read {
            // As much as takes about as long as the other measurements, and is read afterwards.
            let mebibytes = LIKELY * line.bytes_s * self.seconds / f64::from(1 << 20);
            self.mebibytes = (mebibytes as u64).clamp(16, 1024);
        }
        if pattern == Pattern::Read && nothing_to_read {
            self.copy(Pattern::Write)?;
        }
        let before = self.count();
        let start = Instant::now();
        self.copy(pattern)?;
        let window_seconds = start.elapsed().as_secs_f64();
        let after = self.count();
        let bytes = self.mebibytes << 20;
        let done = Done { window_bytes: bytes, window_seconds, total_bytes: bytes };
        let (before, after) = before.zip(after).ok_or_else(|| failed("its lab is gone"))?;
        Ok(Raw {
            setting: self.setting.clone(),
            schedule: NAME.to_owned(),
            pattern,
            seconds: self.seconds,
            line,
            clients: vec![done],
            before,
            after,
            node_memory_bytes: None,
        })
    }
}

fn failed(reason: impl Display) -> Failure {
    Failure::gap("GlusterFS", reason, "leave it out, or see that it runs here")
}

/// A volume that is served by daemons of the nodes.
fn daemons(site: &Site, scratch: &Path, storage: Storage) -> Result<Vec<Process>, Failure> {
    let words = ["glusterd", "-N", "-p", "/run/glusterd.pid"];
    let daemon = |number| alone(site, SpaceHost::Node(number), scratch, storage, &words);
    let daemons = (0..NODES).map(daemon).collect::<Result<Vec<Process>, Failure>>()?;
    let first = &daemons[0];
    let ask = |words: &str| gluster(first, words);
    wait("glusterd does not answer", || ask("pool list").is_ok())?;
    for number in 1..NODES {
        wait("a peer cannot be reached", || {
            ask(&format!("peer probe {}", SpaceHost::Node(number).address())).is_ok()
        })?;
    }
    wait("not all peers are connected", || {
        ask("pool list").is_ok_and(|text| text.matches("Connected").count() == usize::from(NODES))
    })?;
    let brick = |number| {
        let host = SpaceHost::Node(number);
        let path = scratch.join(host.to_string()).join("data/brick");
        format!("{}:{}", host.address(), path.display())
    };
    let bricks = (0..NODES).map(brick).collect::<Vec<_>>().join(" ");
    ask(&format!("volume create bench disperse 5 redundancy 2 {bricks} force"))?;
    ask("volume start bench")?;
    Ok(daemons)
}

/// A daemon with directories of its own.
fn alone(
    site: &Site,
    host: SpaceHost,
    scratch: &Path,
    storage: Storage,
    words: &[&str],
) -> Result<Process, Failure> {
    let mut command = site.command(host, "unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", ALONE, "sh"]);
    command.arg(scratch.join(host.to_string())).arg(storage.name()).args(words);
    let process = Process::start(command, scratch.join(format!("{host}.log")));
    process.map_err(|error| failed(system_error(&error)))
}

fn mount(site: &Site, scratch: &Path) -> Result<(Process, PathBuf), Failure> {
    let mountpoint = scratch.join("mountpoint");
    fs::create_dir_all(&mountpoint).map_err(|error| failed(system_error(&error)))?;
    let server = SpaceHost::Node(0).address().to_string();
    let path = mountpoint.display().to_string();
    let words = ["glusterfs", "-N", "-s", &server, "--volfile-id=bench", &path];
    let client = alone(site, CLIENT, scratch, Storage::Memory, &words)?;
    let mounts = format!("/proc/{}/mounts", client.id());
    wait("the volume is not mounted", || {
        fs::read_to_string(&mounts).is_ok_and(|text| text.contains("fuse.glusterfs"))
    })?;
    // The mount answers once the client has found the bricks.
    wait("the volume does not answer", || {
        said(within(&client).args(["stat", "-f", &path])).is_ok()
    })?;
    Ok((client, mountpoint))
}

/// A command where that process is.
fn within(process: &Process) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["--mount", "--net", "--target", &process.id().to_string()]);
    command
}

fn gluster(daemon: &Process, words: &str) -> Result<String, Failure> {
    let mut command = within(daemon);
    said(command.args(["gluster", "--mode=script"]).args(words.split(' ')))
}

fn said(command: &mut Command) -> Result<String, Failure> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(system_error(&error)))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(failed(complaint.lines().next().unwrap_or("a command failed")))
}

/// Asks again and again: daemons do not say when they are ready.
fn wait(complaint: &str, ready: impl FnMut() -> bool) -> Result<(), Failure> {
    if until(PATIENCE, ready) { Ok(()) } else { Err(failed(complaint)) }
}
