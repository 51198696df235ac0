//! The slices of a slice-set: lost blocks are restored, the new content of each block is put
//! together, client-made parities are formed, and all of it is sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_array::code::{Cell, Content};
use braid_array::fabric::FabricOp;
use braid_array::{Action, Buf, RequestError};
use smallvec::smallvec;

use super::{MAX_TRIES, NewSet, PositionedSet, SetStage, Sets};
use crate::client::engine::context::Cx;
use crate::client::engine::decode::Decodes;
use crate::client::engine::extent::{Extent, WantedBlock, Whom};
use crate::client::out::IoPurpose;
use crate::ids::Position;
use crate::schedule::Endpoint;
use crate::set::{Imm, Roles, WriteStrategy};
use crate::wire::Message;

impl Sets {
    /// Opens a slice-set at its position, with its buffers.
    pub(in crate::client::engine) fn open(
        &mut self,
        cx: &mut Cx<'_>,
        decodes: &mut Decodes,
        new: NewSet,
    ) {
        let NewSet { job, set, mut staged, fetched, unknown } = new;
        let position = set.position;
        let Some(plan) = cx.shared.pipeline.plan_of(&set) else {
            unreachable!("the client opens what it may: {set:?}")
        };
        let kept = staged.clone();
        let mut sources = BTreeMap::new();
        let mut computing = 0;
        for (&index, pieces) in &job.range.pieces {
            if let [only] = pieces[..] {
                sources.insert(index, only);
                continue;
            }
            let whole = staged.pop().expect("a buffer for every scattered slice");
            let mut at = 0;
            for &piece in pieces {
                let to = whole.slice(at, piece.len);
                cx.out.sum(IoPurpose::Copy { position }, smallvec![piece], smallvec![1], to);
                at += piece.len;
                computing += 1;
            }
            sources.insert(index, whole);
        }
        for &index in unknown.iter().filter(|&&index| set.touched.contains(index)) {
            // Anything goes into sums that stay unknown.
            let any = sources.first_key_value().map(|(_, &any)| any);
            sources.extend(any.map(|any| (index, any)));
        }
        let mut wanted = Vec::new();
        let mut olds = BTreeMap::new();
        for index in fetched {
            let into = staged.pop().expect("a buffer for every block that is brought back");
            wanted.push(WantedBlock { index, into, whom: Whom::Set(position) });
            let reads_old = set.strategy == WriteStrategy::ReadModifyWrite;
            let contents = if reads_old { &mut olds } else { &mut sources };
            contents.insert(index, into);
        }
        let range = Extent { stripe: set.stripe, index: 0, at: set.offset, len: set.len };
        decodes.forget_kept(cx, set.stripe, set.offset, set.len);
        let open = PositionedSet {
            plan,
            job,
            sources,
            olds,
            staged: kept,
            computing,
            puts: 0,
            fetching: wanted.len() as u32,
            outline: None,
            waits: Roles::NONE,
            parts: Roles::NONE,
            relay: None,
            stage: SetStage::Preparing,
            unknown,
            clears: false,
            noted: false,
            ok: true,
            set,
        };
        if position.0 < self.wide {
            let alone = self.preparing_bytes() == 0;
            self.pace.sent(cx.now(), open.bytes(), alone);
        }
        self.open.insert(position, open);
        if wanted.is_empty() {
            self.flow(cx, position);
        } else {
            decodes.decode_for_set(range, wanted);
        }
    }

    /// Takes a restored lost block, or the failure to restore it.
    pub(in crate::client::engine) fn fetched(
        &mut self,
        cx: &mut Cx<'_>,
        position: Position,
        result: Result<(), RequestError>,
    ) {
        let Some(open) = self.open.get_mut(&position) else { return };
        open.fetching -= 1;
        open.ok &= result.is_ok();
        if open.ok {
            return self.flow(cx, position);
        }
        open.job.tries = MAX_TRIES;
        self.advance(cx, position);
    }

    pub(in crate::client::engine) fn copy_done(&mut self, cx: &mut Cx<'_>, position: Position) {
        let Some(open) = self.open.get_mut(&position) else { return };
        open.computing -= 1;
        if open.ok {
            self.flow(cx, position);
        } else {
            self.advance(cx, position);
        }
    }

