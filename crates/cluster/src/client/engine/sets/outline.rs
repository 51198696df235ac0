//! Outline of a slice-set: the client's share of the work, equal for many slice-sets.

use std::collections::BTreeMap;
use std::sync::Arc;

use braid_array::Role;
use braid_array::code::Content;

use crate::pipeline::PlacedSchedule;
use crate::schedule::Endpoint;
use crate::set::{Pattern, Roles, Set};

/// Number of outlines kept.
const KEPT: usize = 1 << 12;

/// Nodes with a part in a slice-set, and the slices that the client sends.
#[derive(Debug)]
pub(super) struct Outline {
    pub(super) parts: Roles,
    /// By transfer.
    pub(super) sent: Vec<(usize, Content)>,
    /// The relay, if there is one: all slices go to this node, which needs none of another node's,
    /// and all other nodes with a part get theirs from it. The relay forwards `BeginSet` along with
    /// the slice, so that these nodes wake up once for both.
    pub(super) relay: Option<Role>,
    /// By role, the number of blocks that it stores.
    pub(super) stores: Vec<u16>,
}

/// Outlines of slice-sets, by pattern.
#[derive(Debug, Default)]
pub(super) struct Outlines {
    known: BTreeMap<Pattern, Arc<Outline>>,
}

impl Outlines {
    /// Returns the outline of a slice-set with this plan, over a stripe of this variant.
    pub(super) fn of(&mut self, set: &Set, variant: u16, plan: &PlacedSchedule) -> Arc<Outline> {
        let new = || Arc::new(Outline::new(set, plan));
        let Some(pattern) = set.pattern(variant) else { return new() };
        if self.known.len() >= KEPT {
            self.known.clear();
        }
        Arc::clone(self.known.entry(pattern).or_insert_with(new))
    }
}

impl Outline {
    fn new(set: &Set, plan: &PlacedSchedule) -> Self {
        let parts: Roles = plan.involved(set.strategy, &set.touched).into_iter().collect();
        let sent: Vec<(usize, Content)> = plan.sent_by_client(set.strategy, &set.touched).collect();
        let transfers = plan.schedule.transfers();
        let receivers: Roles = sent.iter().map(|&(transfer, _)| transfers[transfer].to).collect();
        let live = |number: &usize| plan.live(*number, set.strategy, &set.touched);
        let live = || (0..transfers.len()).filter(live).map(|number| &transfers[number]);
        let relays = |&relay: &Role| {
            let waits = live().any(|one| one.to == relay && one.from != Endpoint::Client);
            let reached = live().filter(|one| one.from == Endpoint::Node(relay)).map(|one| one.to);
            let reached: Roles = reached.chain([relay]).collect();
            !waits && parts.iter().all(|role| reached.contains(role))
        };
        let alone = receivers.count() == 1 && parts.count() > 1;
        let relay = if alone { receivers.iter().find(relays) } else { None };
        let stores = plan.stores(set.strategy, &set.touched);
        Self { parts, sent, relay, stores }
    }
}
