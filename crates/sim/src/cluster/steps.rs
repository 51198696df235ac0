//! Steps of a session: requests are submitted, the next event is handled, and answers are judged.

use braid_array::action::{Command, CommandId};
use braid_array::events::{ArrayEvent, SyncAction, SyncEnd};
use braid_array::format::Superblock;
use braid_array::format::superblock::feature;
use braid_array::{Action, Instant, Machine, Refusal};

use super::content::{self, VOLUME};
use super::guest;
use super::promises::Happened;
use super::recovery_target::ADD;
use super::session::{Phase, Session};
use super::spare::{REPLACED, SPARE};
use crate::disk::Disk;
use crate::report::Failure;
use crate::workload::{Kind, Workload};

const STOP: CommandId = CommandId(1);
const SCRUB: CommandId = CommandId(2);

/// Time for the client to tell a node that it has left. The client tries again at growing
/// intervals; a hang may last a hundred seconds.
const FREE_MILLIS: u64 = 300_000;

impl Session {
    /// Handles the next event, and judges the outputs. Returns false when nothing is due.
    pub fn step(&mut self) -> Result<bool, Failure> {
        let moved = self.cluster.world.step();
        self.outputs()?;
        self.look_at_spare();
        if let Some(guest) = &mut self.guest {
            guest.go_on(&mut self.cluster.world);
            self.outputs()?;
        }
        self.cluster.world.goes_on(moved, &self.judge, self.client)?;
        Ok(moved)
    }

    /// Steps until the condition holds; fails with `what` if it never does.
    pub(super) fn until(
        &mut self,
        what: &str,
        mut is: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), Failure> {
        while !is(self) {
            if !self.step()? {
                return Err(Failure(what.to_owned()));
            }
        }
        Ok(())
    }

    /// Sees to everything that came out of the machines.
    pub fn outputs(&mut self) -> Result<(), Failure> {
        for (process, action) in std::mem::take(&mut self.cluster.world.outputs) {
            if let Some(guest) = self.guest.as_mut().filter(|guest| guest.process == process) {
                guest.hears(&action)?;
                continue;
            }
            if self.fenced_says(process, &action)? {
                continue;
            }
            match action {
                Action::Complete { id, result } if process == self.client => {
                    self.completed(id, result)?;
                }
                Action::Reply { id, result } if process == self.client => {
                    self.replied(id, result)?;
                }
                Action::Notify(event) => self.notified(process, &event),
                other
                    if process == self.client
                        || self.cluster.nodes.contains(&process)
                        || self.cluster.witnesses.contains(&process) =>
                {
                    return Err(Failure(format!("unexpected {other:?}")));
                }
                _ => {}
            }
        }
        if self.phase == Phase::Outdated {
            self.start_again()?;
        }
        self.cluster.world.faultless()
    }

    fn replied(&mut self, id: CommandId, result: Result<(), Refusal>) -> Result<(), Failure> {
        if id == STOP {
            self.phase = Phase::Stopped;
            return result.map_err(|error| Failure(format!("stop refused: {error}")));
        }
        let kind = match id {
            ADD => 47,
            SPARE => 56,
            _ => 44,
        };
        self.cluster.note(&[kind, u64::from(result.is_ok())], || format!("{result:?}"));
        match id {
            ADD => self.added(),
            SPARE => self.spare_added(result.is_ok()),
            _ => {}
        }
        Ok(())
    }

    fn notified(&mut self, process: usize, event: &ArrayEvent) {
        self.cluster.note(&[41, process as u64], || format!("EVENT {process} {event:?}"));
        if process != self.client || self.phase == Phase::Outdated {
            return;
        }
        match event {
            ArrayEvent::MembersChanged => self.phase = Phase::Outdated,
            ArrayEvent::SyncStarted(SyncAction::Resync)
                if self.promises.all_fits && !self.promises.troubled =>
            {
                let fault = "a resync after nothing was lost but a client".to_owned();
                self.cluster.world.faults.push(fault);
            }
            ArrayEvent::MemberFailed { member, reason, .. } => {
                if let Some(role) = self.cluster.role_of(self.client, *member) {
                    self.cluster.world.signs.lost += 1;
                    let replaced = self.cluster.scenario.replaces && REPLACED.contains(&&**reason);
                    let parities_fit = !self.suspects.any();
                    self.promises.heard(Happened::GoneWithout { role, replaced, parities_fit });
                }
            }
            ArrayEvent::MemberActive(member) => {
                if let Some(role) = self.cluster.role_of(self.client, *member) {
                    let disk = self.cluster.disk(role);
                    let readable = !disk.damaged();
                    let notes = |known: Superblock| known.has(feature::BAD_BLOCKS);
                    let knows_all = !content::superblock(disk).is_ok_and(notes);
                    self.promises.heard(Happened::HasAll { role, readable, knows_all });
                }
            }
            ArrayEvent::SyncFinished {
                action: SyncAction::Resync, end: SyncEnd::Complete, ..
            } => {
                self.promises.heard(Happened::Resynced);
                // What a lost node had alone is not brought back by that.
                if self.promises.lost.is_empty() {
                    self.suspects.resynced(self.judge.moment());
                }
            }
            ArrayEvent::DataLost { .. } => self.promises.heard(Happened::DataLost),
            ArrayEvent::Mismatch { .. }
            | ArrayEvent::SyncFinished { action: SyncAction::Check | SyncAction::Repair, .. } => {
                self.scrubs.push(event.clone());
            }
            _ => {}
        }
    }

