//! The end of a relay: all nodes are there, and nothing happens any more.

use braid_array::Role;
use braid_array::action::Command;
use braid_array::format::superblock::MAX_SECTOR;
use braid_array::status::ArrayState;

use super::{Relay, STOP};
use crate::cluster::content;
use crate::cluster::scenario::ClusterScenario;
use crate::report::Failure;
use crate::workload::Kind;

impl Relay<'_> {
    /// Finishes with all nodes present: the array starts, becomes complete, and its content and
    /// parities are right.
    pub(super) fn finish(&mut self, all: &[Role]) -> Result<(), Failure> {
        self.come_to_rest();
        self.starts(all)?;
        for number in 0..self.cluster.witnesses.len() {
            self.cluster.restart_witness(number);
        }
        for node in self.cluster.nodes.clone() {
            self.cluster.world.thaw(node);
        }
        self.gone.clear();
        self.begin(all);
        let none = || Failure("all are there, and there is no array".to_owned());
        if self.client.is_none() {
            return Err(none());
        }
        loop {
            let client = self.client.as_ref().ok_or_else(none)?.process;
            let status = self.cluster.status_of(client);
            if status.state == ArrayState::Failed {
                return self.is_doubtful();
            }
            let fits = status.superblock.resync_offset == MAX_SECTOR;
            if fits && status.degraded == 0 && status.view.is_some() {
                break;
            }
            if !self.step()? {
                return if self.short {
                    Ok(())
                } else {
                    Err(Failure(format!("comes to rest as {status:?}")))
                };
            }
        }
        self.read_all()?;
        self.stop()?;
        self.judge()
    }

    /// Checks whether the array may fail to start although all nodes are present. Without journals,
    /// the state of members at the loss of power is unknown, and other members have missed writes.
    fn is_doubtful(&self) -> Result<(), Failure> {
        let ClusterScenario { params, journal_bytes, .. } = &self.cluster.scenario;
        let doubtful = params.family.has_parities() && *journal_bytes == 0 && !self.kept;
        if doubtful {
            Ok(())
        } else {
            Err(Failure("all are there, and it does not start".to_owned()))
        }
    }

    fn read_all(&mut self) -> Result<(), Failure> {
        let mut left: Vec<u64> = (0..self.blocks).rev().collect();
        while !left.is_empty() || self.in_flight() > 0 {
            if let Some(&next) = left.last()
                && self.request(Kind::Read, next..next + 1)
            {
                left.pop();
                continue;
            }
            // Answers that wait in the machine need no step.
            let before = self.in_flight();
            if !self.step()? && self.in_flight() == before {
                return Err(Failure("reads are not taken".to_owned()));
            }
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.client.as_ref().map_or(0, |client| self.judge.in_flight(client.process))
    }

    fn stop(&mut self) -> Result<(), Failure> {
        let Some(process) = self.client.as_ref().map(|client| client.process) else {
            return Ok(());
        };
        while self.in_flight() > 0 {
            self.step()?;
        }
        self.cluster.world.command(process, STOP, Command::Stop);
        self.until("a stop is never answered", |relay| {
            relay.client.as_ref().is_none_or(|client| client.stopped)
        })
    }

    /// Judges the content of the volumes, all of them and as many as are needed.
    fn judge(&mut self) -> Result<(), Failure> {
        let lost = self.cluster.more_losses(&[]);
        let without = [&[], &lost[..]];
        content::judge(&self.cluster.layout, &self.cluster.disks(), &without, &mut self.judge)
    }
}
