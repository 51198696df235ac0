//! What a client that is gone has left prepared, for the one that comes next.

use std::ops::Range;

use braid_array::{Action, IoOp};

use super::open_set::{OpenSet, Stage};
use super::part::Work;
use super::pipe::Pipe;
use super::ring::ALIGN;
use super::{Pipes, release_ring};
use crate::ids::SetVersion;
use crate::node::ids::{ArrayId, ClientId};
use crate::node::out::{Flight, Out};
use crate::wire::{Leftover, Message};

/// What fits into a message.
const MAX_LISTED_BYTES: usize = 6000;

/// A client's decision on what another has left, on its way into the store.
#[derive(Debug)]
pub(super) struct Resolving {
    by: ClientId,
    tag: u32,
    commit: Vec<SetVersion>,
    /// Operations that are not answered.
    unanswered: usize,
    flushing: bool,
    ok: bool,
}

/// A decision is in the store, or cannot be stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resolved {
    pub(crate) by: ClientId,
    pub(crate) tag: u32,
    pub(crate) ok: bool,
}

/// As many of these as fit into a message, from one on, and the first behind them; 0 when there is
/// none.
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
    /// Slice-sets whose new content is here whole, whatever of it is stored.
    fn whole(&self) -> impl Iterator<Item = &OpenSet> {
        self.sets.iter().filter(|open| match open.stage {
            Stage::Preparing | Stage::Recording | Stage::Aborting => false,
            Stage::Prepared => open.ok,
            Stage::Committing => true,
        })
    }

    /// A client that comes next has to say what becomes of something.
    pub(super) fn has_leftovers(&self) -> bool {
        self.seat.write && self.whole().next().is_some()
    }

    /// What a client that comes next is told of.
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

    /// Where in the arena the content lies that a client that comes next may have stored, in whole
    /// pages and in order.
    fn kept(&self) -> Vec<Range<u64>> {
        let mut kept = Vec::new();
        for OpenSet { set, part, .. } in self.whole() {
            for task in &part.tasks {
                if let Work::Store { from, .. } = task.work {
                    let buf = self.seat.slot(part, set, from);
                    let end = buf.offset + u64::from(buf.len);
                    kept.push(buf.offset..end.next_multiple_of(ALIGN));
                }
            }
        }
        kept.sort_unstable_by_key(|range| range.start);
        kept
    }

    /// Is something of this client's request under way?
    pub(super) fn is_resolving(&self, by: ClientId, tag: u32) -> bool {
        self.resolving.as_ref().is_some_and(|resolving| resolving.by == by && resolving.tag == tag)
    }

    /// A client says which of the slice-sets take the place of what is stored: stores them.
    pub(super) fn resolve(&mut self, by: ClientId, tag: u32, commit: &[SetVersion], out: &mut Out) {
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
        let resolving = Resolving { by, tag, commit, unanswered, flushing: false, ok: true };
        self.resolving = Some(resolving);
    }

    /// An operation of a decision is over.
    pub(super) fn resolve_done(&mut self, ok: bool) {
        if let Some(resolving) = &mut self.resolving {
            resolving.unanswered -= 1;
            resolving.ok &= ok;
        }
    }

    /// Flushes when all is written, and ends when that is over.
    pub(super) fn advance_resolving(&mut self, out: &mut Out) -> Option<Resolved> {
        let resolving = self.resolving.as_mut().filter(|resolving| resolving.unanswered == 0)?;
        if resolving.ok && !resolving.flushing {
            resolving.flushing = true;
            resolving.unanswered = 1;
            out.io(Flight::Resolve { orphan: self.seat.client }, self.seat.member, IoOp::Flush);
            return None;
        }
        let Resolving { by, tag, commit, ok, .. } = self.resolving.take()?;
        if ok {
            self.close_leftovers(&commit);
        }
        Some(Resolved { by, tag, ok })
    }

    /// All that was committed is stored, and the rest is dropped.
    pub(super) fn close_leftovers(&mut self, commit: &[SetVersion]) {
        for number in self.sets.all() {
            let version = self.sets.get(number).map(|open| self.seat.version(&open.set));
            let stored = version.is_some_and(|version| commit.contains(&version));
            self.sets.close(number, stored.then_some(true));
        }
    }
}

impl Pipes {
    /// Has a client prepared what the next one has to decide about?
    pub(crate) fn has_leftovers(&self, client: ClientId) -> bool {
        self.pipes.get(&client).is_some_and(Pipe::has_leftovers)
    }

    /// Clients that are gone, and have left slice-sets which the next one decides about.
    fn orphans(&self, out: &Out) -> Vec<ClientId> {
        let orphan = |(&id, pipe): (&ClientId, &Pipe)| {
            (!out.is_here(id) && pipe.has_leftovers()).then_some(id)
        };
        self.pipes.iter().filter_map(orphan).collect()
    }

    fn orphans_of(&self, array: ArrayId, out: &Out) -> Vec<ClientId> {
        let mut orphans = self.orphans(out);
        orphans.retain(|id| self.pipes[id].seat.array == Some(array));
        orphans
    }

    /// Answers what clients have left here, after what is `known` of pipelines that have ended.
    pub(crate) fn list_leftovers(
        &self,
        client: ClientId,
        tag: u32,
        array: ArrayId,
        from: u16,
        known: &[Leftover],
        out: &mut Out,
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

    /// A client says which of the slice-sets that others have left here are committed.
    pub(crate) fn resolve_leftovers(
        &mut self,
        by: ClientId,
        tag: u32,
        array: ArrayId,
        commit: &[SetVersion],
        out: &mut Out,
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

    /// An operation of a decision is over; what that ends.
    pub(crate) fn resolve_done(
        &mut self,
        orphan: ClientId,
        ok: bool,
        out: &mut Out,
    ) -> Option<Resolved> {
        let pipe = self.pipes.get_mut(&orphan)?;
        pipe.resolve_done(ok);
        pipe.advance_resolving(out)
    }

    /// Is something of this client's decision under way?
    pub(crate) fn is_resolving(&self, by: ClientId, tag: u32) -> bool {
        self.pipes.values().any(|pipe| pipe.is_resolving(by, tag))
    }

    /// The node stops: nobody will say any more what becomes of what is left. Whose that was.
    pub(crate) fn abandon_leftovers(&mut self, out: &Out) -> Vec<ClientId> {
        let orphans = self.orphans(out);
        for orphan in &orphans {
            if let Some(pipe) = self.pipes.get_mut(orphan) {
                pipe.close_leftovers(&[]);
            }
        }
        orphans
    }

    /// A client is gone, and nothing of it is under way: of its memory that is kept alone which
    /// holds what it left.
    pub(crate) fn keep_leftovers(&mut self, client: ClientId, out: &mut Out) {
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
