//! Other programs that serve a file or memory: nbdkit over NBD, nbdfuse as a file again, qemu's
//! storage daemon over NBD, vhost-user or FUSE. None of them has RAID.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::leftovers::{Guard, Leftover};
use super::process::Process;
use super::room::{Room, file_name};
use crate::failure::Failure;
use crate::tool::Tool;

/// Time until something is served.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);
/// Name of what the storage daemon serves.
const NODE: &str = "disk";

/// Target of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A file, a directory or a block device.
    Path(PathBuf),
    /// The server of NBD at this address.
    Nbd(String),
    /// The socket of vhost-user.
    VhostUser(PathBuf),
}

/// A program, and what it serves how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// nbdkit over NBD; it reads and writes a file through the page cache.
    Nbdkit,
    /// The same with so many bytes of memory.
    NbdkitMemory(u64),
    /// nbdfuse: what is served over NBD, as a file.
    NbdFuse,
    /// The storage daemon over NBD, serving a file through the page cache.
    DaemonNbd,
    /// The same as another file, over FUSE. Version 7.2 mixes up the content of writes that are
    /// under way at once there: it is there to be measured and for nothing else.
    DaemonFuse,
    /// The same over vhost-user.
    DaemonVhostUser,
}

/// A program that serves. Dropped, what it mounted is unmounted, and it is ended.
#[derive(Debug)]
pub struct Server {
    program: Program,
    served: PathBuf,
    // In this order: the process ends when nothing of it is mounted any more, then its directory
    // goes.
    _mount: Option<Guard>,
    process: Process,
    _directory: Guard,
}

impl Target {
    /// The path of a file, directory, device or socket.
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Path(path) | Self::VhostUser(path) => path.clone(),
            Self::Nbd(uri) => PathBuf::from(uri),
        }
    }

    /// The name as the word of a command.
    pub fn word(&self) -> String {
        self.path().display().to_string()
    }
}

impl Program {
    /// Its name, and the package of Debian that has it.
    const fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::Nbdkit | Self::NbdkitMemory(_) => ("nbdkit", "nbdkit"),
            Self::NbdFuse => ("nbdfuse", "nbdfuse"),
            _ => ("qemu-storage-daemon", "qemu-system-common"),
        }
    }

    fn words(self, what: &str, served: &Path) -> Vec<String> {
        // A comma ends a value for the daemon, two are one.
        let value = |word: &str| word.replace(',', ",,");
        let socket = format!("addr.type=unix,addr.path={}", value(&served.display().to_string()));
        let export = match self {
            Self::Nbdkit | Self::NbdkitMemory(_) => {
                let bytes = |bytes: u64| ["memory".to_owned(), bytes.to_string()];
                let plugin = match self {
                    Self::NbdkitMemory(memory) => bytes(memory),
                    _ => ["file".to_owned(), what.to_owned()],
                };
                let mut words = vec!["--foreground".to_owned(), "--unix".to_owned()];
                words.push(served.display().to_string());
                words.extend(plugin);
                return words;
            }
            Self::NbdFuse => return vec![served.display().to_string(), what.to_owned()],
            Self::DaemonNbd => format!("type=nbd,id=nbd,node-name={NODE},name={NODE},writable=on"),
            Self::DaemonVhostUser => {
                format!("type=vhost-user-blk,id=disk-export,node-name={NODE},{socket},writable=on")
            }
            Self::DaemonFuse => {
                let place = value(&served.display().to_string());
                format!("type=fuse,id=fuse,node-name={NODE},mountpoint={place},writable=on")
            }
        };
        let node = format!("driver=file,filename={},node-name={NODE}", value(what));
        let mut words = vec!["--blockdev".to_owned(), node];
        if self == Self::DaemonNbd {
            words.extend(["--nbd-server".to_owned(), socket]);
        }
        words.extend(["--export".to_owned(), export]);
        words
    }
}

impl Server {
    /// Serves a file, or what is at an address; the name is unique among those that are served at
    /// the same time.
    pub fn start(room: &Room, name: &str, program: Program, what: &str) -> Result<Self, Failure> {
        let (command, package) = program.name();
        let tool = Tool::find(command, package)?;
        let directory = room.scratch.join(format!("{}.{command}", file_name(name)));
        let system = |error| Failure::system(directory.display(), &error, "name another --dir");
        let guard = Guard::new(Leftover::Directory(directory.clone()));
        let mounted = directory.join("mnt");
        fs::create_dir_all(&mounted).map_err(system)?;
        let mut served = directory.join(NODE);
        let mut mount = None;
        match program {
            Program::NbdFuse => {
                served = mounted.join(NODE);
                mount = Some(Guard::new(Leftover::Mount(mounted)));
            }
            Program::DaemonFuse => {
                fs::File::create(&served).map_err(system)?;
                mount = Some(Guard::new(Leftover::Mount(served.clone())));
            }
            _ => {}
        }
        let mut command = tool.command();
        command.args(program.words(what, &served));
        let process = Process::start(command, directory.join("log")).map_err(system)?;
        let mut server = Self { program, served, _mount: mount, process, _directory: guard };
        if server.is_ready(what) {
            return Ok(server);
        }
        let reason = format!("it does not serve {what}: {}", server.process.last_error());
        Err(Failure::refused(tool.name(), reason, "see what it says"))
    }

    /// Waits until it serves, or does not run any more, or takes too long.
    fn is_ready(&mut self, what: &str) -> bool {
        let until = Instant::now() + PATIENCE;
        let len = |path: &Path| fs::metadata(path).map(|found| found.len()).ok();
        loop {
            let ready = match self.program {
                Program::NbdFuse => self.served.exists(),
                // The file that it is mounted on is empty.
                Program::DaemonFuse => len(&self.served) == len(Path::new(what)),
                _ => UnixStream::connect(&self.served).is_ok(),
            };
            let running = !self.process.has_ended();
            if !running || ready || Instant::now() > until {
                return ready && running;
            }
            thread::sleep(POLL);
        }
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Place where it is served.
    pub fn target(&self) -> Target {
        let served = self.served.clone();
        let socket = served.display();
        match self.program {
            Program::Nbdkit | Program::NbdkitMemory(_) => {
                Target::Nbd(format!("nbd+unix:///?socket={socket}"))
            }
            Program::DaemonNbd => Target::Nbd(format!("nbd+unix:///{NODE}?socket={socket}")),
            Program::DaemonVhostUser => Target::VhostUser(served),
            Program::NbdFuse | Program::DaemonFuse => Target::Path(served),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_names_end_nothing() {
        let said = Program::DaemonNbd.words("/a,b/m0", Path::new("/s"));
        assert_eq!(said[1], "driver=file,filename=/a,,b/m0,node-name=disk");
        assert_eq!(said[3], "addr.type=unix,addr.path=/s");
        let said = Program::DaemonFuse.words("/m0", Path::new("/x,y"));
        assert!(said[3].contains("mountpoint=/x,,y,"), "{said:?}");
    }

    #[test]
    fn what_is_not_there_is_not_served_and_leaves_nothing() {
        let place = tempfile::tempdir().expect("a directory");
        let room = Room::new(place.path().to_owned(), Vec::new(), Tool::at("braid", "no".into()));
        let none = place.path().join("none").display().to_string();
        // Without the programs it fails as well, and leaves nothing either.
        for program in [Program::Nbdkit, Program::DaemonNbd, Program::DaemonFuse] {
            Server::start(&room, "x", program, &none).expect_err("no such file");
            assert_eq!(fs::read_dir(place.path()).expect("a directory").count(), 0);
        }
    }
}
