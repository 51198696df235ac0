//! Where reads go: each part of a request to the node that holds it, or, where that is gone or
//! could not read it, to the others.

use std::collections::BTreeMap;

use braid_array::figures::OperationKind;
use braid_array::{Buf, Request, RequestError, RequestId, SECTOR_BYTES};

use super::Engine;
use super::context::Cx;
use super::extent::{Extent, Piece, Range, WantedBlock, Whom, Whose};
use crate::client::latency::{Done, TimedOperation};
use crate::client::session_key::SessionKey;
use crate::ids::{Position, Slot};

impl Engine {
    /// Cuts a read into parts: each from the node that holds it, straight into the request's
    /// buffer. Parts of the same range of a stripe are kept together when a node is lost, or does
    /// not know all of its content: the blocks that are read for one part serve the others.
    pub(super) fn read(&mut self, cx: &mut Cx<'_>, request: &Request) {
        let start = request.sector * SECTOR_BYTES;
        let end = start + u64::from(request.buf.len);
        let all_there = cx.lost().is_empty() && !cx.keeper.has_bad_blocks();
        let mut together: BTreeMap<Range, (Extent, Vec<WantedBlock>)> = BTreeMap::new();
        let mut next = start;
        while next < end {
            let extent = cx.shared.extent(next, end);
            let into = request.buf.slice((next - start) as u32, extent.len);
            cx.shared.requests.add_part(request.id);
            if all_there {
                read_part(cx, request.id, extent, into);
            } else {
                let (_, wanted) = together.entry(extent.range()).or_insert((extent, Vec::new()));
                wanted.push(WantedBlock {
                    index: extent.index,
                    into,
                    whom: Whom::Request(request.id),
                });
            }
            next += u64::from(extent.len);
        }
        for (extent, wanted) in together.into_values() {
            self.decodes.decode(cx, extent, wanted);
        }
    }

    /// Redirects a read that a node could not do; the other nodes may restore the block.
    pub(super) fn read_elsewhere(&mut self, cx: &mut Cx<'_>, piece: Piece) {
        let Piece { cell, extent, into, whose } = piece;
        match whose {
            Whose::Request(request) => {
                let wanted =
                    vec![WantedBlock { index: extent.index, into, whom: Whom::Request(request) }];
                if cx.readable(cell.node) {
                    self.decodes.decode_without(extent, wanted, cell.node);
                } else {
                    self.decodes.decode(cx, extent, wanted);
                }
            }
            Whose::Decode(job) => self.decodes.read_failed(cx, job, cell),
            Whose::Compare(key) | Whose::Digest(key) => {
                self.compares.read_done(cx, key, cell, false);
            }
            Whose::Copy { number, .. } => self.copies.block_over(cx, number, false),
            Whose::ReadBack => self.read_back.came(cx, false, false),
        }
    }
}

fn read_part(cx: &mut Cx<'_>, id: RequestId, extent: Extent, into: Buf) {
    let planner = cx.shared.pipeline.planner(Position(0));
    let Some(plan) = cx.shared.pipeline.plan(extent.stripe, planner) else {
        return cx.part_over(id, Err(RequestError::Failed));
    };
    let cell = plan.code.data()[extent.index as usize];
    let piece = Piece { cell, extent, into, whose: Whose::Request(id) };
    let key = cx.shared.key_of(&extent);
    match cx.shared.areas.get_mut(key) {
        // What was answered has to be seen, and is not stored yet.
        Some(area) if area.committing > 0 => area.late_reads.push(piece),
        _ => cx.shared.reads.queue(piece),
    }
}

/// Ends a read that is answered, `ok` or not, and returns it.
pub(super) fn take_read(cx: &mut Cx<'_>, from: SessionKey, slot: Slot, ok: bool) -> Option<Piece> {
    let piece = cx.shared.reads.take(from, slot)?;
    let now = cx.now();
    cx.answered(from);
    if let Some(role) = from.role() {
        let bytes = piece.extent.len.into();
        let done = Done { member: cx.members.id(role), kind: OperationKind::Read, bytes, ok };
        cx.out.latency.end(role, TimedOperation::Read(slot), Some(done), now);
    }
    Some(piece)
}
