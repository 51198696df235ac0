//! Mounts, agrees with the kernel on the protocol, and unmounts. Without root, fusermount3 mounts
//! and unmounts; it passes the device over a socket.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, IoSliceMut};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use super::proto::{FuseAnswer, FuseRequest, HEAD_BYTES, Operation, resend};

const DEVICE: &str = "/dev/fuse";
const FUSERMOUNT: &str = "fusermount3";
/// Variable that names the socket's descriptor to fusermount3: the standard input.
const SOCKET: (&str, &str) = ("_FUSE_COMMFD", "0");

/// Time within which the kernel has to send its first request. Normally the kernel does so at once.
const AGREED_WITHIN: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
/// The least that may be read into.
const READ_BYTES: usize = 64 << 10;

/// Mounts a file system that names `source` as its source. The returned device is non-blocking and
/// past the negotiation of the protocol: from then on it carries only requests of the mount's
/// users. With `others`, other users have access as modes of files permit. Without root,
/// /etc/fuse.conf has to allow that.
///
/// # Errors
/// When the system refuses; with the words of fusermount3 when that does.
pub fn attach(mountpoint: &Path, source: &str, others: bool) -> io::Result<OwnedFd> {
    let device = match mount_directly(mountpoint, source) {
        // Root alone may; and fusermount3, for others.
        Err(Errno::PERM | Errno::ACCESS) => mount_by_helper(mountpoint, source, others)?,
        device => device?,
    };
    match agree(&device) {
        Ok(()) => Ok(device),
        Err(error) => {
            let _ = detach(mountpoint);
            Err(error)
        }
    }
}

/// Takes over a device whose former server is gone while another process kept it open. The kernel
/// repeats the requests that the former server did not answer, so a write may be done twice.
///
/// # Errors
/// When the kernel does not support that; kernels from 6.9 on do.
pub fn resume(device: &OwnedFd) -> io::Result<()> {
    rustix::io::write(device, &resend())?;
    Ok(())
}

fn mount_directly(mountpoint: &Path, source: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let device = rustix::fs::open(DEVICE, flags, Mode::empty())?;
    let user = rustix::process::getuid().as_raw();
    let group = rustix::process::getgid().as_raw();
    let number = device.as_raw_fd();
    // The kernel checks the mode of the file: with `allow_other`, nobody else does. It is for the
    // kernel's own threads (a loop device), which are not the user who mounted.
    let options = "default_permissions,allow_other";
    let options = format!("fd={number},rootmode=40000,user_id={user},group_id={group},{options}");
    let options = CString::new(options).map_err(|_| Errno::INVAL)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(source, mountpoint, "fuse", flags, options.as_c_str())?;
    Ok(device)
}

/// Mounts by fusermount3, for users other than root. Only that user has access to the mount, unless
/// it is for `others` too.
pub(super) fn mount_by_helper(
    mountpoint: &Path,
    source: &str,
    others: bool,
) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut helper = Command::new(FUSERMOUNT);
    let others = if others { ",allow_other" } else { "" };
    let options = format!("fsname={source},default_permissions{others}");
    helper.arg("-o").arg(options).arg("--").arg(mountpoint);
    helper.env(SOCKET.0, SOCKET.1).stdin(OwnedFd::from(theirs));
    let output = helper.output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().last().unwrap_or("fusermount3 does not say why");
        return Err(io::Error::other(said.to_owned()));
    }
    let device = receive(&ours)?;
    rustix::io::ioctl_fionbio(&device, true)?;
    Ok(device)
}

/// The descriptor that was sent on a socket.
fn receive(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut sent = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let into = &mut [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    rustix::net::recvmsg(socket, into, &mut sent, flags)?;
    let descriptors = sent.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let device = descriptors.flatten().next();
    device.ok_or_else(|| io::Error::other("fusermount3 handed over no device"))
}

/// Answers the first request, before which the kernel sends no other.
fn agree(device: &OwnedFd) -> io::Result<()> {
    let mut file = File::from(device.try_clone()?);
    let mut readable = [PollFd::new(&file, PollFlags::IN)];
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut readable, Some(&AGREED_WITHIN)))?;
    let mut bytes = vec![0; READ_BYTES];
    let len = file.read(&mut bytes)?;
    let (head, rest) = bytes[..len].split_at(len.min(HEAD_BYTES));
    let request = FuseRequest::decode(head, rest);
    let Some(FuseRequest {
        unique, operation: Operation::Init { version, readahead, flags }, ..
    }) = request
    else {
        return Err(io::Error::other("the kernel speaks another protocol"));
    };
    let mut out = Vec::new();
    let answer = FuseAnswer::to_init(version, readahead, flags);
    answer.as_ref().unwrap_or(&FuseAnswer::Error(Errno::PROTO)).encode(unique, &mut out);
    file.write_all(&out)?;
    let (major, minor) = version;
    let old = || io::Error::other(format!("the kernel's FUSE {major}.{minor} is too old"));
    answer.map(drop).ok_or_else(old)
}

/// Takes a mount out of sight even if it is in use.
pub(super) fn detach(mountpoint: &Path) -> Result<(), Errno> {
    match rustix::mount::unmount(mountpoint, UnmountFlags::DETACH) {
        Err(Errno::PERM) => {
            run(Command::new(FUSERMOUNT).args(["-u", "-q", "-z", "--"]).arg(mountpoint))
        }
        result => result,
    }
}

/// Time for which a mount may be in use before it counts as busy. Programs that look at each new
/// device (udev) and children between fork and exec are gone in a moment.
const BUSY_PATIENCE: Duration = Duration::from_secs(1);

/// Unmounts. Gone already is as good.
pub(super) fn unmount(mountpoint: &Path) -> Result<(), Errno> {
    let deadline = Instant::now() + BUSY_PATIENCE;
    loop {
        match try_unmount(mountpoint) {
            Err(Errno::BUSY) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            result => return result,
        }
    }
}

/// Unmounts, with fusermount3's help where the user may not.
fn try_unmount(mountpoint: &Path) -> Result<(), Errno> {
    match rustix::mount::unmount(mountpoint, UnmountFlags::empty()) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(Errno::PERM) => run(Command::new(FUSERMOUNT).args(["-u", "-q", "--"]).arg(mountpoint)),
        Err(error) => Err(error),
    }
}

fn run(command: &mut Command) -> Result<(), Errno> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        // It says why on stderr only; in use is the reason that is left.
        Ok(_) => Err(Errno::BUSY),
        Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    }
}
