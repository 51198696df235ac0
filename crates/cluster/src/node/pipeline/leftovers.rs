//! Leftovers: slice-sets that a client which is gone has prepared, for its successor.

use std::ops::Range;

use braid_array::{Action, IoOp};

use super::open_set::{OpenSet, OpenSetStage};
use super::part::TaskWork;
use super::pipe::Pipe;
use super::resolving::Resolving;
use super::ring::ALIGN;
use super::{Pipes, release_ring};
use crate::ids::SetVersion;
use crate::node::ids::{ArrayId, ClientId};
use crate::node::out::{Flight, NodeOut};
use crate::wire::{Leftover, Message};

/// Bytes that fit into a message.
const MAX_LISTED_BYTES: usize = 6000;

/// Result of a decision: stored, or failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resolved {
    pub(crate) by: ClientId,
    pub(crate) tag: u32,
    pub(crate) ok: bool,
    /// The store has no room.
    pub(crate) no_room: bool,
}

/// Returns as many leftovers as fit into a message, from one on, and the index of the next; 0 when
/// there is none.
pub(super) fn page(all: &[Leftover], from: u16) -> (Vec<Leftover>, u16) {
    let mut items = Vec::new();
    let mut bytes = 0;
    for item in all.iter().skip(from.into()) {
        let blocks = item.prepared.as_ref().map_or(0, |set| set.touched.blocks() / 8);
        bytes += 100 + blocks as usize;
        if bytes > MAX_LISTED_BYTES {
            break;
        }
        items.push(item.clone());
    }
    let next = from.saturating_add(items.len() as u16);
    (items, if usize::from(next) < all.len() { next } else { 0 })
}

impl Pipe {
    /// Returns the slice-sets whose new content is complete here, stored or not.
    fn whole(&self) -> impl Iterator<Item = &OpenSet> {
        self.sets.iter().filter(|open| match open.stage {
            OpenSetStage::Preparing | OpenSetStage::Recording | OpenSetStage::Aborting => false,
            OpenSetStage::Prepared => open.ok,
            OpenSetStage::Committing | OpenSetStage::Starved => true,
        })
    }

    /// Returns whether a later client has to decide about any slice-set.
    pub(super) fn has_leftovers(&self) -> bool {
        self.seat.write && self.whole().next().is_some()
    }

    /// Returns the leftovers that a later client is told of.
    pub(super) fn leftovers(&self) -> Vec<Leftover> {
        let epoch = self.seat.epoch();
        let stored = self.sets.stored().map(|(number, ok)| (number, None, ok));
        let prepared = self.whole().map(|open| (open.set.number, Some(open.set.clone()), true));
        let item = |(number, prepared, ok)| Leftover {
            version: SetVersion::new(epoch, number),
            prepared,
            ok,
        };
        prepared.chain(stored).map(item).collect()
    }

    /// Returns the parts of the arena with content that a later client may have stored, in whole
    /// pages and in order.
    fn kept(&self) -> Vec<Range<u64>> {
        let mut kept = Vec::new();
        for OpenSet { set, part, .. } in self.whole() {
            for task in &part.tasks {
                if let TaskWork::Store { from, .. } = task.work {
                    let buf = self.seat.slot(part, set, from);
                    let end = buf.offset + u64::from(buf.len);
                    kept.push(buf.offset..end.next_multiple_of(ALIGN));
                }
            }
        }
        kept.sort_unstable_by_key(|range| range.start);
        kept
    }

    /// Returns whether operations of this client's request are under way.
    pub(super) fn is_resolving(&self, by: ClientId, tag: u32) -> bool {
        self.resolving.as_ref().is_some_and(|resolving| resolving.by == by && resolving.tag == tag)
    }

    /// Stores the slice-sets that a client decides to commit.
    pub(super) fn resolve(
        &mut self,
        by: ClientId,
        tag: u32,
        commit: &[SetVersion],
        out: &mut NodeOut,
    ) {
        let mut unanswered = 0;
        for OpenSet { set, part, .. } in self.whole() {
            if !commit.contains(&self.seat.version(set)) {
                continue;
            }
            for task in &part.tasks {
                let Some(op) = self.seat.store(set, &task.work, part, false) else { continue };
                out.io(Flight::Resolve { orphan: self.seat.client }, self.seat.member, op);
                unanswered += 1;
            }
        }
        let commit = commit.to_vec();
        let resolving =
            Resolving { by, tag, commit, unanswered, flushing: false, ok: true, no_room: false };
        self.resolving = Some(resolving);
    }

    /// Handles a finished operation of a decision.
    pub(super) fn resolve_done(&mut self, ok: bool, no_room: bool) {
        if let Some(resolving) = &mut self.resolving {
            resolving.unanswered -= 1;
            if !ok {
                resolving.no_room = no_room && (resolving.ok || resolving.no_room);
            }
            resolving.ok &= ok;
        }
    }

