//! Requests to a client of a run, and events meanwhile.

use braid_array::Role;
use braid_array::events::SyncAction;

use super::{BLOCK_SECTORS, MAX_BLOCKS, Torn};
use crate::cluster::recovery_target::{ADD, RecoveryTarget};
use crate::oracle::Range;
use crate::report::Failure;
use crate::workload::Kind;

/// A member that comes back is whole by then, and so is one that is rebuilt.
const WHOLE_MILLIS: u64 = 120_000;

/// The next event.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Every block is read.
    ReadAll,
    /// Every block is written anew, and flushed.
    WriteAll,
    /// Some are.
    WriteSome,
    /// One more member is lost, or as many as the array can do without.
    Lose,
    /// Absent nodes come back.
    Return,
    /// A new node takes the place of one that is away.
    Replace,
    /// The client dies, and another one comes.
    Another,
    /// The client stops, and another one comes.
    Restart,
}

impl Torn<'_> {
    /// The client lives until the next loss.
    pub(super) fn live(&mut self) -> Result<(), Failure> {
        use Step::{Another, Lose, ReadAll, Replace, Restart, Return, WriteAll, WriteSome};
        let steps = [
            ReadAll, WriteAll, WriteAll, WriteSome, WriteSome, Lose, Lose, Return, Return, Return,
            Replace, Another, Restart,
        ];
        if self.unknown.is_alone() && self.cluster.rng.percent(40) {
            self.write_beside()?;
        }
        for _ in 0..self.cluster.rng.between(1, 6) {
            let step = self.cluster.rng.pick(&steps);
            self.cluster.note(&[101], || format!("STEP {step:?}"));
            self.began_at = self.cluster.world.steps;
            match step {
                ReadAll => self.read_all()?,
                WriteAll => self.write_all()?,
                WriteSome => self.write_some_and_flush()?,
                Lose => self.lose_more(),
                Return => self.return_all()?,
                Replace => self.replace()?,
                Another | Restart if self.needs_all() => {}
                Another => {
                    self.client_dies();
                    self.begin()?;
                }
                Restart => self.restart()?,
            }
        }
        Ok(())
    }

    /// Submits all of these requests, as many at once as the client takes, and waits for the
    /// answers.
    pub(super) fn request_all(
        &mut self,
        kind: Kind,
        mut ranges: Vec<Range>,
    ) -> Result<(), Failure> {
        self.began_at = self.cluster.world.steps;
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

    fn write_some_and_flush(&mut self) -> Result<(), Failure> {
        self.whole = self.whole && self.cluster.rng.percent(50);
        for _ in 0..self.cluster.rng.between(1, 8) {
            let range = self.draw_range();
            self.request_all(Kind::Write { fua: false }, vec![range])?;
        }
        self.request_all(Kind::Flush, vec![Range::default()])
    }

    /// Writes parts of stripes next to blocks of an absent member; then the member comes back.
    fn write_beside(&mut self) -> Result<(), Failure> {
        self.whole = false;
        for _ in 0..self.cluster.rng.between(2, 6) {
            let block = self.cluster.rng.below(self.blocks);
            let range = Range { sector: block * BLOCK_SECTORS, sectors: BLOCK_SECTORS };
            self.request_all(Kind::Write { fua: false }, vec![range])?;
        }
        self.return_all()?;
        self.read_all()
    }

    /// Others are lost, no more than the array can do without.
    fn lose_more(&mut self) {
        let away: Vec<Role> = self.unknown.away().collect();
        for role in self.cluster.more_losses(&away) {
            self.dies(role);
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

    /// Waits until all members are in sync.
    pub(super) fn be_whole(&mut self) -> Result<(), Failure> {
        self.began_at = self.cluster.world.steps;
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

    /// A new node is added in the place of one that is away.
    fn replace(&mut self) -> Result<(), Failure> {
        if self.dead.is_empty() || self.new.is_some() {
            return Ok(());
        }
        self.unknown.replaced();
        self.new = Some(self.cluster.offer_as(self.client, ADD));
        if self.cluster.rng.percent(25) {
            return Ok(());
        }
        let until = self.cluster.world.now().plus_millis(WHOLE_MILLIS);
        self.cluster.world.wake_at(until);
        let away = self.unknown.away().count();
        while self.unknown.away().count() >= away && self.cluster.world.now() < until {
            if !self.step()? {
                break;
            }
        }
        Ok(())
    }

    /// A node was taken in, or refused.
    pub(super) fn taken_in(&mut self) {
        let Some(new) = self.new else { return };
        let alive = self.cluster.world.processes[self.client].alive;
        match self.cluster.role_on(new.process) {
            Some(role) => {
                let RecoveryTarget { id, process, incarnation } = new;
                self.cluster.note(&[102, id, role.0.into()], || format!("{id} HAS ROLE {role}"));
                let at = role.index();
                let old = std::mem::replace(&mut self.cluster.nodes[at], process);
                self.cluster.world.kill(old);
                (self.cluster.ids[at], self.cluster.incarnations[at]) = (id, incarnation);
                self.dead.remove(&role);
                self.new = None;
            }
            None if !alive => {
                self.cluster.world.kill(new.process);
                self.new = None;
            }
            None => {}
        }
    }

    /// The array stops, and starts again with the nodes that run.
    pub(super) fn restart(&mut self) -> Result<(), Failure> {
        let all = self.unknown.away().next().is_none();
        self.stop()?;
        // Records are in place then, and gone.
        self.unrecorded |= all;
        self.begin()
    }
}
