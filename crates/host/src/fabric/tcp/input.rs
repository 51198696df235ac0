//! Receiving on a connection: frames are cut out of the stream, and puts go straight to their
//! places.

use std::collections::VecDeque;
use std::ops::Range;

use braid_array::Buf;
use braid_array::action::Event;
use braid_array::fabric::{FabricEvent, MAX_MESSAGE_BYTES, PeerId};

use crate::arena::{FabricMemory, Memory};
use crate::fabric::frame::{FrameError, FrameHeader, HEADER_BYTES};
use crate::fabric::seal::{BrokenSlice, SEAL_BYTES, Seal};
use crate::fabric::slices::SliceSeal;

/// A put of so much is small.
const SMALL_BYTES: u32 = 8 << 10;

#[derive(Debug)]
pub(super) struct Input {
    /// Buffer for headers and messages.
    room: Buf,
    /// Seal of messages.
    seal: Option<Seal>,
    /// Seal of puts.
    slices: Option<SliceSeal>,
    /// Window in the arena that the peer may put into.
    window: Range<u64>,
    /// Bytes at the front of `room` that begin a frame which is not complete.
    kept: u32,
    /// The missing rest of a put of which a part has arrived. Nothing is kept then.
    put: Option<Put>,
    /// A sealed put that has arrived; its tag comes next.
    sealed: Option<FrameHeader>,
}

#[derive(Clone, Copy, Debug)]
struct Put {
    rest: Buf,
    header: FrameHeader,
    /// Small, so more small ones may follow.
    small: bool,
}

impl Input {
    pub(super) const fn new(room: Buf, seal: Option<Seal>, slices: Option<SliceSeal>) -> Self {
        Self { room, seal, slices, window: 0..0, kept: 0, put: None, sealed: None }
    }

    pub(super) const fn room(&self) -> Buf {
        self.room
    }

    /// Lets the peer put into this window from now on.
    pub(super) fn admit(&mut self, window: Range<u64>) {
        self.window = window;
    }

    /// Returns the buffers for the next receive: the rest of a put and the header after it, or
    /// whatever fits into the room.
    pub(super) fn next(&self) -> [Buf; 2] {
        match self.put {
            // Moving a few small puts out of the room is cheaper than a receive for each.
            Some(put) if put.small => [put.rest, self.room],
            // No more than the header, because what follows is probably a put as well, and bytes
            // of puts in the room have to be moved.
            Some(put) if self.slices.is_some() => {
                [put.rest, self.room.slice(0, (SEAL_BYTES + HEADER_BYTES) as u32)]
            }
            Some(put) => [put.rest, self.room.slice(0, HEADER_BYTES as u32)],
            None => [self.room.slice(self.kept, self.room.len - self.kept), Buf::default()],
        }
    }

    /// Drops all further input. Returns true when the driver may be receiving into the arena.
    pub(super) fn abandon(&mut self) -> bool {
        self.kept = 0;
        self.put.take().is_some()
    }

    /// Takes in bytes received into the buffers of `next`.
    pub(super) fn take_in(
        &mut self,
        place: &FabricMemory,
        peer: PeerId,
        bytes: u32,
        events: &mut VecDeque<Event>,
    ) -> Result<(), String> {
        let mut bytes = bytes;
        if let Some(Put { rest, header, small }) = self.put.take() {
            let moved = bytes.min(rest.len);
            bytes -= moved;
            let rest = rest.slice(moved, rest.len - moved);
            self.proceed(Put { rest, header, small }, peer, events);
        }
        let end = self.kept + bytes;
        let mut start = 0;
        while self.put.is_none() {
            let there = self.room.slice(start, end - start);
            let Some(taken) = self.frame(place, peer, there, events)? else { break };
            start += taken;
        }
        self.kept = if self.put.is_some() { 0 } else { end - start };
        if start > 0 && self.kept > 0 {
            let from = self.room.slice(start, self.kept);
            let to = self.room.slice(0, self.kept);
            copy(&place.memory, from, to);
        }
        Ok(())
    }

    fn admits(&self, to: u64, bytes: u32) -> bool {
        let end = to.checked_add(u64::from(bytes));
        self.window.start <= to && end.is_some_and(|end| end <= self.window.end)
    }

