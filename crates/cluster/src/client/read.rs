//! Reads: each part from the node that holds it, straight into the request's buffer. A client gives
//! out the nodes' read slots itself; what finds none free waits here.

use super::requests::Extent;
use super::{BTreeMap, BTreeSet, Buf, Cell, Client, Message, Request, RequestId, SECTOR_BYTES};

/// What a node is asked to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Which block: row of the stripe and node.
    pub(super) cell: Cell,
    pub(super) extent: Extent,
    pub(super) into: Buf,
    pub(super) whose: Whose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    Request(RequestId),
    Decode(u32),
}

impl Client {
    /// Cuts a read into parts. Parts of the same range of a stripe are kept together when a node
    /// is gone: what is read for one serves the others.
    pub(super) fn read(&mut self, request: &Request) {
        let start = request.sector * SECTOR_BYTES;
        let end = start + u64::from(request.buf.len);
        let mut together: BTreeMap<(u64, u32, u32), Vec<(Extent, Buf)>> = BTreeMap::new();
        let mut next = start;
        while next < end {
            let extent = self.extent(next, end);
            let into = request.buf.slice((next - start) as u32, extent.len);
            let range = (extent.stripe, extent.at, extent.len);
            together.entry(range).or_default().push((extent, into));
            next += u64::from(extent.len);
        }
        for parts in together.into_values() {
            self.add_parts(request.id, parts.len() as u32);
            self.read_together(request.id, &parts);
        }
    }

    fn read_together(&mut self, id: RequestId, parts: &[(Extent, Buf)]) {
        let Some(&(first, _)) = parts.first() else { return };
        let planner = self.pipeline.planner(0);
        let Some(plan) = self.pipeline.plan(first.stripe, planner) else { return };
        let cell = |extent: &Extent| plan.code.data()[extent.index as usize];
        let whose = Whose::Request(id);
        if parts.iter().all(|(extent, _)| self.alive(cell(extent).node)) {
            for &(extent, into) in parts {
                self.queue(Piece { cell: cell(&extent), extent, into, whose });
            }
            return;
        }
        let wanted: Vec<(u32, Buf, RequestId)> =
            parts.iter().map(|&(extent, into)| (extent.index, into, id)).collect();
        self.decode(first, wanted, BTreeSet::new());
    }

    pub(super) fn queue(&mut self, piece: Piece) {
        self.links[usize::from(piece.cell.node)].queue.push_back(piece);
    }

    /// Sends what has found a slot.
    pub(super) fn send_reads(&mut self) {
        for role in 0..self.params().nodes {
            let data_sector = self.data_sector(role);
            loop {
                let link = &mut self.links[usize::from(role)];
                if link.queue.is_empty() {
                    break;
                }
                let Some(slot) = link.free_slots.pop() else { break };
                let Some(piece) = link.queue.pop_front() else { break };
                link.slots[usize::from(slot)] = Some(piece);
                let Extent { stripe, at, len, .. } = piece.extent;
                let byte = self.pipeline.member_byte(stripe, piece.cell.row, at);
                let sector = data_sector + byte / SECTOR_BYTES;
                let read = Message::Read { slot, sector, bytes: len, to: piece.into.offset };
                self.send(role, &read);
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
        }
    }

    pub(super) fn read_failed(&mut self, role: u16, slot: u16) {
        let Some(piece) = self.free_slot(role, u32::from(slot)) else {
            return self.part_with(role, "it answers what was not asked");
        };
        self.links[usize::from(role)].errors += 1;
        self.read_elsewhere(piece);
    }

    fn free_slot(&mut self, role: u16, slot: u32) -> Option<Piece> {
        let link = &mut self.links[usize::from(role)];
        let piece = link.slots.get_mut(slot as usize)?.take()?;
        link.free_slots.push(slot as u16);
        Some(piece)
    }

    /// A node could not read this; perhaps the others can give it back.
    fn read_elsewhere(&mut self, piece: Piece) {
        match piece.whose {
            Whose::Request(id) => {
                let wanted = vec![(piece.extent.index, piece.into, id)];
                self.decode(piece.extent, wanted, BTreeSet::from([piece.cell.node]));
            }
            Whose::Decode(job) => {
                self.decode_without(job, piece.cell.node);
                self.decode_read_done(job, false);
            }
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
