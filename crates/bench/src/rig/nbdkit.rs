//! A file or memory served by nbdkit over NBD, and that as a file again over FUSE: what an array of
//! Braid's is when it is served so, without the array.

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

/// Until something is served.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

/// A server of one file, which nbdkit reads and writes through the page cache, or of memory.
#[derive(Debug)]
pub struct Nbdkit {
    child: Child,
    socket: PathBuf,
    _directory: Guard,
}

/// What such a server serves, as a file.
#[derive(Debug)]
pub struct NbdFuse {
    child: Child,
    file: PathBuf,
    // In this order: a directory goes when nothing is mounted on it any more.
    mount: Option<Guard>,
    _directory: Guard,
}

impl Nbdkit {
    /// Serves a file or device; the name is unique among those served at the same time.
    pub fn serve(room: &Room, name: &str, file: &Path) -> Result<Self, Failure> {
        Self::start(room, name, &["file", &file.display().to_string()])
    }

    /// Serves so much memory of its own.
    pub fn memory(room: &Room, name: &str, bytes: u64) -> Result<Self, Failure> {
        Self::start(room, name, &["memory", &bytes.to_string()])
    }

    fn start(room: &Room, name: &str, plugin: &[&str]) -> Result<Self, Failure> {
        let nbdkit = Tool::find("nbdkit", "nbdkit")?;
        let directory = room.scratch.join(format!("{}.nbdkit", file_name(name)));
        let system = |error| Failure::system(directory.display(), &error, "name another --dir");
        let guard = Guard::new(Leftover::Directory(directory.clone()));
        fs::create_dir_all(&directory).map_err(system)?;
        let socket = directory.join("nbd");
        let log = fs::File::create(directory.join("log")).map_err(system)?;
        let mut command = nbdkit.command();
        command.args(["--foreground", "--unix"]).arg(&socket).args(plugin);
        let child = command.stdout(Stdio::null()).stderr(log).spawn().map_err(system)?;
        let mut served = Self { child, socket, _directory: guard };
        let ready = |served: &Self| UnixStream::connect(&served.socket).is_ok();
        if wait(|| (ready(&served), served.child.try_wait().is_ok_and(|end| end.is_none()))) {
            return Ok(served);
        }
        let said = fs::read_to_string(directory.join("log")).unwrap_or_default();
        let reason = format!("it does not serve {}: '{}'", plugin.join(" "), said.trim());
        Err(Failure::refused("nbdkit", reason, "see what it says"))
    }

    /// Where it is served.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// The process that serves it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

impl NbdFuse {
    /// Mounts what is served.
    pub fn mount(room: &Room, name: &str, served: &Nbdkit) -> Result<Self, Failure> {
        let nbdfuse = Tool::find("nbdfuse", "nbdfuse")?;
        let directory = room.scratch.join(format!("{}.nbdfuse", file_name(name)));
        let system = |error| Failure::system(directory.display(), &error, "name another --dir");
        let keep = Guard::new(Leftover::EmptyDirectory(directory.clone()));
        fs::create_dir_all(&directory).map_err(system)?;
        let mount = Guard::new(Leftover::Mount(directory.clone()));
        let file = directory.join("disk");
        let mut command = nbdfuse.command();
        command.arg(&file).arg(served.uri()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(system)?;
        let mut mounted = Self { child, file, mount: Some(mount), _directory: keep };
        if wait(|| (mounted.file.exists(), mounted.child.try_wait().is_ok_and(|end| end.is_none())))
        {
            return Ok(mounted);
        }
        Err(Failure::refused("nbdfuse", "it does not mount what is served", "see that FUSE works"))
    }

    /// What is served.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }
}

impl Drop for NbdFuse {
    fn drop(&mut self) {
        // It ends when nothing of it is mounted any more.
        drop(self.mount.take());
        end(&mut self.child);
    }
}

/// Until it is ready, or no longer running, or it takes too long: whether it is ready.
fn wait(mut ready_and_running: impl FnMut() -> (bool, bool)) -> bool {
    let until = Instant::now() + PATIENCE;
    loop {
        let (ready, running) = ready_and_running();
        if ready || !running || Instant::now() > until {
            return ready;
        }
        thread::sleep(POLL);
    }
}

fn end(child: &mut Child) {
    // One that has ended already needs no more than to be waited for.
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_not_served_and_leaves_nothing() {
        let place = tempfile::tempdir().expect("a directory");
        let room = Room::new(place.path().to_owned(), Vec::new(), Tool::at("braid", "no".into()));
        // Without nbdkit it fails as well, and leaves nothing either.
        Nbdkit::serve(&room, "x", &place.path().join("none")).expect_err("no such file");
        assert_eq!(fs::read_dir(place.path()).expect("a directory").count(), 0);
    }
}
