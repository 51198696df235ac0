//! When nothing is asked for though more could be.

use super::nodes::Cluster;
use crate::rest::Rest;
use crate::rng::Rng;

/// The pauses of one life: a long one, of 4 to 12 seconds, in which clients give memory back; and
/// short ones between any two requests, so that a life takes long and its array is never idle.
/// Either may be missing. [`draw`](Self::draw) decides for a life; the loop that submits asks
/// [`is_now`](Self::is_now) each time, and says [`is_over`](Self::is_over) when nothing else is
/// due.
#[derive(Debug)]
pub(super) struct IdlePhase {
    /// The long one, or a short one that has begun.
    rest: Rest,
    /// Between any two requests, then.
    trickle: Option<Rng>,
    /// The last request that one came after.
    after: u64,
}

impl IdlePhase {
    /// Draws the pauses of a life, from a generator of its own: seeds without pauses are unchanged.
    pub(super) fn draw(cluster: &Cluster) -> Self {
        let mut aside = cluster.rng.aside(0);
        let rest = Rest::draw(&mut aside, cluster.scenario.requests, 4_000..=12_000);
        let marks = cluster.scenario.bitmap_chunk_bytes.is_some();
        let trickle = (marks && aside.percent(20)).then(|| aside.fork());
        Self { rest, trickle, after: 0 }
    }

    /// Returns whether a pause is in force after this number of submitted requests.
    pub(super) fn is_now(&mut self, cluster: &mut Cluster, submitted: u64) -> bool {
        let now = cluster.world.now();
        if self.after < submitted
            && let Some(rng) = &mut self.trickle
        {
            self.after = submitted;
            // Less than it takes until superblocks say clean.
            let until = now.plus_millis(rng.between(10, 180));
            cluster.world.wake_at(until);
            self.rest.lasts_until(until);
        }
        self.rest.is_now(now, submitted)
    }

    /// Ends the pause, since nothing else is due.
    pub(super) const fn is_over(&mut self) {
        self.rest.is_over();
    }
}
