//! Descriptors that the service manager keeps for the case that this process dies, and hands to the
//! next one (systemd's "FILE_DESCRIPTOR_STORE"). Where there is no manager nothing is kept.

use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::io::FdFlags;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};

/// The first descriptor that the manager hands over (`sd_listen_fds(3)`).
const FIRST: RawFd = 3;
/// Variable with the id of the process that the descriptors are for.
const PROCESS: &str = "LISTEN_PID";

/// Gives the manager a descriptor to keep, under a name of at most 255 letters without a colon.
pub(crate) fn keep(name: &str, descriptor: &OwnedFd) {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET") {
        // Left to be kept although it is at its end, as a device is whose process has died.
        let words = format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0");
        let _ = send(&socket, &words, descriptor.as_fd());
    }
}

/// Makes the manager drop the descriptor of this name.
pub(crate) fn forget(name: &str) {
    super::say(&format!("FDSTOREREMOVE=1\nFDNAME={name}"));
}

fn send(socket: &OsStr, words: &str, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name)?,
        path => SocketAddrUnix::new(path)?,
    };
    let flags = SocketFlags::CLOEXEC;
    let from = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    let descriptors = [descriptor];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    rights.push(SendAncillaryMessage::ScmRights(&descriptors));
    let words = [IoSlice::new(words.as_bytes())];
    rustix::net::sendmsg_addr(&from, &address, &words, &mut rights, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes a descriptor of a dead process that the manager has kept. The first caller gets it.
pub(crate) fn take(name: &str) -> Option<OwnedFd> {
    let mut kept = kept();
    let at = kept.iter().position(|(known, _)| known == name)?;
    Some(kept.swap_remove(at).1)
}

fn kept() -> MutexGuard<'static, Vec<(String, OwnedFd)>> {
    static KEPT: OnceLock<Mutex<Vec<(String, OwnedFd)>>> = OnceLock::new();
    let kept = KEPT.get_or_init(|| Mutex::new(handed_over()));
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the descriptors that the manager has handed to this process.
fn handed_over() -> Vec<(String, OwnedFd)> {
    let variable = |name: &str| std::env::var(name).ok();
    let is_ours = variable(PROCESS).is_some_and(|pid| pid == std::process::id().to_string());
    let names = if is_ours { variable("LISTEN_FDNAMES") } else { None };
    let Some(names) = names else { return Vec::new() };
    let numbered = (FIRST..).zip(names.split(':'));
    let owned = numbered.filter_map(|(number, name)| {
        // SAFETY: it is only looked at; one that is not open is an error.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        rustix::io::fcntl_setfd(descriptor, FdFlags::CLOEXEC).ok()?;
        // SAFETY: the manager left it for this process, which asks once.
        Some((name.to_owned(), unsafe { OwnedFd::from_raw_fd(number) }))
    });
    owned.collect()
}

/// Returns whether this variable belongs to the manager's hand-over. Another program in this
/// process was handed nothing.
pub(crate) fn is_its(variable: &OsStr) -> bool {
    variable == PROCESS
}
