//! Reads: from the volume into a slot, from there into the client's arena, all of it or its digest.
//! And copies: from a slot here to one of the node that is to take this one's place, and from that
//! into the store when the client says where.

use braid_array::fabric::PeerId;
use braid_array::{IoOp, Refusal, SECTOR_BYTES};

use super::seat::Seat;
use super::slot::{CopySlot, ReadRequest, ReadSlot, StoreCopied, WantedForm};
use crate::digest::{UNIT_BYTES, digest, digest_bytes};
use crate::ids::Slot;
use crate::node::ids::{Violation, within};
use crate::node::out::{Flight, NodeOut};
use crate::wire::Message;

/// The slots for reads of a pipeline. Each is used for one thing at a time: a read
/// ([`ReadSlot`]), or a copy that comes ([`CopySlot`]).
#[derive(Debug)]
pub(super) struct PipelineReads {
    slots: Vec<ReadSlot>,
    copies: Vec<CopySlot>,
}

impl PipelineReads {
    pub(super) fn new(count: u16) -> Self {
        let count = usize::from(count);
        Self { slots: vec![ReadSlot::Free; count], copies: vec![CopySlot::Free; count] }
    }

    /// Nothing is read into slots from this one on, though bytes may still be leaving, and no copy
    /// comes.
    pub(super) fn may_return(&self, first: Slot) -> bool {
        let leaving = |slot: &ReadSlot| matches!(slot, ReadSlot::Free | ReadSlot::Putting);
        self.slots[first.index()..].iter().all(leaving)
            && self.copies.iter().all(|copy| *copy == CopySlot::Free)
    }

    /// Slots from this one on are not in use.
    pub(super) fn are_free(&self, first: Slot) -> bool {
        self.slots[first.index()..].iter().all(|slot| *slot == ReadSlot::Free)
    }

    /// The client asks for a part of its volume.
    pub(super) fn read(
        &mut self,
        slot: Slot,
        request: ReadRequest,
        seat: &Seat,
        out: &mut NodeOut,
    ) -> Result<(), Violation> {
        let violation = Violation("a read that does not fit its slot");
        let index = slot.index();
        let state = self.slots.get_mut(index).ok_or(violation)?;
        let reads = seat.pipeline.params().reads;
        let fits = request.bytes > 0
            && request.bytes <= reads.bytes
            && u64::from(request.bytes).is_multiple_of(SECTOR_BYTES);
        let digests =
            request.wanted != WantedForm::Digest || request.bytes.is_multiple_of(UNIT_BYTES);
        let copies = matches!(request.wanted, WantedForm::Copy(at) if at.0 >= reads.count);
        if !fits || !digests || copies || self.copies[index] != CopySlot::Free {
            return Err(violation);
        }
        if !within(request.sector, request.bytes, seat.volume_bytes) {
            return Err(Violation("a read beyond the end of the volume"));
        }
        match state {
            ReadSlot::Free => self.begin_read(slot, request, seat, out),
            ReadSlot::Putting => *state = ReadSlot::Queued(request),
            ReadSlot::Reading(_) | ReadSlot::Digesting(_) | ReadSlot::Queued(_) => {
                return Err(Violation("a slot for reads that is in use"));
            }
        }
        Ok(())
    }

    fn begin_read(&mut self, slot: Slot, request: ReadRequest, seat: &Seat, out: &mut NodeOut) {
        self.slots[slot.index()] = ReadSlot::Reading(request);
        let flight = Flight::Read { client: seat.client, slot };
        let op = IoOp::Read { sector: request.sector, buf: seat.read_buf(slot, request.bytes) };
        out.io(flight, seat.member, op);
    }

    /// Handles a slot that the store has filled, or whose digest is formed; or a failure of either.
    /// `beside` is the connection to the other node of the role, and its ring.
    pub(super) fn read_done(
        &mut self,
        slot: Slot,
        ok: bool,
        beside: Option<(PeerId, u64)>,
        seat: &Seat,
        out: &mut NodeOut,
    ) {
        let (request, digested) = match self.slots[slot.index()] {
            ReadSlot::Reading(request) => (request, false),
            ReadSlot::Digesting(request) => (request, true),
            ReadSlot::Free | ReadSlot::Putting | ReadSlot::Queued(_) => return,
        };
        let flight = Flight::ReadPut { client: seat.client, slot };
        let buf = seat.read_buf(slot, request.bytes);
        let (then, said) = match request.wanted {
            _ if !ok => (ReadSlot::Free, Some(Message::ReadFailed { slot })),
            WantedForm::Copy(_) | WantedForm::OrphanedCopy => {
                // Where nobody is connected that would take it, that one tells.
                let then = match (request.wanted, beside) {
                    (WantedForm::Copy(at), Some((peer, ring))) => {
                        let to = ring.wrapping_add(seat.pipeline.read_slot(seat.role, at).offset);
                        out.put(flight, peer, buf, to, at.0.into());
                        ReadSlot::Putting
                    }
                    _ => ReadSlot::Free,
                };
                (then, Some(Message::Copied { slot }))
            }
            WantedForm::Digest if !digested => {
                out.compute(Flight::Digest { client: seat.client, slot }, digest(buf));
                (ReadSlot::Digesting(request), None)
            }
            WantedForm::Digest | WantedForm::Content => {
                let bytes = if digested { digest_bytes(request.bytes) } else { request.bytes };
                let from = seat.read_buf(slot, bytes);
                out.put(flight, seat.peer, from, request.to, u32::from(slot.0));
                (ReadSlot::Putting, None)
            }
        };
        self.slots[slot.index()] = then;
        if let Some(said) = said {
            seat.tell(&said, out);
        }
    }

