//! Reads: from the volume into a slot, from there into the client's arena, all of it or its digest.

use braid_array::{Buf, IoOp, SECTOR_BYTES};

use super::ids::Violation;
use super::out::{Flight, Out};
use super::pipe::Pipe;
use super::slot::{Ask, ReadSlot, Taking, Wanted};
use crate::digest::{UNIT_BYTES, digest, digest_bytes};
use crate::wire::Message;

impl Pipe {
    /// The client asks for a part of a volume of this size.
    pub(super) fn read(
        &mut self,
        slot: u16,
        ask: Ask,
        volume_bytes: u64,
        out: &mut Out,
    ) -> Result<(), Violation> {
        let violation = Violation("a read that does not fit its slot");
        if !self.may_read_at(slot) {
            return Err(violation);
        }
        let state = self.reads.get_mut(usize::from(slot)).ok_or(violation)?;
        let fits = ask.bytes > 0
            && ask.bytes <= self.pipeline.params().reads.bytes
            && u64::from(ask.bytes).is_multiple_of(SECTOR_BYTES);
        let digests = ask.wanted != Wanted::Digest || ask.bytes.is_multiple_of(UNIT_BYTES);
        let copies =
            matches!(ask.wanted, Wanted::Copy(at) if at >= self.pipeline.params().reads.count);
        let taken = self.takes[usize::from(slot)] != Taking::Nothing;
        if !fits || !digests || copies || taken {
            return Err(violation);
        }
        if !within(ask.sector, ask.bytes, volume_bytes) {
            return Err(Violation("a read beyond the end of the volume"));
        }
        match *state {
            ReadSlot::Free => self.begin_read(slot, ask, out),
            ReadSlot::Putting => *state = ReadSlot::Queued(ask),
            ReadSlot::Reading(_) | ReadSlot::Digesting(_) | ReadSlot::Queued(_) => {
                return Err(Violation("a slot for reads that is in use"));
            }
        }
        Ok(())
    }

    fn begin_read(&mut self, slot: u16, ask: Ask, out: &mut Out) {
        self.reads[usize::from(slot)] = ReadSlot::Reading(ask);
        let flight = Flight::Read { client: self.client, slot };
        let op = IoOp::Read { sector: ask.sector, buf: self.read_buf(slot, ask.bytes) };
        out.io(flight, self.member, op);
    }

    pub(super) fn read_buf(&self, slot: u16, bytes: u32) -> Buf {
        let buf = self.pipeline.read_slot(self.role, slot).slice(0, bytes);
        Buf { offset: self.ring + buf.offset, ..buf }
    }

    /// The store has filled a slot, or what was there is its digest now; or not.
    pub(super) fn read_done(&mut self, slot: u16, ok: bool, out: &mut Out) {
        let (ask, bytes) = match self.reads[usize::from(slot)] {
            ReadSlot::Reading(Ask {
                wanted: wanted @ (Wanted::Copy(_) | Wanted::OrphanedCopy),
                bytes,
                ..
            }) => {
                // Where nobody is connected that would take it, that one tells.
                let put = match wanted {
                    Wanted::Copy(at) if ok => {
                        self.put_beside((slot, at), self.read_buf(slot, bytes), out)
                    }
                    _ => false,
                };
                let then = if put { ReadSlot::Putting } else { ReadSlot::Free };
                self.reads[usize::from(slot)] = then;
                let copied = Message::Copied { slot };
                let said = if ok { copied } else { Message::ReadFailed { slot } };
                return out.send(self.peer, self.epoch(), &said);
            }
            ReadSlot::Reading(ask) if ok && ask.wanted == Wanted::Digest => {
                self.reads[usize::from(slot)] = ReadSlot::Digesting(ask);
                let flight = Flight::Digest { client: self.client, slot };
                return out.compute(flight, digest(self.read_buf(slot, ask.bytes)));
            }
            ReadSlot::Reading(ask) => (ask, ask.bytes),
            ReadSlot::Digesting(ask) => (ask, digest_bytes(ask.bytes)),
            ReadSlot::Free | ReadSlot::Putting | ReadSlot::Queued(_) => return,
        };
        if ok {
            self.reads[usize::from(slot)] = ReadSlot::Putting;
            let flight = Flight::ReadPut { client: self.client, slot };
            out.put(flight, self.peer, self.read_buf(slot, bytes), ask.to, u32::from(slot));
        } else {
            self.reads[usize::from(slot)] = ReadSlot::Free;
            out.send(self.peer, self.epoch(), &Message::ReadFailed { slot });
        }
    }

    /// The bytes have left, or the connection to the client is broken.
    pub(super) fn read_put(&mut self, slot: u16, out: &mut Out) {
        match self.reads[usize::from(slot)] {
            ReadSlot::Queued(next) => self.begin_read(slot, next, out),
            _ => self.reads[usize::from(slot)] = ReadSlot::Free,
        }
    }
}

/// Does a range end within so many bytes?
pub(super) fn within(sector: u64, bytes: u32, end_bytes: u64) -> bool {
    let start = sector.checked_mul(SECTOR_BYTES);
    let end = start.and_then(|start| start.checked_add(u64::from(bytes)));
    end.is_some_and(|end| end <= end_bytes)
}
