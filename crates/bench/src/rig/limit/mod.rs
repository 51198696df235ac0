//! Disks with a limit: files and devices, shown again as files whose throughput is limited, each by
//! itself and all together. A fast machine thus measures like a slow one.
//!
//! Each disk serves its requests one after the other, reads and writes alike, through the page
//! cache of the file or device below, which has to be faster than the limit. Each request passes
//! the limits of its disk and of the host. A request that continues at the end of the previous one
//! costs only its bytes, as on disks and on volumes that merge requests.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;

use braid_host::export::fuse::proto::{FuseRequest, HEAD_BYTES, MAX_TRANSFER_BYTES};
use braid_host::export::fuse::{FileOperation, FileOutcome, Tree, attach};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::device::need_root;
use super::leftovers::{Guard, Leftover};
use super::room::{Room, file_name};
use crate::failure::{About, Failure, system_error};
use disk::{Host, Reply, Request, length};

mod disk;
mod meter;
#[cfg(test)]
mod tests;

pub use meter::Rate;

/// Limits of disks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Through each of them.
    pub disk: Rate,
    /// Through all of them together.
    pub host: Rate,
}

/// Shows files or devices again as files with a limit, until the guards go; the name is unique
/// among those that stand at the same time.
pub(super) fn limited(
    room: &Room,
    name: &str,
    files: &[PathBuf],
    limits: Limits,
) -> Result<(Vec<PathBuf>, [Guard; 2]), Failure> {
    need_root("limited disks")?;
    let directory = room.scratch.join(format!("{}.limited", file_name(name)));
    let keep = Guard::new(Leftover::EmptyDirectory(directory.clone()));
    fs::create_dir_all(&directory).about(directory.display(), "name another --dir")?;
    let host = Host::new(limits.host);
    let mut disks = Vec::new();
    let mut named = Vec::new();
    for (number, file) in files.iter().enumerate() {
        let opened = open(file).and_then(|(file, bytes)| {
            named.push((disk_name(number), bytes));
            disk::start(file, limits.disk, host.clone())
        });
        disks.push(opened.about(file.display(), "name another member")?);
    }
    let mount = Guard::new(Leftover::Mount(directory.clone()));
    let served = attach(&directory, "braid-bench", false)
        .and_then(|device| serve(device, Tree::new(named, false), disks));
    served.map_err(|error| {
        let reason = format!("FUSE cannot mount them: {}", system_error(&error));
        Failure::gap("limited disks", reason, "see that /dev/fuse exists")
    })?;
    let paths = (0..files.len()).map(|number| directory.join(disk_name(number)));
    // The disks end when nothing is mounted any more.
    Ok((paths.collect(), [mount, keep]))
}

fn disk_name(number: usize) -> String {
    format!("d{number}")
}

/// A file or device, and how long it is.
fn open(path: &PathBuf) -> io::Result<(File, u64)> {
    let mut file = File::options().read(true).write(true).open(path)?;
    let bytes = file.seek(SeekFrom::End(0))?;
    Ok((file, bytes))
}

/// Serves what is mounted on a thread of its own, until nothing is any more: the files of the tree
/// are these disks.
fn serve(device: OwnedFd, tree: Tree, disks: Vec<Sender<Request>>) -> io::Result<()> {
    let device = Arc::new(File::from(device));
    let serve = move || {
        let mut bytes = vec![0; HEAD_BYTES + MAX_TRANSFER_BYTES as usize];
        while let Some(len) = next(&device, &mut bytes) {
            let (head, rest) = bytes[..len].split_at(len.min(HEAD_BYTES));
            let Some(request) = FuseRequest::decode(head, rest) else { continue };
            let reply = Reply { device: Arc::clone(&device), unique: request.unique };
            match tree.take(&request) {
                FileOutcome::Nothing => {}
                FileOutcome::Answer(answer) => reply.give(&answer, &[]),
                FileOutcome::Ask { file, ask } => {
                    let data = match &ask {
                        FileOperation::Write { range, .. } => rest[..length(range)].to_vec(),
                        _ => Vec::new(),
                    };
                    // The thread lives as long as its queue does.
                    let _ = disks[file].send(Request { ask, data, reply });
                }
            }
        }
    };
    thread::Builder::new().name("fuse".into()).spawn(serve).map(drop)
}

/// The next request: how long it is. `None` when there are no more.
fn next(device: &File, bytes: &mut [u8]) -> Option<usize> {
    loop {
        match rustix::io::read(device, &mut *bytes) {
            Ok(len) => return Some(len),
            Err(Errno::AGAIN) => {
                // What goes wrong here the next attempt tells.
                let _ = poll(&mut [PollFd::new(device, PollFlags::IN)], None);
            }
            // It was taken back; or it does not matter.
            Err(Errno::NOENT | Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}