    /// Sends data and forms client-made parities once all new content is in one piece.
    fn flow(&mut self, cx: &mut Cx<'_>, position: Position) {
        let Some(open) = self.open.get_mut(&position) else { return };
        if open.computing > 0 || open.fetching > 0 {
            return;
        }
        if !open.olds.is_empty() {
            return self.differ(cx, position);
        }
        let variant = cx.shared.pipeline.variant(open.set.stripe);
        let outline = self.outlines.of(&open.set, variant, &open.plan);
        open.parts = outline.parts.iter().filter(|&role| cx.members.alive(role)).collect();
        open.outline = Some(Arc::clone(&outline));
        open.waits = open.parts;
        open.relay = outline.relay.filter(|&relay| open.parts.contains(relay));
        open.set.relay = open.relay.is_some();
        for role in open.parts.iter() {
            cx.owes(role);
        }
        let told = open.relay.map_or(open.parts, |relay| [relay].into_iter().collect());
        let begin = Message::BeginSet { set: open.set.clone() };
        for role in told.iter() {
            cx.send(role, &begin);
            self.commits.go_with(role);
        }
        let mut sums = Vec::new();
        for &(transfer, content) in &outline.sent {
            match content {
                Content::Data(index) => {
                    let from = self.open[&position].sources[&index];
                    self.put(cx, position, transfer, from);
                }
                Content::Sum(equation) => sums.push(equation),
            }
        }
        self.form(cx, position, &sums);
        self.advance(cx, position);
    }

    /// Forms the differences of lost blocks, which go into sums in place of the new content.
    fn differ(&mut self, cx: &mut Cx<'_>, position: Position) {
        let Some(open) = self.open.get_mut(&position) else { return };
        let olds = std::mem::take(&mut open.olds);
        open.computing = olds.len() as u32;
        for (index, old) in olds {
            if let Some(new) = open.sources.insert(index, old) {
                cx.out.sum_into(IoPurpose::Copy { position }, new, old);
            }
        }
    }

    /// Forms the parities that the client makes.
    fn form(&mut self, cx: &mut Cx<'_>, position: Position, sums: &[usize]) {
        let Some(open) = self.open.get_mut(&position) else { return };
        open.computing = sums.len() as u32;
        for &equation in sums {
            let terms = &open.plan.code.equations()[equation].terms;
            let source = |cell: Cell| match open.plan.code.content(cell) {
                Content::Data(index) => open.sources[&index],
                Content::Sum(_) => unreachable!("terms are data"),
            };
            let inputs = terms.iter().map(|term| source(term.cell)).collect();
            let coefs = terms.iter().map(|term| term.coef).collect();
            let purpose = IoPurpose::Sum { position, equation };
            cx.out.sum(purpose, inputs, coefs, open.staged[equation]);
        }
    }

    pub(in crate::client::engine) fn parity_done(
        &mut self,
        cx: &mut Cx<'_>,
        position: Position,
        equation: usize,
    ) {
        let Some(open) = self.open.get_mut(&position) else { return };
        open.computing -= 1;
        let buf = open.staged[equation];
        let transfer = open.plan.schedule.sums()[equation][0].transfer;
        self.put(cx, position, transfer, buf);
        self.advance(cx, position);
    }

    /// Sends a slice, if the node that gets it is there.
    fn put(&mut self, cx: &mut Cx<'_>, position: Position, transfer: usize, from: Buf) {
        let Some(open) = self.open.get_mut(&position) else { return };
        debug_assert_eq!(open.plan.schedule.transfers()[transfer].from, Endpoint::Client);
        let role = open.plan.schedule.transfers()[transfer].to;
        // One that was lost since has no part in it any more, even when it is back.
        if !open.parts.contains(role) {
            return;
        }
        let entry = cx.members.entry(role);
        let Some(peer) = entry.peer else { return };
        let arrival = cx.shared.pipeline.arrival(&open.plan, &open.set, transfer);
        let to = entry.ring + arrival.offset;
        let imm = Imm::of(&open.set, transfer).encode();
        let io = cx.out.io(IoPurpose::Put { position });
        open.puts += 1;
        self.unsent += 1;
        self.mix.sent(from.len);
        cx.out.push(Action::Fabric(FabricOp::Put { io, peer, from, to, imm }));
    }

    /// Ends a put. A slice that did not arrive is reported by its node, or by the loss of the node.
    pub(in crate::client::engine) fn put_done(&mut self, cx: &mut Cx<'_>, position: Position) {
        self.unsent -= 1;
        let Some(open) = self.open.get_mut(&position) else { return };
        open.puts -= 1;
        self.advance(cx, position);
    }
}
