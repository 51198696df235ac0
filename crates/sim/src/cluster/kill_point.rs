//! The point at which a life ends.

use braid_cluster::ids::{Epoch, SetVersion};
use braid_cluster::wire::Message;

use super::nodes::Cluster;
use crate::rng::Rng;

/// A notification to a process.
#[derive(Clone, Copy, Debug)]
enum Sign {
    /// A node was told that data are durable.
    Durable,
    /// A program was told that its writes are durable.
    Flushed,
    /// The client was told that a node is lost, or is about to be told.
    Lost,
    /// The client was told that a member is in sync again.
    Joined,
    /// A message of this kind from a client has reached a node, or is under way.
    Sent(u8),
}

/// End of a life: after a number of events, or a number of events after a sign. A sign is a
/// notification on which its receiver relies from then on. Created by one of the constructors for
/// the kind of life. [`is_now`](Self::is_now) is called once for each event, and returns true when
/// the point has come.
#[derive(Debug)]
pub(super) struct KillPoint {
    /// Condition for starting the countdown.
    wait: Option<Wait>,
    /// Number of events left after the wait; `None` for a life without such an end.
    left: Option<u64>,
}

#[derive(Debug)]
struct Wait {
    sign: Sign,
    /// After so many requests, and how often that sign is passed over.
    requests: u64,
    skip: u64,
    /// Number of occurrences before the wait began.
    before: Option<u64>,
}

impl Sign {
    /// A message of the same kind as this one is sent.
    fn of(message: &Message) -> Self {
        Self::Sent(message.encode(Epoch::BEFORE_ANY)[0])
    }

    const fn passed_over(self, skip: u64) -> Wait {
        Wait { sign: self, requests: 0, skip, before: None }
    }
}

impl KillPoint {
    /// Draws the point of a cut-off life, within this number of events.
    pub(super) fn of_a_cut(cluster: &mut Cluster, events: u64) -> Self {
        let left = Some(cluster.rng.between(1, events));
        let mut aside = aside(cluster);
        if aside.percent(50) {
            return Self { wait: None, left };
        }
        let sign = aside.pick(&[Sign::Durable, Sign::Durable, Sign::Flushed]);
        let most = if aside.percent(20) { 1 } else { cluster.scenario.requests };
        let requests = aside.below(most);
        let most = aside.pick(&[1, 8, 60]);
        let skip = aside.below(most);
        Self::after(Wait { requests, ..sign.passed_over(skip) }, &mut aside, &[1, 4, 30])
    }

    /// Draws the point of a life with lost nodes: at times the client dies at a loss.
    pub(super) fn of_a_loss(cluster: &Cluster) -> Self {
        let mut aside = aside(cluster);
        if aside.percent(45) {
            return Self { wait: None, left: None };
        }
        let skip = aside.pick(&[0, 1, 1, 2]);
        Self::after(Sign::Lost.passed_over(skip), &mut aside, &[1, 4, 30, 300])
    }

    /// Draws the point of a short-lived client: after this client or another process has made some
    /// writes durable.
    pub(super) fn of_a_short_lived_client(cluster: &mut Cluster) -> Self {
        let most = 7 * u64::from(cluster.scenario.params.nodes);
        let skip = cluster.rng.below(most);
        Self::after(Sign::Durable.passed_over(skip), &mut cluster.rng, &[1, 1, 4, 30, 300])
    }

    /// Draws the point of a short-lived client: after a message of a kind seen before. Rare kinds
    /// are as likely as frequent ones.
    pub(super) fn after_a_message(cluster: &mut Cluster) -> Self {
        let kinds: Vec<u8> = cluster.world.signs.sent.keys().copied().collect();
        if kinds.is_empty() {
            return Self::never();
        }
        let sign = Sign::Sent(cluster.rng.pick(&kinds));
        let most = cluster.rng.pick(&[1, 1, u64::from(cluster.scenario.params.nodes)]);
        let skip = cluster.rng.below(most);
        Self::after(sign.passed_over(skip), &mut cluster.rng, &[1, 4, 30])
    }

    /// Draws the point of a client that lives until a member has come back.
    pub(super) fn after_a_return(cluster: &mut Cluster) -> Self {
        Self::after(Sign::Joined.passed_over(0), &mut cluster.rng, &[4, 100, 400])
    }

    /// Draws the point of a client that tells nodes which slice-sets are committed.
    pub(super) fn after_a_commit(cluster: &mut Cluster) -> Self {
        let skip = cluster.rng.below(6 * u64::from(cluster.scenario.params.nodes));
        let sign = Sign::of(&Message::Commit { sets: Vec::new() });
        Self::after(sign.passed_over(skip), &mut cluster.rng, &[1, 4])
    }

    /// Draws the point of a client that trims journals.
    pub(super) fn after_a_trim(cluster: &mut Cluster) -> Self {
        let skip = cluster.rng.below(2 * u64::from(cluster.scenario.params.nodes));
        let mark = SetVersion::default();
        let sign = Sign::of(&Message::TrimJournal { tag: 0, mark, all: false });
        Self::after(sign.passed_over(skip), &mut cluster.rng, &[1, 4])
    }

    /// Draws the point of a client whose flush has just been answered.
    pub(super) fn after_a_flush(cluster: &mut Cluster) -> Self {
        let skip = cluster.rng.below(6);
        Self::after(Sign::Flushed.passed_over(skip), &mut cluster.rng, &[1, 4])
    }

    /// At most one of `most` events after a sign.
    fn after(wait: Wait, rng: &mut Rng, most: &[u64]) -> Self {
        let most = rng.pick(most);
        Self { wait: Some(wait), left: Some(rng.below(most)) }
    }

    /// Returns the point of a life that goes on to its end.
    pub(super) const fn never() -> Self {
        Self { wait: None, left: None }
    }

    /// Returns whether the point has come, with this number of submitted requests. Call it once for
    /// each event.
    pub(super) fn is_now(&mut self, cluster: &Cluster, submitted: u64) -> bool {
        if let Some(wait) = &mut self.wait {
            let signs = &cluster.world.signs;
            let seen = match wait.sign {
                Sign::Durable => signs.durable,
                Sign::Flushed => signs.flushed,
                Sign::Lost => signs.lost,
                Sign::Joined => signs.joined,
                Sign::Sent(kind) => signs.sent.get(&kind).copied().unwrap_or(0),
            };
            if submitted < wait.requests || seen <= *wait.before.get_or_insert(seen) + wait.skip {
                return false;
            }
            self.wait = None;
        }
        match &mut self.left {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }
}

/// Returns a generator of its own: seeds without a kill point are unchanged.
fn aside(cluster: &Cluster) -> Rng {
    cluster.rng.aside(0x6d6f_6d65)
}
