//! Presence of a node. While one node hangs, others may wait for it, and owe answers just as it
//! does. So all nodes are pinged, as a ping waits for no other node. A node that does not answer
//! its ping is failed, and so is a node whose storage has not answered for as long. (Attempts to
//! connect end by themselves.)
//!
//! Nodes that owe nothing so far are pinged, too. Otherwise the second of two hanging nodes would
//! be noticed only after the first was failed, which would take twice as long. The silence of the
//! first counts for both.

use braid_array::{Instant, Refusal};

/// All nodes are pinged after this part of the tolerated silence, and again after as long.
const PART: u64 = 4;

/// Presence state of a node.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// Start of the silence that caused a ping which is not answered yet.
    asked_of: Option<Instant>,
    /// Time of the last answer to a ping.
    answered: Instant,
    /// Time of the last message.
    heard: Instant,
    /// Time at which the silence of its storage becomes too long.
    storage_due: Option<Instant>,
}

impl Presence {
    pub(super) const fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// Returns the time at which a node is failed that owes an answer since then.
    pub(super) fn given_up_at(&self, since: Instant, timeout_ms: u64) -> Instant {
        let since = self.asked_of.map_or(since, |first| first.max(self.heard).min(since));
        since.plus_millis(timeout_ms)
    }

    /// Returns the time of the next ping, given the start of a silence.
    pub(super) fn ping_due(&self, since: Instant, timeout_ms: u64) -> Option<Instant> {
        let again = since.max(self.answered).plus_millis(timeout_ms / PART);
        let due = self.storage_due.map_or(again, |due| due.min(again));
        self.asked_of.is_none().then_some(due)
    }

    /// Notes a ping, which a silence since then has caused.
    pub(super) const fn asked(&mut self, since: Instant) {
        self.asked_of = Some(since);
    }

    /// Notes the answer to a ping, and the silence of the storage. Returns whether that silence is
    /// too long.
    pub(super) fn answered(&mut self, now: Instant, silent_ms: u32, timeout_ms: u64) -> bool {
        let silent_ms = u64::from(silent_ms);
        let left_ms = timeout_ms.saturating_sub(silent_ms);
        self.asked_of = None;
        self.answered = now;
        self.storage_due = (silent_ms > 0).then(|| now.plus_millis(left_ms));
        left_ms == 0
    }
}

/// Returns the refusal for a silence of this length.
pub(super) fn silent(what: &str, timeout_ms: u64) -> Refusal {
    let seconds = timeout_ms as f64 / 1000.0;
    Refusal::new(
        format!("{what} for {seconds} s"),
        "see whether the node and its storage are well, and whether the network reaches it",
    )
}
