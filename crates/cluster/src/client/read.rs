//! Reads: each part from the node that holds it, straight into the request's buffer. A client gives
//! out the nodes' read slots itself; what finds none free waits here.

use braid_array::IoError;
use braid_array::keeper::Tried;

use super::extent::{Extent, Piece, Spot, Want, Whom, Whose};
use super::{
    BTreeMap, Buf, Client, Message, Request, RequestError, RequestId, SECTOR_BYTES, TimedOperation,
};

impl Client {
    /// Cuts a read into parts. Parts of the same range of a stripe are kept together when a node
    /// is gone: what is read for one serves the others.
    pub(super) fn read(&mut self, request: &Request) {
        let start = request.sector * SECTOR_BYTES;
        let end = start + u64::from(request.buf.len);
        let all_there = self.lost().is_empty();
        let mut together: BTreeMap<Spot, (Extent, Vec<Want>)> = BTreeMap::new();
        let mut next = start;
        while next < end {
            let extent = self.extent(next, end);
            let into = request.buf.slice((next - start) as u32, extent.len);
            self.add_parts(request.id, 1);
            if all_there {
                self.read_part(request.id, extent, into);
            } else {
                let (_, wanted) = together.entry(extent.place()).or_insert((extent, Vec::new()));
                wanted.push(Want { index: extent.index, into, whom: Whom::Request(request.id) });
            }
            next += u64::from(extent.len);
        }
        for (extent, wanted) in together.into_values() {
            self.decode(extent, wanted);
        }
    }

    fn read_part(&mut self, id: RequestId, extent: Extent, into: Buf) {
        let planner = self.pipeline.planner(0);
        let Some(plan) = self.pipeline.plan(extent.stripe, planner) else {
            return self.piece_over(id, Err(RequestError::Failed));
        };
        let cell = plan.code.data()[extent.index as usize];
        let piece = Piece { cell, extent, into, whose: Whose::Request(id) };
        match self.areas.get_mut(&self.key_of(&extent)) {
            // What was answered has to be seen, and is not stored yet.
            Some(area) if area.going > 0 => area.late_reads.push(piece),
            _ => self.queue(piece),
        }
    }

    /// Reads from the node, or from the others if it is gone by now.
    pub(super) fn queue_or_decode(&mut self, piece: Piece) {
        if self.alive(piece.cell.node) {
            self.queue(piece);
        } else {
            self.read_elsewhere(piece);
        }
    }

    pub(super) fn queue(&mut self, piece: Piece) {
        self.links[usize::from(piece.cell.node)].queue.push_back(piece);
    }

    /// Sends what has found a slot.
    pub(super) fn send_reads(&mut self) {
        let end = self.slots_end();
        for role in 0..self.params().nodes {
            let data_sector = self.data_sector(role);
            loop {
                let link = &mut self.links[usize::from(role)];
                if link.queue.is_empty() {
                    break;
                }
                let Some(slot) = link.take_slot(end) else {
                    self.share.is_short();
                    break;
                };
                let Some(piece) = link.queue.pop_front() else { break };
                link.slots[usize::from(slot)] = Some(piece);
                let Extent { stripe, at, len, .. } = piece.extent;
                let byte = self.pipeline.member_byte(stripe, piece.cell.row, at);
                let sector = data_sector + byte / SECTOR_BYTES;
                let (bytes, to) = (len, piece.into.offset);
                let read = match piece.whose {
                    Whose::Digest(_) | Whose::ReadBack => {
                        Message::Digest { slot, sector, bytes, to }
                    }
                    Whose::Copy(number) => {
                        Message::Copy { slot, sector, bytes, into: self.copied_into(number) }
                    }
                    _ => Message::Read { slot, sector, bytes, to },
                };
                self.send(role, &read);
                self.keeper.asked(self.member_id(role));
                self.pace.asked(role, TimedOperation::Read(slot), self.keeper.now());
            }
        }
    }

    /// A node has put what was read.
    pub(super) fn read_placed(&mut self, role: u16, slot: u32) {
        let Some(piece) = self.free_slot(role, slot) else {
            return self.part_with(role, "it sends what was not asked for");
        };
        match piece.whose {
            Whose::Request(id) => self.piece_over(id, Ok(())),
            Whose::Decode(job) => self.decode_read_done(job, true),
            Whose::Compare(key) | Whose::Digest(key) => {
                self.compare_read_done(key, piece.cell, true);
            }
            Whose::ReadBack => self.read_back_came(role == self.beside(), true),
            Whose::Copy(_) => self.part_with(role, "it sends what belongs elsewhere"),
        }
    }

    /// A node that is copied has put what was read to the other one.
    pub(super) fn read_copied(&mut self, role: u16, slot: u16) {
        match self.free_slot(role, slot.into()).map(|piece| piece.whose) {
            Some(Whose::Copy(number)) => self.copy_sent(number),
            _ => self.part_with(role, "it copies what was not asked for"),
        }
    }

    pub(super) fn read_failed(&mut self, role: u16, slot: u16) {
        let Some(piece) = self.free_slot(role, u32::from(slot)) else {
            return self.part_with(role, "it answers what was not asked");
        };
        if role == self.beside() {
            // It is no member yet.
            return self.read_back_came(true, false);
        }
        let tried = Tried { sector: None, changes: false, must_land: false };
        self.keeper.failed_io(self.member_id(role), tried, IoError::MEDIUM);
        self.read_elsewhere(piece);
    }

    fn free_slot(&mut self, role: u16, slot: u32) -> Option<Piece> {
        let link = &mut self.links[usize::from(role)];
        let piece = link.slots.get_mut(slot as usize)?.take()?;
        link.free_slots.push(slot as u16);
        self.keeper.answered(self.member_id(role));
        self.pace.answered(role, TimedOperation::Read(slot as u16), self.keeper.now());
        Some(piece)
    }

    /// A node could not read this; perhaps the others can give it back.
    fn read_elsewhere(&mut self, piece: Piece) {
        let Piece { cell, extent, into, whose } = piece;
        match whose {
            Whose::Request(request) => {
                let wanted = vec![Want { index: extent.index, into, whom: Whom::Request(request) }];
                if self.readable(cell.node) {
                    self.decode_without(extent, wanted, cell.node);
                } else {
                    self.decode(extent, wanted);
                }
            }
            Whose::Decode(job) => self.decode_read_failed(job, cell.node),
            Whose::Compare(key) | Whose::Digest(key) => self.compare_read_done(key, cell, false),
            Whose::Copy(number) => self.block_over(number, false),
            Whose::ReadBack => self.read_back_came(false, false),
        }
    }

    /// Reads from a node that is gone go elsewhere.
    pub(super) fn reads_without(&mut self, role: u16) {
        let link = &mut self.links[usize::from(role)];
        let mut pieces: Vec<Piece> = link.queue.drain(..).collect();
        pieces.extend(link.slots.iter_mut().filter_map(Option::take));
        pieces.into_iter().for_each(|piece| self.read_elsewhere(piece));
    }
}
