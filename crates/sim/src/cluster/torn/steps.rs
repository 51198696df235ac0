//! Steps of a run: requests are submitted, and answers judged.

use braid_array::events::{ArrayEvent, SyncAction, SyncEnd};
use braid_array::format::superblock::MAX_SECTOR;
use braid_array::{Action, Role};
use braid_cluster::assemble::Start;
use braid_cluster::client::ClientConfig;

use super::{BLOCK_SECTORS, STOP, Torn};
use crate::cluster::nodes::Cluster;
use crate::cluster::recovery_target::RecoveryTarget;
use crate::judge::{self, Flight, Read};
use crate::oracle::{LogicalTime, Range};
use crate::report::Failure;
use crate::workload::Kind;

impl Cluster {
    /// Returns the reason why no array can be started from these roles.
    pub(super) fn refusal(&mut self, roles: &[Role]) -> String {
        match self.assembly(roles).start {
            Start::Ready(_) => String::new(),
            Start::Refused(why) => why.reason,
        }
    }
}

impl Torn<'_> {
    /// Submits this, if it is taken and nothing else is in flight to the same blocks.
    pub(super) fn submit(&mut self, kind: Kind, range: Range) -> bool {
        if self.judge.touches(self.client, range) {
            return false;
        }
        let world = &mut self.cluster.world;
        let Some(draft) = world.ask(&mut self.judge, self.client, kind, range) else {
            return false;
        };
        let Range { sector, sectors } = range;
        let serial = draft.serial;
        world.note(&[92, draft.request.id.0, sector, sectors], || {
            format!("SUBMIT {kind:?} {sector}+{sectors} serial {serial}")
        });
        let moment = self.judge.submitted(self.client, draft, true);
        match kind {
            Kind::Read => {
                let doubtful = |block: &u64| self.unknown.may_fail(*block);
                let doubtful: Vec<u64> = blocks_of(range).filter(doubtful).collect();
                self.doubtful.extend(doubtful.into_iter().map(|block| (moment, block)));
            }
            Kind::Flush => {}
            _ => {
                self.unrecorded &= self.whole && self.unknown.away().next().is_none();
                self.unknown.begins(moment, range);
                let superblock = self.cluster.status_of(self.client).superblock;
                if superblock.resync_offset != MAX_SECTOR {
                    self.early.insert(moment);
                }
                if self.unknown.write_may_fail(moment, range) {
                    self.risky.insert(moment);
                }
            }
        }
        self.cluster.world.drain(self.client);
        true
    }

    pub(super) fn step(&mut self) -> Result<bool, Failure> {
        self.answer_search()?;
        let moved = self.cluster.world.step();
        for (process, action) in std::mem::take(&mut self.cluster.world.outputs) {
            if process == self.client {
                self.hear(action)?;
            }
        }
        self.look_at_view();
        self.cluster.world.goes_on(moved, &self.judge, self.client)?;
        Ok(moved)
    }

    /// A step, where something is waited for that comes.
    pub(super) fn await_step(&mut self) -> Result<(), Failure> {
        if self.step()? {
            return Ok(());
        }
        let status = self.cluster.status_of(self.client);
        Err(Failure(format!("nothing goes on: {:?}, held up: {:?}", status.state, status.held_up)))
    }

    /// Members that are in sync by the newest view have joined.
    fn look_at_view(&mut self) {
        if !self.joining {
            return;
        }
        for role in self.unknown.away().collect::<Vec<_>>() {
            if self.is_in(role) {
                self.unknown.joined(role);
            }
        }
        self.joining = self.unknown.away().next().is_some();
    }

    /// Tells the client how it starts again, once enough nodes are there.
    fn answer_search(&mut self) -> Result<(), Failure> {
        let held_back = self.waits_for_all && !self.dead.is_empty();
        if held_back || !self.search.is_on() {
            return Ok(());
        }
        match self.config() {
            Ok(config) => self.search.ends_with(config),
            Err(_) if !self.dead.is_empty() => {}
            Err(why) => return Err(Failure(format!("does not go on with all: {why}"))),
        }
        Ok(())
    }

    /// Returns the configuration of a client on the running nodes.
    pub(super) fn config(&mut self) -> Result<ClientConfig, String> {
        let there = self.there();
        let dead: Vec<Role> = self.dead.iter().copied().collect();
        let Some(config) = self.cluster.assembled(&there) else {
            return Err(self.cluster.refusal(&there));
        };
        Ok(ClientConfig { absent: self.cluster.absent(&dead, false), ..config })
    }

    fn hear(&mut self, action: Action) -> Result<(), Failure> {
        match action {
            Action::Complete { id, result } => {
                let flight = self.judge.answered(self.client, id)?;
                let Range { sector, sectors } = flight.range;
                self.cluster.note(&[93, id.0, u64::from(result.is_ok())], || {
                    format!("COMPLETE {:?} {sector}+{sectors} {result:?}", flight.kind)
                });
                self.completed(&flight, result.is_ok())?;
                let bytes = self.cluster.world.processes[self.client].found(flight.request.buf);
                let stays = self.forgotten.is_none();
                let read = Read { bytes, stays, excused: &judge::nothing };
                self.judge.conclude(&flight, result, Some(read))
            }
            Action::Reply { id: STOP, result } => {
                self.stopped = true;
                result.map_err(|why| Failure(format!("stop refused: {why}")))
            }
            Action::Reply { result, .. } => {
                self.cluster.note(&[94, u64::from(result.is_ok())], || format!("{result:?}"));
                self.taken_in();
                Ok(())
            }
            Action::Notify(event) => {
                self.cluster.note(&[95], || format!("EVENT {event:?}"));
                self.notified(&event);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn notified(&mut self, event: &ArrayEvent) {
        match event {
            ArrayEvent::MemberActive(_) => {
                self.taken_in();
                self.joining = true;
            }
            ArrayEvent::SyncFinished {
                action: SyncAction::Resync, end: SyncEnd::Complete, ..
            } => self.unknown.resynced(),
            _ => {}
        }
    }

    fn completed(&mut self, flight: &Flight, ok: bool) -> Result<(), Failure> {
        let &Flight { kind, range, moment, .. } = flight;
        let Range { sector, sectors } = range;
        match kind {
            Kind::Read => {
                let doubtful = |&block: &u64| {
                    self.doubtful.contains(&(moment, block)) || self.unknown.may_fail(block)
                };
                if !ok && !blocks_of(range).any(|block| doubtful(&block)) {
                    let expected = self.judge.oracle.may_hold(sector);
                    let away: Vec<Role> = self.unknown.away().collect();
                    return Err(Failure(format!(
                        "a read of {sector}+{sectors} failed without {away:?}: it holds {expected}"
                    )));
                }
                self.doubtful.retain(|(other, _)| *other != moment);
            }
            Kind::Flush => self.flushed(moment, ok)?,
            _ => {
                let early = self.early.remove(&moment) && self.unknown.is_in_doubt(range);
                let risky = self.risky.remove(&moment) || early;
                if !ok && !risky && !self.unknown.write_may_fail(moment, range) {
                    return Err(Failure(format!("a write of {sector}+{sectors} failed")));
                }
                let now = self.judge.moment();
                self.unknown.ends(moment, now, ok, kind.fua());
            }
        }
        Ok(())
    }

    /// A flush may fail where nodes have lost their memories, and says so once.
    fn flushed(&mut self, moment: LogicalTime, ok: bool) -> Result<(), Failure> {
        if ok {
            self.forgotten = None;
            self.unknown.flushed(moment);
            return Ok(());
        }
        let Some(until) = self.forgotten.take() else {
            return Err(Failure("a flush failed for nothing".to_owned()));
        };
        self.unknown.forgotten();
        self.judge.oracle.lose_before(moment);
        // It is said to who asked before some of that was answered as well.
        self.forgotten = (moment < until).then_some(until);
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
}

fn blocks_of(range: Range) -> std::ops::Range<u64> {
    range.sector / BLOCK_SECTORS..(range.sector + range.sectors) / BLOCK_SECTORS
}
