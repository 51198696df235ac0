//! Pipelines whose clients are gone, and which hold slice-sets that those may have answered: they
//! are kept, with their rings, until the client that comes next says what becomes of those.

use braid_array::{IoOp, Refusal};

use super::ids::{ArrayId, ClientId};
use super::out::Flight;
use super::{Node, STORAGE};
use crate::pipeline::Params;
use crate::wire::{Leftover, Message};

/// What fits into a message.
const MAX_STOCK_BYTES: usize = 6000;

/// A decision on its way into the store.
#[derive(Debug)]
pub(super) struct Settling {
    by: ClientId,
    tag: u32,
    go: Vec<(u32, u64)>,
    /// Operations that are not answered.
    left: usize,
    flushing: bool,
    ok: bool,
}

impl Node {
    fn orphans_of(&self, array: ArrayId) -> Vec<ClientId> {
        let of = |vote: Option<(ArrayId, u32)>| vote.is_some_and(|(other, _)| other == array);
        let left = self.clients.iter().filter(|(id, c)| of(c.vote) && self.is_orphan(**id));
        left.map(|(&id, _)| id).collect()
    }

    /// A client asks what its predecessor has left here.
    pub(super) fn inventory(&mut self, id: ClientId, tag: u32, array: ArrayId, from: u16) {
        let mut all: Vec<Leftover> = self.votes.leftovers(array).to_vec();
        let mut params: Option<Params> = None;
        for orphan in self.orphans_of(array) {
            if let Some(pipe) = self.clients.get(&orphan).and_then(|client| client.pipe.as_ref()) {
                all.extend(pipe.leftovers());
                params = Some(*pipe.pipeline.params());
            }
        }
        let mut items = Vec::new();
        let mut bytes = 0;
        for item in all.iter().skip(from.into()) {
            let blocks = item.staged.as_ref().map_or(0, |set| set.touched.blocks() / 8);
            bytes += 100 + blocks as usize;
            if bytes > MAX_STOCK_BYTES {
                break;
            }
            items.push(item.clone());
        }
        let next = from.saturating_add(items.len() as u16);
        let next = if usize::from(next) < all.len() { next } else { 0 };
        self.out.answer(id, &Message::Leftovers { tag, params, items, next });
    }

    /// A client says what becomes of what its predecessors have left here.
    pub(super) fn settle_left(
        &mut self,
        id: ClientId,
        tag: u32,
        array: ArrayId,
        go: &[(u32, u64)],
    ) {
        let orphans = self.orphans_of(array);
        for &orphan in &orphans {
            let Some(client) = self.clients.get_mut(&orphan) else { continue };
            let Some(pipe) = &client.pipe else { continue };
            let left = pipe.store_left(go, &mut self.out);
            let (go, flushing, ok) = (go.to_vec(), false, true);
            client.settling = Some(Settling { by: id, tag, go, left, flushing, ok });
        }
        if orphans.is_empty() {
            self.out.confirm(id, tag);
        }
        orphans.into_iter().for_each(|orphan| self.go_on_settling(orphan));
    }

    /// An operation of a decision is over.
    pub(super) fn resolve_io_done(&mut self, orphan: ClientId, ok: bool) {
        let client = self.clients.get_mut(&orphan);
        if let Some(settling) = client.and_then(|client| client.settling.as_mut()) {
            settling.left -= 1;
            settling.ok &= ok;
        }
        self.go_on_settling(orphan);
    }

    fn go_on_settling(&mut self, orphan: ClientId) {
        let Some(client) = self.clients.get_mut(&orphan) else { return };
        let (Some(settling), Some(pipe)) = (&mut client.settling, &mut client.pipe) else { return };
        if settling.left > 0 {
            return;
        }
        if settling.ok && !settling.flushing {
            (settling.flushing, settling.left) = (true, 1);
            return self.out.io(Flight::Resolve { orphan }, pipe.member, IoOp::Flush);
        }
        let Some(Settling { by, tag, go, ok, .. }) = client.settling.take() else { return };
        if ok {
            pipe.left_is_over(&go);
            self.run_ready(orphan);
        }
        let same = |settling: &Settling| settling.by == by && settling.tag == tag;
        let mut others = self.clients.values().filter_map(|client| client.settling.as_ref());
        if !ok {
            let why = Refusal::new("what was left here cannot be stored", STORAGE);
            self.out.refuse(by, tag, why);
        } else if !others.any(same) {
            self.out.confirm(by, tag);
        }
    }

    /// The node stops: nobody will say any more what becomes of what is left.
    pub(super) fn abandon_orphans(&mut self) {
        let orphans = self.clients.keys().copied().filter(|&id| self.is_orphan(id));
        for id in orphans.collect::<Vec<_>>() {
            let pipe = self.clients.get_mut(&id).and_then(|client| client.pipe.as_mut());
            pipe.into_iter().for_each(|pipe| pipe.left_is_over(&[]));
            self.run_ready(id);
        }
    }
}
