//! The connection on which a front end is told of changes. The crate `vhost` has no message for a
//! change of the configuration space, and does not give the connection away once it has read it:
//! so the message that brings it is read here.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::io::IoSliceMut;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send,
};

/// The header of a message: u32 request, u32 flags, u32 bytes that follow.
const HEADER_BYTES: usize = 12;
/// `VHOST_USER_SET_BACKEND_REQ_FD`.
const GIVE_CHANNEL: u32 = 21;
/// `VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`.
const CONFIG_CHANGE: u32 = 2;
/// Flags: the version, an answer, and the wish for one.
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// A connection from a front end, and whether the front end waits for an answer.
#[derive(Debug)]
pub(super) struct GivenChannel {
    pub(super) channel: OwnedFd,
    pub(super) asks: bool,
}

/// Takes the next message of a front end if it brings such a connection. Waits for a message.
///
/// # Errors
/// When the message brings none after all.
pub(super) fn take(stream: &UnixStream) -> io::Result<Option<GivenChannel>> {
    let mut header = [0; HEADER_BYTES];
    // Whoever reads on finds the end of a connection, and says so.
    let there = recv(stream, &mut header, RecvFlags::PEEK).map_or(0, |(_, there)| there);
    if there < HEADER_BYTES || word(&header, 0) != GIVE_CHANNEL {
        return Ok(None);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut sent = RecvAncillaryBuffer::new(&mut space);
    let into = &mut [IoSliceMut::new(&mut header)];
    recvmsg(stream, into, &mut sent, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = sent.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let channel = descriptors.flatten().next();
    let channel = channel.ok_or_else(|| io::Error::other("no connection came with its message"))?;
    Ok(Some(GivenChannel { channel, asks: word(&header, 4) & NEED_REPLY != 0 }))
}

/// Answers that the connection was taken.
pub(super) fn acknowledge(stream: &UnixStream) -> io::Result<()> {
    let answer = [header(GIVE_CHANNEL, REPLY, 8).as_slice(), &[0; 8]].concat();
    send(stream, &answer, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Tells a front end, without waiting, that the configuration space has changed.
pub(super) fn tell_of_change(channel: &OwnedFd) {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    // A front end that reads none of its messages has enough of them.
    let _ = send(channel, &header(CONFIG_CHANGE, 0, 0), flags);
}

fn header(request: u32, flags: u32, bytes: u32) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let words = [request, flags | VERSION, bytes];
    for (place, word) in header.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    header
}

fn word(header: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"))
}
