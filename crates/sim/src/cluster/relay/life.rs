//! Life of a client in a relay: its length and its requests.

use braid_array::{Instant, Role};
use braid_cluster::pipeline::Params;

use super::focus::Focus;
use super::{BLOCK_SECTORS, MAX_BLOCKS, Relay};
use crate::cluster::kill_point::KillPoint;
use crate::cluster::nodes::Cluster;
use crate::report::Failure;
use crate::workload::Kind;

/// Number of events that suffice to start an array and to write to it.
const EVENTS_TO_FOCUS: u64 = 3000;

/// Arrival of requests.
#[derive(Clone, Copy, Debug)]
enum Arrival {
    /// At this percentage of events.
    Often(u64),
    /// At intervals: short enough that the client is never idle, and a life long enough for lost
    /// nodes to come back and for bitmap marks to be cleared.
    Trickle(Instant),
}

/// Life of one client of a relay: its length in events, an earlier end, the arrival and kinds of
/// requests, and the moment of a loss. Drawn by [`draw`](Self::draw) when the client begins.
#[derive(Debug)]
struct Life {
    /// Number of events left.
    left: u64,
    /// Earlier end.
    end: KillPoint,
    arrival: Arrival,
    /// Number of events left when a node, witness or connection is lost.
    trouble_at: Option<u64>,
    /// Set if it gets writes of whole stripes.
    whole: bool,
    /// Set if it gets flushes and durable writes.
    flushes: bool,
    /// Number of events left from which it gets requests for these blocks only.
    corner: Option<(u64, Vec<u64>)>,
}

impl Life {
    /// Draws a life, depending on whether the previous client served.
    fn draw(cluster: &mut Cluster, blocks: u64, served: bool) -> Self {
        let corner = corner(cluster, blocks);
        let rng = &mut cluster.rng;
        let slow = rng.percent(20);
        let most = rng.pick(&[30, 300, 1000, 3000, 8000]);
        let left = if slow { rng.between(500, 10_000) } else { rng.between(1, most) };
        let often = rng.pick(&[2, 10, 40]);
        let from = if rng.percent(50) { left } else { rng.below(left) };
        let corner = rng.percent(70).then_some((from, corner));
        // Who lives for long goes on with those that come back.
        let early = if slow { left / 2 } else { 0 };
        let trouble_at = rng.percent(60).then(|| early + rng.below(left - early));
        let whole = rng.percent(30);
        let flushes = rng.percent(70);
        let end = rng.below(10);
        Self {
            left,
            end: match end {
                0..6 if slow => KillPoint::after_a_return(cluster),
                0..1 => KillPoint::of_a_short_lived_client(cluster),
                1..3 => KillPoint::after_a_message(cluster),
                3..8 if served => KillPoint::after_a_message(cluster),
                _ => KillPoint::never(),
            },
            arrival: if slow { Arrival::Trickle(Instant(0)) } else { Arrival::Often(often) },
            trouble_at,
            whole,
            flushes,
            corner,
        }
    }

    /// Leads it to the moment that the relay is about, more often than not.
    fn focus(&mut self, focus: Focus, cluster: &mut Cluster, blocks: u64) {
        let Some(end) = focus.end(cluster) else { return };
        self.end = end;
        self.left = self.left.max(EVENTS_TO_FOCUS);
        self.trouble_at = None;
        self.arrival = Arrival::Often(40);
        self.whole = focus == Focus::Flushes;
        self.flushes = true;
        // All clients meet at the same blocks.
        let params = &cluster.scenario.params;
        self.corner = (!self.whole).then(|| (self.left, summed_up(params, blocks, 0, 0)));
    }

    /// Returns whether a request is due.
    fn is_due(&mut self, cluster: &mut Cluster) -> bool {
        match &mut self.arrival {
            Arrival::Often(percent) => cluster.rng.percent(*percent),
            Arrival::Trickle(due) => {
                let now = cluster.world.now();
                let is_due = *due <= now;
                if is_due {
                    // Less than it takes until superblocks say clean.
                    *due = now.plus_millis(cluster.rng.between(10, 180));
                    cluster.world.wake_at(*due);
                }
                is_due
            }
        }
    }
}

/// Blocks of any stripe that are summed up with one another.
fn corner(cluster: &mut Cluster, blocks: u64) -> Vec<u64> {
    let Cluster { scenario, rng, .. } = cluster;
    let params = &scenario.params;
    let stripe = rng.below(params.stripes);
    let at = rng.below(chunk_blocks(params));
    summed_up(params, blocks, stripe, at)
}

/// The blocks of a stripe that are summed up with one another, `at` so many from where their
/// chunks begin.
fn summed_up(params: &Params, blocks: u64, stripe: u64, at: u64) -> Vec<u64> {
    let chunk = chunk_blocks(params);
    let each = blocks / params.stripes;
    let first = stripe * each + at;
    (0..each / chunk).map(|index| first + index * chunk).collect()
}

fn chunk_blocks(params: &Params) -> u64 {
    u64::from(params.chunk_bytes) / (512 * BLOCK_SECTORS)
}

impl Relay<'_> {
    /// Runs a client with these roles: it begins, works for a while, and ends or continues unheard.
    /// Returns whether it ended at a kill point.
    pub(super) fn life(&mut self, roles: &[Role]) -> Result<bool, Failure> {
        self.gone.clear();
        self.begin(roles);
        let served = std::mem::take(&mut self.served);
        let mut life = Life::draw(self.cluster, self.blocks, served);
        life.focus(self.focus, self.cluster, self.blocks);
        while life.left > 0 && self.client.is_some() && !self.is_refused() {
            if life.trouble_at == Some(life.left) {
                self.trouble();
                let rng = &mut self.cluster.rng;
                if rng.percent(50) && matches!(life.arrival, Arrival::Often(_)) {
                    let soon = rng.pick(&[1, 4, 15, 40, 120]);
                    life.left = life.left.min(1 + rng.below(soon));
                }
            }
            if life.end.is_now(self.cluster, 0) {
                return Ok(true);
            }
            if life.is_due(self.cluster) {
                self.submit(&life);
            }
            life.left -= 1;
            if !self.step()? && !self.submit(&life) {
                break;
            }
        }
        Ok(false)
    }

    /// Gives the client something to do. False when it takes nothing.
    fn submit(&mut self, life: &Life) -> bool {
        let rng = &mut self.cluster.rng;
        let count = self.blocks;
        let stripes = self.cluster.scenario.params.stripes;
        let mut range = rng.below(count)..count;
        range.end = range.start + rng.between(1, (count - range.start).min(4));
        if life.whole || rng.percent(20) {
            let stripe = count / stripes;
            range.start = range.start / stripe * stripe;
            range.end = range.start + stripe.min(MAX_BLOCKS);
        }
        if let Some((_, corner)) = life.corner.as_ref().filter(|(from, _)| life.left <= *from) {
            range.start = rng.pick(corner);
            range.end = range.start + 1;
        }
        match rng.below(100) {
            0..15 if life.flushes => self.request(Kind::Flush, 0..0),
            0..45 => self.request(Kind::Read, range),
            kind => self.request(Kind::Write { fua: kind >= 90 && life.flushes }, range),
        }
    }
}
