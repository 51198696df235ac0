//! Losses of power, and the choice of the nodes that come back.

use braid_array::Role;

use super::Torn;
use crate::cluster::content;
use crate::cluster::kill_point::KillPoint;
use crate::cluster::scenario::ClusterScenario;
use crate::oracle::Range;
use crate::report::Failure;
use crate::workload::Kind;

use braid_array::format::superblock::feature;

/// A client serves by then if nodes that are back are enough.
const ENOUGH_MILLIS: u64 = 30_000;

impl Torn<'_> {
    /// Whole stripes are written; a flush at times.
    fn write_some(&mut self) {
        if self.cluster.rng.percent(5) {
            self.submit(Kind::Flush, Range::default());
            return;
        }
        let range = self.draw_range();
        let fua = self.cluster.rng.percent(5);
        self.submit(Kind::Write { fua }, range);
    }

    /// Power is lost under writes: everywhere, or at more nodes than the array can do without.
    pub(super) fn lose(&mut self) -> Result<(), Failure> {
        if self.needs_all() {
            self.return_all()?;
            self.be_whole()?;
        }
        let mut point = if self.cluster.rng.percent(40) {
            KillPoint::after_a_commit(self.cluster)
        } else {
            KillPoint::never()
        };
        let most = self.cluster.rng.pick(&[30, 200, 1000]);
        let nodes = u64::from(self.cluster.scenario.params.nodes);
        let mut left = self.cluster.rng.between(1, most * nodes);
        self.cluster.world.begin();
        while left > 0 && !point.is_now(self.cluster, 0) {
            if self.cluster.rng.percent(20) {
                self.write_some();
            }
            left -= 1;
            if !self.step()? {
                self.write_some();
            }
        }
        // A witness may have noted who died first.
        let may = self.is_vouched() || self.cluster.witnesses.is_empty();
        if may && self.cluster.rng.percent(30) { self.lose_many() } else { self.lose_everything() }
    }

    /// Everything loses power, the client too; some nodes do not come back yet.
    fn lose_everything(&mut self) -> Result<(), Failure> {
        self.cluster.note(&[96], || "POWER CUT".to_owned());
        let held = self.held();
        self.client_dies();
        let roles: Vec<Role> = Role::all(self.cluster.scenario.params.nodes).collect();
        for &role in &roles {
            self.dies(role);
        }
        (0..self.cluster.witnesses.len()).for_each(|number| self.cluster.restart_witness(number));
        self.judge.oracle.power_cut();
        self.forgotten = None;
        self.sums_are_torn(held);
        let without = self.stay_away();
        for role in roles.into_iter().filter(|role| !without.contains(role)) {
            self.comes_back(role);
        }
        self.begin()
    }

    /// More nodes die than the array can do without; the client waits for them.
    fn lose_many(&mut self) -> Result<(), Failure> {
        // Of all of them nobody is lost without whom it has gone on.
        let mut roles = self.cluster.too_many(self.is_vouched());
        self.cluster.note(&[97], || format!("LOST {roles:?}"));
        for &role in &roles {
            self.dies(role);
        }
        self.waits_for_all = true;
        self.cluster.world.begin();
        while !self.search.is_on() {
            self.await_step()?;
        }
        let ClusterScenario { journal_bytes, parts_only, .. } = self.cluster.scenario;
        let recorded = journal_bytes > 0 && !parts_only;
        // The client need not know that all it has answered is durable.
        if !recorded {
            self.forgotten = Some(self.judge.moment());
        }
        // The client may have gone on without any of them before it lost the rest.
        self.sums_are_torn(Vec::new());
        let without = self.stay_away();
        self.waits_for_all = without.is_empty();
        while !roles.is_empty() {
            let role = roles.swap_remove(self.cluster.rng.index(roles.len()));
            if without.contains(&role) {
                continue;
            }
            self.comes_back(role);
            for _ in 0..self.cluster.rng.below(100) {
                self.step()?;
            }
        }
        self.they_are_enough()?;
        self.serves()?;
        self.waits_for_all = false;
        // What was lost is told once.
        while self.forgotten.is_some() || self.judge.in_flight(self.client) > 0 {
            if self.judge.in_flight(self.client) == 0 {
                self.submit(Kind::Flush, Range::default());
            }
            self.await_step()?;
        }
        Ok(())
    }

    /// Where the client had gone on without some before it lost the rest, those that are back may
    /// be behind: then all have to be.
    fn they_are_enough(&mut self) -> Result<(), Failure> {
        self.cluster.world.begin();
        let until = self.cluster.world.now().plus_millis(ENOUGH_MILLIS);
        self.cluster.world.wake_at(until);
        while !self.is_serving() && self.cluster.world.now() < until && self.step()? {}
        if !self.is_serving() {
            for role in self.dead.clone() {
                self.comes_back(role);
            }
        }
        Ok(())
    }

    /// Draws the roles that stay away: none in an array without journals.
    fn stay_away(&mut self) -> Vec<Role> {
        if !self.is_vouched() || self.cluster.rng.percent(25) {
            return Vec::new();
        }
        // Nobody has what those lack who were not in sync.
        let behind = self.cluster.left_out();
        let more = self.cluster.more_losses(&behind);
        [behind, more].concat()
    }

    /// Members in sync, by the newest view, as their nodes run or ran.
    fn held(&self) -> Vec<Role> {
        let roles = Role::all(self.cluster.scenario.params.nodes);
        roles.filter(|role| self.was_in(*role)).collect()
    }

    /// Sums may not fit where marks say so.
    fn sums_are_torn(&mut self, held: Vec<Role>) {
        let ClusterScenario { journal_bytes, parts_only, params, .. } = self.cluster.scenario;
        let recorded = journal_bytes > 0 && !parts_only;
        if recorded && !self.cluster.newest_says(&[], feature::NODE_UNRECORDED) {
            return self.unknown.power_lost(|_| false, held);
        }
        let disks = self.cluster.disks();
        let bitmap = content::bitmap(&disks).ok().flatten();
        let stripe = self.cluster.layout.sync_sectors() / params.stripes;
        let marked = |number: u64| {
            bitmap.as_ref().is_none_or(|bitmap| {
                let mut bits = bitmap.bits_for(number * stripe..(number + 1) * stripe);
                bits.any(|bit| bitmap.get(bit))
            })
        };
        self.unknown.power_lost(marked, held);
        let counts = self.unknown.counts();
        self.cluster.note(&[98], || format!("TORN slices, UNKNOWN blocks {counts:?}"));
    }
}
