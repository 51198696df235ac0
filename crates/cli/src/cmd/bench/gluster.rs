//! GlusterFS beside our arrays: a dispersed volume of 3+2 bricks, on the same links. Its client
//! encodes, so it sends five bytes for three of data.
//!
//! Its daemons take for granted that they are alone on a machine. Each gets mounts of its own over
//! the directories they want to themselves; these go with the process, and so leave nothing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use braid_bench::rig::lab::{self, Traffic};
use braid_bench::rig::leftovers;
use braid_bench::rig::place::Site;
use braid_bench::rig::spaces::{self, Host};
use braid_bench::rig::talk::{self, Talk};
use braid_cluster::Family;

use super::measure::{self, Kind, Line, Rig, Sample, Setting};
use super::results::Entry;
use super::rig::{self, Counters};
use super::{line, load};
use crate::args::{ClusterArgs, PatternName, StorageName, WriteSchedule};
use crate::failure::{Failure, system_error};
use crate::output;

const NODES: u16 = 5;
const CLIENT: Host = Host::Client(0);
/// Of a brick's part of a stripe.
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

/// Measures it, if it is installed.
pub(super) fn measure(args: &ClusterArgs) -> Result<Vec<Entry>, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = |name| std::env::split_paths(&path).any(|dir| dir.join(name).exists());
    if !["gluster", "glusterd", "glusterfs", "unshare", "nsenter"].into_iter().all(installed) {
        output::warning("bench cluster: GlusterFS is not installed and is left out");
        return Ok(Vec::new());
    }
    let kind = |pattern| Kind { pattern, schedule: WriteSchedule::Client };
    let mut kinds = vec![kind(PatternName::Write)];
    kinds.extend(args.reads.then_some(kind(PatternName::Read)));
    let mut entries = Vec::new();
    for &storage in &args.storage {
        // Its bounds are those of any code that survives two losses of five and is made by the
        // client.
        let setting = Setting {
            family: Family::Xor2d,
            layout: Some("disperse".to_owned()),
            nodes: NODES,
            clients: 1,
            block_bytes: FRAGMENT_BYTES,
            storage,
            fabric: "tcp".to_owned(),
            link_bit_s: args.link,
        };
        let (scratch, _guard) = leftovers::scratch_directory(args.store.as_deref())?;
        let site = rig::site(args.link, 1, NODES)?;
        let mut volume = Volume::start(site, storage, args.seconds, &scratch)
            .map_err(|reason| Failure::refused("bench", "gluster", reason, "leave it out"))?;
        entries.extend(measure::measure(&mut volume, &setting, &kinds, args.runs, args.seconds)?);
    }
    for entry in &mut entries {
        "gluster".clone_into(&mut entry.schedule);
    }
    Ok(entries)
}

/// A volume that is mounted on the client.
#[derive(Debug)]
struct Volume {
    seconds: f64,
    scratch: PathBuf,
    file: PathBuf,
    /// Of the file.
    mebibytes: u64,
    /// What the latest line carried, in bytes a second.
    line: f64,
    client: Talk,
    _daemons: Vec<Talk>,
    /// Goes last: it ends what runs in it.
    site: Site,
}

impl Volume {
    fn start(
        site: Site,
        storage: StorageName,
        seconds: f64,
        scratch: &Path,
    ) -> Result<Self, String> {
        let mut daemons = Vec::new();
        for number in 0..NODES {
            let words = ["glusterd", "-N", "-p", "/run/glusterd.pid"].map(str::to_owned);
            let host = Host::Node(number);
            daemons.push(alone(&site, host, scratch, storage, &words)?);
        }
        let first = &daemons[0];
        let ask = |words: &str| gluster(first, words);
        wait("glusterd does not answer", || ask("pool list").is_ok())?;
        for number in 1..NODES {
            wait("a peer cannot be reached", || {
                ask(&format!("peer probe {}", Host::Node(number).address())).is_ok()
            })?;
        }
        wait("not all peers are connected", || {
            ask("pool list")
                .is_ok_and(|text| text.matches("Connected").count() == usize::from(NODES))
        })?;
        let brick = |number| {
            let host = Host::Node(number);
            let path = scratch.join(host.to_string()).join("data/brick");
            format!("{}:{}", host.address(), path.display())
        };
        let bricks = (0..NODES).map(brick).collect::<Vec<_>>().join(" ");
        ask(&format!("volume create bench disperse 5 redundancy 2 {bricks} force"))?;
        ask("volume start bench")?;
        let (client, mountpoint) = mount(&site, scratch)?;
        let file = mountpoint.join("file");
        let scratch = scratch.to_owned();
        Ok(Self {
            seconds,
            scratch,
            file,
            mebibytes: 0,
            line: 0.0,
            client,
            _daemons: daemons,
            site,
        })
    }