    /// Flushes when all is written. Returns the result when the flush is over.
    pub(super) fn advance_resolving(&mut self, out: &mut NodeOut) -> Option<Resolved> {
        let resolving = self.resolving.as_mut().filter(|resolving| resolving.unanswered == 0)?;
        if resolving.ok && !resolving.flushing {
            resolving.flushing = true;
            resolving.unanswered = 1;
            out.io(Flight::Resolve { orphan: self.seat.client }, self.seat.member, IoOp::Flush);
            return None;
        }
        let Resolving { by, tag, commit, ok, no_room, .. } = self.resolving.take()?;
        if ok {
            self.close_leftovers(&commit);
        }
        Some(Resolved { by, tag, ok, no_room })
    }

    /// Closes all slice-sets: the committed ones are stored, the rest is dropped.
    pub(super) fn close_leftovers(&mut self, commit: &[SetVersion]) {
        for number in self.sets.all() {
            let version = self.sets.get(number).map(|open| self.seat.version(&open.set));
            let stored = version.is_some_and(|version| commit.contains(&version));
            self.sets.close(number, stored.then_some(true));
        }
    }
}

impl Pipes {
    /// Returns whether a client has prepared slice-sets that its successor has to decide about.
    pub(crate) fn has_leftovers(&self, client: ClientId) -> bool {
        self.pipes.get(&client).is_some_and(Pipe::has_leftovers)
    }

    /// Returns the clients that are gone and have leftovers.
    fn orphans(&self, out: &NodeOut) -> Vec<ClientId> {
        let orphan = |(&id, pipe): (&ClientId, &Pipe)| {
            (!out.is_here(id) && pipe.has_leftovers()).then_some(id)
        };
        self.pipes.iter().filter_map(orphan).collect()
    }

    fn orphans_of(&self, array: ArrayId, out: &NodeOut) -> Vec<ClientId> {
        let mut orphans = self.orphans(out);
        orphans.retain(|id| self.pipes[id].seat.array == Some(array));
        orphans
    }

    /// Answers with the leftovers of clients here, after the `known` ones of pipelines that have
    /// ended.
    pub(crate) fn list_leftovers(
        &self,
        client: ClientId,
        tag: u32,
        array: ArrayId,
        from: u16,
        known: &[Leftover],
        out: &mut NodeOut,
    ) {
        let mut all = known.to_vec();
        let mut params = None;
        for orphan in self.orphans_of(array, out) {
            let pipe = &self.pipes[&orphan];
            all.extend(pipe.leftovers());
            params = Some(*pipe.seat.pipeline.params());
        }
        let (items, next) = page(&all, from);
        out.answer(client, &Message::Leftovers { tag, params, items, next });
    }

    /// Carries out a client's decision about the leftovers of others.
    pub(crate) fn resolve_leftovers(
        &mut self,
        by: ClientId,
        tag: u32,
        array: ArrayId,
        commit: &[SetVersion],
        out: &mut NodeOut,
    ) {
        let orphans = self.orphans_of(array, out);
        if orphans.is_empty() {
            return out.confirm(by, tag);
        }
        for orphan in &orphans {
            if let Some(pipe) = self.pipes.get_mut(orphan) {
                pipe.resolve(by, tag, commit, out);
            }
        }
        for orphan in &orphans {
            if let Some(pipe) = self.pipes.get_mut(orphan) {
                // Nothing is over before a flush is.
                pipe.advance_resolving(out);
            }
        }
    }

    /// Handles a finished operation of a decision. Returns the result if the decision ends with it.
    pub(crate) fn resolve_done(
        &mut self,
        orphan: ClientId,
        ok: bool,
        out: &mut NodeOut,
    ) -> Option<Resolved> {
        let pipe = self.pipes.get_mut(&orphan)?;
        pipe.resolve_done(ok, out.no_room);
        pipe.advance_resolving(out)
    }

    /// Returns whether operations of this client's decision are under way.
    pub(crate) fn is_resolving(&self, by: ClientId, tag: u32) -> bool {
        self.pipes.values().any(|pipe| pipe.is_resolving(by, tag))
    }

    /// Drops all leftovers, as the node stops and no client will decide about them. Returns their
    /// clients.
    pub(crate) fn abandon_leftovers(&mut self, out: &NodeOut) -> Vec<ClientId> {
        let orphans = self.orphans(out);
        for orphan in &orphans {
            if let Some(pipe) = self.pipes.get_mut(orphan) {
                pipe.close_leftovers(&[]);
            }
        }
        orphans
    }

    /// Gives back the memory of a client that is gone, and of which nothing is under way, except
    /// for the parts with leftovers.
    pub(crate) fn keep_leftovers(&mut self, client: ClientId, out: &mut NodeOut) {
        let Some(pipe) = self.pipes.get_mut(&client) else { return };
        if let Some(journal) = pipe.journal.take() {
            release_ring(&mut self.rings, journal.pages(), out);
        }
        if pipe.lease.left_bytes.is_some() || !self.rings.is_lean() {
            return;
        }
        let Range { start, end } = pipe.window();
        let mut free_from = start;
        let mut left_bytes = 0;
        for kept in pipe.kept().into_iter().chain(std::iter::once(end..end)) {
            if free_from < kept.start {
                out.push(Action::GiveBack { range: free_from..kept.start });
            }
            left_bytes += kept.end.saturating_sub(kept.start.max(free_from));
            free_from = kept.end.max(free_from);
        }
        pipe.lease.left_bytes = Some(left_bytes);
        self.rings.keep(pipe.seat.ring, left_bytes);
    }
}
