//! An array of Braid's: made, served as a file over FUSE, and stopped when it goes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::leftovers::{Guard, Leftover};
use super::process::{Process, until};
use super::room::{Room, file_name};
use super::server::Target;
use crate::failure::{About, Failure};

/// Time until an array is served, or has stopped.
const PATIENCE: Duration = Duration::from_secs(30);

/// Specification of an array, for `braid create` and `braid assemble`.
#[derive(Clone, Debug, Default)]
pub struct ArraySpec {
    /// Word for `--level`.
    pub level: String,
    /// Word for `--layout`.
    pub layout: Option<String>,
    /// Value of `--chunk`.
    pub chunk_bytes: Option<u64>,
    /// Members in the order of the roles. Either all of them are memory of its own, `mem:SIZE`, or
    /// none.
    pub members: Vec<PathBuf>,
    /// Device of the journal, if there is one.
    pub journal: Option<PathBuf>,
    /// More words for `braid create`.
    pub create: Vec<String>,
    /// Served over NBD, too.
    pub nbd: bool,
    /// Served over vhost-user, too.
    pub vhost_user: bool,
}

impl ArraySpec {
    fn is_in_memory(&self) -> bool {
        self.members.first().is_some_and(|first| first.to_string_lossy().starts_with("mem:"))
    }
}

/// A running array of Braid's, with the process that serves it, the mount over which it is a
/// [`file`](Self::file), and its directory. [`start`](Self::start) creates and serves it;
/// [`braid`](Self::braid) gives it commands. Dropped, it is stopped, and what it left is removed.
#[derive(Debug)]
pub struct Array {
    name: String,
    room: Room,
    directory: PathBuf,
    process: Process,
    target: Target,
    commands: Vec<String>,
    _mount: Guard,
    _directory: Guard,
}

impl Array {
    /// Creates the array and serves it in a process that ends with this one. Its name is unique
    /// among those that stand at the same time; letters and digits are kept.
    pub fn start(room: &Room, name: &str, spec: &ArraySpec) -> Result<Self, Failure> {
        let name = file_name(name);
        let directory = room.scratch.join(format!("{name}.array"));
        let keep = Guard::directory(&directory)?;
        let mounted = directory.join("mnt");
        fs::create_dir(&mounted).about(mounted.display(), "see its directory")?;
        let mut create = create_words(&name, &directory, spec, !room.members.is_empty());
        let commands = if spec.is_in_memory() {
            // It is served by what makes it.
            create.extend(serve_words(&directory, spec));
            vec![create]
        } else {
            room.braid.output(&create)?;
            vec![create, assemble_words(&name, &directory, spec)]
        };
        let mount = Guard::new(Leftover::Mount(mounted.clone()));
        let mut command = room.braid.command();
        command.args(commands.last().into_iter().flatten());
        let process = Process::start(command, directory.join("log"));
        let typed = commands.iter().map(|words| format!("braid {}", words.join(" ")));
        let array = Self {
            process: process.about(directory.display(), "see its directory")?,
            target: target(&directory, spec, mounted.join(&name)),
            name,
            room: room.clone(),
            directory,
            commands: typed.collect(),
            _mount: mount,
            _directory: keep,
        };
        array.wait()?;
        Ok(array)
    }

    fn wait(&self) -> Result<(), Failure> {
        let is_served = || self.file().metadata().is_ok() && self.braid(&["status"]).is_ok();
        if !until(PATIENCE, || self.process.has_ended() || is_served()) {
            return Err(self.refused("it is not served after 30 seconds"));
        }
        if self.process.has_ended() {
            return Err(self.refused(&self.process.last_error()));
        }
        Ok(())
    }

    fn refused(&self, reason: &str) -> Failure {
        Failure::refused(&self.name, reason, "see what is said, and try with --quick")
    }

    /// The file that is the array.
    pub fn file(&self) -> PathBuf {
        self.directory.join("mnt").join(&self.name)
    }

    /// Place where it is served: over NBD or vhost-user, if it is, else as a file.
    pub fn target(&self) -> Target {
        self.target.clone()
    }

    /// The process that serves it.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Length in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.file().metadata().map_or(0, |data| data.len())
    }

    /// The commands that made and started it.
    pub fn commands(&self) -> &[String] {
        &self.commands
    }

    /// `braid VERB NAME WORDS`: what it says.
    pub fn braid(&self, words: &[&str]) -> Result<String, Failure> {
        let (verb, more) = words.split_first().unwrap_or((&"status", &[]));
        let run_dir = self.directory.display().to_string();
        let all = [&["--run-dir", &run_dir, verb, &self.name], more].concat();
        let output = self.room.braid.output(&all)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// `/proc/mdstat` for this array.
    pub fn mdstat(&self) -> Result<String, Failure> {
        self.braid(&["status", "--mdstat"])
    }

    /// `braid status --json`.
    pub fn status(&self) -> Result<Value, Failure> {
        let text = self.braid(&["status", "--json"])?;
        serde_json::from_str(&text).map_err(|error| self.refused(&error.to_string()))
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        // What does not stop by itself is ended; its members go anyway.
        if self.braid(&["stop", "--force"]).is_ok() {
            let _ = self.process.finish(PATIENCE);
        }
    }
}

fn target(directory: &Path, spec: &ArraySpec, file: PathBuf) -> Target {
    if spec.nbd {
        let socket = directory.join("nbd");
        return Target::Nbd(format!("nbd+unix:///?socket={}", socket.display()));
    }
    if spec.vhost_user { Target::VhostUser(directory.join("vhost")) } else { Target::Path(file) }
}

fn words(directory: &Path, more: &[&str]) -> Vec<String> {
    let run_dir = directory.display().to_string();
    [&["--run-dir", &run_dir], more].concat().iter().map(ToString::to_string).collect()
}

fn create_words(name: &str, directory: &Path, spec: &ArraySpec, force: bool) -> Vec<String> {
    let count = spec.members.len().to_string();
    let level = ["create", name, "--level", &spec.level, "--raid-devices", &count];
    let mut words = words(directory, &level);
    let options = [
        ("--layout", spec.layout.clone()),
        ("--chunk", spec.chunk_bytes.map(|bytes| bytes.to_string())),
        ("--write-journal", spec.journal.as_ref().map(|path| path.display().to_string())),
    ];
    for (option, value) in options {
        words.extend(value.into_iter().flat_map(|value| [option.to_owned(), value]));
    }
    words.extend((!spec.is_in_memory()).then(|| "--assume-clean".to_owned()));
    words.extend(force.then(|| "--force".to_owned()));
    words.extend(spec.create.iter().cloned());
    words.extend(spec.members.iter().map(|path| path.display().to_string()));
    words
}

fn serve_words(directory: &Path, spec: &ArraySpec) -> Vec<String> {
    let directory = directory.display();
    let mut words = vec!["--foreground".to_owned()];
    let mut export = |export: String| words.extend(["--export".to_owned(), export]);
    export(format!("fuse:{directory}/mnt"));
    if spec.nbd {
        export(format!("nbd:unix:{directory}/nbd"));
    }
    if spec.vhost_user {
        export(format!("vhost-user:{directory}/vhost"));
    }
    words
}

fn assemble_words(name: &str, directory: &Path, spec: &ArraySpec) -> Vec<String> {
    let mut words = words(directory, &["assemble", name]);
    words.extend(serve_words(directory, spec));
    let all = spec.members.iter().chain(&spec.journal);
    words.extend(all.map(|path| path.display().to_string()));
    words
}