    /// Writes the file, or reads it.
    fn copy(&self, pattern: PatternName) -> Result<(), String> {
        let (count, file) = (format!("count={}", self.mebibytes), self.file.display());
        let words = match pattern {
            PatternName::Read => {
                [format!("if={file}"), "of=/dev/null".to_owned(), "iflag=direct".to_owned()]
            }
            _ => [format!("of={file}"), "if=/dev/zero".to_owned(), "oflag=direct".to_owned()],
        };
        let sync = (pattern != PatternName::Read).then_some("conv=fsync");
        let mut command = within(&self.client);
        command.args(["dd", "bs=1M", "status=none", &count]).args(words).args(sync);
        said(&mut command).map(drop)
    }

    fn count(&self) -> Option<Counters> {
        let lab = self.site.lab.as_ref()?;
        let traffic: Vec<(Host, Traffic)> = lab::traffic(lab.name()).ok()?;
        let cpu = |host| -> Option<f64> {
            let pids = spaces::processes(lab.name(), host);
            pids.into_iter().map(|pid| talk::cpu_seconds(pid.as_raw_nonzero().get())).sum()
        };
        let nodes_cpu = (0..NODES).map(|number| cpu(Host::Node(number))).sum();
        Some(Counters { traffic: Some(traffic), clients_cpu: cpu(CLIENT), nodes_cpu })
    }
}

impl Rig for Volume {
    fn line(&mut self) -> Result<Line, Failure> {
        let bytes_s = line::measure(&self.site, self.seconds.min(1.0), &self.scratch);
        self.line = bytes_s.map_err(|reason| failed(&reason))?;
        Ok(Line { bytes_s: self.line, idle_nodes_cpu: None })
    }

    fn sample(&mut self, kind: Kind) -> Result<Sample, Failure> {
        if kind.pattern != PatternName::Read {
            // As much as takes about as long as the other measurements, and is read afterwards.
            let mebibytes = LIKELY * self.line * self.seconds / f64::from(1 << 20);
            self.mebibytes = (mebibytes as u64).clamp(16, 1024);
        }
        let (before, start) = (self.count(), Instant::now());
        self.copy(kind.pattern).map_err(|reason| failed(&reason))?;
        let window_seconds = start.elapsed().as_secs_f64();
        let after = self.count();
        let bytes = self.mebibytes << 20;
        let done = load::Done { window_bytes: bytes, window_seconds, total_bytes: bytes };
        let counted = before.zip(after).ok_or_else(|| failed("its lab is gone"))?;
        Ok(rig::sample(kind.pattern, &[done], &counted.0, &counted.1))
    }

    fn node_memory_bytes(&self) -> Option<u64> {
        None
    }
}

fn failed(reason: &str) -> Failure {
    Failure::refused("bench", "gluster", reason, "leave it out, or see its logs with --store DIR")
}

/// A daemon with directories of its own.
fn alone(
    site: &Site,
    host: Host,
    scratch: &Path,
    storage: StorageName,
    words: &[String],
) -> Result<Talk, String> {
    let system = |error: io::Error| system_error(&error);
    let mut command = site.command(host, "unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", ALONE, "sh"]);
    command.arg(scratch.join(host.to_string())).arg(crate::args::typed(&storage)).args(words);
    Talk::start(command, scratch.join(format!("{host}.log"))).map_err(system)
}

/// The client, with the volume mounted.
fn mount(site: &Site, scratch: &Path) -> Result<(Talk, PathBuf), String> {
    let mountpoint = scratch.join("mountpoint");
    fs::create_dir_all(&mountpoint).map_err(|error| system_error(&error))?;
    let (server, path) = (Host::Node(0).address().to_string(), mountpoint.display().to_string());
    let words = ["glusterfs", "-N", "-s", &server, "--volfile-id=bench", &path];
    let client = alone(site, CLIENT, scratch, StorageName::Memory, &words.map(str::to_owned))?;
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
fn within(process: &Talk) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["--mount", "--net", "--target", &process.id().to_string()]);
    command
}

fn gluster(daemon: &Talk, words: &str) -> Result<String, String> {
    let mut command = within(daemon);
    said(command.args(["gluster", "--mode=script"]).args(words.split(' ')))
}

/// Runs a command and returns what it says.
fn said(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| system_error(&error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(complaint.lines().next().unwrap_or("a command failed").to_owned())
}

/// Asks again and again: daemons do not say when they are ready.
fn wait(complaint: &str, mut ready: impl FnMut() -> bool) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    while !ready() {
        if Instant::now() > deadline {
            return Err(complaint.to_owned());
        }
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}