    /// Takes in the frame at the front of `there`: how long it is in there, or `None` when some of
    /// it is missing.
    fn frame(
        &mut self,
        place: &FabricMemory,
        peer: PeerId,
        there: Buf,
        events: &mut VecDeque<Event>,
    ) -> Result<Option<u32>, String> {
        const HEADER: u32 = HEADER_BYTES as u32;
        if let Some(header) = self.sealed {
            return self.open_put(place, peer, (header, there), events);
        }
        if there.len < HEADER {
            return Ok(None);
        }
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(look(&place.memory, there.slice(0, HEADER)));
        let header = FrameHeader::decode(&header).map_err(|error| error.to_string())?;
        let payload = there.slice(HEADER, there.len - HEADER);
        match header {
            FrameHeader::Message { bytes } if payload.len < bytes => Ok(None),
            FrameHeader::Message { bytes } => {
                let taken = HEADER + bytes;
                let said = look(&place.memory, payload.slice(0, bytes));
                let bytes = match &mut self.seal {
                    Some(seal) => seal.open(said).ok(),
                    None => Some(said.to_vec()),
                };
                let fits = |bytes: &Vec<u8>| (1..=MAX_MESSAGE_BYTES).contains(&bytes.len());
                let bytes = bytes.filter(fits).ok_or(FrameError).map_err(|e| e.to_string())?;
                events.push_back(Event::Fabric(FabricEvent::Message { peer, bytes }));
                Ok(Some(taken))
            }
            FrameHeader::Put { bytes, to, .. } if !self.admits(to, bytes) => {
                Err(format!("it put {bytes} bytes at {to}, where it was not admitted"))
            }
            FrameHeader::Put { bytes, to, .. } => {
                let target = Buf { offset: to, len: bytes };
                let moved = payload.len.min(bytes);
                copy(&place.memory, payload.slice(0, moved), target.slice(0, moved));
                let rest = target.slice(moved, bytes - moved);
                self.proceed(Put { rest, header, small: bytes <= SMALL_BYTES }, peer, events);
                Ok(Some(HEADER + moved))
            }
        }
    }

    /// A part of a put has arrived, perhaps the last.
    fn proceed(&mut self, put: Put, peer: PeerId, events: &mut VecDeque<Event>) {
        if put.rest.len > 0 {
            self.put = Some(put);
        } else if self.slices.is_some() {
            self.sealed = Some(put.header);
        } else if let FrameHeader::Put { imm, .. } = put.header {
            events.push_back(Event::Fabric(FabricEvent::Placed { peer, imm }));
        }
    }

    /// Opens a put that has arrived, once all of its seal has: how long that is.
    fn open_put(
        &mut self,
        place: &FabricMemory,
        peer: PeerId,
        (header, there): (FrameHeader, Buf),
        events: &mut VecDeque<Event>,
    ) -> Result<Option<u32>, String> {
        const SEAL: u32 = SEAL_BYTES as u32;
        let (Some(seal), FrameHeader::Put { bytes, to, imm }) = (&mut self.slices, header) else {
            return Err(FrameError.to_string());
        };
        if there.len < SEAL {
            return Ok(None);
        }
        let mut tag = [0; SEAL_BYTES];
        tag.copy_from_slice(look(&place.memory, there.slice(0, SEAL)));
        // SAFETY: `frame` has checked that the peer may put there, where nobody else writes, and
        // nobody looks before it is told.
        let slice = unsafe { place.memory.bytes_mut(Buf { offset: to, len: bytes }) };
        seal.open(&header.encode(), slice, tag).map_err(|BrokenSlice| FrameError.to_string())?;
        self.sealed = None;
        events.push_back(Event::Fabric(FabricEvent::Placed { peer, imm }));
        Ok(Some(SEAL))
    }
}

/// A range of the room.
fn look(memory: &Memory, buf: Buf) -> &[u8] {
    // SAFETY: the room is the connection's own, no peer can put there, and while `take_in` looks
    // at it nothing is received into it. Whoever looks lets go before anything is moved.
    unsafe { memory.bytes(buf) }
}

/// Moves a range of the room.
fn copy(memory: &Memory, from: Buf, to: Buf) {
    debug_assert_eq!(from.len, to.len);
    // SAFETY: `address` checks both ranges. The source is the connection's own. The target is as
    // well, or it is where the peer may put, on which no reference is held meanwhile: this thread
    // is the only one that makes any, and is here.
    unsafe {
        std::ptr::copy(memory.address(from), memory.address(to), from.len as usize);
    }
}
