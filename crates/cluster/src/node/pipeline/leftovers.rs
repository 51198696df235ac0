//! What a client that is gone has left prepared, for the one that comes next.

use braid_array::IoOp;

use super::open_set::{OpenSet, Stage};
use super::pipe::Pipe;
use crate::ids::SetVersion;
use crate::node::ids::ClientId;
use crate::node::out::{Flight, Out};
use crate::wire::Leftover;

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
