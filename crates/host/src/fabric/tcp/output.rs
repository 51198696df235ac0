//! Sending on a connection: frames are gathered into messages to the kernel.

use std::collections::VecDeque;

use braid_array::{Buf, IoId};

use crate::arena::FabricMemory;
use crate::driver::OutgoingBytes;
use crate::fabric::frame::FrameHeader;
use crate::fabric::seal::Seal;
use crate::fabric::slices::SliceSeal;

/// A message to the kernel is full when it holds so much.
const FULL_BYTES: u64 = 1 << 20;

/// Or so many frames; each may be two pieces, and the kernel takes 1024.
const FULL_FRAMES: usize = 500;

/// Messages a peer may leave unread before it is hung up on.
const MAX_QUEUED_BYTES: usize = 16 << 20;

/// Limit on queued messages of an accepted peer. Above it nothing more is received from the peer,
/// until half of them is sent.
const HELD_BACK_BYTES: usize = 64 << 10;

/// A message in the queue, besides its bytes.
const FRAME_BYTES: usize = size_of::<Frame>();

/// A frame to be sent.
#[derive(Debug)]
pub(super) enum Frame {
    Message(Vec<u8>),
    Put { io: IoId, from: Buf, to: u64, imm: u32 },
}

#[derive(Debug)]
pub(super) struct Output {
    /// Seal of messages.
    seal: Option<Seal>,
    /// Seal of puts.
    slices: Option<SliceSeal>,
    queue: VecDeque<Frame>,
    /// Bytes of messages in the queue, and the number of puts.
    queued_bytes: usize,
    queued_puts: usize,
    /// The puts being sent.
    under_way: Vec<IoId>,
    /// Memory for the next message.
    spare: Box<OutgoingBytes>,
}

impl Output {
    pub(super) fn new(seal: Option<Seal>, slices: Option<SliceSeal>) -> Self {
        let queue = VecDeque::new();
        let under_way = Vec::new();
        let spare = Box::default();
        Self { seal, slices, queue, queued_bytes: 0, queued_puts: 0, under_way, spare }
    }

    pub(super) const fn seals_slices(&self) -> bool {
        self.slices.is_some()
    }

    /// Returns whether the peer leaves so much unread that nothing more should be received from it.
    pub(super) const fn is_deep(&self) -> bool {
        self.queued_bytes > HELD_BACK_BYTES
    }

    /// Returns whether the peer has taken enough to be received from again.
    pub(super) const fn is_shallow(&self) -> bool {
        self.queued_bytes <= HELD_BACK_BYTES / 2
    }

    /// Appends a frame.
    pub(super) fn enqueue(&mut self, frame: Frame) -> Result<(), String> {
        match &frame {
            Frame::Message(bytes) => self.queued_bytes += bytes.len() + FRAME_BYTES,
            Frame::Put { .. } => self.queued_puts += 1,
        }
        self.queue.push_back(frame);
        if self.queued_bytes > MAX_QUEUED_BYTES {
            return Err("it does not take what it is sent".into());
        }
        Ok(())
    }

    /// The next message to the kernel, if there is anything to send.
    pub(super) fn next(&mut self, place: &FabricMemory) -> Option<Box<OutgoingBytes>> {
        let mut message = std::mem::take(&mut self.spare);
        message.clear();
        let mut bytes = 0;
        let mut frames = 0;
        while bytes < FULL_BYTES && frames < FULL_FRAMES {
            let Some(frame) = self.queue.pop_front() else { break };
            frames += 1;
            match frame {
                Frame::Message(payload) => {
                    self.queued_bytes -= payload.len() + FRAME_BYTES;
                    let payload = match &mut self.seal {
                        Some(seal) => seal.close(&payload),
                        None => payload,
                    };
                    let header = FrameHeader::Message { bytes: payload.len() as u32 };
                    message.bytes.extend(header.encode());
                    message.bytes.extend(&payload);
                    bytes += payload.len() as u64;
                }
                Frame::Put { io, from, to, imm } => {
                    self.queued_puts -= 1;
                    let header = FrameHeader::Put { bytes: from.len, to, imm };
                    message.bytes.extend(header.encode());
                    match &mut self.slices {
                        Some(seal) => append_sealed(seal, place, header, from, &mut message.bytes),
                        None => message.push(from),
                    }
                    self.under_way.push(io);
                    bytes += u64::from(from.len);
                }
            }
        }
        if frames == 0 {
            self.spare = message;
            return None;
        }
        Some(message)
    }

    /// The message was sent, or not: the puts in it.
    pub(super) fn sent(&mut self, message: Option<Box<OutgoingBytes>>) -> Vec<IoId> {
        if let Some(message) = message {
            self.spare = message;
        }
        std::mem::take(&mut self.under_way)
    }

    pub(super) const fn has_puts(&self) -> bool {
        self.queued_puts > 0
    }

    /// Returns whether nothing is queued.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The puts that were never sent.
    pub(super) fn unsent(self) -> Vec<IoId> {
        let put = |frame| if let Frame::Put { io, .. } = frame { Some(io) } else { None };
        self.queue.into_iter().filter_map(put).collect()
    }
}

/// Appends a slice as it goes over the network: it is sealed where it will be sent from, for others
/// may need it as it is.
fn append_sealed(
    seal: &mut SliceSeal,
    place: &FabricMemory,
    header: FrameHeader,
    from: Buf,
    bytes: &mut Vec<u8>,
) {
    let start = bytes.len();
    // SAFETY: whoever puts holds the buffer, and nobody writes to it until the put is answered.
    bytes.extend_from_slice(unsafe { place.memory.bytes(from) });
    let tag = seal.close(&header.encode(), &mut bytes[start..]);
    bytes.extend(tag);
}
