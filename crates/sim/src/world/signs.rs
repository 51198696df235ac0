//! Counts of notifications on which their receivers rely from then on.

use std::collections::BTreeMap;

/// Number of occurrences of each sign.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signs {
    pub(crate) durable: u64,
    pub(crate) flushed: u64,
    pub(crate) lost: u64,
    pub(crate) joined: u64,
    /// By kind of message.
    pub(crate) sent: BTreeMap<u8, u64>,
}

impl Signs {
    /// A client sends this message.
    pub(crate) fn count(&mut self, message: &[u8]) {
        if let Some(&kind) = message.first() {
            *self.sent.entry(kind).or_default() += 1;
        }
    }
}
