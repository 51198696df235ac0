//! Requests to a client of a run, and events meanwhile.

use braid_array::Role;

use super::{BLOCK_SECTORS, Torn, WHOLE_MILLIS};
use crate::cluster::recovery_target::ADD;
use crate::oracle::Range;
use crate::report::Failure;
use crate::workload::Kind;

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
            self.cluster.world.begin();
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
}
