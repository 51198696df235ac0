//! Flushes: what was answered is stored first, then made durable by all nodes.

use super::{BTreeSet, Client, Message, RequestError, RequestId, RequestKind};

/// A flush on its way to the nodes.
#[derive(Debug)]
pub(super) struct Flush {
    request: RequestId,
    /// Positions of slice-sets that were answered and have to be stored first.
    pub(super) after: BTreeSet<u16>,
    /// Nodes that have not answered, once they were asked.
    pub(super) left: Option<u32>,
    /// All slice-sets up to this version are stored by then.
    covers: Option<u64>,
}

impl Client {
    /// Has the nodes make durable what was answered, once it is stored.
    pub(super) fn flush_nodes(&mut self, request: RequestId) {
        let number = self.next_tag;
        self.next_tag = self.next_tag.wrapping_add(1);
        let going = self.open.iter().filter(|(_, open)| open.is_going());
        if self.journals.cover_all()
            || self.journals.are_used() && braid_array::broken("flush-waits")
        {
            // What was answered is recorded durably.
            let (after, left, covers) = (BTreeSet::new(), Some(0), None);
            self.flushes.insert(number, Flush { request, after, left, covers });
            return self.end_flush(number);
        }
        let after: BTreeSet<u16> = going.map(|(&position, _)| position).collect();
        self.flushes.insert(number, Flush { request, after, left: None, covers: None });
        self.send_flush(number);
    }

    pub(super) fn send_flush(&mut self, number: u32) {
        let roles: Vec<u16> = (0..self.params().nodes).filter(|&r| self.alive(r)).collect();
        let stored = self.stored_up_to();
        let Some(flush) = self.flushes.get_mut(&number) else { return };
        if !flush.after.is_empty() {
            return;
        }
        flush.covers = Some(stored);
        flush.left = Some(roles.len() as u32);
        for role in &roles {
            self.ask(*role, RequestKind::Flush(number), |tag| Message::Flush { tag });
        }
        self.end_flush(number);
    }

    /// A node has made everything durable, or is not of the array any more.
    pub(super) fn flush_answered(&mut self, number: u32) {
        let left = self.flushes.get_mut(&number).and_then(|flush| flush.left.as_mut());
        if let Some(left) = left {
            *left -= 1;
        }
        self.end_flush(number);
    }

    /// A flush is over when all have answered, and superblocks tell of those who could not.
    pub(super) fn end_flush(&mut self, number: u32) {
        let Some(flush) = self.flushes.get(&number) else { return };
        if flush.left != Some(0) || !self.losses_told() {
            return;
        }
        let (request, covers) = (flush.request, flush.covers);
        self.flushes.remove(&number);
        self.journals.flushed(covers.filter(|_| !self.keeper.has_failed()));
        let result = if self.keeper.has_failed() { Err(RequestError::Failed) } else { Ok(()) };
        self.piece_over(request, result);
    }
}