    /// Asks the client for a check or repair.
    pub fn scrub(&mut self, repair: bool) {
        self.cluster.note(&[45, u64::from(repair)], || format!("SCRUB repair {repair}"));
        self.cluster.world.command(self.client, SCRUB, Command::Scrub { repair });
    }

    /// Asks the client to stop.
    pub fn ask_to_stop(&mut self) {
        self.cluster.note(&[43], || "STOP".to_owned());
        self.cluster.world.command(self.client, STOP, Command::Stop);
    }

    /// The client dies.
    pub fn crash(&mut self) {
        self.promises.heard(Happened::ClientGone);
        self.cluster.world.kill(self.client);
        self.added();
        self.look_at_spare();
        self.not_yet_regained();
        self.suspects.crash();
        self.judge.client_ends(self.client);
    }

    /// Submits the next request if there is room. True when one was taken.
    pub fn submit(&mut self, workload: &mut Workload) -> bool {
        if self.judge.free_slot(self.client).is_none() {
            return false;
        }
        let (kind, range) = self.waiting.take().unwrap_or_else(|| workload.next_request());
        if !self.fenced.is_empty()
            && matches!(kind, Kind::Write { .. })
            && self.cluster.rng.percent(10)
        {
            self.write_as_fenced(range);
        }
        let taken = self.submit_one(kind, range);
        if !taken {
            self.waiting = Some((kind, range));
        }
        taken
    }

    /// Reads every sector once.
    pub(super) fn read_everything(&mut self) -> Result<(), Failure> {
        let mut sweep = Workload::sweep(self.cluster.layout.sectors());
        sweep.largest(self.cluster.scenario.largest_sectors);
        while sweep.more() || self.waiting.is_some() || self.in_flight() > 0 {
            while (sweep.more() || self.waiting.is_some()) && self.submit(&mut sweep) {
                self.outputs()?;
            }
            if !self.step()? && self.waiting.is_some() {
                return Err(Failure("nothing is due, and no read is taken".to_owned()));
            }
        }
        Ok(())
    }

    /// Nodes that have left the array keep nothing that waits for another client.
    pub(super) fn departed_are_free(&mut self) -> Result<(), Failure> {
        self.look_at_spare();
        let until = self.cluster.world.now().plus_millis(FREE_MILLIS);
        while let Some(&kept) = self.departed.iter().find(|&&process| {
            let process = &self.cluster.world.processes[process];
            process.volume(VOLUME).open.is_some() || !process.machine.idle()
        }) {
            // A client that can write no more tells nobody anything.
            if self.promises.failed {
                break;
            }
            if self.cluster.world.now() >= until || !self.step()? {
                let name = &self.cluster.world.processes[kept].name;
                let what = format!("{name} has left the array and keeps its volume open");
                return Err(Failure(what));
            }
        }
        self.drop_departed();
        Ok(())
    }

    /// Returns whether the client should finish the resync or recovery before its stop.
    pub(super) fn waits_for_sync(&mut self, until: Instant) -> bool {
        let rebuilt = !self.promises.failed && !self.rebuilding().is_empty();
        let goes_on = rebuilt || self.is_replacing();
        goes_on && self.cluster.world.now() < until || !self.promises.troubled && self.syncing()
    }

    /// The other array comes to its end, and is looked at.
    pub fn end_guest(&mut self) -> Result<(), Failure> {
        if let Some(guest) = &mut self.guest {
            guest.left = 0;
        }
        self.until("the guest does not stop", |session| {
            session.guest.as_ref().is_none_or(|guest| guest.stopped)
        })?;
        let Some(mut guest) = self.guest.take() else { return Ok(()) };
        let disks: Vec<&Disk> = self
            .cluster
            .nodes
            .iter()
            .map(|&node| &self.cluster.world.processes[node].volume(guest::VOLUME).disk)
            .collect();
        guest.judge(&disks)
    }
}
