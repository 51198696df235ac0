//! Answers and events of a simulated array: each is judged when it comes.

use braid_array::action::CommandId;
use braid_array::events::{ArrayEvent, SyncAction, SyncEnd};
use braid_array::stack::Stack;
use braid_array::{Action, Instant, MemberId, RequestError, RequestId};

use super::commands::Replied;
use super::{CLIENT, Local};
use crate::judge::{self, Flight, Read};
use crate::oracle::{LogicalTime, Range};
use crate::report::Failure;
use crate::workload::Kind;

/// Largest height of a range that a repair takes from parity at once.
const BLOCK_SECTORS: u64 = 8;

impl Local {
    /// Sees to everything that came out of the machine.
    pub fn outputs(&mut self) -> Result<(), Failure> {
        for (_, output) in std::mem::take(&mut self.world.outputs) {
            match output {
                Action::Complete { id, result } => self.completed(id, result)?,
                Action::Reply { id, result } => {
                    self.replied(id, result.map_err(|error| error.to_string()))?;
                }
                Action::Notify(event) => self.notified(&event)?,
                other => return Err(Failure(format!("unexpected {other:?}"))),
            }
        }
        self.world.faultless()
    }

    fn completed(
        &mut self,
        id: RequestId,
        result: Result<(), RequestError>,
    ) -> Result<(), Failure> {
        let flight = self.judge.answered(CLIENT, id)?;
        if result == Err(RequestError::BufferHeld) {
            return self.ask_again(flight);
        }
        self.full = false;
        self.world.is_free(CLIENT, flight.request.buf)?;
        let Flight { kind, range, request, .. } = flight;
        self.note(&[11, id.0, u64::from(result.is_ok())], || {
            format!("COMPLETE #{} {kind:?} {}+{}: {result:?}", id.0, range.sector, range.sectors)
        });
        let refused = result == Err(RequestError::NoSpace) && self.was_tight;
        if refused && !matches!(kind, Kind::Read | Kind::Flush) {
            let part = &mut self.parts.devices[0];
            part.suspects.in_flight(range, &part.shape);
            part.synced = false;
            let degraded = self.status().degraded > 0;
            self.note_lost(degraded);
            self.exempt();
            self.exempt_unreadable();
        }
        if let Err(error) = result
            && !self.excess
            && !refused
            && !self.may_be_lost(error, flight.moment)
            && !(self.spill_failed && error == RequestError::Failed)
        {
            let Range { sector, sectors } = range;
            return Err(Failure(format!("{kind:?} {sector}+{sectors} failed: {error}")));
        }
        let bytes = self.world.processes[CLIENT].found(request.buf);
        let read = Read { bytes, stays: true, excused: &judge::nothing };
        self.judge.conclude(&flight, result, Some(read))?;
        let suspects = &mut self.parts.devices[0].suspects;
        if result.is_ok() {
            suspects.note_served();
        }
        if !matches!(kind, Kind::Read | Kind::Flush) {
            suspects.note_write(range);
        }
        let writes = matches!(kind, Kind::Write { .. } | Kind::Zeroes { .. });
        if writes && result.is_ok() && self.parts.over.is_none() {
            let part = &mut self.parts.devices[0];
            part.suspects.written(range, &part.shape);
        }
        Ok(())
    }

    fn replied(&mut self, id: CommandId, result: Result<(), String>) -> Result<(), Failure> {
        let Some(Replied { name, left, grows }) = self.commands.replied(id, &result) else {
            return Err(Failure(format!("command {} replied twice", id.0)));
        };
        self.note(&[21, id.0, u64::from(result.is_ok())], || {
            format!("REPLY {} {name}: {result:?}", id.0)
        });
        if grows {
            let status = self.status();
            self.look(&status);
            self.cut_percent = if result.is_ok() { 40 } else { 0 };
            self.parts.devices[0].asked = None;
            if result.is_err() {
                self.grown()?;
            }
        }
        if let Some(member) = left {
            self.process_mut().attach(member, None);
        }
        Ok(())
    }

