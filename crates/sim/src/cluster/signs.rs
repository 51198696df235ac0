//! Counts of notifications on which their receivers rely from then on.

use std::collections::BTreeMap;

/// Number of occurrences of each sign.
#[derive(Clone, Debug, Default)]
pub(super) struct Signs {
    pub(super) durable: u64,
    pub(super) flushed: u64,
    pub(super) lost: u64,
    pub(super) joined: u64,
    /// By kind of message.
    pub(super) sent: BTreeMap<u8, u64>,
}

impl Signs {
    /// A client sends this message.
    pub(super) fn count(&mut self, message: &[u8]) {
        if let Some(&kind) = message.first() {
            *self.sent.entry(kind).or_default() += 1;
        }
    }
}
