//! The client of a run, and its nodes: they begin, serve, stop, die and come back.

use braid_array::Role;
use braid_array::action::Command;
use braid_array::events::SyncAction;

use super::{BLOCK_SECTORS, DEPTH, MAX_BLOCKS, SLOT_BYTES, STOP, Torn, WHOLE_MILLIS};
use crate::cluster::away::{Search, start_lasting};
use crate::oracle::Range;
use crate::report::Failure;
use crate::workload::Kind;

impl Torn<'_> {
    /// A client starts the array with the nodes that run, and serves.
    pub(super) fn begin(&mut self) -> Result<(), Failure> {
        let dead = self.dead.clone();
        self.cluster.note(&[90], || format!("BEGIN without {dead:?}"));
        let refused = |why: String| Failure(format!("does not start without {dead:?}: {why}"));
        let config = self.config().map_err(&refused)?;
        self.search = Search::default();
        let buffers_bytes = DEPTH as u64 * SLOT_BYTES;
        let client = start_lasting(self.cluster, config, &self.search, buffers_bytes);
        self.client = client.map_err(&refused)?;
        self.judge.client_begins(self.client, DEPTH, SLOT_BYTES);
        self.stopped = false;
        self.serves()?;
        // Whoever started it is told what stands against it until it has taken a request.
        self.request_all(Kind::Flush, vec![Range::default()])
    }

    /// Returns whether the client serves, in a view of the nodes' current incarnations.
    pub(super) fn is_serving(&mut self) -> bool {
        let status = self.cluster.status_of(self.client);
        status.waiting.is_none() && status.view.is_some() && self.is_view_new()
    }

    /// Waits until the client serves.
    pub(super) fn serves(&mut self) -> Result<(), Failure> {
        self.cluster.world.begin();
        while !self.is_serving() {
            self.await_step()?;
        }
        self.judge.oracle.decided();
        let away = self.roles_out();
        self.cluster.note(&[91], || format!("SERVES without {away:?}"));
        self.unknown.starts(&away, self.unrecorded);
        Ok(())
    }

    /// Submits all of these requests, as many at once as the client takes, and waits for the
    /// answers.
    pub(super) fn request_all(
        &mut self,
        kind: Kind,
        mut ranges: Vec<Range>,
    ) -> Result<(), Failure> {
        self.cluster.world.begin();
        while !ranges.is_empty() || self.judge.in_flight(self.client) > 0 {
            if let Some(&next) = ranges.last()
                && self.submit(kind, next)
            {
                ranges.pop();
                continue;
            }
            self.await_step()?;
        }
        Ok(())
    }

    pub(super) fn read_all(&mut self) -> Result<(), Failure> {
        let block = |block| Range { sector: block * BLOCK_SECTORS, sectors: BLOCK_SECTORS };
        self.request_all(Kind::Read, (0..self.blocks).map(block).collect())
    }

    /// Everything is written anew, stripe by stripe or a piece at a time, and flushed.
    pub(super) fn write_all(&mut self) -> Result<(), Failure> {
        let stripe = self.stripe_sectors() / BLOCK_SECTORS;
        let many = (MAX_BLOCKS / stripe).max(1) * stripe;
        let sizes = [stripe, stripe, many, MAX_BLOCKS, 7];
        let kinds = if self.whole { 3 } else { sizes.len() };
        let blocks = self.cluster.rng.pick(&sizes[..kinds]);
        let firsts = (0..self.blocks).step_by(blocks as usize);
        let range = |first: u64| Range {
            sector: first * BLOCK_SECTORS,
            sectors: blocks.min(self.blocks - first) * BLOCK_SECTORS,
        };
        let ranges = firsts.map(range).collect();
        self.request_all(Kind::Write { fua: false }, ranges)?;
        self.request_all(Kind::Flush, vec![Range::default()])
    }

    /// Waits until all members are in sync.
    pub(super) fn be_whole(&mut self) -> Result<(), Failure> {
        self.cluster.world.begin();
        let until = self.cluster.world.now().plus_millis(WHOLE_MILLIS);
        self.cluster.world.wake_at(until);
        loop {
            let status = self.cluster.status_of(self.client);
            let out = self.unknown.away().next().is_some();
            let idle = status.sync.action == SyncAction::Idle;
            if status.degraded == 0 && !out && idle && status.waiting.is_none() {
                return Ok(());
            }
            if self.cluster.world.now() >= until || !self.step()? {
                let away: Vec<Role> = self.unknown.away().collect();
                let held = status.held_up;
                return Err(Failure(format!("is not whole: {away:?} are out, held up: {held:?}")));
            }
        }
    }

    /// All nodes are there again: all are in sync some time.
    pub(super) fn return_all(&mut self) -> Result<(), Failure> {
        for role in self.dead.clone() {
            self.comes_back(role);
        }
        // At times something else happens before.
        if self.cluster.rng.percent(25) {
            for _ in 0..self.cluster.rng.below(500) {
                self.step()?;
            }
            return Ok(());
        }
        self.be_whole()
    }

    /// Stops the client.
    pub(super) fn stop(&mut self) -> Result<(), Failure> {
        self.cluster.world.begin();
        self.cluster.world.command(self.client, STOP, Command::Stop);
        while !self.stopped {
            self.await_step()?;
        }
        self.client_dies();
        Ok(())
    }

    /// The array stops, and starts again with the nodes that run.
    pub(super) fn restart(&mut self) -> Result<(), Failure> {
        let all = self.unknown.away().next().is_none();
        self.stop()?;
        // Records are in place then, and gone.
        self.unrecorded |= all;
        self.begin()
    }

    pub(super) fn client_dies(&mut self) {
        self.cluster.world.kill(self.client);
        self.taken_in();
        self.judge.client_ends(self.client);
        self.unknown.client_gone();
        self.doubtful.clear();
        self.risky.clear();
    }

    /// Kills a node; its unflushed data may be lost.
    pub(super) fn dies(&mut self, role: Role) {
        if self.dead.insert(role) {
            self.cluster.note(&[99, role.0.into()], || format!("DIES {role}"));
            self.cluster.kill(role);
            self.unknown.lost(role);
        }
    }

    /// A node starts again.
    pub(super) fn comes_back(&mut self, role: Role) {
        if self.dead.remove(&role) {
            self.cluster.note(&[100, role.0.into()], || format!("BACK {role}"));
            self.cluster.reboot(role);
        }
    }
}