    /// The bytes have left, or the connection to the client is broken.
    pub(super) fn read_put(&mut self, slot: Slot, seat: &Seat, out: &mut NodeOut) {
        match self.slots[slot.index()] {
            ReadSlot::Queued(next) => self.begin_read(slot, next, seat, out),
            _ => self.slots[slot.index()] = ReadSlot::Free,
        }
    }

    /// The other node of the role has put a copy into a slot here.
    pub(super) fn copy_placed(
        &mut self,
        imm: u32,
        seat: &Seat,
        out: &mut NodeOut,
    ) -> Result<(), Violation> {
        let violation = Violation("a copy that nobody waits for");
        let slot = u16::try_from(imm).map_err(|_| violation)?;
        let copy = self.copies.get_mut(usize::from(slot)).ok_or(violation)?;
        match *copy {
            CopySlot::Free => *copy = CopySlot::Placed,
            CopySlot::Requested(request) => self.store_copy(request, seat, out),
            CopySlot::Placed | CopySlot::Storing => return Err(violation),
        }
        Ok(())
    }

    /// The client says where the copy that comes into a slot belongs. Refused when the other node
    /// is not connected and nothing will come.
    pub(super) fn store_copied(
        &mut self,
        request: StoreCopied,
        connected: bool,
        seat: &Seat,
        out: &mut NodeOut,
    ) -> Result<(), Violation> {
        let violation = Violation("a copy that does not fit its slot");
        let StoreCopied { tag, slot, sector, bytes } = request;
        let fits = bytes > 0
            && bytes <= seat.pipeline.params().reads.bytes
            && u64::from(bytes).is_multiple_of(SECTOR_BYTES)
            && within(sector, bytes, seat.volume_bytes);
        let free = self.slots.get(slot.index()) == Some(&ReadSlot::Free);
        if !fits || !free || !seat.write {
            return Err(violation);
        }
        let copy = &mut self.copies[slot.index()];
        match copy {
            CopySlot::Placed => self.store_copy(request, seat, out),
            CopySlot::Free if connected => *copy = CopySlot::Requested(request),
            CopySlot::Free => out.refuse(seat.client, tag, not_connected()),
            CopySlot::Requested(_) | CopySlot::Storing => return Err(violation),
        }
        Ok(())
    }

    fn store_copy(&mut self, request: StoreCopied, seat: &Seat, out: &mut NodeOut) {
        let StoreCopied { tag, slot, sector, bytes } = request;
        self.copies[slot.index()] = CopySlot::Storing;
        out.received_bytes += u64::from(bytes);
        let flight = Flight::StoreCopied { client: seat.client, tag, slot };
        let op = IoOp::Write { sector, buf: seat.read_buf(slot, bytes), fua: false, fill: false };
        out.io(flight, seat.member, op);
    }

    /// A copy is in the store, or cannot be stored.
    pub(super) fn copy_stored(
        &mut self,
        slot: Slot,
        tag: u32,
        ok: bool,
        seat: &Seat,
        out: &mut NodeOut,
    ) {
        self.copies[slot.index()] = CopySlot::Free;
        out.report(seat.client, tag, ok, "the volume cannot be written");
    }

    /// Handles the loss of the other node of the role: copies that are being read for it go
    /// nowhere, and orders to store copies from it are refused.
    pub(super) fn beside_lost(&mut self, seat: &Seat, out: &mut NodeOut) {
        for slot in &mut self.slots {
            if let ReadSlot::Reading(request) | ReadSlot::Queued(request) = slot
                && matches!(request.wanted, WantedForm::Copy(_))
            {
                request.wanted = WantedForm::OrphanedCopy;
            }
        }
        for copy in &mut self.copies {
            match *copy {
                CopySlot::Requested(request) => {
                    out.refuse(seat.client, request.tag, not_connected());
                }
                CopySlot::Placed => {}
                CopySlot::Free | CopySlot::Storing => continue,
            }
            *copy = CopySlot::Free;
        }
    }
}

fn not_connected() -> Refusal {
    let reason = "the node of the member that is copied is not connected";
    Refusal::new(reason, "look at the network between the nodes")
}
