//! Commands of the keeper, carried out.

use super::Array;
use super::io::Owner;
use super::job::{Check, Job, JobKind};
use super::reshaping::{Asked, Reshaping};
use super::scratch::PAGE_BYTES;
use crate::action::{Action, Command, CommandId};
use crate::keeper::{Done, Keeper, LaneCommand, LaneReport, Traffic, Unit, Work};
use crate::log::journal::JournalArea;
use crate::{Buf, IoOp};

impl Array {
    /// Carries out the keeper's commands, in order.
    pub(super) fn carry_out(&mut self) {
        while let Some(command) = self.lane.keeper_mut().next_command() {
            match command {
                LaneCommand::Flush(member) => {
                    self.lane.issue(member, IoOp::Flush, Owner::Meta { page: None })
                }
                LaneCommand::Write(write) => {
                    self.meta_writes.push_back(write);
                    self.pump_pages();
                }
                LaneCommand::Updated => {
                    self.jobs.updated(&self.lane);
                    self.logging.log.updated(&mut self.lane);
                    self.requests.answer_told(&mut self.lane);
                }
                LaneCommand::CheckpointDone => self.logging.log.checkpoint_done(&mut self.lane),
                LaneCommand::Work { place, unit, work } => self.start_work(place, unit, work),
                LaneCommand::GiveUp(member) => {
                    self.lane.members_change();
                    self.lane.ios.give_up(member);
                }
                LaneCommand::Disown(member) => {
                    self.lane.members_change();
                    self.lane.ios.disown(member);
                }
                LaneCommand::BeginJournal { member, data_offset, data_sectors, first_seq } => {
                    let area =
                        JournalArea { start: data_offset, sectors: data_sectors & !7, tail: 0 };
                    self.logging.begin_journal(&mut self.lane, member, area, first_seq);
                }
                LaneCommand::Record(on) => self.logging.switch(&mut self.lane, on),
                LaneCommand::Grown(shape) => {
                    Reshaping::take_shape(&mut self.lane, &mut self.jobs, &shape);
                }
                // Its members are as long as they are: no lane of this kind is asked.
                LaneCommand::Lengthen { .. } => {}
                LaneCommand::Seal { device, header } => {
                    self.reshaping.seal(&mut self.lane, device, header);
                }
                LaneCommand::Window { front, end, saved_to } => {
                    let Self { lane, requests, jobs, reshaping, .. } = self;
                    reshaping.set_window(lane, requests, jobs, (front, end), saved_to);
                }
                LaneCommand::JournalMode(mode) => self.lane.dirty.mode = mode,
                LaneCommand::Reply(id, result) => {
                    self.lane.actions.push_back(Action::Reply { id, result })
                }
                LaneCommand::Notify(event) => self.lane.actions.push_back(Action::Notify(event)),
            }
        }
    }

    /// Lets the keeper do all that it can do now.
    pub(super) fn drive_keeper(&mut self) {
        self.lane.keeper_mut().drive_meta();
        self.carry_out();
        self.lane.keeper_mut().drive_sync();
        self.carry_out();
        self.with_traffic(|keeper, traffic| keeper.drive_removals(traffic));
        self.with_traffic(|keeper, traffic| keeper.drive_growing(traffic));
        self.reshaping.begin_asked(&mut self.lane, &self.logging);
        // Requests that were held may begin now: they are in flight.
        if !self.requests.any_held() {
            self.with_traffic(|keeper, traffic| keeper.drive_stop(traffic));
        }
        self.lane.keeper_mut().drive_meta();
        self.carry_out();
    }

    pub(super) fn take_command(&mut self, id: CommandId, command: Command) {
        self.lane.members_change();
        let Self { lane, logging, reshaping, .. } = self;
        let (grow, suspends) = match command {
            Command::Grow(grow) => (grow, false),
            Command::GrowSuspending(grow) => (grow, true),
            _ => return self.with_traffic(|keeper, traffic| keeper.command(id, command, traffic)),
        };
        reshaping.ask(lane, logging, Asked { id, grow, suspends });
    }

    fn with_traffic(&mut self, drive: impl FnOnce(&mut Keeper, Traffic<'_>)) {
        let Self { lane, requests, jobs, logging, .. } = self;
        let quiet = requests.in_flight() == 0 && jobs.is_empty() && logging.is_over();
        let quiet = quiet && (!lane.destages() || lane.dirty.is_stuck());
        let quiet = quiet && !(lane.keeper().holds_requests() && logging.log.is_flushing());
        let closes = lane.keeper().is_stopping() || lane.keeper().holds_requests();
        let quiet = quiet && (!closes || logging.log.close(lane));
        lane.drive_with(quiet, &|id| jobs.mention(id), drive);
        self.carry_out();
    }

    /// Writes metadata while there are pages to hold them.
    pub(super) fn pump_pages(&mut self) {
        while !self.meta_writes.is_empty() {
            let Some(buf) = self.lane.pool.take_page() else { return };
            let Some(write) = self.meta_writes.pop_front() else { return };
            if !self.lane.keeper().members().live(write.member) {
                self.lane.pool.give_page(buf);
                self.lane.report(LaneReport::UpdateDone);
                continue;
            }
            let buf = Buf { len: write.bytes.len() as u32, ..buf };
            self.lane.actions.push_back(Action::Store { buf, bytes: write.bytes });
            let op = IoOp::Write { sector: write.sector, buf, fua: true, fill: false };
            self.lane.issue(write.member, op, Owner::Meta { page: Some(buf.offset) });
        }
    }

    /// An I/O of the running update is answered.
    pub(super) fn meta_io_done(&mut self, page: Option<u64>) {
        if let Some(offset) = page {
            self.lane.pool.give_page(Buf { offset, len: PAGE_BYTES });
        }
        self.lane.report(LaneReport::UpdateDone);
        self.carry_out();
        self.pump_pages();
    }

    /// Begins with a unit.
    fn start_work(&mut self, place: u64, unit: Unit, work: Work) {
        let kind = match work {
            Work::Compare(fix) => JobKind::Check(Check::new(unit, fix)),
            Work::Rebuild(targets) => JobKind::Rebuild { unit, targets },
            Work::Verify(target) => JobKind::Verify { unit, target },
            Work::Save => JobKind::Save { unit },
            Work::Move => JobKind::Move { unit },
            // Spares are members here while they are copied to.
            Work::Copy => {
                let done = Done::Failed;
                return self.lane.report(LaneReport::WorkDone { place, unit, work, done });
            }
        };
        self.jobs.start(Job { place, ..Job::new(kind, false) });
    }
}
