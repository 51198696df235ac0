//! Operations on sockets and devices as plain calls. Each does as much as needs no waiting.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use braid_array::Buf;
use rustix::io::Errno;

use crate::arena::Memory;
use crate::driver::OutgoingBytes;

/// Receives available bytes into one buffer after the other.
pub(super) fn receive(memory: &Memory, socket: &OwnedFd, bufs: &[Buf; 2]) -> Result<u32, Errno> {
    let list = bufs
        .map(|buf| libc::iovec { iov_base: memory.address(buf).cast(), iov_len: buf.len as usize });
    // SAFETY: zeroes are valid for a msghdr, which is integers and pointers.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = list.as_ptr().cast_mut();
    message.msg_iovlen = list.len() as _;
    // SAFETY: the header points to the list, and the list to ranges of the arena this operation
    // holds.
    let moved = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    moved_or_error(moved)
}

/// Takes a message off a device.
pub(super) fn take(memory: &Memory, device: &OwnedFd, bufs: &[Buf; 2]) -> Result<u32, Errno> {
    let list = bufs
        .map(|buf| libc::iovec { iov_base: memory.address(buf).cast(), iov_len: buf.len as usize });
    // SAFETY: the list is two ranges of the arena, which this operation holds.
    moved_or_error(unsafe { libc::readv(device.as_raw_fd(), list.as_ptr(), 2) })
}

/// Gives a device a message.
pub(super) fn give(
    memory: &Memory,
    device: &OwnedFd,
    outgoing: &mut OutgoingBytes,
) -> Result<u32, Errno> {
    let mut list = Vec::new();
    outgoing.fill(memory, 0, &mut list);
    let count = list.len() as libc::c_int;
    // SAFETY: the list is bytes of the message and ranges of the arena that this operation holds.
    moved_or_error(unsafe { libc::writev(device.as_raw_fd(), list.as_ptr(), count) })
}

/// Sends the rest of a message, as much as can be sent now.
pub(super) fn send(
    memory: &Memory,
    socket: &OwnedFd,
    outgoing: &mut OutgoingBytes,
    sent: u64,
) -> Result<u32, Errno> {
    let mut list = Vec::new();
    outgoing.fill(memory, sent, &mut list);
    // SAFETY: zeroes are valid for a msghdr, which is integers and pointers.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = list.as_mut_ptr();
    message.msg_iovlen = list.len() as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the header points to the list, and the list to bytes of the message and of the
    // arena that this operation holds.
    moved_or_error(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) })
}

fn moved_or_error(moved: isize) -> Result<u32, Errno> {
    u32::try_from(moved).map_err(|_| {
        let error = io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::IO)
    })
}
