//! The kernel's requests, handed to the disks they are for.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use braid_host::export::fuse::proto::{FuseRequest, HEAD_BYTES, MAX_TRANSFER_BYTES};
use braid_host::export::fuse::{FileOperation, FileOutcome, Tree};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::disk::Disk;
use super::reply::Reply;

/// Serves what is mounted on a thread of its own, until nothing is any more: the files of the tree
/// are these disks.
pub(super) fn serve(device: OwnedFd, tree: Tree, disks: Vec<Disk>) -> io::Result<()> {
    let device = Arc::new(std::fs::File::from(device));
    let serve = move || {
        let mut bytes = vec![0; HEAD_BYTES + MAX_TRANSFER_BYTES as usize];
        while let Some(len) = next(&device, &mut bytes) {
            let (head, rest) = bytes[..len].split_at(len.min(HEAD_BYTES));
            let Some(request) = FuseRequest::decode(head, rest) else { continue };
            let reply = Reply { device: Arc::clone(&device), unique: request.unique };
            match tree.take(&request) {
                FileOutcome::Nothing => {}
                FileOutcome::Answer(answer) => reply.give(&answer, &[]),
                FileOutcome::Ask { file, ask } => hand_over(&disks[file], ask, rest, reply),
            }
        }
    };
    thread::Builder::new().name("fuse".into()).spawn(serve).map(drop)
}

fn hand_over(disk: &Disk, ask: FileOperation, data: &[u8], reply: Reply) {
    let len = |range: &Range<u64>| (range.end - range.start) as usize;
    match ask {
        FileOperation::Read(range) => disk.read(range.start, len(&range), reply),
        FileOperation::Write { range, .. } => {
            disk.write(range.start, data[..len(&range)].to_vec(), reply);
        }
        FileOperation::Flush => disk.flush(reply),
        FileOperation::Zero { range, .. } => disk.discard(range, reply),
    }
}

/// The next request: how long it is. `None` when there are no more.
fn next(device: &std::fs::File, bytes: &mut [u8]) -> Option<usize> {
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
