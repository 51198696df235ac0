//! Flushes: answered writes are stored first, then made durable by all nodes.

use std::collections::{BTreeMap, BTreeSet};

use braid_array::{RequestError, RequestId, Role};

use super::context::Cx;
use super::journals::Journals;
use super::sets::Sets;
use crate::client::out::RequestKind;
use crate::ids::Position;
use crate::wire::Message;

/// A flush on its way to the nodes.
#[derive(Debug)]
struct Flush {
    request: RequestId,
    /// Positions of slice-sets that were answered and have to be stored first.
    after: BTreeSet<Position>,
    /// Nodes that have not answered, once they were asked.
    left: Option<u32>,
    /// All slice-sets up to this version are stored by then.
    covers: Option<u64>,
}

/// Flushes under way, by number.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    map: BTreeMap<u32, Flush>,
}

impl Flushes {
    pub(super) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Begins a flush: nodes make answered writes durable, once these are stored.
    pub(super) fn begin(
        &mut self,
        cx: &mut Cx<'_>,
        sets: &Sets,
        journals: &mut Journals,
        request: RequestId,
    ) {
        let number = cx.out.tag();
        let mut flush = Flush { request, after: BTreeSet::new(), left: None, covers: None };
        if journals.cover_all() || journals.are_used() && braid_array::broken("flush-waits") {
            // What was answered is recorded durably.
            flush.left = Some(0);
            self.map.insert(number, flush);
            return self.end(cx, journals, number);
        }
        flush.after = sets.committing().collect();
        self.map.insert(number, flush);
        self.send(cx, sets, journals, number);
    }

    /// Notes that a slice-set is stored: flushes stop waiting for it.
    pub(super) fn stored(
        &mut self,
        cx: &mut Cx<'_>,
        sets: &Sets,
        journals: &mut Journals,
        position: Position,
    ) {
        let waited =
            |(&number, flush): (&u32, &mut Flush)| flush.after.remove(&position).then_some(number);
        let waited: Vec<u32> = self.map.iter_mut().filter_map(waited).collect();
        for number in waited {
            self.send(cx, sets, journals, number);
        }
    }

    fn send(&mut self, cx: &mut Cx<'_>, sets: &Sets, journals: &mut Journals, number: u32) {
        let Some(flush) = self.map.get_mut(&number) else { return };
        if !flush.after.is_empty() {
            return;
        }
        let roles: Vec<Role> = cx.members.alive_roles().collect();
        flush.covers = Some(sets.stored_up_to());
        flush.left = Some(roles.len() as u32);
        for role in roles {
            cx.request(role, RequestKind::Flush(number), |tag| Message::Flush { tag });
        }
        self.end(cx, journals, number);
    }

    /// Notes that a node has made everything durable, or has left the array.
    pub(super) fn answered(&mut self, cx: &mut Cx<'_>, journals: &mut Journals, number: u32) {
        let left = self.map.get_mut(&number).and_then(|flush| flush.left.as_mut());
        if let Some(left) = left {
            *left -= 1;
        }
        self.end(cx, journals, number);
    }

    /// Ends a flush when all nodes have answered and superblocks record those that could not.
    fn end(&mut self, cx: &mut Cx<'_>, journals: &mut Journals, number: u32) {
        let Some(&Flush { request, left, covers, .. }) = self.map.get(&number) else { return };
        if left != Some(0) || !cx.losses_told() {
            return;
        }
        self.map.remove(&number);
        if cx.keeper.has_failed() {
            return cx.part_over(request, Err(RequestError::Failed));
        }
        journals.flushed(covers);
        cx.part_over(request, Ok(()));
    }

    /// Ends flushes that waited for superblocks to record losses. Returns whether any ended.
    pub(super) fn losses_told(&mut self, cx: &mut Cx<'_>, journals: &mut Journals) -> bool {
        let before = self.map.len();
        let numbers: Vec<u32> = self.map.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.end(cx, journals, number));
        self.map.len() < before
    }

    /// Checks that the expected number of answers is outstanding. `asked` returns the number of
    /// nodes that owe an answer to a flush.
    pub(super) fn check(&self, asked: impl Fn(u32) -> usize) -> Result<(), String> {
        for (&number, flush) in &self.map {
            let left = asked(number);
            if left != flush.left.unwrap_or(0) as usize {
                return Err(format!("{left} nodes flush, counted {:?}", flush.left));
            }
        }
        Ok(())
    }
}
