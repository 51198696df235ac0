//! Requests under way, and their parts that are not over.

use std::collections::BTreeMap;

use braid_array::{Instant, Op, Request, RequestError, RequestId, SECTOR_BYTES};

use super::gather::Patience;

/// A request that is being served.
#[derive(Debug)]
pub(super) struct Pending {
    /// Parts that are not over.
    left: u32,
    op: Op,
    bytes: u64,
    error: Option<RequestError>,
}

/// Requests that were taken and are not answered.
#[derive(Debug)]
pub(in crate::client) struct Requests {
    pending: BTreeMap<RequestId, Pending>,
    /// Length from which a write counts as long.
    long_bytes: u64,
    /// When the last one that changes data was answered.
    answered_at: Instant,
    /// Another write is being received.
    pub(in crate::client) expects_writes: bool,
}

impl Requests {
    /// Creates an empty list. `long_bytes`: length from which a write counts as long.
    pub(super) const fn new(long_bytes: u64) -> Self {
        Self {
            pending: BTreeMap::new(),
            long_bytes,
            answered_at: Instant(0),
            expects_writes: false,
        }
    }

    /// The request itself is a part until all others are known.
    pub(super) fn begin(&mut self, request: &Request) {
        let bytes = request.sectors.saturating_mul(SECTOR_BYTES);
        let pending = Pending { left: 1, op: request.op, bytes, error: None };
        self.pending.insert(request.id, pending);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Requests under way that change data.
    pub(super) fn writers(&self) -> usize {
        self.pending.values().filter(|request| request.op.changes_data()).count()
    }

    /// Returns whether exactly one request changes data, is long, and no other is known to come.
    pub(super) fn is_lone(&self) -> bool {
        let mut writers = self.pending.values().filter(|request| request.op.changes_data());
        let long = writers.next().is_some_and(|request| request.bytes >= self.long_bytes);
        long && writers.next().is_none() && !self.expects_writes
    }

    /// Returns the time from which a lone write waits for no other, if there is one.
    pub(super) fn lone_at(&self) -> Option<Instant> {
        self.is_lone().then(|| Patience::lone_after(self.answered_at))
    }

    /// Returns a request that has no parts left and was not answered; a violated invariant.
    pub(super) fn unanswered(&self) -> Option<RequestId> {
        self.pending.iter().find(|(_, request)| request.left == 0).map(|(&id, _)| id)
    }

    pub(super) fn add_part(&mut self, id: RequestId) {
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.left += 1;
        }
    }

    pub(super) fn parts(&self, id: RequestId) -> u32 {
        self.pending.get(&id).map_or(0, |pending| pending.left)
    }

    /// Ends one part of a request. Returns the result after the last part.
    pub(super) fn part_over(
        &mut self,
        id: RequestId,
        result: Result<(), RequestError>,
        now: Instant,
    ) -> Option<(Op, Result<(), RequestError>)> {
        let pending = self.pending.get_mut(&id)?;
        pending.error = pending.error.or(result.err());
        pending.left -= 1;
        if pending.left > 0 {
            return None;
        }
        let Pending { op, error, .. } = self.pending.remove(&id)?;
        if op.changes_data() {
            self.answered_at = now;
        }
        Some((op, error.map_or(Ok(()), Err)))
    }
}

#[cfg(test)]
mod tests {
    use braid_array::Buf;

    use super::*;

    const LONG_BYTES: u64 = 64 << 10;

    fn begin(requests: &mut Requests, id: u64, op: Op, bytes: u64) {
        let buf = Buf::default();
        let sectors = bytes / SECTOR_BYTES;
        requests.begin(&Request { id: RequestId(id), op, sector: 0, sectors, buf });
    }

    #[test]
    fn a_long_write_alone_waits_for_nobody_from_a_moment_after_the_last_answer_on() {
        let write = Op::Write { fua: false };
        let mut requests = Requests::new(LONG_BYTES);
        assert_eq!(requests.lone_at(), None);
        begin(&mut requests, 1, write, LONG_BYTES);
        begin(&mut requests, 2, Op::Read, LONG_BYTES);
        assert_eq!(requests.lone_at(), Some(Patience::lone_after(Instant(0))));
        requests.expects_writes = true;
        assert_eq!(requests.lone_at(), None, "more comes");
        requests.expects_writes = false;
        begin(&mut requests, 3, write, 512);
        assert_eq!(requests.lone_at(), None, "two");
        assert!(requests.part_over(RequestId(3), Ok(()), Instant(7)).is_some());
        assert_eq!(requests.lone_at(), Some(Patience::lone_after(Instant(7))));
        assert!(requests.part_over(RequestId(1), Ok(()), Instant(8)).is_some());
        begin(&mut requests, 4, write, LONG_BYTES - SECTOR_BYTES);
        assert_eq!(requests.lone_at(), None, "short");
    }
}
