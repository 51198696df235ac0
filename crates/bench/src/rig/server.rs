//! Other programs that serve a file or memory: nbdkit over NBD, nbdfuse as a file again, qemu's
//! storage daemon over NBD, vhost-user or FUSE. None of them has RAID.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::leftovers::{Guard, Leftover};
use super::process::{Process, until};
use super::room::{Room, file_name};
use crate::failure::{About, Failure};
use crate::tool::Tool;

/// Time until something is served.
const PATIENCE: Duration = Duration::from_secs(10);
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
        let path = served.display().to_string();
        let place = value(&path);
        let socket = format!("addr.type=unix,addr.path={place}");
        let node = format!("driver=file,filename={},node-name={NODE}", value(what));
        let export = match self {
            Self::DaemonNbd => format!("type=nbd,id=nbd,node-name={NODE},name={NODE},writable=on"),
            Self::DaemonVhostUser => {
                format!("type=vhost-user-blk,id=disk-export,node-name={NODE},{socket},writable=on")
            }
            _ => format!("type=fuse,id=fuse,node-name={NODE},mountpoint={place},writable=on"),
        };
        let words: &[&str] = match self {
            Self::Nbdkit => &["--foreground", "--unix", &path, "file", what],
            Self::NbdkitMemory(bytes) => {
                &["--foreground", "--unix", &path, "memory", &bytes.to_string()]
            }
            Self::NbdFuse => &[&path, what],
            Self::DaemonNbd => &["--blockdev", &node, "--nbd-server", &socket, "--export", &export],
            Self::DaemonFuse | Self::DaemonVhostUser => &["--blockdev", &node, "--export", &export],
        };
        words.iter().map(|&word| word.to_owned()).collect()
    }
}

impl Server {
    /// Serves a file, or what is at an address; the name is unique among those that are served at
    /// the same time.
    pub fn start(room: &Room, name: &str, program: Program, what: &str) -> Result<Self, Failure> {
        let (what_serves, package) = program.name();
        let tool = Tool::find(what_serves, package)?;
        let directory = room.scratch.join(format!("{}.{what_serves}", file_name(name)));
        let guard = Guard::directory(&directory)?;
        let mut served = directory.join(NODE);
        let mut mount = None;
        let made = match program {
            Program::NbdFuse => {
                let mounted = directory.join("mnt");
                served = mounted.join(NODE);
                mount = Some(Guard::new(Leftover::Mount(mounted.clone())));
                fs::create_dir(mounted)
            }
            Program::DaemonFuse => {
                mount = Some(Guard::new(Leftover::Mount(served.clone())));
                fs::File::create(&served).map(drop)
            }
            _ => Ok(()),
        };
        let mut command = tool.command();
        command.args(program.words(what, &served));
        let process = made.and_then(|()| Process::start(command, directory.join("log")));
        let process = process.about(directory.display(), "name another --dir")?;
        let server = Self { program, served, _mount: mount, process, _directory: guard };
        let runs = || !server.process.has_ended();
        if until(PATIENCE, || !runs() || server.is_ready(what)) && runs() {
            return Ok(server);
        }
        let reason = format!("it does not serve {what}: {}", server.process.last_error());
        Err(Failure::refused(what_serves, reason, "see what it says"))
    }

    fn is_ready(&self, what: &str) -> bool {
        let len = |path: &Path| fs::metadata(path).map(|found| found.len()).ok();
        match self.program {
            Program::NbdFuse => self.served.exists(),
            // The file that it is mounted on is empty.
            Program::DaemonFuse => len(&self.served) == len(Path::new(what)),
            _ => UnixStream::connect(&self.served).is_ok(),
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
