//! A file served by qemu's storage daemon, over NBD, vhost-user or as a file over FUSE: another
//! server in user space, of one thread, without RAID.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::leftovers::{Guard, Leftover};
use super::room::{Room, file_name};
use crate::failure::Failure;
use crate::tool::Tool;

const PROGRAM: &str = "qemu-storage-daemon";
/// Of Debian.
const PACKAGE: &str = "qemu-system-common";
/// Until something is served.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);
/// What is served, as it names it.
const NODE: &str = "disk";

/// A server of one file, which it reads and writes through the page cache. Dropped, it is ended,
/// and what it mounted is unmounted.
#[derive(Debug)]
pub struct StorageDaemon {
    child: Child,
    served: PathBuf,
    // In this order: the directory goes when nothing in it is mounted any more.
    mount: Option<Guard>,
    _directory: Guard,
}

/// How something is served.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Nbd,
    Fuse,
    VhostUser,
}

impl StorageDaemon {
    /// Serves a file over NBD; the name is unique among those served at the same time.
    pub fn nbd(room: &Room, name: &str, file: &Path) -> Result<Self, Failure> {
        Self::start(room, name, file, By::Nbd)
    }

    /// Serves a file as another file, over FUSE. Version 7.2 mixes up the content of writes that
    /// are under way at once there: it is there to be measured and for nothing else.
    pub fn fuse(room: &Room, name: &str, file: &Path) -> Result<Self, Failure> {
        Self::start(room, name, file, By::Fuse)
    }

    /// Serves a file over vhost-user.
    pub fn vhost_user(room: &Room, name: &str, file: &Path) -> Result<Self, Failure> {
        Self::start(room, name, file, By::VhostUser)
    }

    fn start(room: &Room, name: &str, file: &Path, by: By) -> Result<Self, Failure> {
        let program = Tool::find(PROGRAM, PACKAGE)?;
        let directory = room.scratch.join(format!("{}.daemon", file_name(name)));
        let system = |error| Failure::system(directory.display(), &error, "name another --dir");
        let bytes = file.metadata().map_err(system)?.len();
        let guard = Guard::new(Leftover::Directory(directory.clone()));
        fs::create_dir_all(&directory).map_err(system)?;
        let served = directory.join(NODE);
        let mut mount = None;
        if by == By::Fuse {
            fs::File::create(&served).map_err(system)?;
            mount = Some(Guard::new(Leftover::Mount(served.clone())));
        }
        let log = fs::File::create(directory.join("log")).map_err(system)?;
        let mut command = program.command();
        command.args(words(file, &served, by)).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().map_err(system)?;
        let mut daemon = Self { child, served, mount, _directory: guard };
        if daemon.is_served(by, bytes) {
            return Ok(daemon);
        }
        let said = fs::read_to_string(directory.join("log")).unwrap_or_default();
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        let reason = format!("it does not serve {}: '{}'", file.display(), last.trim());
        Err(Failure::refused(PROGRAM, reason, "see what it says"))
    }

    /// Waits until it serves, or does not run any more, or takes too long.
    fn is_served(&mut self, by: By, bytes: u64) -> bool {
        let until = Instant::now() + PATIENCE;
        loop {
            let ready = match by {
                By::Nbd | By::VhostUser => UnixStream::connect(&self.served).is_ok(),
                // The file that it is mounted on is empty.
                By::Fuse => fs::metadata(&self.served).is_ok_and(|found| found.len() == bytes),
            };
            let running = self.child.try_wait().is_ok_and(|end| end.is_none());
            if !running || ready || Instant::now() > until {
                return ready && running;
            }
            thread::sleep(POLL);
        }
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it is served over NBD.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("nbd+unix:///{NODE}?socket={}", self.served.display())
    }

    /// The file as which it is served over FUSE, or the socket of vhost-user.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.served
    }
}

impl Drop for StorageDaemon {
    fn drop(&mut self) {
        drop(self.mount.take());
        // One that has ended already needs no more than to be waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn words(file: &Path, served: &Path, by: By) -> Vec<String> {
    // A comma ends a value, two are one.
    let value = |path: &Path| path.display().to_string().replace(',', ",,");
    let node = format!("driver=file,filename={},node-name={NODE}", value(file));
    let mut words = vec!["--blockdev".to_owned(), node];
    let served = value(served);
    let export = match by {
        By::Nbd => {
            let server = format!("addr.type=unix,addr.path={served}");
            words.extend(["--nbd-server".to_owned(), server]);
            format!("type=nbd,id=nbd,node-name={NODE},name={NODE},writable=on")
        }
        By::VhostUser => {
            let socket = format!("addr.type=unix,addr.path={served}");
            format!("type=vhost-user-blk,id=disk-export,node-name={NODE},{socket},writable=on")
        }
        By::Fuse => format!("type=fuse,id=fuse,node-name={NODE},mountpoint={served},writable=on"),
    };
    words.extend(["--export".to_owned(), export]);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_names_end_nothing() {
        let said = words(Path::new("/a,b/m0"), Path::new("/s"), By::Nbd);
        assert_eq!(said[1], "driver=file,filename=/a,,b/m0,node-name=disk");
        assert_eq!(said[3], "addr.type=unix,addr.path=/s");
        let said = words(Path::new("/m0"), Path::new("/x,y"), By::Fuse);
        assert!(said[3].contains("mountpoint=/x,,y,"), "{said:?}");
    }

    #[test]
    fn what_is_not_there_is_not_served_and_leaves_nothing() {
        let place = tempfile::tempdir().expect("a directory");
        let room = Room::new(place.path().to_owned(), Vec::new(), Tool::at("braid", "no".into()));
        // Without the program it fails as well, and leaves nothing either.
        StorageDaemon::nbd(&room, "x", &place.path().join("none")).expect_err("no such file");
        assert_eq!(fs::read_dir(place.path()).expect("a directory").count(), 0);
    }
}
