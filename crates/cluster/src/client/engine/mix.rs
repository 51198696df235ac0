//! Choice between node-made and client-made parities of a full slice-set when several clients share
//! the nodes. A client alone is bound by its own link, and node-made parity lets it send data only.
//! Many clients are bound by the nodes' links, and client-made parity puts fewer bytes on them. In
//! between, a mix is better than both.
//!
//! Each client finds its share alone. All links are assumed to have one speed, so the link that
//! carries most is the bottleneck. Nodes report the bytes that they have received from all senders.
//! While the busiest node receives more than this client sends, the client makes more of the
//! parities; otherwise fewer. At the best mix both links carry the same.

use braid_array::{Instant, Role};

use crate::schedule::Planner;

/// Time for which bytes are counted before the share is set anew.
const WINDOW_MILLIS: u64 = 200;
/// Change of the share when one link is idle and the other is not.
const GAIN: f64 = 0.35;

/// Slice-sets whose parities the client makes.
#[derive(Clone, Debug)]
pub(in crate::client) enum Mix {
    /// None.
    Nodes,
    /// All that are whole.
    Client,
    /// A share of the whole slice-sets.
    Share(Share),
}

/// The share, and the counters that determine it.
#[derive(Clone, Debug)]
pub(in crate::client) struct Share {
    /// 0 to 1.
    share: f64,
    /// Sum of the shares since the client last made parities.
    owed: f64,
    /// When the window began.
    since: Instant,
    /// Bytes that the client has sent in it.
    sent_bytes: u64,
    /// By role: the bytes that the node had received when the window began, and at last.
    received_bytes: Vec<(u64, u64)>,
    /// More was waiting to be written.
    pressed: bool,
}

impl Mix {
    /// Creates the mix for this planner, or a shared one where `both` allows it.
    pub(in crate::client) fn new(planner: Planner, both: bool, nodes: u16) -> Self {
        match planner {
            Planner::Client => Self::Client,
            _ if both => Self::of_both(nodes),
            _ => Self::Nodes,
        }
    }

    /// Both, beginning with the nodes.
    pub(super) fn of_both(nodes: u16) -> Self {
        Self::Share(Share {
            share: 0.0,
            owed: 0.0,
            since: Instant(0),
            sent_bytes: 0,
            received_bytes: vec![(0, 0); usize::from(nodes)],
            pressed: false,
        })
    }

    /// The client has a slice to send.
    pub(super) fn sent(&mut self, bytes: u32) {
        if let Self::Share(share) = self {
            share.sent_bytes += u64::from(bytes);
        }
    }

    /// Notes the bytes that a node has received so far.
    pub(in crate::client) fn received(&mut self, role: Role, bytes: u64) {
        if let Self::Share(share) = self {
            let (first, last) = &mut share.received_bytes[role.index()];
            if *last == 0 {
                // What it had received for others before.
                *first = bytes;
            }
            *last = bytes;
        }
    }

    /// Notes that a position is free again, and whether more was waiting for it.
    pub(super) fn credit(&mut self, now: Instant, pressed: bool) {
        if let Self::Share(share) = self {
            share.pressed |= pressed;
            if now >= share.since.plus_millis(WINDOW_MILLIS) {
                share.look();
                share.since = now;
            }
        }
    }

    /// Returns whether the client makes the parities of the next whole slice-set.
    pub(super) fn client_makes_next(&mut self) -> bool {
        match self {
            Self::Nodes => false,
            Self::Client => true,
            Self::Share(share) => {
                share.owed += share.share;
                let makes = share.owed >= 1.0;
                if makes {
                    share.owed -= 1.0;
                }
                makes
            }
        }
    }
}

impl Share {
    /// Sets the share by the window that has ended, and begins another.
    fn look(&mut self) {
        let busiest = self.received_bytes.iter().map(|(first, last)| last.saturating_sub(*first));
        let node = busiest.max().unwrap_or(0) as f64;
        let own = self.sent_bytes as f64;
        if node.max(own) > 0.0 {
            let step = GAIN * (node - own) / node.max(own);
            // Without pressure no link is a bottleneck, and the nodes may as well do it.
            let step = if self.pressed { step } else { step.min(0.0) };
            self.share = (self.share + step).clamp(0.0, 1.0);
        }
        for (first, last) in &mut self.received_bytes {
            *first = *last;
        }
        self.sent_bytes = 0;
        self.pressed = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share after a while when `clients` of them write as fast as links of one speed let
    /// them, over `nodes` nodes with a 2-D XOR code.
    fn steady(clients: f64, nodes: f64) -> f64 {
        let mut mix = Mix::of_both(1);
        let mut received = 0.0;
        let mut now = Instant(0);
        for _ in 0..200 {
            let Mix::Share(Share { share, .. }) = mix else { unreachable!("made so") };
            // Per byte of data: what the client sends, and what one node receives.
            let sends = 1.0 + share * 2.0 / (nodes - 2.0);
            let relays = (1.0 - share) * (nodes - 1.0) / (nodes - 2.0);
            let receives = clients * (sends + relays) / nodes;
            let data = 1e6 / f64::max(sends, receives);
            received += data * receives;
            mix.sent((data * sends) as u32);
            mix.received(Role(0), received as u64);
            now = now.plus_millis(WINDOW_MILLIS);
            mix.credit(now, true);
        }
        let Mix::Share(Share { share, .. }) = mix else { unreachable!("made so") };
        share
    }

    #[test]
    fn the_share_is_the_best_for_any_number_of_clients() {
        // The best share: (k g(0) - 1) / (1 + k (n-3) / 2n) * (n-2) / 2, between 0 and 1, where
        // g(0) = (2n-3) / (n (n-2)).
        for (clients, nodes) in [(1.0_f64, 5.0_f64), (3.0, 5.0), (4.0, 5.0), (6.0, 5.0), (6.0, 8.0)]
        {
            let g = (2.0 * nodes - 3.0) / (nodes * (nodes - 2.0));
            let eps = (clients * g - 1.0) / (1.0 + clients * (nodes - 3.0) / (2.0 * nodes));
            let best = (eps * (nodes - 2.0) / 2.0).clamp(0.0, 1.0);
            let found = steady(clients, nodes);
            assert!((found - best).abs() < 0.02, "{clients} of {nodes}: {found}, best {best}");
        }
    }

    #[test]
    fn the_share_is_kept_and_falls_without_pressure() {
        let mut mix = Mix::of_both(1);
        mix.received(Role(0), 500);
        mix.received(Role(0), 1000);
        mix.sent(1);
        mix.credit(Instant(0).plus_millis(WINDOW_MILLIS), false);
        assert!((0..100).all(|_| !mix.client_makes_next()));
        mix.received(Role(0), 2000);
        mix.sent(500);
        mix.credit(Instant(0).plus_millis(2 * WINDOW_MILLIS), true);
        let made = (0..1000).filter(|_| mix.client_makes_next()).count();
        assert_eq!(made, 175, "half of the gain");
    }
}
