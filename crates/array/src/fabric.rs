//! The fabric that connects processes: what a machine asks of it, and what it hears from it.
//!
//! A peer is a connection to another process. The connection carries messages, in order, and puts:
//! buffers written straight into the other side's arena, each announced there by 32 bits. Between
//! messages and puts, and among puts, no order is kept. A peer can put nothing until it is
//! admitted, and then only there.

use std::ops::Range;

use crate::{Buf, IoId, MemberId, Refusal};

/// A connection to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

impl PeerId {
    /// Connections that the fabric accepted have ids from here on; those that a machine asks for
    /// have ids of its own choice below.
    pub const FIRST_ACCEPTED: u32 = 1 << 31;
}

/// The longest message.
pub const MAX_MESSAGE_BYTES: usize = 8192;

/// Operations that a machine asks of the fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FabricOp {
    /// Connect to an address; answered by `Connected` or `Lost`.
    Connect {
        /// A new id.
        peer: PeerId,
        /// `HOST:PORT`.
        address: String,
    },
    /// Let the peer put into these bytes of our arena, after the connection stands. A put
    /// elsewhere, or earlier, does not land, and ends the connection. Once more changes where it
    /// may put from then on, but only over fabrics that do not tell the peer (see `Action::Use`).
    Admit {
        /// The peer.
        peer: PeerId,
        /// The window; cut off where the arena ends.
        window: Range<u64>,
    },
    /// End the connection when the peer's machine answers nothing for so long, rounded up to what
    /// the fabric can tell.
    BearSilence {
        /// The peer.
        peer: PeerId,
        /// In milliseconds.
        millis: u32,
    },
    /// Write a buffer into the peer's arena. Answered by `Event::Done` when the buffer may be
    /// reused; that says nothing of the other side.
    Put {
        /// Comes back with the answer.
        io: IoId,
        /// The peer.
        peer: PeerId,
        /// The buffer.
        from: Buf,
        /// Destination: a byte of the peer's arena.
        to: u64,
        /// Tells the peer what it is.
        imm: u32,
    },
    /// Send a message of at most [`MAX_MESSAGE_BYTES`].
    Send {
        /// The peer.
        peer: PeerId,
        /// The message.
        bytes: Vec<u8>,
    },
    /// Close the connection once what was sent is on its way. No event of this peer comes after
    /// this, except the answers to its puts.
    HangUp {
        /// The peer.
        peer: PeerId,
    },
    /// Close the connection at once: what was sent may not arrive. Its puts are answered soon, and
    /// no other event of this peer comes after this.
    Cut {
        /// The peer.
        peer: PeerId,
    },
}

/// Events that a machine hears from the fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FabricEvent {
    /// A peer has connected to us.
    Accepted {
        /// The peer.
        peer: PeerId,
        /// The array, by its id, to which the key that it has proved is limited, if it is.
        limit: Option<[u8; 16]>,
    },
    /// A `Connect` has succeeded.
    Connected {
        /// The peer.
        peer: PeerId,
    },
    /// A `Connect` has failed, or the connection is over. Its puts have been answered. Nothing
    /// follows.
    Lost {
        /// The peer.
        peer: PeerId,
        /// The reason, and the next step.
        why: Refusal,
    },
    /// A buffer of the peer's has arrived in our arena. Where, only the 32 bits can tell: RDMA
    /// hardware says neither where it put what, nor how much of it. The fabric has made sure that
    /// it lies in the window that the peer was admitted to, nothing more.
    Placed {
        /// The peer.
        peer: PeerId,
        /// The 32 bits by which the peer tells what it is.
        imm: u32,
    },
    /// A message.
    Message {
        /// The peer.
        peer: PeerId,
        /// The message.
        bytes: Vec<u8>,
    },
}

/// Operations that a machine asks of the place where volumes are kept. A volume is a member that
/// comes and goes by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeOp {
    /// Make one that reads as zeroes and open it; fails when there is one of that name.
    Create {
        /// Its name: letters, digits, `.`, `_`, `-`, no dot in front.
        name: String,
        /// Its size.
        bytes: u64,
    },
    /// Open one, alone.
    Open {
        /// Its name.
        name: String,
    },
    /// Give an open one another length. Only the first bytes stay, the rest reads as zeroes, and it
    /// ends with a tail. A power cut leaves it as it was, or as it is to be. Answered with its new
    /// size when that is durable.
    Lengthen {
        /// The volume.
        member: MemberId,
        /// The bytes that stay.
        kept_bytes: u64,
        /// Its new size.
        bytes: u64,
        /// Its last bytes.
        tail: Vec<u8>,
    },
    /// Close it. Answered when its descriptor is closed.
    Close {
        /// The volume.
        member: MemberId,
    },
    /// Close it and remove it for good.
    Delete {
        /// The volume.
        member: MemberId,
    },
}

/// Notes that a machine has kept besides its volumes: a few bytes by name, that survive a power
/// cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoteOp {
    /// Read all of a note. Answered by `Event::Loaded`, with no bytes when there is none; or by
    /// `Event::Done`, when it cannot be read.
    Read {
        /// Name of the note.
        name: String,
    },
    /// Write a part of a note, which is made if it is not there. Answered by `Event::Done` when it
    /// is durable.
    Write {
        /// Name of the note: one that a volume may have.
        name: String,
        /// First byte.
        at: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Remove a note. Answered by `Event::Done`: when it is gone for good, or cannot be removed, or
    /// may be there again after a power cut.
    Remove {
        /// Name of the note.
        name: String,
    },
}

/// An open volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The id for I/O on it.
    pub member: MemberId,
    /// Its size.
    pub bytes: u64,
}

/// Volumes and notes in the place where volumes are kept, and its room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Bytes that fit there in all.
    pub total_bytes: u64,
    /// Bytes that still do.
    pub free_bytes: u64,
    /// Of these, the ones that volumes may still take.
    pub promised_bytes: u64,
    /// Volumes in order of their names, and their sizes in bytes.
    pub volumes: Vec<(String, u64)>,
    /// Names of notes, in order.
    pub notes: Vec<String>,
    /// More volumes or notes follow, with names behind all of these.
    pub more: bool,
}