    fn notified(&mut self, event: &ArrayEvent) -> Result<(), Failure> {
        self.note(&[30], || format!("EVENT {event:?}"));
        if let ArrayEvent::ChecksumMismatch { member, sector, .. } = *event {
            let rotten = |device| self.rotten.contains_key(&(device, sector));
            if !self.device(member).is_some_and(rotten) {
                return Err(Failure(format!("a false alarm: {event:?}")));
            }
        }
        if let ArrayEvent::ChecksumsGivenUp { member, .. } = *event {
            let fails = |device| self.sums.faulty.contains(&device);
            if !self.device(member).is_some_and(fails) {
                return Err(Failure(format!("given up for nothing: {event:?}")));
            }
            self.sums.given_up = true;
        }
        let mut part = self.parts.top_mut();
        let mut told = event;
        if let ArrayEvent::Within { array, event } = event {
            let number = array.0 - Stack::array(MemberId(0)).0;
            part = &mut self.parts.devices[usize::from(number)];
            told = event;
        }
        self.members_changed |=
            matches!(told, ArrayEvent::MemberFailed { .. } | ArrayEvent::MemberActive(_));
        // A member that had no room did not get what was written: sums there may not fit, and what
        // goes with another one before a resync is over is lost.
        self.lost_in_doubt |= self.was_tight && matches!(told, ArrayEvent::DataLost { .. });
        let doubtful = part.scenario.has_parity() && !part.synced;
        part.notified(told);
        let ended = doubtful && part.synced;
        if ended && self.some_was_unreadable() {
            self.doubt_ended = Some(self.judge.moment());
        }
        self.judge(told)
    }

    /// Returns whether this error may report lost data that parity cannot vouch for. Before the
    /// first resync, data lost with a member or unreadable must not be computed from parity. A
    /// request may have met sectors that were rewritten before it was answered. A request with a
    /// failed piece is answered after its other pieces: the resync may have ended by then.
    fn may_be_lost(&mut self, error: RequestError, submitted: LogicalTime) -> bool {
        let damaged = (0..self.process().devices.len()).any(|device| self.is_damaged(device));
        let gaps = self.parts.all().any(|part| part.rebuilt_with_gaps);
        let medium = error == RequestError::Medium;
        self.note_lost((damaged || gaps) && medium);
        let met_it = self.doubt_ended.is_some_and(|ended| submitted < ended);
        (self.lost_in_doubt || met_it) && medium
    }

    /// Returns whether a request in flight may have met unreadable data.
    fn some_was_unreadable(&self) -> bool {
        let oldest = self.judge.flights(CLIENT).map(|flight| flight.moment).min();
        let met = |(device, since): (&usize, &Option<(LogicalTime, Instant)>)| {
            let remembers = |(moment, _)| oldest.is_some_and(|oldest| oldest <= moment);
            self.disk(*device).damaged() || since.is_none_or(remembers)
        };
        self.damaged.iter().any(met) || self.parts.all().any(|part| part.rebuilt_with_gaps)
    }

    /// Checks the claim of an event.
    fn judge(&mut self, event: &ArrayEvent) -> Result<(), Failure> {
        match *event {
            ArrayEvent::MemberFailed { .. } => {
                self.note_lost(true);
                self.exempt();
            }
            // Who asks for it takes parity's word for what cannot be read.
            ArrayEvent::SyncStarted(SyncAction::Repair) => self.exempt_unread(BLOCK_SECTORS),
            ArrayEvent::SyncStarted(SyncAction::Reshape) => self.cut_percent = 70,
            ArrayEvent::SyncFinished { action: SyncAction::Reshape, ref end, .. } => {
                self.cut_percent = 60;
                self.note_lost(matches!(end, SyncEnd::Unread { .. }));
                if matches!(end, SyncEnd::Unread { .. }) && !self.excess && !self.lost_in_doubt {
                    return Err(Failure(format!("{event:?}")));
                }
            }
            ArrayEvent::ShapeChanged { to, .. } => {
                self.cut_percent = 20;
                let status = self.status();
                self.look(&status);
                if to.array_sectors != status.array_sectors {
                    let now = status.array_sectors;
                    return Err(Failure(format!("{event:?}, with {now} sectors")));
                }
                self.grown()?;
            }
            ArrayEvent::ReadCorrected { member, fault } => {
                let disk = self.device(member).map(|device| self.disk(device));
                let sector = fault.sector.unwrap_or(0);
                if disk.is_some_and(|disk| disk.read(sector, &mut [0; 512]).is_err()) {
                    return Err(Failure(format!("{event:?}, and cannot be read")));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
