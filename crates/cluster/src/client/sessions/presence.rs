//! Whether a node is there. While one hangs, others may wait for it, and owe answers just as it
//! does: so all are asked whether they are there, which waits for nobody. Who does not answer that
//! either is lost, and so is a node whose storage has not answered for as long. (Connections that
//! do not come about end by themselves.)
//!
//! All are asked, those too that owe nothing so far: else the second of two that hang would be
//! noticed only after the first was lost, and it would take twice as long. What counts for both is
//! the silence of the first.

use braid_array::{Instant, Refusal};

/// After this part of the time that a node may say nothing, all are asked; and again after as long.
const PART: u64 = 4;

/// What is known of whether a node is there.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// It was asked, and has not answered: as some node had said nothing since then.
    asked_of: Option<Instant>,
    /// When it last answered that.
    answered: Instant,
    /// When it last said anything.
    heard: Instant,
    /// When its storage has said nothing for too long.
    storage_due: Option<Instant>,
}

impl Presence {
    pub(super) const fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// When a node that owes something since then is given up.
    pub(super) fn given_up_at(&self, since: Instant, timeout_ms: u64) -> Instant {
        let since = self.asked_of.map_or(since, |first| first.max(self.heard).min(since));
        since.plus_millis(timeout_ms)
    }

    /// When it is asked whether it is there, as others have said nothing since then.
    pub(super) fn ping_due(&self, since: Instant, timeout_ms: u64) -> Option<Instant> {
        let again = since.max(self.answered).plus_millis(timeout_ms / PART);
        let due = self.storage_due.map_or(again, |due| due.min(again));
        self.asked_of.is_none().then_some(due)
    }

    /// It is asked, as some node has said nothing since then.
    pub(super) const fn asked(&mut self, since: Instant) {
        self.asked_of = Some(since);
    }

    /// It says that it is there, and for how long its storage has not answered. Is that too long?
    pub(super) fn answered(&mut self, now: Instant, silent_ms: u32, timeout_ms: u64) -> bool {
        let silent_ms = u64::from(silent_ms);
        let left_ms = timeout_ms.saturating_sub(silent_ms);
        self.asked_of = None;
        self.answered = now;
        self.storage_due = (silent_ms > 0).then(|| now.plus_millis(left_ms));
        left_ms == 0
    }
}

/// Why a node is lost of which something has said nothing for so long.
pub(super) fn silent(what: &str, timeout_ms: u64) -> Refusal {
    let seconds = timeout_ms as f64 / 1000.0;
    Refusal::new(
        format!("{what} for {seconds} s"),
        "see whether the node and its storage are well, and whether the network reaches it",
    )
}
